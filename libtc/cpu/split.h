/* SPDX-License-Identifier: MIT
 *
 * fp16 products on bf16 tiles. Every finite fp16 value is hi + lo, hi being a nearest bf16 value and lo a bf16 value
 * too, and a product of two bf16 values is exact in fp32. So with fp32 sums
 *     a*b = hi*hi + hi*lo + lo*hi + lo*lo,   where |lo*lo| <= 2^-16 |a*b| is left out, but not in math_mode strict
 * keeps fp16 accuracy at a third of the speed of bf16. No bf16 value or product is subnormal, so that the flush to zero of tile
 * products has no effect. Infinity and NaN don't survive a split: packing puts 0 in their place and reports them.
 *
 * The contract of tile kernels, for every ISA that has them. Sums go in steps of 32 terms. In memory (distances are in bytes):
 *     an A tile is some rows of 32 terms: 64 bytes each, lda apart
 *     a B tile is 16 rows, ldb apart, of 16 columns: row q has the terms 2q and 2q+1 of each column, side by side
 * A register block is up to 2 A tiles (a_next apart) by up to 2 B tiles (b_next apart), each once hi and once lo (a_lo, b_lo apart).
 */
#ifndef TC_CPU_SPLIT_H
#define TC_CPU_SPLIT_H

#include <stdbool.h>
#include <stdint.h>

enum {
  TC_SPLIT_TERMS = 32,                       /* of a step */
  TC_SPLIT_STEPS_MAX = 512 / TC_SPLIT_TERMS, /* that one fp32 sum takes */
  TC_SPLIT_KC = TC_SPLIT_STEPS_MAX * TC_SPLIT_TERMS,
  TC_SPLIT_ROWS_MAX = 16, /* of an A tile */
  TC_SPLIT_COLUMNS = 16,  /* of a B tile */
};

/* This thread's tiles get that many rows (those of A and of C); needed before any gemm. end gives the tiles back, before the task
 * returns: a signal's frame is large while tiles are in use, and so is a context switch. */
typedef void tc_split_begin_kernel(int64_t rows);
typedef void tc_split_end_kernel(void);

typedef struct tc_split_layout {
  int64_t lda, a_lo, a_next, ldb, b_lo, b_next;
} tc_split_layout;

/* Where the terms of a step lie: the hi tiles of the first A and the first B. */
typedef struct tc_split_step {
  const void *a, *b;
} tc_split_step;

/* Work that a kernel does beside its tile products, which leave the vector units idle: as many slices as it has steps, all of them
 * before it writes anything. So what it is given to do may read what the kernel before wrote, and the kernel may overwrite that. */
typedef struct tc_split_side {
  void (*slice)(void *self, int64_t slice, int64_t slices);
  void *self;
} tc_split_side;

/* c[i*ldc + j] = sum over all terms of A[i] * B[j], for all rows of an A tile and all columns of the B tiles, including those that are
 * padding, and the same for a second A tile at c + c_next. Each of A and B has 1 or 2 tiles; at most TC_SPLIT_STEPS_MAX steps, at
 * least one. side may be NULL. */
typedef struct tc_split_block {
  const tc_split_layout *layout;
  int64_t a_tiles, b_tiles;
  int64_t rows; /* of an A tile, as begin was told */
  bool strict;
  int64_t steps;
  const tc_split_step *step;
  float *c;
  int64_t ldc, c_next; /* in elements */
} tc_split_block;

typedef void tc_split_gemm_kernel(const tc_split_block *block, const tc_split_side *side);

/* How 32 terms of 16 rows of A or columns of B, x, lie: along means that rows of memory run along x, else along the terms. They become B
 * tiles with ldb 64 if pairs, else A tiles of that many rows, lda apart; rows are written in rising order, should they overlap. */
typedef struct tc_split_form {
  bool along, pairs;
  int64_t rows, lda;
} tc_split_form;

/* Splits fp16 values. Term p of x is rows[p][at + x] if along, else rows[x][at + p]. Returns whether a value was infinite or NaN; 0 is in
 * its place. All 16 x are read, but for neither along nor pairs only the rows that are written. */
typedef bool tc_split_pack_halves_kernel(const tc_split_form *form, const uint16_t *const *rows, int64_t at, void *hi, void *lo);

/* The same for fp32 copies of fp16 values, at src[p*ld + x] if along, else at src[x*ld + p]; hi rounds ties to even here. */
typedef bool tc_split_pack_kernel(const tc_split_form *form, const float *src, int64_t ld, void *hi, void *lo);

/* dst[i*ldd + j] += src[i*lds + j], for i < rows and whole cache lines of j that cover columns. */
typedef void tc_split_add_kernel(int64_t rows, int64_t columns, const float *src, int64_t lds, float *dst, int64_t ldd);

typedef struct tc_split_kernels {
  const char *name; /* tc_gemm_<a><b>_<accumulator>_<mr>x<nr>_<isa> */
  tc_split_begin_kernel *begin;
  tc_split_end_kernel *end;
  tc_split_gemm_kernel *gemm;
  tc_split_add_kernel *add;
  tc_split_pack_kernel *pack;
  tc_split_pack_halves_kernel *pack_halves;
} tc_split_kernels;

#endif
