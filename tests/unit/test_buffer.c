/* SPDX-License-Identifier: MIT
 *
 * Buffers: alignment, zeroes, 0 bytes, wrapped memory, sizes that can't be had, and who owns what.
 */
#include "common/check.h"
#include "common/context.h"
#include "common/operand.h"

#include <stdio.h>
#include <string.h>

static tc_context *ctx;

enum { PAGE = 16384 };

static void *map(tc_buffer *buf) {
  void *data = NULL;
  CHECK_OK(tc_buffer_map(buf, &data));
  return data;
}

static void alloc(void) {
  static const size_t sizes[] = {1, 2, 63, 64, 65, 4096, 4097, 1 << 20, (1 << 22) + 1};
  for (size_t i = 0; i < COUNT(sizes); i++) {
    note("%zu bytes", sizes[i]);
    tc_buffer *buf = NULL;
    if (!CHECK_OK(tc_buffer_alloc(ctx, sizes[i], &buf))) continue;
    CHECK(tc_buffer_size(buf) == sizes[i]);
    uint8_t *data = map(buf);
    CHECK_INT((int64_t)((uintptr_t)data % (on_metal(ctx) ? PAGE : 64)), 0);
    CHECK(map(buf) == data);
    size_t zeros = 0;
    for (size_t b = 0; b < sizes[i]; b++) zeros += data[b] == 0;
    CHECK(zeros == sizes[i]);
    memset(data, 0xa5, sizes[i]); /* dirty, for the next allocation */
    CHECK_OK(tc_buffer_free(ctx, buf));
  }
}

static void alloc_nothing(void) {
  tc_buffer *a = NULL, *b = NULL;
  CHECK_OK(tc_buffer_alloc(ctx, 0, &a));
  CHECK_OK(tc_buffer_alloc(ctx, 0, &b));
  CHECK(a && b && a != b);
  CHECK(tc_buffer_size(a) == 0);
  map(a);
  CHECK_OK(tc_buffer_free(ctx, a));
  CHECK_OK(tc_buffer_free(ctx, b));
}

/* Sizes that overflow when they are rounded up, and such as no machine has. */
static void alloc_too_much(void) {
  static const size_t sizes[] = {SIZE_MAX,        SIZE_MAX - 1,     SIZE_MAX - 62, SIZE_MAX - 63,  SIZE_MAX - 64,
                                 SIZE_MAX - 4096, SIZE_MAX / 2 + 1, SIZE_MAX / 2,  (size_t)1 << 60};
  for (size_t i = 0; i < COUNT(sizes); i++) {
    note("%zu bytes", sizes[i]);
    tc_buffer *buf = (tc_buffer *)&ctx;
    CHECK_STATUS(tc_buffer_alloc(ctx, sizes[i], &buf), TC_ERROR_MEMORY);
    CHECK(buf == NULL);
    CHECK_CONTAINS(tc_last_error(), "tc_buffer_alloc");
    char text[32];
    snprintf(text, sizeof(text), "%zu", sizes[i]);
    CHECK_CONTAINS(tc_last_error(), text);
  }
}

/* Any memory on the CPU, whole pages on Metal. */
static void wrap(void) {
  static _Alignas(PAGE) char memory[3 * PAGE];
  for (size_t i = 0; i < 3; i++) {
    size_t shift = i * wrap_unit(ctx);
    tc_buffer *buf = NULL;
    CHECK_OK(tc_buffer_wrap(ctx, memory + shift, sizeof(memory) - shift, &buf));
    CHECK(map(buf) == memory + shift);
    CHECK(tc_buffer_size(buf) == sizeof(memory) - shift);
    CHECK_OK(tc_buffer_free(ctx, buf));
  }
  memset(memory, 7, sizeof(memory)); /* still the caller's */
}

static void wrap_parts_of_pages(void) {
  static _Alignas(PAGE) char memory[2 * PAGE];
  static const size_t ranges[][2] = {{0, 1},     {0, PAGE - 1},        {0, PAGE + 1}, {1, PAGE},
                                     {64, PAGE}, {PAGE - 1, PAGE + 1}, {4096, PAGE}};
  for (size_t i = 0; i < COUNT(ranges); i++) {
    note("%zu bytes from %zu on", ranges[i][1], ranges[i][0]);
    tc_buffer *buf = (tc_buffer *)&ctx;
    tc_status_t status = tc_buffer_wrap(ctx, memory + ranges[i][0], ranges[i][1], &buf);
    CHECK_INT(status, on_metal(ctx) ? TC_ERROR_ALIGNMENT : TC_OK);
    CHECK_OK(tc_buffer_free(ctx, buf));
    if (status == TC_OK) continue;
    char bytes[32];
    snprintf(bytes, sizeof(bytes), "%zu", ranges[i][1]);
    CHECK(buf == NULL);
    CHECK_CONTAINS(tc_last_error(), "tc_buffer_wrap");
    CHECK_CONTAINS(tc_last_error(), bytes);
    CHECK_CONTAINS(tc_last_error(), "16384");
  }
}

static void wrap_nothing(void) {
  static char memory[1];
  void *const pointers[] = {NULL, memory};
  for (size_t i = 0; i < COUNT(pointers); i++) {
    tc_buffer *buf = NULL;
    CHECK_OK(tc_buffer_wrap(ctx, pointers[i], 0, &buf));
    CHECK(tc_buffer_size(buf) == 0);
    CHECK(map(buf) == pointers[i]);
    CHECK_OK(tc_buffer_free(ctx, buf));
  }
}

static void wrap_errors(void) {
  static char memory[8];
  tc_buffer *buf = (tc_buffer *)&ctx;
  CHECK_STATUS(tc_buffer_wrap(ctx, NULL, 12, &buf), TC_ERROR_ARGUMENT);
  CHECK(buf == NULL);
  CHECK_CONTAINS(tc_last_error(), "tc_buffer_wrap");
  CHECK_CONTAINS(tc_last_error(), "ptr");
  CHECK_CONTAINS(tc_last_error(), "12");
  buf = (tc_buffer *)&ctx;
  CHECK_STATUS(tc_buffer_wrap(ctx, memory, SIZE_MAX, &buf), TC_ERROR_ARGUMENT); /* runs past the last address */
  CHECK(buf == NULL);
  CHECK_CONTAINS(tc_last_error(), "bytes");
}

static void pointer_errors(void) {
  tc_buffer *buf = NULL;
  void *data = &buf;
  CHECK_STATUS(tc_buffer_alloc(ctx, 8, NULL), TC_ERROR_ARGUMENT);
  CHECK_STRING(tc_last_error(), "tc_buffer_alloc: out is NULL");
  CHECK_STATUS(tc_buffer_alloc(NULL, 8, &buf), TC_ERROR_ARGUMENT);
  CHECK_STRING(tc_last_error(), "tc_buffer_alloc: ctx is NULL");
  CHECK_STATUS(tc_buffer_wrap(ctx, &buf, 8, NULL), TC_ERROR_ARGUMENT);
  CHECK_STRING(tc_last_error(), "tc_buffer_wrap: out is NULL");
  CHECK_STATUS(tc_buffer_wrap(NULL, &buf, 8, &buf), TC_ERROR_ARGUMENT);
  CHECK_STRING(tc_last_error(), "tc_buffer_wrap: ctx is NULL");
  CHECK_STATUS(tc_buffer_map(NULL, &data), TC_ERROR_ARGUMENT);
  CHECK_STRING(tc_last_error(), "tc_buffer_map: buf is NULL");
  CHECK(data == NULL);
  CHECK(tc_buffer_size(NULL) == 0);
  CHECK_OK(tc_buffer_free(ctx, NULL));
  CHECK_OK(tc_buffer_free(NULL, NULL));
}

/* A free that is refused frees nothing. */
static void free_errors(void) {
  tc_context *other = open_context();
  tc_buffer *buf = NULL;
  CHECK_OK(tc_buffer_alloc(ctx, 8, &buf));
  CHECK_STATUS(tc_buffer_free(other, buf), TC_ERROR_ARGUMENT);
  CHECK_CONTAINS(tc_last_error(), "tc_buffer_free");
  CHECK_CONTAINS(tc_last_error(), "another context");
  CHECK_STATUS(tc_buffer_free(NULL, buf), TC_ERROR_ARGUMENT);
  CHECK_STRING(tc_last_error(), "tc_buffer_free: ctx is NULL");
  memset(map(buf), 1, 8);
  CHECK_STATUS(tc_buffer_map(buf, NULL), TC_ERROR_ARGUMENT);
  CHECK_STRING(tc_last_error(), "tc_buffer_map: out is NULL");
  CHECK_OK(tc_buffer_free(ctx, buf));
  close_context(other);
}

int main(int argc, char **argv) {
  static const test tests[] = {{"alloc", alloc},
                               {"alloc_nothing", alloc_nothing},
                               {"alloc_too_much", alloc_too_much},
                               {"wrap", wrap},
                               {"wrap_parts_of_pages", wrap_parts_of_pages},
                               {"wrap_nothing", wrap_nothing},
                               {"wrap_errors", wrap_errors},
                               {"pointer_errors", pointer_errors},
                               {"free_errors", free_errors}};
  ctx = open_context();
  int status = run_tests("buffer", tests, COUNT(tests), argc, argv);
  close_context(ctx);
  return status;
}
