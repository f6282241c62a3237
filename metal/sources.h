/* SPDX-License-Identifier: MIT
 *
 * Operands of a tile (tile.h says what a source is). EXTENT is the tile's M or N, DEPTH its K, valid how much of EXTENT there is.
 *
 * No read is outside of the operand, not even one whose value isn't used: an index is clamped before the read. Beyond K the value is
 * then 0, in both operands, since NaN times 0 is NaN; beyond M or N it stays, since no sum that is kept takes it.
 */
#ifndef TC_METAL_SOURCES_H
#define TC_METAL_SOURCES_H

#include "common.h"
#include "tile.h"

/* ---- Columns: where consecutive columns of a tile lie in memory ---- */

/* One after the other. */
struct dense_columns {
  TC_INLINE ulong at(uint column) const { return column; }
};

/* Pixels of a plane, image after image. first: the pixel of column 0, in the first image. */
struct pixel_columns {
  uint first, pixels;
  ulong image; /* elements from image to image */

  TC_INLINE ulong at(uint column) const {
    const uint flat = first + column;
    return ulong(flat / pixels) * image + flat % pixels;
  }
};

/* ---- Sources from matrices ---- */

/* Rows of K lie in memory. vectors: K and the rows' addresses are multiples of four. */
template <int EXTENT, int DEPTH, int THREADS> struct along_k {
  enum {
    ALONG_K = 1,
    LD = TC_ROW(DEPTH),
    VECTORS_OF_ROW = DEPTH / 4,
    ROWS = THREADS / VECTORS_OF_ROW,
    COUNT = (EXTENT + ROWS - 1) / ROWS
  };
  device const half *rows[COUNT]; /* at the block's first column */
  int row, column;
  bool vectors;
  half4 values[COUNT];

  along_k(device const half *source, ulong ld, uint valid, bool vectors_, uint index)
      : row(int(index) / VECTORS_OF_ROW), column(int(index) % VECTORS_OF_ROW * 4), vectors(vectors_) {
    TC_UNROLL
    for (int i = 0; i < COUNT; i++) rows[i] = source + ulong(min(row + i * ROWS, int(valid) - 1)) * ld;
  }

  TC_INLINE void prepare() {}

  template <bool TAIL> TC_INLINE void read(int left) {
    TC_UNROLL
    for (int i = 0; i < COUNT; i++) {
      if (row + i * ROWS < EXTENT) {
        if (vectors) {
          const bool in = !TAIL || column < left;
          const half4 value = *(device const half4 *)(rows[i] + (in ? column : 0));
          values[i] = in ? value : half4(0.0h);
        } else {
          TC_UNROLL
          for (int e = 0; e < 4; e++) {
            const bool in = !TAIL || column + e < left;
            const half value = rows[i][in ? column + e : 0];
            values[i][e] = in ? value : 0.0h;
          }
        }
      }
      rows[i] += DEPTH;
    }
  }

  TC_INLINE void fetch(int left) {
    if (left >= DEPTH) {
      read<false>(left);
    } else {
      read<true>(left);
    }
  }

  TC_INLINE void put(threadgroup half *tile) {
    TC_UNROLL
    for (int i = 0; i < COUNT; i++) {
      if (row + i * ROWS < EXTENT) *(threadgroup half4 *)(tile + (row + i * ROWS) * LD + column) = values[i];
    }
  }
};

/* Rows of the other index lie in memory, K goes from row to row. vectors: valid, and the addresses of four columns, are multiples of
 * four. */
template <int EXTENT, int DEPTH, int THREADS> struct across_k {
  enum {
    ALONG_K = 0,
    LD = TC_ROW(EXTENT),
    VECTORS_OF_ROW = EXTENT / 4,
    ROWS = THREADS / VECTORS_OF_ROW,
    COUNT = (DEPTH + ROWS - 1) / ROWS
  };
  device const half *block, *first; /* the block's first row, and this thread's */
  ulong ld;
  ulong columns[4]; /* vectors: just the first one is used */
  int row, column;
  bool vectors;
  half4 values[COUNT];

  across_k(device const half *source, ulong ld_, uint valid, bool vectors_, uint index)
      : across_k(source, ld_, valid, dense_columns(), vectors_, index) {}

  template <class Columns>
  across_k(device const half *source, ulong ld_, uint valid, Columns where, bool vectors_, uint index)
      : block(source), ld(ld_), row(int(index) / VECTORS_OF_ROW), column(int(index) % VECTORS_OF_ROW * 4), vectors(vectors_) {
    first = source + ulong(row) * ld;
    const uint last = valid - (vectors ? 4u : 1u);
    TC_UNROLL
    for (int e = 0; e < 4; e++) columns[e] = where.at(min(uint(column + e), last));
  }

  TC_INLINE void prepare() {}

  template <bool TAIL> TC_INLINE void read(int left) {
    TC_UNROLL
    for (int i = 0; i < COUNT; i++) {
      if (row + i * ROWS < DEPTH) {
        const bool in = !TAIL || row + i * ROWS < left;
        device const half *from = in ? first + ulong(i * ROWS) * ld : block;
        if (vectors) {
          const half4 value = *(device const half4 *)(from + columns[0]);
          values[i] = in ? value : half4(0.0h);
        } else {
          TC_UNROLL
          for (int e = 0; e < 4; e++) {
            const half value = from[columns[e]];
            values[i][e] = in ? value : 0.0h;
          }
        }
      }
    }
    block += DEPTH * ld;
    first += DEPTH * ld;
  }

  TC_INLINE void fetch(int left) {
    if (left >= DEPTH) {
      read<false>(left);
    } else {
      read<true>(left);
    }
  }

  TC_INLINE void put(threadgroup half *tile) {
    TC_UNROLL
    for (int i = 0; i < COUNT; i++) {
      if (row + i * ROWS < DEPTH) *(threadgroup half4 *)(tile + (row + i * ROWS) * LD + column) = values[i];
    }
  }
};

/* The source of a matrix by the way K runs. */
template <bool ALONG_K, int EXTENT, int DEPTH, int THREADS> struct matrix_source { typedef along_k<EXTENT, DEPTH, THREADS> type; };

template <int EXTENT, int DEPTH, int THREADS> struct matrix_source<false, EXTENT, DEPTH, THREADS> {
  typedef across_k<EXTENT, DEPTH, THREADS> type;
};

#endif
