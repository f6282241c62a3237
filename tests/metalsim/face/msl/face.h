/* SPDX-License-Identifier: MIT */
/* What translated sources and the headers beside this one use of the runtime. */
#include "abi.h"

/* The place of the call, as a default argument. */
#define FACE_HERE \
  { (face_word) __builtin_FILE(), __builtin_LINE() }

extern "C" {
void face_threadgroup_barrier(int flags, face_place at);
void face_simdgroup_barrier(int flags, face_place at);
face_word face_exchange_begin();       /* the simdgroup's slots, FACE_ABI_SLOT bytes for each lane: write one's own ... */
void face_exchange_end(face_place at); /* ... wait for all lanes, then read any, until this lane's next exchange */
void face_matrix_missing(face_place at);
face_word face_static_threadgroup(int declaration, face_word size);
bool face_constant_value(int index, int size, thread void *value); /* false: it has no value */
}

namespace face {

FACE_INLINE thread face_lane &self() {
  ulong stack;
  asm("mov %%rsp, %0" : "=r"(stack));
  return *(thread face_lane *)((stack | (FACE_ABI_STACK - 1)) + 1 - FACE_ABI_LANE_OFFSET);
}

FACE_INLINE thread face_group &group() { return *(thread face_group *)self().group; }

/* A section of records (kernel, declaration, bytes), never empty, and where it lies. */
asm(".section face_threadgroup,\"a\"\n\t.quad -2, 0, 0\n\t.previous");
extern "C" face_word face_records_begin() {
  face_word p;
  asm("lea __start_face_threadgroup(%%rip), %0" : "=r"(p));
  return p;
}
extern "C" face_word face_records_end() {
  face_word p;
  asm("lea __stop_face_threadgroup(%%rip), %0" : "=r"(p));
  return p;
}

/* A variable declared in threadgroup memory. The record tells its size before anything runs. */
template <int owner, int declaration, class A> FACE_INLINE threadgroup A &threadgroup_variable() {
  asm volatile(".pushsection face_threadgroup,\"a\"\n\t.quad %c0, %c1, %c2\n\t.popsection" ::"i"(owner), "i"(declaration),
               "i"(sizeof(A)));
  return *(threadgroup A *)face_static_threadgroup(declaration, sizeof(A));
}

template <class T> T function_constant(int index) {
  T value = T();
  face_constant_value(index, sizeof(T), &value);
  return value;
}

FACE_INLINE bool constant_defined(int index) { return face_constant_value(index, 0, (thread void *)0); }

/* How a kernel's parameter of type P is made from what is bound to it. Types that Metal doesn't allow have no argument<>. */
template <class P> struct argument;
template <class T> struct argument<device T *> {
  using value = T;
  static device T *make(face_word word) { return (device T *)word; }
};
template <class T> struct argument<constant T *> {
  using value = T;
  static constant T *make(face_word word) { return (constant T *)word; }
};
template <class T> struct argument<threadgroup T *> {
  using value = T;
  static threadgroup T *make(face_word word) { return (threadgroup T *)word; }
};
template <class T> struct argument<device T &> {
  using value = T;
  static device T &make(face_word word) { return *(device T *)word; }
};
template <class T> struct argument<constant T &> {
  using value = T;
  static constant T &make(face_word word) { return *(constant T *)word; }
};

/* The values of positions: T is a scalar or a vector of ushort or uint. */
template <class T> struct position;
#define FACE_POSITION(S)                                                                                   \
  template <> struct position<S> {                                                                         \
    static S make(uint x, uint, uint) { return S(x); }                                                     \
  };                                                                                                       \
  template <> struct position<metal::vec<S, 2>> {                                                          \
    static metal::vec<S, 2> make(uint x, uint y, uint) { return face::make<metal::vec<S, 2>>(x, y); }      \
  };                                                                                                       \
  template <> struct position<metal::vec<S, 3>> {                                                          \
    static metal::vec<S, 3> make(uint x, uint y, uint z) { return face::make<metal::vec<S, 3>>(x, y, z); } \
  };
FACE_POSITION(ushort)
FACE_POSITION(uint)
#undef FACE_POSITION

template <class T> T thread_position_in_threadgroup() {
  return position<T>::make(self().position[0], self().position[1], self().position[2]);
}
template <class T> T threadgroup_position_in_grid() {
  return position<T>::make(group().position[0], group().position[1], group().position[2]);
}
template <class T> T threads_per_threadgroup() { return position<T>::make(group().size[0], group().size[1], group().size[2]); }
template <class T> T threadgroups_per_grid() { return position<T>::make(group().grid[0], group().grid[1], group().grid[2]); }
FACE_INLINE uint extent(int i) { return group().grid[i] * group().size[i]; }
FACE_INLINE uint place(int i) { return group().position[i] * group().size[i] + self().position[i]; }
template <class T> T threads_per_grid() { return position<T>::make(extent(0), extent(1), extent(2)); }
template <class T> T thread_position_in_grid() { return position<T>::make(place(0), place(1), place(2)); }
template <class T> T thread_index_in_threadgroup() { return T(self().index); }
template <class T> T thread_index_in_simdgroup() { return T(self().lane); }
template <class T> T simdgroup_index_in_threadgroup() { return T(self().simdgroup); }
template <class T> T simdgroups_per_threadgroup() { return T(group().simdgroups); }
template <class T> T threads_per_simdgroup() { return T(FACE_ABI_LANES); }
template <class T> T dispatch_threads_per_threadgroup() { return threads_per_threadgroup<T>(); }

} // namespace face
