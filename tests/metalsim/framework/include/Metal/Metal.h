/* SPDX-License-Identifier: MIT */

/* The part of Metal's API that the simulator has: Apple's selectors, types and values, in declarations of our own. Host code that
   compiles against this header compiles against Apple's. What macOS 13 lacks says so ("macOS 14"): ask respondsToSelector: or
   NSClassFromString first, as on a Mac. A rule of the API that the simulator enforces is in tests/metalsim/README.md. */
#pragma once

#import <Foundation/Foundation.h>
#include <dispatch/dispatch.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

@protocol MTLBuffer;
@protocol MTLCommandBuffer;
@protocol MTLCommandQueue;
@protocol MTLComputeCommandEncoder;
@protocol MTLComputePipelineState;
@protocol MTLDevice;
@protocol MTLEvent;
@protocol MTLFunction;
@protocol MTLLibrary;
@protocol MTLSharedEvent;
@class MTLArchitecture;
@class MTLCompileOptions;
@class MTLFunctionConstantValues;

/* Types. Apple's enumerations have a fixed underlying type, which gcc lacks: here a typedef beside an anonymous enumeration. */

typedef double CFTimeInterval; /* seconds; CoreFoundation's */

typedef struct {
  NSUInteger width, height, depth;
} MTLSize;

static inline MTLSize MTLSizeMake(NSUInteger width, NSUInteger height, NSUInteger depth) {
  MTLSize size = {width, height, depth};
  return size;
}

typedef NSInteger MTLGPUFamily;
enum {
  MTLGPUFamilyApple1 = 1001,
  MTLGPUFamilyApple2 = 1002,
  MTLGPUFamilyApple3 = 1003,
  MTLGPUFamilyApple4 = 1004,
  MTLGPUFamilyApple5 = 1005,
  MTLGPUFamilyApple6 = 1006,
  MTLGPUFamilyApple7 = 1007,
  MTLGPUFamilyApple8 = 1008,
  MTLGPUFamilyApple9 = 1009,  /* macOS 14 */
  MTLGPUFamilyApple10 = 1010, /* macOS 26 */
  MTLGPUFamilyMac1 = 2001,
  MTLGPUFamilyMac2 = 2002,
  MTLGPUFamilyCommon1 = 3001,
  MTLGPUFamilyCommon2 = 3002,
  MTLGPUFamilyCommon3 = 3003,
  MTLGPUFamilyMetal3 = 5001,
};

typedef NSUInteger MTLResourceOptions;
enum {
  MTLResourceCPUCacheModeDefaultCache = 0,
  MTLResourceCPUCacheModeWriteCombined = 1,
  MTLResourceStorageModeShared = 0,
  MTLResourceStorageModeManaged = 1 << 4,
  MTLResourceStorageModePrivate = 2 << 4,
  MTLResourceHazardTrackingModeDefault = 0,
  MTLResourceHazardTrackingModeUntracked = 1 << 8,
  MTLResourceHazardTrackingModeTracked = 2 << 8,
};

typedef NSUInteger MTLStorageMode;
enum {
  MTLStorageModeShared = 0,
  MTLStorageModeManaged = 1,
  MTLStorageModePrivate = 2,
};

typedef NSUInteger MTLDataType;
enum {
  MTLDataTypeNone = 0,
  MTLDataTypeFloat = 3,
  MTLDataTypeHalf = 16,
  MTLDataTypeInt = 29,
  MTLDataTypeUInt = 33,
  MTLDataTypeShort = 37,
  MTLDataTypeUShort = 41,
  MTLDataTypeChar = 45,
  MTLDataTypeUChar = 49,
  MTLDataTypeBool = 53,
  MTLDataTypeLong = 81,  /* macOS 12.3 */
  MTLDataTypeULong = 85, /* macOS 12.3 */
};

typedef NSUInteger MTLBarrierScope;
enum {
  MTLBarrierScopeBuffers = 1 << 0,
};

typedef NSUInteger MTLCommandBufferStatus;
enum {
  MTLCommandBufferStatusNotEnqueued = 0,
  MTLCommandBufferStatusEnqueued = 1,
  MTLCommandBufferStatusCommitted = 2,
  MTLCommandBufferStatusScheduled = 3,
  MTLCommandBufferStatusCompleted = 4,
  MTLCommandBufferStatusError = 5,
};

typedef NSUInteger MTLFunctionType;
enum {
  MTLFunctionTypeKernel = 3,
};

typedef NSUInteger MTLLanguageVersion;
enum {
  MTLLanguageVersion2_3 = (2 << 16) + 3,
  MTLLanguageVersion2_4 = (2 << 16) + 4,
  MTLLanguageVersion3_0 = (3 << 16) + 0,
  MTLLanguageVersion3_1 = (3 << 16) + 1, /* macOS 14 */
  MTLLanguageVersion3_2 = (3 << 16) + 2, /* macOS 15 */
};

typedef NSInteger MTLMathMode; /* macOS 15 */
enum {
  MTLMathModeSafe = 0,
  MTLMathModeRelaxed = 1,
  MTLMathModeFast = 2,
};

/* Errors: domain, and code in it. */

extern NSString *const MTLLibraryErrorDomain;
extern NSString *const MTLCommandBufferErrorDomain;

typedef NSUInteger MTLLibraryError;
enum {
  MTLLibraryErrorUnsupported = 1,
  MTLLibraryErrorInternal = 2,
  MTLLibraryErrorCompileFailure = 3,
  MTLLibraryErrorCompileWarning = 4,
  MTLLibraryErrorFunctionNotFound = 5,
  MTLLibraryErrorFileNotFound = 6,
};

typedef NSUInteger MTLCommandBufferError;
enum {
  MTLCommandBufferErrorNone = 0,
  MTLCommandBufferErrorInternal = 1,
  MTLCommandBufferErrorTimeout = 2,
  MTLCommandBufferErrorPageFault = 3,
  MTLCommandBufferErrorAccessRevoked = 4,
  MTLCommandBufferErrorNotPermitted = 7,
  MTLCommandBufferErrorOutOfMemory = 8,
  MTLCommandBufferErrorInvalidResource = 9,
  MTLCommandBufferErrorMemoryless = 10,
  MTLCommandBufferErrorDeviceRemoved = 11,
  MTLCommandBufferErrorStackOverflow = 12,
};

/* The base of all objects here, NSObject on Apple: counts them, and knows one that was released too often. Instance variables stand
   in this header because gcc's runtime wants them there; they aren't API. */
@interface MetalsimObject : NSObject {
@private
  int references;
  int uses;
  const char *kind;
}
@end

/* Devices. Both return an object that the caller owns. */

id<MTLDevice> MTLCreateSystemDefaultDevice(void);
NSArray *MTLCopyAllDevices(void);

/* A block on Apple; host code passes nil, the only value accepted here. */
#ifdef __BLOCKS__
typedef void (^MetalsimDeallocator)(void *pointer, NSUInteger length);
#else
typedef void *MetalsimDeallocator;
#endif

@protocol MTLDevice <NSObject>
@property(readonly) NSString *name;
@property(readonly) uint64_t registryID;
@property(readonly) MTLArchitecture *architecture; /* macOS 14 */
@property(readonly) MTLSize maxThreadsPerThreadgroup;
@property(readonly, getter=isLowPower) BOOL lowPower;
@property(readonly, getter=isHeadless) BOOL headless;
@property(readonly, getter=isRemovable) BOOL removable;
@property(readonly) BOOL hasUnifiedMemory;
@property(readonly) uint64_t recommendedMaxWorkingSetSize;
@property(readonly) NSUInteger currentAllocatedSize;
@property(readonly) NSUInteger maxThreadgroupMemoryLength;
@property(readonly) NSUInteger maxBufferLength;
- (BOOL)supportsFamily:(MTLGPUFamily)family;
- (id<MTLCommandQueue>)newCommandQueue;
- (id<MTLCommandQueue>)newCommandQueueWithMaxCommandBufferCount:(NSUInteger)count;
- (id<MTLBuffer>)newBufferWithLength:(NSUInteger)length options:(MTLResourceOptions)options;
- (id<MTLBuffer>)newBufferWithBytes:(const void *)bytes length:(NSUInteger)length options:(MTLResourceOptions)options;
- (id<MTLBuffer>)newBufferWithBytesNoCopy:(void *)pointer
                                   length:(NSUInteger)length
                                  options:(MTLResourceOptions)options
                              deallocator:(MetalsimDeallocator)deallocator;
- (id<MTLLibrary>)newLibraryWithSource:(NSString *)source options:(MTLCompileOptions *)options error:(NSError **)error;
- (id<MTLLibrary>)newLibraryWithData:(dispatch_data_t)data error:(NSError **)error;
- (id<MTLComputePipelineState>)newComputePipelineStateWithFunction:(id<MTLFunction>)function error:(NSError **)error;
- (id<MTLSharedEvent>)newSharedEvent;
@end

@interface MTLArchitecture : MetalsimObject {
  NSString *name;
}
@property(readonly) NSString *name;
@end

/* Buffers */

@protocol MTLResource <NSObject>
@property(readonly) MTLStorageMode storageMode;
@end

@protocol MTLBuffer <MTLResource>
@property(readonly) NSUInteger length;
- (void *)contents;
@end

/* Libraries, functions, pipelines */

@interface MTLCompileOptions : MetalsimObject {
  NSDictionary *preprocessorMacros;
  BOOL fastMathEnabled;
  MTLMathMode mathMode;
  MTLLanguageVersion languageVersion;
}
@property(copy) NSDictionary *preprocessorMacros;
@property BOOL fastMathEnabled;               /* default YES */
@property MTLMathMode mathMode;               /* macOS 15; default MTLMathModeFast */
@property MTLLanguageVersion languageVersion; /* default: the newest that the system has */
@end

@protocol MTLLibrary <NSObject>
@property(readonly) NSArray *functionNames;
- (id<MTLFunction>)newFunctionWithName:(NSString *)name;
- (id<MTLFunction>)newFunctionWithName:(NSString *)name
                        constantValues:(MTLFunctionConstantValues *)constantValues
                                 error:(NSError **)error;
@end

@interface MTLFunctionConstantValues : MetalsimObject {
  struct metalsim_value *values;
  size_t count;
}
- (void)setConstantValue:(const void *)value type:(MTLDataType)type atIndex:(NSUInteger)index;
@end

@protocol MTLFunction <NSObject>
@property(readonly) MTLFunctionType functionType;
@property(readonly) NSString *name;
@end

@protocol MTLComputePipelineState <NSObject>
@property(readonly) NSUInteger maxTotalThreadsPerThreadgroup;
@property(readonly) NSUInteger threadExecutionWidth;
@property(readonly) NSUInteger staticThreadgroupMemoryLength;
@end

/* Commands */

@protocol MTLCommandQueue <NSObject>
- (id<MTLCommandBuffer>)commandBuffer;
- (id<MTLCommandBuffer>)commandBufferWithUnretainedReferences;
@end

@protocol MTLCommandBuffer <NSObject>
@property(readonly) MTLCommandBufferStatus status;
@property(readonly) NSError *error;
@property(readonly) CFTimeInterval GPUStartTime;
@property(readonly) CFTimeInterval GPUEndTime;
- (void)commit;
- (void)waitUntilCompleted;
- (id<MTLComputeCommandEncoder>)computeCommandEncoder;
- (void)encodeSignalEvent:(id<MTLEvent>)event value:(uint64_t)value;
@end

@protocol MTLCommandEncoder <NSObject>
- (void)endEncoding;
@end

@protocol MTLComputeCommandEncoder <MTLCommandEncoder>
- (void)setComputePipelineState:(id<MTLComputePipelineState>)state;
- (void)setBytes:(const void *)bytes length:(NSUInteger)length atIndex:(NSUInteger)index;
- (void)setBuffer:(id<MTLBuffer>)buffer offset:(NSUInteger)offset atIndex:(NSUInteger)index;
- (void)setBufferOffset:(NSUInteger)offset atIndex:(NSUInteger)index;
- (void)setThreadgroupMemoryLength:(NSUInteger)length atIndex:(NSUInteger)index;
- (void)dispatchThreadgroups:(MTLSize)threadgroupsPerGrid threadsPerThreadgroup:(MTLSize)threadsPerThreadgroup;
- (void)memoryBarrierWithScope:(MTLBarrierScope)scope;
@end

/* Events */

@protocol MTLEvent <NSObject>
@end

@protocol MTLSharedEvent <MTLEvent>
@property(readwrite) uint64_t signaledValue;
- (BOOL)waitUntilSignaledValue:(uint64_t)value timeoutMS:(uint64_t)milliseconds; /* macOS 12 */
@end

#ifdef __cplusplus
}
#endif
