/* SPDX-License-Identifier: MIT */

/* What the framework's files share. */
#pragma once

#import <Metal/Metal.h>
#include <metalsim.h>
#include <pthread.h>

#include "memory.h"
#include "sanitizers.h"
#include "settings.h"

enum { SIM_SET_BYTES = 4096, SIM_CONSTANT_ALIGNMENT = 32 };

/* A method that may autorelease on Apple: the calling thread needs a pool. */
#define SIM_ENTER() sim_enter(__func__, true)
/* A method that doesn't. */
#define SIM_GETTER() sim_enter(__func__, false)
void sim_enter(const char *where, bool needs_pool);

/* `since`: the macOS that brought the method. */
#define SIM_SINCE(since) \
  SIM_REQUIRE(sim_number(SIM_MACOS) >= (since), "it is there from macOS %d on: ask respondsToSelector:", since)

/* A failure that a right program meets: *error in the domain, unless error is NULL. */
void sim_fail(NSError **error, NSString *domain, NSInteger code, const char *format, ...) __attribute__((format(printf, 4, 5)));
NSError *sim_error(NSString *domain, NSInteger code, const char *text);

/* The base class. A subclass gives back what it holds in `close`, which the last release calls; memory follows much later, so that
   any message to a released object is recognized. */
@interface MetalsimObject (Sim)
- (void)close;
- (bool)retainIfAlive;
/* Work that has been encoded with the object and not completed. Its last release while there is some is a fault. */
- (void)use;
- (void)unuse;
@end

@interface SimDevice : MetalsimObject <MTLDevice> {
@public
  struct sim_model *model;
  int64_t allocated;
}
@end

@interface SimBuffer : MetalsimObject <MTLBuffer> {
@public
  SimDevice *device;
  char *contents;
  NSUInteger length;
  MTLStorageMode mode;
  struct sim_memory *memory; /* NULL: the caller's */
}
- (id)initWithDevice:(SimDevice *)owner length:(NSUInteger)bytes options:(MTLResourceOptions)options memory:(void *)pointer;
@end

@interface SimData : MetalsimObject <OS_dispatch_data> {
@public
  char *bytes;
  size_t length;
}
@end

@interface SimLibrary : MetalsimObject <MTLLibrary> {
@public
  SimDevice *device;
  face_library *library;
}
- (id)initWithDevice:(SimDevice *)owner library:(face_library *)compiled;
@end

@interface SimFunction : MetalsimObject <MTLFunction> {
@public
  SimLibrary *library;
  face_function *function;
}
- (id)initWithLibrary:(SimLibrary *)owner function:(face_function *)specialized;
@end

@interface SimPipeline : MetalsimObject <MTLComputePipelineState> {
@public
  SimFunction *function;
  NSUInteger max_threads, static_bytes;
}
- (id)initWithFunction:(SimFunction *)kernel maxThreads:(NSUInteger)threads staticBytes:(NSUInteger)bytes;
@end

@interface SimEvent : MetalsimObject <MTLSharedEvent> {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  uint64_t value;
}
@end

struct sim_worker;

@interface SimQueue : MetalsimObject <MTLCommandQueue> {
@public
  SimDevice *device;
  struct sim_worker *worker;
}
- (id)initWithDevice:(SimDevice *)owner capacity:(NSUInteger)count;
@end

/* One step of a command buffer: a dispatch, or a signal if it has an event. */
typedef struct sim_step {
  struct sim_step *next;
  face_dispatch_desc dispatch;
  SimEvent *event;
  uint64_t value;
} sim_step;

@class SimEncoder;

@interface SimCommandBuffer : MetalsimObject <MTLCommandBuffer> {
@public
  SimQueue *queue;
  SimEncoder *encoder; /* the open one; it keeps the command buffer, not the reverse */
  bool retains, committed;
  sim_step *steps, **last_step;
  struct sim_held *held;
  MTLCommandBufferStatus status; /* from here on: under the worker's mutex */
  NSError *error;
  double start, end;
  SimCommandBuffer *next;
}
- (id)initWithQueue:(SimQueue *)owner retains:(bool)retained;
/* Adds a step with these contents. */
- (sim_step *)addStep;
/* Keeps the object until the work is completed. */
- (void)hold:(MetalsimObject *)object;
/* A copy of the bytes that lives as long. */
- (void *)holdBytes:(const void *)bytes length:(size_t)length;
/* Runs the steps. */
- (void)run;
- (void)letGo;
@end

typedef struct {
  SimBuffer *buffer; /* nil: setBytes, or nothing */
  char *pointer;     /* of offset 0; NULL: nothing is bound */
  NSUInteger offset, length;
} sim_slot;

@interface SimEncoder : MetalsimObject <MTLComputeCommandEncoder> {
@public
  SimCommandBuffer *command_buffer;
  SimPipeline *pipeline;
  sim_slot slots[FACE_BUFFERS];
  NSUInteger threadgroup_lengths[FACE_BUFFERS];
  bool ended;
}
- (id)initWithCommandBuffer:(SimCommandBuffer *)owner;
@end

/* library.m */
id<MTLLibrary> sim_library_compile(SimDevice *device, NSString *source, MTLCompileOptions *options, NSError **error);
id<MTLLibrary> sim_library_load(SimDevice *device, SimData *data, NSError **error);

/* queue.m */
struct sim_worker *sim_worker_new(NSUInteger capacity);
void sim_worker_close(struct sim_worker *worker);
void sim_worker_lock(struct sim_worker *worker);
void sim_worker_unlock(struct sim_worker *worker);
void sim_worker_post(struct sim_worker *worker, SimCommandBuffer *command_buffer);
void sim_worker_wait(struct sim_worker *worker, SimCommandBuffer *command_buffer);
/* A command buffer comes into being or goes: the queue has room for `capacity` of those that aren't completed. */
void sim_worker_take_place(struct sim_worker *worker);
void sim_worker_give_place(struct sim_worker *worker);
