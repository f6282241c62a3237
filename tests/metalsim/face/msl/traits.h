/* SPDX-License-Identifier: MIT */
/* Type traits and numeric_limits. */
namespace metal {

template <class T, T v> struct integral_constant {
  static constexpr constant T value = v;
  using value_type = T;
  using type = integral_constant;
  constexpr operator T() const { return v; }
};
template <bool b> using bool_constant = integral_constant<bool, b>;
using true_type = bool_constant<true>;
using false_type = bool_constant<false>;

template <bool, class T = void> struct enable_if {};
template <class T> struct enable_if<true, T> { using type = T; };
template <bool b, class T, class> struct conditional { using type = T; };
template <class T, class F> struct conditional<false, T, F> { using type = F; };
template <class T, class U> struct is_same : false_type {};
template <class T> struct is_same<T, T> : true_type {};

template <class T> struct remove_const { using type = T; };
template <class T> struct remove_const<const T> { using type = T; };
template <class T> struct remove_volatile { using type = T; };
template <class T> struct remove_volatile<volatile T> { using type = T; };
template <class T> struct remove_cv { using type = typename remove_const<typename remove_volatile<T>::type>::type; };
template <class T> struct remove_addrspace { using type = T; };
template <class T> struct remove_addrspace<device T> { using type = T; };
template <class T> struct remove_addrspace<threadgroup T> { using type = T; };
template <class T> struct remove_addrspace<thread T> { using type = T; };
template <class T> struct remove_addrspace<constant T> { using type = T; };
template <class T> struct remove_reference { using type = __remove_reference_t(T); };
template <class T> struct remove_pointer { using type = __remove_pointer(T); };

template <bool b, class T = void> using enable_if_t = typename enable_if<b, T>::type;
template <bool b, class T, class F> using conditional_t = typename conditional<b, T, F>::type;
template <class T> using remove_const_t = typename remove_const<T>::type;
template <class T> using remove_volatile_t = typename remove_volatile<T>::type;
template <class T> using remove_cv_t = typename remove_cv<T>::type;
template <class T> using remove_addrspace_t = typename remove_addrspace<T>::type;
template <class T> using remove_reference_t = typename remove_reference<T>::type;
template <class T> using remove_pointer_t = typename remove_pointer<T>::type;

#define FACE_TRAIT(name, test)                             \
  template <class T> struct name : bool_constant<test> {}; \
  template <class T> constexpr constant bool name##_v = name<T>::value;
FACE_TRAIT(is_integral, __is_integral(T))
FACE_TRAIT(is_floating_point, __is_floating_point(T))
FACE_TRAIT(is_arithmetic, __is_arithmetic(T))
FACE_TRAIT(is_signed, (__is_arithmetic(T) && !__is_unsigned(T)))
FACE_TRAIT(is_unsigned, __is_unsigned(T))
FACE_TRAIT(is_pointer, __is_pointer(T))
FACE_TRAIT(is_const, __is_const(T))
FACE_TRAIT(is_enum, __is_enum(T))
FACE_TRAIT(is_class, __is_class(T))
#undef FACE_TRAIT
template <class From, class To> struct is_convertible : bool_constant<__is_convertible(From, To)> {};
template <class From, class To> constexpr constant bool is_convertible_v = __is_convertible(From, To);
template <class T, class U> constexpr constant bool is_same_v = is_same<T, U>::value;
template <class T> struct make_unsigned { using type = __make_unsigned(T); };
template <class T> struct make_signed { using type = __make_signed(T); };
template <class T> using make_unsigned_t = typename make_unsigned<T>::type;
template <class T> using make_signed_t = typename make_signed<T>::type;

template <class T> struct numeric_limits { static constexpr constant bool is_specialized = false; };
#define FACE_LIMITS(T)                                                                                 \
  template <> struct numeric_limits<T> {                                                               \
    static constexpr constant bool is_specialized = true, is_integer = true, is_signed = T(-1) < T(0); \
    static constexpr constant int digits = 8 * sizeof(T) - is_signed;                                  \
    static constexpr T max() { return is_signed ? T((1ul << (8 * sizeof(T) - 1)) - 1) : T(-1); }       \
    static constexpr T min() { return T(-max() - 1); }                                                 \
    static constexpr T lowest() { return min(); }                                                      \
  };
FACE_INTEGERS(FACE_LIMITS)
#undef FACE_LIMITS
#define FACE_LIMITS(T, mantissa, largest, smallest, subnormal, gap)                                                  \
  template <> struct numeric_limits<T> {                                                                             \
    static constexpr constant bool is_specialized = true, is_integer = false, is_signed = true, has_infinity = true; \
    static constexpr constant int digits = mantissa;                                                                 \
    static constexpr T max() { return T(largest); }                                                                  \
    static constexpr T min() { return T(smallest); }                                                                 \
    static constexpr T lowest() { return T(-largest); }                                                              \
    static constexpr T epsilon() { return T(gap); }                                                                  \
    static constexpr T denorm_min() { return T(subnormal); }                                                         \
    static constexpr T infinity() { return T(__builtin_inff()); }                                                    \
    static constexpr T quiet_NaN() { return T(__builtin_nanf("")); }                                                 \
  };
FACE_LIMITS(half, 11, 65504.0f, 0x1p-14f, 0x1p-24f, 0x1p-10f)
FACE_LIMITS(float, 24, 0x1.fffffep127f, 0x1p-126f, 0x1p-149f, 0x1p-23f)
#if __METAL_VERSION__ >= 310
FACE_LIMITS(bfloat, 8, 0x1.fep127f, 0x1p-126f, 0x1p-133f, 0x1p-7f)
#endif
#undef FACE_LIMITS

} // namespace metal
