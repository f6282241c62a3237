/* SPDX-License-Identifier: MIT */
/* The MSL face of the simulator: compiles Metal Shading Language text with clang and runs its kernels on this CPU.
 *
 * It knows of compute kernels only, and nothing of Metal's host API; the framework part stands on this header. Every function may
 * be called from any thread. Errors are sentences in memory of malloc, which the caller frees; `error` may be NULL.
 *
 * Environment, read once per process:
 *   METALSIM_CACHE      directory that keeps compiled libraries between processes (else: one of its own, removed at exit)
 *   METALSIM_CLANG      the compiler (clang-19)
 *   METALSIM_CHECK      1: every access of device and threadgroup memory is checked against its bounds, searched for races, and
 *                       counted in face_counters (slower). Always so in a process with ThreadSanitizer
 *   METALSIM_LANE_MAP   apple | permuted: which lane holds which element of a simdgroup_matrix
 *   METALSIM_SUBNORMAL  half: float subnormals are flushed and half's kept | none: half's are flushed too | all: nothing is flushed
 *   METALSIM_SEED       order in which threads of a threadgroup run between barriers (0: by index)
 */
#ifndef METALSIM_FACE_H
#define METALSIM_FACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FACE_API __attribute__((visibility("default")))

enum { FACE_BUFFERS = 31, FACE_THREADGROUP_BYTES = 32768, FACE_MAX_THREADS = 1024, FACE_SIMD_WIDTH = 32 };

typedef struct face_library face_library;
typedef struct face_function face_function;

typedef enum face_type {
  FACE_BOOL,
  FACE_CHAR,
  FACE_UCHAR,
  FACE_SHORT,
  FACE_USHORT,
  FACE_INT,
  FACE_UINT,
  FACE_LONG,
  FACE_ULONG,
  FACE_HALF,
  FACE_FLOAT,
} face_type;

typedef enum face_space { FACE_DEVICE, FACE_CONSTANT, FACE_THREADGROUP } face_space;

typedef struct face_argument {
  const char *name;
  face_space space; /* FACE_THREADGROUP: an argument [[threadgroup(index)]], else [[buffer(index)]] */
  uint32_t index;
  bool writable;          /* a pointer or reference to device memory without const */
  bool reference;         /* `constant P &p`: the buffer must hold size bytes */
  size_t size, alignment; /* of what it points to */
} face_argument;

typedef struct face_constant {
  const char *name;
  uint32_t index;
  face_type type;
  bool required; /* nobody asks is_function_constant_defined for it */
} face_constant;

/* What a library says about one of its kernels, before function constants have values. Alive as long as the library. */
typedef struct face_kernel {
  const char *name;
  const face_argument *arguments; /* also those that a function constant may switch off */
  size_t argument_count;
  const face_constant *constants; /* those that the kernel, or what it calls, reads */
  size_t constant_count;
  uint32_t max_total_threads; /* [[max_total_threads_per_threadgroup(n)]], 0 without */
} face_kernel;

/* A value of a function constant: the bytes of its type. */
typedef struct face_value {
  uint32_t index;
  face_type type;
  uint64_t bits;
} face_value;

/* Compiles exactly these bytes as one source without includes of files. version is __METAL_VERSION__: 300, or 310 for sources that use
 * bfloat. NULL: *error is the compiler's text. A library stays in the process, for whoever compiles the same source again. */
FACE_API face_library *face_library_new(const char *source, size_t length, int version, char **error);
FACE_API void face_library_free(face_library *library);
FACE_API size_t face_library_kernel_count(const face_library *library);
FACE_API const face_kernel *face_library_kernel(const face_library *library, size_t i);
FACE_API const face_kernel *face_library_find(const face_library *library, const char *name); /* NULL: there is none */
FACE_API size_t face_type_size(face_type type);

/* A kernel with values of function constants. Refused: a required constant without a value, a value of another type. Values of
 * constants that the library does not have are ignored, as in Metal. It keeps what it needs of the library. */
FACE_API face_function *face_function_new(const face_library *library, const char *name, const face_value *values, size_t count,
                                          char **error);
FACE_API void face_function_free(face_function *function);
FACE_API const char *face_function_name(const face_function *function);
/* The arguments left when function constants have switched off theirs. */
FACE_API size_t face_function_argument_count(const face_function *function);
FACE_API const face_argument *face_function_argument(const face_function *function, size_t i);
FACE_API uint32_t face_function_max_total_threads(const face_function *function); /* 0: no attribute */
FACE_API size_t face_function_threadgroup_bytes(const face_function *function);   /* declared in the kernel's body */

typedef struct face_binding {
  void *pointer; /* offset included */
  size_t length; /* from pointer to the end of the buffer */
} face_binding;

typedef struct face_dispatch_desc {
  const face_function *function;
  face_binding buffers[FACE_BUFFERS]; /* unset: NULL */
  size_t threadgroup_lengths[FACE_BUFFERS];
  uint32_t threadgroups[3];
  uint32_t threads[3]; /* per threadgroup */
} face_dispatch_desc;

/* threadgroups, barriers and simdgroup operations are always counted; bytes and accesses only where accesses are checked. */
typedef struct face_counters {
  uint64_t device_read, device_written;           /* bytes */
  uint64_t threadgroup_read, threadgroup_written; /* bytes */
  uint64_t constant_read;                         /* bytes of arguments in constant memory, for each thread that reads them */
  uint64_t device_accesses, threadgroup_accesses; /* loads and stores, one for each thread; without those of whole matrices */
  uint64_t matrix_moves;                          /* simdgroup_load and simdgroup_store, one for each simdgroup */
  uint64_t multiply_accumulates;                  /* 8x8x8, one for each simdgroup */
  uint64_t threadgroup_barriers;                  /* one for each threadgroup */
  uint64_t simdgroup_barriers;                    /* one for each simdgroup */
  uint64_t threadgroups;
} face_counters;

/* Runs the whole grid and returns. counters may be NULL; they are set, not added to. False: *error says what the kernel did (threads
 * that wait at different places, an access out of bounds, a race, too much threadgroup memory); the outputs are unspecified then. */
FACE_API bool face_dispatch(const face_dispatch_desc *desc, face_counters *counters, char **error);

#ifdef __cplusplus
}
#endif

#endif
