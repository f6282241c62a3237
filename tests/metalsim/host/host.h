/* SPDX-License-Identifier: MIT
 *
 * What the tests of the Metal backend's host side share: a small product in the library's own memory, whose result is known.
 */
#ifndef TC_TESTS_METALSIM_HOST_H
#define TC_TESTS_METALSIM_HOST_H

#include "common/check.h"

#include <metalsim.h>

/* A context on Metal, or the program ends. */
tc_context *open_metal(void);

/* Shuts down; no object of Metal's is left, unless buffers are. */
void close_metal(tc_context *ctx);
void check_nothing_lives(void);

/* C = A * B of halves: A is all a, B all b, so C is all a * b * K. C is NaN before. */
typedef struct product {
  tc_gemm_desc desc;
  tc_buffer *A, *B, *C;
  uint16_t *c;
  double a, b;
} product;

product product_open(tc_context *ctx, int64_t M, int64_t N, int64_t K);
tc_status_t product_call(const product *p, tc_context *ctx);
void product_close(product *p, tc_context *ctx);

bool product_right(const product *p);     /* all of C is the result */
bool product_untouched(const product *p); /* all of C is NaN, as before */

#endif
