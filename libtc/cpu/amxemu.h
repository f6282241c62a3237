/* SPDX-License-Identifier: MIT
 *
 * Tiles in C, as Intel's manual defines them for palette 1 (SDM volume 1, chapter 18; volume 2: LDTILECFG, TILELOADD, TDPBF16PS,
 * TILESTORED, TILERELEASE): the ISA amxemu, which runs everything above the tile operations where there is no AMX. Each thread has
 * its own 8 tiles. What faults on a CPU (a bad configuration, an operand that isn't configured, sizes that don't fit) traps.
 */
#ifndef TC_CPU_AMXEMU_H
#define TC_CPU_AMXEMU_H

#include <stdint.h>

void tc_amxemu_config(const void *config); /* 64 bytes */
void tc_amxemu_release(void);
void tc_amxemu_zero(int tile);
void tc_amxemu_load(int tile, const void *base, int64_t stride);
void tc_amxemu_store(int tile, void *base, int64_t stride);
void tc_amxemu_product(int c, int a, int b); /* TDPBF16PS */

#endif
