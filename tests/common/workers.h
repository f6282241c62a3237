/* SPDX-License-Identifier: MIT
 *
 * Threads of a test, and work for them.
 */
#ifndef TC_TESTS_WORKERS_H
#define TC_TESTS_WORKERS_H

#include "problem.h"

#include <pthread.h>
#include <stdatomic.h>

typedef struct worker {
  pthread_t thread;
  void (*run)(struct worker *);
  tc_context *ctx; /* shared, or NULL: the worker opens its own */
  int64_t rounds;
  uint64_t seed;
  atomic_int *signal; /* between the worker and the test */
} worker;

void workers_start(worker *workers, size_t count);
void workers_join(worker *workers, size_t count);

/* A problem that keeps several threads busy for a moment. */
problem busy_problem(void);

/* A worker's run: the busy problem over and over, with the same bits each time, until *signal is not 0. */
void work_until_stopped(worker *w);

#endif
