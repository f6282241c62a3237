/* SPDX-License-Identifier: MIT */

/* Rules that hold for many calls: a thread needs an autorelease pool, a forked child has no Metal, an encoder that has ended takes
   nothing, a committed command buffer neither, and an index ends at 30. */
#import "cases.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* What the calls work on. */
static job work;
static id<MTLSharedEvent> event;
static id<MTLComputePipelineState> state;
static id<MTLFunction> function;
static MTLCompileOptions *options;
static MTLArchitecture *architecture;
static MTLFunctionConstantValues *values;
static dispatch_data_t data;

static void set_up(void) {
  metalsim_set("MACOS", "14");
  work = job_start(@"add_one");
  event = [work.gpu.device newSharedEvent];
  state = pipeline(&work.gpu, @"add_one");
  function = [work.gpu.library newFunctionWithName:@"fill"];
  options = [[MTLCompileOptions alloc] init];
  architecture = [work.gpu.device architecture];
  values = [[MTLFunctionConstantValues alloc] init];
  data = dispatch_data_create("MTLB", 4, NULL, DISPATCH_DATA_DESTRUCTOR_DEFAULT);
}

static void create_default(void) { MTLCreateSystemDefaultDevice(); }
static void copy_all(void) { MTLCopyAllDevices(); }
static void device_name(void) { [work.gpu.device name]; }
static void device_architecture(void) { [work.gpu.device architecture]; }
static void device_family(void) { [work.gpu.device supportsFamily:MTLGPUFamilyApple7]; }
static void device_queue(void) { [work.gpu.device newCommandQueue]; }
static void device_event(void) { [work.gpu.device newSharedEvent]; }
static void device_buffer(void) { [work.gpu.device newBufferWithLength:4 options:0]; }
static void device_bytes(void) { [work.gpu.device newBufferWithBytes:"abc" length:4 options:0]; }

static void device_no_copy(void) {
  static char memory[2 * 16384];
  uintptr_t page = ((uintptr_t)memory + 16383) / 16384 * 16384;
  [work.gpu.device newBufferWithBytesNoCopy:(void *)page length:16384 options:0 deallocator:nil];
}

static void device_source(void) { [work.gpu.device newLibraryWithSource:@"" options:nil error:NULL]; }
static void device_data(void) { [work.gpu.device newLibraryWithData:data error:NULL]; }
static void device_pipeline(void) { [work.gpu.device newComputePipelineStateWithFunction:function error:NULL]; }
static void architecture_name(void) { [architecture name]; }
static void options_new(void) { [MTLCompileOptions alloc]; }
static void options_macros(void) { [options preprocessorMacros]; }
static void library_names(void) { [work.gpu.library functionNames]; }
static void library_function(void) { [work.gpu.library newFunctionWithName:@"fill"]; }
static void library_values(void) { [work.gpu.library newFunctionWithName:@"fill" constantValues:values error:NULL]; }
static void values_set(void) { [values setConstantValue:"abc" type:MTLDataTypeInt atIndex:0]; }
static void function_name(void) { [function name]; }
static void queue_commands(void) { [work.gpu.queue commandBuffer]; }
static void queue_unretained(void) { [work.gpu.queue commandBufferWithUnretainedReferences]; }
static void commands_encoder(void) { [work.commands computeCommandEncoder]; }
static void commands_signal(void) { [work.commands encodeSignalEvent:event value:1]; }
static void commands_commit(void) { [work.commands commit]; }
static void commands_wait(void) { [work.commands waitUntilCompleted]; }
static void commands_status(void) { [work.commands status]; }
static void commands_error(void) { [work.commands error]; }
static void event_get(void) { [event signaledValue]; }
static void event_set(void) { [event setSignaledValue:1]; }
static void event_wait(void) { [event waitUntilSignaledValue:0 timeoutMS:0]; }
static void encoder_end(void) { [work.encoder endEncoding]; }
static void encoder_pipeline(void) { [work.encoder setComputePipelineState:state]; }
static void encoder_bytes(void) { [work.encoder setBytes:"abc" length:4 atIndex:1]; }
static void encoder_buffer(void) { [work.encoder setBuffer:work.x offset:0 atIndex:0]; }
static void encoder_nothing(void) { [work.encoder setBuffer:nil offset:0 atIndex:0]; }
static void encoder_offset(void) { [work.encoder setBufferOffset:0 atIndex:0]; }
static void encoder_memory(void) { [work.encoder setThreadgroupMemoryLength:16 atIndex:0]; }
static void encoder_barrier(void) { [work.encoder memoryBarrierWithScope:MTLBarrierScopeBuffers]; }
static void encoder_dispatch(void) { dispatch(work.encoder, 1, 32); }
static void encoder_offset_31(void) { [work.encoder setBufferOffset:0 atIndex:31]; }
static void release_last(void) { [architecture release]; }
static void autorelease_one(void) { [work.x autorelease]; }

typedef enum { POOL = 1, FORK = 2, OPEN = 4, UNCOMMITTED = 8, INDEX = 16 } rule;

static const struct {
  const char *name;
  void (*make)(void);
  int rules; /* that the call obeys */
} calls[] = {
    {"create_default", create_default, POOL | FORK},
    {"copy_all", copy_all, POOL | FORK},
    {"device_name", device_name, POOL | FORK},
    {"device_architecture", device_architecture, POOL | FORK},
    {"device_family", device_family, POOL | FORK},
    {"device_queue", device_queue, POOL | FORK},
    {"device_event", device_event, POOL | FORK},
    {"device_buffer", device_buffer, POOL | FORK},
    {"device_bytes", device_bytes, POOL | FORK},
    {"device_no_copy", device_no_copy, POOL | FORK},
    {"device_source", device_source, POOL | FORK},
    {"device_data", device_data, POOL | FORK},
    {"device_pipeline", device_pipeline, POOL | FORK},
    {"architecture_name", architecture_name, POOL | FORK},
    {"options_new", options_new, FORK},
    {"options_macros", options_macros, POOL | FORK},
    {"library_names", library_names, POOL | FORK},
    {"library_function", library_function, POOL | FORK},
    {"library_values", library_values, POOL | FORK},
    {"values_set", values_set, FORK},
    {"function_name", function_name, POOL | FORK},
    {"queue_commands", queue_commands, POOL | FORK},
    {"queue_unretained", queue_unretained, POOL | FORK},
    {"commands_encoder", commands_encoder, POOL | FORK | UNCOMMITTED},
    {"commands_signal", commands_signal, POOL | FORK | UNCOMMITTED},
    {"commands_commit", commands_commit, POOL | FORK | UNCOMMITTED},
    {"commands_wait", commands_wait, POOL | FORK},
    {"commands_status", commands_status, FORK},
    {"commands_error", commands_error, POOL | FORK},
    {"event_get", event_get, FORK},
    {"event_set", event_set, FORK},
    {"event_wait", event_wait, POOL | FORK},
    {"encoder_end", encoder_end, POOL | FORK | OPEN},
    {"encoder_pipeline", encoder_pipeline, POOL | FORK | OPEN},
    {"encoder_bytes", encoder_bytes, POOL | FORK | OPEN},
    {"encoder_buffer", encoder_buffer, POOL | FORK | OPEN},
    {"encoder_nothing", encoder_nothing, POOL | FORK | OPEN},
    {"encoder_offset", encoder_offset, POOL | FORK | OPEN},
    {"encoder_memory", encoder_memory, POOL | FORK | OPEN},
    {"encoder_barrier", encoder_barrier, POOL | FORK | OPEN},
    {"encoder_dispatch", encoder_dispatch, POOL | FORK | OPEN},
    {"encoder_offset_31", encoder_offset_31, INDEX},
    {"release_last", release_last, FORK},
    {"autorelease_one", autorelease_one, POOL | FORK},
};

static void (*chosen)(void);

static void *call_in_thread(void *argument) {
  chosen();
  return argument;
}

/* A thread has no pool unless it makes one. */
static void without_pool(void) {
  pthread_t thread;
  set_up();
  CHECK(pthread_create(&thread, NULL, call_in_thread, NULL) == 0);
  pthread_join(thread, NULL);
}

static void in_child(void) {
  int status;
  set_up();
  pid_t child = fork();
  if (child == 0) {
    chosen();
    _exit(0);
  }
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) abort(); /* after the child's report */
}

static void after_end(void) {
  set_up();
  [work.encoder endEncoding];
  chosen();
}

static void after_commit(void) {
  set_up();
  [work.encoder endEncoding];
  [work.commands commit];
  chosen();
}

static void at_once(void) {
  set_up();
  chosen();
}

static const struct {
  rule rule;
  const char *name;
  void (*run)(void);
  const char *report;
} rules_of_many[] = {
    {POOL, "without_pool", without_pool, "no autorelease pool"}, {FORK, "in_child", in_child, "a child after fork()"},
    {OPEN, "after_end", after_end, "the encoder has ended"},     {UNCOMMITTED, "after_commit", after_commit, "committed already"},
    {INDEX, "index", at_once, "index 31 is above 30"},
};

bool call_case(size_t i, test_case *out) {
  static char name[64];
  for (size_t c = 0; c < COUNT(calls); c++)
    for (size_t r = 0; r < COUNT(rules_of_many); r++) {
      if (!(calls[c].rules & rules_of_many[r].rule) || i-- > 0) continue;
      snprintf(name, sizeof name, "%s_%s", calls[c].name, rules_of_many[r].name);
      chosen = calls[c].make;
      *out = (test_case){name, rules_of_many[r].run, rules_of_many[r].report};
      return true;
    }
  return false;
}
