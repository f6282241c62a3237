/* SPDX-License-Identifier: MIT
 *
 * Pictures for the examples: reads PPM, writes PGM. Whatever is wrong with a file ends the program with a sentence and status 1.
 */
#ifndef TC_EXAMPLES_PICTURE_H
#define TC_EXAMPLES_PICTURE_H

#include <stdint.h>

/* Reads a PPM (P6) of any size, cuts out the square in its middle, and resizes that to size x size.
 * planes [3,size,size] gets red, green and blue from -1 (black) to 1. Prints one line on the picture. */
void picture_read(const char *path, int size, float *planes);

/* Writes fp16 maps [columns*columns,size,size] as a square of grey pictures, one PGM file. Each map has its own contrast: 0 is
 * middle grey, its largest magnitude black or white. */
void picture_write_maps(const char *path, const uint16_t *maps, int columns, int size);

#endif
