// SPDX-License-Identifier: MIT
// Runs the threads of threadgroups as fibers.
#pragma once

#include "abi.h"
#include "face.h"
#include "library.h"

#include <atomic>
#include <sched.h>
#include <string>

namespace face {

// A lock that ThreadSanitizer does not see: what one dispatch wrote is not in order before what a thread does that happens to run the
// next one.
class quiet_lock {
  std::atomic_flag held = ATOMIC_FLAG_INIT;

public:
  void lock() {
    while (held.test_and_set(std::memory_order_acquire)) sched_yield();
  }
  void unlock() { held.clear(std::memory_order_release); }
};

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

// A threadgroup that runs, or ran; reused for the next one.
struct core {
  face_group group; // what kernels see
  const face_dispatch_desc *desc;
  face_counters counters;
  std::vector<fiber *> fibers; // those made so far
  unsigned threads, returned, waiting;
  std::vector<fiber *> ready; // a ring
  size_t ready_first, ready_count;
  simdgroup simdgroups[FACE_MAX_THREADS / FACE_SIMD_WIDTH];
  void *host_stack_pointer, *host_fake_stack;
  const void *host_stack;
  size_t host_stack_size;
  unsigned char *arena; // threadgroup memory
  size_t arena_used;    // with gaps
  size_t threadgroup_bytes;
  struct allocation {
    int declaration;
    size_t offset, length;
  };
  std::vector<allocation> allocations;
  std::string error;
  uint64_t random;
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
