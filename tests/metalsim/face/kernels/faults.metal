/* SPDX-License-Identifier: MIT
 *
 * Kernels with one fault each. Which check finds which, and what it says: test_faults.c. Lines are counted from each kernel's first.
 */
#include <metal_simdgroup_matrix>
#include <metal_stdlib>
using namespace metal;

/* ---- divergence: found in every build ---- */

#line 1 "barrier_under_if"
kernel void barrier_under_if(device uint *y [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
  if (i < 40) threadgroup_barrier(mem_flags::mem_threadgroup);
  y[i] = i;
}

#line 1 "early_return"
kernel void early_return(device uint *y [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
  if (i >= 50) return;
  y[i] = i;
  threadgroup_barrier(mem_flags::mem_device);
}

#line 1 "two_barriers"
kernel void two_barriers(device uint *y [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
  if (i < 32)
    threadgroup_barrier(mem_flags::mem_device);
  else
    threadgroup_barrier(mem_flags::mem_threadgroup);
  y[i] = i;
}

#line 1 "sum_under_if"
kernel void sum_under_if(device uint *y [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
  y[i] = i;
  if (i % 2) y[i] = simd_sum(i);
}

#line 1 "simdgroup_barrier_under_if"
kernel void simdgroup_barrier_under_if(device uint *y [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
  if (i != 33) simdgroup_barrier(mem_flags::mem_threadgroup);
  y[i] = i;
}

#line 1 "matrix_under_if"
kernel void matrix_under_if(device float *y [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
  simdgroup_float8x8 m = make_filled_simdgroup_matrix<float, 8, 8>(1.0f);
  if (i % 32 < 20) simdgroup_store(m, y + i / 32 * 64);
  threadgroup_barrier(mem_flags::mem_device);
}

#line 1 "matrix_arguments_differ"
kernel void matrix_arguments_differ(device float *y [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
  simdgroup_float8x8 m = make_filled_simdgroup_matrix<float, 8, 8>(1.0f);
  simdgroup_store(m, y + i % 2);
}

#line 1 "matrix_without_value"
kernel void matrix_without_value(device float *y [[buffer(0)]]) {
  simdgroup_float8x8 m;
  simdgroup_store(m, y);
}

#line 1 "too_much_memory"
kernel void too_much_memory(device float *y [[buffer(0)]], threadgroup float *given [[threadgroup(0)]],
                            uint i [[thread_index_in_threadgroup]]) {
  threadgroup float own[4097];
  own[i] = given[i] = 0;
  y[i] = own[i];
}

/* ---- races: found by METALSIM_CHECK ---- */

#line 1 "no_barrier_before_read"
kernel void no_barrier_before_read(device uint *y [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
  threadgroup uint tile[64];
  tile[i] = i;
  y[i] = tile[63 - i];
}

#line 1 "no_barrier_after_read"
kernel void no_barrier_after_read(device uint *y [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
  threadgroup uint tile[64];
  for (uint k = 0; k < 2; k++) {
    tile[i] = i + k;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    y[64 * k + i] = tile[63 - i];
  }
}

#line 1 "barrier_of_no_memory"
kernel void barrier_of_no_memory(device uint *y [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
  threadgroup uint tile[64];
  tile[i] = i;
  threadgroup_barrier(mem_flags::mem_none);
  y[i] = tile[63 - i];
}

#line 1 "barrier_of_other_memory"
kernel void barrier_of_other_memory(device uint *y [[buffer(0)]], device uint *z [[buffer(1)]],
                                    uint i [[thread_index_in_threadgroup]]) {
  z[i] = i;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  y[i] = z[63 - i];
}

#line 1 "simdgroup_barrier_is_too_small"
kernel void simdgroup_barrier_is_too_small(device uint *y [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
  threadgroup uint tile[64];
  tile[i] = i;
  simdgroup_barrier(mem_flags::mem_threadgroup);
  y[i] = tile[63 - i];
}

#line 1 "matrix_before_barrier"
kernel void matrix_before_barrier(device float *y [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
  threadgroup float tile[64];
  for (uint e = i; e < 64; e += 32) tile[e] = e;
  simdgroup_float8x8 m;
  simdgroup_load(m, tile);
  simdgroup_store(m, y);
}

#line 1 "threadgroups_write_one_place"
kernel void threadgroups_write_one_place(device uint *y [[buffer(0)]], uint group [[threadgroup_position_in_grid]]) {
  y[0] = group;
}

#line 1 "threadgroup_reads_another"
kernel void threadgroup_reads_another(device uint *y [[buffer(0)]], uint group [[threadgroup_position_in_grid]],
                                      uint i [[thread_index_in_threadgroup]]) {
  if (i == 0) y[group] = group ? y[group - 1] + 1 : 1;
}

#line 1 "plain_beside_atomic"
kernel void plain_beside_atomic(device uint *y [[buffer(0)]], uint group [[threadgroup_position_in_grid]]) {
  if (group)
    y[0] = 1;
  else
    atomic_fetch_add_explicit((device atomic_uint *)y, 1u, memory_order_relaxed);
}

/* ---- bounds: found by METALSIM_CHECK, and by AddressSanitizer ---- */

#line 1 "reads_past_buffer"
kernel void reads_past_buffer(device uint *y [[buffer(0)]], device const uint *x [[buffer(1)]],
                              uint i [[thread_index_in_threadgroup]]) {
  y[i] = x[i + 1];
}

#line 1 "reads_before_buffer"
kernel void reads_before_buffer(device uint *y [[buffer(0)]], device const uint *x [[buffer(1)]],
                                uint i [[thread_index_in_threadgroup]]) {
  y[i] = x[int(i) - 1];
}

#line 1 "writes_past_threadgroup_memory"
kernel void writes_past_threadgroup_memory(device uint *y [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
  threadgroup uint tile[63], other[64];
  threadgroup uint *to = tile; /* an index past the array itself would be UBSan's */
  to[i] = i;
  other[i] = i;
  y[i] = other[i];
}

#line 1 "matrix_past_threadgroup_memory"
kernel void matrix_past_threadgroup_memory(device float *y [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
  threadgroup float tile[70];
  for (uint e = i; e < 70; e += 32) tile[e] = e;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  simdgroup_float8x8 m;
  simdgroup_load(m, tile, 9);
  simdgroup_store(m, y);
}
