/* SPDX-License-Identifier: MIT
 *
 * What the convolutions' kernels share. In all of them a threadgroup's z is a group (backward_input: also a phase) and a part of K.
 */
#ifndef TC_METAL_IMAGES_H
#define TC_METAL_IMAGES_H

#include "gather.h"

/* Where a lane's sums go: to an image, or as they are to the partials of this part. */
struct image_target {
  device uchar *output;
  device const half *bias; /* of the lane's first row; ADD_BIAS */
  ulong at, ld;
  int rows; /* left from the lane's first one on; 0 if its column is outside */

  TC_INLINE void put(int row, float sum) {
    if (row >= rows) return;
    const ulong i = at + ulong(row) * ld;
    if (SPLIT) {
      ((device float *)output)[i] = sum;
    } else {
      output_write(output, i, ADD_BIAS ? sum + float(bias[row]) : sum);
    }
  }
};

/* ---- Tensors ---- */

/* Strides of a tensor, at its group's first channel. */
struct group_tensor {
  ulong first, image, channel;
};

TC_INLINE group_tensor tensor_x(constant tc_conv2d_params &p, ulong group) {
  return group_tensor{p.x_offset + group * p.x_group, p.x_image, p.x_channel};
}

TC_INLINE group_tensor tensor_y(constant tc_conv2d_params &p, ulong group) {
  return group_tensor{p.y_offset + group * p.y_group, p.y_image, p.y_channel};
}

TC_INLINE ulong weight_of(constant tc_conv2d_params &p, ulong group) { return p.w_offset + group * p.w_group; }

TC_INLINE uint pixels_of_y(constant tc_conv2d_params &p) { return uint(p.out_H) * uint(p.out_W); }

/* The taps that pixels of Y see. */
TC_INLINE window window_of(constant tc_conv2d_params &p) {
  return window{p.H, p.W, p.kH, p.kW, p.stride_h, p.stride_w, p.pad_h, p.pad_w, p.out_W};
}

/* ---- Tiles ---- */

/* A tile of one of the products. */
struct tile_cut {
  ulong product; /* its group; in backward_input group * phases + phase */
  ulong row, column, k;
  uint rows, columns; /* that are inside */
  int depth;          /* of this part of K; 0 if it has none */
  ulong partials;     /* SPLIT: where those of this product and part begin */
};

TC_INLINE ulong product_of(constant tc_conv2d_params &p, uint3 group) { return divided(p.origin.z + group.z, p.parts).x; }

/* N and K of this product, where products differ; the grid is that of the largest one. */
template <class Shape> TC_INLINE tile_cut tile_cut_of(constant tc_conv2d_params &p, uint3 group, ulong N, ulong K) {
  const ulong z = p.origin.z + group.z;
  const ulong2 product_part = divided(z, p.parts);
  tile_cut t;
  t.product = product_part.x;
  const tile_index tile = tile_of<Shape>(p.origin.x + group.x, p.origin.y + group.y, p.M, p.N);
  t.row = ulong(tile.row) * Shape::M;
  t.column = ulong(tile.column) * Shape::N;
  t.k = product_part.y * p.part;
  t.rows = tile_left(p.M, t.row, Shape::M);
  t.columns = tile_left(N, t.column, Shape::N);
  t.depth = t.k < K ? int(min(p.part, K - t.k)) : 0;
  t.partials = z * p.M * p.N;
  return t;
}

/* A pixel among those of all images. */
struct image_pixel {
  ulong image;
  uint pixel;

  image_pixel(ulong flat, uint pixels) {
    const ulong2 parts = divided(flat, pixels);
    image = parts.x;
    pixel = uint(parts.y);
  }
};

/* From a place in the tile on. first: where the tile's columns would begin in row 0 of the output; columns: how they lie there. */
template <class Columns>
TC_INLINE image_target image_target_of(constant tc_conv2d_params &p, tile_cut t, device uchar *output, ulong first, ulong ld,
                                       Columns columns, tile_place place) {
  const ulong row = t.row + ulong(place.row);
  image_target target;
  target.output = output;
  target.bias = nullptr;
  target.ld = SPLIT ? p.N : ld;
  target.at = SPLIT ? t.partials + row * p.N + t.column + ulong(place.column) : first + row * ld + columns.at(uint(place.column));
  target.rows = place.column < int(t.columns) ? int(t.rows) - place.row : 0;
  return target;
}

/* ---- One element by each thread ---- */

#define TC_ELEMENT_ARGUMENTS \
  uint3 group [[threadgroup_position_in_grid]], uint3 at [[thread_position_in_threadgroup]], uint3 span [[threads_per_threadgroup]]

struct element {
  ulong row, column, z;
};

TC_INLINE element element_of(constant tc_conv2d_params &p, uint3 group, uint3 at, uint3 span) {
  return element{ulong(p.origin.y + group.y) * span.y + at.y, ulong(p.origin.x + group.x) * span.x + at.x, p.origin.z + group.z};
}

/* The sum of its parts, of an element of group (and phase) z. */
TC_INLINE float sum_of(constant tc_conv2d_params &p, device const float *partials, element e) {
  const ulong matrix = p.M * p.N;
  return sum_parts(partials + e.z * p.parts * matrix + e.row * p.N + e.column, p.parts, matrix);
}

/* Taps of one pixel, from one row of an im2col matrix to the next. */
struct col_taps {
  window win;
  position tap;
  int y, x; /* of the window's corner */

  col_taps(window win_, uint pixel, uint row)
      : win(win_), tap(row, 1u, uint(win_.kH), uint(win_.kW)), y(int(pixel) / win_.grid_W * win_.stride_h - win_.pad_h),
        x(int(pixel) % win_.grid_W * win_.stride_w - win_.pad_w) {}

  TC_INLINE bool inside() { return win.inside(y + int(tap.middle), x + int(tap.low)); }
  TC_INLINE ulong at(ulong channel) {
    return tap.high * channel + ulong(y + int(tap.middle)) * ulong(win.W) + ulong(x + int(tap.low));
  }
  TC_INLINE void advance() { tap.advance(); }
};

#endif
