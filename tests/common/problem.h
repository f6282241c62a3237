/* SPDX-License-Identifier: MIT
 *
 * A GEMM or a convolution, for tests that hold for every op.
 */
#ifndef TC_TESTS_PROBLEM_H
#define TC_TESTS_PROBLEM_H

#include "conv_case.h"
#include "gemm_case.h"

typedef struct problem {
  bool is_gemm;
  gemm_case gemm;
  conv_case conv;
  accuracy how;  /* what the data allow to ask of the output */
  uint64_t seed; /* of the data */
} problem;

/* Any op, with random sizes of at most that many products, parameters and kind of data. */
problem problem_random(rng *r, int64_t macs);

/* The same, of one op: normal data, no special parameters. */
problem problem_gemm(int64_t M, int64_t N, int64_t K);
problem problem_conv(conv_op op, conv_shape shape);

void problem_open(problem *p, tc_context *ctx);
void problem_close(problem *p, tc_context *ctx);
tc_status_t problem_call(problem *p, tc_context *ctx);
const operand *problem_output(const problem *p);
bool problem_check(problem *p, tc_context *ctx);
void problem_note(const problem *p);

/* Opens, calls and closes; gives the output's bytes. The caller frees. */
uint8_t *problem_bytes(problem *p, tc_context *ctx, size_t *bytes);

#endif
