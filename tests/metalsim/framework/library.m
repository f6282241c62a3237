/* SPDX-License-Identifier: MIT */

/* Libraries, functions with constants, and pipelines. */
#import "sim.h"

#include <stdlib.h>
#include <string.h>

/* What a metallib is here: Apple's magic bytes, then the source, in Metal 3.0. */
static const char magic[] = {'M', 'T', 'L', 'B'};
enum { METALLIB_VERSION = 300 };

static const struct {
  MTLDataType metal;
  face_type face;
} types[] = {
    {MTLDataTypeBool, FACE_BOOL},     {MTLDataTypeChar, FACE_CHAR}, {MTLDataTypeUChar, FACE_UCHAR}, {MTLDataTypeShort, FACE_SHORT},
    {MTLDataTypeUShort, FACE_USHORT}, {MTLDataTypeInt, FACE_INT},   {MTLDataTypeUInt, FACE_UINT},   {MTLDataTypeLong, FACE_LONG},
    {MTLDataTypeULong, FACE_ULONG},   {MTLDataTypeHalf, FACE_HALF}, {MTLDataTypeFloat, FACE_FLOAT},
};

static face_type find_type(MTLDataType type) {
  for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
    if (types[i].metal == type) return types[i].face;
  sim_report("MTLDataType", "%lu is not simulated as the type of a function constant", (unsigned long)type);
}

/* Metal 3.0 came with macOS 13, and each of the next two with a minor version. */
static MTLLanguageVersion newest_version(void) {
  int64_t minor = sim_number(SIM_MACOS) - 13;
  return MTLLanguageVersion3_0 + (MTLLanguageVersion)(minor < 2 ? minor : 2);
}

@implementation MTLCompileOptions

- (id)init {
  fastMathEnabled = YES;
  mathMode = MTLMathModeFast;
  languageVersion = newest_version();
  return self;
}

- (void)close {
  [preprocessorMacros release];
}

- (BOOL)respondsToSelector:(SEL)selector {
  bool young = sel_isEqual(selector, @selector(mathMode)) || sel_isEqual(selector, @selector(setMathMode:));
  return young ? sim_number(SIM_MACOS) >= 15 : [super respondsToSelector:selector];
}

- (bool)isFast {
  return mathMode != MTLMathModeSafe;
}

- (NSDictionary *)preprocessorMacros {
  SIM_ENTER();
  return [[preprocessorMacros retain] autorelease];
}

- (void)setPreprocessorMacros:(NSDictionary *)macros {
  [preprocessorMacros autorelease];
  preprocessorMacros = [macros copy];
}

- (BOOL)fastMathEnabled {
  return fastMathEnabled;
}

/* The two spellings of one thing. */
- (void)setFastMathEnabled:(BOOL)fast {
  fastMathEnabled = fast;
  mathMode = fast ? MTLMathModeFast : MTLMathModeSafe;
}

- (MTLMathMode)mathMode {
  SIM_SINCE(15);
  return mathMode;
}

- (void)setMathMode:(MTLMathMode)mode {
  SIM_SINCE(15);
  SIM_REQUIRE(mode >= MTLMathModeSafe && mode <= MTLMathModeFast, "there is no mode %ld", (long)mode);
  mathMode = mode;
  fastMathEnabled = mode == MTLMathModeFast;
}

- (MTLLanguageVersion)languageVersion {
  return languageVersion;
}

- (void)setLanguageVersion:(MTLLanguageVersion)version {
  SIM_REQUIRE(version >= MTLLanguageVersion3_0, "version 0x%lx isn't simulated", (unsigned long)version);
  SIM_REQUIRE(version <= newest_version(), "macOS %d has no version 0x%lx", (int)sim_number(SIM_MACOS), (unsigned long)version);
  languageVersion = version;
}

@end

/* What __METAL_VERSION__ is. */
static int version_number(MTLLanguageVersion version) { return (int)((version >> 16) * 100 + (version & 0xffff) * 10); }

static id<MTLLibrary> compile(SimDevice *device, const char *source, size_t length, int version, NSError **error) {
  char *text = NULL;
  face_library *library = face_library_new(source, length, version, &text);
  if (!library) sim_fail(error, MTLLibraryErrorDomain, MTLLibraryErrorCompileFailure, "%s", text);
  free(text);
  SIM_COUNT(compilations);
  return library ? [[SimLibrary alloc] initWithDevice:device library:library] : nil;
}

id<MTLLibrary> sim_library_compile(SimDevice *device, NSString *source, MTLCompileOptions *options, NSError **error) {
  int64_t code = MTLLibraryErrorCompileFailure;
  NSData *text = [source dataUsingEncoding:NSUTF8StringEncoding];
  SIM_REQUIRE([[options preprocessorMacros] count] == 0, "preprocessor macros aren't simulated");
  if (sim_fault(SIM_FAULT_COMPILE, &code)) {
    sim_fail(error, MTLLibraryErrorDomain, code, "the simulator was told to fail a compilation");
    return nil;
  }
  if (!options || [options isFast]) SIM_COUNT(fast_math);
  return compile(device, [text bytes], [text length], version_number(options ? [options languageVersion] : newest_version()),
                 error);
}

id<MTLLibrary> sim_library_load(SimDevice *device, SimData *data, NSError **error) {
  int64_t code = MTLLibraryErrorInternal;
  bool is_library = data->length >= sizeof magic && memcmp(data->bytes, magic, sizeof magic) == 0;
  if (sim_fault(SIM_FAULT_DATA, &code) || !is_library) {
    sim_fail(error, MTLLibraryErrorDomain, code, is_library ? "the simulator was told to fail" : "the data is no metallib");
    return nil;
  }
  return compile(device, data->bytes + sizeof magic, data->length - sizeof magic, METALLIB_VERSION, error);
}

/* A face_value, under a name that Metal.h can declare. */
struct metalsim_value {
  face_value value;
};

@implementation MTLFunctionConstantValues

- (void)close {
  free(values);
}

/* The value with this index, a new one if there is none. */
- (face_value *)find:(NSUInteger)index {
  for (size_t i = 0; i < count; i++)
    if (values[i].value.index == index) return &values[i].value;
  values = realloc(values, (count + 1) * sizeof *values);
  return &values[count++].value;
}

- (void)setConstantValue:(const void *)value type:(MTLDataType)type atIndex:(NSUInteger)index {
  SIM_GETTER();
  SIM_REQUIRE(value, "the value is NULL");
  SIM_REQUIRE(index <= UINT16_MAX, "index %lu is above %d", (unsigned long)index, UINT16_MAX);
  face_value *place = [self find:index];
  *place = (face_value){(uint32_t)index, find_type(type), 0};
  memcpy(&place->bits, value, face_type_size(place->type));
}

- (const face_value *)values {
  return (const face_value *)values;
}

- (size_t)count {
  return count;
}

@end

@implementation SimLibrary

- (id)initWithDevice:(SimDevice *)owner library:(face_library *)compiled {
  device = [owner retain];
  library = compiled;
  return self;
}

- (void)close {
  face_library_free(library);
  [device release];
}

- (NSArray *)functionNames {
  SIM_ENTER();
  NSMutableArray *names = [NSMutableArray array];
  for (size_t i = 0; i < face_library_kernel_count(library); i++)
    [names addObject:[NSString stringWithUTF8String:face_library_kernel(library, i)->name]];
  return names;
}

/* Whether there is such a function and no fault. */
- (bool)has:(NSString *)name error:(NSError **)error {
  int64_t code = MTLLibraryErrorFunctionNotFound;
  if (!sim_fault(SIM_FAULT_FUNCTION, &code) && face_library_find(library, [name UTF8String])) return true;
  sim_fail(error, MTLLibraryErrorDomain, code, "there is no function %s", [name UTF8String]);
  return false;
}

- (id<MTLFunction>)make:(NSString *)name values:(const face_value *)values count:(size_t)count error:(NSError **)error {
  char *text = NULL;
  face_function *function = face_function_new(library, [name UTF8String], values, count, &text);
  if (!function) sim_fail(error, MTLLibraryErrorDomain, MTLLibraryErrorCompileFailure, "%s", text);
  free(text);
  return function ? [[SimFunction alloc] initWithLibrary:self function:function] : nil;
}

- (id<MTLFunction>)newFunctionWithName:(NSString *)name {
  SIM_ENTER();
  SIM_REQUIRE(name, "the name is nil");
  if (![self has:name error:NULL]) return nil;
  SIM_REQUIRE(face_library_find(library, [name UTF8String])->constant_count == 0,
              "%s has function constants: newFunctionWithName:constantValues:error: is needed", [name UTF8String]);
  return [self make:name values:NULL count:0 error:NULL];
}

- (id<MTLFunction>)newFunctionWithName:(NSString *)name
                        constantValues:(MTLFunctionConstantValues *)constantValues
                                 error:(NSError **)error {
  SIM_ENTER();
  SIM_REQUIRE(name && constantValues, "the name or the values are nil");
  if (![self has:name error:error]) return nil;
  return [self make:name values:[constantValues values] count:[constantValues count] error:error];
}

@end

@implementation SimFunction

- (id)initWithLibrary:(SimLibrary *)owner function:(face_function *)specialized {
  library = [owner retain];
  function = specialized;
  return self;
}

- (void)close {
  face_function_free(function);
  [library release];
}

- (MTLFunctionType)functionType {
  return MTLFunctionTypeKernel;
}

- (NSString *)name {
  SIM_ENTER();
  return [NSString stringWithUTF8String:face_function_name(function)];
}

@end

@implementation SimPipeline

- (id)initWithFunction:(SimFunction *)kernel maxThreads:(NSUInteger)threads staticBytes:(NSUInteger)bytes {
  function = [kernel retain];
  max_threads = threads;
  static_bytes = bytes;
  return self;
}

- (void)close {
  [function release];
}

- (NSUInteger)maxTotalThreadsPerThreadgroup {
  return max_threads;
}

- (NSUInteger)threadExecutionWidth {
  return FACE_SIMD_WIDTH;
}

- (NSUInteger)staticThreadgroupMemoryLength {
  return static_bytes;
}

@end
