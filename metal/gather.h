/* SPDX-License-Identifier: MIT
 *
 * Operands of a tile that are gathered from images: no im2col matrix is built. What a block's K means (taps, or pixels) is worked out
 * once for each block and shared through threadgroup memory, without a division after the first block.
 */
#ifndef TC_METAL_GATHER_H
#define TC_METAL_GATHER_H

#include "sources.h"

/* ---- Positions ---- */

/* A number of three digits of which the upper one has no limit, and what is added to it for the next block. */
struct position {
  uint high, middle, low;
  uint step_high, step_middle, step_low;
  uint middle_limit, low_limit;

  position(uint value, uint step, uint middle_limit_, uint low_limit_)
      : high(value / low_limit_ / middle_limit_), middle(value / low_limit_ % middle_limit_), low(value % low_limit_),
        step_high(step / low_limit_ / middle_limit_), step_middle(step / low_limit_ % middle_limit_), step_low(step % low_limit_),
        middle_limit(middle_limit_), low_limit(low_limit_) {}

  TC_INLINE void advance() {
    low += step_low;
    const uint to_middle = low >= low_limit ? 1u : 0u;
    low -= to_middle != 0u ? low_limit : 0u;
    middle += step_middle + to_middle;
    const uint to_high = middle >= middle_limit ? 1u : 0u;
    middle -= to_high != 0u ? middle_limit : 0u;
    high += step_high + to_high;
  }
};

/* How a window moves over planes: pixel (y, x) of the grid sees tap (ky, kx) at (y*stride_h - pad_h + ky, x*stride_w - pad_w + kx) of
 * an H x W plane. Coordinates that are outside wrap to large unsigned numbers. */
struct window {
  int H, W, kH, kW, stride_h, stride_w, pad_h, pad_w;
  int grid_W;

  TC_INLINE bool inside(int y, int x) const { return uint(y) < uint(H) && uint(x) < uint(W); }
};

/* ---- Windows, K over taps ---- */

/* A tap of a block's row. */
struct tap_entry {
  uint offset; /* of channel, row and column, in the image */
  uint bit;    /* FEW_TAPS: of the tap, in a pixel's mask */
  int ky, kx;
};

/* A bit for each tap of the window whose corner is at (y, x). */
TC_INLINE uint taps_inside(window win, int y, int x) {
  uint bits = 0u;
  for (int ky = 0; ky < win.kH; ky++) {
    for (int kx = 0; kx < win.kW; kx++) bits |= uint(win.inside(y + ky, x + kx)) << uint(ky * win.kW + kx);
  }
  return bits;
}

/* One column of the tile is one pixel, one row is one tap of one channel. */
template <int EXTENT, int DEPTH, int THREADS> struct window_across_k {
  enum { ALONG_K = 0, LD = TC_ROW(EXTENT), ROWS = DEPTH * EXTENT / THREADS };
  device const half *image; /* of this thread's pixel, at the group's first channel */
  threadgroup tap_entry *taps;
  window win;
  position tap;
  uint plane;
  int y, x;  /* of the window's corner */
  uint here; /* the corner's place in the image; where that is negative, it wraps */
  uint mask; /* FEW_TAPS: which taps are inside */
  int row, column;
  uint index;
  half values[ROWS];

  /* source: the group's first channel in the image of column 0; k: where the part begins. */
  window_across_k(device const half *source, pixel_columns where, uint plane_, window win_, uint valid, uint k,
                  threadgroup tap_entry *taps_, uint index_)
      : taps(taps_), win(win_), tap(k + index_, uint(DEPTH), uint(win_.kH), uint(win_.kW)), plane(plane_),
        row(int(index_) / EXTENT * ROWS), column(int(index_) % EXTENT), index(index_) {
    const uint flat = where.first + min(uint(column), valid - 1u), pixel = flat % where.pixels;
    image = source + ulong(flat / where.pixels) * where.image;
    y = int(pixel) / win.grid_W * win.stride_h - win.pad_h;
    x = int(pixel) % win.grid_W * win.stride_w - win.pad_w;
    here = uint(y) * uint(win.W) + uint(x);
    mask = FEW_TAPS ? taps_inside(win, y, x) : 0u;
  }

  TC_INLINE void prepare() {
    if (index < uint(DEPTH)) {
      taps[index].offset = tap.high * plane + tap.middle * uint(win.W) + tap.low;
      taps[index].bit = tap.middle * uint(win.kW) + tap.low;
      taps[index].ky = int(tap.middle);
      taps[index].kx = int(tap.low);
      tap.advance();
    }
  }

  TC_INLINE bool inside(threadgroup const tap_entry *t) {
    return FEW_TAPS ? ((mask >> t->bit) & 1u) != 0u : win.inside(y + t->ky, x + t->kx);
  }

  template <bool TAIL> TC_INLINE void read(int left) {
    TC_UNROLL
    for (int i = 0; i < ROWS; i++) {
      values[i] = 0.0h;
      if (!TAIL || row + i < left) {
        threadgroup const tap_entry *t = taps + row + i;
        const bool in = inside(t);
        const half value = image[in ? t->offset + here : 0u];
        values[i] = in ? value : 0.0h;
      }
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
    for (int i = 0; i < ROWS; i++) tile[(row + i) * LD + column] = values[i];
  }
};

/* ---- K over the pixels of all images ---- */

/* A pixel of a block's column. */
struct pixel_entry {
  ulong offset; /* of the image and of the pixel (or of the window's corner, which may be negative) */
  int y, x;     /* of the window's corner */
};

/* Rows are channels, columns are the pixels themselves. vectors: pixels of a plane, and addresses, are multiples of four. */
template <int EXTENT, int DEPTH, int THREADS> struct pixels_along_k {
  enum {
    ALONG_K = 1,
    LD = TC_ROW(DEPTH),
    VECTORS_OF_ROW = DEPTH / 4,
    ROWS = THREADS / VECTORS_OF_ROW,
    COUNT = (EXTENT + ROWS - 1) / ROWS
  };
  device const half *rows[COUNT];
  threadgroup pixel_entry *entries;
  position pixel;
  ulong image;
  int row, column;
  uint index;
  bool vectors;
  half4 values[COUNT];

  /* source: the first image of the part, which begins at its pixel number first; rows are ld apart. */
  pixels_along_k(device const half *source, ulong ld, uint valid, pixel_columns where, threadgroup pixel_entry *entries_,
                 bool vectors_, uint index_)
      : entries(entries_), pixel(where.first + index_, uint(DEPTH), 1u, where.pixels), image(where.image),
        row(int(index_) / VECTORS_OF_ROW), column(int(index_) % VECTORS_OF_ROW * 4), index(index_), vectors(vectors_) {
    TC_UNROLL
    for (int i = 0; i < COUNT; i++) rows[i] = source + ulong(min(row + i * ROWS, int(valid) - 1)) * ld;
  }

  TC_INLINE void prepare() {
    if (index < uint(DEPTH)) {
      entries[index].offset = ulong(pixel.high) * image + pixel.low;
      pixel.advance();
    }
  }

  TC_INLINE void fetch(int left) {
    TC_UNROLL
    for (int i = 0; i < COUNT; i++) {
      if (row + i * ROWS < EXTENT) {
        if (vectors) {
          const bool in = column < left;
          const half4 value = *(device const half4 *)(rows[i] + entries[in ? column : 0].offset);
          values[i] = in ? value : half4(0.0h);
        } else {
          TC_UNROLL
          for (int e = 0; e < 4; e++) {
            const bool in = column + e < left;
            const half value = rows[i][entries[in ? column + e : 0].offset];
            values[i][e] = in ? value : 0.0h;
          }
        }
      }
    }
  }

  TC_INLINE void put(threadgroup half *tile) {
    TC_UNROLL
    for (int i = 0; i < COUNT; i++) {
      if (row + i * ROWS < EXTENT) *(threadgroup half4 *)(tile + (row + i * ROWS) * LD + column) = values[i];
    }
  }
};

/* Rows are taps of channels, columns are the pixels of the grid that see them. */
template <int EXTENT, int DEPTH, int THREADS> struct window_along_k {
  enum {
    ALONG_K = 1,
    LD = TC_ROW(DEPTH),
    VECTORS_OF_ROW = DEPTH / 4,
    ROWS = THREADS / VECTORS_OF_ROW,
    COUNT = (EXTENT + ROWS - 1) / ROWS
  };
  device const half *source; /* the part's first image, at the tile's first channel */
  threadgroup pixel_entry *entries;
  window win;
  position pixel;
  ulong image;
  ulong taps[COUNT];
  int ky[COUNT], kx[COUNT];
  int row, column;
  uint index;
  half4 values[COUNT];

  window_along_k(device const half *source_, ulong channel, window win_, ulong first_tap, uint valid, pixel_columns where,
                 threadgroup pixel_entry *entries_, uint index_)
      : source(source_), entries(entries_), win(win_),
        pixel(where.first + index_, uint(DEPTH), where.pixels / uint(win_.grid_W), uint(win_.grid_W)), image(where.image),
        row(int(index_) / VECTORS_OF_ROW), column(int(index_) % VECTORS_OF_ROW * 4), index(index_) {
    const uint taps_of_channel = uint(win.kH) * uint(win.kW);
    const ulong2 channel_tap = divided(first_tap, taps_of_channel);
    const uint first = uint(channel_tap.y);
    source += channel_tap.x * channel;
    TC_UNROLL
    for (int i = 0; i < COUNT; i++) {
      const uint flat = first + uint(min(row + i * ROWS, int(valid) - 1)), tap = flat % taps_of_channel;
      ky[i] = int(tap) / win.kW;
      kx[i] = int(tap) % win.kW;
      taps[i] = flat / taps_of_channel * channel + ulong(ky[i]) * ulong(win.W) + ulong(kx[i]);
    }
  }

  TC_INLINE void prepare() {
    if (index < uint(DEPTH)) {
      const int y = int(pixel.middle) * win.stride_h - win.pad_h, x = int(pixel.low) * win.stride_w - win.pad_w;
      entries[index].offset = ulong(pixel.high) * image + ulong(long(y) * long(win.W) + long(x));
      entries[index].y = y;
      entries[index].x = x;
      pixel.advance();
    }
  }

  TC_INLINE void fetch(int left) {
    TC_UNROLL
    for (int e = 0; e < 4; e++) {
      const bool is_pixel = column + e < left;
      threadgroup const pixel_entry *p = entries + (is_pixel ? column + e : 0);
      TC_UNROLL
      for (int i = 0; i < COUNT; i++) {
        if (row + i * ROWS < EXTENT) {
          const bool in = is_pixel && win.inside(p->y + ky[i], p->x + kx[i]);
          const half value = source[in ? p->offset + taps[i] : 0ul];
          values[i][e] = in ? value : 0.0h;
        }
      }
    }
  }

  TC_INLINE void put(threadgroup half *tile) {
    TC_UNROLL
    for (int i = 0; i < COUNT; i++) {
      if (row + i * ROWS < EXTENT) *(threadgroup half4 *)(tile + (row + i * ROWS) * LD + column) = values[i];
    }
  }
};

#endif
