/* SPDX-License-Identifier: MIT */
#ifndef TC_METAL_EMBEDDED_H
#define TC_METAL_EMBEDDED_H

#include <stddef.h>

/* Bytes inside this library, in a C file that metal/embed.py wrote. */
typedef struct tc_embedded {
  const void *data; /* NULL where there is none */
  size_t bytes;
} tc_embedded;

/* The kernels as one self-contained text of the Metal shading language. It isn't NUL-terminated. */
extern const tc_embedded tc_metal_source;

/* The same, compiled; NULL where the build had no Metal compiler. */
extern const tc_embedded tc_metal_library;

#endif
