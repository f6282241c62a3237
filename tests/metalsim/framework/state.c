/* SPDX-License-Identifier: MIT */

/* What the process has seen of Metal: reports, objects alive, counters, and the hung GPU. */
#include <errno.h>
#include <execinfo.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "settings.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

void sim_report(const char *where, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  flockfile(stderr);
  fprintf(stderr, "metalsim: %s: ", where);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  fflush(stderr);
  void *frames[32];
  backtrace_symbols_fd(frames, backtrace(frames, 32), STDERR_FILENO);
  abort();
}

/* Objects alive, by class. */
enum { KINDS = 16 };
static struct {
  const char *name;
  int64_t count;
} kinds[KINDS];

void sim_live_add(const char *kind, int more) {
  pthread_mutex_lock(&mutex);
  int i = 0;
  while (i < KINDS && kinds[i].name && kinds[i].name != kind) i++;
  SIM_REQUIRE(i < KINDS, "more than %d classes", KINDS);
  kinds[i].name = kind;
  kinds[i].count += more;
  pthread_mutex_unlock(&mutex);
}

int64_t sim_live(bool print) {
  int64_t total = 0;
  pthread_mutex_lock(&mutex);
  for (int i = 0; i < KINDS && kinds[i].name; i++) {
    total += kinds[i].count;
    if (print && kinds[i].count) fprintf(stderr, "metalsim: alive: %lld %s\n", (long long)kinds[i].count, kinds[i].name);
  }
  pthread_mutex_unlock(&mutex);
  return total;
}

static metalsim_counters counters;

void sim_count(size_t field, int64_t more) {
  pthread_mutex_lock(&mutex);
  *(int64_t *)((char *)&counters + field) += more;
  pthread_mutex_unlock(&mutex);
}

/* All fields of face_counters are of one type. */
void sim_count_dispatch(const face_counters *more) {
  uint64_t *sums = (uint64_t *)&counters.kernels;
  pthread_mutex_lock(&mutex);
  counters.dispatches++;
  for (size_t i = 0; i < sizeof *more / sizeof *sums; i++) sums[i] += ((const uint64_t *)more)[i];
  pthread_mutex_unlock(&mutex);
}

metalsim_counters metalsim_counters_get(void) {
  pthread_mutex_lock(&mutex);
  metalsim_counters copy = counters;
  pthread_mutex_unlock(&mutex);
  return copy;
}

void metalsim_counters_reset(void) {
  pthread_mutex_lock(&mutex);
  memset(&counters, 0, sizeof counters);
  pthread_mutex_unlock(&mutex);
}

/* Threads of queues: those with committed command buffers, and those of them that hang. */
static pthread_cond_t workers_changed = PTHREAD_COND_INITIALIZER;
static int busy, hanging;
static int64_t releases;

static void change_workers(int *count, int more) {
  pthread_mutex_lock(&mutex);
  *count += more;
  pthread_cond_broadcast(&workers_changed);
  pthread_mutex_unlock(&mutex);
}

void sim_worker_busy(void) { change_workers(&busy, 1); }
void sim_worker_idle(void) { change_workers(&busy, -1); }

/* Whoever hangs is busy again from here on, not from when its thread wakes. */
void metalsim_release_hang(void) {
  pthread_mutex_lock(&mutex);
  releases++;
  hanging = 0;
  pthread_cond_broadcast(&workers_changed);
  pthread_mutex_unlock(&mutex);
}

void sim_workers_settle(void) {
  pthread_mutex_lock(&mutex);
  while (busy > hanging) pthread_cond_wait(&workers_changed, &mutex);
  pthread_mutex_unlock(&mutex);
}

static struct timespec deadline(int64_t milliseconds) {
  struct timespec time;
  clock_gettime(CLOCK_REALTIME, &time);
  int64_t nanoseconds = time.tv_nsec + milliseconds % 1000 * 1000000;
  time.tv_sec += (time_t)(milliseconds / 1000 + nanoseconds / 1000000000);
  time.tv_nsec = (long)(nanoseconds % 1000000000);
  return time;
}

void sim_hang(void) {
  int64_t limit = sim_number(SIM_HANG_MS);
  struct timespec until = deadline(limit);
  int waited = 0;
  pthread_mutex_lock(&mutex);
  int64_t before = releases;
  hanging++;
  pthread_cond_broadcast(&workers_changed);
  while (releases == before && waited != ETIMEDOUT)
    waited = limit ? pthread_cond_timedwait(&workers_changed, &mutex, &until) : pthread_cond_wait(&workers_changed, &mutex);
  if (releases == before) hanging--;
  pthread_mutex_unlock(&mutex);
}

void sim_sleep_ms(int64_t milliseconds) {
  struct timespec rest = {milliseconds / 1000, milliseconds % 1000 * 1000000};
  while (nanosleep(&rest, &rest) != 0 && errno == EINTR) {
  }
}
