/* SPDX-License-Identifier: MIT */
#include "check.h"

/* The batched struct begins as the single one does, so one is read into the other. */
_Static_assert(sizeof(tc_gemm_desc) == offsetof(tc_gemm_batched_desc, batch), "the GEMM descriptors must begin alike");

static tc_status_t check_enums(const tc_gemm_batched_desc *d) {
  TC_TRY(tc_enum_check("transpose_a", d->transpose_a, 1));
  TC_TRY(tc_enum_check("transpose_b", d->transpose_b, 1));
  TC_TRY(tc_enum_check("a_dtype", d->a_dtype, TC_DTYPE_BF16));
  TC_TRY(tc_enum_check("b_dtype", d->b_dtype, TC_DTYPE_BF16));
  TC_TRY(tc_enum_check("c_dtype", d->c_dtype, TC_DTYPE_BF16));
  TC_TRY(tc_enum_check("math_mode", d->math_mode, TC_MATH_FAST));
  return TC_OK;
}

static tc_status_t check_supported(const tc_gemm_batched_desc *d) {
  TC_REQUIRE(d->a_dtype == TC_DTYPE_F16, TC_ERROR_UNSUPPORTED, "a_dtype = %d is not built yet, TC_DTYPE_F16 is", d->a_dtype);
  TC_REQUIRE(d->b_dtype == TC_DTYPE_F16, TC_ERROR_UNSUPPORTED, "b_dtype = %d is not built yet, TC_DTYPE_F16 is", d->b_dtype);
  TC_REQUIRE(d->c_dtype != TC_DTYPE_BF16, TC_ERROR_UNSUPPORTED, "c_dtype = %d is not built yet, TC_DTYPE_F16 and TC_DTYPE_F32 are",
             d->c_dtype);
  return TC_OK;
}

static tc_status_t check_sizes(const tc_gemm_batched_desc *d) {
  const tc_size_rule rules[] = {{"M", d->M, 0},
                                {"N", d->N, 0},
                                {"K", d->K, 0},
                                {"batch", d->batch, 0},
                                {"stride_a", d->stride_a, 0},
                                {"stride_b", d->stride_b, 0},
                                {"stride_c", d->stride_c, 0}};
  return tc_sizes_check(rules, sizeof rules / sizeof *rules);
}

/* Fills in a packed leading dimension, and refuses one under the number of columns. */
static tc_status_t fill_ld(const char *name, int64_t *ld, const char *columns_name, int64_t columns) {
  if (*ld == 0) *ld = columns;
  TC_REQUIRE(*ld >= columns, TC_ERROR_SHAPE, "%s = %lld is too small, %s = %lld is the least (or 0 for packed)", name,
             (long long)*ld, columns_name, (long long)columns);
  return TC_OK;
}

/* Elements from the first to the last one of a batch of matrices. */
static int64_t extent(int64_t batch, int64_t stride, int64_t rows, int64_t columns, int64_t ld) {
  if (!batch || !rows || !columns) return 0;
  const int64_t matrix = tc_count_add(tc_count_mul(rows - 1, ld), columns);
  return tc_count_add(tc_count_mul(batch - 1, stride), matrix);
}

/* Of extent, for sentences: [batched][transposed]. */
static const char *const a_formulas[2][2] = {{"((M-1)*lda + K)", "((K-1)*lda + M)"},
                                             {"((batch-1)*stride_a + (M-1)*lda + K)", "((batch-1)*stride_a + (K-1)*lda + M)"}};
static const char *const b_formulas[2][2] = {{"((K-1)*ldb + N)", "((N-1)*ldb + K)"},
                                             {"((batch-1)*stride_b + (K-1)*ldb + N)", "((batch-1)*stride_b + (N-1)*ldb + K)"}};
static const char *const c_formulas[2] = {"((M-1)*ldc + N)", "((batch-1)*stride_c + (M-1)*ldc + N)"};

static tc_status_t check(const tc_context *ctx, tc_gemm_batched_desc *d, const tc_buffer *A, const tc_buffer *B,
                         const tc_buffer *C) {
  TC_TRY(check_enums(d));
  TC_TRY(check_sizes(d));
  const int64_t a_rows = d->transpose_a ? d->K : d->M, a_columns = d->transpose_a ? d->M : d->K;
  const int64_t b_rows = d->transpose_b ? d->N : d->K, b_columns = d->transpose_b ? d->K : d->N;
  TC_TRY(fill_ld("lda", &d->lda, d->transpose_a ? "M" : "K", a_columns));
  TC_TRY(fill_ld("ldb", &d->ldb, d->transpose_b ? "K" : "N", b_columns));
  TC_TRY(fill_ld("ldc", &d->ldc, "N", d->N));
  const int64_t c_matrix = extent(1, 0, d->M, d->N, d->ldc);
  TC_REQUIRE(d->batch <= 1 || d->stride_c >= c_matrix, TC_ERROR_SHAPE,
             "stride_c = %lld is too small for batch = %lld, (M-1)*ldc + N = %lld is the least", (long long)d->stride_c,
             (long long)d->batch, (long long)c_matrix);
  TC_TRY(check_supported(d));
  const int batched = d->batch > 1, ta = d->transpose_a, tb = d->transpose_b;
  const tc_operand operands[] = {
      tc_tensor("A", A, a_formulas[batched][ta], extent(d->batch, d->stride_a, a_rows, a_columns, d->lda), "a_offset", d->a_offset,
                d->a_dtype, false),
      tc_tensor("B", B, b_formulas[batched][tb], extent(d->batch, d->stride_b, b_rows, b_columns, d->ldb), "b_offset", d->b_offset,
                d->b_dtype, false),
      tc_tensor("C", C, c_formulas[batched], extent(d->batch, d->stride_c, d->M, d->N, d->ldc), "c_offset", d->c_offset, d->c_dtype,
                true),
  };
  return tc_operands_check(ctx, operands, sizeof operands / sizeof *operands);
}

static tc_status_t gemm(tc_context *ctx, tc_gemm_batched_desc *d, const tc_buffer *A, const tc_buffer *B, tc_buffer *C) {
  TC_TRY(check(ctx, d, A, B, C));
  const double start = tc_trace_now(ctx);
  if (d->M && d->N && d->batch) TC_TRY(ctx->backend->gemm(ctx->state, d, A, B, C));
  tc_trace(ctx, start, 2.0 * (double)d->batch * (double)d->M * (double)d->N * (double)d->K,
           "batch=%lld,M=%lld,N=%lld,K=%lld,transpose_a=%d,transpose_b=%d", (long long)d->batch, (long long)d->M, (long long)d->N,
           (long long)d->K, d->transpose_a, d->transpose_b);
  return TC_OK;
}

static tc_status_t gemm_single(tc_context *ctx, const tc_gemm_desc *desc, const tc_buffer *A, const tc_buffer *B, tc_buffer *C) {
  tc_gemm_batched_desc d = TC_GEMM_BATCHED_DESC_INIT;
  TC_TRY(tc_struct_read("desc", desc, &d, sizeof(tc_gemm_desc)));
  return gemm(ctx, &d, A, B, C);
}

static tc_status_t gemm_batched(tc_context *ctx, const tc_gemm_batched_desc *desc, const tc_buffer *A, const tc_buffer *B,
                                tc_buffer *C) {
  tc_gemm_batched_desc d;
  TC_TRY(tc_struct_read("desc", desc, &d, sizeof d));
  return gemm(ctx, &d, A, B, C);
}

tc_status_t tc_gemm(tc_context *ctx, const tc_gemm_desc *desc, const tc_buffer *A, const tc_buffer *B, tc_buffer *C) {
  TC_TRY(tc_enter(__func__, ctx));
  return tc_leave(ctx, gemm_single(ctx, desc, A, B, C));
}

tc_status_t tc_gemm_batched(tc_context *ctx, const tc_gemm_batched_desc *desc, const tc_buffer *A, const tc_buffer *B,
                            tc_buffer *C) {
  TC_TRY(tc_enter(__func__, ctx));
  return tc_leave(ctx, gemm_batched(ctx, desc, A, B, C));
}
