/* SPDX-License-Identifier: MIT */

#import "cases.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

const char *const source =
    "#include <metal_stdlib>\n"
    "using namespace metal;\n"
    "constant uint factor [[function_constant(0)]];\n"
    "struct params { float bias; uint count; };\n"
    "kernel void fill(device float *x [[buffer(0)]], constant params &p [[buffer(1)]],\n"
    "                 uint i [[thread_position_in_grid]]) {\n"
    "  if (i < p.count) x[i] = p.bias;\n"
    "}\n"
    "kernel void add_one(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] += 1.0f; }\n"
    "kernel void scale(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) {\n"
    "  x[i] *= float(factor);\n"
    "}\n"
    "kernel void rotate(device float *x [[buffer(0)]], threadgroup float *tile [[threadgroup(0)]],\n"
    "                   uint i [[thread_index_in_threadgroup]]) {\n"
    "  tile[i] = x[i];\n"
    "  threadgroup_barrier(mem_flags::mem_threadgroup);\n"
    "  x[i] = tile[(i + 1) % 32];\n"
    "}\n"
    "kernel void fixed(device float *x [[buffer(0)]], threadgroup float *more [[threadgroup(0)]],\n"
    "                  uint i [[thread_index_in_threadgroup]]) {\n"
    "  threadgroup float tile[6144];\n"
    "  tile[i] = x[i];\n"
    "  more[i] = tile[i];\n"
    "  x[i] = more[i] + 1.0f;\n"
    "}\n"
    "[[max_total_threads_per_threadgroup(64)]] kernel void narrow(device float *x [[buffer(0)]],\n"
    "                                                             uint i [[thread_position_in_grid]]) {\n"
    "  x[i] = 2.0f;\n"
    "}\n";

void check_failed(const char *condition, const char *file, int line) {
  fprintf(stderr, "%s:%d: %s\n", file, line, condition);
  _exit(1);
}

session gpu_open(void) {
  session gpu = {MTLCreateSystemDefaultDevice(), nil, nil};
  NSError *error = nil;
  MTLCompileOptions *options = [[[MTLCompileOptions alloc] init] autorelease];
  [options setFastMathEnabled:NO];
  gpu.queue = [gpu.device newCommandQueue];
  gpu.library = [gpu.device newLibraryWithSource:[NSString stringWithUTF8String:source] options:options error:&error];
  if (!gpu.library) fprintf(stderr, "%s\n", [[error localizedDescription] UTF8String]);
  CHECK(gpu.device && gpu.queue && gpu.library);
  return gpu;
}

void gpu_close(session *gpu) {
  [gpu->library release];
  [gpu->queue release];
  [gpu->device release];
}

static id<MTLComputePipelineState> make_pipeline(const session *gpu, id<MTLFunction> function) {
  NSError *error = nil;
  CHECK(function);
  id<MTLComputePipelineState> state = [gpu->device newComputePipelineStateWithFunction:function error:&error];
  CHECK(state && !error);
  [function release];
  return [state autorelease];
}

id<MTLComputePipelineState> pipeline(const session *gpu, NSString *kernel) {
  return make_pipeline(gpu, [gpu->library newFunctionWithName:kernel]);
}

id<MTLComputePipelineState> pipeline_scale(const session *gpu, uint32_t factor) {
  MTLFunctionConstantValues *values = [[[MTLFunctionConstantValues alloc] init] autorelease];
  [values setConstantValue:&factor type:MTLDataTypeUInt atIndex:0];
  return make_pipeline(gpu, [gpu->library newFunctionWithName:@"scale" constantValues:values error:NULL]);
}

id<MTLBuffer> buffer(const session *gpu, NSUInteger bytes) {
  return [[gpu->device newBufferWithLength:bytes options:MTLResourceStorageModeShared] autorelease];
}

id<MTLComputeCommandEncoder> encode(id<MTLCommandBuffer> commands, id<MTLComputePipelineState> state) {
  id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
  [encoder setComputePipelineState:state];
  return encoder;
}

void dispatch(id<MTLComputeCommandEncoder> encoder, NSUInteger groups, NSUInteger threads) {
  [encoder dispatchThreadgroups:MTLSizeMake(groups, 1, 1) threadsPerThreadgroup:MTLSizeMake(threads, 1, 1)];
}

job job_start(NSString *kernel) {
  job work = {gpu_open(), nil, nil, nil};
  work.commands = [work.gpu.queue commandBuffer];
  work.encoder = encode(work.commands, pipeline(&work.gpu, kernel));
  work.x = buffer(&work.gpu, 1024);
  [work.encoder setBuffer:work.x offset:0 atIndex:0];
  return work;
}

/* The case, in a child process. */
static void run_case(const test_case *one, int output) {
  dup2(output, STDERR_FILENO);
  NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
  one->run();
  [pool release];
  _exit(metalsim_live(true) == 0 ? 0 : 2);
}

static void read_all(int input, char *text, size_t room) {
  size_t used = 0;
  for (ssize_t more; used < room - 1 && (more = read(input, text + used, room - 1 - used)) > 0;) used += (size_t)more;
  text[used] = '\0';
  close(input);
}

static bool is_right(const test_case *one, int status, const char *output) {
  if (!one->report) return WIFEXITED(status) && WEXITSTATUS(status) == 0 && !strstr(output, "metalsim:");
  if (strstr(one->report, "Sanitizer")) return status != 0 && strstr(output, one->report);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && strstr(output, "metalsim:") && strstr(output, one->report);
}

static bool passes(const test_case *one) {
  static char output[1 << 16];
  int ends[2], status;
  CHECK(pipe(ends) == 0);
  fflush(stdout); /* not twice */
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) run_case(one, ends[1]);
  close(ends[1]);
  read_all(ends[0], output, sizeof output);
  CHECK(waitpid(child, &status, 0) == child);
  if (is_right(one, status, output)) return true;
  printf("FAILED %s: status 0x%x, wanted %s\n%s\n", one->name, (unsigned)status, one->report ? one->report : "success", output);
  return false;
}

static int ran, failed;

static void try_case(const test_case *one, const char *wanted) {
  if (wanted && !strstr(one->name, wanted)) return;
  ran++;
  failed += !passes(one);
}

/* All cases, or those with the argument in their names. */
int main(int argc, char **argv) {
  const case_table *const tables[] = {&uses, &faults, &rules, &ownership};
  const char *wanted = argc > 1 ? argv[1] : NULL;
  test_case call;
  for (size_t t = 0; t < COUNT(tables); t++)
    for (size_t i = 0; i < tables[t]->count; i++) try_case(&tables[t]->cases[i], wanted);
  for (size_t i = 0; call_case(i, &call); i++) try_case(&call, wanted);
  printf("%d of %d cases failed\n", failed, ran);
  return failed > 0 || ran == 0;
}
