"""The C interface as ctypes sees it: one entry for each name in include/tc/tc.h, and nothing else.

tests/python/test_abi.py compares everything here with the compiled header.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char, c_char_p, c_float, c_int, c_int32, c_int64, c_size_t, c_uint16, c_void_p
from enum import IntEnum
from typing import Any, NamedTuple

API_VERSION = 1


class Status(IntEnum):
    """Outcome of a call: ``tc_status_t``. `TcError.status` is one of these.

    Examples
    --------
    >>> import tcpy
    >>> tcpy.Status.SHAPE
    <Status.SHAPE: -2>
    """

    OK = 0
    ARGUMENT = -1
    SHAPE = -2
    BUFFER = -3
    ALIGNMENT = -4
    OVERLAP = -5
    MEMORY = -6
    UNSUPPORTED = -7
    ENVIRONMENT = -8
    NO_DEVICE = -9
    DEVICE = -10
    TIMEOUT = -11
    CLOSED = -12
    STATE = -13


class Backend(IntEnum):
    AUTO = 0
    CPU = 1
    METAL = 2


class Dtype(IntEnum):
    F16 = 0
    F32 = 1
    BF16 = 2


class Layout(IntEnum):
    NCHW = 0
    NHWC = 1


class Activation(IntEnum):
    NONE = 0
    RELU = 1


class MathMode(IntEnum):
    DEFAULT = 0
    STRICT = 1
    DETERMINISTIC = 2
    FAST = 3


class DeviceInfo(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("backend", c_int),
        ("reserved", c_int32),
        ("threads", c_int64),
        ("device", c_char * 128),
        ("isa", c_char * 32),
        ("isa_reason", c_char * 128),
        ("isas", c_char * 128),
        ("kernel", c_char * 64),
    ]


class GemmDesc(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("M", c_int64),
        ("N", c_int64),
        ("K", c_int64),
        ("transpose_a", c_int32),
        ("transpose_b", c_int32),
        ("alpha", c_float),
        ("beta", c_float),
        ("lda", c_int64),
        ("ldb", c_int64),
        ("ldc", c_int64),
        ("a_dtype", c_int),
        ("b_dtype", c_int),
        ("c_dtype", c_int),
        ("math_mode", c_int),
        ("a_offset", c_int64),
        ("b_offset", c_int64),
        ("c_offset", c_int64),
    ]


class GemmBatchedDesc(GemmDesc):
    _fields_ = [
        ("batch", c_int64),
        ("stride_a", c_int64),
        ("stride_b", c_int64),
        ("stride_c", c_int64),
    ]


class Conv2dDesc(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("batch", c_int64),
        ("in_channels", c_int64),
        ("out_channels", c_int64),
        ("H", c_int64),
        ("W", c_int64),
        ("kH", c_int64),
        ("kW", c_int64),
        ("out_H", c_int64),
        ("out_W", c_int64),
        ("pad_top", c_int64),
        ("pad_bottom", c_int64),
        ("pad_left", c_int64),
        ("pad_right", c_int64),
        ("stride_h", c_int64),
        ("stride_w", c_int64),
        ("dilation_h", c_int64),
        ("dilation_w", c_int64),
        ("groups", c_int64),
        ("layout", c_int),
        ("x_dtype", c_int),
        ("w_dtype", c_int),
        ("bias_dtype", c_int),
        ("y_dtype", c_int),
        ("activation", c_int),
        ("math_mode", c_int),
        ("alpha", c_float),
        ("beta", c_float),
        ("reserved", c_int32),
        ("x_offset", c_int64),
        ("w_offset", c_int64),
        ("bias_offset", c_int64),
        ("y_offset", c_int64),
    ]


class Result(NamedTuple):
    """What a function returns, and how it says that it failed and tc_last_error() has the sentence."""

    ctype: Any
    is_status: bool = False
    failure: int | None = None  # the value of a size that stands for Status.SHAPE


STATUS = Result(c_int, is_status=True)
OUT_DIM = Result(c_int64, failure=-(2**63))
BYTES = Result(c_size_t, failure=c_size_t(-1).value)
INT32, SIZE, TEXT, F16, F32, NOTHING = map(Result, (c_int32, c_size_t, c_char_p, c_uint16, c_float, None))

# Contexts and buffers are opaque: c_void_p. For a context or a buffer that a function makes: where to put it.
_OBJECT, _NEW = c_void_p, POINTER(c_void_p)
_SIZES13 = [c_int64] * 13
_GEMM, _BATCHED, _CONV = POINTER(GemmDesc), POINTER(GemmBatchedDesc), POINTER(Conv2dDesc)

SIGNATURES: dict[str, tuple[Result, list[Any]]] = {
    "tc_api_version": (INT32, []),
    "tc_version": (TEXT, []),
    "tc_status_string": (TEXT, [c_int]),
    "tc_last_error": (TEXT, []),
    "tc_f16_to_f32": (F32, [c_uint16]),
    "tc_f32_to_f16": (F16, [c_float]),
    "tc_convert_f16_to_f32": (NOTHING, [c_void_p, c_void_p, c_size_t]),
    "tc_convert_f32_to_f16": (NOTHING, [c_void_p, c_void_p, c_size_t]),
    "tc_init": (STATUS, [_NEW]),
    "tc_init_backend": (STATUS, [c_int, _NEW]),
    "tc_shutdown": (STATUS, [_OBJECT]),
    "tc_device_info_get": (STATUS, [_OBJECT, POINTER(DeviceInfo)]),
    "tc_context_set_threads": (STATUS, [_OBJECT, c_int64]),
    "tc_context_get_threads": (STATUS, [_OBJECT, POINTER(c_int64)]),
    "tc_context_trim": (STATUS, [_OBJECT]),
    "tc_buffer_alloc": (STATUS, [_OBJECT, c_size_t, _NEW]),
    "tc_buffer_wrap": (STATUS, [_OBJECT, c_void_p, c_size_t, _NEW]),
    "tc_buffer_map": (STATUS, [_OBJECT, POINTER(c_void_p)]),
    "tc_buffer_size": (SIZE, [_OBJECT]),
    "tc_buffer_free": (STATUS, [_OBJECT, _OBJECT]),
    "tc_gemm": (STATUS, [_OBJECT, _GEMM, _OBJECT, _OBJECT, _OBJECT]),
    "tc_gemm_batched": (STATUS, [_OBJECT, _BATCHED, _OBJECT, _OBJECT, _OBJECT]),
    "tc_conv2d_out_dim": (OUT_DIM, [c_int64] * 4),
    "tc_conv2d_scratch_col_bytes": (BYTES, [c_int64] * 6),
    "tc_conv2d_scratch_dx_bytes": (BYTES, [c_int64] * 4),
    "tc_conv2d_forward": (STATUS, [_OBJECT] * 6 + _SIZES13),
    "tc_conv2d_backward_input": (STATUS, [_OBJECT] * 6 + _SIZES13),
    "tc_conv2d_backward_weight": (STATUS, [_OBJECT] * 5 + _SIZES13),
    "tc_conv2d_forward_desc": (STATUS, [_OBJECT, _CONV] + [_OBJECT] * 5),
    "tc_conv2d_backward_input_desc": (STATUS, [_OBJECT, _CONV] + [_OBJECT] * 5),
    "tc_conv2d_backward_weight_desc": (STATUS, [_OBJECT, _CONV] + [_OBJECT] * 4),
    "tc_batch_begin": (STATUS, [_OBJECT]),
    "tc_batch_end": (STATUS, [_OBJECT]),
}
