/* SPDX-License-Identifier: MIT */

/* The part of MetalPerformanceShaders that bench_mps.m uses, for compiling it where Apple's SDK is absent. */
#pragma once

#import <Foundation/Foundation.h>
#import <Metal/Metal.h>

typedef uint32_t MPSDataType;
enum { MPSDataTypeFloatBit = 0x10000000, MPSDataTypeFloat16 = MPSDataTypeFloatBit | 16 };

@interface MPSMatrixDescriptor : NSObject
+ (instancetype)matrixDescriptorWithRows:(NSUInteger)rows
                                 columns:(NSUInteger)columns
                                rowBytes:(NSUInteger)bytes
                                dataType:(MPSDataType)type;
@end

@interface MPSMatrix : NSObject
- (instancetype)initWithBuffer:(id<MTLBuffer>)buffer descriptor:(MPSMatrixDescriptor *)descriptor;
@property(readonly) id<MTLBuffer> data;
@end

@interface MPSMatrixMultiplication : NSObject
- (instancetype)initWithDevice:(id<MTLDevice>)device
                 transposeLeft:(BOOL)transposeLeft
                transposeRight:(BOOL)transposeRight
                    resultRows:(NSUInteger)rows
                 resultColumns:(NSUInteger)columns
               interiorColumns:(NSUInteger)terms
                         alpha:(double)alpha
                          beta:(double)beta;
- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)buffer
                   leftMatrix:(MPSMatrix *)left
                  rightMatrix:(MPSMatrix *)right
                 resultMatrix:(MPSMatrix *)result;
@end
