/* SPDX-License-Identifier: MIT */
#include "cpu/pool.h"

#include <fenv.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "cpu/machine.h"

typedef struct tc_pool_job {
  tc_pool_task *task;
  void *arg;
  int64_t tasks;
  _Atomic int64_t next; /* first task that nobody has taken */
  int64_t participants; /* threads that may join */
  int64_t joined;       /* threads that did, guarded by the pool's lock; the caller is the first */
} tc_pool_job;

static void work(tc_pool_job *job, int64_t thread) {
  for (;;) {
    const int64_t task = atomic_fetch_add_explicit(&job->next, 1, memory_order_relaxed);
    if (task >= job->tasks) return;
    job->task(job->arg, task, thread);
  }
}

/* ---- Waiting: a short spin saves the time that waking up takes, where one job follows another ---- */

enum { SPIN_NS = 50000 };

static int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static inline void relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

/* Whether the value changed within the time of a spin. */
static bool spin_while(const _Atomic int64_t *value, int64_t unchanged) {
  const int64_t end = now_ns() + SPIN_NS;
  do {
    if (atomic_load(value) != unchanged) return true;
    relax();
  } while (now_ns() < end);
  return false;
}

/* The lock is held, though not all the time. */
static void await_post(tc_pool *pool) {
  const int64_t seen = atomic_load(&pool->posts);
  pthread_mutex_unlock(&pool->lock);
  spin_while(&pool->posts, seen);
  pthread_mutex_lock(&pool->lock);
  while (atomic_load(&pool->posts) == seen) pthread_cond_wait(&pool->posted, &pool->lock);
}

/* Until no worker is inside the job, which none can join any more. */
static void await_workers(tc_pool *pool) {
  int64_t active;
  while ((active = atomic_load(&pool->active)) != 0 && spin_while(&pool->active, active)) continue;
  pthread_mutex_lock(&pool->lock);
  while (atomic_load(&pool->active)) pthread_cond_wait(&pool->finished, &pool->lock);
  pthread_mutex_unlock(&pool->lock);
}

/* ---- Workers ---- */

/* The lock is held, though not all the time. */
static void join(tc_pool *pool) {
  tc_pool_job *job = pool->job;
  const int64_t thread = job->joined++;
  atomic_fetch_add(&pool->active, 1);
  pthread_mutex_unlock(&pool->lock);
  work(job, thread);
  pthread_mutex_lock(&pool->lock);
  if (atomic_fetch_sub(&pool->active, 1) == 1) pthread_cond_signal(&pool->finished);
}

static void *worker(void *arg) {
  tc_pool *pool = arg;
  fesetenv(FE_DFL_ENV);
  pthread_mutex_lock(&pool->lock);
  while (!pool->stopping) {
    if (pool->job && pool->job->joined < pool->job->participants) {
      join(pool);
    } else {
      await_post(pool);
    }
  }
  pthread_mutex_unlock(&pool->lock);
  return NULL;
}

static void clear(tc_pool *pool) {
  pthread_mutex_init(&pool->owner, NULL);
  pthread_mutex_init(&pool->lock, NULL);
  pthread_cond_init(&pool->posted, NULL);
  pthread_cond_init(&pool->finished, NULL);
  pool->workers = NULL;
  pool->started = 0;
  pool->avoided = -1;
  pool->job = NULL;
  atomic_init(&pool->posts, 0);
  atomic_init(&pool->active, 0);
  pool->stopping = false;
}

void tc_pool_init(tc_pool *pool, int64_t threads) {
  clear(pool);
  atomic_init(&pool->threads, threads);
}

/* The list of workers is lost, not freed: another thread of the parent may have been about to. */
void tc_pool_after_fork(tc_pool *pool) { clear(pool); }

/* The owner's lock is held. Fewer workers than wanted will do: where the system has no more threads, the job takes longer. */
static void start_workers(tc_pool *pool, int64_t wanted) {
  static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL}; /* go to the program's handler on any thread */
  if (pool->started >= wanted) return;
  pthread_t *workers = realloc(pool->workers, (size_t)wanted * sizeof *workers);
  if (!workers) return;
  pool->workers = workers;
  sigset_t blocked, before;
  sigfillset(&blocked);
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) sigdelset(&blocked, faults[i]);
  pthread_sigmask(SIG_SETMASK, &blocked, &before);
  while (pool->started < wanted && pthread_create(&workers[pool->started], NULL, worker, pool) == 0) pool->started++;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pool->avoided = -1;
}

/* The owner's lock is held. Linux tends to wake a worker on the caller's CPU, behind the caller, though another CPU is idle: in a
 * virtual machine an idle CPU looks like one that the host has taken away. It then runs when there is nothing left to do. Of many
 * workers one that is late matters little, and telling all of them takes long. */
static void keep_off_caller(tc_pool *pool) {
  enum { FEW = 8 };
  const int cpu = tc_machine_cpu();
  if (cpu == pool->avoided || pool->started > FEW) return;
  tc_machine_keep_off(cpu, pool->workers, pool->started);
  pool->avoided = cpu;
}

/* The lock is held. */
static void post(tc_pool *pool) {
  atomic_fetch_add(&pool->posts, 1);
  pthread_cond_broadcast(&pool->posted);
}

/* The owner's lock is held. */
static void stop_workers(tc_pool *pool) {
  pthread_mutex_lock(&pool->lock);
  pool->stopping = true;
  post(pool);
  pthread_mutex_unlock(&pool->lock);
  while (pool->started) pthread_join(pool->workers[--pool->started], NULL);
  free(pool->workers);
  pool->workers = NULL;
  pool->stopping = false;
}

void tc_pool_destroy(tc_pool *pool) {
  stop_workers(pool);
  pthread_mutex_destroy(&pool->owner);
  pthread_mutex_destroy(&pool->lock);
  pthread_cond_destroy(&pool->posted);
  pthread_cond_destroy(&pool->finished);
}

void tc_pool_set_threads(tc_pool *pool, int64_t threads) {
  pthread_mutex_lock(&pool->owner);
  if (threads - 1 < pool->started) stop_workers(pool);
  atomic_store(&pool->threads, threads);
  pthread_mutex_unlock(&pool->owner);
}

void tc_pool_run(tc_pool *pool, int64_t participants, int64_t tasks, tc_pool_task *task, void *arg) {
  tc_pool_job job = {.task = task, .arg = arg, .tasks = tasks, .participants = participants, .joined = 1};
  if (participants == 1 || pthread_mutex_trylock(&pool->owner) != 0) {
    work(&job, 0);
    return;
  }
  start_workers(pool, participants - 1);
  keep_off_caller(pool);
  pthread_mutex_lock(&pool->lock);
  pool->job = &job;
  post(pool);
  pthread_mutex_unlock(&pool->lock);
  work(&job, 0);
  pthread_mutex_lock(&pool->lock);
  pool->job = NULL;
  pthread_mutex_unlock(&pool->lock);
  await_workers(pool);
  pthread_mutex_unlock(&pool->owner);
}
