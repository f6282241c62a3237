/* SPDX-License-Identifier: MIT
 *
 * Everything that Metal can refuse or lose, one fault at a time: the status, the sentence, outputs as they were where nothing had
 * begun, a context that only fails from then on, and no object left over.
 */
#include "host.h"

#include "common/context.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char sentence[512];

static void keep_sentence(void) {
  strncpy(sentence, tc_last_error(), sizeof(sentence) - 1);
  sentence[sizeof(sentence) - 1] = 0;
}

/* ---- Opening ---- */

static tc_status_t open_with(tc_backend_t which, tc_context **out) {
  *out = (tc_context *)&sentence;
  tc_status_t status = tc_init_backend(which, out);
  keep_sentence();
  return status;
}

static void check_backend(tc_backend_t asked, tc_backend_t got) {
  tc_context *ctx = NULL;
  if (!CHECK_OK(open_with(asked, &ctx))) return;
  CHECK_INT(on_metal(ctx), got == TC_BACKEND_METAL);
  close_metal(ctx);
}

/* A device is found by either way. Without one, the sentence says where it was looked for, and AUTO takes the CPU. */
static void no_device(void) {
  tc_context *ctx;
  check_backend(TC_BACKEND_AUTO, TC_BACKEND_METAL);
  metalsim_fault("all_devices", 0, 0);
  check_backend(TC_BACKEND_METAL, TC_BACKEND_METAL);
  metalsim_fault("default_device", 0, 0);
  CHECK_STATUS(open_with(TC_BACKEND_METAL, &ctx), TC_ERROR_NO_DEVICE);
  CHECK(ctx == NULL);
  CHECK_CONTAINS(sentence, "MTLCopyAllDevices");
  CHECK_CONTAINS(sentence, "MTLCreateSystemDefaultDevice");
  check_backend(TC_BACKEND_AUTO, TC_BACKEND_CPU);
  metalsim_fault("all_devices", -1, 0);
  check_backend(TC_BACKEND_METAL, TC_BACKEND_METAL);
  metalsim_fault("default_device", -1, 0);
  check_nothing_lives();
}

/* A GPU without simdgroup matrices is none. */
static void old_device(void) {
  tc_context *ctx;
  metalsim_set("FAMILY", "mac2");
  metalsim_set("NAME", "Old GPU");
  CHECK_STATUS(open_with(TC_BACKEND_METAL, &ctx), TC_ERROR_NO_DEVICE);
  CHECK_CONTAINS(sentence, "Old GPU");
  CHECK_CONTAINS(sentence, "Apple7");
  check_backend(TC_BACKEND_AUTO, TC_BACKEND_CPU);
  metalsim_set("FAMILY", NULL);
  metalsim_set("NAME", NULL);
}

/* A device that is there and can't be set up is an error, also where any backend would do: the CPU in its place would be a
 * surprise. */
static void broken_set_up(void) {
  static const struct {
    const char *fault;
    int64_t code;
    tc_status_t status;
    const char *says;
  } rows[] = {
      {"compile", 0, TC_ERROR_DEVICE, "kernels"},
      {"queue", 0, TC_ERROR_DEVICE, "queue"},
      {"event", 0, TC_ERROR_DEVICE, "event"},
      {"buffer", 0, TC_ERROR_MEMORY, "workspace"},
      {"function", 0, TC_ERROR_DEVICE, "tc_probe"},
      {"pipeline", 0, TC_ERROR_DEVICE, "tc_probe"},
      {"command_buffer", 0, TC_ERROR_DEVICE, "command buffer"},
      {"encoder", 0, TC_ERROR_DEVICE, "command buffer"},
      {"execution", 1, TC_ERROR_DEVICE, "MTLCommandBufferError 1"},
      {"execution", 2, TC_ERROR_TIMEOUT, "MTLCommandBufferError 2"},
  };
  static const tc_backend_t asked[] = {TC_BACKEND_METAL, TC_BACKEND_AUTO};
  for (size_t i = 0; i < COUNT(rows); i++) {
    for (size_t which = 0; which < COUNT(asked); which++) {
      tc_context *ctx;
      note("%s fails with %lld", rows[i].fault, (long long)rows[i].code);
      metalsim_fault(rows[i].fault, 1, rows[i].code);
      CHECK_STATUS(open_with(asked[which], &ctx), rows[i].status);
      CHECK(ctx == NULL);
      CHECK_CONTAINS(sentence, "tc_init_backend");
      CHECK_CONTAINS(sentence, rows[i].says);
      check_nothing_lives();
      check_backend(asked[which], TC_BACKEND_METAL); /* and the next one is well */
    }
  }
}

/* ---- Calls ---- */

/* All but a few calls answer as the one that failed did. */
static void check_failed_for_ever(tc_context *ctx, const product *p, tc_status_t status) {
  tc_buffer *buf = NULL;
  tc_device_info info = TC_DEVICE_INFO_INIT;
  void *data = NULL;
  CHECK_STATUS(product_call(p, ctx), status);
  CHECK_CONTAINS(tc_last_error(), "tc_gemm");
  CHECK_CONTAINS(tc_last_error(), "can't be used any more");
  CHECK_STATUS(tc_buffer_alloc(ctx, 8, &buf), status);
  CHECK_STATUS(tc_buffer_wrap(ctx, NULL, 0, &buf), status);
  CHECK(buf == NULL);
  CHECK_STATUS(tc_batch_begin(ctx), status);
  CHECK_STATUS(tc_batch_end(ctx), TC_ERROR_STATE);
  CHECK_OK(tc_device_info_get(ctx, &info));
  CHECK_OK(tc_context_trim(ctx));
  CHECK_OK(tc_buffer_map(p->C, &data));
  CHECK(data == p->c);
}

/* Before anything is given to the GPU: the output is as it was. Afterwards nothing is said about it. */
static void broken_calls(void) {
  static const struct {
    const char *fault;
    int64_t code;
    tc_status_t status;
    const char *says;
    bool before_work;
  } rows[] = {
      {"function", 0, TC_ERROR_DEVICE, "kernel", true},
      {"pipeline", 0, TC_ERROR_DEVICE, "kernel", true},
      {"command_buffer", 0, TC_ERROR_DEVICE, "command buffer", true},
      {"encoder", 0, TC_ERROR_DEVICE, "command buffer", true},
      {"execution", 1, TC_ERROR_DEVICE, "MTLCommandBufferError 1", false},
      {"execution", 2, TC_ERROR_TIMEOUT, "MTLCommandBufferError 2", false},
      {"execution", 3, TC_ERROR_DEVICE, "MTLCommandBufferError 3", false},
      {"execution", 4, TC_ERROR_DEVICE, "MTLCommandBufferError 4", false},
      {"execution", 7, TC_ERROR_DEVICE, "MTLCommandBufferError 7", false},
      {"execution", 8, TC_ERROR_DEVICE, "MTLCommandBufferError 8", false},
      {"execution", 9, TC_ERROR_DEVICE, "MTLCommandBufferError 9", false},
      {"execution", 12, TC_ERROR_DEVICE, "MTLCommandBufferError 12", false},
  };
  for (size_t i = 0; i < COUNT(rows); i++) {
    tc_context *ctx = open_metal();
    product p = product_open(ctx, 16, 16, 16);
    note("%s fails with %lld", rows[i].fault, (long long)rows[i].code);
    metalsim_fault(rows[i].fault, 1, rows[i].code);
    CHECK_STATUS(product_call(&p, ctx), rows[i].status);
    keep_sentence();
    CHECK_CONTAINS(sentence, "tc_gemm");
    CHECK_CONTAINS(sentence, rows[i].says);
    if (rows[i].before_work) product_untouched(&p);
    check_failed_for_ever(ctx, &p, rows[i].status);
    product_close(&p, ctx);
    close_metal(ctx);
  }
}

/* No memory is no failure of the device: the call can be made again. */
static void no_memory(void) {
  tc_context *ctx = open_metal();
  tc_buffer *buf = (tc_buffer *)&ctx;
  metalsim_fault("buffer", 1, 0);
  CHECK_STATUS(tc_buffer_alloc(ctx, 123, &buf), TC_ERROR_MEMORY);
  CHECK(buf == NULL);
  CHECK_CONTAINS(tc_last_error(), "tc_buffer_alloc");
  CHECK_CONTAINS(tc_last_error(), "123");
  product p = product_open(ctx, 2, 3, 20000); /* long sums: pieces of them are kept in a workspace */
  CHECK_OK(tc_context_trim(ctx));
  metalsim_fault("buffer", 1, 0);
  CHECK_STATUS(product_call(&p, ctx), TC_ERROR_MEMORY);
  CHECK_CONTAINS(tc_last_error(), "tc_gemm");
  CHECK_CONTAINS(tc_last_error(), "workspace");
  product_untouched(&p);
  CHECK_OK(product_call(&p, ctx));
  product_right(&p);
  product_close(&p, ctx);
  close_metal(ctx);
}

/* More than Metal puts into one buffer. */
static void buffer_limit(void) {
  static const size_t limit = 4 * 16384;
  static _Alignas(16384) char memory[5 * 16384];
  metalsim_set("MAX_BUFFER_LENGTH", "65536");
  tc_context *ctx = open_metal();
  tc_buffer *buf = NULL;
  CHECK_OK(tc_buffer_alloc(ctx, limit, &buf));
  CHECK_OK(tc_buffer_free(ctx, buf));
  CHECK_STATUS(tc_buffer_alloc(ctx, limit + 1, &buf), TC_ERROR_MEMORY);
  CHECK(buf == NULL);
  CHECK_CONTAINS(tc_last_error(), "65537");
  CHECK_CONTAINS(tc_last_error(), "65536");
  CHECK_STATUS(tc_buffer_wrap(ctx, memory, sizeof(memory), &buf), TC_ERROR_MEMORY);
  CHECK(buf == NULL);
  CHECK_CONTAINS(tc_last_error(), "81920");
  CHECK_CONTAINS(tc_last_error(), "65536");
  close_metal(ctx);
  metalsim_set("MAX_BUFFER_LENGTH", NULL);
}

int main(int argc, char **argv) {
  static const test tests[] = {{"no_device", no_device},       {"old_device", old_device}, {"broken_set_up", broken_set_up},
                               {"broken_calls", broken_calls}, {"no_memory", no_memory},   {"buffer_limit", buffer_limit}};
  unsetenv("TC_BACKEND");
  return run_tests("failures", tests, COUNT(tests), argc, argv);
}
