/* SPDX-License-Identifier: MIT */
#ifndef TC_CPU_INTEGER_H
#define TC_CPU_INTEGER_H

#include <stdint.h>

static inline int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }

static inline int64_t max(int64_t a, int64_t b) { return a > b ? a : b; }

/* For a >= 0, b >= 1; no intermediate result overflows. */
static inline int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0); }

static inline int64_t round_up(int64_t a, int64_t unit) { return ceil_div(a, unit) * unit; }

#endif
