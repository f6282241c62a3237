/* SPDX-License-Identifier: MIT */

#import "sim.h"

#include <errno.h>
#include <time.h>

@implementation SimEvent

- (id)init {
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(&changed, &attributes);
  pthread_condattr_destroy(&attributes);
  pthread_mutex_init(&mutex, NULL);
  return self;
}

- (void)close {
  pthread_cond_destroy(&changed);
  pthread_mutex_destroy(&mutex);
}

- (uint64_t)signaledValue {
  SIM_GETTER();
  pthread_mutex_lock(&mutex);
  uint64_t now = value;
  pthread_mutex_unlock(&mutex);
  return now;
}

- (void)setSignaledValue:(uint64_t)signaled {
  SIM_GETTER();
  pthread_mutex_lock(&mutex);
  value = signaled;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&mutex);
}

/* Now and these milliseconds, which may be as many as fit. A simulated GPU is slow, so METALSIM_CLOCK makes them longer. */
static struct timespec deadline(uint64_t milliseconds) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  uint64_t nanoseconds = (uint64_t)time.tv_nsec + milliseconds % 1000 * 1000000;
  time.tv_sec += (time_t)(milliseconds / 1000 % INT32_MAX + nanoseconds / 1000000000);
  time.tv_nsec = (long)(nanoseconds % 1000000000);
  return time;
}

- (BOOL)waitUntilSignaledValue:(uint64_t)wanted timeoutMS:(uint64_t)milliseconds {
  SIM_ENTER();
  struct timespec until = deadline(milliseconds * (uint64_t)sim_number(SIM_CLOCK));
  int waited = 0;
  pthread_mutex_lock(&mutex);
  while (value < wanted && waited != ETIMEDOUT) waited = pthread_cond_timedwait(&changed, &mutex, &until);
  bool reached = value >= wanted;
  pthread_mutex_unlock(&mutex);
  return reached;
}

@end
