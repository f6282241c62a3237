/* SPDX-License-Identifier: MIT */

/* Page-aligned zeros between inaccessible pages. Freed memory stays inaccessible for a while, so a use after free is a crash. */
#pragma once

#include <stddef.h>

enum { SIM_PAGE = 16384 };

struct sim_memory;

/* NULL: there is no memory. */
struct sim_memory *sim_memory_new(size_t length);
char *sim_memory_start(const struct sim_memory *memory);
void sim_memory_free(struct sim_memory *memory);
