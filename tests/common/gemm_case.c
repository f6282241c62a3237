/* SPDX-License-Identifier: MIT */
#include "gemm_case.h"

#include "check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The sum of |a||b| up to which integers are exact in fp32, with room for beta * C. */
static const double EXACT_SUM = 1 << 22;

_Static_assert(offsetof(tc_gemm_batched_desc, batch) == sizeof(tc_gemm_desc), "tc_gemm_desc starts tc_gemm_batched_desc");

gemm_case gemm_make(int64_t M, int64_t N, int64_t K) {
  gemm_case g = {.desc = TC_GEMM_BATCHED_DESC_INIT};
  g.desc.M = M;
  g.desc.N = N;
  g.desc.K = K;
  g.a_data = g.b_data = g.c_data = (contents){DATA_NORMAL, 1};
  return g;
}

void gemm_integers(gemm_case *g, bool odd) {
  double terms = (double)(g->desc.K > 0 ? g->desc.K : 1);
  double largest = odd ? 2047 : fmin(256, floor(sqrt(EXACT_SUM / terms)));
  g->a_data = odd ? (contents){DATA_ODD, 0} : (contents){DATA_INTEGER, largest};
  g->b_data = (contents){DATA_INTEGER, fmin(256, floor(EXACT_SUM / terms / largest))};
  g->c_data = (contents){DATA_INTEGER, 2048};
  g->desc.alpha = truncf(g->desc.alpha);
  g->desc.beta = truncf(g->desc.beta);
}

static int64_t some_leading(rng *r, int64_t columns) { return rng_one_in(r, 3) ? columns + rng_between(r, 1, 9) : 0; }

void gemm_randomize(gemm_case *g, rng *r) {
  static const double factors[] = {1, 1, 1, 0, -1, 0.5, 2, -0.375};
  tc_gemm_batched_desc *d = &g->desc;
  d->transpose_a = rng_one_in(r, 2);
  d->transpose_b = rng_one_in(r, 2);
  d->alpha = (float)rng_pick(r, factors);
  d->beta = rng_one_in(r, 2) ? 0 : (float)rng_pick(r, factors);
  d->lda = some_leading(r, d->transpose_a ? d->M : d->K);
  d->ldb = some_leading(r, d->transpose_b ? d->K : d->N);
  d->ldc = some_leading(r, d->N);
  d->a_offset = rng_one_in(r, 2) ? 0 : rng_between(r, 1, 17);
  d->b_offset = rng_one_in(r, 2) ? 0 : rng_between(r, 1, 17);
  d->c_offset = rng_one_in(r, 2) ? 0 : rng_between(r, 1, 17);
  d->c_dtype = rng_one_in(r, 4) ? TC_DTYPE_F32 : TC_DTYPE_F16;
  d->math_mode = (tc_math_mode_t)rng_between(r, TC_MATH_DEFAULT, TC_MATH_FAST);
  g->place = rng_one_in(r, 2) ? AT_END : AT_START;
  g->batched = rng_one_in(r, 4);
}

void gemm_batch(gemm_case *g, int64_t batch, rng *r) {
  tc_gemm_batched_desc *d = &g->desc;
  int64_t a_rows = d->transpose_a ? d->K : d->M, a_columns = d->transpose_a ? d->M : d->K;
  int64_t b_rows = d->transpose_b ? d->N : d->K, b_columns = d->transpose_b ? d->K : d->N;
  d->batch = batch;
  d->stride_a = rng_one_in(r, 4) ? 0 : a_rows * (d->lda ? d->lda : a_columns) + rng_between(r, 0, 5);
  d->stride_b = rng_one_in(r, 4) ? 0 : b_rows * (d->ldb ? d->ldb : b_columns) + rng_between(r, 0, 5);
  d->stride_c = d->M * (d->ldc ? d->ldc : d->N) + rng_between(r, 0, 5);
}

/* Where a matrix of the batch stands: [rows, columns] as stored, ld 0 = packed. */
static operand matrix_operand(tc_dtype_t dtype, int64_t offset, int64_t batch, int64_t stride, int64_t rows, int64_t columns,
                              int64_t ld) {
  return (operand){.dtype = dtype, .offset = offset, .count = {batch, rows, columns}, .stride = {stride, ld ? ld : columns, 1}};
}

void gemm_open(gemm_case *g, tc_context *ctx, rng *r) {
  const tc_gemm_batched_desc *d = &g->desc;
  int64_t a_rows = d->transpose_a ? d->K : d->M, a_columns = d->transpose_a ? d->M : d->K;
  int64_t b_rows = d->transpose_b ? d->N : d->K, b_columns = d->transpose_b ? d->K : d->N;
  g->A = matrix_operand(d->a_dtype, d->a_offset, d->batch, d->stride_a, a_rows, a_columns, d->lda);
  g->B = matrix_operand(d->b_dtype, d->b_offset, d->batch, d->stride_b, b_rows, b_columns, d->ldb);
  g->C = matrix_operand(d->c_dtype, d->c_offset, d->batch, d->stride_c, d->M, d->N, d->ldc);
  operand_open(&g->A, ctx, g->place, g->a_data, r);
  operand_open(&g->B, ctx, g->place, g->b_data, r);
  operand_open(&g->C, ctx, g->place, d->beta == 0 ? (contents){DATA_NAN, 0} : g->c_data, r);
  guarded_protect(&g->A.memory, false);
  guarded_protect(&g->B.memory, false);
  g->before = operand_snapshot(&g->C);
}

void gemm_close(gemm_case *g, tc_context *ctx) {
  operand_close(&g->A, ctx);
  operand_close(&g->B, ctx);
  operand_close(&g->C, ctx);
  free(g->before);
}

tc_status_t gemm_call(gemm_case *g, tc_context *ctx) {
  operand_restore(&g->C, g->before);
  tc_gemm_batched_desc d = g->desc;
  d.a_offset += g->A.shift;
  d.b_offset += g->B.shift;
  d.c_offset += g->C.shift;
  if (g->batched || d.batch != 1) return tc_gemm_batched(ctx, &d, g->A.buffer, g->B.buffer, g->C.buffer);
  tc_gemm_desc single;
  memcpy(&single, &d, sizeof(single));
  single.struct_size = sizeof(single);
  return tc_gemm(ctx, &single, g->A.buffer, g->B.buffer, g->C.buffer);
}

/* One matrix of B as op(B), [K,N] dense, so that the reference's inner loop runs along rows. */
static void dense_rows(const double *stored, bool transposed, int64_t rows, int64_t columns, double *dense) {
  for (int64_t i = 0; i < rows; i++) {
    for (int64_t j = 0; j < columns; j++) dense[i * columns + j] = stored[transposed ? j * rows + i : i * columns + j];
  }
}

static void add_product(const double *a, const double *b, int64_t M, int64_t N, int64_t K, expected *c) {
  for (int64_t i = 0; i < M; i++) {
    for (int64_t k = 0; k < K; k++) {
      double left = a[i * K + k];
      for (int64_t j = 0; j < N; j++) {
        double product = left * b[k * N + j];
        c[i * N + j].exact += product;
        c[i * N + j].sum += fabs(product);
      }
    }
  }
}

expected *gemm_reference(const gemm_case *g) {
  const tc_gemm_batched_desc *d = &g->desc;
  int64_t M = d->M, N = d->N, K = d->alpha == 0 ? 0 : d->K;
  double *stored_a = operand_values(&g->A), *stored_b = operand_values(&g->B);
  double *a = allocate(M * K, sizeof(*a)), *b = allocate(K * N, sizeof(*b));
  expected *want = allocate(d->batch * M * N, sizeof(*want));
  for (int64_t i = 0; i < d->batch; i++) {
    dense_rows(stored_a + i * M * d->K, d->transpose_a, M, K, a);
    dense_rows(stored_b + i * d->K * N, d->transpose_b, K, N, b);
    add_product(a, b, M, N, K, want + i * M * N);
  }
  const operand before = {.dtype = g->C.dtype, .memory = {.data = g->before}};
  for (int64_t n = 0; n < d->batch * M * N; n++) {
    double c = d->beta == 0 ? 0 : (double)d->beta * operand_get(&before, operand_place(&g->C, n));
    double product = K == 0 ? 0 : (double)d->alpha * want[n].exact;
    want[n] = (expected){product + c, (K == 0 ? 0 : fabs(d->alpha) * want[n].sum) + fabs(c)};
  }
  free(stored_a);
  free(stored_b);
  free(a);
  free(b);
  return want;
}

void gemm_note(const gemm_case *g) {
  static const char *const names[] = {"NaN", "constant", "normal", "integer", "odd", "finite", "subnormal", "special"};
  const tc_gemm_batched_desc *d = &g->desc;
  note("gemm%s M=%lld N=%lld K=%lld ta=%d tb=%d alpha=%g beta=%g ld=%lld,%lld,%lld c_dtype=%d offsets=%lld,%lld,%lld batch=%lld "
       "strides=%lld,%lld,%lld data=%s,%s %s",
       g->batched ? "_batched" : "", (long long)d->M, (long long)d->N, (long long)d->K, d->transpose_a, d->transpose_b, d->alpha,
       d->beta, (long long)d->lda, (long long)d->ldb, (long long)d->ldc, d->c_dtype, (long long)d->a_offset, (long long)d->b_offset,
       (long long)d->c_offset, (long long)d->batch, (long long)d->stride_a, (long long)d->stride_b, (long long)d->stride_c,
       names[g->a_data.kind], names[g->b_data.kind], placement_names[g->place]);
}

bool gemm_check(gemm_case *g, tc_context *ctx, rng *r, accuracy how) {
  gemm_note(g);
  gemm_open(g, ctx, r);
  bool right = CHECK_OK(gemm_call(g, ctx));
  if (right) {
    expected *want = gemm_reference(g);
    right = check_output(&g->C, want, g->before, how, NULL);
    free(want);
  }
  gemm_close(g, ctx);
  return right;
}
