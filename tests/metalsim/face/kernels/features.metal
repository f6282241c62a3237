/* SPDX-License-Identifier: MIT
 *
 * Kernels that are right. What each must give stands in test_face.c.
 */
#include <metal_simdgroup_matrix>
#include <metal_stdlib>
using namespace metal;

/* ---- arguments ---- */

struct scale_params {
  uint count;
  float factor;
  float2 pair;
};

kernel void scale(device const float *x [[buffer(0)]], device float *y [[buffer(2)]], constant scale_params &p [[buffer(5)]],
                  uint i [[thread_position_in_grid]]) {
  if (i < p.count) y[i] = x[i] * p.factor + p.pair.y;
}

/* Every position, as numbers: 16 for each thread. */
kernel void positions(device uint *out [[buffer(0)]], uint3 grid [[thread_position_in_grid]], uint3 grid_size [[threads_per_grid]],
                      ushort3 local_position [[thread_position_in_threadgroup]], ushort3 local_size [[threads_per_threadgroup]],
                      uint2 group [[threadgroup_position_in_grid]], uint2 groups [[threadgroups_per_grid]],
                      ushort index [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                      uint simdgroup [[simdgroup_index_in_threadgroup]], uint simdgroups [[simdgroups_per_threadgroup]],
                      uint width [[threads_per_simdgroup]]) {
  device uint *o = out + 16 * (((group.y * groups.x + group.x) * (local_size.x * local_size.y * local_size.z)) + index);
  o[0] = grid.x, o[1] = grid.y, o[2] = grid.z, o[3] = grid_size.x * 10000 + grid_size.y * 100 + grid_size.z;
  o[4] = local_position.x, o[5] = local_position.y, o[6] = local_position.z;
  o[7] = index, o[8] = lane, o[9] = simdgroup, o[10] = simdgroups, o[11] = width;
}

/* ---- function constants ---- */

constant bool has_bias [[function_constant(0)]];
constant uint shift [[function_constant(1)]];
constant float rate [[function_constant(2)]];
constant short hop [[function_constant(3)]];
constant uint shifted = is_function_constant_defined(shift) ? shift + 1 : 100u;
constant bool has_extra = has_bias && shifted > 5;

inline float rate_of(float x) { return x * rate; }

kernel void constants(device float *y [[buffer(0)]], device const float *bias [[buffer(1), function_constant(has_bias)]],
                      device const float *extra [[buffer(2), function_constant(has_extra)]], uint i [[thread_position_in_grid]]) {
  float v = float(shifted);
  if (has_bias) v += bias[i];
  if (has_extra) v += extra[i];
  y[i] = v;
}

kernel void constant_of_a_callee(device float *y [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  y[i] = rate_of(float(i)) + float(hop);
}

kernel void no_constants(device uint *y [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  const uint rate_of = 1; /* a variable of a function's name is no call */
  y[i] = i + rate_of;
}

/* ---- threadgroup memory and barriers ---- */

kernel void reverse(device uint *data [[buffer(0)]], threadgroup uint *given [[threadgroup(1)]],
                    uint i [[thread_index_in_threadgroup]], uint n [[threads_per_threadgroup]]) {
  threadgroup uint own[256], other[2][128];
  given[i] = data[i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  own[i] = given[n - 1 - i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  other[i / 128][i % 128] = own[i ^ 1];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  data[i] = other[(i ^ 1) / 128][(i ^ 1) % 128];
}

/* The sum over a simdgroup by steps, with simdgroup barriers between. */
kernel void simdgroup_steps(device uint *data [[buffer(0)]], uint i [[thread_index_in_threadgroup]],
                            uint lane [[thread_index_in_simdgroup]]) {
  threadgroup uint sums[128];
  sums[i] = data[i];
  for (uint half_width = 16; half_width; half_width /= 2) {
    simdgroup_barrier(mem_flags::mem_threadgroup);
    if (lane < half_width) sums[i] += sums[i + half_width];
  }
  simdgroup_barrier(mem_flags::mem_threadgroup);
  data[i] = sums[i - lane];
}

kernel void unwritten_threadgroup_memory(device float *y [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
  threadgroup float never[64];
  threadgroup half never_half[64];
  y[2 * i] = never[i], y[2 * i + 1] = never_half[i];
}

kernel [[max_total_threads_per_threadgroup(64)]] void at_most_64(device uint *y [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  y[i] = i;
}

/* ---- simdgroups ---- */

kernel void simd_functions(device float *f [[buffer(0)]], device uint *u [[buffer(1)]], uint i [[thread_index_in_threadgroup]],
                           ushort lane [[thread_index_in_simdgroup]]) {
  const float x = f[i];
  device uint *o = u + 16 * i;
  f[i] = simd_sum(x);
  o[0] = simd_max(i), o[1] = simd_min(i), o[2] = simd_shuffle(i, ushort(31 - lane)), o[3] = simd_shuffle_xor(i, 1);
  o[4] = simd_shuffle_up(i, 3), o[5] = simd_shuffle_down(i, 3), o[6] = simd_broadcast(i, 7), o[7] = simd_broadcast_first(i);
  o[8] = simd_prefix_inclusive_sum(i), o[9] = simd_prefix_exclusive_sum(i), o[10] = simd_any(lane == 5),
  o[11] = simd_all(lane < 31);
  o[12] = simd_or(1u << lane), o[13] = simd_xor(i), o[14] = simd_and(i | 1),
  o[15] = as_type<uint>(simd_product(lane < 4 ? 2.0f : 1.0f));
}

/* ---- matrices ---- */

/* D = A * B + C with its types, through threadgroup memory, with strides, origins and transposes. */
template <typename T, typename S, bool transpose_a, bool transpose_b>
void multiply(device const T *A, device const T *B, device const S *C, device S *D, threadgroup T *a_tile, threadgroup T *b_tile,
              uint i) {
  for (uint e = i; e < 12 * 20; e += 32) a_tile[e] = A[e], b_tile[e] = B[e];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  simdgroup_matrix<T, 8, 8> a, b;
  simdgroup_matrix<S, 8, 8> sum;
  simdgroup_load(a, a_tile, 20, ulong2(3, 2), transpose_a);
  simdgroup_load(b, b_tile, 20, ulong2(1, 4), transpose_b);
  simdgroup_load(sum, C);
  simdgroup_multiply_accumulate(sum, a, b, sum);
  simdgroup_store(sum, D, 16, ulong2(8, 1), transpose_a);
}

#define MULTIPLY(name, T, S, transpose_a, transpose_b)                                                                \
  kernel void name(device const T *A [[buffer(0)]], device const T *B [[buffer(1)]], device const S *C [[buffer(2)]], \
                   device S *D [[buffer(3)]], uint i [[thread_index_in_threadgroup]]) {                               \
    threadgroup T a_tile[240], b_tile[240];                                                                           \
    multiply<T, S, transpose_a, transpose_b>(A, B, C, D, a_tile, b_tile, i);                                          \
  }
MULTIPLY(multiply_half_float_nn, half, float, false, false)
MULTIPLY(multiply_half_float_nt, half, float, false, true)
MULTIPLY(multiply_half_float_tn, half, float, true, false)
MULTIPLY(multiply_half_half_nn, half, half, false, false)
MULTIPLY(multiply_float_float_tt, float, float, true, true)

/* 64 elements each: filled, diagonal, product without a sum, a copy of a copy. */
kernel void matrix_makers(device float *y [[buffer(0)]]) {
  const simdgroup_float8x8 filled = make_filled_simdgroup_matrix<float, 8, 8>(3.0f);
  const simdgroup_float8x8 diagonal = simdgroup_float8x8(2.0f);
  simdgroup_float8x8 product;
  simdgroup_multiply(product, filled, diagonal);
  simdgroup_float8x8 copies[2] = {product, diagonal};
  copies[1] = copies[0];
  simdgroup_store(filled, y);
  simdgroup_store(diagonal, y + 64);
  simdgroup_store(product, y + 128);
  simdgroup_store(copies[1], y + 192);
}

/* Writes its own elements, and doubles those that it got. */
kernel void matrix_elements(device float *y [[buffer(0)]], device float *seen [[buffer(1)]],
                            ushort lane [[thread_index_in_simdgroup]]) {
  simdgroup_float8x8 m;
  simdgroup_load(m, y);
  thread auto &mine = m.thread_elements();
  seen[2 * lane] = mine[0], seen[2 * lane + 1] = mine[1];
  mine *= 2.0f;
  simdgroup_store(m, y);
}

/* ---- numbers ---- */

kernel void halves(device const half *x [[buffer(0)]], device half *y [[buffer(1)]], device float *f [[buffer(2)]],
                   uint i [[thread_position_in_grid]]) {
  const half a = x[2 * i], b = x[2 * i + 1];
  y[4 * i] = a + b, y[4 * i + 1] = a * b, y[4 * i + 2] = half(float(a) / 3.0f), y[4 * i + 3] = a * b + 1.0h;
  f[i] = float(a) + float(b);
}

kernel void floats(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = x[i] * 0.5f; }

/* 1 where it holds. */
kernel void functions(device uint *y [[buffer(0)]]) {
  uint n = 0;
#define HOLDS(x) y[n++] = (x) ? 1 : 0
  HOLDS(min(3, 4) == 3 && max(3u, 4u) == 4u && clamp(7, 0, 5) == 5 && min(short(3), short(-4)) == -4);
  HOLDS(max(1.5h, 2.5h) == 2.5h && min(1.5f, NAN) == 1.5f && isnan(NAN) && isinf(-INFINITY) && !isfinite(INFINITY));
  HOLDS(abs(-3) == 3 && abs(-2.5f) == 2.5f && fma(2.0f, 3.0f, 4.0f) == 10.0f && select(1, 2, true) == 2);
  HOLDS(as_type<uint>(1.0f) == 0x3f800000u && as_type<ushort>(1.0h) == 0x3c00 && as_type<float>(0x40000000) == 2.0f);
  HOLDS(popcount(0xf0u) == 4 && clz(1u) == 31 && ctz(8u) == 3 && clz(ushort(1)) == 15 && mulhi(0x80000000u, 6u) == 3u);
  HOLDS(all(int4(1, 2, 3, 4) == int4(1, 2, 3, 4)) && any(float2(1.0f) > float2(2.0f, 0.5f)) &&
        dot(float3(1, 2, 3), float3(1, 1, 2)) == 9);
  HOLDS(sqrt(9.0f) == 3.0f && floor(-1.5f) == -2.0f && ceil(1.25h) == 2.0h && rint(2.5f) == 2.0f && precise::exp(0.0f) == 1.0f);
  HOLDS(numeric_limits<half>::max() == 65504.0h && numeric_limits<int>::min() == INT_MIN &&
        isinf(numeric_limits<float>::infinity()));
  const half4 v = half4(1, 2, 3, 4);
  const float4 w = float4(float2(v.xy), 0.5f, 7);
  HOLDS(v.w == 4.0h && w.y == 2.0f && w.z == 0.5f && float4(v).z == 3.0f && (v + v).x == 2.0h && v.zw.y == 4.0h &&
        half4(2)[3] == 2.0h);
  HOLDS((is_same_v<remove_const_t<const half>, half>)&&sizeof(float3) == 16 && sizeof(half4) == 8 && sizeof(ulong) == 8);
  uint3 place(4, 5, 6);
  place.yz = uint2(8, 9);
  HOLDS(place.x == 4 && place.y == 8 && place.z == 9 && uint2(place.xy).y == 8 && 1.0 + 1e-9 == 1.0f);
}

kernel void atomics(device atomic_float *f [[buffer(0)]], device atomic_uint *u [[buffer(1)]], device uint *y [[buffer(2)]],
                    uint i [[thread_position_in_grid]], uint local_index [[thread_index_in_threadgroup]]) {
  threadgroup atomic_uint shared;
  if (local_index == 0) atomic_store_explicit(&shared, 0u, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  atomic_fetch_add_explicit(f, 0.5f, memory_order_relaxed);
  atomic_fetch_max_explicit(u, i, memory_order_relaxed);
  atomic_fetch_or_explicit(u + 1, 1u << (i % 32), memory_order_relaxed);
  atomic_fetch_add_explicit(&shared, 1u, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  y[i] = atomic_load_explicit(&shared, memory_order_relaxed);
}
