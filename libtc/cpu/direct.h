/* SPDX-License-Identifier: MIT
 *
 * The product of narrow matrices, C[i,j] = sum over k of A[i,k] * B[k,j] for each of several items, where a packed copy of B would
 * cost more than it saves: B is read where it lies. Each element is summed in the same order as by tc_product_run, so the bits are
 * the same.
 */
#ifndef TC_CPU_DIRECT_H
#define TC_CPU_DIRECT_H

#include "cpu/product.h"

/* A stored fp16 matrix, or one for each item. */
typedef struct tc_halves {
  const uint16_t *elements;
  int64_t ld, stride;
  bool rows_are_k; /* as in tc_source */
} tc_halves;

typedef struct tc_direct {
  int64_t items, M, N, K; /* all at least 1; M is meant to be the shorter side */
  tc_halves a, b;
  tc_sink c;
  bool transposed;     /* the sink takes the rows of C's transpose */
  bool joined_columns; /* for such a sink: columns of C of full height M follow one another, and it takes several at once */
} tc_direct;

/* Computes all items. Errors: MEMORY, before the sink has been called. */
tc_status_t tc_direct_run(tc_cpu *cpu, const tc_direct *direct);

#endif
