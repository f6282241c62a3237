/* SPDX-License-Identifier: MIT
 *
 * The first layer of an image network: a 3x224x224 picture, 64 kernels of 7x7, stride 2, padding 3. Forward, then the gradients
 * of the loss L = sum(Y^2) / 2, of which dY = Y is the gradient by Y. Each result is checked at some places against double sums.
 *
 *     02_first_layer [--maps MAPS.pgm] [PICTURE.ppm]
 *
 * Without a picture it takes random pixels. --maps writes the 64 feature maps as one grey picture.
 */
#include <string.h>
#include <time.h>

#include "common.h"
#include "picture.h"

enum {
  BATCH = 1,
  IN_CHANNELS = 3,
  OUT_CHANNELS = 64,
  SIZE = 224,
  KERNEL = 7,
  PAD = 3,
  STRIDE = 2,
  OUT_SIZE = (SIZE + 2 * PAD - KERNEL) / STRIDE + 1,
  X_COUNT = BATCH * IN_CHANNELS * SIZE * SIZE,
  W_COUNT = OUT_CHANNELS * IN_CHANNELS * KERNEL * KERNEL,
  Y_COUNT = BATCH * OUT_CHANNELS * OUT_SIZE * OUT_SIZE,
  SHEET_COLUMNS = 8, /* 8 x 8 = OUT_CHANNELS */
  RUNS = 5,
  CHECKED = 100
};

/* The 13 sizes that all three calls end with. */
#define SIZES BATCH, IN_CHANNELS, OUT_CHANNELS, SIZE, SIZE, KERNEL, KERNEL, PAD, PAD, STRIDE, STRIDE, OUT_SIZE, OUT_SIZE

typedef struct layer {
  tc_context *ctx;
  tc_buffer *X, *weight, *bias, *Y, *dX, *dW, *scratch_col, *scratch_dx;
  uint16_t *x, *w, *b, *y, *dx, *dw; /* the same memory, for the program's own loops */
} layer;

/* ---- Inputs ----------------------------------------------------------------------------------------------------------------- */

static void fill_picture(uint16_t *x, const char *path) {
  static float planes[X_COUNT];
  if (path)
    picture_read(path, SIZE, planes);
  else
    for (int i = 0; i < X_COUNT; i++) planes[i] = next_random();
  tc_convert_f32_to_f16(planes, x, X_COUNT);
}

/* One pixel of a Gabor filter, which is what trained networks learn here: waves of 8 directions, 4 lengths, odd and even. */
static float gabor(int channel, int ky, int kx) {
  const float pi = 3.14159265f;
  float direction = (float)(channel % 8) * pi / 8;
  float frequency = 0.5f + 0.5f * (float)(channel / 8 % 4);
  float phase = channel < 32 ? pi / 2 : 0;
  float across = cosf(direction) * (float)(kx - KERNEL / 2) + sinf(direction) * (float)(ky - KERNEL / 2);
  float squared = (float)((kx - KERNEL / 2) * (kx - KERNEL / 2) + (ky - KERNEL / 2) * (ky - KERNEL / 2));
  return expf(-squared / 8) * cosf(frequency * across + phase);
}

/* Odd filters look at brightness, even ones at red against blue; magnitudes sum up to 1, which keeps Y in [-1, 1] + bias. */
static void fill_weight(uint16_t *w) {
  static const float brightness[IN_CHANNELS] = {1, 1, 1}, red_against_blue[IN_CHANNELS] = {1, 0, -1};
  for (int o = 0; o < OUT_CHANNELS; o++) {
    const float *color = o < 32 ? brightness : red_against_blue;
    float values[IN_CHANNELS * KERNEL * KERNEL], sum = 0;
    for (int i = 0; i < IN_CHANNELS * KERNEL * KERNEL; i++) {
      values[i] = color[i / (KERNEL * KERNEL)] * gabor(o, i / KERNEL % KERNEL, i % KERNEL);
      sum += fabsf(values[i]);
    }
    for (int i = 0; i < IN_CHANNELS * KERNEL * KERNEL; i++) *w++ = tc_f32_to_f16(values[i] / sum);
  }
}

static void fill_bias(uint16_t *b) {
  for (int o = 0; o < OUT_CHANNELS; o++) b[o] = tc_f32_to_f16(0.001f * (float)o);
}

static void open_layer(layer *l) {
  CHECK(tc_init(&l->ctx));
  l->x = new_tensor(l->ctx, X_COUNT, &l->X);
  l->w = new_tensor(l->ctx, W_COUNT, &l->weight);
  l->b = new_tensor(l->ctx, OUT_CHANNELS, &l->bias);
  l->y = new_tensor(l->ctx, Y_COUNT, &l->Y);
  l->dx = new_tensor(l->ctx, X_COUNT, &l->dX);
  l->dw = new_tensor(l->ctx, W_COUNT, &l->dW);
  size_t col_bytes = tc_conv2d_scratch_col_bytes(BATCH, IN_CHANNELS, KERNEL, KERNEL, OUT_SIZE, OUT_SIZE);
  CHECK(tc_buffer_alloc(l->ctx, col_bytes, &l->scratch_col));
  CHECK(tc_buffer_alloc(l->ctx, tc_conv2d_scratch_dx_bytes(BATCH, IN_CHANNELS, SIZE, SIZE), &l->scratch_dx));
}

static void close_layer(layer *l) {
  tc_buffer *buffers[] = {l->X, l->weight, l->bias, l->Y, l->dX, l->dW, l->scratch_col, l->scratch_dx};
  for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) CHECK(tc_buffer_free(l->ctx, buffers[i]));
  CHECK(tc_shutdown(l->ctx));
}

/* ---- The three calls -------------------------------------------------------------------------------------------------------- */

static tc_status_t forward(const layer *l) {
  return tc_conv2d_forward(l->ctx, l->X, l->weight, l->bias, l->Y, l->scratch_col, SIZES);
}

/* Y is its own gradient here, hence Y in dY's place. */
static tc_status_t backward_input(const layer *l) {
  return tc_conv2d_backward_input(l->ctx, l->Y, l->weight, l->dX, l->scratch_col, l->scratch_dx, SIZES);
}

static tc_status_t backward_weight(const layer *l) {
  return tc_conv2d_backward_weight(l->ctx, l->X, l->Y, l->dW, l->scratch_col, SIZES);
}

/* ---- The same in double, for one element --------------------------------------------------------------------------------------
 */

static double pixel(const layer *l, int channel, int row, int column) {
  int inside = row >= 0 && row < SIZE && column >= 0 && column < SIZE;
  return inside ? tc_f16_to_f32(l->x[(channel * SIZE + row) * SIZE + column]) : 0;
}

static double weight(const layer *l, int o, int i, int ky, int kx) {
  return tc_f16_to_f32(l->w[((o * IN_CHANNELS + i) * KERNEL + ky) * KERNEL + kx]);
}

static double output(const layer *l, int o, int row, int column) {
  return tc_f16_to_f32(l->y[(o * OUT_SIZE + row) * OUT_SIZE + column]);
}

static exact_sum exact_y(const layer *l, int index) {
  int o = index / (OUT_SIZE * OUT_SIZE), row = index / OUT_SIZE % OUT_SIZE, column = index % OUT_SIZE;
  exact_sum sum = {0, 0};
  add_product(&sum, tc_f16_to_f32(l->b[o]), 1);
  for (int i = 0; i < IN_CHANNELS; i++)
    for (int ky = 0; ky < KERNEL; ky++)
      for (int kx = 0; kx < KERNEL; kx++)
        add_product(&sum, pixel(l, i, row * STRIDE - PAD + ky, column * STRIDE - PAD + kx), weight(l, o, i, ky, kx));
  return sum;
}

/* The output that kernel position k takes from this pixel to, along one axis; -1 if there is none. */
static int output_of(int position, int k) {
  int start = position + PAD - k;
  return start >= 0 && start % STRIDE == 0 && start / STRIDE < OUT_SIZE ? start / STRIDE : -1;
}

static exact_sum exact_dx(const layer *l, int index) {
  int i = index / (SIZE * SIZE), row = index / SIZE % SIZE, column = index % SIZE;
  exact_sum sum = {0, 0};
  for (int ky = 0; ky < KERNEL; ky++)
    for (int kx = 0; kx < KERNEL; kx++) {
      int y = output_of(row, ky), x = output_of(column, kx);
      for (int o = 0; o < OUT_CHANNELS && y >= 0 && x >= 0; o++) add_product(&sum, output(l, o, y, x), weight(l, o, i, ky, kx));
    }
  return sum;
}

static exact_sum exact_dw(const layer *l, int index) {
  int o = index / (IN_CHANNELS * KERNEL * KERNEL), i = index / (KERNEL * KERNEL) % IN_CHANNELS;
  int ky = index / KERNEL % KERNEL, kx = index % KERNEL;
  exact_sum sum = {0, 0};
  for (int row = 0; row < OUT_SIZE; row++)
    for (int column = 0; column < OUT_SIZE; column++)
      add_product(&sum, pixel(l, i, row * STRIDE - PAD + ky, column * STRIDE - PAD + kx), output(l, o, row, column));
  return sum;
}

/* ---- Running and checking --------------------------------------------------------------------------------------------------- */

static double milliseconds(void) {
  struct timespec now;
  timespec_get(&now, TIME_UTC);
  return 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
}

static double fastest_run(const layer *l, tc_status_t (*run)(const layer *)) {
  double fastest = INFINITY;
  for (int i = 0; i < RUNS; i++) {
    double start = milliseconds();
    CHECK(run(l));
    fastest = fmin(fastest, milliseconds() - start);
  }
  return fastest;
}

static double worst_error_ratio(const layer *l, const uint16_t *result, int count, exact_sum (*exact)(const layer *, int)) {
  double worst = 0;
  for (int i = 0; i < CHECKED; i++) {
    int index = (int)((next_random() + 1.0) / 2 * count);
    worst = fmax(worst, error_ratio(result[index], exact(l, index)));
  }
  return worst;
}

/* Returns whether all checked elements are right. */
static int run_all(const layer *l) {
  const struct {
    const char *name, *shape;
    tc_status_t (*run)(const layer *);
    exact_sum (*exact)(const layer *, int);
    const uint16_t *result;
    int count;
  } calls[] = {
      {"forward", "Y  [1,64,112,112]", forward, exact_y, l->y, Y_COUNT},
      {"backward_input", "dX [1,3,224,224]", backward_input, exact_dx, l->dx, X_COUNT},
      {"backward_weight", "dW [64,3,7,7]", backward_weight, exact_dw, l->dw, W_COUNT},
  };
  int right = 1;
  printf("%-16s %-18s %9s  %-30s %s\n", "call", "result", "ms", "from its middle on", "error / permitted");
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
    double ms = fastest_run(l, calls[i].run);
    double worst = worst_error_ratio(l, calls[i].result, calls[i].count, calls[i].exact);
    const uint16_t *some = calls[i].result + calls[i].count / 2;
    printf("%-16s %-18s %9.3f  % -9.4g % -9.4g % -9.4g  %.2f\n", calls[i].name, calls[i].shape, ms, tc_f16_to_f32(some[0]),
           tc_f16_to_f32(some[1]), tc_f16_to_f32(some[2]), worst);
    right = right && worst <= 1;
  }
  return right;
}

static void usage(void) {
  fputs("usage: 02_first_layer [--maps MAPS.pgm] [PICTURE.ppm]\n", stderr);
  exit(2);
}

int main(int argc, char **argv) {
  const char *picture = NULL, *maps = NULL;
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--maps") == 0 && i + 1 < argc)
      maps = argv[++i];
    else if (argv[i][0] != '-' && !picture)
      picture = argv[i];
    else
      usage();
  }

  layer l;
  open_layer(&l);
  fill_picture(l.x, picture);
  fill_weight(l.w);
  fill_bias(l.b);
  print_device(l.ctx);
  int right = run_all(&l);
  if (maps) picture_write_maps(maps, l.y, SHEET_COLUMNS, OUT_SIZE);
  close_layer(&l);
  return right ? EXIT_SUCCESS : EXIT_FAILURE;
}
