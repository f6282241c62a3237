// SPDX-License-Identifier: MIT
// Fibers, barriers, exchanges and threadgroup memory. This unit is never instrumented by a sanitizer.
#include "runtime.h"
#include "settings.h"

#include <cstring>
#include <dlfcn.h>
#include <map>
#include <memory>
#include <mutex>
#include <pthread.h>
#include <stdexcept>
#include <sys/mman.h>
#include <xmmintrin.h>

// Saves this stack's registers and pointer, and goes on where `to` stopped.
extern "C" void face_switch(void **save, void *to);
asm(R"(
  .text
  .p2align 4
  .type face_switch, @function
face_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size face_switch, .-face_switch
)");

namespace face {

namespace {

constexpr unsigned flush_to_zero = 0x8040, default_environment = 0x1f80;

// AddressSanitizer's functions, where this process has it.
struct sanitizer {
  void (*start_switch)(void **fake_stack, const void *bottom, size_t size);
  void (*finish_switch)(void *fake_stack, const void **bottom, size_t *size);
  void (*poison)(const volatile void *, size_t);
  void (*unpoison)(const volatile void *, size_t);
};

template <class F> void find(F *&f, const char *name) { f = reinterpret_cast<F *>(dlsym(RTLD_DEFAULT, name)); }

const sanitizer asan = [] {
  sanitizer s = {};
  if (!dlsym(RTLD_DEFAULT, "__asan_init")) return s;
  find(s.start_switch, "__sanitizer_start_switch_fiber");
  find(s.finish_switch, "__sanitizer_finish_switch_fiber");
  find(s.poison, "__asan_poison_memory_region");
  find(s.unpoison, "__asan_unpoison_memory_region");
  return s;
}();

core *core_of(const fiber *f) { return reinterpret_cast<core *>(f->lane.group); }

void *map_memory(size_t bytes, int protection, const char *what) {
  void *memory = mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error(std::string("no memory for ") + what);
  return memory;
}

// ---- stacks and switches ----

fiber *fiber_at(char *stack) { return reinterpret_cast<fiber *>(stack + FACE_ABI_STACK - FACE_ABI_LANE_OFFSET); }

fiber *new_fiber() {
  size_t twice = 2 * FACE_ABI_STACK;
  char *area = static_cast<char *>(map_memory(twice, PROT_NONE, "the stack of a thread"));
  char *stack = reinterpret_cast<char *>((reinterpret_cast<uintptr_t>(area) + FACE_ABI_STACK - 1) & ~uintptr_t(FACE_ABI_STACK - 1));
  munmap(area, stack - area);
  munmap(stack + FACE_ABI_STACK, area + twice - (stack + FACE_ABI_STACK));
  mprotect(stack + 4096, FACE_ABI_STACK - 4096, PROT_READ | PROT_WRITE); // the first page is a guard
  fiber *f = fiber_at(stack);
  f->stack = stack;
  return f;
}

[[noreturn]] void fiber_main();

// Prepares a fiber to run the kernel from its beginning.
void reset_fiber(core &c, fiber &f, unsigned index) {
  unsigned x = c.group.size[0], y = c.group.size[1];
  f.lane = {reinterpret_cast<face_word>(&c.group),
            {index % x, index / x % y, index / x / y},
            index,
            index % FACE_SIMD_WIDTH,
            index / FACE_SIMD_WIDTH,
            {0, 0},
            0};
  f.state = fiber_state::ready;
  f.exchanges = 0;
  f.fake_stack = nullptr;
  auto **top = reinterpret_cast<void **>(&f) - 1; // so that the stack is aligned as behind a call
  *--top = reinterpret_cast<void *>(&fiber_main);
  f.stack_pointer = top - 6; // the registers
}

void resume(core &c, fiber &to, void **save, void **fake_stack) {
  (void)c;
  if (asan.start_switch) asan.start_switch(fake_stack, to.stack, FACE_ABI_STACK);
  face_switch(save, to.stack_pointer);
}

void leave_to_host(core &c, void **save, void **fake_stack) {
  if (asan.start_switch) asan.start_switch(fake_stack, c.host_stack, c.host_stack_size);
  face_switch(save, c.host_stack_pointer);
}

// ---- the ring of those that are ready ----

void make_ready(core &c, fiber *f) {
  f->state = fiber_state::ready;
  c.ready[(c.ready_first + c.ready_count++) % FACE_MAX_THREADS] = f;
}

fiber *take_ready(core &c) {
  if (!c.ready_count) return nullptr;
  fiber *f = c.ready[c.ready_first];
  c.ready_first = (c.ready_first + 1) % FACE_MAX_THREADS, c.ready_count--;
  return f;
}

uint64_t next_random(core &c) {
  c.random ^= c.random << 13, c.random ^= c.random >> 7, c.random ^= c.random << 17;
  return c.random;
}

void shuffle_ready(core &c) {
  if (!get_settings().seed) return;
  for (size_t i = c.ready_count; i > 1; i--)
    std::swap(c.ready[(c.ready_first + i - 1) % FACE_MAX_THREADS],
              c.ready[(c.ready_first + next_random(c) % i) % FACE_MAX_THREADS]);
}

// Lets others run until somebody makes this fiber ready.
void wait(core &c, fiber &f) {
  fiber *next = take_ready(c);
  void **fake_stack = f.state == fiber_state::returned ? nullptr : &f.fake_stack;
  if (next)
    resume(c, *next, &f.stack_pointer, fake_stack);
  else
    leave_to_host(c, &f.stack_pointer, fake_stack);
  if (asan.finish_switch) asan.finish_switch(f.fake_stack, nullptr, nullptr);
}

void fiber_main() {
  fiber *f = current_fiber();
  core &c = *core_of(f);
  if (asan.finish_switch) asan.finish_switch(nullptr, nullptr, nullptr);
  c.desc->function->entry();
  f->state = fiber_state::returned;
  c.returned++;
  wait(c, *f);
  __builtin_unreachable();
}

// ---- who waits where ----

const char *name_of(fiber_state state) {
  switch (state) {
  case fiber_state::waits_for_threadgroup:
    return "wait at threadgroup_barrier";
  case fiber_state::waits_for_simdgroup:
    return "wait at simdgroup_barrier";
  case fiber_state::waits_for_lanes:
    return "wait for their simdgroup";
  case fiber_state::returned:
    return "have returned";
  case fiber_state::ready:
    return "run";
  }
  return "";
}

std::string place_of(const fiber &f) {
  std::string place = name_of(f.state);
  if (f.state != fiber_state::returned && f.state != fiber_state::ready) place += ", " + text_of(f.place);
  return place;
}

// "threads 0-31, 40 have returned; threads 32-39 wait at ...", the first ranges of each.
std::string places(const core &c) {
  std::map<std::string, std::pair<std::string, int>> threads; // at each place: ranges, their number
  for (unsigned first = 0, i = 1; i <= c.threads; i++) {
    std::string place = place_of(*c.fibers[first]);
    if (i < c.threads && place_of(*c.fibers[i]) == place) continue;
    auto &[ranges, count] = threads[place];
    std::string range = i - 1 > first ? std::to_string(first) + "-" + std::to_string(i - 1) : std::to_string(first);
    if (++count <= 4)
      ranges += (count > 1 ? ", " : "") + range;
    else if (count == 5)
      ranges += " ...";
    first = i;
  }
  std::string all;
  for (const auto &[place, at] : threads) all += (all.empty() ? "" : "; ") + ("threads " + at.first) + " " + place;
  return all;
}

std::string where(const core &c) {
  const unsigned *p = c.group.position;
  return "kernel '" + std::string(face_function_name(c.desc->function)) + "', threadgroup (" + std::to_string(p[0]) + ", " +
         std::to_string(p[1]) + ", " + std::to_string(p[2]) + "): ";
}

void check_trails(core &c, unsigned first, unsigned last) {
  for (unsigned i = first; i < last; i++)
    if (c.fibers[i]->lane.trail != c.fibers[i / FACE_SIMD_WIDTH * FACE_SIMD_WIDTH]->lane.trail)
      return fail(c, "threads of one simdgroup did different simdgroup operations, or with different arguments; thread " +
                         std::to_string(i) + " differs from the simdgroup's first; " + places(c));
}

void check_places(core &c, unsigned first, unsigned last, face_place place) {
  for (unsigned i = first; i < last; i++)
    if (c.fibers[i]->place.file != place.file || c.fibers[i]->place.line != place.line)
      return fail(c, "threads wait at different places: " + places(c));
}

// The last of the fibers [first, last) has come: all go on.
void release(core &c, unsigned first, unsigned last, fiber &self) {
  check_trails(c, first, last);
  check_places(c, first, last, self.place);
  if (!c.error.empty()) stop(c);
  for (unsigned i = first; i < last; i++)
    if (c.fibers[i] != &self) make_ready(c, c.fibers[i]);
  self.state = fiber_state::ready;
  shuffle_ready(c);
}

// ---- threadgroup memory ----

size_t allocate(core &c, int declaration, size_t length) {
  c.threadgroup_bytes += (length + 15) / 16 * 16;
  if (c.threadgroup_bytes > FACE_THREADGROUP_BYTES) return SIZE_MAX;
  size_t offset = c.arena_used + gap;
  if (asan.unpoison) asan.unpoison(c.arena + offset, length);
  c.arena_used = offset + (length + 15) / 16 * 16;
  c.allocations[c.allocation_count++] = {declaration, offset, length};
  return offset;
}

void reset_arena(core &c) {
  if (asan.unpoison) asan.unpoison(c.arena, arena_bytes);
  memset(c.arena, 0xff, c.arena_used + gap);
  if (asan.poison) asan.poison(c.arena, arena_bytes);
  c.arena_used = c.threadgroup_bytes = 0;
  c.allocation_count = 0;
}

// ---- one threadgroup ----

core *new_core() {
  core *c = new (map_memory(sizeof(core), PROT_READ | PROT_WRITE, "a dispatch")) core();
  c->arena = static_cast<unsigned char *>(map_memory(arena_bytes, PROT_READ | PROT_WRITE, "threadgroup memory"));
  memset(c->arena, 0xff, arena_bytes);
  return c;
}

void begin_threadgroup(core &c, unsigned x, unsigned y, unsigned z) {
  c.group.position[0] = x, c.group.position[1] = y, c.group.position[2] = z;
  c.returned = c.waiting = 0;
  c.ready_first = c.ready_count = 0;
  reset_arena(c);
  check_threadgroup();
  for (const face_argument &a : c.desc->function->arguments) {
    if (a.space != FACE_THREADGROUP) continue;
    size_t offset = allocate(c, -1, c.desc->threadgroup_lengths[a.index]);
    if (offset == SIZE_MAX) return fail(c, "more than 32768 bytes of threadgroup memory");
    c.group.threadgroups[a.index] = reinterpret_cast<face_word>(c.arena + offset);
  }
  for (unsigned i = 0; i < c.threads; i++) {
    reset_fiber(c, *c.fibers[i], i);
    make_ready(c, c.fibers[i]);
  }
  for (unsigned i = 0; i < c.group.simdgroups; i++)
    c.simdgroups[i].lanes = std::min<unsigned>(FACE_SIMD_WIDTH, c.threads - i * FACE_SIMD_WIDTH), c.simdgroups[i].waiting = 0;
  shuffle_ready(c);
}

void run_threadgroup(core &c, unsigned x, unsigned y, unsigned z) {
  begin_threadgroup(c, x, y, z);
  if (!c.error.empty()) return;
  resume(c, *take_ready(c), &c.host_stack_pointer, &c.host_fake_stack);
  if (asan.finish_switch) asan.finish_switch(c.host_fake_stack, nullptr, nullptr);
  if (c.error.empty() && c.returned < c.threads) fail(c, "threads wait at different places: " + places(c));
  if (c.error.empty()) check_trails(c, 0, c.threads);
  c.counters.threadgroups++;
}

// ---- a dispatch ----

std::mutex cores_lock;
core *idle_cores;

core *take_core() {
  {
    std::lock_guard<std::mutex> hold(cores_lock);
    if (core *c = idle_cores) {
      idle_cores = c->next;
      return c;
    }
  }
  return new_core();
}

void give_core(core *c) {
  std::lock_guard<std::mutex> hold(cores_lock);
  c->next = idle_cores;
  idle_cores = c;
}

void check_arguments(const face_dispatch_desc &desc) {
  const face_function &f = *desc.function;
  std::string name = "kernel '" + std::string(face_function_name(&f)) + "': ";
  uint64_t threads = uint64_t(desc.threads[0]) * desc.threads[1] * desc.threads[2];
  uint32_t most = face_function_max_total_threads(&f);
  if (!most) most = FACE_MAX_THREADS;
  if (threads == 0 || threads > most)
    throw std::runtime_error(name + std::to_string(threads) + " threads per threadgroup; 1 to " + std::to_string(most) +
                             " are allowed");
  for (const face_argument &a : f.arguments) {
    if (a.space == FACE_THREADGROUP) {
      if (!desc.threadgroup_lengths[a.index])
        throw std::runtime_error(name + "no length is set for threadgroup argument '" + a.name + "'");
      continue;
    }
    const face_binding &b = desc.buffers[a.index];
    if (!b.pointer)
      throw std::runtime_error(name + "nothing is bound to '" + a.name + "' (buffer " + std::to_string(a.index) + ")");
    if (reinterpret_cast<uintptr_t>(b.pointer) % a.alignment)
      throw std::runtime_error(name + "what is bound to '" + a.name + "' is not aligned to " + std::to_string(a.alignment) +
                               " bytes");
    if (a.reference && b.length < a.size)
      throw std::runtime_error(name + "what is bound to '" + a.name + "' holds " + std::to_string(b.length) + " bytes, " +
                               std::to_string(a.size) + " are needed");
  }
}

// Which lane holds which element. Both maps give each lane two elements; only Apple's puts them side by side in a row.
void fill_lane_map(face_group &group) {
  for (int lane = 0; lane < FACE_ABI_LANES; lane++)
    for (int i = 0; i < 2; i++) {
      int quad = lane / 4, row = (quad & 4) + lane / 2 % 4, column = (quad & 2) * 2 + lane % 2 * 2 + i;
      group.lane_map[2 * lane + i] = get_settings().permuted ? (lane * 5 + i * 33 + 7) % 32 * 2 + i : row * 8 + column;
    }
}

// What a kernel finds in an argument that a function constant has switched off: zeros that cannot be written. On a GPU, too, a value
// may be read through it, as long as nothing depends on that value (MLX does so).
uintptr_t new_absent_argument() {
  void *zeros = map_memory(absent_bytes, PROT_READ, "absent arguments");
  return reinterpret_cast<uintptr_t>(zeros);
}

void find_host_stack(core &c) {
  pthread_attr_t attributes;
  void *stack;
  pthread_getattr_np(pthread_self(), &attributes);
  pthread_attr_getstack(&attributes, &stack, &c.host_stack_size);
  pthread_attr_destroy(&attributes);
  c.host_stack = stack;
}

void prepare(core &c, const face_dispatch_desc &desc) {
  c.desc = &desc;
  c.counters = {};
  c.random = get_settings().seed * 0x9e3779b97f4a7c15 + 1;
  c.threads = desc.threads[0] * desc.threads[1] * desc.threads[2];
  c.group.simdgroups = (c.threads + FACE_SIMD_WIDTH - 1) / FACE_SIMD_WIDTH;
  c.group.multiply_accumulates = c.group.matrix_moves = 0;
  for (int i = 0; i < 3; i++) c.group.grid[i] = desc.threadgroups[i], c.group.size[i] = desc.threads[i];
  for (int i = 0; i < FACE_BUFFERS; i++) c.group.buffers[i] = absent_argument(), c.group.threadgroups[i] = 0;
  for (const face_argument &a : desc.function->arguments)
    if (a.space != FACE_THREADGROUP) c.group.buffers[a.index] = reinterpret_cast<face_word>(desc.buffers[a.index].pointer);
  fill_lane_map(c.group);
  for (; c.fiber_count < c.threads; c.fiber_count++) c.fibers[c.fiber_count] = new_fiber();
  if (asan.start_switch) find_host_stack(c);
}

void run_grid(core &c) {
  for (unsigned z = 0; z < c.desc->threadgroups[2]; z++)
    for (unsigned y = 0; y < c.desc->threadgroups[1]; y++)
      for (unsigned x = 0; x < c.desc->threadgroups[0] && c.error.empty(); x++) run_threadgroup(c, x, y, z);
}

// Threads that were stopped have left their stacks as they were.
void clean_stacks(core &c) {
  if (!asan.unpoison) return;
  for (unsigned i = 0; i < c.fiber_count; i++) asan.unpoison(c.fibers[i]->stack + 4096, FACE_ABI_STACK - 4096);
}

// The floating-point environment of a GPU while it lives.
struct environment {
  unsigned before = _mm_getcsr();
  environment() { _mm_setcsr(default_environment | (get_settings().flush_float ? flush_to_zero : 0)); }
  ~environment() { _mm_setcsr(before); }
};

struct checking {
  explicit checking(core &c) { check_begin(c); }
  ~checking() { check_end(); }
};

} // namespace

uintptr_t absent_argument() {
  static const uintptr_t zeros = new_absent_argument();
  return zeros;
}

std::string text_of(face_place place) {
  return std::string(reinterpret_cast<const char *>(place.file)) + ":" + std::to_string(place.line);
}

fiber *current_fiber() {
  auto here = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  return fiber_at(reinterpret_cast<char *>(here & ~uintptr_t(FACE_ABI_STACK - 1)));
}

core *current_core() { return core_of(current_fiber()); }

void fail(core &c, const std::string &error) {
  if (c.error.empty()) c.error = error;
}

void stop(core &c) {
  void *unused;
  leave_to_host(c, &unused, nullptr);
  __builtin_unreachable();
}

face_counters dispatch(const face_dispatch_desc &desc) {
  check_arguments(desc);
  core *c = take_core();
  std::string error;
  try {
    environment gpu;
    checking check(*c);
    prepare(*c, desc);
    run_grid(*c);
  } catch (const std::exception &e) { // no memory
    fail(*c, e.what());
  }
  face_counters counted = c->counters;
  counted.multiply_accumulates = c->group.multiply_accumulates;
  counted.matrix_moves = c->group.matrix_moves;
  if (!c->error.empty()) {
    error.swap(c->error);
    error = where(*c) + error;
    clean_stacks(*c);
  }
  give_core(c);
  if (!error.empty()) throw std::runtime_error(error);
  return counted;
}

} // namespace face

// ---- what kernels call ----

extern "C" {

FACE_API void face_threadgroup_barrier(int flags, face_place place) {
  face::fiber &f = *face::current_fiber();
  face::core &c = *face::core_of(&f);
  f.place = place;
  f.state = face::fiber_state::waits_for_threadgroup;
  if (++c.waiting < c.threads) return face::wait(c, f);
  c.waiting = 0;
  c.counters.threadgroup_barriers++;
  face::check_barrier(flags);
  face::release(c, 0, c.threads, f);
}

FACE_API void face_simdgroup_barrier(int flags, face_place place) {
  face::fiber &f = *face::current_fiber();
  face::core &c = *face::core_of(&f);
  face::simdgroup &s = c.simdgroups[f.lane.simdgroup];
  f.place = place;
  f.state = face::fiber_state::waits_for_simdgroup;
  if (++s.waiting < s.lanes) return face::wait(c, f);
  s.waiting = 0;
  if (flags) s.phase++;
  c.counters.simdgroup_barriers++;
  unsigned first = f.lane.simdgroup * FACE_SIMD_WIDTH;
  face::release(c, first, first + s.lanes, f);
}

FACE_API face_word face_exchange_begin() {
  face::fiber &f = *face::current_fiber();
  return reinterpret_cast<face_word>(face::core_of(&f)->simdgroups[f.lane.simdgroup].slots[f.exchanges++ % 2]);
}

FACE_API void face_exchange_end(face_place place) {
  face::fiber &f = *face::current_fiber();
  face::core &c = *face::core_of(&f);
  face::simdgroup &s = c.simdgroups[f.lane.simdgroup];
  if (s.lanes < FACE_SIMD_WIDTH)
    face::fail(c, "a simdgroup operation in a simdgroup of " + std::to_string(s.lanes) + " threads, " + face::text_of(place));
  if (!c.error.empty()) face::stop(c);
  f.place = place;
  f.state = face::fiber_state::waits_for_lanes;
  if (++s.waiting < s.lanes) return face::wait(c, f);
  s.waiting = 0;
  unsigned first = f.lane.simdgroup * FACE_SIMD_WIDTH;
  face::release(c, first, first + s.lanes, f);
}

FACE_API void face_matrix_missing(face_place place) {
  face::core &c = *face::current_core();
  face::fail(c, "a simdgroup_matrix that has no value yet is read, " + face::text_of(place));
  face::stop(c);
}

FACE_API face_word face_static_threadgroup(int declaration, face_word size) {
  face::core &c = *face::current_core();
  for (size_t i = 0; i < c.allocation_count; i++) {
    const face::allocation &a = c.allocations[i];
    if (a.declaration == declaration && a.length == size) return reinterpret_cast<face_word>(c.arena + a.offset);
  }
  size_t offset = face::allocate(c, declaration, size);
  if (offset == SIZE_MAX) {
    face::fail(c, "more than 32768 bytes of threadgroup memory");
    face::stop(c);
  }
  return reinterpret_cast<face_word>(c.arena + offset);
}

} // extern "C"
