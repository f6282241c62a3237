/* SPDX-License-Identifier: MIT */

/* The compute encoder: what Metal's validation checks, when it checks it. */
#import "sim.h"

#include <stdlib.h>

typedef unsigned long ulong_t;

@implementation SimEncoder

- (id)initWithCommandBuffer:(SimCommandBuffer *)owner {
  command_buffer = [owner retain];
  return self;
}

- (void)close {
  SIM_REQUIRE(ended, "an encoder is released without endEncoding");
  [command_buffer release];
}

#define REQUIRE_OPEN() \
  SIM_ENTER();         \
  SIM_REQUIRE(!ended, "the encoder has ended")
#define REQUIRE_INDEX(index) SIM_REQUIRE((index) < FACE_BUFFERS, "index %lu is above %d", (ulong_t)(index), FACE_BUFFERS - 1)

- (void)endEncoding {
  REQUIRE_OPEN();
  ended = true;
  command_buffer->encoder = nil;
}

- (void)setComputePipelineState:(id<MTLComputePipelineState>)state {
  REQUIRE_OPEN();
  SIM_REQUIRE(state, "the pipeline is nil");
  pipeline = (SimPipeline *)state;
  [command_buffer hold:pipeline];
}

- (void)setBytes:(const void *)bytes length:(NSUInteger)length atIndex:(NSUInteger)index {
  REQUIRE_OPEN();
  REQUIRE_INDEX(index);
  SIM_REQUIRE(bytes && length > 0, "bytes are NULL or none");
  SIM_REQUIRE(length < SIM_SET_BYTES, "%lu bytes aren't below %d: use a buffer", (ulong_t)length, SIM_SET_BYTES);
  slots[index] = (sim_slot){nil, [command_buffer holdBytes:bytes length:length], 0, length};
}

- (void)setBuffer:(id<MTLBuffer>)buffer offset:(NSUInteger)offset atIndex:(NSUInteger)index {
  REQUIRE_OPEN();
  REQUIRE_INDEX(index);
  SimBuffer *bound = (SimBuffer *)buffer;
  slots[index] = (sim_slot){bound, bound ? bound->contents : NULL, 0, bound ? bound->length : 0};
  if (!bound) return;
  [command_buffer hold:bound];
  [self setBufferOffset:offset atIndex:index];
}

- (void)setBufferOffset:(NSUInteger)offset atIndex:(NSUInteger)index {
  REQUIRE_OPEN();
  REQUIRE_INDEX(index);
  SIM_REQUIRE(slots[index].buffer, "no buffer is bound to index %lu", (ulong_t)index);
  SIM_REQUIRE(offset < slots[index].length, "offset %lu isn't inside the buffer of %lu bytes", (ulong_t)offset,
              (ulong_t)slots[index].length);
  slots[index].offset = offset;
}

- (void)setThreadgroupMemoryLength:(NSUInteger)length atIndex:(NSUInteger)index {
  REQUIRE_OPEN();
  REQUIRE_INDEX(index);
  SIM_REQUIRE(length % 16 == 0, "%lu bytes of threadgroup memory aren't a multiple of 16", (ulong_t)length);
  SIM_REQUIRE(length <= FACE_THREADGROUP_BYTES, "%lu bytes of threadgroup memory exceed %d", (ulong_t)length,
              FACE_THREADGROUP_BYTES);
  threadgroup_lengths[index] = length;
}

- (void)memoryBarrierWithScope:(MTLBarrierScope)scope {
  REQUIRE_OPEN();
  SIM_REQUIRE(scope == MTLBarrierScopeBuffers, "scope %lu isn't simulated", (ulong_t)scope);
}

static void check_buffer(const char *kernel, const face_argument *argument, const sim_slot *slot) {
  const char *where = argument->name;
  ulong_t index = argument->index, offset = slot->offset, room = slot->length - slot->offset;
  size_t alignment = argument->space == FACE_CONSTANT && slot->buffer ? SIM_CONSTANT_ALIGNMENT : argument->alignment;
  if (!slot->pointer) sim_report(where, "%s: nothing is bound to buffer index %lu", kernel, index);
  if (offset % alignment != 0)
    sim_report(where, "%s: offset %lu of index %lu isn't a multiple of %zu", kernel, offset, index, alignment);
  if (room < argument->size)
    sim_report(where, "%s: index %lu has %lu bytes, its type has %zu", kernel, index, room, argument->size);
  if (argument->writable && !slot->buffer) sim_report(where, "%s: index %lu is written to and bound to setBytes", kernel, index);
}

- (NSUInteger)checkArguments {
  const face_function *function = pipeline->function->function;
  const char *kernel = face_function_name(function);
  NSUInteger threadgroup_bytes = pipeline->static_bytes;
  for (size_t i = 0; i < face_function_argument_count(function); i++) {
    const face_argument *argument = face_function_argument(function, i);
    if (argument->space != FACE_THREADGROUP)
      check_buffer(kernel, argument, &slots[argument->index]);
    else if (threadgroup_lengths[argument->index] == 0)
      sim_report(argument->name, "%s: threadgroup memory %lu has no length", kernel, (ulong_t)argument->index);
    else
      threadgroup_bytes += threadgroup_lengths[argument->index];
  }
  return threadgroup_bytes;
}

static void check_size(const char *where, const char *what, MTLSize size, NSUInteger limit) {
  NSUInteger numbers[] = {size.width, size.height, size.depth};
  for (int i = 0; i < 3; i++)
    if (numbers[i] == 0 || numbers[i] > limit)
      sim_report(where, "%s[%d] = %lu isn't from 1 to %lu", what, i, (ulong_t)numbers[i], (ulong_t)limit);
}

static void copy_size(uint32_t to[3], MTLSize size) {
  to[0] = (uint32_t)size.width;
  to[1] = (uint32_t)size.height;
  to[2] = (uint32_t)size.depth;
}

- (void)fill:(face_dispatch_desc *)dispatch {
  dispatch->function = pipeline->function->function;
  for (int i = 0; i < FACE_BUFFERS; i++) {
    if (slots[i].pointer)
      dispatch->buffers[i] = (face_binding){slots[i].pointer + slots[i].offset, slots[i].length - slots[i].offset};
    dispatch->threadgroup_lengths[i] = threadgroup_lengths[i];
  }
}

- (void)dispatchThreadgroups:(MTLSize)threadgroups threadsPerThreadgroup:(MTLSize)threads {
  REQUIRE_OPEN();
  SIM_REQUIRE(pipeline, "no pipeline is set");
  check_size(__func__, "threadgroupsPerGrid", threadgroups, UINT32_MAX);
  check_size(__func__, "threadsPerThreadgroup", threads, FACE_MAX_THREADS);
  NSUInteger all = threads.width * threads.height * threads.depth, bytes = [self checkArguments];
  SIM_REQUIRE(all <= pipeline->max_threads, "%s: %lu threads of a threadgroup exceed maxTotalThreadsPerThreadgroup, %lu",
              face_function_name(pipeline->function->function), (ulong_t)all, (ulong_t)pipeline->max_threads);
  SIM_REQUIRE(bytes <= FACE_THREADGROUP_BYTES, "%s: %lu bytes of threadgroup memory exceed %d",
              face_function_name(pipeline->function->function), (ulong_t)bytes, FACE_THREADGROUP_BYTES);
  face_dispatch_desc *dispatch = &[command_buffer addStep]->dispatch;
  [self fill:dispatch];
  copy_size(dispatch->threadgroups, threadgroups);
  copy_size(dispatch->threads, threads);
}

@end
