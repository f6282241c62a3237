/* SPDX-License-Identifier: MIT */
/* The functions of metal_common, metal_integer, metal_math and metal_geometric, on scalars and, element by element, on vectors.
 *
 * Each scalar function is an overload for its very types, none is a template: so a call whose arguments differ in type is as
 * ambiguous as in Metal. half is computed in float and rounded once. */
#define FACE_PURE constexpr FACE_INLINE

namespace face {
/* What a comparison of vectors gives: integers, 0 or -1. */
template <class T, int N> using mask = decltype(metal::vec<T, N>() == metal::vec<T, N>());
} // namespace face

namespace metal {

#define FACE_BOTH(T)                                                       \
  FACE_PURE T min(T a, T b) { return b < a ? b : a; }                      \
  FACE_PURE T max(T a, T b) { return a < b ? b : a; }                      \
  FACE_PURE T clamp(T x, T low, T high) { return min(max(x, low), high); } \
  FACE_PURE T select(T a, T b, bool c) { return c ? b : a; }
FACE_INTEGERS(FACE_BOTH)
#undef FACE_BOTH

#define FACE_INTEGER(T)                                                                                   \
  FACE_PURE T abs(T a) { return a < T(0) ? T(-a) : a; }                                                   \
  FACE_PURE T popcount(T a) { return T(__builtin_popcountl(ulong(a) & (~0ul >> (64 - 8 * sizeof(T))))); } \
  FACE_PURE T clz(T a) {                                                                                  \
    ulong u = ulong(a) & (~0ul >> (64 - 8 * sizeof(T)));                                                  \
    return T(u ? __builtin_clzl(u) - int(64 - 8 * sizeof(T)) : int(8 * sizeof(T)));                       \
  }                                                                                                       \
  FACE_PURE T ctz(T a) { return T(a ? __builtin_ctzl(ulong(a)) : int(8 * sizeof(T))); }                   \
  FACE_PURE T mulhi(T a, T b) { return T(__int128(a) * __int128(b) >> (8 * sizeof(T))); }                 \
  FACE_PURE T absdiff(T a, T b) { return a < b ? T(b - a) : T(a - b); }
FACE_INTEGERS(FACE_INTEGER)
#undef FACE_INTEGER
FACE_PURE int mul24(int a, int b) { return a * b; }
FACE_PURE uint mul24(uint a, uint b) { return a * b; }
FACE_PURE int mad24(int a, int b, int c) { return a * b + c; }
FACE_PURE uint mad24(uint a, uint b, uint c) { return a * b + c; }

} // namespace metal

// clang-format off
#define FACE_UNARY(X) \
  X(fabs) X(sqrt) X(exp) X(exp2) X(log) X(log2) X(log10) X(sin) X(cos) X(tan) X(asin) X(acos) X(atan) X(sinh) X(cosh) X(tanh) \
  X(floor) X(ceil) X(trunc) X(rint) X(round)
// clang-format on
#define FACE_TWO(X) X(pow) X(fmin) X(fmax) X(fmod) X(copysign) X(atan2)

#define FACE_NAMED(name) extern "C" float name##f(float);
FACE_UNARY(FACE_NAMED)
#undef FACE_NAMED
#define FACE_NAMED(name) extern "C" float name##f(float, float);
FACE_TWO(FACE_NAMED)
#undef FACE_NAMED

namespace metal {

#define FACE_NAMED(name)                                                        \
  FACE_INLINE float name(float a) { return __builtin_##name##f(a); }            \
  FACE_INLINE half name(half a) { return half(__builtin_##name##f(float(a))); } \
  template <class T, int N> FACE_INLINE vec<T, N> name(vec<T, N> a) {           \
    for (int i = 0; i < N; i++) a[i] = name(a[i]);                              \
    return a;                                                                   \
  }
FACE_UNARY(FACE_NAMED)
#undef FACE_NAMED
#define FACE_NAMED(name)                                                                          \
  FACE_INLINE float name(float a, float b) { return __builtin_##name##f(a, b); }                  \
  FACE_INLINE half name(half a, half b) { return half(__builtin_##name##f(float(a), float(b))); } \
  template <class T, int N> FACE_INLINE vec<T, N> name(vec<T, N> a, vec<T, N> b) {                \
    for (int i = 0; i < N; i++) a[i] = name(a[i], b[i]);                                          \
    return a;                                                                                     \
  }
FACE_TWO(FACE_NAMED)
#undef FACE_NAMED

#define FACE_FLOAT(T, bits, exponent, top)                                                              \
  FACE_INLINE T min(T a, T b) { return fmin(a, b); }                                                    \
  FACE_INLINE T max(T a, T b) { return fmax(a, b); }                                                    \
  FACE_INLINE T clamp(T x, T low, T high) { return fmin(fmax(x, low), high); }                          \
  FACE_INLINE T saturate(T x) { return clamp(x, T(0), T(1)); }                                          \
  FACE_PURE T select(T a, T b, bool c) { return c ? b : a; }                                            \
  FACE_INLINE T abs(T a) { return fabs(a); }                                                            \
  FACE_INLINE T rsqrt(T a) { return T(1.0f / __builtin_sqrtf(float(a))); }                              \
  FACE_INLINE T powr(T a, T b) { return pow(a, b); }                                                    \
  FACE_INLINE T mix(T a, T b, T t) { return a + (b - a) * t; }                                          \
  FACE_INLINE T step(T edge, T x) { return x < edge ? T(0) : T(1); }                                    \
  FACE_INLINE T fract(T x) { return fmin(x - floor(x), T(as_type<T>(bits(as_type<bits>(T(1)) - 1)))); } \
  FACE_INLINE T ldexp(T x, int k) { return T(float(x) * __builtin_ldexpf(1.0f, k)); }                   \
  FACE_PURE bool isnan(T a) { return (as_type<bits>(a) & bits(~top)) > exponent; }                      \
  FACE_PURE bool isinf(T a) { return (as_type<bits>(a) & bits(~top)) == exponent; }                     \
  FACE_PURE bool isfinite(T a) { return (as_type<bits>(a) & exponent) != exponent; }                    \
  FACE_PURE bool isnormal(T a) { return isfinite(a) && (as_type<bits>(a) & exponent) != 0; }            \
  FACE_PURE bool signbit(T a) { return (as_type<bits>(a) & top) != 0; }                                 \
  FACE_INLINE T sign(T a) { return a > T(0) ? T(1) : a < T(0) ? T(-1) : isnan(a) ? T(0) : a; }
FACE_FLOAT(float, uint, 0x7f800000u, 0x80000000u)
FACE_FLOAT(half, ushort, 0x7c00, 0x8000)
#undef FACE_FLOAT
FACE_INLINE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
FACE_INLINE half fma(half a, half b, half c) { return half(__builtin_fmaf(float(a), float(b), float(c))); }

#define FACE_ELEMENTS(f)                                                        \
  template <class T, int N> FACE_INLINE vec<T, N> f(vec<T, N> a, vec<T, N> b) { \
    for (int i = 0; i < N; i++) a[i] = f(a[i], b[i]);                           \
    return a;                                                                   \
  }
FACE_ELEMENTS(min)
FACE_ELEMENTS(max)
FACE_ELEMENTS(absdiff)
FACE_ELEMENTS(mulhi)
FACE_ELEMENTS(step)
#undef FACE_ELEMENTS
#define FACE_ELEMENTS(f)                                           \
  template <class T, int N> FACE_INLINE vec<T, N> f(vec<T, N> a) { \
    for (int i = 0; i < N; i++) a[i] = f(a[i]);                    \
    return a;                                                      \
  }
FACE_ELEMENTS(abs)
FACE_ELEMENTS(rsqrt)
FACE_ELEMENTS(saturate)
FACE_ELEMENTS(popcount)
FACE_ELEMENTS(clz)
FACE_ELEMENTS(ctz)
FACE_ELEMENTS(sign)
#undef FACE_ELEMENTS
#define FACE_ELEMENTS(f)                                                  \
  template <class T, int N> FACE_INLINE face::mask<T, N> f(vec<T, N> a) { \
    face::mask<T, N> r;                                                   \
    for (int i = 0; i < N; i++) r[i] = f(a[i]) ? -1 : 0;                  \
    return r;                                                             \
  }
FACE_ELEMENTS(isnan)
FACE_ELEMENTS(isinf)
FACE_ELEMENTS(isfinite)
FACE_ELEMENTS(isnormal)
FACE_ELEMENTS(signbit)
#undef FACE_ELEMENTS
template <class T, int N> FACE_INLINE vec<T, N> clamp(vec<T, N> x, vec<T, N> low, vec<T, N> high) { return min(max(x, low), high); }
template <class T, int N> FACE_INLINE vec<T, N> fma(vec<T, N> a, vec<T, N> b, vec<T, N> c) {
  for (int i = 0; i < N; i++) a[i] = fma(a[i], b[i], c[i]);
  return a;
}
template <class T, int N> FACE_INLINE vec<T, N> mix(vec<T, N> a, vec<T, N> b, vec<T, N> t) {
  for (int i = 0; i < N; i++) a[i] = mix(a[i], b[i], t[i]);
  return a;
}
template <class T, class M, int N> FACE_INLINE vec<T, N> select(vec<T, N> a, vec<T, N> b, vec<M, N> c) {
  for (int i = 0; i < N; i++) a[i] = c[i] ? b[i] : a[i];
  return a;
}

template <class M, int N> FACE_INLINE bool all(vec<M, N> a) {
  bool r = true;
  for (int i = 0; i < N; i++) r &= a[i] != 0;
  return r;
}
template <class M, int N> FACE_INLINE bool any(vec<M, N> a) {
  bool r = false;
  for (int i = 0; i < N; i++) r |= a[i] != 0;
  return r;
}
template <class T, int N> FACE_INLINE T dot(vec<T, N> a, vec<T, N> b) {
  T sum = T(0);
  for (int i = 0; i < N; i++) sum += a[i] * b[i];
  return sum;
}

namespace precise {
using namespace metal;
}
namespace fast {
using namespace metal;
}

} // namespace metal
