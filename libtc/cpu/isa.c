/* SPDX-License-Identifier: MIT */
#include <stddef.h>

#include "cpu/kernels.h"
#include "cpu/split.h"

/* The build defines TC_HAVE_<ISA> for each file of kernels that it compiled. */

extern const tc_cpu_kernels tc_cpu_kernels_generic, tc_cpu_kernels_avx2, tc_cpu_kernels_avx512, tc_cpu_kernels_neon;
extern const tc_split_kernels tc_split_kernels_amxemu, tc_split_kernels_amxbf16;

static bool always(void) { return true; }

#if defined(TC_HAVE_AVX2) || defined(TC_HAVE_AVX512)
#include "cpu/x86/features.h"

static bool has_avx2(void) { return tc_x86_has_avx2(tc_x86_cpuid()); }
#endif

#ifdef TC_HAVE_AVX512
static bool has_avx512(void) { return tc_x86_has_avx512(tc_x86_cpuid()); }
#endif

#ifdef TC_HAVE_AMXBF16
static bool has_amxbf16(void) { return tc_x86_has_amxbf16(tc_x86_cpuid()) && !tc_x86_amx_refused(); }
#endif

const tc_cpu_isa tc_cpu_isas[] = {
    {"generic", &tc_cpu_kernels_generic, NULL, always, false, NULL},
    {"amxemu", &tc_cpu_kernels_generic, &tc_split_kernels_amxemu, always, true, NULL},
#ifdef TC_HAVE_AVX2
    {"avx2", &tc_cpu_kernels_avx2, NULL, has_avx2, false, NULL},
#endif
#ifdef TC_HAVE_AVX512
    {"avx512", &tc_cpu_kernels_avx512, NULL, has_avx512, false, NULL},
#endif
#ifdef TC_HAVE_AMXBF16
    {"amxbf16", &tc_cpu_kernels_avx512, &tc_split_kernels_amxbf16, has_amxbf16, false, tc_x86_amx_refusal},
#endif
#ifdef TC_HAVE_NEON
    {"neon", &tc_cpu_kernels_neon, NULL, always, false, NULL},
#endif
};

const int tc_cpu_isa_count = sizeof tc_cpu_isas / sizeof *tc_cpu_isas;
