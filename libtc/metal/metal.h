/* SPDX-License-Identifier: MIT */
#ifndef TC_METAL_METAL_H
#define TC_METAL_METAL_H

#import <Foundation/Foundation.h>
#import <Metal/Metal.h>

#include <pthread.h>

#include "backend.h"
#include "metal/plan.h"
#include "status.h"

/* Objective-C with manual retain and release: a method or function with new or Copy in its name gives an object that the caller
 * owns. Each slot of the backend's table has an autorelease pool for whatever else Metal hands out. */

/* ---- The GPU (gpu.m) ---- */

/* A kernel with its function constants, compiled. */
typedef struct tc_metal_pipeline {
  tc_plan_kernel kernel;
  id<MTLComputePipelineState> state; /* nil: the entry is free */
  uint64_t used;                     /* the look-up that used it last */
} tc_metal_pipeline;

enum { TC_METAL_PIPELINES = 256 };

/* What all contexts of the process share. */
typedef struct tc_gpu {
  id<MTLDevice> device;
  id<MTLLibrary> library;
  const char *library_origin;
  size_t buffer_limit; /* bytes of one buffer */

  pthread_mutex_t lock; /* guards all below */
  tc_metal_pipeline pipelines[TC_METAL_PIPELINES];
  uint64_t lookups;
  bool probed;
  tc_plan_device plan; /* constant once probed, like the next */
  char findings[96];   /* of the probe, for people */
} tc_gpu;

/* Whether this process was forked from one that used Metal: it must not call Metal then, not even to release an object. */
bool tc_metal_forked(void);

bool tc_gpu_exists(void);

/* The process's GPU, made for the first one who asks, and gone with the last one who gives it back. Errors: NO_DEVICE, DEVICE,
 * MEMORY. */
tc_status_t tc_gpu_take(tc_gpu **out);
void tc_gpu_give(tc_gpu *gpu);

/* The pipeline of a kernel, which the caller owns; nil and the reason if Metal refuses. */
id<MTLComputePipelineState> tc_gpu_pipeline(tc_gpu *gpu, const tc_plan_kernel *kernel, char *reason, size_t size);

/* The text of an error; of nil, too. */
const char *tc_metal_error_text(NSError *error);

/* ---- A context (backend.m) ---- */

/* A command buffer that was committed, and how the host knows that it has ended. */
typedef struct tc_metal_flight {
  id<MTLCommandBuffer> buffer;
  uint64_t value; /* of the context's event */
  double seconds; /* that it takes, by the plan's model */
} tc_metal_flight;

enum { TC_METAL_FLIGHTS = 8 };

typedef struct tc_metal {
  tc_gpu *gpu;
  id<MTLCommandQueue> queue;
  id<MTLSharedEvent> event;
  tc_conv_path_t conv_path;
  tc_device_info info; /* all but threads */
  int64_t threads;     /* __atomic: gcc has no _Atomic in Objective-C */

  /* Guards what follows. Held from a call's first step to its last one, since the steps share the workspace. */
  pthread_mutex_t encoding;
  id<MTLCommandBuffer> buffer; /* not committed yet; nil where nothing is encoded */
  id<MTLComputeCommandEncoder> encoder;
  double seconds; /* of it */
  uint64_t value; /* of the last command buffer that was committed */
  id<MTLBuffer> workspace;
  bool in_batch;

  /* Guards what follows. May be taken while encoding is held, not the other way round. */
  pthread_mutex_t flying;
  tc_metal_flight flights[TC_METAL_FLIGHTS]; /* the oldest first */
  int flight_count;
  tc_status_t failure;   /* TC_OK until the device fails; then the same for ever */
  uint64_t failed_value; /* command buffers before this one are well */
  char failure_text[256];
} tc_metal;

/* ---- From commit to completion (flight.m) ---- */

/* TC_OK unless this process is a forked child. Errors: DEVICE. */
tc_status_t tc_metal_fork_check(void);

/* TC_OK if the context can be used. Errors: DEVICE, TIMEOUT. */
tc_status_t tc_metal_check(tc_metal *m);

/* The context can't be used from now on: TC_ERROR_DEVICE. What was committed before is not affected. */
tc_status_t tc_metal_fail(tc_metal *m, const char *text);

/* Waits until there is room for one more flight. Errors: DEVICE, TIMEOUT. */
tc_status_t tc_metal_make_room(tc_metal *m);

/* Takes over the command buffer, which the caller owned. */
void tc_metal_take_off(tc_metal *m, tc_metal_flight flight);

/* Waits, for a bounded time, until all flights up to that value have ended. Errors: DEVICE, TIMEOUT. */
tc_status_t tc_metal_wait(tc_metal *m, uint64_t value);

/* How long a wait goes on beyond what the model says. Tests shorten it. */
extern int tc_metal_patience_ms;

/* ---- Encoding (run.m) ---- */

/* Runs a plan on operands by role; inside a batch it is only encoded. Errors: MEMORY (then nothing has been done), DEVICE, TIMEOUT. */
tc_status_t tc_metal_run(tc_metal *m, const tc_plan *plan, const tc_buffer *const operands[TC_ROLES]);

/* Ends the batch, if there is one, and waits for all that was encoded. Errors: DEVICE, TIMEOUT. */
tc_status_t tc_metal_finish(tc_metal *m);

/* Memory shared with the GPU, of at least that many bytes and whole pages; nil if there is none. The caller owns it. */
id<MTLBuffer> tc_metal_new_buffer(const tc_gpu *gpu, uint64_t bytes);

/* The page of Apple silicon: what Metal shares with the CPU is made of these. */
enum { TC_METAL_PAGE = 16384 };

/* ---- The probe (probe.m) ---- */

/* Runs the probe's kernel, if no context of the process has done it, and takes over what it found. Errors: DEVICE, MEMORY, TIMEOUT. */
tc_status_t tc_metal_probe(tc_metal *m);

#endif
