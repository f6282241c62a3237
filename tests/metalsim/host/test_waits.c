/* SPDX-License-Identifier: MIT
 *
 * A GPU that doesn't answer: waits end, for every thread that waits, and what the GPU may still use stays alive until it lets go.
 */
#include "host.h"

#include "common/workers.h"

#include <time.h>

extern int tc_metal_patience_ms;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

enum { PATIENCE_MS = 250, TOO_LONG_S = 20 };

/* One wait that ends, after about as long as it is told to. */
static void check_timeout(tc_context *ctx, const product *p) {
  double start = now();
  CHECK_STATUS(product_call(p, ctx), TC_ERROR_TIMEOUT);
  CHECK_CONTAINS(tc_last_error(), "tc_gemm");
  CHECK_CONTAINS(tc_last_error(), "did not answer");
  CHECK_AT_MOST(PATIENCE_MS / 1000.0, now() - start);
  CHECK_AT_MOST(now() - start, TOO_LONG_S);
}

/* Buffers that are freed, and a context that is shut down, while the GPU hangs. */
static void hang(void) {
  tc_context *ctx = open_metal();
  product p = product_open(ctx, 16, 16, 16);
  metalsim_fault("hang", 1, 0);
  check_timeout(ctx, &p);
  CHECK_STATUS(product_call(&p, ctx), TC_ERROR_TIMEOUT);
  CHECK_CONTAINS(tc_last_error(), "can't be used any more");
  product_close(&p, ctx);
  CHECK_OK(tc_shutdown(ctx));
  CHECK(metalsim_live(false) > 3); /* at least the operands */
  metalsim_release_hang();
  check_nothing_lives();
}

/* The parent of a hang that ends by itself is well. */
static void slow(void) {
  tc_context *ctx = open_metal();
  product p = product_open(ctx, 16, 16, 16);
  metalsim_set("SLOW_MS", "150");
  CHECK_OK(product_call(&p, ctx));
  product_right(&p);
  metalsim_set("SLOW_MS", NULL);
  product_close(&p, ctx);
  close_metal(ctx);
}

static void call_once(worker *w) {
  product p = product_open(w->ctx, 16, 16, 16);
  atomic_fetch_add(w->signal, 1);
  check_timeout(w->ctx, &p);
  product_close(&p, w->ctx);
}

/* Threads that wait for a GPU that one of them has lost all come back. */
static void threads(void) {
  tc_context *ctx = open_metal();
  atomic_int ready = 0;
  worker workers[4];
  for (size_t i = 0; i < COUNT(workers); i++) workers[i] = (worker){.run = call_once, .ctx = ctx, .signal = &ready};
  metalsim_fault("hang", 1, 0);
  workers_start(workers, COUNT(workers));
  workers_join(workers, COUNT(workers));
  CHECK_OK(tc_shutdown(ctx));
  metalsim_release_hang();
  check_nothing_lives();
}

/* Shutting down in the middle of a batch that hangs waits no longer than a call. */
static void shutdown_in_a_batch(void) {
  tc_context *ctx = open_metal();
  product p = product_open(ctx, 16, 16, 16);
  CHECK_OK(tc_batch_begin(ctx));
  CHECK_OK(product_call(&p, ctx));
  metalsim_fault("hang", 1, 0);
  double start = now();
  CHECK_OK(tc_shutdown(ctx));
  CHECK_AT_MOST(now() - start, TOO_LONG_S);
  product_close(&p, ctx);
  metalsim_release_hang();
  check_nothing_lives();
}

int main(int argc, char **argv) {
  static const test tests[] = {{"hang", hang}, {"slow", slow}, {"threads", threads}, {"shutdown_in_a_batch", shutdown_in_a_batch}};
  tc_metal_patience_ms = PATIENCE_MS;
  metalsim_set("CLOCK", "1");
  return run_tests("waits", tests, COUNT(tests), argc, argv);
}
