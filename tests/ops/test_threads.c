/* SPDX-License-Identifier: MIT
 *
 * Many threads on one context and on contexts of their own, and calls that change or close a context meanwhile. Results have the
 * bits that a single thread gets. Meant for ThreadSanitizer, too.
 */
#include "common/check.h"
#include "common/context.h"
#include "common/workers.h"

#include <stdlib.h>
#include <unistd.h>

enum { THREADS = 6 };

/* Small and large problems of every op. */
static problem some_problem(rng *r) { return problem_random(r, rng_one_in(r, 3) ? 1 << 20 : 1 << 14); }

/* ---- Shared contexts ---- */

static void reference_run(worker *w) {
  tc_context *ctx = w->ctx ? w->ctx : open_context();
  tc_context *alone = open_context();
  CHECK_OK(tc_context_set_threads(alone, 1));
  rng r = {w->seed};
  for (int64_t round = 0; round < w->rounds; round++) {
    problem p = some_problem(&r);
    size_t bytes = 0;
    uint8_t *want = problem_bytes(&p, alone, &bytes), *got = problem_bytes(&p, ctx, &bytes);
    CHECK_BYTES(got, want, bytes);
    free(want);
    free(got);
  }
  close_context(alone);
  if (!w->ctx) close_context(ctx);
}

static void run_threads(tc_context *shared) {
  worker workers[THREADS];
  for (size_t i = 0; i < THREADS; i++) {
    workers[i] = (worker){.run = reference_run, .ctx = shared, .rounds = scaled(25), .seed = test_seed() + i};
  }
  workers_start(workers, THREADS);
  workers_join(workers, THREADS);
}

static void one_context(void) {
  tc_context *ctx = open_context();
  CHECK_OK(tc_context_set_threads(ctx, 3));
  run_threads(ctx);
  close_context(ctx);
}

static void own_contexts(void) { run_threads(NULL); }

/* The context changes while calls run on it. */
static void changes_meanwhile(void) {
  tc_context *ctx = open_context();
  atomic_int stop = 0;
  worker workers[3];
  for (size_t i = 0; i < COUNT(workers); i++) workers[i] = (worker){.run = work_until_stopped, .ctx = ctx, .signal = &stop};
  workers_start(workers, COUNT(workers));
  for (int64_t i = scaled(200); i > 0; i--) {
    int64_t threads = 0;
    tc_device_info info = TC_DEVICE_INFO_INIT;
    tc_buffer *buf = NULL;
    CHECK_OK(tc_context_set_threads(ctx, 1 + i % 4));
    CHECK_OK(tc_context_get_threads(ctx, &threads));
    CHECK_INT(threads, 1 + i % 4);
    CHECK_OK(tc_device_info_get(ctx, &info));
    CHECK_OK(tc_context_trim(ctx));
    CHECK_OK(tc_buffer_alloc(ctx, 100, &buf));
    CHECK_OK(tc_buffer_free(ctx, buf));
  }
  atomic_store(&stop, 1);
  workers_join(workers, COUNT(workers));
  close_context(ctx);
}

/* ---- Shutting down ---- */

static void use_until_closed(worker *w) {
  problem p = busy_problem();
  problem_note(&p);
  problem_open(&p, w->ctx);
  atomic_fetch_add(w->signal, 1);
  tc_status_t status = problem_call(&p, w->ctx);
  uint8_t *want = operand_snapshot(problem_output(&p));
  while (status == TC_OK) {
    CHECK_BYTES(problem_output(&p)->memory.data, want, problem_output(&p)->memory.bytes);
    status = problem_call(&p, w->ctx);
  }
  CHECK_INT(status, TC_ERROR_CLOSED);
  free(want);
  problem_close(&p, w->ctx);
}

/* tc_shutdown waits for running calls; the others answer CLOSED, and the last free takes the context away. */
static void shutdown_meanwhile(void) {
  for (int64_t i = scaled(20); i > 0; i--) {
    tc_context *ctx = open_context();
    atomic_int ready = 0;
    worker workers[3];
    for (size_t w = 0; w < COUNT(workers); w++) workers[w] = (worker){.run = use_until_closed, .ctx = ctx, .signal = &ready};
    workers_start(workers, COUNT(workers));
    while (atomic_load(&ready) < (int)COUNT(workers)) usleep(100);
    usleep(500);
    CHECK_OK(tc_shutdown(ctx));
    workers_join(workers, COUNT(workers));
  }
}

int main(int argc, char **argv) {
  static const test tests[] = {{"one_context", one_context},
                               {"own_contexts", own_contexts},
                               {"changes_meanwhile", changes_meanwhile},
                               {"shutdown_meanwhile", shutdown_meanwhile}};
  return run_tests("threads", tests, COUNT(tests), argc, argv);
}
