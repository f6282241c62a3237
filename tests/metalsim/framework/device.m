/* SPDX-License-Identifier: MIT */

/* The device: its properties, and everything that it makes. */
#import "sim.h"

#include <stdlib.h>
#include <string.h>

#define GIB (1024LL * 1024 * 1024)

/* Sizes are rounded figures of such Macs; those of the last two are made up. */
struct sim_model {
  char setting[SIM_TEXT], name[SIM_TEXT], architecture[SIM_TEXT];
  MTLGPUFamily family;
  int64_t working_set, max_buffer;
  bool unified;
};

static const struct sim_model models[] = {
    {"m1", "Apple M1", "applegpu_g13g", MTLGPUFamilyApple7, 11 * GIB, 9 * GIB, true},
    {"m1_max", "Apple M1 Max", "applegpu_g13s", MTLGPUFamilyApple7, 48 * GIB, 36 * GIB, true},
    {"m2_ultra", "Apple M2 Ultra", "applegpu_g14d", MTLGPUFamilyApple8, 147 * GIB, 86 * GIB, true},
    {"m3", "Apple M3", "applegpu_g15g", MTLGPUFamilyApple9, 16 * GIB, 12 * GIB, true},
    {"m4_max", "Apple M4 Max", "applegpu_g16s", MTLGPUFamilyApple9, 107 * GIB, 80 * GIB, true},
    {"paravirtual", "Apple Paravirtual device", "applegpu_paravirtual", MTLGPUFamilyApple5, 4 * GIB, 2 * GIB, true},
    {"intel", "Intel Iris Plus Graphics", "intel", MTLGPUFamilyMac2, 1 * GIB, 1 * GIB, false},
};

static const struct {
  const char *name;
  MTLGPUFamily family;
} families[] = {
    {"apple5", MTLGPUFamilyApple5},   {"apple6", MTLGPUFamilyApple6}, {"apple7", MTLGPUFamilyApple7},
    {"apple8", MTLGPUFamilyApple8},   {"apple9", MTLGPUFamilyApple9}, {"mac2", MTLGPUFamilyMac2},
    {"apple10", MTLGPUFamilyApple10},
};

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static MTLGPUFamily find_family(const char *name) {
  for (size_t i = 0; i < COUNT(families); i++)
    if (strcmp(families[i].name, name) == 0) return families[i].family;
  sim_report("METALSIM_FAMILY", "there is no family %s", name);
}

static struct sim_model find_model(void) {
  char name[SIM_TEXT];
  sim_text(SIM_DEVICE, name);
  for (size_t i = 0; i < COUNT(models); i++)
    if (strcmp(models[i].setting, name) == 0) return models[i];
  sim_report("METALSIM_DEVICE", "there is no device %s", name);
}

/* The model that METALSIM_DEVICE names, with what other settings change about it. */
static struct sim_model *make_model(void) {
  struct sim_model *model = malloc(sizeof *model);
  *model = find_model();
  char text[SIM_TEXT];
  sim_text(SIM_NAME, text);
  if (*text) strcpy(model->name, text);
  sim_text(SIM_ARCHITECTURE, text);
  if (*text) strcpy(model->architecture, text);
  sim_text(SIM_FAMILY, text);
  if (*text) model->family = find_family(text);
  sim_text(SIM_MAX_BUFFER_LENGTH, text);
  if (*text) model->max_buffer = sim_number(SIM_MAX_BUFFER_LENGTH);
  return model;
}

/* As on a Mac there is one device, and whoever asks for it gets it with a reference of his own. */
static SimDevice *the_device;
static pthread_mutex_t the_device_mutex = PTHREAD_MUTEX_INITIALIZER;

static SimDevice *copy_device(void) {
  pthread_mutex_lock(&the_device_mutex);
  SimDevice *device = the_device;
  if (![device retainIfAlive]) {
    device = the_device = [[SimDevice alloc] init];
    device->model = make_model();
  }
  pthread_mutex_unlock(&the_device_mutex);
  return device;
}

id<MTLDevice> MTLCreateSystemDefaultDevice(void) {
  SIM_ENTER();
  return sim_fault(SIM_FAULT_DEFAULT_DEVICE, NULL) ? nil : copy_device();
}

NSArray *MTLCopyAllDevices(void) {
  SIM_ENTER();
  if (sim_fault(SIM_FAULT_ALL_DEVICES, NULL)) return [[NSArray alloc] init];
  SimDevice *device = copy_device();
  NSArray *devices = [[NSArray alloc] initWithObjects:device, nil];
  [device release];
  return devices;
}

@interface MTLArchitecture (Sim)
- (id)initWithName:(NSString *)text;
@end

@implementation MTLArchitecture

- (id)initWithName:(NSString *)text {
  name = [text retain];
  return self;
}

- (void)close {
  [name release];
}

- (NSString *)name {
  SIM_ENTER();
  return [[name retain] autorelease];
}

@end

@implementation SimDevice

- (void)close {
  pthread_mutex_lock(&the_device_mutex);
  if (the_device == self) the_device = nil;
  pthread_mutex_unlock(&the_device_mutex);
  free(model);
}

- (NSString *)name {
  SIM_ENTER();
  return [NSString stringWithUTF8String:model->name];
}

- (BOOL)respondsToSelector:(SEL)selector {
  if (sel_isEqual(selector, @selector(architecture))) return sim_number(SIM_MACOS) >= 14;
  return [super respondsToSelector:selector];
}

- (MTLArchitecture *)architecture {
  SIM_ENTER();
  SIM_SINCE(14);
  return [[[MTLArchitecture alloc] initWithName:[NSString stringWithUTF8String:model->architecture]] autorelease];
}

- (uint64_t)registryID {
  return 4294969000;
}

/* A family has all that lower ones of its kind have. */
- (BOOL)supportsFamily:(MTLGPUFamily)family {
  SIM_ENTER();
  bool apple = model->family < MTLGPUFamilyMac1;
  if (family < MTLGPUFamilyMac1) return apple && family >= MTLGPUFamilyApple1 && family <= model->family;
  if (family == MTLGPUFamilyMetal3) return !apple || model->family >= MTLGPUFamilyApple7;
  if (family == MTLGPUFamilyMac1 || family == MTLGPUFamilyMac2) return !apple || model->family >= MTLGPUFamilyApple7;
  return family >= MTLGPUFamilyCommon1 && family <= MTLGPUFamilyCommon3;
}

- (MTLSize)maxThreadsPerThreadgroup {
  return MTLSizeMake(FACE_MAX_THREADS, FACE_MAX_THREADS, FACE_MAX_THREADS);
}

- (NSUInteger)maxThreadgroupMemoryLength {
  return FACE_THREADGROUP_BYTES;
}

- (NSUInteger)maxBufferLength {
  return (NSUInteger)model->max_buffer;
}

- (uint64_t)recommendedMaxWorkingSetSize {
  return (uint64_t)model->working_set;
}

- (NSUInteger)currentAllocatedSize {
  return (NSUInteger)__atomic_load_n(&allocated, __ATOMIC_RELAXED);
}

- (BOOL)hasUnifiedMemory {
  return model->unified;
}

- (BOOL)isLowPower {
  return !model->unified;
}

- (BOOL)isHeadless {
  return NO;
}

- (BOOL)isRemovable {
  return NO;
}

- (id<MTLCommandQueue>)newCommandQueue {
  return [self newCommandQueueWithMaxCommandBufferCount:64];
}

- (id<MTLCommandQueue>)newCommandQueueWithMaxCommandBufferCount:(NSUInteger)count {
  SIM_ENTER();
  SIM_REQUIRE(count > 0, "a count of 0");
  return sim_fault(SIM_FAULT_QUEUE, NULL) ? nil : [[SimQueue alloc] initWithDevice:self capacity:count];
}

- (id<MTLSharedEvent>)newSharedEvent {
  SIM_ENTER();
  return sim_fault(SIM_FAULT_EVENT, NULL) ? nil : [[SimEvent alloc] init];
}

- (SimBuffer *)newBuffer:(NSUInteger)length options:(MTLResourceOptions)options memory:(void *)pointer {
  if (sim_fault(SIM_FAULT_BUFFER, NULL) || length == 0 || length > [self maxBufferLength]) return nil;
  return [[SimBuffer alloc] initWithDevice:self length:length options:options memory:pointer];
}

- (id<MTLBuffer>)newBufferWithLength:(NSUInteger)length options:(MTLResourceOptions)options {
  SIM_ENTER();
  return [self newBuffer:length options:options memory:NULL];
}

- (id<MTLBuffer>)newBufferWithBytes:(const void *)bytes length:(NSUInteger)length options:(MTLResourceOptions)options {
  SIM_ENTER();
  SIM_REQUIRE(bytes, "bytes are NULL");
  SimBuffer *buffer = [self newBuffer:length options:options memory:NULL];
  if (buffer) memcpy(buffer->contents, bytes, length);
  return buffer;
}

- (id<MTLBuffer>)newBufferWithBytesNoCopy:(void *)pointer
                                   length:(NSUInteger)length
                                  options:(MTLResourceOptions)options
                              deallocator:(MetalsimDeallocator)deallocator {
  SIM_ENTER();
  SIM_REQUIRE(!deallocator, "only a nil deallocator is simulated");
  SIM_REQUIRE(pointer && (uintptr_t)pointer % SIM_PAGE == 0, "the pointer %p isn't a multiple of the page, %d", pointer, SIM_PAGE);
  SIM_REQUIRE(length % SIM_PAGE == 0, "the length %lu isn't a multiple of the page, %d", (unsigned long)length, SIM_PAGE);
  SIM_REQUIRE((options & MTLResourceStorageModePrivate) == 0, "memory of the caller can't be private");
  return [self newBuffer:length options:options memory:pointer];
}

- (id<MTLComputePipelineState>)newComputePipelineStateWithFunction:(id<MTLFunction>)function error:(NSError **)error {
  SIM_ENTER();
  SIM_REQUIRE(function, "the function is nil");
  SimFunction *kernel = (SimFunction *)function;
  size_t fixed = face_function_threadgroup_bytes(kernel->function);
  int64_t code = MTLLibraryErrorInternal;
  if (sim_fault(SIM_FAULT_PIPELINE, &code)) {
    sim_fail(error, MTLLibraryErrorDomain, code, "the simulator was told to fail a pipeline");
    return nil;
  }
  if (fixed > FACE_THREADGROUP_BYTES) {
    sim_fail(error, MTLLibraryErrorDomain, code, "%zu bytes of threadgroup memory exceed %d", fixed, FACE_THREADGROUP_BYTES);
    return nil;
  }
  NSUInteger threads = (NSUInteger)sim_number(SIM_MAX_THREADS), wanted = face_function_max_total_threads(kernel->function);
  SIM_COUNT(pipelines);
  return [[SimPipeline alloc] initWithFunction:kernel maxThreads:wanted && wanted < threads ? wanted : threads staticBytes:fixed];
}

- (id<MTLLibrary>)newLibraryWithSource:(NSString *)source options:(MTLCompileOptions *)options error:(NSError **)error {
  SIM_ENTER();
  SIM_REQUIRE(source, "the source is nil");
  return sim_library_compile(self, source, options, error);
}

- (id<MTLLibrary>)newLibraryWithData:(dispatch_data_t)data error:(NSError **)error {
  SIM_ENTER();
  SIM_REQUIRE(data, "the data is nil");
  return sim_library_load(self, (SimData *)data, error);
}

@end
