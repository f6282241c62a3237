/* SPDX-License-Identifier: MIT */
/* What compiled kernels and the runtime share. Included by both, so it uses only what C++ and clang's OpenCL C++ mode have in common. */
#ifndef FACE_ABI_H
#define FACE_ABI_H

enum {
  FACE_ABI_LANES = 32,
  FACE_ABI_SLOT = 16,          /* bytes that a lane may deposit in an exchange */
  FACE_ABI_STACK = 256 * 1024, /* a fiber's stack, aligned to its size */
  FACE_ABI_LANE_OFFSET = 4096, /* the fiber's face_lane lies this far below the end of its stack */
  FACE_ABI_MEM_DEVICE = 1,     /* mem_flags */
  FACE_ABI_MEM_THREADGROUP = 2,
};

typedef unsigned long face_word; /* OpenCL has 128 bits for long long */

/* Where a kernel calls: a file's name (const char *) and a line. */
typedef struct face_place {
  face_word file;
  int line;
} face_place;

/* One dispatch, as kernels see it. Addresses are words, since a pointer's type differs between the two sides. */
typedef struct face_group {
  face_word buffers[31];
  face_word threadgroups[31];
  unsigned position[3]; /* of the threadgroup in the grid */
  unsigned grid[3];     /* threadgroups in the grid */
  unsigned size[3];     /* threads in a threadgroup */
  unsigned simdgroups;  /* in a threadgroup */
  face_word multiply_accumulates, matrix_moves;
  unsigned char lane_map[2 * FACE_ABI_LANES]; /* element (row * 8 + column) of lane l's i-th value: lane_map[2 * l + i] */
} face_group;

/* One thread of a threadgroup. */
typedef struct face_lane {
  face_word group;      /* face_group * */
  unsigned position[3]; /* in the threadgroup */
  unsigned index;       /* in the threadgroup */
  unsigned lane;        /* in the simdgroup */
  unsigned simdgroup;
  face_place within; /* the matrix operation that runs, if one does: its accesses belong to that place */
  unsigned trail;    /* hash of this lane's simdgroup operations: equal in all lanes of a simdgroup */
} face_lane;

#endif
