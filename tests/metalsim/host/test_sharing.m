/* SPDX-License-Identifier: MIT
 *
 * What contexts share, and keep: one library and one set of pipelines for the process, a bounded number of them, and a workspace
 * until it is trimmed. Buffers outlive their context.
 */
#import "metal/metal.h"

#include "host.h"

#include <string.h>

/* A second context compiles nothing. */
static void one_library(void) {
  metalsim_counters_reset();
  tc_context *a = open_metal();
  product p = product_open(a, 16, 16, 16);
  CHECK_OK(product_call(&p, a));
  const metalsim_counters first = metalsim_counters_get();
  tc_context *b = open_metal();
  product q = product_open(b, 16, 16, 16);
  CHECK_OK(product_call(&q, b));
  const metalsim_counters second = metalsim_counters_get();
  CHECK_INT(first.compilations, 1);
  CHECK_INT(first.fast_math, 0); /* which keeps no NaN */
  CHECK_INT(second.compilations, 1);
  CHECK_INT(second.pipelines, first.pipelines);
  product_close(&p, a);
  CHECK_OK(tc_shutdown(a));
  CHECK_OK(product_call(&q, b)); /* the other one goes on */
  product_right(&q);
  product_close(&q, b);
  close_metal(b);
}

/* A constant that no kernel has makes a pipeline of its own. */
static tc_plan_kernel variant(uint32_t i) {
  return (tc_plan_kernel){.name = "tc_probe", .constant_count = 1, .constants = {{.index = 1000 + i, .value = true}}};
}

static int64_t pipelines_made(tc_gpu *gpu, uint32_t i) {
  NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
  const int64_t before = metalsim_counters_get().pipelines;
  const tc_plan_kernel kernel = variant(i);
  char reason[64];
  id<MTLComputePipelineState> state = tc_gpu_pipeline(gpu, &kernel, reason, sizeof reason);
  CHECK(state != nil);
  [state release];
  [pool drain];
  return metalsim_counters_get().pipelines - before;
}

/* Pipelines are kept up to a number, and the one that was used last goes last. */
static void bounded_pipelines(void) {
  enum { MORE = 10 };
  NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
  tc_gpu *gpu = NULL;
  CHECK_OK(tc_gpu_take(&gpu));
  [pool drain];
  int64_t full = 0;
  for (uint32_t i = 0; i < TC_METAL_PIPELINES + MORE; i++) {
    CHECK_INT(pipelines_made(gpu, i), 1);
    CHECK_INT(pipelines_made(gpu, 0), 0); /* in use all the time */
    if (i == TC_METAL_PIPELINES - 1) full = metalsim_live(false);
  }
  CHECK_INT(metalsim_live(false), full);
  CHECK_INT(pipelines_made(gpu, TC_METAL_PIPELINES + MORE - 1), 0);
  CHECK_INT(pipelines_made(gpu, 1), 1);
  tc_gpu_give(gpu);
  check_nothing_lives();
}

/* The workspace of long sums is kept for the next call, until it is trimmed. */
static void workspace(void) {
  tc_context *ctx = open_metal();
  product p = product_open(ctx, 2, 3, 20000);
  CHECK_OK(product_call(&p, ctx));
  const int64_t used = metalsim_live(false);
  CHECK_OK(product_call(&p, ctx));
  CHECK_INT(metalsim_live(false), used);
  CHECK_OK(tc_context_trim(ctx));
  CHECK_INT(metalsim_live(false), used - 1);
  CHECK_OK(tc_context_trim(ctx));
  CHECK_OK(product_call(&p, ctx));
  product_right(&p);
  CHECK_INT(metalsim_live(false), used);
  product_close(&p, ctx);
  close_metal(ctx);
}

static void buffers_outlive_contexts(void) {
  tc_context *ctx = open_metal();
  product p = product_open(ctx, 16, 16, 16);
  CHECK_OK(product_call(&p, ctx));
  CHECK_OK(tc_shutdown(ctx));
  product_right(&p);
  p.c[0] = 0;
  product_close(&p, ctx);
  check_nothing_lives();
}

/* The fewest threads that a threadgroup may be limited to. */
static void few_threads(void) {
  metalsim_set("MAX_THREADS", "256");
  tc_context *ctx = open_metal();
  product p = product_open(ctx, 70, 80, 90);
  CHECK_OK(product_call(&p, ctx));
  product_right(&p);
  product_close(&p, ctx);
  close_metal(ctx);
  metalsim_set("MAX_THREADS", NULL);
}

int main(int argc, char **argv) {
  static const test tests[] = {{"one_library", one_library},
                               {"bounded_pipelines", bounded_pipelines},
                               {"workspace", workspace},
                               {"buffers_outlive_contexts", buffers_outlive_contexts},
                               {"few_threads", few_threads}};
  return run_tests("sharing", tests, COUNT(tests), argc, argv);
}
