/* SPDX-License-Identifier: MIT
 *
 * The thread pool alone: each task runs once, whoever comes to help; workers keep off the caller's CPU.
 */
#ifdef __linux__
#define _GNU_SOURCE
#include <sched.h>
#endif

#include "common/check.h"
#include "cpu/pool.h"

#include <string.h>
#include <unistd.h>

enum { TASKS_MAX = 1000, PARTICIPANTS_MAX = 8 };

typedef struct job {
  _Atomic int runs[TASKS_MAX];
  _Atomic int inside[PARTICIPANTS_MAX]; /* tasks that a thread is in at this moment */
} job;

static void count_task(void *arg, int64_t task, int64_t thread) {
  job *j = arg;
  CHECK_INT(atomic_fetch_add(&j->inside[thread], 1), 0);
  atomic_fetch_add(&j->runs[task], 1);
  atomic_fetch_sub(&j->inside[thread], 1);
}

static void run_and_count(tc_pool *pool, int64_t participants, int64_t tasks) {
  static job j;
  memset(&j, 0, sizeof j);
  note("participants %lld, tasks %lld", (long long)participants, (long long)tasks);
  tc_pool_run(pool, participants, tasks, count_task, &j);
  for (int64_t i = 0; i < TASKS_MAX; i++) CHECK_INT(j.runs[i], i < tasks);
}

/* One job after another, with pauses in which workers go on spinning, and in which they fall asleep. */
static void every_task_once(void) {
  static const useconds_t pauses[] = {0, 0, 0, 10, 100, 2000};
  tc_pool pool;
  tc_pool_init(&pool, PARTICIPANTS_MAX);
  rng r = {test_seed()};
  for (int64_t i = scaled(400); i > 0; i--) {
    usleep(pauses[rng_between(&r, 0, COUNT(pauses) - 1)]);
    run_and_count(&pool, rng_between(&r, 1, PARTICIPANTS_MAX), rng_between(&r, 0, rng_one_in(&r, 5) ? TASKS_MAX : 5));
    if (rng_one_in(&r, 40)) tc_pool_set_threads(&pool, rng_between(&r, 1, PARTICIPANTS_MAX));
  }
  tc_pool_destroy(&pool);
}

/* A worker holds its task until the caller has done all others. */
static void held_by_worker(void *arg, int64_t task, int64_t thread) {
  _Atomic int64_t *by_caller = arg;
  (void)task;
  if (thread == 0) {
    atomic_fetch_add(by_caller, 1);
  } else {
    while (atomic_load(by_caller) < TASKS_MAX - 1) usleep(100);
  }
}

static void caller_goes_on(void) {
  tc_pool pool;
  tc_pool_init(&pool, 2);
  for (int run = 0; run < 3; run++) {
    _Atomic int64_t by_caller = 0;
    tc_pool_run(&pool, 2, TASKS_MAX, held_by_worker, &by_caller);
    CHECK(by_caller >= TASKS_MAX - 1);
  }
  tc_pool_destroy(&pool);
}

#ifdef __linux__
static int64_t allowed_cpus(void) {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) give_up("no affinity mask");
  return CPU_COUNT(&set);
}

static void look_at_mask(void *arg, int64_t task, int64_t thread) {
  (void)task;
  if (thread) atomic_store((_Atomic int64_t *)arg, allowed_cpus());
  usleep(1000); /* time for the others to come */
}

/* Workers may run on all CPUs but one. */
static void off_the_callers_cpu(void) {
  const int64_t cpus = allowed_cpus(), expected_cpus = cpus > 1 ? cpus - 1 : 1;
  tc_pool pool;
  tc_pool_init(&pool, 2);
  for (int run = 0; run < 20; run++) {
    _Atomic int64_t seen = expected_cpus;
    tc_pool_run(&pool, 2, 4, look_at_mask, &seen);
    CHECK_INT(seen, expected_cpus);
  }
  tc_pool_destroy(&pool);
}
#endif

int main(int argc, char **argv) {
  static const test tests[] = {
      {"every_task_once", every_task_once},
      {"caller_goes_on", caller_goes_on},
#ifdef __linux__
      {"off_the_callers_cpu", off_the_callers_cpu},
#endif
  };
  return run_tests("pool", tests, COUNT(tests), argc, argv);
}
