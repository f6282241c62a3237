/* SPDX-License-Identifier: MIT
 *
 * One tile of a matrix product, by one threadgroup: BM x BN sums over K, in blocks of BK. WM x WN simdgroups share the tile.
 *
 * Where operands come from and where sums go is a type each (sources.h and gather.h, gemm_target and image_target):
 *   source  prepare()      once for each block, before its fetch: fills what the source keeps in threadgroup memory, if anything
 *           fetch(left)    reads this thread's share of the next block into registers; left is what remains of K
 *           put(tile)      writes that share to threadgroup memory
 *           ALONG_K, LD    how the block lies there: rows of K, or rows of the other index; elements from row to row
 *   target  put(row, v)    takes the sum that lies that many rows below this lane's first one (place_of)
 *
 * Matrices go through simdgroup_load and simdgroup_store only, so no lane's share of them is assumed.
 */
#ifndef TC_METAL_TILE_H
#define TC_METAL_TILE_H

#include "common.h"

/* Elements between rows of a tile in threadgroup memory: rows begin in different banks, and aligned for vectors of four. */
#define TC_ROW(columns) ((columns) + 8)

template <int BM, int BN, int BK, int WM, int WN> struct tile_shape {
  enum {
    M = BM,
    N = BN,
    K = BK,
    THREADS = 32 * WM * WN,
    SIMD_M = BM / WM, /* of a simdgroup */
    SIMD_N = BN / WN,
    SIMD_COLUMNS = WN,
    MATRICES_M = SIMD_M / 8,
    MATRICES_N = SIMD_N / 8,
    STRIP = SIMD_N / 4, /* elements of a lane in 8 rows of a simdgroup */
    STRIP_ROWS = 32 / SIMD_N
  };
};

/* What a kernel of tiles gets beside its buffers. */
#define TC_TILE_ARGUMENTS                                                                   \
  uint3 group [[threadgroup_position_in_grid]], uint index [[thread_index_in_threadgroup]], \
      uint simdgroup [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]

/* Where a thread is in its threadgroup. */
struct tile_thread {
  uint index, simdgroup, lane;
};

/* Threadgroups come row by row of the grid. The tiles that they take come in stripes of TC_STRIPE rows, column by column, so that those
 * that run at the same time share rows of A and columns of B, and find them in the cache. */
#define TC_STRIPE 8

struct tile_index {
  uint row, column; /* of tiles */
};

/* The tile of a threadgroup, M x N the product's sizes. */
template <class Shape> TC_INLINE tile_index tile_of(uint x, uint y, ulong M, ulong N) {
  const uint rows = uint((M - 1ul) / Shape::M) + 1u, columns = uint((N - 1ul) / Shape::N) + 1u;
  const uint first = y - y % TC_STRIPE, height = min(uint(TC_STRIPE), rows - first);
  const uint place = (y - first) * columns + x;
  return tile_index{first + place % height, place / height};
}

/* What is left of size from a tile's first row or column on, at most the tile's own; 0 if that is beyond. */
TC_INLINE uint tile_left(ulong size, ulong first, int tile) { return first < size ? uint(min(size - first, ulong(tile))) : 0u; }

/* Threadgroup memory of a tile, in units of float4: both operands' blocks, or the simdgroups' strips of 8 rows of sums. */
template <class Shape, bool A_ALONG_K, bool B_ALONG_K> struct tile_memory {
  enum {
    A_HALVES = A_ALONG_K ? Shape::M * TC_ROW(Shape::K) : Shape::K * TC_ROW(Shape::M),
    B_HALVES = B_ALONG_K ? Shape::N * TC_ROW(Shape::K) : Shape::K * TC_ROW(Shape::N),
    BLOCKS = (A_HALVES + B_HALVES) / 8,
    STRIPS = Shape::THREADS * Shape::STRIP / 4,
    SIZE = int(BLOCKS) > int(STRIPS) ? int(BLOCKS) : int(STRIPS)
  };
};

template <class Shape> struct tile_sums {
  simdgroup_float8x8 sums[Shape::MATRICES_M][Shape::MATRICES_N];
  float totals[Shape::MATRICES_M][Shape::STRIP]; /* LONG_SUMS: of TC_SUM_PRODUCTS each, as this lane sees them in a strip */

  TC_INLINE void clear() {
    TC_UNROLL
    for (int i = 0; i < Shape::MATRICES_M; i++) {
      TC_UNROLL
      for (int j = 0; j < Shape::MATRICES_N; j++) sums[i][j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    }
  }

  TC_INLINE void clear_totals() {
    TC_UNROLL
    for (int i = 0; i < Shape::MATRICES_M; i++) {
      TC_UNROLL
      for (int e = 0; e < Shape::STRIP; e++) totals[i][e] = 0.0f;
    }
  }

  /* sums += a block's product. The pointers are at the simdgroup's first row and column. */
  template <class A, class B> TC_INLINE void multiply(threadgroup const half *a_block, threadgroup const half *b_block) {
    simdgroup_half8x8 a[Shape::MATRICES_M], b[Shape::MATRICES_N];
    TC_UNROLL
    for (int k = 0; k < Shape::K; k += 8) {
      TC_UNROLL
      for (int i = 0; i < Shape::MATRICES_M; i++) {
        const int at = A::ALONG_K ? i * 8 * A::LD + k : k * A::LD + i * 8;
        simdgroup_load(a[i], a_block + at, ulong(A::LD), ulong2(0, 0), !A::ALONG_K);
      }
      TC_UNROLL
      for (int j = 0; j < Shape::MATRICES_N; j++) {
        const int at = B::ALONG_K ? j * 8 * B::LD + k : k * B::LD + j * 8;
        simdgroup_load(b[j], b_block + at, ulong(B::LD), ulong2(0, 0), bool(B::ALONG_K));
      }
      TC_UNROLL
      for (int i = 0; i < Shape::MATRICES_M; i++) {
        TC_UNROLL
        for (int j = 0; j < Shape::MATRICES_N; j++) simdgroup_multiply_accumulate(sums[i][j], a[i], b[j], sums[i][j]);
      }
    }
  }

  /* Puts 8 rows of sums into the simdgroup's strip, for its lanes to read: element lane + 32 * e is the lane's e-th one. */
  TC_INLINE void stage(int i, threadgroup float *strip) {
    simdgroup_barrier(mem_flags::mem_threadgroup); /* what the strip had was read */
    TC_UNROLL
    for (int j = 0; j < Shape::MATRICES_N; j++)
      simdgroup_store(sums[i][j], strip + j * 8, ulong(Shape::SIMD_N), ulong2(0, 0), false);
    simdgroup_barrier(mem_flags::mem_threadgroup);
  }

  /* Moves the sums to the totals. */
  TC_INLINE void fold(threadgroup float *strip, uint lane) {
    TC_UNROLL
    for (int i = 0; i < Shape::MATRICES_M; i++) {
      stage(i, strip);
      TC_UNROLL
      for (int e = 0; e < Shape::STRIP; e++) totals[i][e] += strip[lane + 32 * e];
    }
    clear();
  }

  /* Hands everything to the target. */
  template <class Target> TC_INLINE void finish(threadgroup float *strip, uint lane, Target target) {
    TC_UNROLL
    for (int i = 0; i < Shape::MATRICES_M; i++) {
      stage(i, strip);
      TC_UNROLL
      for (int e = 0; e < Shape::STRIP; e++) {
        const float sum = strip[lane + 32 * e];
        target.put(i * 8 + e * Shape::STRIP_ROWS, LONG_SUMS ? totals[i][e] + sum : sum);
      }
    }
  }
};

/* Where in the tile a lane's first sum is. */
struct tile_place {
  int row, column;
};

template <class Shape> TC_INLINE tile_place place_of(tile_thread self) {
  const int simdgroup = int(self.simdgroup), lane = int(self.lane);
  return tile_place{simdgroup / Shape::SIMD_COLUMNS * Shape::SIMD_M + lane / Shape::SIMD_N,
                    simdgroup % Shape::SIMD_COLUMNS * Shape::SIMD_N + lane % Shape::SIMD_N};
}

/* K may be 0: the sums are 0 then. memory: tile_memory of it. */
template <class Shape, class A, class B, class Target>
TC_INLINE void tile_product(A a, B b, Target target, int K, threadgroup float4 *memory, tile_thread self) {
  threadgroup half *a_block = (threadgroup half *)memory, *b_block = a_block + tile_memory<Shape, A::ALONG_K, B::ALONG_K>::A_HALVES;
  threadgroup float *strip = (threadgroup float *)memory + self.simdgroup * (8 * Shape::SIMD_N);
  const int row = int(self.simdgroup) / Shape::SIMD_COLUMNS * Shape::SIMD_M;
  const int column = int(self.simdgroup) % Shape::SIMD_COLUMNS * Shape::SIMD_N;
  threadgroup const half *a_simd = a_block + row * (A::ALONG_K ? A::LD : 1);
  threadgroup const half *b_simd = b_block + column * (B::ALONG_K ? B::LD : 1);
  tile_sums<Shape> sums;
  sums.clear();
  if (LONG_SUMS) sums.clear_totals();
  a.prepare();
  b.prepare();
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (K > 0) {
    a.fetch(K);
    b.fetch(K);
  }
  for (int left = K, block = 1; left > 0; left -= Shape::K, block++) {
    threadgroup_barrier(mem_flags::mem_threadgroup); /* the last block, and what prepare() made for this one, were read */
    a.put(a_block);
    b.put(b_block);
    a.prepare();
    b.prepare();
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (left > Shape::K) { /* the reads of the next block run while this one is multiplied */
      a.fetch(left - Shape::K);
      b.fetch(left - Shape::K);
    }
    sums.template multiply<A, B>(a_simd, b_simd);
    if (LONG_SUMS && left > Shape::K && block * Shape::K % TC_SUM_PRODUCTS == 0) {
      threadgroup_barrier(mem_flags::mem_threadgroup); /* strips take the blocks' place */
      sums.fold(strip, self.lane);
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  sums.finish(strip, self.lane, target);
}

#endif
