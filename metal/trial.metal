// SPDX-License-Identifier: MIT
// What the build compiles to find out whether there is a Metal compiler: a little of all that the kernels need.
#include <metal_simdgroup_matrix>
#include <metal_stdlib>

constant bool twice [[function_constant(0)]];

kernel void trial(device const half *in [[buffer(0)]], device metal::atomic_float *out [[buffer(1)]]) {
  metal::simdgroup_half8x8 a;
  metal::simdgroup_float8x8 sum = metal::make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  metal::simdgroup_load(a, in, 8);
  metal::simdgroup_multiply_accumulate(sum, a, a, sum);
  metal::atomic_fetch_add_explicit(out, float(in[0]) * (twice ? 2.0f : 1.0f), metal::memory_order_relaxed);
}
