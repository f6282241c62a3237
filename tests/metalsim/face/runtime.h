// SPDX-License-Identifier: MIT
// Runs the threads of threadgroups as fibers.
#pragma once

#include "abi.h"
#include "face.h"
#include "library.h"

#include <string>

namespace face {

enum class fiber_state { ready, waits_for_threadgroup, waits_for_simdgroup, waits_for_lanes, returned };

// One thread of a threadgroup, at the end of its stack. The lane is what kernels see of it.
struct fiber {
  face_lane lane;
  void *stack_pointer; // while another fiber runs
  void *fake_stack;    // AddressSanitizer's
  char *stack;         // FACE_ABI_STACK bytes
  fiber_state state;
  face_place place;   // where it waits
  unsigned exchanges; // done by this lane
};

struct simdgroup {
  unsigned lanes, waiting;
  unsigned phase; // simdgroup barriers that order memory, so far
  alignas(64) unsigned char slots[2][FACE_ABI_LANES * FACE_ABI_SLOT];
};

// A variable or argument in threadgroup memory. Each takes 16 bytes at least, which bounds their number.
struct allocation {
  int declaration;
  size_t offset, length; // in the arena
};
constexpr size_t gap = 64; // between them
constexpr size_t max_allocations = FACE_THREADGROUP_BYTES / 16;
constexpr size_t arena_bytes = FACE_THREADGROUP_BYTES + max_allocations * gap;

// What runs a dispatch; idle ones wait for the next.
struct core {
  face_group group; // what kernels see
  const face_dispatch_desc *desc;
  face_counters counters;
  fiber *fibers[FACE_MAX_THREADS]; // fiber_count were made so far
  unsigned fiber_count, threads, returned, waiting;
  fiber *ready[FACE_MAX_THREADS]; // a ring
  size_t ready_first, ready_count;
  simdgroup simdgroups[FACE_MAX_THREADS / FACE_SIMD_WIDTH];
  void *host_stack_pointer, *host_fake_stack;
  const void *host_stack;
  size_t host_stack_size;
  unsigned char *arena; // threadgroup memory
  size_t arena_used;    // with gaps
  size_t threadgroup_bytes;
  allocation allocations[max_allocations];
  size_t allocation_count;
  std::string error; // empty but for a dispatch that fails
  uint64_t random;
  core *next; // idle one
};

constexpr size_t absent_bytes = 4096;
uintptr_t absent_argument(); // stands for an argument that is switched off

face_counters dispatch(const face_dispatch_desc &desc); // throws std::runtime_error

// The fiber that runs now. Only on a fiber.
fiber *current_fiber();
core *current_core();
std::string text_of(face_place place); // "file:line"
// An error in two steps, since stop() leaves the fiber's stack as it is and nothing on it is destroyed.
void fail(core &c, const std::string &error); // notes the first error
[[noreturn]] void stop(core &c);              // ends the dispatch

// check.cpp: every access of a checked build.
void check_begin(core &c); // of a dispatch; holds a lock until check_end
void check_end();
void check_threadgroup(); // a new threadgroup begins
void check_barrier(int flags);

} // namespace face
