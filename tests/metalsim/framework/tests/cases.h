/* SPDX-License-Identifier: MIT */

/* Tests of the framework by itself. Each case runs in a process of its own: a right use ends without a report and with no object
   alive, a wrong one dies with the report that its row names. */
#pragma once

#import <Metal/Metal.h>
#include <metalsim.h>
#include <stdbool.h>

typedef struct {
  const char *name;
  void (*run)(void);
  const char *report; /* NULL: a right use. Else words of the report. */
} test_case;

typedef struct {
  const test_case *cases;
  size_t count;
} case_table;

extern const case_table uses, faults, rules, ownership;

/* The ith call under a rule that holds for many calls, as a case of its own; false if there are fewer. */
bool call_case(size_t i, test_case *out);

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define CHECK(condition) ((condition) ? (void)0 : check_failed(#condition, __FILE__, __LINE__))
void check_failed(const char *condition, const char *file, int line) __attribute__((noreturn));

/* The kernels of all cases. */
extern const char *const source;

/* What most cases start from; all of it owned by the case. */
typedef struct {
  id<MTLDevice> device;
  id<MTLCommandQueue> queue;
  id<MTLLibrary> library;
} session;

session gpu_open(void);
void gpu_close(session *gpu);

/* Autoreleased. */
id<MTLComputePipelineState> pipeline(const session *gpu, NSString *kernel);
id<MTLComputePipelineState> pipeline_scale(const session *gpu, uint32_t factor);
id<MTLBuffer> buffer(const session *gpu, NSUInteger bytes);

/* An encoder with the pipeline set. */
id<MTLComputeCommandEncoder> encode(id<MTLCommandBuffer> commands, id<MTLComputePipelineState> state);
/* Dispatches `groups` of `threads`, one-dimensional. */
void dispatch(id<MTLComputeCommandEncoder> encoder, NSUInteger groups, NSUInteger threads);

/* An encoder that is ready to dispatch one threadgroup, its buffer at index 0. */
typedef struct {
  session gpu;
  id<MTLCommandBuffer> commands;
  id<MTLComputeCommandEncoder> encoder;
  id<MTLBuffer> x;
} job;

job job_start(NSString *kernel);
