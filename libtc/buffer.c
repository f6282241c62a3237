/* SPDX-License-Identifier: MIT */
#include <stdlib.h>

#include "context.h"

static tc_status_t buffer_new(tc_context *ctx, const tc_memory *memory, size_t bytes, tc_buffer **out) {
  tc_buffer *buf = malloc(sizeof *buf);
  TC_REQUIRE(buf, TC_ERROR_MEMORY, "no memory for a buffer's handle");
  *buf = (tc_buffer){ctx, *memory, bytes};
  tc_context_retain(ctx);
  *out = buf;
  return TC_OK;
}

static tc_status_t buffer_alloc(tc_context *ctx, size_t bytes, tc_buffer **out) {
  tc_memory memory;
  TC_TRY(ctx->backend->memory_alloc(ctx->state, bytes, &memory));
  const tc_status_t status = buffer_new(ctx, &memory, bytes, out);
  if (status != TC_OK) ctx->backend->memory_free(&memory);
  return status;
}

static tc_status_t buffer_wrap(tc_context *ctx, void *ptr, size_t bytes, tc_buffer **out) {
  TC_REQUIRE(ptr || bytes == 0, TC_ERROR_ARGUMENT, "ptr is NULL, but bytes = %zu", bytes);
  TC_REQUIRE(bytes <= UINTPTR_MAX - (uintptr_t)ptr, TC_ERROR_ARGUMENT, "bytes = %zu from ptr on go beyond the address space",
             bytes);
  tc_memory memory;
  TC_TRY(ctx->backend->memory_wrap(ctx->state, ptr, bytes, &memory));
  const tc_status_t status = buffer_new(ctx, &memory, bytes, out);
  if (status != TC_OK) ctx->backend->memory_free(&memory);
  return status;
}

tc_status_t tc_buffer_alloc(tc_context *ctx, size_t bytes, tc_buffer **out) {
  tc_function_set(__func__);
  TC_REQUIRE(out, TC_ERROR_ARGUMENT, "out is NULL");
  *out = NULL;
  TC_TRY(tc_enter(__func__, ctx));
  return tc_leave(ctx, buffer_alloc(ctx, bytes, out));
}

tc_status_t tc_buffer_wrap(tc_context *ctx, void *ptr, size_t bytes, tc_buffer **out) {
  tc_function_set(__func__);
  TC_REQUIRE(out, TC_ERROR_ARGUMENT, "out is NULL");
  *out = NULL;
  TC_TRY(tc_enter(__func__, ctx));
  return tc_leave(ctx, buffer_wrap(ctx, ptr, bytes, out));
}

tc_status_t tc_buffer_map(tc_buffer *buf, void **out) {
  tc_function_set(__func__);
  TC_REQUIRE(out, TC_ERROR_ARGUMENT, "out is NULL");
  *out = NULL;
  TC_REQUIRE(buf, TC_ERROR_ARGUMENT, "buf is NULL");
  *out = buf->memory.data;
  return TC_OK;
}

size_t tc_buffer_size(const tc_buffer *buf) { return buf ? buf->bytes : 0; }

tc_status_t tc_buffer_free(tc_context *ctx, tc_buffer *buf) {
  tc_function_set(__func__);
  if (!buf) return TC_OK;
  TC_REQUIRE(ctx, TC_ERROR_ARGUMENT, "ctx is NULL");
  TC_REQUIRE(buf->ctx == ctx, TC_ERROR_ARGUMENT, "buf belongs to another context than ctx");
  ctx->backend->memory_free(&buf->memory);
  free(buf);
  tc_context_release(ctx);
  return TC_OK;
}
