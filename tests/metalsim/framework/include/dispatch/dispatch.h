/* SPDX-License-Identifier: MIT */

/* The part of libdispatch that hands bytes to newLibraryWithData:error:. */
#pragma once

#import <Foundation/Foundation.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

@protocol OS_dispatch_data <NSObject>
@end
@protocol OS_dispatch_queue <NSObject>
@end
typedef id<OS_dispatch_data> dispatch_data_t;
typedef id<OS_dispatch_queue> dispatch_queue_t;

/* A block on Apple. The default, NULL, copies the bytes; it is the only value accepted here. */
#ifdef __BLOCKS__
typedef void (^dispatch_block_t)(void);
#else
typedef void *dispatch_block_t;
#endif
#define DISPATCH_DATA_DESTRUCTOR_DEFAULT NULL

/* The caller owns the result, and gives it back with dispatch_release. */
dispatch_data_t dispatch_data_create(const void *bytes, size_t size, dispatch_queue_t queue, dispatch_block_t destructor);
void dispatch_release(id object);

#ifdef __cplusplus
}
#endif
