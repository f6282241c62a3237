/* SPDX-License-Identifier: MIT */

/* Cocoa's rules of ownership, and memory that is gone. */
#import "cases.h"

#include "../sanitizers.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static void message_after_release(void) {
  session gpu = gpu_open();
  id<MTLBuffer> x = [gpu.device newBufferWithLength:4 options:0];
  [x release];
  [x contents];
}

static void released_twice(void) {
  session gpu = gpu_open();
  id<MTLBuffer> x = [gpu.device newBufferWithLength:4 options:0];
  [x release];
  [x release];
}

static void retained_after_release(void) {
  session gpu = gpu_open();
  [gpu.queue release];
  [gpu.queue retain];
}

/* The caller doesn't own what commandBuffer returns. */
static void released_what_the_pool_has(void) {
  session gpu = gpu_open();
  NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
  [[gpu.queue commandBuffer] release];
  [pool release];
}

static void used_after_the_pool(void) {
  session gpu = gpu_open();
  NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
  id<MTLCommandBuffer> commands = [gpu.queue commandBuffer];
  [pool release];
  [commands commit];
}

static void *without_pool(void *argument) {
  [(id<MTLCommandQueue>)argument commandBuffer];
  return NULL;
}

static void no_pool(void) {
  pthread_t thread;
  session gpu = gpu_open();
  pthread_create(&thread, NULL, without_pool, gpu.queue);
  pthread_join(thread, NULL);
}

/* Without references of its own a command buffer relies on the caller's. */
static void released_while_running(void) {
  session gpu = gpu_open();
  metalsim_fault("hang", 1, 0);
  id<MTLBuffer> x = [gpu.device newBufferWithLength:128 options:0];
  id<MTLCommandBuffer> commands = [gpu.queue commandBufferWithUnretainedReferences];
  id<MTLComputeCommandEncoder> encoder = encode(commands, pipeline(&gpu, @"add_one"));
  [encoder setBuffer:x offset:0 atIndex:0];
  dispatch(encoder, 1, 32);
  [encoder endEncoding];
  [commands commit];
  [x release];
}

static void leak_at_exit(void) {
  static session kept; /* not a leak to LeakSanitizer, which would be the first to speak */
  metalsim_set("CHECK_LIVE", "1");
  kept = gpu_open();
  CHECK(kept.device);
  exit(0);
}

/* Nor is anything of GNUstep's a leak to LeakSanitizer. */
static void no_leak_at_exit(void) {
  metalsim_set("CHECK_LIVE", "1");
  NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
  session gpu = gpu_open();
  NSError *error = nil;
  [MTLCopyAllDevices() release];
  [[gpu.queue commandBuffer] commit];
  CHECK(![gpu.device newLibraryWithSource:@"broken" options:nil error:&error]);
  CHECK([[error localizedDescription] length] > 0 && [[gpu.library functionNames] count] > 0);
  gpu_close(&gpu);
  [pool release];
  exit(0);
}

static void live_counts(void) {
  NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
  session gpu = gpu_open();
  CHECK(metalsim_live(false) == 4); /* device, queue, library; options, in the pool */
  id<MTLBuffer> x = [gpu.device newBufferWithLength:4 options:0];
  CHECK(metalsim_live(false) == 5);
  [x release];
  [pool release];
  CHECK(metalsim_live(false) == 3);
  gpu_close(&gpu);
  CHECK(metalsim_live(false) == 0);
}

#ifdef SIM_ASAN
static void leak_of_gnustep(void) {
  gpu_open();
  [[NSMutableString alloc] initWithString:@"text"];
  exit(0);
}
#endif

static void crashed(int signal) {
  (void)signal;
  static const char text[] = "metalsim: test: crashed\n";
  if (write(STDERR_FILENO, text, sizeof text - 1) > 0) signal = 0;
  abort();
}

static void touch(volatile char *memory) {
  signal(SIGSEGV, crashed);
  memory[0] = 1;
}

static void memory_after_release(void) {
  session gpu = gpu_open();
  id<MTLBuffer> x = [gpu.device newBufferWithLength:4 options:0];
  char *contents = [x contents];
  [x release];
  touch(contents);
}

static void memory_before_buffer(void) { touch((char *)[buffer((session[]){gpu_open()}, 4) contents] - 1); }
static void memory_behind_buffer(void) { touch((char *)[buffer((session[]){gpu_open()}, 16384) contents] + 16384); }

#ifdef SIM_TSAN
/* Reads what a committed command buffer may not have written yet. */
static void look_too_early(void) {
  job work = job_start(@"add_one");
  dispatch(work.encoder, 1, 32);
  [work.encoder endEncoding];
  [work.commands commit];
  CHECK(*(float *)[work.x contents] >= 0);
}
#endif

static const test_case table[] = {
    {"message_after_release", message_after_release, "SimBuffer: a released object gets the message contents"},
    {"released_twice", released_twice, "SimBuffer: a released object gets the message release"},
    {"retained_after_release", retained_after_release, "SimQueue: a released object gets the message retain"},
    {"released_what_the_pool_has", released_what_the_pool_has, "SimCommandBuffer: a released object gets the message release"},
    {"used_after_the_pool", used_after_the_pool, "SimCommandBuffer: a released object gets the message commit"},
    {"no_pool", no_pool, "no autorelease pool"},
    {"released_while_running", released_while_running, "SimBuffer is released while a command buffer uses it"},
    {"leak_at_exit", leak_at_exit, "Metal objects are alive"},
    {"no_leak_at_exit", no_leak_at_exit, NULL},
    {"live_counts", live_counts, NULL},
    {"memory_after_release", memory_after_release, "crashed"},
    {"memory_before_buffer", memory_before_buffer, "crashed"},
    {"memory_behind_buffer", memory_behind_buffer, "crashed"},
#ifdef SIM_ASAN
    {"leak_of_gnustep", leak_of_gnustep, "LeakSanitizer: detected memory leaks"},
#endif
#ifdef SIM_TSAN
    {"look_too_early", look_too_early, "ThreadSanitizer: data race"},
#endif
};

const case_table ownership = {table, COUNT(table)};
