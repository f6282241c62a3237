/* SPDX-License-Identifier: MIT */
#ifndef TC_CPU_INTEGER_H
#define TC_CPU_INTEGER_H

#include <stdint.h>

static inline int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }

static inline int64_t max(int64_t a, int64_t b) { return a > b ? a : b; }

/* For a >= 0, b >= 1; no intermediate result overflows. */
static inline int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0); }

/* The size, at most limit, of the fewest parts that an extent falls into evenly (the last one may be smaller); extent >= 1. */
static inline int64_t even_part(int64_t extent, int64_t limit) { return ceil_div(extent, ceil_div(extent, limit)); }

static inline int64_t round_up(int64_t a, int64_t unit) { return ceil_div(a, unit) * unit; }

#endif
