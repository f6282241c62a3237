/* SPDX-License-Identifier: MIT */
#include "cpu/kernels.h"

/* The build defines TC_HAVE_<ISA> for each file of kernels that it compiled. */

extern const tc_cpu_kernels tc_cpu_kernels_generic, tc_cpu_kernels_avx2, tc_cpu_kernels_avx512, tc_cpu_kernels_neon;

static bool always(void) { return true; }

#if defined(TC_HAVE_AVX2) || defined(TC_HAVE_AVX512)
#include "cpu/x86/features.h"

static bool has_avx2(void) { return tc_x86_has_avx2(tc_x86_cpuid()); }
#endif

#ifdef TC_HAVE_AVX512
static bool has_avx512(void) { return tc_x86_has_avx512(tc_x86_cpuid()); }
#endif

const tc_cpu_isa tc_cpu_isas[] = {
    {&tc_cpu_kernels_generic, always},
#ifdef TC_HAVE_AVX2
    {&tc_cpu_kernels_avx2, has_avx2},
#endif
#ifdef TC_HAVE_AVX512
    {&tc_cpu_kernels_avx512, has_avx512},
#endif
#ifdef TC_HAVE_NEON
    {&tc_cpu_kernels_neon, always},
#endif
};

const int tc_cpu_isa_count = sizeof tc_cpu_isas / sizeof *tc_cpu_isas;
