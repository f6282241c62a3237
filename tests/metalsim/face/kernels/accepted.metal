/* SPDX-License-Identifier: MIT
 *
 * What Metal takes, beside features.metal: the face must not be stricter than needed. Nothing runs here.
 */
#include <metal_atomic>
#include <metal_simdgroup>
#include <metal_simdgroup_matrix>
#include <metal_stdlib>
using namespace metal;

#pragma METAL fp math_mode(safe)

/* address spaces: templates over pointers, both orders of qualifiers, overloads by space, arrays of pointers */
template <typename Pointer> METAL_FUNC float first(Pointer p) { return float(p[0]); }
inline float sum(device const float *p, uint n) {
  float s = 0;
  for (uint i = 0; i < n; i++) s += p[i];
  return s;
}
inline float sum(threadgroup const float *p, uint n) {
  float s = 0;
  for (uint i = 0; i < n; i++) s += p[i];
  return s;
}
inline float sum(const constant float *p, uint n) {
  float s = 0;
  for (uint i = 0; i < n; i++) s += p[i];
  return s;
}
inline void add(thread float &s, const thread float &x) { s += x; }

/* classes: constructors, members of all kinds, nested templates, constants inside */
struct alignas(8) block {
  enum { SIZE = 4 };
  static constexpr constant int width = 8;
  device const half *data;
  uint at;
  float sums[SIZE];

  block(device const half *data_, uint at_) thread : data(data_), at(at_) { clear(); }
  void clear() {
    for (int i = 0; i < SIZE; i++) sums[i] = 0;
  }
  float get(int i) const { return sums[i]; }
  thread float &operator[](int i) { return sums[i]; }
  template <typename T> void put(T x) thread { sums[at % SIZE] += float(x); }
  half value() const thread { return data[at]; }
  static METAL_FUNC int twice(int x) { return 2 * x; }
};

struct origin {
  uint x, y;
  uint area() const constant { return x * y; }
};

template <typename T, int N> struct rows {
  T e[N];
  METAL_FUNC T total() const {
    T s = 0;
    for (int i = 0; i < N; i++) s += e[i];
    return s;
  }
};

template <bool B> struct choose { typedef half type; };
template <> struct choose<true> { typedef float type; };

/* constants: tables, made of each other, of function constants */
constant constexpr int sizes[3] = {1, 2, 3};
static constant float table[2][2] = {{1, 2}, {3, 4}};
constant int total = sizes[0] + sizes[2];
constant bool use_bias [[function_constant(7)]];
constant bool plain = !use_bias;

/* C++14 and what its compilers take beyond it */
template <typename T> inline T pick(T a, T b) {
  if constexpr (sizeof(T) == 2)
    return a;
  else
    return b;
}
template <typename... T> inline int count(T... all) { return sizeof...(all); }
constexpr int power(int x, int n) { return n ? x * power(x, n - 1) : 1; }

#define KERNEL(name, T)                                                                                                    \
  [[kernel, max_total_threads_per_threadgroup(64)]] void name(device T *y [[buffer(0)]], constant origin &o [[buffer(1)]], \
                                                              uint2 at [[thread_position_in_grid]],                        \
                                                              uint2 n [[threads_per_grid]]) {                              \
    y[at.y * n.x + at.x] = T(o.area() * power(2, 3));                                                                      \
  }
KERNEL(area_half, half)
KERNEL(area_float, float) KERNEL(area_uint, uint)

    kernel void uses(device const half *x [[buffer(0)]], device float *y [[buffer(1)]], constant float *c [[buffer(2)]],
                     constant origin *origins [[buffer(3)]], const device float *bias [[buffer(4), function_constant(use_bias)]],
                     threadgroup float *shared [[threadgroup(0)]], uint i [[thread_index_in_threadgroup]]) {
  threadgroup float tile[2][32];
  threadgroup half4 vectors[sizes[1]];
  block b(x, i), copy = b;
  b.put(x[0]), b.put(1.5f);
  b[1] = copy.get(1);
  float s = 0;
  add(s, b.get(0));
  add(s, float(x[1]));
  tile[i / 32][i % 32] = s;
  if (i < 2) vectors[i] = *(device const half4 *)(x + 4 * i);
  threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
  const half4 v = i % 2 ? vectors[0] : half4(0);
  rows<float, 2> r = {{1, 2}};
  typename choose<true>::type t = first(c) + first(tile[0]) + first(x) + r.total();
  const thread float *p = b.sums;
  device float *to = y + origins[0].area();
  to[0] =
      sum(c, 2) + sum(&tile[0][0], 2) + sum(y, 1) + p[0] + t + float(v.x) + table[1][0] + total + block::width + block::twice(2);
  to[1] = use_bias ? bias[i] : plain ? 1.0 : 0.5;
  to[2] = pick(1.0h, 2.0h) + count(1, 2.0f, i) + as_type<float>(0x3f800000);
  shared[i] = simd_sum(to[0]) + min(int(i), 3) + max(float(x[0]), 2.0f);
  to[3] = shared[i];
}

kernel void empty() {}
