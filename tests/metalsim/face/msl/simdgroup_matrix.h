/* SPDX-License-Identifier: MIT */
/* simdgroup_matrix, 8x8.
 *
 * On a GPU every lane holds two elements. Here lane 0 holds a whole matrix and computes alone: then no lane has to wait for another,
 * and a multiply-accumulate costs no switch of fibers. The other lanes note the operation in their trail, and the runtime compares
 * the trails at the next barrier. Only where a kernel asks for thread_elements() is a matrix dealt out to the lanes (scatter), and
 * put together again when an operation needs it (gather); both wait for all lanes. */
/* Kernels unroll their loops over matrices: inlined operations would make compiling slow. */
#define FACE_CALL __attribute__((noinline))

namespace metal {
template <class T, int Cols, int Rows> struct simdgroup_matrix;
}

namespace face {

typedef float row8 __attribute__((ext_vector_type(8)));
template <class T> using row = T __attribute__((ext_vector_type(8)));

enum class matrix_state : uint { unset, whole, dealt };

FACE_INLINE void note(uint operation) { self().trail = (self().trail ^ operation) * 0x9e3779b1u; }
FACE_INLINE void note(uint operation, ulong a, ulong b, ulong c) {
  note(operation ^ uint(a ^ a >> 32) ^ uint(b) * 3 ^ uint(c) * 5);
}

/* The rounding of the matrix unit: sums in float, one product after the other, then once to the type of the result. */
template <class D, class A, class B, class C>
__attribute__((noinline, no_sanitize("address", "thread", "undefined"))) void multiply(thread D *d, const thread A *a,
                                                                                       const thread B *b, const thread C *c) {
  row8 right[8];
  for (int k = 0; k < 8; k++) right[k] = __builtin_convertvector(*(const thread row<B> *)(b + 8 * k), row8);
  for (int i = 0; i < 8; i++) {
    row8 sum = c ? __builtin_convertvector(*(const thread row<C> *)(c + 8 * i), row8) : row8(0);
    for (int k = 0; k < 8; k++) sum = __builtin_elementwise_fma(row8(float(a[8 * i + k])), right[k], sum);
    *(thread row<D> *)(d + 8 * i) = __builtin_convertvector(sum, row<D>);
  }
}

} // namespace face

namespace metal {

template <class T, int Cols, int Rows> struct simdgroup_matrix {
  static_assert(Cols == 8 && Rows == 8, "simdgroup matrices are 8x8");
  static_assert(is_same_v<T, half> || is_same_v<T, float>
#if __METAL_VERSION__ >= 310
                    || is_same_v<T, bfloat>
#endif
                ,
                "simdgroup matrices hold half or float");

  alignas(64) T face_whole[64];
  vec<T, 2> face_mine;
  face::matrix_state face_state = face::matrix_state::unset;

  simdgroup_matrix() {}
  explicit simdgroup_matrix(T diagonal) {
    for (int i = 0; i < 64; i++) face_whole[i] = i % 9 ? T(0) : diagonal;
    face_state = face::matrix_state::whole;
  }

  thread vec<T, 2> &thread_elements(face_place at = FACE_HERE) thread {
    if (face_state == face::matrix_state::whole) face_scatter(at);
    face_state = face::matrix_state::dealt;
    return face_mine;
  }

  /* Lane 0's copy for an operation that reads the matrix. */
  const thread T *face_read(face_place at) const thread {
    if (face_state == face::matrix_state::unset) face_matrix_missing(at);
    if (face_state == face::matrix_state::dealt) const_cast<thread simdgroup_matrix *>(this)->face_gather(at);
    return face_whole;
  }

  FACE_CALL void face_scatter(face_place at) thread {
    thread face_lane &self = face::self();
    face_word slots = face_exchange_begin();
    if (self.lane == 0)
      for (int i = 0; i < 64; i++) ((thread T *)slots)[i] = face_whole[i];
    face_exchange_end(at);
    for (int i = 0; i < 2; i++) face_mine[i] = ((thread T *)slots)[face::group().lane_map[2 * self.lane + i]];
  }

  FACE_CALL void face_gather(face_place at) thread {
    thread face_lane &self = face::self();
    face_word slots = face_exchange_begin();
    *(thread vec<T, 2> *)(slots + self.lane * FACE_ABI_SLOT) = face_mine;
    face_exchange_end(at);
    face_state = face::matrix_state::whole;
    if (self.lane == 0)
      for (int i = 0; i < 64; i++) face_whole[face::group().lane_map[i]] = ((thread T *)(slots + i / 2 * FACE_ABI_SLOT))[i % 2];
  }
};

using simdgroup_half8x8 = simdgroup_matrix<half, 8, 8>;
using simdgroup_float8x8 = simdgroup_matrix<float, 8, 8>;
#if __METAL_VERSION__ >= 310
using simdgroup_bfloat8x8 = simdgroup_matrix<bfloat, 8, 8>;
#endif

template <class T, int Cols, int Rows> FACE_INLINE simdgroup_matrix<T, Cols, Rows> make_filled_simdgroup_matrix(T value) {
  simdgroup_matrix<T, Cols, Rows> m;
  face::note(1, as_type<uint>(float(value)), 0, 0);
  if (face::self().lane == 0)
    for (int i = 0; i < 64; i++) m.face_whole[i] = value;
  m.face_state = face::matrix_state::whole;
  return m;
}

/* origin is (column, row) in memory. A transposed matrix is read and written with rows and columns swapped in memory. Rows that lie
 * together move as one access of 8 elements. */
#define FACE_MOVE(space)                                                                                                       \
  template <class T, int Cols, int Rows>                                                                                       \
  FACE_CALL void simdgroup_load(thread simdgroup_matrix<T, Cols, Rows> &d, const space T *src, ulong elements_per_row = Cols,  \
                                ulong2 origin = ulong2(0), bool transpose = false, face_place at = FACE_HERE) {                \
    src += origin.y * elements_per_row + origin.x;                                                                             \
    face::note(2, ulong(src), elements_per_row, transpose);                                                                    \
    d.face_state = face::matrix_state::whole;                                                                                  \
    if (face::self().lane) return;                                                                                             \
    face::group().matrix_moves++;                                                                                              \
    face::self().within = at;                                                                                                  \
    for (int r = 0; r < 8; r++)                                                                                                \
      if (transpose)                                                                                                           \
        for (int c = 0; c < 8; c++) d.face_whole[8 * c + r] = src[r * elements_per_row + c];                                   \
      else                                                                                                                     \
        for (int c = 0; c < 8; c++) d.face_whole[8 * r + c] = src[r * elements_per_row + c];                                   \
    face::self().within.file = 0;                                                                                              \
  }                                                                                                                            \
  template <class T, int Cols, int Rows>                                                                                       \
  FACE_CALL void simdgroup_store(const thread simdgroup_matrix<T, Cols, Rows> &a, space T *dst, ulong elements_per_row = Cols, \
                                 ulong2 origin = ulong2(0), bool transpose = false, face_place at = FACE_HERE) {               \
    const thread T *whole = a.face_read(at);                                                                                   \
    dst += origin.y * elements_per_row + origin.x;                                                                             \
    face::note(3, ulong(dst), elements_per_row, transpose);                                                                    \
    if (face::self().lane) return;                                                                                             \
    face::group().matrix_moves++;                                                                                              \
    face::self().within = at;                                                                                                  \
    for (int r = 0; r < 8; r++)                                                                                                \
      for (int c = 0; c < 8; c++) dst[r * elements_per_row + c] = transpose ? whole[8 * c + r] : whole[8 * r + c];             \
    face::self().within.file = 0;                                                                                              \
  }
FACE_MOVE(device)
FACE_MOVE(threadgroup)
#undef FACE_MOVE

template <class D, class A, class B, class C>
FACE_CALL void simdgroup_multiply_accumulate(thread simdgroup_matrix<D, 8, 8> &d, const thread simdgroup_matrix<A, 8, 8> &a,
                                             const thread simdgroup_matrix<B, 8, 8> &b, const thread simdgroup_matrix<C, 8, 8> &c,
                                             face_place at = FACE_HERE) {
  const thread A *left = a.face_read(at);
  const thread B *right = b.face_read(at);
  const thread C *sum = c.face_read(at);
  face::note(4);
  d.face_state = face::matrix_state::whole;
  if (face::self().lane) return;
  face::group().multiply_accumulates++;
  face::multiply(d.face_whole, left, right, sum);
}

template <class D, class A, class B>
FACE_CALL void simdgroup_multiply(thread simdgroup_matrix<D, 8, 8> &d, const thread simdgroup_matrix<A, 8, 8> &a,
                                  const thread simdgroup_matrix<B, 8, 8> &b, face_place at = FACE_HERE) {
  const thread A *left = a.face_read(at);
  const thread B *right = b.face_read(at);
  face::note(5);
  d.face_state = face::matrix_state::whole;
  if (face::self().lane) return;
  face::group().multiply_accumulates++;
  face::multiply(d.face_whole, left, right, (const thread float *)0);
}

} // namespace metal
