/* SPDX-License-Identifier: MIT
 *
 * libtc: fp16 GEMM and 2-D convolution (forward, gradient of the input, gradient of the weight).
 * This header is the whole public API and its reference. It is C99, and C++ may include it.
 *
 * The order of work:
 *     tc_init -> tc_buffer_alloc / tc_buffer_wrap -> tc_buffer_map -> tc_gemm / tc_conv2d_* -> tc_buffer_free -> tc_shutdown
 *
 * Conventions, which hold for every function below
 *   Sizes       are int64_t counts of elements, unless the name says bytes.
 *   Tensors     are dense and row-major in the order given in brackets: X [N,IC,H,W] has W innermost.
 *   fp16        is IEEE 754 binary16, held in buffers as 2 bytes in the machine's byte order (uint16_t in C).
 *   Numerics    fp16 inputs, fp32 products and sums (no single fp32 sum takes more than 512 products; the partial sums are then
 *               added in a fixed order and at least as precisely), one rounding to nearest even at the store. Where an ISA says so
 *               (amxbf16), a product may be off by 2^-16 of itself; in math_mode strict it never is.
 *               NaN, infinities and subnormals are kept as IEEE 754 says (GPUs may take a subnormal fp32, as alpha, beta or an fp32
 *               C or dW, for 0); overflow gives +-inf. A NaN in a result is always the quiet one with sign and payload 0 (fp16
 *               0x7e00, fp32 0x7fc00000).
 *   Determinism The same call on the same backend and ISA gives the same bits, on any number of threads.
 *   Errors      Every function that can fail returns a tc_status_t, and then tc_last_error() has the sentence. Errors found before
 *               the work starts (arguments, memory, unsupported) leave all outputs untouched; that is every error except
 *               TC_ERROR_DEVICE and TC_ERROR_TIMEOUT, after which outputs are unspecified and the context only fails.
 *   Completion  A call has finished when it returns (between tc_batch_begin and tc_batch_end: when tc_batch_end returns).
 *   Overlap     Outputs and scratch may overlap no other operand, judged by addresses from the first to the last byte touched.
 *               Inputs may overlap inputs.
 *   Printing    The library prints nothing, unless TC_VERBOSE=1: then one line on stderr for each op that succeeds, and one from
 *               tc_init if the operating system refuses the best kernels. It never aborts.
 *
 * Environment, read by tc_init and tc_init_backend. An unset or empty variable has no effect; an unknown value, or one that this
 * machine can't do, is TC_ERROR_ENVIRONMENT, and the sentence says what is allowed. (TC_BACKEND=metal in a library without Metal is
 * UNSUPPORTED.)
 *   TC_BACKEND=cpu|metal          what TC_BACKEND_AUTO takes
 *   TC_CPU_ISA=generic|avx2|avx512|amxbf16|neon   the CPU kernels to use, instead of the best ones this machine has
 *                                 (amxemu, for tests: all that amxbf16 does, its tiles in plain C; only if it is named)
 *   TC_NUM_THREADS=1..1024        threads of a new context, instead of one for each CPU the process may use
 *   TC_VERBOSE=0|1
 *   TC_CONV_PATH=col|implicit     forces a convolution path, for tests (the CPU backend has implicit only)
 */
#ifndef TC_TC_H
#define TC_TC_H

#include <stddef.h>
#include <stdint.h>

#if defined(TC_BUILDING) && defined(__GNUC__)
#define TC_API __attribute__((visibility("default")))
#else
#define TC_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Version ----------------------------------------------------------------------------------------------------------------- */

#define TC_VERSION_MAJOR 0
#define TC_VERSION_MINOR 1
#define TC_VERSION_PATCH 0

/* Number of the API, and of the SONAME. It grows when a program compiled against an older header could break. */
#define TC_API_VERSION 1

/* TC_API_VERSION of the library that is loaded. Thread-safety: any thread. */
TC_API int32_t tc_api_version(void);

/* "MAJOR.MINOR.PATCH" of the library that is loaded; static storage. Thread-safety: any thread. */
TC_API const char *tc_version(void);

/* ---- Status ------------------------------------------------------------------------------------------------------------------ */

/* The numbers are frozen. */
typedef enum tc_status_t {
  TC_OK = 0,
  TC_ERROR_ARGUMENT = -1,  /* NULL where a pointer is needed, unknown enum value, object of another context, bad struct_size */
  TC_ERROR_SHAPE = -2,     /* a size, stride, padding, leading dimension or offset that is out of range or doesn't fit the others */
  TC_ERROR_BUFFER = -3,    /* a buffer holds fewer bytes than the operand needs */
  TC_ERROR_ALIGNMENT = -4, /* an address is no multiple of the element's size */
  TC_ERROR_OVERLAP = -5,   /* an output or scratch shares bytes with another operand */
  TC_ERROR_MEMORY = -6,    /* no memory for a buffer or a workspace */
  TC_ERROR_UNSUPPORTED = -7, /* valid, but not built (yet); the sentence names the field */
  TC_ERROR_ENVIRONMENT = -8, /* a TC_* environment variable has a value that isn't allowed here */
  TC_ERROR_NO_DEVICE = -9,   /* the backend finds no device on this machine */
  TC_ERROR_DEVICE = -10,     /* the device failed; the context only fails from now on */
  TC_ERROR_TIMEOUT = -11,    /* the device didn't answer in time; the context only fails from now on */
  TC_ERROR_CLOSED = -12,     /* the context has been shut down */
  TC_ERROR_STATE = -13       /* tc_batch_begin inside a batch, or tc_batch_end outside one */
} tc_status_t;

/* The name of a status, as "TC_ERROR_SHAPE"; "TC_ERROR_UNKNOWN" for any other number. Static storage. Thread-safety: any thread. */
TC_API const char *tc_status_string(tc_status_t status);

/* The sentence of the calling thread's last failed call: "function: argument was so, this was needed". Never NULL; "" before the
 * first failure; a later success keeps it. Valid until the thread's next failure. Thread-safety: each thread has its own. */
TC_API const char *tc_last_error(void);

/* ---- fp16 conversions -------------------------------------------------------------------------------------------------------- */

/* Exact. A signalling NaN becomes quiet; payloads are kept. Thread-safety: any thread. */
TC_API float tc_f16_to_f32(uint16_t half);

/* Rounds to nearest even whatever the floating-point environment; beyond 65504 after rounding: inf; NaN stays NaN (quiet). */
TC_API uint16_t tc_f32_to_f16(float value);

/* The same for arrays of n elements; src and dst may not overlap. n = 0 touches nothing. Thread-safety: any thread. */
TC_API void tc_convert_f16_to_f32(const uint16_t *src, float *dst, size_t n);
TC_API void tc_convert_f32_to_f16(const float *src, uint16_t *dst, size_t n);

/* ---- Context ----------------------------------------------------------------------------------------------------------------- */

typedef enum tc_backend_t {
  TC_BACKEND_AUTO = 0, /* Metal if there is a device (if that fails then, it's an error), else CPU; or what TC_BACKEND says */
  TC_BACKEND_CPU = 1,
  TC_BACKEND_METAL = 2
} tc_backend_t;

/* A context is one backend with its threads and workspaces.
 * Thread-safety: all functions on one context may be called from several threads at once. Of concurrent calls one has the context's
 * threads, each other one runs on its own thread, with the same bits. After fork() the child may go on using CPU contexts (even
 * if another thread of the parent was inside a call); other backends answer with an error. */
typedef struct tc_context tc_context;

/* Opens the best backend that works here. *out is the context, owned by the caller until tc_shutdown; NULL on failure.
 * Errors: ARGUMENT (out is NULL), ENVIRONMENT, MEMORY, UNSUPPORTED (TC_BACKEND names a backend that isn't built), NO_DEVICE,
 * DEVICE. */
TC_API tc_status_t tc_init(tc_context **out);

/* The same for one backend. TC_BACKEND_AUTO is tc_init. */
TC_API tc_status_t tc_init_backend(tc_backend_t which, tc_context **out);

/* Waits for running calls, then closes the context; NULL is fine. Live buffers keep their memory until they are freed, and until
 * the last of them is freed calls on the context answer TC_ERROR_CLOSED; after that the handle is dead. */
TC_API tc_status_t tc_shutdown(tc_context *ctx);

typedef struct tc_device_info {
  size_t struct_size;   /* in: sizeof(tc_device_info), see TC_DEVICE_INFO_INIT; as many bytes are filled */
  tc_backend_t backend; /* never AUTO */
  int32_t reserved;     /* 0 */
  int64_t threads;      /* as tc_context_get_threads */
  char device[128];     /* the CPU's or GPU's own name */
  char isa[32];         /* kernels in use: a value of TC_CPU_ISA; "" on a GPU */
  char isa_reason[128]; /* why these: "best of generic,avx2" or "TC_CPU_ISA=generic"; on a GPU: where its kernels came from, and
                         * what the probe of its arithmetic found */
  char isas[128];       /* every value of TC_CPU_ISA that this machine can do, separated by commas, rising */
  char kernel[64];      /* name of the matrix micro-kernel; on a GPU: of the kernel for large products */
} tc_device_info;

#define TC_DEVICE_INFO_INIT \
  { sizeof(tc_device_info), TC_BACKEND_AUTO, 0, 0, "", "", "", "", "" }

/* Fills *out. Errors: ARGUMENT (NULL, struct_size), CLOSED. */
TC_API tc_status_t tc_device_info_get(tc_context *ctx, tc_device_info *out);

/* Sets how many threads a call may use, the caller among them: 1..1024. Results don't depend on it. Waits for the call that has the
 * threads. Errors: ARGUMENT, SHAPE (n out of range), CLOSED. */
TC_API tc_status_t tc_context_set_threads(tc_context *ctx, int64_t n);
TC_API tc_status_t tc_context_get_threads(tc_context *ctx, int64_t *out);

/* Frees the workspace that the context keeps from call to call. Errors: ARGUMENT, CLOSED. */
TC_API tc_status_t tc_context_trim(tc_context *ctx);

/* ---- Buffers ----------------------------------------------------------------------------------------------------------------- */

/* Memory that calls read and write. A buffer keeps its context's memory alive.
 * Thread-safety: a buffer may be used by several calls at once while none writes what another one reads or writes; it must not be
 * freed while a call uses it. */
typedef struct tc_buffer tc_buffer;

/* New memory: zeroed, aligned to 64 bytes at least (Metal: a page). bytes may be 0. *out is NULL on failure.
 * Errors: ARGUMENT, MEMORY, CLOSED. */
TC_API tc_status_t tc_buffer_alloc(tc_context *ctx, size_t bytes, tc_buffer **out);

/* The caller's memory, without a copy; it must outlive the buffer. On the CPU any address will do (a tensor's alignment is checked
 * when it is used, and memory that is only read may be read-only); ptr may be NULL if bytes is 0. Metal: ptr and bytes must be
 * multiples of the page, which is 16384. *out is NULL on failure. Errors: ARGUMENT, ALIGNMENT, MEMORY, CLOSED. */
TC_API tc_status_t tc_buffer_wrap(tc_context *ctx, void *ptr, size_t bytes, tc_buffer **out);

/* The CPU's pointer to the buffer's memory, without a copy, stable until the buffer is freed; there is no unmap. Also after
 * tc_shutdown. *out is NULL on failure. Errors: ARGUMENT. */
TC_API tc_status_t tc_buffer_map(tc_buffer *buf, void **out);

/* Size in bytes as given to alloc or wrap; 0 for NULL. */
TC_API size_t tc_buffer_size(const tc_buffer *buf);

/* Frees the buffer, and its memory if tc_buffer_alloc made it. A NULL buf is fine. ctx is the buffer's context; also after its
 * tc_shutdown. Errors: ARGUMENT (ctx is NULL or not the buffer's; nothing is freed). */
TC_API tc_status_t tc_buffer_free(tc_context *ctx, tc_buffer *buf);

/* ---- Descriptors ------------------------------------------------------------------------------------------------------------- */

/* A descriptor starts with struct_size, the sizeof of the program's header. A shorter struct (an older program) is filled up with
 * zeros; in a longer one (a newer program) the bytes this library doesn't know must be 0, else TC_ERROR_UNSUPPORTED;
 * a struct_size under 8 or over 4096 is TC_ERROR_ARGUMENT. Start from the INIT macro, then set fields by name. */

typedef enum tc_dtype_t { TC_DTYPE_F16 = 0, TC_DTYPE_F32 = 1, TC_DTYPE_BF16 = 2 } tc_dtype_t;

typedef enum tc_layout_t { TC_LAYOUT_NCHW = 0, TC_LAYOUT_NHWC = 1 } tc_layout_t;

typedef enum tc_activation_t { TC_ACTIVATION_NONE = 0, TC_ACTIVATION_RELU = 1 } tc_activation_t;

/* What a call may trade. The CPU's fp32 kernels meet every one of them in the same way. */
typedef enum tc_math_mode_t {
  TC_MATH_DEFAULT = 0,       /* the rules at the top of this header */
  TC_MATH_STRICT = 1,        /* also: products of two fp16 are exact */
  TC_MATH_DETERMINISTIC = 2, /* also: never an algorithm whose bits can change from run to run (GPU atomics) */
  TC_MATH_FAST = 3           /* allows less accurate products; no backend makes use of it yet */
} tc_math_mode_t;

/* ---- GEMM -------------------------------------------------------------------------------------------------------------------- */

/* C = alpha * op(A) * op(B) + beta * C, with op(A) [M,K], op(B) [K,N], C [M,N].
 * A is stored [M,K], or [K,M] if transpose_a; B [K,N], or [N,K] if transpose_b; C always [M,N].
 *   M, N, K     >= 0. M or N = 0: nothing is written. K = 0: C = beta * C.
 *   alpha, beta alpha = 0: C = beta * C, A and B are not read. beta = 0: C is not read (NaN in it doesn't matter).
 *   lda, ldb, ldc  elements from one row to the next as stored; 0 = packed (the number of columns as stored).
 *   dtypes      A and B: F16. C: F16 or F32. (Others: UNSUPPORTED.)
 *   offsets     first element of each operand in its buffer, in elements of its dtype.
 * A matrix of R rows and Q columns takes (R-1)*ld + Q elements from its offset on, and no byte outside them is touched. */
typedef struct tc_gemm_desc {
  size_t struct_size;
  int64_t M, N, K;
  int32_t transpose_a, transpose_b; /* 0 or 1 */
  float alpha, beta;
  int64_t lda, ldb, ldc;
  tc_dtype_t a_dtype, b_dtype, c_dtype;
  tc_math_mode_t math_mode;
  int64_t a_offset, b_offset, c_offset;
} tc_gemm_desc;

/* alpha = 1, all else 0. */
#define TC_GEMM_DESC_INIT \
  { sizeof(tc_gemm_desc), 0, 0, 0, 0, 0, 1.0f, 0.0f, 0, 0, 0, TC_DTYPE_F16, TC_DTYPE_F16, TC_DTYPE_F16, TC_MATH_DEFAULT, 0, 0, 0 }

/* Errors: ARGUMENT, SHAPE, BUFFER, ALIGNMENT, OVERLAP, MEMORY, UNSUPPORTED, CLOSED, DEVICE, TIMEOUT. */
TC_API tc_status_t tc_gemm(tc_context *ctx, const tc_gemm_desc *desc, const tc_buffer *A, const tc_buffer *B, tc_buffer *C);

/* batch products of one shape; product i takes its operands at offset + i * stride (in elements).
 * A stride of 0 for A or B means that all share one matrix. With batch > 1 a stride_c under (M-1)*ldc + N is SHAPE, since the
 * results would overlap. Negative strides are SHAPE. batch = 0: nothing is written. All other fields: tc_gemm_desc. */
typedef struct tc_gemm_batched_desc {
  size_t struct_size;
  int64_t M, N, K;
  int32_t transpose_a, transpose_b;
  float alpha, beta;
  int64_t lda, ldb, ldc;
  tc_dtype_t a_dtype, b_dtype, c_dtype;
  tc_math_mode_t math_mode;
  int64_t a_offset, b_offset, c_offset;
  int64_t batch;
  int64_t stride_a, stride_b, stride_c;
} tc_gemm_batched_desc;

/* alpha = 1, batch = 1, all else 0. */
#define TC_GEMM_BATCHED_DESC_INIT                                                                                                \
  {                                                                                                                              \
    sizeof(tc_gemm_batched_desc), 0, 0, 0, 0, 0, 1.0f, 0.0f, 0, 0, 0, TC_DTYPE_F16, TC_DTYPE_F16, TC_DTYPE_F16, TC_MATH_DEFAULT, \
        0, 0, 0, 1, 0, 0, 0                                                                                                      \
  }

/* Errors: as tc_gemm. */
TC_API tc_status_t tc_gemm_batched(tc_context *ctx, const tc_gemm_batched_desc *desc, const tc_buffer *A, const tc_buffer *B,
                                   tc_buffer *C);

/* ---- Convolution: sizes ------------------------------------------------------------------------------------------------------ */

/* Output size along one axis: floor((size + 2*pad - kernel) / stride) + 1, a true floor (size 4, kernel 6, stride 3 gives 0).
 * A result under 1 means that there is no output. INT64_MIN (and tc_last_error) if size or kernel < 1, pad < 0, stride < 1, or the
 * sum overflows. Thread-safety: any thread, here and below. */
TC_API int64_t tc_conv2d_out_dim(int64_t size, int64_t kernel, int64_t pad, int64_t stride);

/* Bytes of scratch_col: batch * (in_channels*kH*kW) * out_H*out_W * 2. SIZE_MAX (and tc_last_error) for a negative size or a
 * product of 2^63 bytes or more. */
TC_API size_t tc_conv2d_scratch_col_bytes(int64_t batch, int64_t in_channels, int64_t kH, int64_t kW, int64_t out_H, int64_t out_W);

/* Bytes of scratch_dX_f32: batch * in_channels * H * W * 4. SIZE_MAX as above. */
TC_API size_t tc_conv2d_scratch_dx_bytes(int64_t batch, int64_t in_channels, int64_t H, int64_t W);

/* ---- Convolution ------------------------------------------------------------------------------------------------------------- */

/* Cross-correlation, as deep-learning frameworks mean it; all tensors fp16, NCHW:
 *   Y[n,o,y,x] = bias[o] + sum over i,ky,kx of weight[o,i,ky,kx] * X[n, i, y*stride_h - pad_h + ky, x*stride_w - pad_w + kx]
 * where X is 0 outside of its H x W pixels. Those zeros take part in forward and backward_weight (an infinite weight over padding
 * gives NaN); backward_input sums real pairs only.
 *   batch       >= 0 (0: nothing is written, and dW is 0). Every other size >= 1, paddings >= 0, strides >= 1.
 *   out_H/out_W must be tc_conv2d_out_dim(H, kH, pad_h, stride_h) and the same for W, and at least 1.
 *   bias        [out_channels] or NULL.
 *   scratch     each one may be NULL: the call then runs without it. One that is given must hold the bytes of its helper above,
 *               start at a multiple of 4, and overlap nothing; it permits the documented im2col path but doesn't order it, and its
 *               content is unspecified afterwards. Whatever it holds before is not read.
 * Errors of all six functions: ARGUMENT, SHAPE, BUFFER, ALIGNMENT, OVERLAP, MEMORY, UNSUPPORTED, CLOSED, DEVICE, TIMEOUT. */
TC_API tc_status_t tc_conv2d_forward(tc_context *ctx, const tc_buffer *X /* [batch,in_channels,H,W] */,
                                     const tc_buffer *weight /* [out_channels,in_channels,kH,kW] */,
                                     const tc_buffer *bias /* [out_channels] or NULL */,
                                     tc_buffer *Y /* [batch,out_channels,out_H,out_W] */, tc_buffer *scratch_col, int64_t batch,
                                     int64_t in_channels, int64_t out_channels, int64_t H, int64_t W, int64_t kH, int64_t kW,
                                     int64_t pad_h, int64_t pad_w, int64_t stride_h, int64_t stride_w, int64_t out_H,
                                     int64_t out_W);

/* dX = gradient of sum(Y * dY) by X. */
TC_API tc_status_t tc_conv2d_backward_input(tc_context *ctx, const tc_buffer *dY, const tc_buffer *weight, tc_buffer *dX,
                                            tc_buffer *scratch_col, tc_buffer *scratch_dX_f32, int64_t batch, int64_t in_channels,
                                            int64_t out_channels, int64_t H, int64_t W, int64_t kH, int64_t kW, int64_t pad_h,
                                            int64_t pad_w, int64_t stride_h, int64_t stride_w, int64_t out_H, int64_t out_W);

/* dW = gradient of sum(Y * dY) by weight, summed over the batch. */
TC_API tc_status_t tc_conv2d_backward_weight(tc_context *ctx, const tc_buffer *X, const tc_buffer *dY, tc_buffer *dW,
                                             tc_buffer *scratch_col, int64_t batch, int64_t in_channels, int64_t out_channels,
                                             int64_t H, int64_t W, int64_t kH, int64_t kW, int64_t pad_h, int64_t pad_w,
                                             int64_t stride_h, int64_t stride_w, int64_t out_H, int64_t out_W);

/* One problem for all three directions. All fields are frozen; those marked (later) must keep their INIT value for now, or the call
 * answers TC_ERROR_UNSUPPORTED and names the field.
 *   weight      [out_channels, in_channels/groups, kH, kW]; output channel o sees the input channels of group
 *               o / (out_channels/groups). groups must divide both channel counts; groups = in_channels is depthwise.
 *   paddings    top/bottom along H, left/right along W. (later: unequal ones)
 *   dilation    1 = dense. (later: > 1)
 *   layout      of X, Y and their gradients. (later: NHWC)
 *   dtypes      x: X, dX. w: weight, dW. y: Y, dY. F16, and F32 for the dW that backward_weight writes. (later: other)
 *   alpha,beta  out = alpha * conv + beta * out; (later: other than 1 and 0)
 *   activation  of forward, after the bias. (later: other than NONE)
 *   offsets     first element of each tensor in its buffer (x: X, dX; w: weight, dW; y: Y, dY), in elements of its dtype.
 * A 0 in strides, dilation or groups is an error, not a default. */
typedef struct tc_conv2d_desc {
  size_t struct_size;
  int64_t batch, in_channels, out_channels;
  int64_t H, W, kH, kW, out_H, out_W;
  int64_t pad_top, pad_bottom, pad_left, pad_right;
  int64_t stride_h, stride_w;
  int64_t dilation_h, dilation_w;
  int64_t groups;
  tc_layout_t layout;
  tc_dtype_t x_dtype, w_dtype, bias_dtype, y_dtype;
  tc_activation_t activation;
  tc_math_mode_t math_mode;
  float alpha, beta;
  int32_t reserved; /* 0 */
  int64_t x_offset, w_offset, bias_offset, y_offset;
} tc_conv2d_desc;

/* Strides, dilation, groups and alpha 1, all else 0. */
#define TC_CONV2D_DESC_INIT                                                                                                   \
  {                                                                                                                           \
    sizeof(tc_conv2d_desc), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, TC_LAYOUT_NCHW, TC_DTYPE_F16, TC_DTYPE_F16, \
        TC_DTYPE_F16, TC_DTYPE_F16, TC_ACTIVATION_NONE, TC_MATH_DEFAULT, 1.0f, 0.0f, 0, 0, 0, 0, 0                            \
  }

TC_API tc_status_t tc_conv2d_forward_desc(tc_context *ctx, const tc_conv2d_desc *desc, const tc_buffer *X, const tc_buffer *weight,
                                          const tc_buffer *bias, tc_buffer *Y, tc_buffer *scratch_col);
TC_API tc_status_t tc_conv2d_backward_input_desc(tc_context *ctx, const tc_conv2d_desc *desc, const tc_buffer *dY,
                                                 const tc_buffer *weight, tc_buffer *dX, tc_buffer *scratch_col,
                                                 tc_buffer *scratch_dX_f32);
TC_API tc_status_t tc_conv2d_backward_weight_desc(tc_context *ctx, const tc_conv2d_desc *desc, const tc_buffer *X,
                                                  const tc_buffer *dY, tc_buffer *dW, tc_buffer *scratch_col);

/* ---- Batches of calls -------------------------------------------------------------------------------------------------------- */

/* Between begin and end a GPU may run the context's calls without waiting for each one: outputs and device errors are there when
 * tc_batch_end returns, and operands must live until then. Calls run in order, as if each waited. The CPU has nothing to defer.
 * Batches don't nest. Errors: ARGUMENT, CLOSED, STATE, DEVICE, TIMEOUT. */
TC_API tc_status_t tc_batch_begin(tc_context *ctx);
TC_API tc_status_t tc_batch_end(tc_context *ctx);

#ifdef __cplusplus
}
#endif

#endif
