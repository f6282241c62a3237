/* SPDX-License-Identifier: MIT */
#ifndef TC_CPU_POOL_H
#define TC_CPU_POOL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* A small thread pool. The caller takes part in its own job and finishes it alone if nobody else comes; workers are started when
 * first needed, run in the default floating-point environment with signals blocked (other than those of faults), and sleep between
 * jobs. */
typedef struct tc_pool {
  pthread_mutex_t owner;   /* held by the call that has the workers, and while their number changes */
  _Atomic int64_t threads; /* wanted, the caller among them */
  pthread_t *workers;
  int64_t started;
  int avoided; /* the CPU that all workers keep off, guarded by the owner's lock; -1: none */

  pthread_mutex_t lock; /* guards changes of all below */
  pthread_cond_t posted, finished;
  struct tc_pool_job *job; /* NULL when there is nothing to join */
  _Atomic int64_t posts;   /* grows with each job, and when workers are to stop */
  _Atomic int64_t active;  /* workers inside the job */
  bool stopping;
} tc_pool;

/* One task of a job: 0 <= task < tasks, and 0 <= thread < the participants of tc_pool_run, distinct for threads that run at once.
 */
typedef void tc_pool_task(void *arg, int64_t task, int64_t thread);

void tc_pool_init(tc_pool *pool, int64_t threads);
void tc_pool_destroy(tc_pool *pool);
void tc_pool_set_threads(tc_pool *pool, int64_t threads); /* waits for the call that has the workers */
void tc_pool_after_fork(tc_pool *pool);                   /* in the child: there are no workers any more */

/* Runs all tasks, in no particular order, on at most that many threads; returns when all are done. If another call has the workers,
 * the caller runs all tasks itself. */
void tc_pool_run(tc_pool *pool, int64_t participants, int64_t tasks, tc_pool_task *task, void *arg);

#endif
