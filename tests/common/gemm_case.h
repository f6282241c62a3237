/* SPDX-License-Identifier: MIT
 *
 * One GEMM to test: the problem, its operands, its reference in double.
 */
#ifndef TC_TESTS_GEMM_CASE_H
#define TC_TESTS_GEMM_CASE_H

#include "operand.h"

typedef struct gemm_case {
  tc_gemm_batched_desc desc;
  bool batched; /* by tc_gemm_batched even if tc_gemm would do */
  placement place;
  contents a_data, b_data, c_data; /* c_data is not used if beta is 0: C is NaN then */
  operand A, B, C;
  uint8_t *before; /* C's bytes before the call */
} gemm_case;

/* Packed, contiguous, alpha 1, beta 0, normal data. */
gemm_case gemm_make(int64_t M, int64_t N, int64_t K);

/* Integers whose sums stay exact in fp32; odd: A's are odd and over 256. The rule is RULE_EXACT then. */
void gemm_integers(gemm_case *g, bool odd);

/* Random transposes, alpha, beta, leading dimensions, offsets, output dtype, batch and placement for given M, N, K. */
void gemm_randomize(gemm_case *g, rng *r);

/* That many products, each operand's stride random: packed, with a gap, or (A and B) 0. After gemm_randomize. */
void gemm_batch(gemm_case *g, int64_t batch, rng *r);

/* Makes the operands. Inputs are read-only from then on. */
void gemm_open(gemm_case *g, tc_context *ctx, rng *r);
void gemm_close(gemm_case *g, tc_context *ctx);

/* Restores C and calls tc_gemm or tc_gemm_batched. */
tc_status_t gemm_call(gemm_case *g, tc_context *ctx);

/* What C should be; the caller frees. */
expected *gemm_reference(const gemm_case *g);

/* Open, call, compare, close. */
bool gemm_check(gemm_case *g, tc_context *ctx, rng *r, accuracy how);

void gemm_note(const gemm_case *g);

#endif
