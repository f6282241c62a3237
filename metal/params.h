/* SPDX-License-Identifier: MIT
 *
 * What the host tells a kernel: plain C and Metal shading language at once, the same bytes on both sides.
 *
 * Sizes, strides and offsets count elements. Strides and whole sizes have 64 bits; what is used inside a tile has 32.
 */
#ifndef TC_METAL_PARAMS_H
#define TC_METAL_PARAMS_H

#ifdef __METAL_VERSION__
typedef uint tc_u32;
typedef int tc_i32;
typedef ulong tc_u64;
#define TC_PARAMS_SIZE(type, size) static_assert(sizeof(type) == (size), #type " must have the same size on host and device")
#else
#include <stdint.h>
typedef uint32_t tc_u32;
typedef int32_t tc_i32;
typedef uint64_t tc_u64;
#define TC_PARAMS_SIZE(type, size) _Static_assert(sizeof(type) == (size), #type " must have the same size on host and device")
#endif

/* No fp32 sum takes more products than this; longer sums are made of such ones, added in order. A multiple of every tile's K. */
#define TC_SUM_PRODUCTS 512

/* Indices of buffers. Not every kernel has all of them. */
#define TC_BUFFER_PARAMS 0
#define TC_BUFFER_A 1
#define TC_BUFFER_B 2
#define TC_BUFFER_C 3
#define TC_BUFFER_X 1
#define TC_BUFFER_W 2
#define TC_BUFFER_Y 3
#define TC_BUFFER_BIAS 4
#define TC_BUFFER_PARTIALS 5
#define TC_BUFFER_PACKED 6
#define TC_BUFFER_FLAG 7

/* The tiles that kernels are made for: M, N, K of a block, simdgroups along M and N. */
#define TC_TILES(TILE)   \
  TILE(64, 64, 16, 2, 2) \
  TILE(32, 64, 16, 1, 2) \
  TILE(32, 32, 32, 2, 2) \
  TILE(8, 64, 32, 1, 4)  \
  TILE(64, 8, 32, 4, 1)

/* And just for matrices. */
#define TC_GEMM_TILES(TILE) \
  TC_TILES(TILE)            \
  TILE(64, 32, 32, 2, 2)

/* Indices of function constants; a kernel reads those that concern it. */
#define TC_CONSTANT_LONG_SUMS 0     /* bool: a part of K has more than TC_SUM_PRODUCTS */
#define TC_CONSTANT_VECTORS_A 1     /* bool: rows of the first operand can be read four elements at a time */
#define TC_CONSTANT_VECTORS_B 2     /* bool: the same of the second one */
#define TC_CONSTANT_F32_OUTPUT 3    /* bool: the output is float, else half */
#define TC_CONSTANT_READ_C 4        /* bool: beta is not 0 */
#define TC_CONSTANT_ADD_BIAS 5      /* bool */
#define TC_CONSTANT_FEW_TAPS 6      /* bool: the kernel has at most TC_FEW_TAPS taps */
#define TC_CONSTANT_SPLIT 7         /* bool: the sums of each part go to the partials, and a second dispatch adds them */
#define TC_CONSTANT_ROUND_IN_BITS 8 /* bool: round to half with integer arithmetic, since the device's conversion does not do it */

/* Taps of a kernel for which a word says which ones are inside the plane. */
#define TC_FEW_TAPS 32

/* The threadgroup that a dispatch begins with, where work was cut. */
typedef struct tc_origin {
  tc_u64 z;
  tc_u32 x, y;
} tc_origin;

/* C[item] = alpha * op(A[item]) * op(B[item]) + beta * C[item]; K is cut into parts. Threadgroups: columns, rows, item and part. */
typedef struct tc_gemm_params {
  tc_origin origin;
  tc_u64 M, N, K;
  tc_u64 part; /* products in one part of K; the last one may have fewer */
  tc_u64 parts;
  tc_u64 a_offset, b_offset, c_offset;
  tc_u64 lda, ldb, ldc;
  tc_u64 stride_a, stride_b, stride_c; /* from item to item */
  float alpha, beta;
} tc_gemm_params;

/* A convolution, in any direction. Of a tensor: offset of the first element, strides from image to image, group to group, channel to
 * channel (w: output channel to output channel). A group's matrix product has M rows, N columns, sums of K, cut into parts:
 *   forward         rows: output channels, columns: pixels of Y of all images, K: taps of input channels
 *   backward_input  rows: input channels, columns: pixels of dX of all images that see the same taps, K: those of output channels
 *                   (N and K are the largest ones)
 *   backward_weight rows: output channels, columns: taps of input channels, K: pixels of dY of all images
 * The kernels that end in _pointwise take a kernel of one tap, stride 1, no padding; an im2col matrix can take the place of X in them:
 * its channels are taps, its plane is Y's. */
typedef struct tc_conv2d_params {
  tc_origin origin;
  tc_u64 M, N, K;
  tc_u64 part;
  tc_u64 parts;
  tc_u64 x_offset, x_image, x_group, x_channel;
  tc_u64 y_offset, y_image, y_group, y_channel;
  tc_u64 w_offset, w_group, w_channel;
  tc_u64 bias_offset;
  tc_u64 images;
  tc_u32 groups;
  tc_u32 in_channels, out_channels; /* of a group */
  tc_i32 H, W, kH, kW, out_H, out_W;
  tc_i32 pad_h, pad_w, stride_h, stride_w;
  tc_u32 first_row; /* im2col, col2im: of the rows that the matrix holds */
} tc_conv2d_params;

/* A run of elements, 0 or converted. Threadgroups: runs of TC_RUN_ELEMENTS. */
typedef struct tc_run_params {
  tc_origin origin;
  tc_u64 count;
  tc_u64 offset; /* of the first element that is written */
} tc_run_params;

#define TC_RUN_THREADS 256
#define TC_RUN_ELEMENTS 1024

/* Rows of an im2col matrix that a thread of im2col and col2im does. */
#define TC_COL_ROWS 16

/* The probe: words in, words out; libtc/metal/plan.h has the values. */
#define TC_PROBE_WORDS 12

TC_PARAMS_SIZE(tc_origin, 16);
TC_PARAMS_SIZE(tc_gemm_params, 136);
TC_PARAMS_SIZE(tc_conv2d_params, 216);
TC_PARAMS_SIZE(tc_run_params, 32);

#endif
