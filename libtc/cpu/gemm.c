/* SPDX-License-Identifier: MIT */
#include "cpu/product.h"
#include "f16.h"

/* A stored matrix, or one for each item. */
typedef struct matrix {
  const tc_cpu_kernels *kernels;
  const uint16_t *elements;
  int64_t ld, stride;
} matrix;

static void matrix_row(const void *self, int64_t item, int64_t r, int64_t first, int64_t n, float *out) {
  const matrix *m = self;
  m->kernels->widen(n, m->elements + item * m->stride + r * m->ld + first, out);
}

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
  enum { STEP = 64 };
  for (int64_t x = 0; x < n; x += STEP) {
    const int64_t step = n - x < STEP ? n - x : STEP;
    float before[STEP];
    if (r->beta != 0) r->kernels->widen(step, c + x, before);
    scale(r, step, values + x, before);
    r->kernels->narrow(step, values + x, c + x);
  }
}

tc_status_t tc_cpu_gemm(void *state, const tc_gemm_batched_desc *d, const tc_buffer *A, const tc_buffer *B, tc_buffer *C) {
  tc_cpu *cpu = state;
  const matrix a = {cpu->kernels, tc_at(A, d->a_offset, 2), d->lda, d->stride_a};
  const matrix b = {cpu->kernels, tc_at(B, d->b_offset, 2), d->ldb, d->stride_b};
  const bool reads = d->K > 0 && !tc_is_zero(d->alpha); /* A and B at all */
  const result c = {cpu->kernels, tc_at(C, d->c_offset, tc_dtype_size(d->c_dtype)), d->ldc, d->stride_c, reads ? d->alpha : 0,
                    d->beta};
  /* Rows of op(A) along i, and of op(B) along j, unless they are one element long and the vector of them is dense along k. */
  const bool a_rows_are_k = d->transpose_a && !(d->M == 1 && d->lda == 1);
  const bool b_rows_are_k = !d->transpose_b && !(d->N == 1 && d->ldb == 1);
  const tc_product product = {
      .items = d->batch,
      .M = d->M,
      .N = d->N,
      .K = reads ? d->K : 0,
      .a = {matrix_row, &a, a_rows_are_k, a_rows_are_k ? 1 : 2},
      .b = {matrix_row, &b, b_rows_are_k, b_rows_are_k ? 1 : 2},
      .c = {d->c_dtype == TC_DTYPE_F32 ? store_f32 : store_f16, &c},
      .split_k = true,
  };
  return tc_product_run(cpu, &product);
}
