/* SPDX-License-Identifier: MIT */

/* The part of Foundation that libtc uses, for compiling libtc/metal for macOS where Apple's SDK is absent. Its NSObject is Apple's:
 * the cross-compiler has the headers of the Objective-C runtime. test_apple_headers.py compares the rest with Apple's. */
#pragma once

#include <objc/NSObject.h>
#include <stddef.h>
#include <stdint.h>

@class NSArray, NSDictionary, NSMutableDictionary, NSString;

typedef NSUInteger NSStringEncoding;
enum { NSUTF8StringEncoding = 4 };

typedef struct _NSRange {
  NSUInteger location, length;
} NSRange;

@interface NSString : NSObject
+ (instancetype)stringWithUTF8String:(const char *)text;
- (instancetype)initWithBytes:(const void *)bytes length:(NSUInteger)length encoding:(NSStringEncoding)encoding;
@property(readonly) const char *UTF8String;
@end

@interface NSArray : NSObject
@property(readonly) NSUInteger count;
- (id)objectAtIndex:(NSUInteger)index;
@end

@interface NSError : NSObject
@property(readonly) NSInteger code;
@property(readonly, copy) NSString *domain;
@property(readonly, copy) NSString *localizedDescription;
@end

@interface NSAutoreleasePool : NSObject
- (void)drain;
@end
