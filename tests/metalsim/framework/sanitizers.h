/* SPDX-License-Identifier: MIT */

/* gcc defines macros of its own for the sanitizers, clang has features. */
#pragma once

#ifndef __has_feature
#define __has_feature(feature) 0
#endif

#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#define SIM_ASAN
#endif
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
#define SIM_TSAN
#endif
