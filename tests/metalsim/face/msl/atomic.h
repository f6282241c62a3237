/* SPDX-License-Identifier: MIT */
/* Atomics of metal3.0: 32-bit integers in device and threadgroup memory, float in device memory only, relaxed order only. */
namespace metal {

enum memory_order { memory_order_relaxed = 0 };

template <class T> struct atomic {
  static_assert(is_same_v<T, int> || is_same_v<T, uint> || is_same_v<T, bool> || is_same_v<T, float>,
                "atomic int, uint, bool or float");
  T value;
  atomic() = default;
  atomic(const atomic &) = delete;
  void operator=(const atomic &) = delete;
};
using atomic_int = atomic<int>;
using atomic_uint = atomic<uint>;
using atomic_bool = atomic<bool>;
using atomic_float = atomic<float>;

/* The builtins want all their pointers in one address space. */
#define FACE_PLACE(T) ((volatile thread T *)(ulong)&p->value)
#define FACE_ACCESS(space, T)                                                                                                      \
  FACE_INLINE T atomic_load_explicit(const volatile space atomic<T> *p, memory_order) {                                            \
    T value;                                                                                                                       \
    __atomic_load(FACE_PLACE(T), &value, __ATOMIC_RELAXED);                                                                        \
    return value;                                                                                                                  \
  }                                                                                                                                \
  FACE_INLINE void atomic_store_explicit(volatile space atomic<T> *p, T value, memory_order) {                                     \
    __atomic_store(FACE_PLACE(T), &value, __ATOMIC_RELAXED);                                                                       \
  }                                                                                                                                \
  FACE_INLINE T atomic_exchange_explicit(volatile space atomic<T> *p, T value, memory_order) {                                     \
    T before;                                                                                                                      \
    __atomic_exchange(FACE_PLACE(T), &value, &before, __ATOMIC_RELAXED);                                                           \
    return before;                                                                                                                 \
  }                                                                                                                                \
  FACE_INLINE bool atomic_compare_exchange_weak_explicit(volatile space atomic<T> *p, thread T *expected, T desired, memory_order, \
                                                         memory_order) {                                                           \
    return __atomic_compare_exchange(FACE_PLACE(T), expected, &desired, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED);                 \
  }

/* Any change, as a loop over the exchange: f says what comes after `before`. */
#define FACE_CHANGE(space, T, name, after)                                                                 \
  FACE_INLINE T atomic_fetch_##name##_explicit(volatile space atomic<T> *p, T value, memory_order order) { \
    T before = atomic_load_explicit(p, order);                                                             \
    while (!atomic_compare_exchange_weak_explicit(p, (thread T *)&before, T(after), order, order)) {       \
    }                                                                                                      \
    return before;                                                                                         \
  }
#define FACE_INTEGER(space, T)                   \
  FACE_ACCESS(space, T)                          \
  FACE_CHANGE(space, T, add, before + value)     \
  FACE_CHANGE(space, T, sub, before - value)     \
  FACE_CHANGE(space, T, and, before &value)      \
  FACE_CHANGE(space, T, or, before | value)      \
  FACE_CHANGE(space, T, xor, before ^ value)     \
  FACE_CHANGE(space, T, min, min(before, value)) \
  FACE_CHANGE(space, T, max, max(before, value))
FACE_INTEGER(device, int)
FACE_INTEGER(device, uint)
FACE_INTEGER(threadgroup, int)
FACE_INTEGER(threadgroup, uint)
FACE_ACCESS(device, bool)
FACE_ACCESS(threadgroup, bool)
FACE_ACCESS(device, float)
FACE_CHANGE(device, float, add, before + value)
FACE_CHANGE(device, float, sub, before - value)
#undef FACE_INTEGER
#undef FACE_CHANGE
#undef FACE_ACCESS
#undef FACE_PLACE

} // namespace metal
