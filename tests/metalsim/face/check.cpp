// SPDX-License-Identifier: MIT
// Every access of a checked build: bounds, races, bytes.
//
// The compiler reports accesses as it does for ThreadSanitizer, but the linker hands the reports to the functions here. A kernel's
// only order is that of barriers, so races are found exactly, in whatever order threads ran: two accesses of one place, one of them a
// write, not both atomic, race
//   - in one threadgroup if no barrier with the flag of that memory lies between them (a simdgroup_barrier serves its simdgroup),
//   - in two threadgroups of a dispatch always.
#include "runtime.h"
#include "settings.h"

#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <iterator>
#include <mutex>
#include <sys/mman.h>

namespace face {

namespace {

enum kinds { read_access = 0, write_access = 1, atomic_access = 2 }; // atomic: bit 1, with read or write

// Who did an access and when. 0: nobody.
struct stamp {
  uint64_t bits;
  static stamp make(uint64_t phase, unsigned simdgroup_phase, bool atomic, unsigned thread) {
    return {phase << 24 | uint64_t(simdgroup_phase & 0xfff) << 12 | uint64_t(atomic) << 10 | thread};
  }
  uint64_t phase() const { return bits >> 24; }
  unsigned simdgroup_phase() const { return bits >> 12 & 0xfff; }
  bool atomic() const { return bits >> 10 & 1; }
  unsigned thread() const { return bits & 0x3ff; }
  unsigned simdgroup() const { return thread() / FACE_SIMD_WIDTH; }
};

// The last accesses of two bytes, or of one that is accessed alone. Two readers are enough: they differ, so a writer differs from one.
struct cell {
  stamp write, reads[2];
  uint32_t write_place, read_place; // in the module
};

constexpr size_t page_bytes = 4096;
struct page {
  cell pairs[page_bytes / 2], singles[page_bytes];
};

enum memories { device_memory, threadgroup_memory };

// One dispatch is checked at a time.
std::mutex checking_lock;
[[gnu::tls_model("initial-exec")]] thread_local core *active;
uint64_t last_phase; // counts barriers and threadgroups, over all dispatches
uint64_t phase[2];   // of each memory: since its last barrier
uint64_t threadgroup_begin, dispatch_begin;
// The shadow of memory: a table with open addressing.
constexpr size_t max_pages = 32768;
struct entry {
  uintptr_t number;
  page *shadow;
} pages[2 * max_pages];
size_t page_count;

void forget_pages() {
  for (entry &e : pages)
    if (e.shadow) munmap(e.shadow, sizeof(page));
  memset(pages, 0, sizeof pages);
  page_count = 0;
}

// NULL: there are too many, or no memory.
page *new_page() {
  if (page_count == max_pages) return nullptr;
  void *memory = mmap(nullptr, sizeof(page), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  page_count++;
  return static_cast<page *>(memory);
}

page *page_of(uintptr_t address) {
  uintptr_t number = address / page_bytes;
  size_t at = number * 0x9e3779b97f4a7c15 >> 48; // 16 bits
  while (pages[at].shadow && pages[at].number != number) at = (at + 1) % (2 * max_pages);
  if (!pages[at].shadow) pages[at] = {number, new_page()};
  return pages[at].shadow;
}

// ---- races ----

// Whether nothing orders an earlier access before the one that `now` stands for. Each threadgroup has threadgroup memory of its own.
bool unordered(stamp before, stamp now, memories memory) {
  if (before.phase() < (memory == device_memory ? dispatch_begin : threadgroup_begin)) return false;
  if (before.phase() < threadgroup_begin) return true;
  if (before.thread() == now.thread() || before.phase() != now.phase()) return false;
  return before.simdgroup() != now.simdgroup() || before.simdgroup_phase() == now.simdgroup_phase();
}

bool conflict(stamp before, stamp now, memories memory) {
  return unordered(before, now, memory) && !(before.atomic() && now.atomic());
}

void remember_read(cell &at, stamp now) {
  stamp &first = at.reads[0], &second = at.reads[1];
  bool other_group = first.phase() >= dispatch_begin && first.phase() < threadgroup_begin;
  if (!other_group && (first.phase() != now.phase() || first.thread() == now.thread() || first.atomic() != now.atomic()))
    first = now;
  else if (second.phase() != now.phase() || second.simdgroup() == first.simdgroup())
    second = now;
}

// Returns the stamp that the access races with, or 0.
stamp update(cell &at, stamp now, memories memory, bool write, uint32_t place, uint32_t &other_place, bool &other_writes) {
  other_place = at.write_place, other_writes = true;
  if (conflict(at.write, now, memory)) return at.write;
  if (!write) {
    remember_read(at, now);
    at.read_place = place;
    return {0};
  }
  other_place = at.read_place, other_writes = false;
  for (stamp before : at.reads)
    if (conflict(before, now, memory)) return before;
  at = {now, {{0}, {0}}, place, 0};
  return {0};
}

// ---- places: an address in the module, or with the top bit the number of a matrix operation's place ----

constexpr uint32_t numbered = 0x80000000;
face_place places_of_matrices[1 << 14];
uint32_t place_count;

bool same(face_place a, face_place b) { return a.file == b.file && a.line == b.line; }

uint32_t number_of(face_place place) {
  static uint32_t last; // most often it is the one before again
  if (last < place_count && same(places_of_matrices[last], place)) return numbered | last;
  for (last = 0; last < place_count; last++)
    if (same(places_of_matrices[last], place)) return numbered | last;
  if (place_count == std::size(places_of_matrices)) place_count = last = 0; // places named before are wrong now, nothing else
  places_of_matrices[place_count++] = place;
  return numbered | last;
}

// ---- messages ----

// The line of the source at an address of the kernel's code: the innermost one that is not in the face's own headers.
std::string line_of(const core &c, uint32_t offset) {
  if (offset & numbered) return text_of(places_of_matrices[offset & ~numbered]);
  Dl_info info;
  if (!dladdr(reinterpret_cast<void *>(c.desc->function->loaded->begin), &info)) return "?";
  char command[4200], line[1000];
  snprintf(command, sizeof command, "addr2line -i -e '%s' 0x%x", info.dli_fname, offset);
  FILE *out = popen(command, "r");
  std::string found = "?";
  while (out && fgets(line, sizeof line, out)) {
    const std::string &cache = get_settings().cache; // the compiler ran here, so names of files start with it
    bool own = !strncmp(line, FACE_DIRECTORY, strlen(FACE_DIRECTORY));
    if (own || found != "?") continue;
    found = std::string(line, strcspn(line, " \n"));
    if (found.substr(0, cache.size()) == cache) found = found.substr(cache.size() + 1);
  }
  if (out) pclose(out);
  return found;
}

std::string buffer_name(const core &c, uintptr_t address) {
  for (const face_argument &a : c.desc->function->arguments) {
    if (a.space == FACE_THREADGROUP) continue;
    const face_binding &b = c.desc->buffers[a.index];
    auto begin = reinterpret_cast<uintptr_t>(b.pointer);
    if (address >= begin && address < begin + b.length) return "byte " + std::to_string(address - begin) + " of '" + a.name + "'";
  }
  return "byte " + std::to_string(address - reinterpret_cast<uintptr_t>(c.arena)) + " of threadgroup memory";
}

void report_race(core &c, uintptr_t address, stamp now, bool write, uint32_t place, stamp before, uint32_t other_place,
                 bool other_writes) {
  bool same_group = before.phase() >= threadgroup_begin;
  fail(c, "race at " + buffer_name(c, address) + ": thread " + std::to_string(now.thread()) + (write ? " writes, " : " reads, ") +
              line_of(c, place) + "; thread " + std::to_string(before.thread()) + (same_group ? "" : " of another threadgroup") +
              (other_writes ? " wrote, " : " read, ") + line_of(c, other_place) +
              (same_group ? ", without a barrier between" : ""));
}

// The buffer or variable nearest to a wrong address helps more than the address.
void report_bounds(core &c, uintptr_t address, size_t size, bool write, uint32_t place) {
  std::string nearest = "nothing that is bound";
  uintptr_t distance = UINTPTR_MAX;
  for (const face_argument &a : c.desc->function->arguments) {
    if (a.space == FACE_THREADGROUP) continue;
    const face_binding &b = c.desc->buffers[a.index];
    auto begin = reinterpret_cast<uintptr_t>(b.pointer);
    uintptr_t away = address < begin ? begin - address : address - begin;
    if (away >= distance) continue;
    distance = away;
    nearest = "'" + std::string(a.name) + "' (" + std::to_string(b.length) + " bytes), at byte " +
              std::to_string(intptr_t(address - begin));
  }
  auto arena = reinterpret_cast<uintptr_t>(c.arena);
  if (address - arena < arena_bytes) nearest = "every variable in threadgroup memory";
  fail(c, "thread " + std::to_string(current_fiber()->lane.index) + (write ? " writes " : " reads ") + std::to_string(size) +
              " bytes outside of " + nearest + ", " + line_of(c, place));
}

// ---- one access ----

bool in_threadgroup_memory(const core &c, uintptr_t address, size_t size) {
  for (size_t i = 0; i < c.allocation_count; i++) {
    const allocation &a = c.allocations[i];
    auto begin = reinterpret_cast<uintptr_t>(c.arena) + a.offset;
    if (address >= begin && address + size <= begin + a.length) return true;
  }
  return false;
}

// The argument whose buffer has it, or nullptr.
const face_argument *argument_at(const core &c, uintptr_t address, size_t size) {
  for (const face_argument &a : c.desc->function->arguments) {
    const face_binding &b = c.desc->buffers[a.index];
    auto begin = reinterpret_cast<uintptr_t>(b.pointer);
    if (a.space != FACE_THREADGROUP && address >= begin && address + size <= begin + b.length) return &a;
  }
  return nullptr;
}

// argument: nullptr for threadgroup memory.
void count(face_counters &n, const face_argument *argument, size_t size, int kind, bool of_matrix) {
  bool write = kind & write_access;
  if (argument && argument->space == FACE_CONSTANT) {
    n.constant_read += size;
    return;
  }
  (argument ? write ? n.device_written : n.device_read : write ? n.threadgroup_written : n.threadgroup_read) += size;
  (argument ? n.device_accesses : n.threadgroup_accesses) += !of_matrix;
}

void check_races(core &c, memories memory, uintptr_t address, size_t size, int kind, uint32_t place) {
  const face_lane &lane = current_fiber()->lane;
  stamp now = stamp::make(phase[memory], c.simdgroups[lane.simdgroup].phase, kind & atomic_access, lane.index);
  size_t step = size == 1 ? 1 : 2;
  for (uintptr_t at = size == 1 ? address : address & ~uintptr_t(1); at < address + size; at += step) {
    page *p = page_of(at);
    if (!p) {
      fail(c, "too much memory is used for a search for races");
      stop(c);
    }
    cell &one = size == 1 ? p->singles[at % page_bytes] : p->pairs[at % page_bytes / 2];
    uint32_t other_place;
    bool other_writes;
    stamp before = update(one, now, memory, kind & write_access, place, other_place, other_writes);
    if (!before.bits) continue;
    report_race(c, at, now, kind & write_access, place, before, other_place, other_writes);
    stop(c);
  }
}

void access_shared(const volatile void *pointer, size_t size, int kind, void *caller) {
  auto address = reinterpret_cast<uintptr_t>(pointer);
  core *c = active;
  if (!c || !size) return;                                             // an initialiser of the library
  if (address - reinterpret_cast<uintptr_t>(c) < sizeof(core)) return; // what the runtime shares with it
  const module &m = *c->desc->function->loaded;
  if (address >= m.begin && address < m.end) return; // constants of the program
  if (!(kind & write_access) && address - absent_argument() < absent_bytes) return;
  face_place within = current_fiber()->lane.within;
  uint32_t place = within.file ? number_of(within) : uint32_t(reinterpret_cast<uintptr_t>(caller) - 1 - m.begin);
  bool local = address - reinterpret_cast<uintptr_t>(c->arena) < arena_bytes;
  const face_argument *argument = local ? nullptr : argument_at(*c, address, size);
  if (local ? !in_threadgroup_memory(*c, address, size) : !argument) {
    report_bounds(*c, address, size, kind & write_access, place);
    stop(*c);
  }
  memories memory = local ? threadgroup_memory : device_memory;
  count(c->counters, argument, size, kind, within.file);
  check_races(*c, memory, address, size, kind, place);
}

// Most accesses are of the thread's own memory.
inline void access(const volatile void *pointer, size_t size, int kind, void *caller) {
  auto here = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  if ((reinterpret_cast<uintptr_t>(pointer) ^ here) >= FACE_ABI_STACK) access_shared(pointer, size, kind, caller);
}

bool is_checked() { return get_settings().kind == build::checked; }

} // namespace

void check_begin(core &c) {
  if (!is_checked()) return;
  checking_lock.lock();
  active = &c;
  dispatch_begin = last_phase + 1;
}

void check_end() {
  if (!is_checked()) return;
  active = nullptr;
  if (page_count > 256) forget_pages(); // 256 pages are 1 MiB of buffers, and 50 of shadow
  checking_lock.unlock();
}

void check_threadgroup() {
  if (is_checked()) threadgroup_begin = phase[0] = phase[1] = ++last_phase;
}

void check_barrier(int flags) {
  if (!is_checked()) return;
  if (flags & FACE_ABI_MEM_DEVICE) phase[device_memory] = ++last_phase;
  if (flags & FACE_ABI_MEM_THREADGROUP) phase[threadgroup_memory] = ++last_phase;
}

} // namespace face

// ---- what the compiler's reports call; the linker's --wrap made these names ----

#define CALLER __builtin_return_address(0)

#define ACCESS(name, size, kind) \
  FACE_API void __wrap___tsan_##name##size(void *p) { face::access(p, size, face::kind, CALLER); }
#define ACCESSES(size)                                                                                   \
  ACCESS(read, size, read_access)                                                                        \
  ACCESS(write, size, write_access)                                                                      \
  ACCESS(unaligned_read, size, read_access)                                                              \
  ACCESS(unaligned_write, size, write_access)                                                            \
  FACE_API void __wrap___tsan_read_write##size(void *p) {                                                \
    face::access(p, size, face::read_access, CALLER), face::access(p, size, face::write_access, CALLER); \
  }                                                                                                      \
  FACE_API void __wrap___tsan_unaligned_read_write##size(void *p) {                                      \
    face::access(p, size, face::read_access, CALLER), face::access(p, size, face::write_access, CALLER); \
  }

// Atomics of the kernels are relaxed; the fourth order is as good as any.
#define CHANGE(bits, T, name)                                                     \
  FACE_API T __wrap___tsan_atomic##bits##_##name(volatile T *p, T v, int) {       \
    face::access(p, sizeof(T), face::atomic_access | face::write_access, CALLER); \
    return __atomic_##name(p, v, __ATOMIC_RELAXED);                               \
  }
#define ATOMICS(bits, T)                                                                                         \
  FACE_API T __wrap___tsan_atomic##bits##_load(const volatile T *p, int) {                                       \
    face::access(p, sizeof(T), face::atomic_access | face::read_access, CALLER);                                 \
    return __atomic_load_n(p, __ATOMIC_RELAXED);                                                                 \
  }                                                                                                              \
  FACE_API void __wrap___tsan_atomic##bits##_store(volatile T *p, T v, int) {                                    \
    face::access(p, sizeof(T), face::atomic_access | face::write_access, CALLER);                                \
    __atomic_store_n(p, v, __ATOMIC_RELAXED);                                                                    \
  }                                                                                                              \
  FACE_API T __wrap___tsan_atomic##bits##_exchange(volatile T *p, T v, int) {                                    \
    face::access(p, sizeof(T), face::atomic_access | face::write_access, CALLER);                                \
    return __atomic_exchange_n(p, v, __ATOMIC_RELAXED);                                                          \
  }                                                                                                              \
  FACE_API T __wrap___tsan_atomic##bits##_compare_exchange_val(volatile T *p, T expected, T desired, int, int) { \
    face::access(p, sizeof(T), face::atomic_access | face::write_access, CALLER);                                \
    __atomic_compare_exchange_n(p, &expected, desired, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);               \
    return expected;                                                                                             \
  }                                                                                                              \
  CHANGE(bits, T, fetch_add)                                                                                     \
  CHANGE(bits, T, fetch_sub)                                                                                     \
  CHANGE(bits, T, fetch_and)                                                                                     \
  CHANGE(bits, T, fetch_or)                                                                                      \
  CHANGE(bits, T, fetch_xor)

extern "C" {

ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)
ATOMICS(8, signed char)
ATOMICS(32, int)

FACE_API void __wrap___tsan_init() {}
FACE_API void __wrap___tsan_func_entry(void *) {}
FACE_API void __wrap___tsan_func_exit() {}
FACE_API void __wrap___tsan_vptr_update(void **, void *) {}
FACE_API void __wrap___tsan_vptr_read(void **) {}

FACE_API void *__wrap___tsan_memcpy(void *to, const void *from, size_t size) {
  face::access(from, size, face::read_access, CALLER), face::access(to, size, face::write_access, CALLER);
  return memcpy(to, from, size);
}
FACE_API void *__wrap___tsan_memmove(void *to, const void *from, size_t size) {
  face::access(from, size, face::read_access, CALLER), face::access(to, size, face::write_access, CALLER);
  return memmove(to, from, size);
}
FACE_API void *__wrap___tsan_memset(void *to, int value, size_t size) {
  face::access(to, size, face::write_access, CALLER);
  return memset(to, value, size);
}

} // extern "C"
