/* SPDX-License-Identifier: MIT */

/* Injected failures: each is what a right program can meet, and leaves nothing behind. */
#import "cases.h"

#include <pthread.h>
#include <stdlib.h>

static void devices(void) {
  metalsim_fault("default_device", 0, 0);
  CHECK(!MTLCreateSystemDefaultDevice());
  NSArray *all = MTLCopyAllDevices();
  CHECK([all count] == 1);
  [all release];
  metalsim_fault("default_device", -1, 0);
  metalsim_fault("all_devices", 0, 0);
  all = MTLCopyAllDevices();
  CHECK(all && [all count] == 0);
  [all release];
  id<MTLDevice> device = MTLCreateSystemDefaultDevice();
  CHECK(device);
  [device release];
}

static void the_nth(void) {
  metalsim_fault("buffer", 3, 0);
  session gpu = gpu_open();
  CHECK(buffer(&gpu, 4) && buffer(&gpu, 4) && !buffer(&gpu, 4) && buffer(&gpu, 4));
  metalsim_fault("buffer", 0, 0);
  CHECK(!buffer(&gpu, 4) && !buffer(&gpu, 4));
  metalsim_fault("buffer", -1, 0);
  CHECK(buffer(&gpu, 4));
  gpu_close(&gpu);
}

static void by_environment(void) {
  setenv("METALSIM_FAULTS", "buffer:2,event,execution:1:8", 1);
  session gpu = gpu_open();
  CHECK(buffer(&gpu, 4) && !buffer(&gpu, 4) && buffer(&gpu, 4));
  CHECK(![gpu.device newSharedEvent] && ![gpu.device newSharedEvent]);
  id<MTLCommandBuffer> commands = [gpu.queue commandBuffer];
  [commands commit];
  [commands waitUntilCompleted];
  CHECK([[commands error] code] == MTLCommandBufferErrorOutOfMemory);
  gpu_close(&gpu);
}

static void objects(void) {
  session gpu = gpu_open();
  metalsim_fault("queue", 1, 0);
  CHECK(![gpu.device newCommandQueue]);
  metalsim_fault("command_buffer", 1, 0);
  CHECK(![gpu.queue commandBuffer]);
  metalsim_fault("encoder", 1, 0);
  CHECK(![[gpu.queue commandBuffer] computeCommandEncoder]);
  gpu_close(&gpu);
}

/* nil with an error in the library domain, of the fault's own code or the one that is asked for. */
static void check_error(NSError *error, NSInteger code) {
  CHECK([[error domain] isEqualToString:MTLLibraryErrorDomain] && [error code] == code);
  CHECK([[error localizedDescription] length] > 0);
}

static void libraries(void) {
  session gpu = gpu_open();
  NSError *error = nil;
  metalsim_fault("compile", 1, 0);
  CHECK(![gpu.device newLibraryWithSource:@"" options:nil error:&error]);
  check_error(error, MTLLibraryErrorCompileFailure);
  metalsim_fault("compile", 1, MTLLibraryErrorInternal);
  CHECK(![gpu.device newLibraryWithSource:@"" options:nil error:&error]);
  check_error(error, MTLLibraryErrorInternal);
  metalsim_fault("data", 1, 0);
  dispatch_data_t data = dispatch_data_create("MTLB", 4, NULL, DISPATCH_DATA_DESTRUCTOR_DEFAULT);
  CHECK(![gpu.device newLibraryWithData:data error:&error]);
  check_error(error, MTLLibraryErrorInternal);
  dispatch_release(data);
  gpu_close(&gpu);
}

static void functions(void) {
  session gpu = gpu_open();
  NSError *error = nil;
  MTLFunctionConstantValues *values = [[MTLFunctionConstantValues alloc] init];
  metalsim_fault("function", 2, 0);
  id<MTLFunction> good = [gpu.library newFunctionWithName:@"fill"];
  CHECK(good && ![gpu.library newFunctionWithName:@"fill" constantValues:values error:&error]);
  check_error(error, MTLLibraryErrorFunctionNotFound);
  metalsim_fault("pipeline", 1, 0);
  CHECK(![gpu.device newComputePipelineStateWithFunction:good error:&error]);
  check_error(error, MTLLibraryErrorInternal);
  [good release];
  [values release];
  gpu_close(&gpu);
}

/* A kernel that declares more threadgroup memory than there is makes no pipeline. */
static void too_much_static_memory(void) {
  session gpu = gpu_open();
  NSError *error = nil;
  NSString *text = @"#include <metal_stdlib>\nusing namespace metal;\n"
                    "kernel void huge(device float *x [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {\n"
                    "  threadgroup float tile[8193];\n"
                    "  tile[i] = x[i];\n"
                    "  x[i] = tile[i] + 1.0f;\n"
                    "}\n";
  id<MTLLibrary> library = [gpu.device newLibraryWithSource:text options:nil error:&error];
  CHECK(library);
  id<MTLFunction> huge = [library newFunctionWithName:@"huge"];
  CHECK(![gpu.device newComputePipelineStateWithFunction:huge error:&error]);
  check_error(error, MTLLibraryErrorInternal);
  [huge release];
  [library release];
  gpu_close(&gpu);
}

/* One add_one of one element, committed. */
static id<MTLCommandBuffer> commit_add(const session *gpu, id<MTLBuffer> x, id<MTLSharedEvent> event) {
  id<MTLCommandBuffer> commands = [gpu->queue commandBuffer];
  id<MTLComputeCommandEncoder> encoder = encode(commands, pipeline(gpu, @"add_one"));
  [encoder setBuffer:x offset:0 atIndex:0];
  dispatch(encoder, 1, 1);
  [encoder endEncoding];
  if (event) [commands encodeSignalEvent:event value:1];
  [commands commit];
  return commands;
}

static void execution(void) {
  static const int64_t codes[] = {
      MTLCommandBufferErrorInternal,        MTLCommandBufferErrorTimeout,      MTLCommandBufferErrorPageFault,
      MTLCommandBufferErrorAccessRevoked,   MTLCommandBufferErrorNotPermitted, MTLCommandBufferErrorOutOfMemory,
      MTLCommandBufferErrorInvalidResource, MTLCommandBufferErrorMemoryless,   MTLCommandBufferErrorDeviceRemoved,
      MTLCommandBufferErrorStackOverflow,
  };
  session gpu = gpu_open();
  id<MTLBuffer> x = buffer(&gpu, 4);
  id<MTLSharedEvent> event = [[gpu.device newSharedEvent] autorelease];
  for (size_t i = 0; i < COUNT(codes); i++) {
    metalsim_fault("execution", 1, codes[i]);
    id<MTLCommandBuffer> commands = commit_add(&gpu, x, event);
    [commands waitUntilCompleted];
    CHECK([commands status] == MTLCommandBufferStatusError && [[commands error] code] == codes[i]);
    CHECK([[[commands error] domain] isEqualToString:MTLCommandBufferErrorDomain]);
    CHECK([[[commands error] localizedDescription] length] > 0);
  }
  CHECK(*(float *)[x contents] == 0.0f && [event signaledValue] == 0);
  gpu_close(&gpu);
}

/* The caller gives up; everything stays alive until the GPU lets go. */
static void hang(void) {
  session gpu = gpu_open();
  metalsim_fault("hang", 1, 0);
  NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
  id<MTLBuffer> x = [gpu.device newBufferWithLength:4 options:0];
  id<MTLSharedEvent> event = [[gpu.device newSharedEvent] autorelease];
  id<MTLCommandBuffer> commands = commit_add(&gpu, x, event);
  CHECK(![event waitUntilSignaledValue:1 timeoutMS:50] && [commands status] == MTLCommandBufferStatusScheduled);
  id<MTLCommandBuffer> behind = commit_add(&gpu, x, nil);
  CHECK(metalsim_live(false) > 3 && [behind status] == MTLCommandBufferStatusCommitted);
  metalsim_release_hang();
  CHECK([event waitUntilSignaledValue:1 timeoutMS:10000]);
  [behind waitUntilCompleted];
  CHECK([commands status] == MTLCommandBufferStatusCompleted && *(float *)[x contents] == 2.0f);
  [x release];
  [pool release];
  gpu_close(&gpu);
}

/* For programs that can't call metalsim_release_hang. */
static void hang_for_a_time(void) {
  metalsim_set("HANG_MS", "100");
  metalsim_fault("hang", 1, 0);
  session gpu = gpu_open();
  id<MTLBuffer> x = buffer(&gpu, 4);
  id<MTLSharedEvent> event = [[gpu.device newSharedEvent] autorelease];
  id<MTLCommandBuffer> commands = commit_add(&gpu, x, event);
  CHECK(![event waitUntilSignaledValue:1 timeoutMS:20]);
  [commands waitUntilCompleted];
  CHECK(*(float *)[x contents] == 1.0f && [commands GPUEndTime] - [commands GPUStartTime] > 0.09);
  gpu_close(&gpu);
}

/* Work that is encoded and dropped, as after a failure halfway: a report, or, where a test provokes it, a count. */
static void dropped(void) {
  metalsim_set("DROPPED", "allow");
  session gpu = gpu_open();
  NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
  id<MTLComputeCommandEncoder> encoder = encode([gpu.queue commandBuffer], pipeline(&gpu, @"add_one"));
  [encoder setBuffer:buffer(&gpu, 4) offset:0 atIndex:0];
  dispatch(encoder, 1, 1);
  [encoder endEncoding];
  [pool release];
  CHECK(metalsim_counters_get().dropped == 1);
  gpu_close(&gpu);
}

static const test_case table[] = {
    {"devices", devices, NULL},
    {"the_nth", the_nth, NULL},
    {"by_environment", by_environment, NULL},
    {"objects", objects, NULL},
    {"fault_libraries", libraries, NULL},
    {"fault_functions", functions, NULL},
    {"too_much_static_memory", too_much_static_memory, NULL},
    {"execution", execution, NULL},
    {"hang", hang, NULL},
    {"hang_for_a_time", hang_for_a_time, NULL},
    {"dropped_allowed", dropped, NULL},
};

const case_table faults = {table, COUNT(table)};
