"""Every wrong argument: the right exception, a sentence with the argument and its value, outputs untouched."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import tcpy
from tcpy import Status, TcError
from tcpy.errors import _STANDARD, tc_error

H, F = np.float16, np.float32


def ones(*shape: int, dtype: Any = H) -> Any:
    return np.ones(shape, dtype)


FORWARD: dict[str, Any] = {"x": ones(2, 4, 6, 5), "weight": ones(6, 2, 3, 3), "bias": ones(6), "groups": 2}
BACKWARD_INPUT: dict[str, Any] = {"dy": ones(2, 6, 4, 3), "weight": ones(6, 2, 3, 3), "input_size": (6, 5), "groups": 2}
BACKWARD_WEIGHT: dict[str, Any] = {"x": ones(2, 4, 6, 5), "dy": ones(2, 6, 4, 3), "kernel_size": 3, "groups": 2}
GEMM: dict[str, Any] = {"a": ones(3, 5), "b": ones(5, 4)}
GOOD: dict[Callable[..., Any], dict[str, Any]] = {
    tcpy.conv2d_forward: FORWARD,
    tcpy.conv2d_backward_input: BACKWARD_INPUT,
    tcpy.conv2d_backward_weight: BACKWARD_WEIGHT,
    tcpy.gemm: GEMM,
}
OUT_SHAPE = {
    tcpy.conv2d_forward: (2, 6, 4, 3),
    tcpy.conv2d_backward_input: (2, 4, 6, 5),
    tcpy.conv2d_backward_weight: (6, 2, 3, 3),
    tcpy.gemm: (3, 4),
}

# What no array argument may be, whatever its shape.
NO_HALVES = [
    ("float32", lambda array: array.astype(F)),
    ("float64", lambda array: array.tolist()),
    (">f2|float16", lambda array: array.astype(">f2")),
    ("int16", lambda array: array.view(np.int16)),
    ("bool", lambda array: array > 0),
    ("complex64", lambda array: array.astype(np.complex64)),
    ("object", lambda array: array.astype(object)),
    ("object", lambda array: object()),
    ("inhomogeneous", lambda array: [[1], [1, 2]]),
    ("masked", lambda array: np.ma.masked_array(array)),
]
ARRAYS = [
    (function, name) for function, good in GOOD.items() for name, value in good.items() if hasattr(value, "dtype")
]


@pytest.mark.parametrize(("function", "name"), ARRAYS, ids=lambda part: getattr(part, "__name__", part))
@pytest.mark.parametrize(("what", "spoil"), NO_HALVES, ids=lambda part: part if isinstance(part, str) else "")
def test_wrong_dtype(function: Callable[..., Any], name: str, what: str, spoil: Callable[[Any], Any]) -> None:
    arguments = GOOD[function] | {name: spoil(GOOD[function][name])}
    with pytest.raises(TypeError, match=rf"^{function.__name__}: {name} is .*({what})"):
        function(**arguments)


@pytest.mark.parametrize(("function", "name"), ARRAYS, ids=lambda part: getattr(part, "__name__", part))
@pytest.mark.parametrize("shape", [(), (1, 2, 3, 4, 5)])
def test_wrong_number_of_dimensions(function: Callable[..., Any], name: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=rf"^{function.__name__}: {name} has shape {re.escape(str(shape))}") as caught:
        function(**GOOD[function] | {name: ones(*shape)})
    assert caught.value.status is Status.SHAPE


# Function, what is changed in its good call, the exception, what its text must say.
WRONG: list[tuple[Callable[..., Any], dict[str, Any], type[Exception], str]] = [
    (tcpy.conv2d_forward, {"x": ones(2, 5, 6, 5)}, ValueError, r"x has 5 channels.*needs 4"),
    (tcpy.conv2d_forward, {"bias": ones(5)}, ValueError, r"bias has shape \(5,\), \(6,\) is needed"),
    (tcpy.conv2d_forward, {"weight": ones(5, 2, 3, 3), "bias": None}, ValueError, "groups.*2.*5|5.*groups.*2"),
    (tcpy.conv2d_forward, {"weight": ones(6, 2, 7, 3)}, ValueError, r"kernel of 7x3 .* input of 6x5"),
    (tcpy.conv2d_forward, {"weight": ones(6, 2, 0, 3)}, ValueError, r"kernel.* 0"),
    (tcpy.conv2d_forward, {"x": ones(2, 4, 0, 5)}, ValueError, r"size.* 0"),
    (tcpy.conv2d_forward, {"x": ones(2, 0, 6, 5), "weight": ones(6, 0, 3, 3)}, ValueError, "in_channels.* 0"),
    (tcpy.conv2d_forward, {"weight": ones(0, 2, 3, 3), "bias": None}, ValueError, "out_channels.* 0"),
    (tcpy.conv2d_backward_input, {"dy": ones(2, 6, 4, 4)}, ValueError, r"dy has shape .*\(2, 6, 4, 3\) is needed"),
    (tcpy.conv2d_backward_input, {"dy": ones(2, 5, 4, 3)}, ValueError, r"dy has shape .*\(2, 6, 4, 3\) is needed"),
    (tcpy.conv2d_backward_input, {"input_size": 2}, ValueError, "kernel of 3x3 .* input of 2x2"),
    (tcpy.conv2d_backward_weight, {"dy": ones(1, 6, 4, 3)}, ValueError, r"dy has shape .*\(2, 6, 4, 3\) is needed"),
    (tcpy.conv2d_backward_weight, {"groups": 3}, ValueError, "x has 4 channels, a multiple of groups = 3"),
    (tcpy.conv2d_backward_weight, {"kernel_size": (7, 1)}, ValueError, "kernel of 7x1 .* input of 6x5"),
    (tcpy.conv2d_backward_weight, {"dtype": np.float64}, TypeError, "dtype is float64, float16 or float32 is needed"),
    (
        tcpy.conv2d_backward_weight,
        {"dtype": F, "out": ones(6, 2, 3, 3)},
        TypeError,
        "out is float16, float32 is needed",
    ),
    (tcpy.conv2d_backward_weight, {"dtype": "halves"}, TypeError, "dtype is 'halves', float16 or float32 is needed"),
    (tcpy.gemm, {"b": ones(4, 4)}, ValueError, r"op\(a\) is 3x5 and op\(b\) 4x4"),
    (tcpy.gemm, {"transpose_a": True}, ValueError, r"op\(a\) is 5x3 and op\(b\) 5x4"),
    (tcpy.gemm, {"a": ones(3, 3, 5), "b": ones(2, 5, 4)}, ValueError, r"a has shape \(3, 3, 5\) and b \(2, 5, 4\)"),
    (tcpy.gemm, {"beta": 1}, ValueError, "beta is 1.0: it needs c"),
    (tcpy.gemm, {"beta": 1, "c": ones(4, 3)}, ValueError, r"c has shape \(4, 3\), \(3, 4\) is needed"),
    (tcpy.gemm, {"beta": 1, "c": ones(3, 4, dtype=F), "out": ones(3, 4)}, TypeError, "c is float32, float16"),
    (tcpy.gemm, {"beta": 1, "c": ones(3, 4), "dtype": F}, TypeError, "c is float16, float32"),
    (tcpy.gemm, {"c": ones(3, 4, dtype=int)}, TypeError, "c is int64, float16 or float32"),
    (tcpy.gemm, {"out": ones(3, 4), "dtype": F}, TypeError, "out is float16, float32"),
    (tcpy.gemm, {"dtype": ">f2"}, TypeError, "dtype is >f2|dtype is float16"),
    (tcpy.gemm, {"alpha": "2"}, TypeError, "alpha is '2', a real number is needed"),
    (tcpy.gemm, {"alpha": 1j}, TypeError, "alpha is 1j, a real number is needed"),
    (tcpy.gemm, {"beta": None}, TypeError, "beta is None, a real number is needed"),
    (
        tcpy.gemm,
        {"alpha": 1e39},
        ValueError,
        r"^gemm: alpha is 1e\+39, -3.40\d*e\+38 to 3.40\d*e\+38, inf, -inf or nan is",
    ),
    (tcpy.gemm, {"beta": -3.4028236e38}, ValueError, r"^gemm: beta is -3.4028236e\+38, -3.40"),
    (tcpy.gemm, {"alpha": 10**400}, ValueError, r"^gemm: alpha is 10{20,40}\.\.\.0{20,40}, -3.40"),
    (tcpy.gemm, {"alpha": -(10**5000)}, ValueError, "^gemm: alpha is .{1,60}, -3.40"),
    (tcpy.gemm, {"alpha": np.float64(1e300)}, ValueError, r"^gemm: alpha is .*1e\+300.*, -3.40"),
    (tcpy.gemm, {"transpose_a": "N"}, TypeError, "^gemm: transpose_a is 'N', True or False is needed"),
    (tcpy.gemm, {"transpose_a": 2}, TypeError, "^gemm: transpose_a is 2, True or False is needed"),
    (tcpy.gemm, {"transpose_b": None}, TypeError, "^gemm: transpose_b is None, True or False is needed"),
    (tcpy.gemm, {"transpose_b": np.ones(1, bool)}, TypeError, "^gemm: transpose_b is array.*, True or False is needed"),
    (tcpy.gemm, {"dtype": "f2,("}, TypeError, r"^gemm: dtype is 'f2,\(', float16 or float32 is needed"),
    (
        tcpy.conv2d_forward,
        {"context": "c" * 999},
        TypeError,
        "^conv2d_forward: context is 'c.{50,70}c', a tcpy.Context",
    ),
    (tcpy.gemm, {"context": "cpu"}, TypeError, "context is 'cpu', a tcpy.Context is needed"),
    (tcpy.conv2d_forward, {"context": 0}, TypeError, "context is 0, a tcpy.Context is needed"),
]


@pytest.mark.parametrize(("function", "changed", "error", "text"), WRONG)
def test_wrong_arguments(
    function: Callable[..., Any], changed: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        function(**GOOD[function] | changed)


SIZES = [
    *[(function, name, 1 if name == "stride" else 0) for function in list(GOOD)[:3] for name in ("stride", "padding")],
    *[(function, "groups", 1) for function in list(GOOD)[:3]],
    (tcpy.conv2d_backward_input, "input_size", 1),
    (tcpy.conv2d_backward_weight, "kernel_size", 1),
]
NO_SIZES: list[tuple[Any, type[Exception]]] = [
    (2**63, ValueError),
    (2**64 + 1, ValueError),
    (-(2**70), ValueError),
    (True, TypeError),
    (np.True_, TypeError),
    (1.0, TypeError),
    ("1", TypeError),
    (None, TypeError),
]


@pytest.mark.parametrize(("function", "name", "least"), SIZES, ids=lambda part: getattr(part, "__name__", str(part)))
def test_wrong_sizes(function: Callable[..., Any], name: str, least: int) -> None:
    good = GOOD[function]
    for value, error in [*NO_SIZES, (least - 1, ValueError)]:
        sentence = rf"^{function.__name__}: {name} is .*{re.escape(str(value))}"
        with pytest.raises(error, match=sentence):
            function(**good | {name: value})
        if name != "groups":
            with pytest.raises(error, match=sentence):
                function(**good | {name: (3, value)})


@pytest.mark.parametrize(
    "pair", [(), (1,), (1, 1, 1), np.ones((3,), int), np.ones((2, 2), int), np.array(1.0), "11", 2**62]
)
def test_wrong_pairs(pair: Any) -> None:
    with pytest.raises((ValueError, TypeError), match=r"padding|pad"):
        tcpy.conv2d_forward(**FORWARD, padding=pair)


# Function, a good call of it, the least value of each argument.
HELPERS: list[tuple[Callable[..., int], dict[str, int], dict[str, int]]] = [
    (
        tcpy.conv2d_out_dim,
        {"size": 8, "kernel": 3, "padding": 1, "stride": 1},
        {"size": 1, "kernel": 1, "padding": 0, "stride": 1},
    ),
    (
        tcpy.conv2d_scratch_col_bytes,
        {"batch": 1, "in_channels": 1, "kernel_size": 1, "output_size": 1},
        {"batch": 0, "in_channels": 0, "kernel_size": 0, "output_size": 0},
    ),
    (
        tcpy.conv2d_scratch_dx_bytes,
        {"batch": 1, "in_channels": 1, "input_size": 1},
        {"batch": 0, "in_channels": 0, "input_size": 0},
    ),
]


@pytest.mark.parametrize(("function", "good", "leasts"), HELPERS, ids=lambda part: getattr(part, "__name__", ""))
def test_wrong_sizes_of_helpers(function: Callable[..., int], good: dict[str, int], leasts: dict[str, int]) -> None:
    for name, least in leasts.items():
        function(**good | {name: least})
        sentence = f"^{function.__name__}: {name} is .*, ({least} to {2**63 - 1} is allowed|an integer is needed)$"
        for value, error in [*NO_SIZES, (least - 1, ValueError), (10**30, ValueError), (10**5000, ValueError)]:
            with pytest.raises(error, match=sentence):
                function(**good | {name: value})
    with pytest.raises(ValueError, match=f"^tc_{function.__name__}: "):
        function(*[2**62] * len(good))


# ---- Outputs and scratch ---------------------------------------------------------------------------------------------


def padded(shape: tuple[int, ...]) -> Any:
    return np.ones([*shape[:-1], shape[-1] + 1], H)[..., :-1]


def locked(shape: tuple[int, ...]) -> Any:
    array = np.ones(shape, H)
    array.flags.writeable = False
    return array


NO_OUTPUTS: list[tuple[Callable[[Any], Any], type[Exception], str]] = [
    (lambda shape: ones(*shape, 1), ValueError, "out has shape"),
    (lambda shape: ones(shape[0] + 1, *shape[1:]), ValueError, "out has shape .* is needed"),
    (padded, ValueError, "out isn't C-contiguous"),
    (lambda shape: np.asfortranarray(ones(*shape)), ValueError, "out isn't C-contiguous"),
    (locked, ValueError, "out isn't writeable"),
    (lambda shape: ones(*shape, dtype=np.float64), TypeError, "out is float64"),
    (lambda shape: ones(*shape, dtype=">f2"), TypeError, "out is >f2|out is float16"),
    (lambda shape: ones(*shape).tolist(), TypeError, "out is list, a NumPy array is needed"),
    (lambda shape: np.ma.masked_array(ones(*shape)), TypeError, "out is a masked array"),
]


@pytest.mark.parametrize("function", GOOD, ids=lambda function: function.__name__)
@pytest.mark.parametrize(("make", "error", "text"), NO_OUTPUTS, ids=lambda part: "")
def test_wrong_outputs(
    function: Callable[..., Any], make: Callable[[Any], Any], error: type[Exception], text: str
) -> None:
    out = make(OUT_SHAPE[function])
    before = copy.deepcopy(out)
    with pytest.raises(error, match=text):
        function(**GOOD[function], out=out)
    np.testing.assert_array_equal(out, before)


@pytest.mark.parametrize("function", GOOD, ids=lambda function: function.__name__)
def test_overlaps(function: Callable[..., Any]) -> None:
    name, operand = next(iter(GOOD[function].items()))
    shape = OUT_SHAPE[function]
    memory = np.ones(operand.size + int(np.prod(shape)), H)
    shared, out = memory[: operand.size].reshape(operand.shape), memory[-int(np.prod(shape)) :].reshape(shape)
    function(**GOOD[function] | {name: shared}, out=out)
    out[...] = 1
    out = memory[operand.size - 1 :][: int(np.prod(shape))].reshape(shape)
    with pytest.raises(ValueError, match="overlap") as caught:
        function(**GOOD[function] | {name: shared}, out=out)
    assert caught.value.status is Status.OVERLAP
    np.testing.assert_array_equal(memory, np.ones(memory.shape))


def test_wrong_scratch() -> None:
    needed = tcpy.conv2d_scratch_col_bytes(2, 4, 3, (4, 3))
    dx_needed = tcpy.conv2d_scratch_dx_bytes(2, 4, (6, 5))
    no_scratch: list[tuple[Any, type[Exception], str]] = [
        (np.zeros(needed - 2, np.uint8), ValueError, f"scratch_col holds {needed - 2} bytes.*{needed}"),
        (tcpy.Buffer(needed - 2), ValueError, f"scratch_col holds {needed - 2} bytes.*{needed}"),
        (np.zeros((needed, 2), np.uint8)[:, 0], ValueError, "scratch_col isn't C-contiguous"),
        (bytes(needed), TypeError, "^conv2d_.*: scratch_col is .{1,60}, a Buffer or"),
        (np.zeros(needed, object), TypeError, "^conv2d_.*: scratch_col is .{1,60}, a Buffer or"),
        (np.zeros(needed + 4, np.uint8)[1:], ValueError, "scratch_col"),
    ]
    for scratch, error, text in no_scratch:
        with pytest.raises(error, match=text):
            tcpy.conv2d_forward(**FORWARD, scratch_col=scratch)
        with pytest.raises(error, match=text):
            tcpy.conv2d_backward_weight(**BACKWARD_WEIGHT, scratch_col=scratch)
        with pytest.raises(error, match=text):
            tcpy.conv2d_backward_input(**BACKWARD_INPUT, scratch_col=scratch)
    with pytest.raises(ValueError, match=f"holds {dx_needed - 4} bytes.*{dx_needed}"):
        tcpy.conv2d_backward_input(**BACKWARD_INPUT, scratch_dx=np.zeros(dx_needed // 4 - 1, F))
    closed = tcpy.Buffer(needed)
    closed.close()
    with pytest.raises(TcError, match="the buffer is closed"):
        tcpy.conv2d_forward(**FORWARD, scratch_col=closed)


def test_odd_addresses() -> None:
    x = np.frombuffer(bytearray(FORWARD["x"].nbytes + 1), np.uint8)[1:].view(H).reshape(FORWARD["x"].shape)
    with pytest.raises(ValueError, match=r"multiple of 2|aligned") as caught:
        tcpy.conv2d_forward(**FORWARD | {"x": x})
    assert caught.value.status is Status.ALIGNMENT


ONE = ones(1, 1, 1, 1)
WIDE = np.broadcast_to(H(1), (1, 1, 2**30, 2**30))

# What needs more memory than there is, or than there can be, and what the text must say.
HUGE: list[tuple[Callable[[], object], Status, str]] = [
    (
        lambda: tcpy.conv2d_forward(ONE, ONE, padding=2**40),
        Status.SHAPE,
        r"^conv2d_forward: the result .*2199023255553",
    ),
    (lambda: tcpy.conv2d_forward(ONE, ONE, padding=2**29), Status.MEMORY, "^conv2d_forward: the result .*1073741825"),
    (
        lambda: tcpy.conv2d_forward(WIDE, ONE, stride=2**30),
        Status.MEMORY,
        "^conv2d_forward: the copy of x .*1073741824",
    ),
    (
        lambda: tcpy.conv2d_backward_input(ONE, ONE, input_size=2**30, stride=2**30),
        Status.MEMORY,
        "^conv2d_backward_input: the result .*1073741824",
    ),
    (
        lambda: tcpy.conv2d_backward_weight(WIDE, ONE, kernel_size=2**30),
        Status.MEMORY,
        "^conv2d_backward_weight: the result .*1073741824",
    ),
    (lambda: tcpy.gemm(ones(2**30, 0), ones(0, 2**30)), Status.MEMORY, "^gemm: the result .*1073741824"),
    (lambda: tcpy.gemm(ones(2**40, 0), ones(0, 2**40)), Status.SHAPE, "^gemm: the result .*1099511627776"),
    (lambda: tcpy.gemm(WIDE[0], ones(2**30, 1)), Status.MEMORY, "^gemm: the copy of a .*1073741824"),
    (
        lambda: tcpy.gemm(ones(2**30, 0), ones(0, 2**30), c=WIDE[0, 0], beta=1),
        Status.MEMORY,
        "^gemm: the copy of c .*1073741824",
    ),
    (lambda: tcpy.Buffer(2**62), Status.MEMORY, "^tc_buffer_alloc: "),
    (lambda: tcpy.empty((2**30, 2**30)), Status.MEMORY, "^tc_buffer_alloc: "),
]


@pytest.mark.parametrize(("call", "status", "text"), HUGE)
def test_memory(call: Callable[[], object], status: Status, text: str) -> None:
    with pytest.raises(_STANDARD[status], match=text) as caught:
        call()
    assert caught.value.status is status


@pytest.mark.parametrize(
    "alpha", [np.inf, -np.inf, np.nan, np.float16(np.inf), 3.4028235e38, -3.4028235e38, Fraction(2)]
)
def test_every_float32_is_a_factor(alpha: Any) -> None:
    np.testing.assert_array_equal(tcpy.gemm(ONE[0], ONE[0], alpha=alpha, dtype=F), np.full((1, 1, 1), alpha, F))


# ---- The exceptions --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.OK], ids=lambda s: s.name)
def test_every_status_is_an_exception_of_two_kinds(status: Status) -> None:
    error = tc_error(status, "a sentence")
    assert isinstance(error, TcError)
    assert isinstance(error, _STANDARD[status])
    assert (error.status, str(error)) == (status, "a sentence")
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.status, str(again)) == (type(error), status, "a sentence")


def test_an_error_that_is_not_from_here() -> None:
    again = pickle.loads(pickle.dumps(TcError("a sentence")))
    assert (type(again), again.status, str(again)) == (TcError, Status.OK, "a sentence")
