/* SPDX-License-Identifier: MIT */
#include "picture.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tc/tc.h>

#define MAX_FILE_BYTES ((size_t)1 << 28)
#define MAX_SIDE 100000
#define GAP 2 /* pixels between two maps of a sheet, and around it */

static void fail(const char *path, const char *format, ...) {
  va_list args;
  va_start(args, format);
  fprintf(stderr, "%s: ", path);
  vfprintf(stderr, format, args);
  fputc('\n', stderr);
  va_end(args);
  exit(EXIT_FAILURE);
}

/* ---- Reading ---------------------------------------------------------------------------------------------------------------- */

typedef struct ppm {
  const char *path;
  unsigned char *bytes;
  size_t at, size; /* the next byte to read, and how many there are */
  int64_t width, height, maximum;
} ppm;

/* The whole file, by growing pieces: what the header claims is never allocated, and pipes work. */
static void read_all(ppm *in) {
  FILE *file = fopen(in->path, "rb");
  if (!file) fail(in->path, "%s", strerror(errno));
  size_t capacity = 0;
  do {
    capacity = capacity ? 2 * capacity : 1 << 16;
    if (capacity > MAX_FILE_BYTES) fail(in->path, "is larger than %zu MiB", MAX_FILE_BYTES >> 20);
    in->bytes = realloc(in->bytes, capacity);
    if (!in->bytes) fail(in->path, "no memory for its %zu bytes", capacity);
    in->size += fread(in->bytes + in->size, 1, capacity - in->size, file);
  } while (in->size == capacity);
  if (ferror(file)) fail(in->path, "%s", strerror(errno));
  fclose(file);
}

static void skip_space_and_comments(ppm *in) {
  int in_comment = 0;
  for (; in->at < in->size && (in_comment || isspace(in->bytes[in->at]) || in->bytes[in->at] == '#'); in->at++)
    in_comment = in->bytes[in->at] == '#' || (in_comment && in->bytes[in->at] != '\n');
}

static int64_t read_header_number(ppm *in, const char *name, int64_t limit) {
  int64_t value = 0;
  skip_space_and_comments(in);
  for (; in->at < in->size && isdigit(in->bytes[in->at]) && value <= limit; in->at++)
    value = 10 * value + (in->bytes[in->at] - '0');
  if (value < 1 || value > limit) fail(in->path, "the header's %s isn't a number from 1 to %lld", name, (long long)limit);
  return value;
}

static int64_t bytes_per_sample(const ppm *in) { return in->maximum > 255 ? 2 : 1; }

static void read_header(ppm *in) {
  if (in->size < 2 || memcmp(in->bytes, "P6", 2) != 0) fail(in->path, "isn't a PPM picture (P6)");
  in->at = 2;
  in->width = read_header_number(in, "width", MAX_SIDE);
  in->height = read_header_number(in, "height", MAX_SIDE);
  in->maximum = read_header_number(in, "maximum", 65535);
  if (in->at == in->size || !isspace(in->bytes[in->at])) fail(in->path, "no white space ends the header");
  in->at++;
  size_t needed = (size_t)(in->width * in->height * 3 * bytes_per_sample(in));
  if (in->size - in->at < needed)
    fail(in->path, "%lld x %lld pixels take %zu bytes, %zu are there", (long long)in->width, (long long)in->height, needed,
         in->size - in->at);
}

static int64_t sample(const ppm *in, int64_t row, int64_t column, int color) {
  int64_t index = (row * in->width + column) * 3 + color;
  const unsigned char *pixels = in->bytes + in->at;
  int64_t value = bytes_per_sample(in) == 1 ? pixels[index] : pixels[2 * index] * 256 + pixels[2 * index + 1];
  if (value > in->maximum)
    fail(in->path, "a sample is %lld, the header's maximum is %lld", (long long)value, (long long)in->maximum);
  return value;
}

/* The mean over rows row..row_end-1 and columns column..column_end-1, from 0 to 1. */
static double mean_sample(const ppm *in, int64_t row, int64_t row_end, int64_t column, int64_t column_end, int color) {
  int64_t sum = 0;
  for (int64_t r = row; r < row_end; r++)
    for (int64_t c = column; c < column_end; c++) sum += sample(in, r, c, color);
  return (double)sum / (double)((row_end - row) * (column_end - column) * in->maximum);
}

/* Pixels first[i] up to end[i] of the picture's axis become pixel i: one at least, so that a small picture is enlarged. */
static void resize_range(int64_t length, int64_t square, int size, int i, int64_t *first, int64_t *end) {
  int64_t margin = (length - square) / 2;
  int64_t next = margin + (i + 1) * square / size;
  *first = margin + i * square / size;
  *end = next > *first ? next : *first + 1;
}

void picture_read(const char *path, int size, float *planes) {
  ppm in = {.path = path};
  read_all(&in);
  read_header(&in);
  int64_t square = in.width < in.height ? in.width : in.height;
  int64_t row, row_end, column, column_end;
  for (int color = 0; color < 3; color++)
    for (int y = 0; y < size; y++)
      for (int x = 0; x < size; x++) {
        resize_range(in.height, square, size, y, &row, &row_end);
        resize_range(in.width, square, size, x, &column, &column_end);
        *planes++ = (float)(2 * mean_sample(&in, row, row_end, column, column_end, color) - 1);
      }
  free(in.bytes);
  printf("picture: %s, %lld x %lld pixels\n", path, (long long)in.width, (long long)in.height);
}

/* ---- Writing ---------------------------------------------------------------------------------------------------------------- */

static float largest_magnitude(const uint16_t *map, int n) {
  float largest = 0;
  for (int i = 0; i < n; i++) largest = fmaxf(largest, fabsf(tc_f16_to_f32(map[i])));
  return largest;
}

static void draw_map(unsigned char *corner, int sheet_side, const uint16_t *map, int size) {
  float largest = largest_magnitude(map, size * size);
  float contrast = largest > 0 ? 127 / largest : 0;
  for (int y = 0; y < size; y++)
    for (int x = 0; x < size; x++)
      corner[y * sheet_side + x] = (unsigned char)lroundf(128 + contrast * tc_f16_to_f32(map[y * size + x]));
}

void picture_write_maps(const char *path, const uint16_t *maps, int columns, int size) {
  int step = size + GAP;
  int side = columns * step + GAP;
  unsigned char *sheet = calloc((size_t)side, (size_t)side);
  if (!sheet) fail(path, "no memory for %d x %d pixels", side, side);
  for (int i = 0; i < columns * columns; i++)
    draw_map(sheet + (GAP + i / columns * step) * side + GAP + i % columns * step, side, maps + (ptrdiff_t)i * size * size, size);

  FILE *file = fopen(path, "wb");
  if (!file) fail(path, "%s", strerror(errno));
  fprintf(file, "P5\n%d %d\n255\n", side, side);
  fwrite(sheet, 1, (size_t)side * (size_t)side, file);
  int failed = ferror(file);
  if (fclose(file) != 0 || failed) fail(path, "can't be written: %s", strerror(errno));
  free(sheet);
  printf("wrote %s: %d maps of %d x %d\n", path, columns * columns, size, size);
}
