/* SPDX-License-Identifier: MIT */
/* Barriers and the functions of a simdgroup. */
namespace metal {

enum class mem_flags : int {
  mem_none = 0,
  mem_device = FACE_ABI_MEM_DEVICE,
  mem_threadgroup = FACE_ABI_MEM_THREADGROUP,
  mem_texture = 4
};
constexpr FACE_INLINE mem_flags operator|(mem_flags a, mem_flags b) { return mem_flags(int(a) | int(b)); }

FACE_INLINE void threadgroup_barrier(mem_flags flags, face_place at = FACE_HERE) { face_threadgroup_barrier(int(flags), at); }
FACE_INLINE void simdgroup_barrier(mem_flags flags, face_place at = FACE_HERE) { face_simdgroup_barrier(int(flags), at); }

} // namespace metal

namespace face {

/* The values of all lanes. Every lane of the simdgroup must come here, and finds the others' values. */
template <class T> struct lanes {
  T e[FACE_ABI_LANES];
  lanes(T mine, face_place at) {
    static_assert(sizeof(T) <= FACE_ABI_SLOT, "a value of at most 16 bytes");
    face_word slots = face_exchange_begin();
    *(thread T *)(slots + self().lane * FACE_ABI_SLOT) = mine;
    face_exchange_end(at);
    for (int i = 0; i < FACE_ABI_LANES; i++) e[i] = *(thread T *)(slots + i * FACE_ABI_SLOT);
  }
};

/* Reductions pair lanes at distance 16, 8, 4, 2, 1, so every lane gets the same bits. */
template <class T, class F> T reduce(T x, F f, face_place at) {
  lanes<T> all(x, at);
  for (int half_width = FACE_ABI_LANES / 2; half_width; half_width /= 2)
    for (int i = 0; i < half_width; i++) all.e[i] = f(all.e[i], all.e[i + half_width]);
  return all.e[0];
}

} // namespace face

namespace metal {

#define FACE_REDUCE(name, expression)                         \
  template <class T> T name(T x, face_place at = FACE_HERE) { \
    return face::reduce(                                      \
        x, [](T a, T b) { return T(expression); }, at);       \
  }
FACE_REDUCE(simd_sum, a + b)
FACE_REDUCE(simd_product, a *b)
FACE_REDUCE(simd_min, min(a, b))
FACE_REDUCE(simd_max, max(a, b))
FACE_REDUCE(simd_and, a &b)
FACE_REDUCE(simd_or, a | b)
FACE_REDUCE(simd_xor, a ^ b)
#undef FACE_REDUCE
inline bool simd_all(bool x, face_place at = FACE_HERE) { return simd_and(int(x), at); }
inline bool simd_any(bool x, face_place at = FACE_HERE) { return simd_or(int(x), at); }

/* A lane reads its own value where the one it asks for does not exist. */
#define FACE_SHUFFLE(name, from)                                             \
  template <class T> T name(T x, ushort n, face_place at = FACE_HERE) {      \
    uint lane = face::self().lane, source = from;                            \
    return face::lanes<T>(x, at).e[source < FACE_ABI_LANES ? source : lane]; \
  }
FACE_SHUFFLE(simd_shuffle, n)
FACE_SHUFFLE(simd_broadcast, n)
FACE_SHUFFLE(simd_shuffle_xor, lane ^ n)
FACE_SHUFFLE(simd_shuffle_up, lane - n)
FACE_SHUFFLE(simd_shuffle_down, lane + n)
FACE_SHUFFLE(simd_shuffle_rotate_up, (lane - n) % FACE_ABI_LANES)
FACE_SHUFFLE(simd_shuffle_rotate_down, (lane + n) % FACE_ABI_LANES)
#undef FACE_SHUFFLE
template <class T> T simd_broadcast_first(T x, face_place at = FACE_HERE) { return simd_broadcast(x, 0, at); }
inline bool simd_is_first() { return face::self().lane == 0; }

template <class T> T simd_prefix_inclusive_sum(T x, face_place at = FACE_HERE) {
  face::lanes<T> all(x, at);
  T sum = T(0);
  for (uint i = 0; i <= face::self().lane; i++) sum += all.e[i];
  return sum;
}
template <class T> T simd_prefix_exclusive_sum(T x, face_place at = FACE_HERE) {
  face::lanes<T> all(x, at);
  T sum = T(0);
  for (uint i = 0; i < face::self().lane; i++) sum += all.e[i];
  return sum;
}

} // namespace metal
