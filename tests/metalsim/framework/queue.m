/* SPDX-License-Identifier: MIT */

/* Queues. Each has a thread, started by its first commit, which runs committed command buffers in order. */
#import "sim.h"

#include <stdlib.h>
#include <time.h>

struct sim_worker {
  pthread_mutex_t mutex;
  pthread_cond_t changed;                /* anything below, or a status */
  SimCommandBuffer *first, **last;       /* committed ones, each with a reference */
  NSUInteger capacity, taken, committed; /* places; command buffers that exist and aren't completed; those of them committed */
  bool started, closed, busy;
};

struct sim_worker *sim_worker_new(NSUInteger capacity) {
  struct sim_worker *worker = calloc(1, sizeof *worker);
  pthread_mutex_init(&worker->mutex, NULL);
  pthread_cond_init(&worker->changed, NULL);
  worker->last = &worker->first;
  worker->capacity = capacity;
  return worker;
}

static void worker_free(struct sim_worker *worker) {
  pthread_cond_destroy(&worker->changed);
  pthread_mutex_destroy(&worker->mutex);
  free(worker);
}

void sim_worker_lock(struct sim_worker *worker) { pthread_mutex_lock(&worker->mutex); }
void sim_worker_unlock(struct sim_worker *worker) { pthread_mutex_unlock(&worker->mutex); }

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static const struct {
  MTLCommandBufferError code;
  const char *text;
} execution_errors[] = {
    {MTLCommandBufferErrorInternal, "internal error"},
    {MTLCommandBufferErrorTimeout, "the GPU took too long"},
    {MTLCommandBufferErrorPageFault, "page fault"},
    {MTLCommandBufferErrorAccessRevoked, "access revoked, for too many errors before"},
    {MTLCommandBufferErrorNotPermitted, "not permitted, as in the background"},
    {MTLCommandBufferErrorOutOfMemory, "out of memory"},
    {MTLCommandBufferErrorInvalidResource, "invalid resource"},
    {MTLCommandBufferErrorMemoryless, "memoryless memory ran out"},
    {MTLCommandBufferErrorDeviceRemoved, "the device was removed"},
    {MTLCommandBufferErrorStackOverflow, "stack overflow"},
};

static NSError *execution_error(int64_t code) {
  for (size_t i = 0; i < sizeof execution_errors / sizeof execution_errors[0]; i++)
    if ((int64_t)execution_errors[i].code == code)
      return sim_error(MTLCommandBufferErrorDomain, (NSInteger)code, execution_errors[i].text);
  sim_report("fault execution", "there is no error %lld of command buffers", (long long)code);
}

/* nil, or the error that a fault makes of it. */
static NSError *execute(SimCommandBuffer *command_buffer) {
  int64_t code = MTLCommandBufferErrorInternal;
  if (sim_fault(SIM_FAULT_EXECUTION, &code)) return execution_error(code);
  [command_buffer run];
  return nil;
}

static void complete(struct sim_worker *worker, SimCommandBuffer *command_buffer, NSError *error, double start) {
  [command_buffer letGo];
  sim_worker_lock(worker);
  command_buffer->start = start;
  command_buffer->end = seconds();
  command_buffer->error = [error retain];
  command_buffer->status = error ? MTLCommandBufferStatusError : MTLCommandBufferStatusCompleted;
  worker->committed--;
  worker->taken--;
  pthread_cond_broadcast(&worker->changed);
  sim_worker_unlock(worker);
}

/* The last reference may be this one: then the queue goes too, and closes the worker. */
static void run_one(struct sim_worker *worker, SimCommandBuffer *command_buffer) {
  NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
  double start = seconds();
  sim_sleep_ms(sim_number(SIM_SLOW_MS));
  if (sim_fault(SIM_FAULT_HANG, NULL)) sim_hang();
  complete(worker, command_buffer, execute(command_buffer), start);
  [command_buffer release];
  [pool release];
}

/* Call it with the mutex held. */
static void worker_set_busy(struct sim_worker *worker, bool busy) {
  if (busy == worker->busy) return;
  worker->busy = busy;
  if (busy)
    sim_worker_busy();
  else
    sim_worker_idle();
}

/* The next command buffer, scheduled; nil when the worker is closed. */
static SimCommandBuffer *wait_for_work(struct sim_worker *worker) {
  sim_worker_lock(worker);
  if (!worker->first) worker_set_busy(worker, false);
  while (!worker->first && !worker->closed) pthread_cond_wait(&worker->changed, &worker->mutex);
  SimCommandBuffer *next = worker->first;
  if (next) {
    worker->first = next->next;
    if (!worker->first) worker->last = &worker->first;
    next->status = MTLCommandBufferStatusScheduled;
  }
  sim_worker_unlock(worker);
  return next;
}

static void *work(void *argument) {
  struct sim_worker *worker = argument;
  GSRegisterCurrentThread();
  for (SimCommandBuffer *next; (next = wait_for_work(worker));) run_one(worker, next);
  GSUnregisterCurrentThread();
  worker_free(worker);
  return NULL;
}

static void start_thread(struct sim_worker *worker) {
  pthread_t thread;
  if (worker->started) return;
  SIM_REQUIRE(pthread_create(&thread, NULL, work, worker) == 0, "no thread");
  pthread_detach(thread);
  worker->started = true;
}

void sim_worker_post(struct sim_worker *worker, SimCommandBuffer *command_buffer) {
  [command_buffer retain];
  sim_worker_lock(worker);
  start_thread(worker);
  command_buffer->status = MTLCommandBufferStatusCommitted;
  *worker->last = command_buffer;
  worker->last = &command_buffer->next;
  worker->committed++;
  worker_set_busy(worker, true);
  pthread_cond_broadcast(&worker->changed);
  sim_worker_unlock(worker);
}

void sim_worker_wait(struct sim_worker *worker, SimCommandBuffer *command_buffer) {
  sim_worker_lock(worker);
  while (command_buffer->status < MTLCommandBufferStatusCompleted) pthread_cond_wait(&worker->changed, &worker->mutex);
  sim_worker_unlock(worker);
}

void sim_worker_take_place(struct sim_worker *worker) {
  sim_worker_lock(worker);
  while (worker->taken >= worker->capacity) {
    SIM_REQUIRE(worker->committed > 0, "waits for ever: the queue's %lu command buffers exist and none of them is committed",
                (unsigned long)worker->capacity);
    pthread_cond_wait(&worker->changed, &worker->mutex);
  }
  worker->taken++;
  sim_worker_unlock(worker);
}

void sim_worker_give_place(struct sim_worker *worker) {
  sim_worker_lock(worker);
  worker->taken--;
  pthread_cond_broadcast(&worker->changed);
  sim_worker_unlock(worker);
}

/* Nobody has a command buffer of the queue any more. The thread frees the worker, where there is one. */
void sim_worker_close(struct sim_worker *worker) {
  sim_worker_lock(worker);
  bool started = worker->started;
  worker->closed = true;
  pthread_cond_broadcast(&worker->changed);
  sim_worker_unlock(worker);
  if (!started) worker_free(worker);
}

@implementation SimQueue

- (id)initWithDevice:(SimDevice *)owner capacity:(NSUInteger)count {
  device = [owner retain];
  worker = sim_worker_new(count);
  return self;
}

- (void)close {
  sim_worker_close(worker);
  [device release];
}

- (id<MTLCommandBuffer>)make:(bool)retains {
  if (sim_fault(SIM_FAULT_COMMAND_BUFFER, NULL)) return nil;
  sim_worker_take_place(worker);
  return [[[SimCommandBuffer alloc] initWithQueue:self retains:retains] autorelease];
}

- (id<MTLCommandBuffer>)commandBuffer {
  SIM_ENTER();
  return [self make:true];
}

- (id<MTLCommandBuffer>)commandBufferWithUnretainedReferences {
  SIM_ENTER();
  return [self make:false];
}

@end
