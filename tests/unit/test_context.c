/* SPDX-License-Identifier: MIT
 *
 * The life of a context: opening, shutting down with live buffers, threads, device information by struct_size, batches.
 */
#include "common/check.h"
#include "common/context.h"
#include "common/operand.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void open_and_close(void) {
  tc_context *a = NULL, *b = NULL;
  CHECK_OK(tc_init(&a));
  CHECK_OK(tc_init_backend(TC_BACKEND_CPU, &b));
  CHECK(a && b && a != b);
  CHECK_OK(tc_shutdown(a));
  CHECK_OK(tc_shutdown(b));
  CHECK_OK(tc_shutdown(NULL));
}

static void open_errors(void) {
  static const int unknown[] = {-1, 3, 1000};
  CHECK_STATUS(tc_init(NULL), TC_ERROR_ARGUMENT);
  CHECK_STATUS(tc_init_backend(TC_BACKEND_CPU, NULL), TC_ERROR_ARGUMENT);
  CHECK_STRING(tc_last_error(), "tc_init_backend: out is NULL");
  for (size_t i = 0; i < COUNT(unknown); i++) {
    tc_context *ctx = (tc_context *)&unknown;
    CHECK_STATUS(tc_init_backend((tc_backend_t)unknown[i], &ctx), TC_ERROR_ARGUMENT);
    CHECK(ctx == NULL);
    char text[16];
    snprintf(text, sizeof(text), "%d", unknown[i]);
    CHECK_CONTAINS(tc_last_error(), "which");
    CHECK_CONTAINS(tc_last_error(), text);
  }
}

/* The search for a backend that works here is no failure. */
static void open_keeps_sentence(void) {
  tc_context *ctx = NULL;
  unsetenv("TC_BACKEND");
  CHECK_STATUS(tc_init(NULL), TC_ERROR_ARGUMENT);
  CHECK_OK(tc_init(&ctx));
  CHECK_STRING(tc_last_error(), "tc_init: out is NULL");
  CHECK_OK(tc_shutdown(ctx));
}

/* Every call on a closed context answers CLOSED, by its name; buffers still map, and go one by one. */
static void closed(void) {
  tc_context *ctx = open_context();
  tc_buffer *buf = NULL, *empty = NULL, *new = (tc_buffer *)&ctx;
  CHECK_OK(tc_buffer_alloc(ctx, 8, &buf));
  CHECK_OK(tc_buffer_alloc(ctx, 0, &empty));
  CHECK_OK(tc_shutdown(ctx));
  tc_device_info info = TC_DEVICE_INFO_INIT;
  tc_gemm_desc gemm = TC_GEMM_DESC_INIT;
  tc_gemm_batched_desc batched = TC_GEMM_BATCHED_DESC_INIT;
  tc_conv2d_desc conv = TC_CONV2D_DESC_INIT;
  int64_t n = 0;
#define CHECK_CLOSED(function, ...) \
  (CHECK_STATUS(function(__VA_ARGS__), TC_ERROR_CLOSED), CHECK_STRING(tc_last_error(), #function ": ctx has been shut down"))
  CHECK_CLOSED(tc_device_info_get, ctx, &info);
  CHECK_CLOSED(tc_context_set_threads, ctx, 1);
  CHECK_CLOSED(tc_context_get_threads, ctx, &n);
  CHECK_CLOSED(tc_context_trim, ctx);
  CHECK_CLOSED(tc_buffer_alloc, ctx, 8, &new);
  CHECK(new == NULL);
  CHECK_CLOSED(tc_buffer_wrap, ctx, &n, 8, &new);
  CHECK(new == NULL);
  CHECK_CLOSED(tc_gemm, ctx, &gemm, buf, buf, empty);
  CHECK_CLOSED(tc_gemm_batched, ctx, &batched, buf, buf, empty);
  CHECK_CLOSED(tc_conv2d_forward, ctx, buf, buf, NULL, empty, NULL, 1, 1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1, 1);
  CHECK_CLOSED(tc_conv2d_backward_input, ctx, buf, buf, empty, NULL, NULL, 1, 1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1, 1);
  CHECK_CLOSED(tc_conv2d_backward_weight, ctx, buf, buf, empty, NULL, 1, 1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1, 1);
  CHECK_CLOSED(tc_conv2d_forward_desc, ctx, &conv, buf, buf, NULL, empty, NULL);
  CHECK_CLOSED(tc_conv2d_backward_input_desc, ctx, &conv, buf, buf, empty, NULL, NULL);
  CHECK_CLOSED(tc_conv2d_backward_weight_desc, ctx, &conv, buf, buf, empty, NULL);
  CHECK_CLOSED(tc_batch_begin, ctx);
  CHECK_CLOSED(tc_batch_end, ctx);
#undef CHECK_CLOSED
  CHECK_STATUS(tc_shutdown(ctx), TC_ERROR_CLOSED);
  CHECK_CONTAINS(tc_last_error(), "tc_shutdown");
  void *data = NULL;
  CHECK_OK(tc_buffer_map(buf, &data));
  memset(data, 1, 8);
  CHECK_OK(tc_buffer_free(ctx, buf));
  CHECK_STATUS(tc_context_trim(ctx), TC_ERROR_CLOSED); /* one buffer is left */
  CHECK_OK(tc_buffer_free(ctx, empty));
}

static void threads(void) {
  static const int64_t wrong[] = {0, -1, 1025, INT64_MAX, INT64_MIN, (int64_t)1 << 32};
  tc_context *ctx = open_context();
  int64_t n = 0, now = 0;
  CHECK_OK(tc_context_get_threads(ctx, &n));
  CHECK(n >= 1 && n <= 1024);
  for (size_t i = 0; i < COUNT(wrong); i++) {
    char text[32];
    snprintf(text, sizeof(text), "%lld", (long long)wrong[i]);
    CHECK_STATUS(tc_context_set_threads(ctx, wrong[i]), TC_ERROR_SHAPE);
    CHECK_CONTAINS(tc_last_error(), text);
    CHECK_CONTAINS(tc_last_error(), "1024");
    CHECK_OK(tc_context_get_threads(ctx, &now));
    CHECK_INT(now, n);
  }
  for (n = 1; n <= 1024; n = 4 * n) {
    CHECK_OK(tc_context_set_threads(ctx, n));
    CHECK_OK(tc_context_get_threads(ctx, &now));
    CHECK_INT(now, n);
    tc_device_info info = TC_DEVICE_INFO_INIT;
    CHECK_OK(tc_device_info_get(ctx, &info));
    CHECK_INT(info.threads, n);
  }
  CHECK_STATUS(tc_context_get_threads(ctx, NULL), TC_ERROR_ARGUMENT);
  CHECK_STRING(tc_last_error(), "tc_context_get_threads: out is NULL");
  CHECK_STATUS(tc_context_get_threads(NULL, &n), TC_ERROR_ARGUMENT);
  CHECK_STATUS(tc_context_set_threads(NULL, 1), TC_ERROR_ARGUMENT);
  CHECK_OK(tc_context_trim(ctx));
  CHECK_OK(tc_context_trim(ctx));
  CHECK_STATUS(tc_context_trim(NULL), TC_ERROR_ARGUMENT);
  CHECK_STRING(tc_last_error(), "tc_context_trim: ctx is NULL");
  close_context(ctx);
}

static void check_gpu_info(const tc_device_info *info) {
  CHECK_STRING(info->isa, "");
  CHECK_STRING(info->isas, "");
  CHECK_CONTAINS(info->isa_reason, "kernels");
  CHECK_CONTAINS(info->isa_reason, "probe");
  CHECK(strncmp(info->kernel, "tc_gemm", 7) == 0);
}

static void check_cpu_info(const tc_device_info *info) {
  CHECK_CONTAINS(info->isas, info->isa);
  CHECK_CONTAINS(info->isas, "generic");
  CHECK(strncmp(info->isas, "generic", 7) == 0); /* rising */
  CHECK(info->isa[0] && strstr(info->kernel, info->isa) != NULL);
  const char *isa = getenv("TC_CPU_ISA");
  if (isa) {
    CHECK_STRING(info->isa, isa);
    CHECK_CONTAINS(info->isa_reason, "TC_CPU_ISA");
  }
}

static void device_info(void) {
  tc_context *ctx = open_context();
  tc_device_info info = TC_DEVICE_INFO_INIT;
  CHECK_OK(tc_device_info_get(ctx, &info));
  CHECK(info.struct_size == sizeof(info));
  CHECK_INT(info.reserved, 0);
  CHECK(info.device[0] && info.isa_reason[0] && info.kernel[0]);
  const char *backend = getenv("TC_BACKEND");
  if (backend) CHECK_INT(info.backend, strcmp(backend, "metal") == 0 ? TC_BACKEND_METAL : TC_BACKEND_CPU);
  if (info.backend == TC_BACKEND_METAL) check_gpu_info(&info);
  if (info.backend == TC_BACKEND_CPU) check_cpu_info(&info);
  CHECK_STATUS(tc_device_info_get(NULL, &info), TC_ERROR_ARGUMENT);
  CHECK_STRING(tc_last_error(), "tc_device_info_get: ctx is NULL");
  CHECK_STATUS(tc_device_info_get(ctx, NULL), TC_ERROR_ARGUMENT);
  CHECK_STRING(tc_last_error(), "tc_device_info_get: out is NULL");
  close_context(ctx);
}

/* As many bytes are filled as the caller says, be it less than the library knows or more; the rest of memory is not touched. */
static void device_info_sizes(void) {
  static const size_t sizes[] = {8, 12, 24, 100, sizeof(tc_device_info), sizeof(tc_device_info) + 40, 4096};
  static const size_t wrong[] = {0, 7, 4097, SIZE_MAX};
  tc_context *ctx = open_context();
  tc_device_info full = TC_DEVICE_INFO_INIT;
  CHECK_OK(tc_device_info_get(ctx, &full));
  for (size_t i = 0; i < COUNT(sizes); i++) {
    note("struct_size %zu", sizes[i]);
    guarded g = guarded_open(sizes[i], AT_END);
    memset(g.data, 0xee, sizes[i]);
    memcpy(g.data, &sizes[i], sizeof(sizes[i]));
    CHECK_OK(tc_device_info_get(ctx, (tc_device_info *)(void *)g.data));
    size_t known = sizes[i] < sizeof(full) ? sizes[i] : sizeof(full);
    CHECK_BYTES(g.data, &sizes[i], sizeof(sizes[i]));
    CHECK_BYTES(g.data + sizeof(size_t), (const char *)&full + sizeof(size_t), known - sizeof(size_t));
    size_t zeros = 0;
    for (size_t b = known; b < sizes[i]; b++) zeros += g.data[b] == 0;
    CHECK(zeros == sizes[i] - known);
    guarded_close(&g);
  }
  for (size_t i = 0; i < COUNT(wrong); i++) {
    char text[32];
    snprintf(text, sizeof(text), "%zu", wrong[i]);
    tc_device_info info = TC_DEVICE_INFO_INIT;
    info.struct_size = wrong[i];
    CHECK_STATUS(tc_device_info_get(ctx, &info), TC_ERROR_ARGUMENT);
    CHECK_CONTAINS(tc_last_error(), "struct_size");
    CHECK_CONTAINS(tc_last_error(), text);
    CHECK(info.threads == 0 && info.device[0] == 0);
  }
  close_context(ctx);
}

static void batches(void) {
  tc_context *ctx = open_context();
  CHECK_STATUS(tc_batch_end(ctx), TC_ERROR_STATE);
  CHECK_CONTAINS(tc_last_error(), "tc_batch_end");
  CHECK_OK(tc_batch_begin(ctx));
  CHECK_STATUS(tc_batch_begin(ctx), TC_ERROR_STATE);
  CHECK_CONTAINS(tc_last_error(), "tc_batch_begin");
  CHECK_OK(tc_batch_end(ctx)); /* the refused begin left the batch open */
  CHECK_STATUS(tc_batch_end(ctx), TC_ERROR_STATE);
  CHECK_OK(tc_batch_begin(ctx));
  CHECK_OK(tc_batch_end(ctx));
  CHECK_STATUS(tc_batch_begin(NULL), TC_ERROR_ARGUMENT);
  CHECK_STRING(tc_last_error(), "tc_batch_begin: ctx is NULL");
  CHECK_STATUS(tc_batch_end(NULL), TC_ERROR_ARGUMENT);
  CHECK_STRING(tc_last_error(), "tc_batch_end: ctx is NULL");
  close_context(ctx);
}

int main(int argc, char **argv) {
  static const test tests[] = {{"open_and_close", open_and_close},
                               {"open_errors", open_errors},
                               {"open_keeps_sentence", open_keeps_sentence},
                               {"closed", closed},
                               {"threads", threads},
                               {"device_info", device_info},
                               {"device_info_sizes", device_info_sizes},
                               {"batches", batches}};
  return run_tests("context", tests, COUNT(tests), argc, argv);
}
