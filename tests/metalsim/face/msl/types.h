/* SPDX-License-Identifier: MIT */
/* Address spaces, scalar and vector types. The preprocessed source follows these headers in one translation unit. */
#define device __global
#define threadgroup __local
#define thread __private
#define half _Float16

/* OpenCL declares these names itself. */
#define atomic_int face_atomic_int
#define atomic_uint face_atomic_uint
#define atomic_float face_atomic_float
#define memory_order face_memory_order
#define memory_order_relaxed face_memory_order_relaxed

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long int64_t;
typedef uchar uint8_t;
typedef ushort uint16_t;
typedef uint uint32_t;
typedef ulong uint64_t;
typedef ulong size_t;
typedef long ptrdiff_t;
typedef ulong uintptr_t;
typedef long intptr_t;

#define FACE_INLINE inline __attribute__((always_inline))

/* Every arithmetic type, in one list for all that is written once for each. */
#define FACE_INTEGERS(X) X(char) X(uchar) X(short) X(ushort) X(int) X(uint) X(long) X(ulong)
#define FACE_FLOATS(X) X(half) X(float)
#define FACE_SCALARS(X) FACE_INTEGERS(X) FACE_FLOATS(X)

/* Vectors are clang's own. What stands between them and Metal's is vec<bool, N>, which there is not, and Metal's way to build one from
 * several values: the translation turns float4(a, b) into face::make<float4>(a, b). */
namespace metal {

template <class T, int N> using vec = T __attribute__((ext_vector_type(N)));

#define FACE_VECTORS(T)   \
  using T##2 = vec<T, 2>; \
  using T##3 = vec<T, 3>; \
  using T##4 = vec<T, 4>;
FACE_SCALARS(FACE_VECTORS)
#undef FACE_VECTORS

} // namespace metal

namespace face {

template <class V> struct vector_of;
template <class T, int N> struct vector_of<T __attribute__((ext_vector_type(N)))> {
  using element = T;
  enum { size = N };
};

template <class V> struct maker {
  using element = typename vector_of<V>::element;
  V made;
  int filled = 0;
  template <class T> constexpr void add(T scalar) { made[filled++] = element(scalar); }
  template <class T, int N> constexpr void add(metal::vec<T, N> part) {
    for (int i = 0; i < N; i++) made[filled++] = element(part[i]);
  }
};

template <class T> struct count_of {
  enum { value = 1 };
};
template <class T, int N> struct count_of<T __attribute__((ext_vector_type(N)))> {
  enum { value = N };
};

/* One scalar fills all elements, one vector is converted; else the values are the elements in order. */
template <class V, class... Parts> constexpr FACE_INLINE V make(Parts... parts) {
  constexpr int count = (int(count_of<Parts>::value) + ...), size = vector_of<V>::size;
  static_assert(count == size || count == 1, "as many values as the vector has elements");
  maker<V> m = {};
  (m.add(parts), ...);
  return count == 1 ? V(m.made[0]) : m.made;
}

} // namespace face

#if __METAL_VERSION__ >= 310
typedef __bf16 bfloat;
namespace metal {
using bfloat2 = vec<bfloat, 2>;
using bfloat4 = vec<bfloat, 4>;
} // namespace metal
#endif

template <class To, class From> constexpr FACE_INLINE To as_type(From from) {
  static_assert(sizeof(To) == sizeof(From), "as_type keeps the size");
  return __builtin_bit_cast(To, from);
}
