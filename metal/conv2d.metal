/* SPDX-License-Identifier: MIT
 *
 * Y = weight * X + bias: products of weights and windows, which are gathered as they are needed, or stand in an im2col matrix.
 */
#include "images.h"

/* b gives the windows of the tile's pixels, the first of which is where. */
template <class Shape, class B>
TC_INLINE void forward(constant tc_conv2d_params &p, device const half *W, device const half *bias, device uchar *Y, tile_cut t,
                       image_pixel where, B b, threadgroup float4 *memory, tile_thread self) {
  const group_tensor y = tensor_y(p, t.product);
  const pixel_columns columns = {where.pixel, pixels_of_y(p), y.image};
  const tile_place place = place_of<Shape>(self);
  image_target target = image_target_of(p, t, Y, y.first + where.image * y.image, y.channel, columns, place);
  if (ADD_BIAS) target.bias = bias + p.bias_offset + t.product * p.out_channels + t.row + ulong(place.row);
  const along_k<Shape::M, Shape::K, Shape::THREADS> a(W + weight_of(p, t.product) + t.row * p.w_channel + t.k, p.w_channel, t.rows,
                                                      VECTORS_A, self.index);
  tile_product<Shape>(a, b, target, t.depth, memory, self);
}

template <class Shape>
TC_INLINE void forward_pointwise(constant tc_conv2d_params &p, device const half *X, device const half *W, device const half *bias,
                                 device uchar *Y, uint3 group, tile_thread self, threadgroup float4 *memory) {
  const tile_cut t = tile_cut_of<Shape>(p, group, p.N, p.K);
  const image_pixel where(t.column, pixels_of_y(p));
  const group_tensor x = tensor_x(p, t.product);
  const pixel_columns columns = {where.pixel, pixels_of_y(p), x.image};
  const across_k<Shape::N, Shape::K, Shape::THREADS> b(X + x.first + where.image * x.image + t.k * x.channel, x.channel, t.columns,
                                                       columns, VECTORS_B, self.index);
  forward<Shape>(p, W, bias, Y, t, where, b, memory, self);
}

template <class Shape>
TC_INLINE void forward_window(constant tc_conv2d_params &p, device const half *X, device const half *W, device const half *bias,
                              device uchar *Y, uint3 group, tile_thread self, threadgroup float4 *memory,
                              threadgroup tap_entry *taps) {
  const tile_cut t = tile_cut_of<Shape>(p, group, p.N, p.K);
  const image_pixel where(t.column, pixels_of_y(p));
  const group_tensor x = tensor_x(p, t.product);
  const pixel_columns columns = {where.pixel, pixels_of_y(p), x.image};
  const window_across_k<Shape::N, Shape::K, Shape::THREADS> b(X + x.first + where.image * x.image, columns, uint(x.channel),
                                                              window_of(p), t.columns, uint(t.k), taps, self.index);
  forward<Shape>(p, W, bias, Y, t, where, b, memory, self);
}

#define TC_FORWARD(NAME, BM, BN, WM, WN)                                                                       \
  [[kernel, max_total_threads_per_threadgroup(32 * WM * WN)]] void tc_conv2d_forward_##NAME##_##BM##x##BN(     \
      constant tc_conv2d_params &p [[buffer(TC_BUFFER_PARAMS)]], device const half *X [[buffer(TC_BUFFER_X)]], \
      device const half *W [[buffer(TC_BUFFER_W)]], device uchar *Y [[buffer(TC_BUFFER_Y)]],                   \
      device const half *bias [[buffer(TC_BUFFER_BIAS)]], TC_TILE_ARGUMENTS)

#define TC_FORWARD_POINTWISE(BM, BN, BK, WM, WN)                                                    \
  TC_FORWARD(pointwise, BM, BN, WM, WN) {                                                           \
    typedef tile_shape<BM, BN, BK, WM, WN> shape;                                                   \
    threadgroup float4 memory[tile_memory<shape, true, false>::SIZE];                               \
    forward_pointwise<shape>(p, X, W, bias, Y, group, tile_thread{index, simdgroup, lane}, memory); \
  }

#define TC_FORWARD_WINDOW(BM, BN, BK, WM, WN)                                                          \
  TC_FORWARD(window, BM, BN, WM, WN) {                                                                 \
    typedef tile_shape<BM, BN, BK, WM, WN> shape;                                                      \
    threadgroup float4 memory[tile_memory<shape, true, false>::SIZE];                                  \
    threadgroup tap_entry taps[BK];                                                                    \
    forward_window<shape>(p, X, W, bias, Y, group, tile_thread{index, simdgroup, lane}, memory, taps); \
  }

TC_TILES(TC_FORWARD_POINTWISE)
TC_TILES(TC_FORWARD_WINDOW)

/* Y = the sum of its parts + bias. */
kernel void tc_conv2d_forward_reduce(constant tc_conv2d_params &p [[buffer(TC_BUFFER_PARAMS)]],
                                     device const float *partials [[buffer(TC_BUFFER_PARTIALS)]],
                                     device uchar *Y [[buffer(TC_BUFFER_Y)]], device const half *bias [[buffer(TC_BUFFER_BIAS)]],
                                     TC_ELEMENT_ARGUMENTS) {
  const element e = element_of(p, group, at, span);
  if (e.row >= p.M || e.column >= p.N) return;
  const image_pixel where(e.column, pixels_of_y(p));
  const group_tensor y = tensor_y(p, e.z);
  const float sum = sum_of(p, partials, e);
  output_write(Y, y.first + where.image * y.image + e.row * y.channel + where.pixel,
               ADD_BIAS ? sum + float(bias[p.bias_offset + e.z * p.out_channels + e.row]) : sum);
}

/* ---- im2col ---- */

/* Column: a pixel of Y, of all images. Row: a tap of an input channel, of all groups; a thread does TC_COL_ROWS of them. Here y is the
 * matrix, image by image. */
kernel void tc_conv2d_im2col(constant tc_conv2d_params &p [[buffer(TC_BUFFER_PARAMS)]],
                             device const half *X [[buffer(TC_BUFFER_X)]], device half *col [[buffer(TC_BUFFER_Y)]],
                             TC_ELEMENT_ARGUMENTS) {
  const element e = element_of(p, group, at, span);
  if (e.column >= p.N) return;
  const image_pixel where(e.column, pixels_of_y(p));
  device const half *image = X + p.x_offset + where.image * p.x_image;
  device half *to = col + p.y_offset + where.image * p.y_image + where.pixel;
  const ulong first = e.row * TC_COL_ROWS, end = min(first + TC_COL_ROWS, p.M);
  col_taps tap(window_of(p), where.pixel, uint(first));
  for (ulong row = first; row < end; row++) {
    const bool in = tap.inside();
    const half value = image[in ? tap.at(p.x_channel) : 0ul];
    to[row * p.y_channel] = in ? value : 0.0h;
    tap.advance();
  }
}
