/* SPDX-License-Identifier: MIT */

/* Right uses: what a Mac does, the simulator does. */
#import "cases.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 16384 };

typedef struct {
  float bias;
  uint32_t count;
} params;

static void device_properties(void) {
  id<MTLDevice> device = MTLCreateSystemDefaultDevice();
  NSArray *all = MTLCopyAllDevices();
  CHECK([all count] == 1 && [all objectAtIndex:0] == device);
  CHECK([[device name] isEqualToString:@"Apple M1"]);
  CHECK([device supportsFamily:MTLGPUFamilyApple7] && ![device supportsFamily:MTLGPUFamilyApple8]);
  CHECK([device supportsFamily:MTLGPUFamilyMac2] && [device supportsFamily:MTLGPUFamilyMetal3]);
  CHECK([device maxThreadsPerThreadgroup].width == 1024 && [device maxThreadgroupMemoryLength] == 32768);
  CHECK([device hasUnifiedMemory] && [device maxBufferLength] > 1u << 30);
  CHECK([device recommendedMaxWorkingSetSize] >= [device maxBufferLength]);
  CHECK(![device isRemovable] && ![device isHeadless] && ![device isLowPower]);
  [all release];
  [device release];
}

static void device_settings(void) {
  metalsim_set("DEVICE", "m2_ultra");
  metalsim_set("MACOS", "14");
  metalsim_set("NAME", "Apple M9");
  metalsim_set("FAMILY", "apple9");
  metalsim_set("MAX_BUFFER_LENGTH", "65536");
  id<MTLDevice> device = MTLCreateSystemDefaultDevice();
  CHECK([[device name] isEqualToString:@"Apple M9"] && [device respondsToSelector:@selector(architecture)]);
  CHECK([[[device architecture] name] isEqualToString:@"applegpu_g14d"]);
  CHECK([device supportsFamily:MTLGPUFamilyApple9] && [device maxBufferLength] == 65536);
  id<MTLBuffer> most = [device newBufferWithLength:65536 options:0];
  CHECK(most && ![device newBufferWithLength:65537 options:0]);
  [most release];
  [device release];
}

static void device_of_intel(void) {
  metalsim_set("DEVICE", "intel");
  id<MTLDevice> device = MTLCreateSystemDefaultDevice();
  CHECK(![device respondsToSelector:@selector(architecture)]);
  CHECK(![device supportsFamily:MTLGPUFamilyApple1] && [device supportsFamily:MTLGPUFamilyMac2] && ![device hasUnifiedMemory]);
  [device release];
}

static void buffers(void) {
  id<MTLDevice> device = MTLCreateSystemDefaultDevice();
  id<MTLBuffer> zeros = [device newBufferWithLength:5 options:MTLResourceStorageModeShared];
  id<MTLBuffer> copy = [device newBufferWithBytes:"abcd" length:4 options:MTLResourceStorageModeShared];
  id<MTLBuffer> secret = [device newBufferWithLength:4 options:MTLResourceStorageModePrivate];
  CHECK([zeros length] == 5 && (uintptr_t)[zeros contents] % PAGE == 0 && memcmp([zeros contents], "\0\0\0\0\0", 5) == 0);
  CHECK(memcmp([copy contents], "abcd", 4) == 0 && [copy storageMode] == MTLStorageModeShared);
  CHECK(![secret contents] && [secret storageMode] == MTLStorageModePrivate);
  CHECK([device currentAllocatedSize] == 13);
  CHECK(![device newBufferWithLength:0 options:0]);
  CHECK(![device newBufferWithLength:[device maxBufferLength] + 1 options:0]);
  [zeros release];
  [copy release];
  [secret release];
  CHECK([device currentAllocatedSize] == 0);
  [device release];
}

static void buffer_of_callers_memory(void) {
  id<MTLDevice> device = MTLCreateSystemDefaultDevice();
  char *memory = aligned_alloc(PAGE, 2 * PAGE);
  id<MTLBuffer> buffer = [device newBufferWithBytesNoCopy:memory length:2 * PAGE options:0 deallocator:nil];
  CHECK([buffer contents] == memory && [buffer length] == 2 * PAGE);
  [buffer release];
  memory[0] = 1;
  free(memory);
  char *gone = mmap(NULL, 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  munmap(gone, 2 * PAGE);
  char *page = (char *)(((uintptr_t)gone + PAGE - 1) / PAGE * PAGE);
  CHECK(![device newBufferWithBytesNoCopy:page length:PAGE options:0 deallocator:nil]);
  [device release];
}

static void compute(void) {
  session gpu = gpu_open();
  id<MTLBuffer> x = buffer(&gpu, 128 * sizeof(float));
  params p = {2.5f, 100};
  id<MTLCommandBuffer> commands = [gpu.queue commandBuffer];
  id<MTLComputeCommandEncoder> encoder = encode(commands, pipeline(&gpu, @"fill"));
  [encoder setBuffer:x offset:0 atIndex:0];
  [encoder setBytes:&p length:sizeof p atIndex:1];
  memset(&p, 0, sizeof p); /* they were copied */
  dispatch(encoder, 4, 32);
  [encoder memoryBarrierWithScope:MTLBarrierScopeBuffers];
  [encoder setComputePipelineState:pipeline_scale(&gpu, 3)];
  [encoder setBufferOffset:64 atIndex:0];
  dispatch(encoder, 1, 32);
  [encoder endEncoding];
  CHECK([commands status] == MTLCommandBufferStatusNotEnqueued && ![commands error]);
  [commands commit];
  [commands waitUntilCompleted];
  CHECK([commands status] == MTLCommandBufferStatusCompleted && ![commands error]);
  CHECK([commands GPUEndTime] >= [commands GPUStartTime] && [commands GPUStartTime] > 0);
  const float *got = [x contents];
  for (int i = 0; i < 128; i++) CHECK(got[i] == (i >= 100 ? 0.0f : i >= 16 && i < 48 ? 7.5f : 2.5f));
  gpu_close(&gpu);
}

static void threadgroup_memory(void) {
  session gpu = gpu_open();
  id<MTLBuffer> x = buffer(&gpu, 32 * sizeof(float));
  float *values = [x contents];
  for (int i = 0; i < 32; i++) values[i] = (float)i;
  id<MTLCommandBuffer> commands = [gpu.queue commandBuffer];
  id<MTLComputeCommandEncoder> encoder = encode(commands, pipeline(&gpu, @"rotate"));
  [encoder setBuffer:x offset:0 atIndex:0];
  [encoder setThreadgroupMemoryLength:128 atIndex:0];
  dispatch(encoder, 1, 32);
  [encoder endEncoding];
  [commands commit];
  [commands waitUntilCompleted];
  for (int i = 0; i < 32; i++) CHECK(values[i] == (float)((i + 1) % 32));
  gpu_close(&gpu);
}

/* All of a command buffer's references may go before it has run. */
static void commit_and_forget(void) {
  session gpu = gpu_open();
  metalsim_set("SLOW_MS", "50");
  NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
  id<MTLBuffer> x = [buffer(&gpu, 128) retain];
  id<MTLSharedEvent> event = [gpu.device newSharedEvent];
  id<MTLCommandBuffer> commands = [gpu.queue commandBuffer];
  id<MTLComputeCommandEncoder> encoder = encode(commands, pipeline(&gpu, @"add_one"));
  [encoder setBuffer:x offset:0 atIndex:0];
  dispatch(encoder, 1, 32);
  [encoder endEncoding];
  [commands encodeSignalEvent:event value:1];
  [commands commit];
  [x release];
  [pool release];
  gpu_close(&gpu);
  CHECK([event waitUntilSignaledValue:1 timeoutMS:10000]);
  [event release];
}

/* In order, and not before the queue's thread gets to it. */
static void order(void) {
  session gpu = gpu_open();
  metalsim_set("SLOW_MS", "20");
  id<MTLBuffer> x = buffer(&gpu, 4);
  id<MTLComputePipelineState> add = pipeline(&gpu, @"add_one"), twice = pipeline_scale(&gpu, 2);
  id<MTLCommandBuffer> commands = nil;
  for (int i = 0; i < 6; i++) {
    commands = [gpu.queue commandBuffer];
    id<MTLComputeCommandEncoder> encoder = encode(commands, i % 2 ? twice : add);
    [encoder setBuffer:x offset:0 atIndex:0];
    dispatch(encoder, 1, 1);
    [encoder endEncoding];
    [commands commit];
    if (i == 0) CHECK([commands status] < MTLCommandBufferStatusCompleted);
  }
  [commands waitUntilCompleted];
  CHECK(*(float *)[x contents] == 14.0f);
  gpu_close(&gpu);
}

/* With two places the third command buffer waits for the first. */
static void places(void) {
  metalsim_set("SLOW_MS", "20");
  id<MTLDevice> device = MTLCreateSystemDefaultDevice();
  id<MTLCommandQueue> queue = [device newCommandQueueWithMaxCommandBufferCount:2];
  id<MTLCommandBuffer> first = [queue commandBuffer];
  [first commit];
  [[queue commandBuffer] commit];
  CHECK([first status] < MTLCommandBufferStatusCompleted);
  id<MTLCommandBuffer> third = [queue commandBuffer];
  CHECK([first status] == MTLCommandBufferStatusCompleted);
  [third commit];
  [third waitUntilCompleted];
  [queue release];
  [device release];
}

static void unretained(void) {
  session gpu = gpu_open();
  id<MTLBuffer> x = buffer(&gpu, 128);
  id<MTLComputePipelineState> add = pipeline(&gpu, @"add_one");
  NSUInteger before = [x retainCount];
  id<MTLCommandBuffer> commands = [gpu.queue commandBufferWithUnretainedReferences];
  id<MTLComputeCommandEncoder> encoder = encode(commands, add);
  [encoder setBuffer:x offset:0 atIndex:0];
  dispatch(encoder, 1, 32);
  [encoder endEncoding];
  CHECK([x retainCount] == before);
  [commands commit];
  [commands waitUntilCompleted];
  CHECK(((float *)[x contents])[31] == 1.0f);
  gpu_close(&gpu);
}

static void events(void) {
  id<MTLDevice> device = MTLCreateSystemDefaultDevice();
  id<MTLSharedEvent> event = [device newSharedEvent];
  CHECK([event signaledValue] == 0 && [event waitUntilSignaledValue:0 timeoutMS:0]);
  CHECK(![event waitUntilSignaledValue:1 timeoutMS:20]);
  [event setSignaledValue:5];
  CHECK([event signaledValue] == 5 && [event waitUntilSignaledValue:5 timeoutMS:UINT64_MAX]);
  [event release];
  [device release];
}

static void pipelines(void) {
  metalsim_set("MAX_THREADS", "256");
  session gpu = gpu_open();
  CHECK([pipeline(&gpu, @"add_one") maxTotalThreadsPerThreadgroup] == 256);
  CHECK([pipeline(&gpu, @"narrow") maxTotalThreadsPerThreadgroup] == 64);
  CHECK([pipeline(&gpu, @"add_one") threadExecutionWidth] == 32);
  CHECK([pipeline(&gpu, @"add_one") staticThreadgroupMemoryLength] == 0);
  CHECK([pipeline(&gpu, @"fixed") staticThreadgroupMemoryLength] == 24576);
  gpu_close(&gpu);
}

static void libraries(void) {
  session gpu = gpu_open();
  CHECK([[gpu.library functionNames] count] == 6 && [[gpu.library functionNames] containsObject:@"fill"]);
  id<MTLFunction> fill = [gpu.library newFunctionWithName:@"fill"];
  CHECK([[fill name] isEqualToString:@"fill"] && [fill functionType] == MTLFunctionTypeKernel);
  [fill release];
  CHECK(![gpu.library newFunctionWithName:@"nothing"]);
  size_t length = strlen(source);
  char *text = malloc(length + 4);
  memcpy(text, "MTLB", 4);
  memcpy(text + 4, source, length);
  dispatch_data_t data = dispatch_data_create(text, length + 4, NULL, DISPATCH_DATA_DESTRUCTOR_DEFAULT);
  free(text);
  id<MTLLibrary> loaded = [gpu.device newLibraryWithData:data error:NULL];
  CHECK([[loaded functionNames] count] == 6);
  dispatch_release(data);
  [loaded release];
  gpu_close(&gpu);
}

static void bad_libraries(void) {
  session gpu = gpu_open();
  NSError *error = nil;
  CHECK(![gpu.device newLibraryWithSource:@"kernel void broken(" options:nil error:&error]);
  CHECK([[error domain] isEqualToString:MTLLibraryErrorDomain] && [error code] == MTLLibraryErrorCompileFailure);
  CHECK([[error localizedDescription] length] > 0);
  CHECK(![gpu.device newLibraryWithSource:@"kernel void broken(" options:nil error:NULL]);
  dispatch_data_t data = dispatch_data_create("nonsense", 8, NULL, DISPATCH_DATA_DESTRUCTOR_DEFAULT);
  CHECK(![gpu.device newLibraryWithData:data error:&error] && [error code] == MTLLibraryErrorInternal);
  dispatch_release(data);
  CHECK(metalsim_counters_get().fast_math == 2); /* options nil, twice */
  gpu_close(&gpu);
}

/* As on a Mac, values that the kernel lacks or takes as another type are an error, not an abort. */
static void constants(void) {
  session gpu = gpu_open();
  MTLFunctionConstantValues *values = [[MTLFunctionConstantValues alloc] init];
  NSError *error = nil;
  CHECK(![gpu.library newFunctionWithName:@"scale" constantValues:values error:&error]);
  CHECK([[error domain] isEqualToString:MTLLibraryErrorDomain] && [[error localizedDescription] length] > 0);
  float wrong = 3;
  [values setConstantValue:&wrong type:MTLDataTypeFloat atIndex:0];
  error = nil;
  CHECK(![gpu.library newFunctionWithName:@"scale" constantValues:values error:&error] && error);
  uint32_t right = 3;
  [values setConstantValue:&right type:MTLDataTypeUInt atIndex:0];
  [values setConstantValue:&wrong type:MTLDataTypeFloat atIndex:77];
  id<MTLFunction> scale = [gpu.library newFunctionWithName:@"scale" constantValues:values error:NULL];
  CHECK(scale && ![gpu.library newFunctionWithName:@"nothing" constantValues:values error:&error]);
  CHECK([error code] == MTLLibraryErrorFunctionNotFound);
  [scale release];
  [values release];
  gpu_close(&gpu);
}

static void compile_options(void) {
  MTLCompileOptions *options = [[MTLCompileOptions alloc] init];
  CHECK([options fastMathEnabled] && [options languageVersion] == MTLLanguageVersion3_0);
  CHECK(![options respondsToSelector:@selector(setMathMode:)] && [options respondsToSelector:@selector(setFastMathEnabled:)]);
  metalsim_set("MACOS", "15");
  CHECK([options respondsToSelector:@selector(setMathMode:)] && [options mathMode] == MTLMathModeFast);
  [options setMathMode:MTLMathModeSafe];
  CHECK(![options fastMathEnabled]);
  [options setLanguageVersion:MTLLanguageVersion3_1];
  CHECK([options languageVersion] == MTLLanguageVersion3_1);
  [options release];
}

static void *another_thread(void *argument) {
  NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
  session gpu = gpu_open();
  id<MTLBuffer> x = buffer(&gpu, 128);
  for (int i = 0; i < 20; i++) {
    id<MTLCommandBuffer> commands = [gpu.queue commandBuffer];
    id<MTLComputeCommandEncoder> encoder = encode(commands, pipeline(&gpu, @"add_one"));
    [encoder setBuffer:x offset:0 atIndex:0];
    dispatch(encoder, 1, 32);
    [encoder endEncoding];
    [commands commit];
    [commands waitUntilCompleted];
  }
  CHECK(((float *)[x contents])[7] == 20.0f);
  gpu_close(&gpu);
  [pool release];
  return argument;
}

static void threads(void) {
  pthread_t all[4];
  for (int i = 0; i < 4; i++) CHECK(pthread_create(&all[i], NULL, another_thread, NULL) == 0);
  for (int i = 0; i < 4; i++) pthread_join(all[i], NULL);
}

/* Devices after each other, each with a queue's thread: nothing piles up. */
static void again_and_again(void) {
  for (int i = 0; i < 300; i++) {
    NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
    id<MTLDevice> device = MTLCreateSystemDefaultDevice();
    id<MTLCommandQueue> queue = [device newCommandQueue];
    id<MTLCommandBuffer> commands = [queue commandBuffer];
    [commands commit];
    [commands waitUntilCompleted];
    [[device newBufferWithLength:100000 options:0] release];
    [queue release];
    [device release];
    [pool release];
    CHECK(metalsim_live(true) == 0);
  }
}

/* A child may use Metal if its parent hasn't. */
static void fork_before_use(void) {
  int status;
  pid_t child = fork();
  if (child == 0) {
    compute();
    _exit(0);
  }
  CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void counters(void) {
  compute();
  metalsim_counters got = metalsim_counters_get();
  CHECK(got.compilations == 1 && got.pipelines == 2 && got.command_buffers == 1 && got.dispatches == 2 &&
        got.kernels.threadgroups == 5);
  CHECK(got.dropped == 0 && got.fast_math == 0);
  metalsim_counters_reset();
  CHECK(metalsim_counters_get().dispatches == 0);
}

static const test_case table[] = {
    {"device_properties", device_properties, NULL},
    {"device_settings", device_settings, NULL},
    {"device_of_intel", device_of_intel, NULL},
    {"buffers", buffers, NULL},
    {"buffer_of_callers_memory", buffer_of_callers_memory, NULL},
    {"compute", compute, NULL},
    {"threadgroup_memory", threadgroup_memory, NULL},
    {"commit_and_forget", commit_and_forget, NULL},
    {"order", order, NULL},
    {"places", places, NULL},
    {"unretained", unretained, NULL},
    {"events", events, NULL},
    {"pipelines", pipelines, NULL},
    {"libraries", libraries, NULL},
    {"bad_libraries", bad_libraries, NULL},
    {"constants", constants, NULL},
    {"compile_options", compile_options, NULL},
    {"threads", threads, NULL},
    {"again_and_again", again_and_again, NULL},
    {"fork_before_use", fork_before_use, NULL},
    {"counters", counters, NULL},
};

const case_table uses = {table, COUNT(table)};
