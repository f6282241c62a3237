/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "cpu/direct.h"
#include "cpu/integer.h"
#include "f16.h"
#include "status.h"

/* A matrix of so many stored rows and columns. A column without gaps is taken for a row. */
static tc_halves matrix_of(const uint16_t *elements, int64_t rows, int64_t columns, int64_t ld, int64_t stride, bool rows_are_k) {
  const bool dense_column = columns == 1 && ld == 1;
  return (tc_halves){elements, dense_column ? rows : ld, stride, rows_are_k != dense_column};
}

static void matrix_row(const void *self, int64_t item, int64_t r, int64_t first, int64_t n, uint16_t *out) {
  const tc_halves *m = self;
  memcpy(out, m->elements + item * m->stride + r * m->ld + first, (size_t)n * sizeof *out);
}

static tc_source matrix_source(const tc_halves *m) { return (tc_source){matrix_row, m, m->rows_are_k, m->rows_are_k ? 1 : 2}; }

typedef struct result {
  const tc_cpu_kernels *kernels;
  void *elements;
  int64_t ld, stride;
  float alpha, beta;
} result;

/* values = alpha * values + beta * c. alpha = 0 leaves just beta * c, with its sign of zero; beta = 0 doesn't look at c. */
static void scale(const result *r, int64_t n, float *values, const float *c) {
  if (r->beta == 0) {
    for (int64_t x = 0; x < n; x++) values[x] *= r->alpha;
  } else if (r->alpha == 0) {
    for (int64_t x = 0; x < n; x++) values[x] = r->beta * c[x];
  } else {
    for (int64_t x = 0; x < n; x++) values[x] = r->alpha * values[x] + r->beta * c[x];
  }
}

static void store_f32(const void *self, int64_t item, int64_t i, int64_t j, int64_t n, float *values) {
  const result *r = self;
  float *c = (float *)r->elements + item * r->stride + i * r->ld + j;
  scale(r, n, values, c);
  for (int64_t x = 0; x < n; x++) c[x] = canonical_nan(values[x]);
}

static void store_f16(const void *self, int64_t item, int64_t i, int64_t j, int64_t n, float *values) {
  const result *r = self;
  uint16_t *c = (uint16_t *)r->elements + item * r->stride + i * r->ld + j;
  if (r->alpha == 1 && r->beta == 0) {
    r->kernels->narrow(n, values, c);
    return;
  }
  enum { STEP = 64 };
  for (int64_t x = 0; x < n; x += STEP) {
    const int64_t step = n - x < STEP ? n - x : STEP;
    float before[STEP];
    if (r->beta != 0) r->kernels->widen(step, c + x, before);
    scale(r, step, values + x, before);
    r->kernels->narrow(step, values + x, c + x);
  }
}

/* Products up to one of these limits are taken directly: packing would not pay. */
static const struct {
  int64_t side, terms;
  double multiplies;
} most_for_direct = {16, TC_KC, 1 << 27};

/* Few elements and long sums: cut along k for the threads, which tc_product_run does. */
static const struct { int64_t side, terms; } long_sums = {64, 4096};

static bool direct_pays(const tc_cpu_kernels *kernels, int64_t M, int64_t N, int64_t K) {
  if (max(M, N) <= long_sums.side && K > long_sums.terms) return false;
  if (!kernels->widens_at_once) return min(M, N) <= kernels->mr;
  return min(M, N) <= most_for_direct.side || K <= most_for_direct.terms ||
         (double)M * (double)N * (double)K <= most_for_direct.multiplies;
}

/* So few columns that C's transpose is computed: B^T * A^T. */
enum { NARROW = 32 };

static tc_status_t run_direct(tc_cpu *cpu, const tc_gemm_batched_desc *d, const tc_halves *a, const tc_halves *b, tc_sink c) {
  const bool transposed = d->N < d->M && d->N < NARROW;
  const tc_direct direct = {
      .items = d->batch,
      .M = transposed ? d->N : d->M,
      .N = transposed ? d->M : d->N,
      .K = d->K,
      .a = transposed ? *b : *a,
      .b = transposed ? *a : *b,
      .c = c,
      .transposed = transposed,
      .joined_columns = d->ldc == d->N,
  };
  return tc_direct_run(cpu, &direct);
}

tc_status_t tc_cpu_gemm(void *state, const tc_gemm_batched_desc *d, const tc_buffer *A, const tc_buffer *B, tc_buffer *C) {
  tc_cpu *cpu = state;
  if (d->K > 0) tc_kernel_use(cpu->kernels->gemm_name);
  const bool ta = d->transpose_a, tb = d->transpose_b;
  const tc_halves a = matrix_of(tc_at(A, d->a_offset, 2), ta ? d->K : d->M, ta ? d->M : d->K, d->lda, d->stride_a, ta);
  const tc_halves b = matrix_of(tc_at(B, d->b_offset, 2), tb ? d->N : d->K, tb ? d->K : d->N, d->ldb, d->stride_b, !tb);
  const bool reads = d->K > 0 && !tc_is_zero(d->alpha); /* A and B at all */
  const result c = {cpu->kernels, tc_at(C, d->c_offset, tc_dtype_size(d->c_dtype)), d->ldc, d->stride_c, reads ? d->alpha : 0,
                    d->beta};
  const tc_sink sink = {d->c_dtype == TC_DTYPE_F32 ? store_f32 : store_f16, &c};
  const bool tiles = tc_tiles_pay(cpu, d->M, d->N, d->K);
  if (reads && !tiles && direct_pays(cpu->kernels, d->M, d->N, d->K)) return run_direct(cpu, d, &a, &b, sink);
  const tc_product product = {
      .items = d->batch,
      .M = d->M,
      .N = d->N,
      .K = reads ? d->K : 0,
      .a = matrix_source(&a),
      .b = matrix_source(&b),
      .c = sink,
      .split_k = true,
      .tiles = tiles && reads,
      .strict = d->math_mode == TC_MATH_STRICT,
  };
  return tc_product_run(cpu, &product);
}
