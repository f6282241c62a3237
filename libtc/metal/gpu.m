/* SPDX-License-Identifier: MIT
 * The GPU, its library of kernels and their pipelines. */
#import "metal/metal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "metal/embedded.h"

const char *tc_metal_error_text(NSError *error) {
  const char *text = [[error localizedDescription] UTF8String];
  return text ? text : "Metal gives no reason";
}

/* ---- Choice of the device ---- */

/* The process that found a GPU; a child of it has another id. */
static pid_t owner; /* __atomic */

bool tc_metal_forked(void) {
  const pid_t found_by = __atomic_load_n(&owner, __ATOMIC_SEQ_CST);
  return found_by && found_by != getpid();
}

/* The first generation of GPUs that has simdgroup matrices and atomic floats; all of Apple silicon is of it or a later one. */
static bool suitable(id<MTLDevice> device) { return device && [device supportsFamily:MTLGPUFamilyApple7]; }

/* A GPU that the caller owns, or nil and the reason. The list comes first: a process without a login session may get nil for the
 * default device. */
static id<MTLDevice> choose_device(char *reason, size_t size) {
  NSArray *all = MTLCopyAllDevices();
  id<MTLDevice> device = nil;
  for (NSUInteger i = 0; i < [all count] && !suitable(device); i++) device = [all objectAtIndex:i];
  device = device ? [device retain] : MTLCreateSystemDefaultDevice();
  [all release];
  if (suitable(device)) {
    pid_t nobody = 0;
    __atomic_compare_exchange_n(&owner, &nobody, getpid(), false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return device;
  }
  if (device) {
    snprintf(reason, size, "%.100s is older than family Apple7 (M1)", [[device name] UTF8String]);
  } else {
    snprintf(reason, size, "MTLCopyAllDevices lists none, and MTLCreateSystemDefaultDevice gives none");
  }
  [device release];
  return nil;
}

bool tc_gpu_exists(void) {
  char reason[160];
  id<MTLDevice> device = choose_device(reason, sizeof reason);
  [device release];
  return device != nil;
}

/* ---- The library ---- */

static id<MTLLibrary> library_of_data(id<MTLDevice> device, NSError **error) {
  dispatch_data_t data =
      dispatch_data_create(tc_metal_library.data, tc_metal_library.bytes, NULL, DISPATCH_DATA_DESTRUCTOR_DEFAULT);
  id<MTLLibrary> library = [device newLibraryWithData:data error:error];
  dispatch_release(data);
  return library;
}

static id<MTLLibrary> library_of_source(id<MTLDevice> device, NSError **error) {
  NSString *source = [[[NSString alloc] initWithBytes:tc_metal_source.data
                                               length:tc_metal_source.bytes
                                             encoding:NSUTF8StringEncoding] autorelease];
  MTLCompileOptions *options = [[[MTLCompileOptions alloc] init] autorelease];
  [options setLanguageVersion:MTLLanguageVersion3_0];
  [options setFastMathEnabled:NO];
  return [device newLibraryWithSource:source options:options error:error];
}

/* The compiled kernels, or where they can't be used (on a system older than their compiler took it for, say) the source. */
static tc_status_t load_library(tc_gpu *gpu) {
  NSError *error = nil;
  const char *refusal = "there are none";
  gpu->library_origin = "compiled kernels";
  if (tc_metal_library.data) {
    gpu->library = library_of_data(gpu->device, &error);
    if (gpu->library) return TC_OK;
    refusal = tc_metal_error_text(error);
  }
  error = nil;
  gpu->library_origin = "kernels from source";
  gpu->library = library_of_source(gpu->device, &error);
  TC_REQUIRE(gpu->library, TC_ERROR_DEVICE, "the kernels can't be loaded; compiled ones: %.100s; their source: %.300s", refusal,
             tc_metal_error_text(error));
  return TC_OK;
}

/* ---- Life ---- */

static pthread_mutex_t shared_lock = PTHREAD_MUTEX_INITIALIZER; /* guards the next two */
static tc_gpu *shared;
static int64_t shared_references;

static void gpu_free(tc_gpu *gpu) {
  for (int i = 0; i < TC_METAL_PIPELINES; i++) [gpu->pipelines[i].state release];
  [gpu->library release];
  [gpu->device release];
  pthread_mutex_destroy(&gpu->lock);
  free(gpu);
}

/* Of Apple's GPUs, as tc_plan_chip counts them. */
static int family_of(id<MTLDevice> device) {
  int family = 7;
  for (int next = 8; next <= 10; next++) {
    if ([device supportsFamily:MTLGPUFamilyApple1 + next - 1]) family = next;
  }
  return family;
}

static tc_status_t gpu_set_up(tc_gpu *gpu) {
  char reason[160];
  gpu->device = choose_device(reason, sizeof reason);
  TC_REQUIRE(gpu->device, TC_ERROR_NO_DEVICE, "no GPU that the metal backend can use (%s); cpu works without one", reason);
  gpu->buffer_limit = [gpu->device maxBufferLength];
  gpu->plan.chip = tc_plan_chip_find([[gpu->device name] UTF8String], family_of(gpu->device));
  gpu->plan.max_buffer_bytes = gpu->buffer_limit;
  return load_library(gpu);
}

static tc_status_t gpu_new(tc_gpu **out) {
  tc_gpu *gpu = calloc(1, sizeof *gpu);
  TC_REQUIRE(gpu, TC_ERROR_MEMORY, "no memory for a GPU's pipelines");
  pthread_mutex_init(&gpu->lock, NULL);
  const tc_status_t status = gpu_set_up(gpu);
  if (status == TC_OK) {
    *out = gpu;
  } else {
    gpu_free(gpu);
  }
  return status;
}

tc_status_t tc_gpu_take(tc_gpu **out) {
  pthread_mutex_lock(&shared_lock);
  const tc_status_t status = shared ? TC_OK : gpu_new(&shared);
  if (status == TC_OK) shared_references++;
  *out = shared;
  pthread_mutex_unlock(&shared_lock);
  return status;
}

void tc_gpu_give(tc_gpu *gpu) {
  pthread_mutex_lock(&shared_lock);
  const bool last = --shared_references == 0;
  if (last) shared = NULL;
  pthread_mutex_unlock(&shared_lock);
  if (last) gpu_free(gpu);
}

/* ---- Pipelines ---- */

static id<MTLComputePipelineState> new_pipeline(tc_gpu *gpu, const tc_plan_kernel *kernel, NSError **error) {
  MTLFunctionConstantValues *values = [[[MTLFunctionConstantValues alloc] init] autorelease];
  for (uint32_t i = 0; i < kernel->constant_count; i++) {
    [values setConstantValue:&kernel->constants[i].value type:MTLDataTypeBool atIndex:kernel->constants[i].index];
  }
  NSString *name = [NSString stringWithUTF8String:kernel->name];
  id<MTLFunction> function = [gpu->library newFunctionWithName:name constantValues:values error:error];
  if (!function) return nil;
  id<MTLComputePipelineState> state = [gpu->device newComputePipelineStateWithFunction:function error:error];
  [function release];
  return state;
}

/* The kernel's entry, or the one to be replaced: a free one, else the one used least recently. */
static tc_metal_pipeline *find_entry(tc_gpu *gpu, const tc_plan_kernel *kernel) {
  tc_metal_pipeline *oldest = gpu->pipelines;
  for (tc_metal_pipeline *p = gpu->pipelines; p < gpu->pipelines + TC_METAL_PIPELINES; p++) {
    if (p->state && tc_plan_kernel_equal(&p->kernel, kernel)) return p;
    if (p->used < oldest->used) oldest = p;
  }
  return oldest;
}

id<MTLComputePipelineState> tc_gpu_pipeline(tc_gpu *gpu, const tc_plan_kernel *kernel, char *reason, size_t size) {
  NSError *error = nil;
  pthread_mutex_lock(&gpu->lock);
  tc_metal_pipeline *entry = find_entry(gpu, kernel);
  const bool known = entry->state && tc_plan_kernel_equal(&entry->kernel, kernel);
  id<MTLComputePipelineState> state = known ? [entry->state retain] : new_pipeline(gpu, kernel, &error);
  if (state && !known) {
    [entry->state release];
    entry->state = [state retain];
    entry->kernel = *kernel;
  }
  if (state) entry->used = ++gpu->lookups;
  pthread_mutex_unlock(&gpu->lock);
  if (!state) snprintf(reason, size, "kernel %s can't be made ready: %s", kernel->name, tc_metal_error_text(error));
  return state;
}
