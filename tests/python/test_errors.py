"""Every wrong argument: the right exception, a sentence with the argument and its value, outputs untouched."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Callable
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
    ("masked", lambda array: np.ma.masked_array(array)),
]
ARRAYS = [
    (function, name) for function, good in GOOD.items() for name, value in good.items() if hasattr(value, "dtype")
]


@pytest.mark.parametrize(("function", "name"), ARRAYS, ids=lambda part: getattr(part, "__name__", part))
@pytest.mark.parametrize(("what", "spoil"), NO_HALVES, ids=lambda part: part if isinstance(part, str) else "")
def test_wrong_dtype(function: Callable[..., Any], name: str, what: str, spoil: Callable[[Any], Any]) -> None:
    arguments = GOOD[function] | {name: spoil(GOOD[function][name])}
    with pytest.raises(TypeError, match=rf"^{name} is .*({what})"):
        function(**arguments)


@pytest.mark.parametrize(("function", "name"), ARRAYS, ids=lambda part: getattr(part, "__name__", part))
@pytest.mark.parametrize("shape", [(), (1, 2, 3, 4, 5)])
def test_wrong_number_of_dimensions(function: Callable[..., Any], name: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=rf"^{name} has shape {re.escape(str(shape))}") as caught:
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
        with pytest.raises(error, match=rf"^{name} is .*{re.escape(str(value))}"):
            function(**good | {name: value})
        if name != "groups":
            with pytest.raises(error, match=rf"^{name} is .*{re.escape(str(value))}"):
                function(**good | {name: (3, value)})


@pytest.mark.parametrize("pair", [(), (1,), (1, 1, 1), np.ones((3,), int), np.ones((2, 2), int), "11", 2**62])
def test_wrong_pairs(pair: Any) -> None:
    with pytest.raises((ValueError, TypeError), match=r"padding|pad"):
        tcpy.conv2d_forward(**FORWARD, padding=pair)


def test_wrong_sizes_of_helpers() -> None:
    for value, error in NO_SIZES:
        for position, name in enumerate(["size", "kernel", "padding", "stride"]):
            arguments: list[Any] = [8, 3, 1, 1]
            arguments[position] = value
            with pytest.raises(error, match=f"^{name} is"):
                tcpy.conv2d_out_dim(*arguments)
        with pytest.raises(error, match=r"^batch is"):
            tcpy.conv2d_scratch_col_bytes(value, 1, 1, 1)
        with pytest.raises(error, match=r"^output_size is"):
            tcpy.conv2d_scratch_col_bytes(1, 1, 1, value)
        with pytest.raises(error, match=r"^in_channels is"):
            tcpy.conv2d_scratch_dx_bytes(1, value, 1)
    for sizes in [(0, 3, 1, 1), (8, 0, 1, 1), (8, 3, -1, 1), (8, 3, 1, 0), (2**62, 1, 2**62, 1)]:
        with pytest.raises(ValueError, match="tc_conv2d_out_dim"):
            tcpy.conv2d_out_dim(*sizes)
    with pytest.raises(ValueError, match="tc_conv2d_scratch_col_bytes"):
        tcpy.conv2d_scratch_col_bytes(-1, 1, 1, 1)
    with pytest.raises(ValueError, match="tc_conv2d_scratch_dx_bytes"):
        tcpy.conv2d_scratch_dx_bytes(2**40, 2**40, 1)


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
    (padded, ValueError, "out must be C-contiguous and writeable"),
    (lambda shape: np.asfortranarray(ones(*shape)), ValueError, "out must be C-contiguous and writeable"),
    (locked, ValueError, "out must be C-contiguous and writeable"),
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
        (np.zeros((needed, 2), np.uint8)[:, 0], ValueError, "scratch_col must be C-contiguous"),
        (bytes(needed), TypeError, "scratch_col is .*Buffer"),
        (np.zeros(needed, object), TypeError, "scratch_col is .*Buffer"),
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


def test_memory() -> None:
    huge = np.broadcast_to(H(1), (1, 1, 1, 1))
    with pytest.raises((MemoryError, ValueError)):
        tcpy.conv2d_forward(huge, huge, padding=2**40)
    with pytest.raises(MemoryError):
        tcpy.Buffer(2**62)
    with pytest.raises(MemoryError):
        tcpy.empty((2**30, 2**30))


# ---- The exceptions --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.OK], ids=lambda s: s.name)
def test_every_status_is_an_exception_of_two_kinds(status: Status) -> None:
    error = tc_error(status, "a sentence")
    assert isinstance(error, TcError)
    assert isinstance(error, _STANDARD[status])
    assert (error.status, str(error)) == (status, "a sentence")
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.status, str(again)) == (type(error), status, "a sentence")
