"""Buffers and their views: lifetimes above all."""

from __future__ import annotations

import copy
import ctypes
import gc
import mmap
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import SIMULATED, any_memory

import tcpy
from tcpy import Status
from tcpy._arguments import address_of
from tcpy.buffer import memory_of

H = np.float16

VIEWS: dict[str, Callable[[tcpy.Buffer], Any]] = {
    "numpy": lambda buffer: buffer.numpy(),
    "numpy with a shape": lambda buffer: buffer.numpy(np.uint8, (8, 8))[2:, ::-1].T,
    "memoryview": lambda buffer: buffer.memoryview(),
    "asarray": np.asarray,
    "array interface": lambda buffer: np.asarray(buffer)[::2],
    "dlpack": np.from_dlpack,
    "dlpack of a view": lambda buffer: np.from_dlpack(buffer.numpy(np.float16)),
}


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("order", ["buffer first", "context first", "garbage"])
def test_memory_outlives_everything_but_the_last_view(name: str, order: str) -> None:
    context: Any = tcpy.Context()
    buffer: Any = tcpy.Buffer(64, context)
    memory = weakref.ref(buffer._live)
    view = VIEWS[name](buffer)
    buffer.numpy()[:] = 7
    if order == "buffer first":
        buffer.close()
        context.close()
    elif order == "context first":
        context.close()
        buffer.close()
    buffer = context = None
    gc.collect()
    others = [tcpy.Buffer(64).numpy() for _ in range(50)]
    for other in others:
        other[:] = 255
    assert memory() is not None
    assert set(np.asarray(view).tobytes()) == {7}
    del view
    gc.collect()
    assert memory() is None


def test_close_frees_at_once_where_there_is_no_view() -> None:
    buffer = tcpy.Buffer(64)
    memory = weakref.ref(buffer._live)
    view = buffer.numpy()
    del view
    buffer.close()
    assert memory() is None


def test_memory_is_given_back(python: Callable[..., Any]) -> None:
    script = """
import resource, sys, numpy as np, tcpy
unit = 1 if sys.platform == "darwin" else 1024
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
def use():
    tcpy.empty(2**24, np.uint8)[:] = 1
    tcpy.gemm(tcpy.empty((ROWS, 2)), tcpy.empty((2, 2)))
    tcpy.Buffer(2**24).close()
use()
before = peak()
for _ in range(20):
    use()
print(peak() - before < 2**25)
"""
    rows = 2**15 if SIMULATED else 2**20
    assert python("-c", script.replace("ROWS", str(rows))).stdout == "True\n"


def test_closed() -> None:
    with tcpy.Buffer(4) as buffer:
        assert (buffer.closed, buffer.nbytes, repr(buffer)) == (False, 4, "<tcpy.Buffer of 4 bytes>")
    buffer.close()
    for dead in (buffer, tcpy.Buffer.__new__(tcpy.Buffer)):
        assert (dead.closed, repr(dead)) == (True, "<tcpy.Buffer closed>")
    for use in (np.asarray, np.from_dlpack, tcpy.Buffer.numpy, tcpy.Buffer.memoryview, lambda b: b.nbytes):
        with pytest.raises(RuntimeError, match="the buffer is closed") as caught:
            use(buffer)
        assert caught.value.status is tcpy.Status.CLOSED


def test_a_buffer_keeps_its_context() -> None:
    buffer = tcpy.Buffer(8, tcpy.Context())
    gc.collect()
    assert buffer.context.info()["threads"] >= 1


def test_new_memory_is_zero_and_aligned() -> None:
    for nbytes in (1, 63, 64, 1000, 1 << 20):
        array = tcpy.Buffer(nbytes).numpy()
        assert not array.any()
        assert array.ctypes.data % 64 == 0
        array[:] = 255


def test_views_share_the_memory() -> None:
    buffer = tcpy.Buffer(12)
    buffer.numpy(H, (2, 3))[1, 2] = 1
    assert buffer.memoryview().tolist() == [0] * 10 + [0, 60]
    assert np.from_dlpack(buffer)[11] == np.asarray(buffer)[11] == 60
    buffer.memoryview()[11] = 0
    assert not np.asarray(buffer).any()
    assert buffer.__dlpack_device__() == (1, 0)
    assert buffer.numpy(H, 2).shape == (2,)
    assert buffer.numpy(np.float32).shape == (3,)


@pytest.mark.parametrize(
    "arguments", [(H, (2, 4)), (H, 7), (np.float64, None), ("S5", None), (np.uint8, 13), (">V9", (2**62, 2**62))]
)
def test_views_that_do_not_fit(arguments: Any) -> None:
    with pytest.raises(ValueError, match="the buffer holds 12 bytes") as caught:
        tcpy.Buffer(12).numpy(*arguments)
    assert caught.value.status is Status.BUFFER


def test_wrong_views() -> None:
    buffer = tcpy.Buffer(16)
    for shape, error in [((-1, 2), ValueError), ((1.0,), TypeError), ("8", TypeError), ((2**70, 0), ValueError)]:
        with pytest.raises(error, match=r"^shape is"):
            buffer.numpy(np.uint8, shape)
    for shape in [(2**62, 0, 2**62), (0,) * 100]:
        with pytest.raises(ValueError, match=r"a view can't have shape \(.* dtype uint8: ") as caught:
            buffer.numpy(np.uint8, shape)
        assert caught.value.status is Status.SHAPE


NO_DTYPES: list[tuple[Any, type[Exception]]] = [
    (object, TypeError),
    ([("one", object), ("two", H)], TypeError),
    ("nonsense", TypeError),
    ("f2,(", TypeError),
    ([("same", H), ("same", H)], TypeError),
    ("S0", ValueError),
    (np.dtype([]), ValueError),
]


@pytest.mark.parametrize(("dtype", "error"), NO_DTYPES, ids=str)
def test_wrong_dtypes(dtype: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"^dtype is .* needed$"):
        tcpy.Buffer(16).numpy(dtype)
    with pytest.raises(error, match=r"^empty: dtype is .* needed$"):
        tcpy.empty(2, dtype)


def test_views_of_nested_elements() -> None:
    pairs = tcpy.Buffer(16).numpy((H, (2,)))
    assert pairs.shape == tcpy.empty(4, (H, (2,))).shape == (4, 2)
    assert tcpy.empty(np.array(3)).shape == (3,)


@pytest.mark.parametrize("nbytes", [-1, 2**63, 2**64, 1.0, True, "8", None])
def test_wrong_sizes(nbytes: Any) -> None:
    with pytest.raises((ValueError, TypeError), match=r"^nbytes is"):
        tcpy.Buffer(nbytes)


def test_empty_buffers() -> None:
    buffer = tcpy.Buffer(0)
    assert (buffer.nbytes, buffer.numpy().size, buffer.memoryview().nbytes) == (0, 0, 0)
    assert buffer.numpy(H, (0, 5)).shape == tcpy.empty((0, 5)).shape == (0, 5)
    assert tcpy.Buffer.wrap(b"").nbytes == tcpy.Buffer.wrap(np.empty((0, 3))).nbytes == 0


# ---- Wrapping --------------------------------------------------------------------------------------------------------


def whole_pages() -> Any:
    """An array of a page of Apple's, which starts at one."""
    memory = np.empty(2 * 16384, np.uint8)
    array = memory[-memory.ctypes.data % 16384 :][:16384].view(H)
    array[:] = np.arange(array.size) % 1000
    return array


def test_wrap_shares_the_memory_and_keeps_it() -> None:
    array = whole_pages()
    alive = weakref.ref(array)
    view = tcpy.Buffer.wrap(array).numpy(H, (2, 3))
    assert np.shares_memory(view, array)
    del array
    gc.collect()
    np.testing.assert_array_equal(view, [[0, 1, 2], [3, 4, 5]])
    del view
    gc.collect()
    assert alive() is None


@any_memory
def test_wrap_takes_whatever_exports_bytes() -> None:
    for source in (bytearray(b"abcd"), memoryview(bytearray(b"abcd")), np.frombuffer(b"abcd", np.uint8).copy()):
        buffer = tcpy.Buffer.wrap(source)
        buffer.numpy()[0] = 0
        assert bytes(source) == b"\0bcd"
    with mmap.mmap(-1, 4096) as mapped:
        buffer = tcpy.Buffer.wrap(mapped)
        buffer.memoryview()[0] = 9
        assert mapped[0] == 9
        buffer.close()
        gc.collect()


@any_memory
def test_read_only_memory_stays_read_only() -> None:
    buffer = tcpy.Buffer.wrap(b"abcd")
    assert buffer.memoryview().readonly
    assert not buffer.numpy().flags.writeable
    assert not np.asarray(buffer).flags.writeable
    with pytest.raises(ValueError, match="scratch_col isn't writeable"):
        tcpy.conv2d_forward(np.ones((1, 1, 1, 1), H), np.ones((1, 1, 1, 1), H), scratch_col=buffer)


@pytest.mark.parametrize(
    ("source", "error"),
    [
        (np.ma.masked_array([1, 2], [False, True]), TypeError),
        ((ctypes.c_void_p * 2)(), TypeError),
        (np.zeros((4, 4))[:, ::2], ValueError),
        (np.zeros((4, 4)).T, ValueError),
        (np.array([object()]), TypeError),
        ([1, 2], TypeError),
        (7, TypeError),
        ("text", TypeError),
    ],
    ids=str,
)
def test_what_can_not_be_wrapped(source: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"^source is"):
        tcpy.Buffer.wrap(source)


@pytest.mark.parametrize("copy_of", [copy.copy, copy.deepcopy, pickle.dumps])
def test_no_copies(copy_of: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match="can't be copied or pickled"):
        copy_of(tcpy.Buffer(1))


# ---- empty -----------------------------------------------------------------------------------------------------------


def test_empty() -> None:
    array = tcpy.empty((3, 5))
    assert (array.shape, array.dtype, array.flags.c_contiguous, array.flags.writeable) == ((3, 5), H, True, True)
    assert tcpy.empty(4, np.float32).dtype == np.float32
    assert tcpy.empty((), np.float32).shape == ()
    assert array.ctypes.data % 64 == 0
    for shape, error in [((-1,), ValueError), ((2**62, 2**62), ValueError), ((1.5,), TypeError), (None, TypeError)]:
        with pytest.raises(error, match=r"^empty: shape is"):
            tcpy.empty(shape)
    with pytest.raises(
        ValueError, match=r"^empty: shape is \(4611686018427387904,\): 9223372036854775808 bytes of dtype"
    ):
        tcpy.empty(2**62)


def test_address_of_any_array() -> None:
    array = np.arange(24, dtype=np.float16).reshape(4, 6)
    read_only = array[:]
    read_only.flags.writeable = False
    for same in (array, read_only, array.T, array[::2, ::2], array[:0], array.view(np.uint8), array[0, 0:1]):
        assert address_of(same) == same.ctypes.data
    assert address_of(array[1:, 2:]) == array.ctypes.data + 16


def test_calls_use_buffers_as_they_are(context: tcpy.Context, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, out = (tcpy.empty((4, 4), context=context) for _ in range(3))
    a[:], b[:] = np.eye(4), np.arange(16).reshape(4, 4)
    assert all(memory_of(array) is not None for array in (a, b[:2], out.reshape(2, 8)))
    assert memory_of(b[1:]) is None
    assert memory_of(np.ones(3)) is None
    expected = tcpy.gemm(a[1:], b, context=context)

    def no_wrap(*_: object) -> None:
        raise AssertionError("a buffer was wrapped")

    monkeypatch.setattr(context, "_wrap", no_wrap)
    np.testing.assert_array_equal(tcpy.gemm(a, b, out=out, context=context), b)
    np.testing.assert_array_equal(tcpy.gemm(a, b.T, out=out, context=context), b.T)
    with pytest.raises(AssertionError, match="was wrapped"):
        tcpy.gemm(a[1:], b, context=context)
    monkeypatch.undo()
    np.testing.assert_array_equal(expected, b[1:])


def test_buffers_of_another_context(context: tcpy.Context) -> None:
    with tcpy.Context() as other:
        a = tcpy.empty((2, 2), context=other)
        a[:] = 1
    assert (tcpy.gemm(a, a, context=context) == 2).all()
