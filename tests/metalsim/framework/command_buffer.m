/* SPDX-License-Identifier: MIT */

/* Command buffers: steps in order, what they keep alive, and their life. */
#import "sim.h"

#include <stdlib.h>
#include <string.h>

/* An object or a block of bytes that lives until the work is completed. */
struct sim_held {
  struct sim_held *next;
  MetalsimObject *object; /* nil: bytes */
  char bytes[];
};

#ifdef SIM_TSAN
void __tsan_read_range(void *start, unsigned long size);
void __tsan_write_range(void *start, unsigned long size);

/* Kernels aren't instrumented. So that a host which doesn't wait is caught, all that a dispatch is bound to counts as read or
   written. */
static void announce(const face_dispatch_desc *dispatch) {
  for (size_t i = 0; i < face_function_argument_count(dispatch->function); i++) {
    const face_argument *argument = face_function_argument(dispatch->function, i);
    const face_binding *bound = &dispatch->buffers[argument->index];
    if (argument->space == FACE_THREADGROUP) continue;
    if (argument->writable)
      __tsan_write_range(bound->pointer, bound->length);
    else
      __tsan_read_range(bound->pointer, bound->length);
  }
}
#else
static void announce(const face_dispatch_desc *dispatch) { (void)dispatch; }
#endif

@implementation SimCommandBuffer

- (id)initWithQueue:(SimQueue *)owner retains:(bool)retained {
  queue = [owner retain];
  retains = retained;
  last_step = &steps;
  status = MTLCommandBufferStatusNotEnqueued;
  SIM_COUNT(command_buffers);
  return self;
}

- (void)letGo {
  for (sim_step *step; (step = steps); free(step)) steps = step->next;
  for (struct sim_held *one; (one = held); free(one)) {
    held = one->next;
    [one->object unuse];
    if (retains) [one->object release];
  }
}

- (void)checkDropped {
  char dropped[SIM_TEXT];
  sim_text(SIM_DROPPED, dropped);
  if (committed || !steps) return;
  SIM_COUNT(dropped);
  SIM_REQUIRE(strcmp(dropped, "allow") == 0, "a command buffer with work in it is released and was never committed");
}

- (void)close {
  [self checkDropped];
  [self letGo];
  if (!committed) sim_worker_give_place(queue->worker);
  [error release];
  [queue release];
}

- (sim_step *)addStep {
  sim_step *step = calloc(1, sizeof *step);
  *last_step = step;
  last_step = &step->next;
  return step;
}

- (struct sim_held *)holdOne:(size_t)length {
  struct sim_held *one = malloc(sizeof *one + length);
  one->next = held;
  one->object = nil;
  return held = one;
}

- (void)hold:(MetalsimObject *)object {
  [object use];
  [self holdOne:0]->object = retains ? [object retain] : object;
}

- (void *)holdBytes:(const void *)bytes length:(size_t)length {
  return memcpy([self holdOne:length]->bytes, bytes, length);
}

static void run_dispatch(const face_dispatch_desc *dispatch) {
  char *text = NULL;
  face_counters counters;
  announce(dispatch);
  if (!face_dispatch(dispatch, &counters, &text)) sim_report(face_function_name(dispatch->function), "%s", text);
  sim_count_dispatch(&counters);
}

- (void)run {
  for (const sim_step *step = steps; step; step = step->next) {
    if (step->event)
      [step->event setSignaledValue:step->value];
    else
      run_dispatch(&step->dispatch);
  }
}

/* No commands once it is committed, nor while an encoder is open. */
#define REQUIRE_ENCODABLE()                                           \
  SIM_REQUIRE(!committed, "the command buffer is committed already"); \
  SIM_REQUIRE(!encoder, "an encoder of the command buffer is open: endEncoding is missing")

- (id<MTLComputeCommandEncoder>)computeCommandEncoder {
  SIM_ENTER();
  REQUIRE_ENCODABLE();
  if (sim_fault(SIM_FAULT_ENCODER, NULL)) return nil;
  encoder = [[SimEncoder alloc] initWithCommandBuffer:self];
  return [encoder autorelease];
}

- (void)encodeSignalEvent:(id<MTLEvent>)event value:(uint64_t)value {
  SIM_ENTER();
  REQUIRE_ENCODABLE();
  SIM_REQUIRE(event, "the event is nil");
  [self hold:(SimEvent *)event];
  sim_step *step = [self addStep];
  step->event = (SimEvent *)event;
  step->value = value;
}

- (void)commit {
  SIM_ENTER();
  REQUIRE_ENCODABLE();
  committed = true;
  sim_worker_post(queue->worker, self);
}

- (void)waitUntilCompleted {
  SIM_ENTER();
  SIM_REQUIRE(committed, "waits for ever: the command buffer isn't committed");
  sim_worker_wait(queue->worker, self);
}

- (MTLCommandBufferStatus)status {
  SIM_GETTER();
  sim_worker_lock(queue->worker);
  MTLCommandBufferStatus now = status;
  sim_worker_unlock(queue->worker);
  return now;
}

/* nil, 0 and 0 before completion. */
- (NSError *)error {
  SIM_ENTER();
  return [self status] == MTLCommandBufferStatusError ? [[error retain] autorelease] : nil;
}

- (CFTimeInterval)GPUStartTime {
  return [self status] >= MTLCommandBufferStatusCompleted ? start : 0;
}

- (CFTimeInterval)GPUEndTime {
  return [self status] >= MTLCommandBufferStatusCompleted ? end : 0;
}

@end
