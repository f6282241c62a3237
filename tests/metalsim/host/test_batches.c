/* SPDX-License-Identifier: MIT
 *
 * Batches: many calls in one command buffer, in order, with operands that may go meanwhile; errors at the end; and long ones cut.
 */
#include "host.h"

#include "common/half.h"

#include <string.h>

static int64_t command_buffers(void) { return metalsim_counters_get().command_buffers; }

/* C = A * B, then D = C * B and so on, each call reading what the one before wrote. */
static void chain(void) {
  enum { LINKS = 12, SIZE = 16 };
  tc_context *ctx = open_metal();
  product links[LINKS];
  for (int i = 0; i < LINKS; i++) {
    links[i] = product_open(ctx, SIZE, SIZE, SIZE);
    links[i].b = 0.125; /* with a: 2 * 16 / 8 = 4, then 8, 16, ... */
    void *data = NULL;
    CHECK_OK(tc_buffer_map(links[i].B, &data));
    for (int n = 0; n < SIZE * SIZE; n++) ((uint16_t *)data)[n] = half_round(links[i].b);
  }
  int64_t before = command_buffers();
  CHECK_OK(tc_batch_begin(ctx));
  for (int i = 0; i < LINKS; i++) {
    const tc_buffer *A = i ? links[i - 1].C : links[i].A;
    CHECK_OK(tc_gemm(ctx, &links[i].desc, A, links[i].B, links[i].C));
    links[i].a = i ? links[i - 1].a * 2 : 2;
  }
  product_untouched(&links[0]);
  CHECK_OK(tc_batch_end(ctx));
  CHECK_INT(command_buffers() - before, 1);
  for (int i = 0; i < LINKS; i++) {
    product_right(&links[i]);
    product_close(&links[i], ctx);
  }
  close_metal(ctx);
}

/* An operand may be freed once its call has been encoded: the GPU has it. */
static void freed_operands(void) {
  tc_context *ctx = open_metal();
  product p = product_open(ctx, 40, 50, 60), q = product_open(ctx, 16, 16, 16);
  CHECK_OK(tc_batch_begin(ctx));
  CHECK_OK(product_call(&p, ctx));
  CHECK_OK(tc_buffer_free(ctx, p.A));
  CHECK_OK(tc_buffer_free(ctx, p.B));
  CHECK_OK(product_call(&q, ctx));
  product_close(&q, ctx);
  CHECK_OK(tc_context_trim(ctx));
  CHECK_OK(tc_batch_end(ctx));
  product_right(&p);
  CHECK_OK(tc_buffer_free(ctx, p.C));
  close_metal(ctx);
}

/* A call that is refused leaves the others be. */
static void refused_call(void) {
  tc_context *ctx = open_metal();
  product p = product_open(ctx, 16, 16, 16), q = product_open(ctx, 16, 17, 18);
  CHECK_OK(tc_batch_begin(ctx));
  CHECK_OK(product_call(&p, ctx));
  CHECK_STATUS(tc_gemm(ctx, &p.desc, p.A, p.C, p.C), TC_ERROR_OVERLAP);
  CHECK_OK(product_call(&q, ctx));
  CHECK_OK(tc_batch_end(ctx));
  product_right(&p);
  product_right(&q);
  CHECK_OK(product_call(&p, ctx)); /* after a batch a call waits again */
  product_right(&p);
  product_close(&p, ctx);
  product_close(&q, ctx);
  close_metal(ctx);
}

/* A failure of the device is known at the end, and stays. */
static void failure(void) {
  tc_context *ctx = open_metal();
  product p = product_open(ctx, 16, 16, 16);
  metalsim_fault("execution", 1, 3);
  CHECK_OK(tc_batch_begin(ctx));
  CHECK_OK(product_call(&p, ctx));
  CHECK_STATUS(tc_batch_end(ctx), TC_ERROR_DEVICE);
  CHECK_CONTAINS(tc_last_error(), "tc_batch_end");
  CHECK_CONTAINS(tc_last_error(), "MTLCommandBufferError 3");
  CHECK_STATUS(product_call(&p, ctx), TC_ERROR_DEVICE);
  product_close(&p, ctx);
  close_metal(ctx);
}

/* What is encoded when the context is shut down is done. */
static void shutdown_inside(void) {
  tc_context *ctx = open_metal();
  product p = product_open(ctx, 16, 16, 16);
  CHECK_OK(tc_batch_begin(ctx));
  CHECK_OK(product_call(&p, ctx));
  CHECK_OK(tc_shutdown(ctx));
  product_right(&p);
  product_close(&p, ctx);
  check_nothing_lives();
}

/* A product of seconds is cut into command buffers of about half a second, in a batch and alone. The simulator is told to lose all
 * of them, since it couldn't do such a product. */
static void long_calls(void) {
  enum { SIZE = 12288 }; /* 3.7 TFLOP; an M1 does 2.6 a second at best */
  tc_context *ctx = NULL;
  tc_gemm_desc desc = TC_GEMM_DESC_INIT;
  desc.M = desc.N = desc.K = SIZE;
  for (int batch = 0; batch < 2; batch++) {
    tc_buffer *buffers[3] = {NULL};
    ctx = open_metal();
    for (int i = 0; i < 3; i++) CHECK_OK(tc_buffer_alloc(ctx, (size_t)SIZE * SIZE * sizeof(uint16_t), &buffers[i]));
    metalsim_fault("execution", 0, 1);
    int64_t before = command_buffers();
    if (batch) CHECK_OK(tc_batch_begin(ctx));
    CHECK_STATUS(tc_gemm(ctx, &desc, buffers[0], buffers[1], buffers[2]), batch ? TC_OK : TC_ERROR_DEVICE);
    if (batch) CHECK_STATUS(tc_batch_end(ctx), TC_ERROR_DEVICE);
    CHECK_AT_MOST(3, (double)(command_buffers() - before));
    CHECK_AT_MOST((double)(command_buffers() - before), 20);
    metalsim_fault("execution", -1, 0);
    for (int i = 0; i < 3; i++) CHECK_OK(tc_buffer_free(ctx, buffers[i]));
    close_metal(ctx);
  }
}

int main(int argc, char **argv) {
  static const test tests[] = {{"chain", chain},     {"freed_operands", freed_operands},   {"refused_call", refused_call},
                               {"failure", failure}, {"shutdown_inside", shutdown_inside}, {"long_calls", long_calls}};
  return run_tests("batches", tests, COUNT(tests), argc, argv);
}
