/* SPDX-License-Identifier: MIT */

#include "memory.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "sanitizers.h"

#ifdef SIM_ASAN
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#endif

struct sim_memory {
  char *base, *start;
  size_t total; /* bytes mapped from base on: a guard, alignment, the pages, a guard */
  size_t pages; /* bytes from start on that are accessible */
};

struct sim_memory *sim_memory_new(size_t length) {
  struct sim_memory *memory = malloc(sizeof *memory);
  memory->pages = (length + SIM_PAGE - 1) / SIM_PAGE * SIM_PAGE;
  memory->total = memory->pages + 3 * (size_t)SIM_PAGE;
  memory->base = mmap(NULL, memory->total, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory->base == MAP_FAILED) return free(memory), NULL;
  memory->start = (char *)(((uintptr_t)memory->base + 2 * SIM_PAGE - 1) / SIM_PAGE * SIM_PAGE);
  if (mprotect(memory->start, memory->pages, PROT_READ | PROT_WRITE) != 0) {
    munmap(memory->base, memory->total);
    return free(memory), NULL;
  }
  ASAN_POISON_MEMORY_REGION(memory->start + length, memory->pages - length);
  return memory;
}

char *sim_memory_start(const struct sim_memory *memory) { return memory->start; }

/* The youngest freed ones; their addresses aren't given out again, and cost no memory. */
enum { QUARANTINE = 256 };
static struct sim_memory *quarantine[QUARANTINE];
static unsigned oldest;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void unmap(struct sim_memory *memory) {
  if (!memory) return;
  munmap(memory->base, memory->total);
  free(memory);
}

void sim_memory_free(struct sim_memory *memory) {
  ASAN_UNPOISON_MEMORY_REGION(memory->start, memory->pages);
  mmap(memory->base, memory->total, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  pthread_mutex_lock(&mutex);
  struct sim_memory *out = quarantine[oldest];
  quarantine[oldest] = memory;
  oldest = (oldest + 1) % QUARANTINE;
  pthread_mutex_unlock(&mutex);
  unmap(out);
}
