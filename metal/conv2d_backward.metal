/* SPDX-License-Identifier: MIT
 *
 * The gradients: of the input, gathered by phases of the stride or by col2im, and of the weight (params.h has the roles).
 */
#include "images.h"

/* ==== Gradient of the input: pointwise, or the matrix that col2im scatters ==== */

/* dX, or rows of dCol = weight^T * dY; x is either. */
template <class Shape>
TC_INLINE void backward_input_pointwise(constant tc_conv2d_params &p, device uchar *X, device const half *W, device const half *Y,
                                        uint3 group, tile_thread self, threadgroup float4 *memory) {
  const tile_cut t = tile_cut_of<Shape>(p, group, p.N, p.K);
  const uint pixels = pixels_of_y(p);
  const image_pixel where(t.column, pixels);
  const group_tensor x = tensor_x(p, t.product), y = tensor_y(p, t.product);
  const pixel_columns x_columns = {where.pixel, pixels, x.image}, y_columns = {where.pixel, pixels, y.image};
  const across_k<Shape::M, Shape::K, Shape::THREADS> a(W + weight_of(p, t.product) + t.k * p.w_channel + t.row, p.w_channel, t.rows,
                                                       VECTORS_A, self.index);
  const across_k<Shape::N, Shape::K, Shape::THREADS> b(Y + y.first + where.image * y.image + t.k * y.channel, y.channel, t.columns,
                                                       y_columns, VECTORS_B, self.index);
  const image_target target =
      image_target_of(p, t, X, x.first + where.image * x.image, x.channel, x_columns, place_of<Shape>(self));
  tile_product<Shape>(a, b, target, t.depth, memory, self);
}

#define TC_BACKWARD_INPUT(NAME, BM, BN, WM, WN, ...)                                                                   \
  [[kernel, max_total_threads_per_threadgroup(32 * WM * WN)]] void tc_conv2d_backward_input_##NAME##_##BM##x##BN(      \
      constant tc_conv2d_params &p [[buffer(TC_BUFFER_PARAMS)]], device uchar *X [[buffer(TC_BUFFER_X)]], __VA_ARGS__, \
      device const half *Y [[buffer(TC_BUFFER_Y)]], TC_TILE_ARGUMENTS)

#define TC_BACKWARD_INPUT_POINTWISE(BM, BN, BK, WM, WN)                                              \
  TC_BACKWARD_INPUT(pointwise, BM, BN, WM, WN, device const half *W [[buffer(TC_BUFFER_W)]]) {       \
    typedef tile_shape<BM, BN, BK, WM, WN> shape;                                                    \
    threadgroup float4 memory[tile_memory<shape, false, false>::SIZE];                               \
    backward_input_pointwise<shape>(p, X, W, Y, group, tile_thread{index, simdgroup, lane}, memory); \
  }

TC_TILES(TC_BACKWARD_INPUT_POINTWISE)

/* Adds dCol to the pixels that its taps saw; rows and columns as those of im2col, y is the matrix. */
kernel void tc_conv2d_col2im(constant tc_conv2d_params &p [[buffer(TC_BUFFER_PARAMS)]],
                             device atomic_float *X [[buffer(TC_BUFFER_X)]], device const float *col [[buffer(TC_BUFFER_Y)]],
                             TC_ELEMENT_ARGUMENTS) {
  const element e = element_of(p, group, at, span);
  if (e.column >= p.N) return;
  const image_pixel where(e.column, pixels_of_y(p));
  device atomic_float *image = X + p.x_offset + where.image * p.x_image;
  device const float *from = col + p.y_offset + where.image * p.y_image + where.pixel;
  const ulong first = e.row * TC_COL_ROWS, end = min(first + TC_COL_ROWS, p.M);
  col_taps tap(window_of(p), where.pixel, p.first_row + uint(first));
  for (ulong row = first; row < end; row++) {
    if (tap.inside()) atomic_fetch_add_explicit(image + tap.at(p.x_channel), from[row * p.y_channel], memory_order_relaxed);
    tap.advance();
  }
}

/* ==== Gradient of the input: gathered ==== */

/* Taps of a kernel along one axis that are residue modulo the stride, and those with a smaller residue. */
TC_INLINE int taps_with(int residue, int kernel_size, int stride) {
  return residue < kernel_size ? (kernel_size - residue - 1) / stride + 1 : 0;
}
TC_INLINE int taps_before(int residue, int kernel_size, int stride) {
  return kernel_size / stride * residue + min(kernel_size % stride, residue);
}

/* Pixels first + i * stride of dX see the same taps, those of one residue: a phase, here along one axis. As a window over dY these taps
 * move by one from pixel to pixel; they are taken in reverse order, which is the order of dY's pixels. */
struct phase_axis {
  int first, residue, pixels, taps, pad;

  phase_axis(int first_, int size, int kernel_size, int stride, int pad_)
      : first(first_), residue((first_ + pad_) % stride), pixels((size - first_ - 1) / stride + 1),
        taps(taps_with(residue, kernel_size, stride)), pad(taps - 1 - (first_ + pad_) / stride) {}
};

/* Where the packed weights of a phase begin: after those of smaller residues of rows, then of columns. */
TC_INLINE ulong phase_weights(constant tc_conv2d_params &p, int residue_y, int residue_x) {
  const ulong taps = ulong(taps_before(residue_y, p.kH, p.stride_h)) * ulong(p.kW) +
                     ulong(taps_with(residue_y, p.kH, p.stride_h)) * ulong(taps_before(residue_x, p.kW, p.stride_w));
  return taps * p.groups * p.in_channels * p.out_channels;
}

/* Packs the weights: phase by phase, input channel by input channel, and for each what K runs over: taps of output channels. Sets the
 * flag, which was 0, if one is infinite or NaN: then the zeros beyond the edges of dY must not meet the weights, since dX sums real
 * pairs only. Row: an output channel, of all groups; column: a tap of an input channel. */
kernel void tc_conv2d_backward_input_pack(constant tc_conv2d_params &p [[buffer(TC_BUFFER_PARAMS)]],
                                          device const half *W [[buffer(TC_BUFFER_W)]],
                                          device half *packed [[buffer(TC_BUFFER_PACKED)]],
                                          device atomic_uint *flag [[buffer(TC_BUFFER_FLAG)]], TC_ELEMENT_ARGUMENTS) {
  const element e = element_of(p, group, at, span);
  if (e.column >= p.N || e.row >= p.M) return;
  const half weight = W[p.w_offset + e.row * p.w_channel + e.column];
  if ((as_type<ushort>(weight) & 0x7c00u) == 0x7c00u) atomic_fetch_or_explicit(flag, 1u, memory_order_relaxed);
  const position tap(uint(e.column), 1u, uint(p.kH), uint(p.kW));
  const int ky = int(tap.middle), kx = int(tap.low), residue_y = ky % p.stride_h, residue_x = kx % p.stride_w;
  const int taps_y = taps_with(residue_y, p.kH, p.stride_h), taps_x = taps_with(residue_x, p.kW, p.stride_w);
  const ulong row = e.row / p.out_channels * p.in_channels + tap.high;
  const ulong channel = row * p.out_channels + e.row % p.out_channels;
  const int within = (taps_y - 1 - ky / p.stride_h) * taps_x + taps_x - 1 - kx / p.stride_w;
  packed[phase_weights(p, residue_y, residue_x) + channel * ulong(taps_y * taps_x) + ulong(within)] = weight;
}

/* Where the pixels of a phase lie in dX. */
struct phase_columns {
  uint first, pixels, width;
  ulong image;
  uint at_first, step_y, step_x;

  TC_INLINE ulong at(uint column) const {
    const uint flat = first + column, pixel = flat % pixels;
    return ulong(flat / pixels) * image + at_first + ulong(pixel / width) * step_y + pixel % width * step_x;
  }
};

/* The phase and the group that a product is. */
struct phase {
  ulong group;
  phase_axis y, x;
  uint pixels;
  ulong K;

  phase(constant tc_conv2d_params &p, ulong product, ulong phases_x, ulong phases)
      : group(product / phases), y(int(product % phases / phases_x), p.H, p.kH, p.stride_h, p.pad_h),
        x(int(product % phases_x), p.W, p.kW, p.stride_w, p.pad_w), pixels(uint(y.pixels) * uint(x.pixels)),
        K(ulong(p.out_channels) * ulong(y.taps) * ulong(x.taps)) {}

  /* first: the pixel of column 0. */
  TC_INLINE phase_columns columns(constant tc_conv2d_params &p, uint first_column) const {
    return phase_columns{
        first_column,    pixels, uint(x.pixels), p.x_image, uint(y.first) * uint(p.W) + uint(x.first), uint(p.stride_h) * uint(p.W),
        uint(p.stride_w)};
  }
};

TC_INLINE phase phase_of(constant tc_conv2d_params &p, ulong product) {
  const ulong phases_x = ulong(min(p.stride_w, p.W));
  return phase(p, product, phases_x, phases_x * ulong(min(p.stride_h, p.H)));
}

/* One element of dX from the pairs that exist. weights: of its channel, as packed; image: dY. */
TC_INLINE float sum_of_pairs(device const half *weights, device const half *image, window win, int y, int x, uint channels,
                             ulong channel) {
  float total = 0.0f, sum = 0.0f;
  uint products = 0u;
  for (uint c = 0u; c < channels; c++, image += channel) {
    for (int ky = 0; ky < win.kH; ky++) {
      for (int kx = 0; kx < win.kW; kx++, weights++) {
        if (win.inside(y + ky, x + kx)) {
          sum = fma(float(*weights), float(image[ulong(y + ky) * ulong(win.W) + ulong(x + kx)]), sum);
          if (++products % TC_SUM_PRODUCTS == 0u) {
            total += sum;
            sum = 0.0f;
          }
        }
      }
    }
  }
  return total + sum;
}

template <class Shape>
TC_INLINE void backward_input_window(constant tc_conv2d_params &p, device uchar *X, device const half *packed,
                                     device const uint *flag, device const half *Y, uint3 group, tile_thread self,
                                     threadgroup float4 *memory, threadgroup tap_entry *taps) {
  const phase f = phase_of(p, product_of(p, group));
  const tile_cut t = tile_cut_of<Shape>(p, group, p.images * f.pixels, f.K);
  if (t.columns == 0u) return; /* of the whole threadgroup: this phase has fewer pixels than others */
  const image_pixel where(t.column, f.pixels);
  const group_tensor x = tensor_x(p, f.group), y = tensor_y(p, f.group);
  const ulong first = x.first + where.image * x.image;
  const phase_columns columns = f.columns(p, where.pixel);
  /* Where there are no taps, K is 0 and no one looks at them. */
  const window win = {p.out_H, p.out_W, max(f.y.taps, 1), max(f.x.taps, 1), 1, 1, f.y.pad, f.x.pad, f.x.pixels};
  device const half *weights = packed + phase_weights(p, f.y.residue, f.x.residue) + (f.group * p.M + t.row) * f.K;
  device const half *image = Y + y.first + where.image * y.image;
  if (f.K > 0ul && *flag != 0u) {
    for (int i = int(self.index); i < Shape::M * Shape::N; i += Shape::THREADS) {
      const tile_place place = {i / Shape::N, i % Shape::N};
      if (place.row >= int(t.rows) || place.column >= int(t.columns)) continue;
      const uint flat = where.pixel + uint(place.column), pixel = flat % f.pixels;
      float sum = 0.0f;
      if (t.k == 0ul) { /* the first part has all of it */
        sum = sum_of_pairs(weights + ulong(place.row) * f.K, image + ulong(flat / f.pixels) * y.image, win,
                           int(pixel) / win.grid_W - win.pad_h, int(pixel) % win.grid_W - win.pad_w, p.out_channels, y.channel);
      }
      image_target target = image_target_of(p, t, X, first, x.channel, columns, place);
      target.put(0, sum);
    }
    return;
  }
  const along_k<Shape::M, Shape::K, Shape::THREADS> a(weights + t.k, f.K, t.rows, VECTORS_A, self.index);
  const pixel_columns y_columns = {where.pixel, f.pixels, y.image};
  const window_across_k<Shape::N, Shape::K, Shape::THREADS> b(image, y_columns, uint(y.channel), win, t.columns, uint(t.k), taps,
                                                              self.index);
  tile_product<Shape>(a, b, image_target_of(p, t, X, first, x.channel, columns, place_of<Shape>(self)), t.depth, memory, self);
}

#define TC_BACKWARD_INPUT_WINDOW(BM, BN, BK, WM, WN)                                                               \
  TC_BACKWARD_INPUT(window, BM, BN, WM, WN, device const half *packed [[buffer(TC_BUFFER_PACKED)]],                \
                    device const uint *flag [[buffer(TC_BUFFER_FLAG)]]) {                                          \
    typedef tile_shape<BM, BN, BK, WM, WN> shape;                                                                  \
    threadgroup float4 memory[tile_memory<shape, true, false>::SIZE];                                              \
    threadgroup tap_entry taps[BK];                                                                                \
    backward_input_window<shape>(p, X, packed, flag, Y, group, tile_thread{index, simdgroup, lane}, memory, taps); \
  }

TC_TILES(TC_BACKWARD_INPUT_WINDOW)

/* dX = the sum of its parts. */
kernel void tc_conv2d_backward_input_reduce(constant tc_conv2d_params &p [[buffer(TC_BUFFER_PARAMS)]],
                                            device const float *partials [[buffer(TC_BUFFER_PARTIALS)]],
                                            device uchar *X [[buffer(TC_BUFFER_X)]], TC_ELEMENT_ARGUMENTS) {
  const element e = element_of(p, group, at, span);
  const phase f = phase_of(p, e.z);
  if (e.row >= p.M || e.column >= p.images * f.pixels) return;
  const image_pixel where(e.column, f.pixels);
  const group_tensor x = tensor_x(p, f.group);
  const phase_columns columns = f.columns(p, where.pixel);
  output_write(X, x.first + where.image * x.image + e.row * x.channel + columns.at(0u), sum_of(p, partials, e));
}

/* ==== Gradient of the weight ==== */

template <class Shape, class B>
TC_INLINE void backward_weight(constant tc_conv2d_params &p, device const half *Y, device uchar *W, tile_cut t, image_pixel where,
                               B b, threadgroup float4 *memory, threadgroup pixel_entry *entries, tile_thread self) {
  const group_tensor y = tensor_y(p, t.product);
  const pixel_columns columns = {where.pixel, pixels_of_y(p), y.image};
  const pixels_along_k<Shape::M, Shape::K, Shape::THREADS> a(Y + y.first + where.image * y.image + t.row * y.channel, y.channel,
                                                             t.rows, columns, entries, VECTORS_A, self.index);
  const image_target target =
      image_target_of(p, t, W, weight_of(p, t.product) + t.column, p.w_channel, dense_columns(), place_of<Shape>(self));
  tile_product<Shape>(a, b, target, t.depth, memory, self);
}

template <class Shape>
TC_INLINE void backward_weight_pointwise(constant tc_conv2d_params &p, device const half *X, device uchar *W, device const half *Y,
                                         uint3 group, tile_thread self, threadgroup float4 *memory,
                                         threadgroup pixel_entry *entries) {
  const tile_cut t = tile_cut_of<Shape>(p, group, p.N, p.K);
  const image_pixel where(t.k, pixels_of_y(p));
  const group_tensor x = tensor_x(p, t.product);
  const pixel_columns columns = {where.pixel, pixels_of_y(p), x.image};
  const pixels_along_k<Shape::N, Shape::K, Shape::THREADS> b(X + x.first + where.image * x.image + t.column * x.channel, x.channel,
                                                             t.columns, columns, entries + Shape::K, VECTORS_B, self.index);
  backward_weight<Shape>(p, Y, W, t, where, b, memory, entries, self);
}

template <class Shape>
TC_INLINE void backward_weight_window(constant tc_conv2d_params &p, device const half *X, device uchar *W, device const half *Y,
                                      uint3 group, tile_thread self, threadgroup float4 *memory, threadgroup pixel_entry *entries) {
  const tile_cut t = tile_cut_of<Shape>(p, group, p.N, p.K);
  const image_pixel where(t.k, pixels_of_y(p));
  const group_tensor x = tensor_x(p, t.product);
  const pixel_columns columns = {where.pixel, pixels_of_y(p), x.image};
  const window_along_k<Shape::N, Shape::K, Shape::THREADS> b(X + x.first + where.image * x.image, x.channel, window_of(p), t.column,
                                                             t.columns, columns, entries + Shape::K, self.index);
  backward_weight<Shape>(p, Y, W, t, where, b, memory, entries, self);
}

#define TC_BACKWARD_WEIGHT(NAME, BM, BN, BK, WM, WN)                                                               \
  [[kernel, max_total_threads_per_threadgroup(32 * WM * WN)]] void tc_conv2d_backward_weight_##NAME##_##BM##x##BN( \
      constant tc_conv2d_params &p [[buffer(TC_BUFFER_PARAMS)]], device const half *X [[buffer(TC_BUFFER_X)]],     \
      device uchar *W [[buffer(TC_BUFFER_W)]], device const half *Y [[buffer(TC_BUFFER_Y)]], TC_TILE_ARGUMENTS) {  \
    typedef tile_shape<BM, BN, BK, WM, WN> shape;                                                                  \
    threadgroup float4 memory[tile_memory<shape, true, true>::SIZE];                                               \
    threadgroup pixel_entry entries[2 * BK];                                                                       \
    backward_weight_##NAME<shape>(p, X, W, Y, group, tile_thread{index, simdgroup, lane}, memory, entries);        \
  }

#define TC_BACKWARD_WEIGHT_POINTWISE(BM, BN, BK, WM, WN) TC_BACKWARD_WEIGHT(pointwise, BM, BN, BK, WM, WN)
#define TC_BACKWARD_WEIGHT_WINDOW(BM, BN, BK, WM, WN) TC_BACKWARD_WEIGHT(window, BM, BN, BK, WM, WN)
TC_TILES(TC_BACKWARD_WEIGHT_POINTWISE)
TC_TILES(TC_BACKWARD_WEIGHT_WINDOW)

/* dW = the sum of its parts. */
kernel void tc_conv2d_backward_weight_reduce(constant tc_conv2d_params &p [[buffer(TC_BUFFER_PARAMS)]],
                                             device const float *partials [[buffer(TC_BUFFER_PARTIALS)]],
                                             device uchar *W [[buffer(TC_BUFFER_W)]], TC_ELEMENT_ARGUMENTS) {
  const element e = element_of(p, group, at, span);
  if (e.row >= p.M || e.column >= p.N) return;
  output_write(W, weight_of(p, e.z) + e.row * p.w_channel + e.column, sum_of(p, partials, e));
}

/* ==== Runs of elements ==== */

/* output = 0. */
kernel void tc_zero(constant tc_run_params &p [[buffer(TC_BUFFER_PARAMS)]], device uchar *output [[buffer(TC_BUFFER_Y)]],
                    uint group [[threadgroup_position_in_grid]], uint index [[thread_position_in_threadgroup]]) {
  const ulong first = ulong(p.origin.x + group) * TC_RUN_ELEMENTS + index, end = min(p.count, first + TC_RUN_ELEMENTS - index);
  for (ulong i = first; i < end; i += TC_RUN_THREADS) output_write(output, p.offset + i, 0.0f);
}

/* output = input, rounded. */
kernel void tc_round(constant tc_run_params &p [[buffer(TC_BUFFER_PARAMS)]], device const float *input [[buffer(TC_BUFFER_X)]],
                     device half *output [[buffer(TC_BUFFER_Y)]], uint group [[threadgroup_position_in_grid]],
                     uint index [[thread_position_in_threadgroup]]) {
  const ulong first = ulong(p.origin.x + group) * TC_RUN_ELEMENTS + index, end = min(p.count, first + TC_RUN_ELEMENTS - index);
  for (ulong i = first; i < end; i += TC_RUN_THREADS) output[p.offset + i] = to_half(input[i]);
}
