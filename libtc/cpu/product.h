/* SPDX-License-Identifier: MIT
 *
 * The one matrix product behind GEMM and all three convolutions: C[i,j] = sum over k of A[i,k] * B[k,j], for each of several items
 * (the matrices of a batch, or the groups of a convolution). Where A, B and C come from and go to is a function: an operand is read
 * by rows of fp16, a result is handed over by rows of fp32. So an im2col matrix is never built; its rows are gathered when a
 * block of it is packed.
 */
#ifndef TC_CPU_PRODUCT_H
#define TC_CPU_PRODUCT_H

#include "cpu/cpu.h"

/* out[0..n) = elements first .. first+n-1 of row r. */
typedef void tc_source_row(const void *self, int64_t item, int64_t r, int64_t first, int64_t n, uint16_t *out);

typedef struct tc_source {
  tc_source_row *row;
  const void *self;
  bool rows_are_k; /* row r is k = r and runs along i (or j); else it is i = r (or j = r) and runs along k */
  int64_t cost;    /* of packing an element, relative to the other operand's */
} tc_source;

/* Takes C[i, j .. j+n-1], each one rounded to fp32 from the whole sum; may change values in place. */
typedef void tc_sink_row(const void *self, int64_t item, int64_t i, int64_t j, int64_t n, float *values);

typedef struct tc_sink {
  tc_sink_row *row;
  const void *self;
} tc_sink;

typedef struct tc_product {
  int64_t items, M, N, K; /* K may be 0: C gets +0 */
  tc_source a, b;
  tc_sink c;
  bool split_k; /* long sums may be cut into pieces; how depends on M, N and K only */
  bool tiles;   /* by tile products (split.h), see tc_tiles_pay */
  bool strict;  /* math_mode strict */
} tc_product;

/* Computes all items. Errors: MEMORY, before the sink has been called. */
tc_status_t tc_product_run(tc_cpu *cpu, const tc_product *product);

/* A block of one item: rows i .. i+m-1, columns j .. j+n-1; TC_MC by TC_NC is not too large. */
typedef struct tc_block {
  int64_t item, i, m, j, n;
} tc_block;

/* For jobs that run blocks inside their own tasks: computes a block and hands it to the sink, in a workspace of that many bytes. */
size_t tc_block_workspace_bytes(const tc_cpu *cpu);
void tc_block_run(const tc_cpu *cpu, const tc_product *product, const tc_block *block, char *workspace);

/* Whether the ISA has tile products and such a product should use them. They round otherwise than the vector kernels, so what decides
 * must be the same for any call that must give the same bits: N is that of one image, not of a batch. */
bool tc_tiles_pay(const tc_cpu *cpu, int64_t M, int64_t N, int64_t K);

#endif
