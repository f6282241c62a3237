/* SPDX-License-Identifier: MIT */
#include "workers.h"

#include "check.h"

#include <stdlib.h>

static void *start(void *arg) {
  worker *w = arg;
  w->run(w);
  return NULL;
}

void workers_start(worker *workers, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (pthread_create(&workers[i].thread, NULL, start, &workers[i])) give_up("no thread");
  }
}

void workers_join(worker *workers, size_t count) {
  for (size_t i = 0; i < count; i++) pthread_join(workers[i].thread, NULL);
}

problem busy_problem(void) { return problem_gemm(160, 170, 180); }

void work_until_stopped(worker *w) {
  problem p = busy_problem();
  problem_note(&p);
  problem_open(&p, w->ctx);
  CHECK_OK(problem_call(&p, w->ctx));
  uint8_t *want = operand_snapshot(problem_output(&p));
  do {
    CHECK_OK(problem_call(&p, w->ctx));
    CHECK_BYTES(problem_output(&p)->memory.data, want, problem_output(&p)->memory.bytes);
  } while (!atomic_load(w->signal));
  free(want);
  problem_close(&p, w->ctx);
}
