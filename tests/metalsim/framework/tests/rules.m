/* SPDX-License-Identifier: MIT */

/* Each rule of the API, broken. */
#import "cases.h"

#include "../sanitizers.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 16384 };

/* ---- Buffers ---- */

static void no_copy(size_t shift, NSUInteger length, MTLResourceOptions options, MetalsimDeallocator deallocator) {
  id<MTLDevice> device = MTLCreateSystemDefaultDevice();
  char *memory = aligned_alloc(PAGE, 3 * PAGE);
  [device newBufferWithBytesNoCopy:memory + shift length:length options:options deallocator:deallocator];
}

static void no_copy_pointer(void) { no_copy(4096, PAGE, 0, nil); }
static void no_copy_length(void) { no_copy(0, PAGE + 4096, 0, nil); }
static void no_copy_private(void) { no_copy(0, PAGE, MTLResourceStorageModePrivate, nil); }
static void no_copy_deallocator(void) { no_copy(0, PAGE, 0, (MetalsimDeallocator)no_copy_length); }

static void buffer_options(void) {
  session gpu = gpu_open();
  [gpu.device newBufferWithLength:4 options:MTLResourceHazardTrackingModeUntracked];
}

static void buffer_bytes_null(void) {
  session gpu = gpu_open();
  [gpu.device newBufferWithBytes:NULL length:4 options:0];
}

/* ---- Libraries, functions, pipelines ---- */

static void source_nil(void) {
  session gpu = gpu_open();
  [gpu.device newLibraryWithSource:nil options:nil error:NULL];
}

static void source_macros(void) {
  session gpu = gpu_open();
  MTLCompileOptions *options = [[[MTLCompileOptions alloc] init] autorelease];
  [options setPreprocessorMacros:[NSDictionary dictionaryWithObject:@"1" forKey:@"A"]];
  [gpu.device newLibraryWithSource:@"" options:options error:NULL];
}

static void data_nil(void) {
  session gpu = gpu_open();
  [gpu.device newLibraryWithData:nil error:NULL];
}

static void math_mode_early(void) { [[[[MTLCompileOptions alloc] init] autorelease] setMathMode:MTLMathModeSafe]; }

static void math_mode_read_early(void) { [[[[MTLCompileOptions alloc] init] autorelease] mathMode]; }

static void architecture_early(void) {
  session gpu = gpu_open();
  [gpu.device architecture];
}

static void language_early(void) { [[[[MTLCompileOptions alloc] init] autorelease] setLanguageVersion:MTLLanguageVersion3_1]; }

static void language_old(void) { [[[[MTLCompileOptions alloc] init] autorelease] setLanguageVersion:MTLLanguageVersion2_4]; }

static void math_mode_unknown(void) {
  metalsim_set("MACOS", "15");
  [[[[MTLCompileOptions alloc] init] autorelease] setMathMode:3];
}

static void data_destructor(void) { dispatch_data_create("", 0, NULL, (dispatch_block_t)source_nil); }

static void function_name_nil(void) { [gpu_open().library newFunctionWithName:nil]; }

static void function_without_values(void) {
  session gpu = gpu_open();
  [gpu.library newFunctionWithName:@"scale"];
}

static void function_values_nil(void) {
  session gpu = gpu_open();
  [gpu.library newFunctionWithName:@"scale" constantValues:nil error:NULL];
}

static void constant_index(void) {
  int value = 1;
  [[[[MTLFunctionConstantValues alloc] init] autorelease] setConstantValue:&value type:MTLDataTypeInt atIndex:65536];
}

static void constant_type(void) {
  int value = 1;
  [[[[MTLFunctionConstantValues alloc] init] autorelease] setConstantValue:&value type:MTLDataTypeNone atIndex:1];
}

static void constant_null(void) {
  [[[[MTLFunctionConstantValues alloc] init] autorelease] setConstantValue:NULL type:MTLDataTypeInt atIndex:1];
}

static void pipeline_nil(void) {
  session gpu = gpu_open();
  [gpu.device newComputePipelineStateWithFunction:nil error:NULL];
}

/* ---- Encoding. Each case takes an encoder that is ready to dispatch add_one, breaks one thing, and dispatches. ---- */

static job started(void) { return job_start(@"add_one"); }

static void dispatch_sizes(MTLSize groups, MTLSize threads) {
  [started().encoder dispatchThreadgroups:groups threadsPerThreadgroup:threads];
}

static void groups_zero(void) { dispatch_sizes(MTLSizeMake(1, 0, 1), MTLSizeMake(32, 1, 1)); }
static void groups_above_uint(void) { dispatch_sizes(MTLSizeMake(1ul << 32, 1, 1), MTLSizeMake(32, 1, 1)); }
static void threads_zero(void) { dispatch_sizes(MTLSizeMake(1, 1, 1), MTLSizeMake(32, 1, 0)); }
static void threads_above_device(void) { dispatch_sizes(MTLSizeMake(1, 1, 1), MTLSizeMake(1, 2048, 1)); }

static void threads_above_pipeline(void) {
  metalsim_set("MAX_THREADS", "512");
  dispatch_sizes(MTLSizeMake(1, 1, 1), MTLSizeMake(32, 17, 1));
}

static void threads_above_attribute(void) { dispatch(job_start(@"narrow").encoder, 1, 65); }

static void pipeline_missing(void) {
  session gpu = gpu_open();
  dispatch([[gpu.queue commandBuffer] computeCommandEncoder], 1, 32);
}

static void pipeline_state_nil(void) { [started().encoder setComputePipelineState:nil]; }
static void buffer_index(void) { [started().encoder setBuffer:nil offset:0 atIndex:31]; }
static void bytes_index(void) { [started().encoder setBytes:"" length:1 atIndex:31]; }
static void bytes_size(void) { [started().encoder setBytes:source length:4096 atIndex:1]; }
static void bytes_none(void) { [started().encoder setBytes:source length:0 atIndex:1]; }
static void threadgroup_index(void) { [started().encoder setThreadgroupMemoryLength:16 atIndex:31]; }
static void threadgroup_multiple(void) { [started().encoder setThreadgroupMemoryLength:24 atIndex:0]; }
static void threadgroup_limit(void) { [started().encoder setThreadgroupMemoryLength:32784 atIndex:0]; }
static void offset_without_buffer(void) { [started().encoder setBufferOffset:0 atIndex:1]; }
static void barrier_scope(void) { [started().encoder memoryBarrierWithScope:2]; }

static void threadgroup_missing(void) { dispatch(job_start(@"rotate").encoder, 1, 32); }

static void threadgroup_total(void) {
  job work = job_start(@"fixed");
  [work.encoder setThreadgroupMemoryLength:8192 + 16 atIndex:0];
  dispatch(work.encoder, 1, 32);
}

static void offset_outside(void) {
  job work = started();
  [work.encoder setBuffer:work.x offset:1024 atIndex:0];
}

static void offset_alignment(void) {
  job work = started();
  [work.encoder setBuffer:work.x offset:2 atIndex:0];
  dispatch(work.encoder, 1, 32);
}

static void offset_leaves_too_little(void) {
  job work = started();
  [work.encoder setBuffer:buffer(&work.gpu, 6) offset:4 atIndex:0];
  dispatch(work.encoder, 1, 1);
}

static void constant_offset_alignment(void) {
  job work = job_start(@"fill");
  [work.encoder setBuffer:work.x offset:16 atIndex:1];
  dispatch(work.encoder, 1, 32);
}

static void argument_missing(void) { dispatch(job_start(@"fill").encoder, 1, 32); }

static void argument_taken_away(void) {
  job work = started();
  [work.encoder setBuffer:nil offset:0 atIndex:0];
  dispatch(work.encoder, 1, 32);
}

static void argument_too_small(void) {
  job work = job_start(@"fill");
  [work.encoder setBytes:"\0\0\0\0" length:4 atIndex:1];
  dispatch(work.encoder, 1, 32);
}

static void argument_written_bytes(void) {
  job work = started();
  [work.encoder setBytes:source length:128 atIndex:0];
  dispatch(work.encoder, 1, 32);
}

/* ---- The life of command buffers and encoders ---- */

static void ended_twice(void) {
  job work = started();
  [work.encoder endEncoding];
  [work.encoder endEncoding];
}

static void dispatch_after_end(void) {
  job work = started();
  [work.encoder endEncoding];
  dispatch(work.encoder, 1, 32);
}

static void encoder_never_ended(void) {
  session gpu = gpu_open();
  NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
  [[gpu.queue commandBuffer] computeCommandEncoder];
  [pool release];
}

static void two_encoders(void) { [started().commands computeCommandEncoder]; }
static void commit_open_encoder(void) { [started().commands commit]; }

static void signal_open_encoder(void) {
  job work = started();
  [work.commands encodeSignalEvent:[[work.gpu.device newSharedEvent] autorelease] value:1];
}

static void signal_nil(void) {
  session gpu = gpu_open();
  [[gpu.queue commandBuffer] encodeSignalEvent:nil value:1];
}

static job committed(void) {
  job work = started();
  [work.encoder endEncoding];
  [work.commands commit];
  return work;
}

static void commit_twice(void) { [committed().commands commit]; }
static void encoder_after_commit(void) { [committed().commands computeCommandEncoder]; }

static void reuse_after_completion(void) {
  job work = committed();
  [work.commands waitUntilCompleted];
  [work.commands computeCommandEncoder];
}

static void signal_after_commit(void) {
  job work = committed();
  [work.commands encodeSignalEvent:[[work.gpu.device newSharedEvent] autorelease] value:1];
}

static void wait_without_commit(void) { [[gpu_open().queue commandBuffer] waitUntilCompleted]; }

static void dropped(void) {
  NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
  job work = started();
  dispatch(work.encoder, 1, 32);
  [work.encoder endEncoding];
  [pool release];
}

static void places_without_commit(void) {
  session gpu = gpu_open();
  for (int i = 0; i < 65; i++) [gpu.queue commandBuffer];
}

static void queue_of_none(void) {
  session gpu = gpu_open();
  [gpu.device newCommandQueueWithMaxCommandBufferCount:0];
}

/* What a kernel does wrong ends the process as well. With AddressSanitizer it is that which finds it, in what is poisoned. */
#ifdef SIM_ASAN
#define OUT_OF_BOUNDS "AddressSanitizer: use-after-poison"
#else
#define OUT_OF_BOUNDS "metalsim: add_one: "
#endif

static void kernel_out_of_bounds(void) {
  setenv("METALSIM_CHECK", "1", 1);
  job work = job_start(@"add_one");
  dispatch(work.encoder, 9, 32); /* of 1024 bytes */
  [work.encoder endEncoding];
  [work.commands commit];
  [work.commands waitUntilCompleted];
}

/* ---- The process ---- */

static void fork_after_use(void) {
  int status;
  session gpu = gpu_open();
  pid_t child = fork();
  if (child == 0) [gpu.queue commandBuffer];
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) abort(); /* after the child's report */
}

static void unknown_setting(void) { metalsim_set("COLOUR", "red"); }
static void unknown_fault(void) { metalsim_fault("coffee", 1, 0); }

static void unknown_execution_error(void) {
  metalsim_fault("execution", 1, 6);
  job work = committed();
  [work.commands waitUntilCompleted];
}

static void unknown_environment_fault(void) {
  setenv("METALSIM_FAULTS", "buffer:3,coffee", 1);
  gpu_open();
}

static void unknown_device(void) {
  metalsim_set("DEVICE", "m0");
  gpu_open();
}

static void unknown_family(void) {
  metalsim_set("FAMILY", "apple77");
  gpu_open();
}

static void long_value(void) { metalsim_set("NAME", source); }

static void no_number(void) {
  metalsim_set("MAX_THREADS", "12x");
  job_start(@"add_one");
}

static const test_case table[] = {
    {"no_copy_pointer", no_copy_pointer, "isn't a multiple of the page"},
    {"no_copy_length", no_copy_length, "isn't a multiple of the page"},
    {"no_copy_private", no_copy_private, "can't be private"},
    {"no_copy_deallocator", no_copy_deallocator, "only a nil deallocator"},
    {"buffer_options", buffer_options, "resource options 0x100"},
    {"buffer_bytes_null", buffer_bytes_null, "bytes are NULL"},
    {"source_nil", source_nil, "the source is nil"},
    {"source_macros", source_macros, "preprocessor macros"},
    {"data_nil", data_nil, "the data is nil"},
    {"math_mode_early", math_mode_early, "from macOS 15 on"},
    {"math_mode_read_early", math_mode_read_early, "from macOS 15 on"},
    {"architecture_early", architecture_early, "from macOS 14 on"},
    {"language_early", language_early, "macOS 13 has no version"},
    {"language_old", language_old, "version 0x20004 isn't simulated"},
    {"math_mode_unknown", math_mode_unknown, "there is no mode 3"},
    {"data_destructor", data_destructor, "DISPATCH_DATA_DESTRUCTOR_DEFAULT"},
    {"function_name_nil", function_name_nil, "the name is nil"},
    {"function_without_values", function_without_values, "scale has function constants"},
    {"function_values_nil", function_values_nil, "the name or the values are nil"},
    {"constant_index", constant_index, "index 65536 is above 65535"},
    {"constant_type", constant_type, "as the type of a function constant"},
    {"constant_null", constant_null, "the value is NULL"},
    {"pipeline_nil", pipeline_nil, "the function is nil"},
    {"groups_zero", groups_zero, "threadgroupsPerGrid[1] = 0 isn't from 1 to 4294967295"},
    {"groups_above_uint", groups_above_uint, "threadgroupsPerGrid[0] = 4294967296 isn't from 1 to 4294967295"},
    {"threads_zero", threads_zero, "threadsPerThreadgroup[2] = 0 isn't from 1 to 1024"},
    {"threads_above_device", threads_above_device, "threadsPerThreadgroup[1] = 2048 isn't from 1 to 1024"},
    {"threads_above_pipeline", threads_above_pipeline, "544 threads of a threadgroup exceed maxTotalThreadsPerThreadgroup, 512"},
    {"threads_above_attribute", threads_above_attribute, "narrow: 65 threads of a threadgroup exceed"},
    {"pipeline_missing", pipeline_missing, "no pipeline is set"},
    {"pipeline_state_nil", pipeline_state_nil, "the pipeline is nil"},
    {"buffer_index", buffer_index, "index 31 is above 30"},
    {"bytes_index", bytes_index, "index 31 is above 30"},
    {"bytes_size", bytes_size, "4096 bytes aren't below 4096"},
    {"bytes_none", bytes_none, "bytes are NULL or none"},
    {"threadgroup_index", threadgroup_index, "index 31 is above 30"},
    {"threadgroup_multiple", threadgroup_multiple, "24 bytes of threadgroup memory aren't a multiple of 16"},
    {"threadgroup_limit", threadgroup_limit, "32784 bytes of threadgroup memory exceed 32768"},
    {"threadgroup_missing", threadgroup_missing, "rotate: threadgroup memory 0 has no length"},
    {"threadgroup_total", threadgroup_total, "fixed: 32784 bytes of threadgroup memory exceed 32768"},
    {"offset_without_buffer", offset_without_buffer, "no buffer is bound to index 1"},
    {"barrier_scope", barrier_scope, "scope 2 isn't simulated"},
    {"offset_outside", offset_outside, "offset 1024 isn't inside the buffer of 1024 bytes"},
    {"offset_alignment", offset_alignment, "add_one: offset 2 of index 0 isn't a multiple of 4"},
    {"offset_leaves_too_little", offset_leaves_too_little, "add_one: index 0 has 2 bytes, its type has 4"},
    {"constant_offset_alignment", constant_offset_alignment, "fill: offset 16 of index 1 isn't a multiple of 32"},
    {"argument_missing", argument_missing, "fill: nothing is bound to buffer index 1"},
    {"argument_taken_away", argument_taken_away, "add_one: nothing is bound to buffer index 0"},
    {"argument_too_small", argument_too_small, "fill: index 1 has 4 bytes, its type has 8"},
    {"argument_written_bytes", argument_written_bytes, "add_one: index 0 is written to and bound to setBytes"},
    {"ended_twice", ended_twice, "the encoder has ended"},
    {"dispatch_after_end", dispatch_after_end, "the encoder has ended"},
    {"encoder_never_ended", encoder_never_ended, "released without endEncoding"},
    {"two_encoders", two_encoders, "an encoder of the command buffer is open"},
    {"commit_open_encoder", commit_open_encoder, "an encoder of the command buffer is open"},
    {"signal_open_encoder", signal_open_encoder, "an encoder of the command buffer is open"},
    {"signal_nil", signal_nil, "the event is nil"},
    {"commit_twice", commit_twice, "committed already"},
    {"encoder_after_commit", encoder_after_commit, "committed already"},
    {"reuse_after_completion", reuse_after_completion, "committed already"},
    {"signal_after_commit", signal_after_commit, "committed already"},
    {"wait_without_commit", wait_without_commit, "the command buffer isn't committed"},
    {"dropped", dropped, "never committed"},
    {"places_without_commit", places_without_commit, "64 command buffers exist and none of them is committed"},
    {"queue_of_none", queue_of_none, "a count of 0"},
    {"kernel_out_of_bounds", kernel_out_of_bounds, OUT_OF_BOUNDS},
    {"fork_after_use", fork_after_use, "a child after fork()"},
    {"unknown_setting", unknown_setting, "there is no setting COLOUR"},
    {"unknown_fault", unknown_fault, "there is no fault coffee"},
    {"unknown_execution_error", unknown_execution_error, "there is no error 6 of command buffers"},
    {"unknown_environment_fault", unknown_environment_fault, "there is no fault coffee"},
    {"unknown_device", unknown_device, "there is no device m0"},
    {"unknown_family", unknown_family, "there is no family apple77"},
    {"long_value", long_value, "METALSIM_NAME is too long"},
    {"no_number", no_number, "METALSIM_MAX_THREADS is not a number: 12x"},
};

const case_table rules = {table, COUNT(table)};
