/* SPDX-License-Identifier: MIT */

#import "sim.h"

#include <errno.h>
#include <sys/mman.h>

enum {
  KNOWN_OPTIONS = MTLResourceCPUCacheModeWriteCombined | MTLResourceStorageModePrivate | MTLResourceHazardTrackingModeTracked,
};

@implementation SimBuffer

/* Takes the caller's memory, if it is there, or makes some. */
- (bool)findMemory:(void *)pointer {
  if (!pointer)
    memory = sim_memory_new(length);
  else if (msync(pointer, length, MS_ASYNC) != 0 && errno == ENOMEM)
    return false; /* not mapped */
  contents = memory ? sim_memory_start(memory) : pointer;
  return contents;
}

- (id)initWithDevice:(SimDevice *)owner length:(NSUInteger)bytes options:(MTLResourceOptions)options memory:(void *)pointer {
  SIM_REQUIRE((options & ~(MTLResourceOptions)KNOWN_OPTIONS) == 0, "resource options 0x%lx aren't simulated",
              (unsigned long)options);
  length = bytes;
  mode = options & MTLResourceStorageModePrivate ? MTLStorageModePrivate : MTLStorageModeShared;
  device = [owner retain];
  if (![self findMemory:pointer]) {
    [self release];
    return nil;
  }
  __atomic_add_fetch(&device->allocated, (int64_t)length, __ATOMIC_RELAXED);
  return self;
}

- (void)close {
  if (contents) __atomic_sub_fetch(&device->allocated, (int64_t)length, __ATOMIC_RELAXED);
  if (memory) sim_memory_free(memory);
  [device release];
}

- (NSUInteger)length {
  return length;
}

- (void *)contents {
  return mode == MTLStorageModePrivate ? NULL : contents;
}

- (MTLStorageMode)storageMode {
  return mode;
}

@end
