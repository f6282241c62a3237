"""Arrays that a GPU can't share are copied, and nobody sees it: same results, same errors, same order in a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
import pytest

import tcpy
from tcpy import Status
from tcpy._selftest import halves
from tcpy.errors import tc_error

H = np.float16


@pytest.fixture
def sharing_nothing(context: tcpy.Context, monkeypatch: pytest.MonkeyPatch) -> tcpy.Context:
    """A context that takes no memory but its own, as one on a GPU takes only whole pages."""

    def refuse(*_: object) -> NoReturn:
        raise tc_error(Status.ALIGNMENT, "no whole pages")

    monkeypatch.setattr(context, "_wrap", refuse)
    return context


def arrays() -> tuple[Any, Any, Any, Any]:
    rng = np.random.default_rng(5)
    return halves(rng, 2, 4, 9, 8), halves(rng, 6, 4, 3, 3), halves(rng, 6), halves(rng, 2, 6, 9, 8)


CALLS: dict[str, Callable[..., Any]] = {
    "forward": lambda **more: tcpy.conv2d_forward(*arrays()[:3], padding=1, **more),
    "backward_input": lambda **more: tcpy.conv2d_backward_input(
        arrays()[3], arrays()[1], input_size=(9, 8), padding=1, **more
    ),
    "backward_weight": lambda **more: tcpy.conv2d_backward_weight(
        arrays()[0], arrays()[3], kernel_size=3, padding=1, **more
    ),
    "gemm": lambda **more: tcpy.gemm(arrays()[0][0, 0], arrays()[3][0, 0].T, **more),
}


@pytest.mark.parametrize("name", CALLS)
def test_results_are_the_same(sharing_nothing: tcpy.Context, name: str) -> None:
    with tcpy.Context() as plain:
        expected = CALLS[name](context=plain)
    result = CALLS[name](context=sharing_nothing)
    np.testing.assert_array_equal(result, expected)
    out = np.full_like(expected, np.nan)
    assert CALLS[name](context=sharing_nothing, out=out) is out
    np.testing.assert_array_equal(out, expected)


def test_scratch_is_neither_read_nor_written(sharing_nothing: tcpy.Context) -> None:
    scratch = np.full(tcpy.conv2d_scratch_col_bytes(2, 4, 3, (9, 8)), 255, np.uint8)
    expected = CALLS["forward"](context=sharing_nothing)
    np.testing.assert_array_equal(CALLS["forward"](context=sharing_nothing, scratch_col=scratch), expected)
    assert (scratch == 255).all()


def test_beta_reads_the_output(sharing_nothing: tcpy.Context) -> None:
    c = np.full((2, 2), 3, H)
    tcpy.gemm(np.eye(2, dtype=H), np.eye(2, dtype=H), beta=2, c=c, out=c, context=sharing_nothing)
    np.testing.assert_array_equal(c, [[7, 6], [6, 7]])


def test_strided_and_read_only_inputs(sharing_nothing: tcpy.Context) -> None:
    whole = np.arange(24, dtype=H).reshape(4, 6)
    whole.flags.writeable = False
    result = tcpy.gemm(whole[1:3, 2:5], np.eye(3, dtype=H), context=sharing_nothing)
    np.testing.assert_array_equal(result, whole[1:3, 2:5])


def test_overlaps_are_refused(sharing_nothing: tcpy.Context) -> None:
    memory = np.ones((3, 2), H)
    for out in (memory[:2], memory[1:]):
        with pytest.raises(ValueError, match=r"^gemm: .*overlaps") as caught:
            tcpy.gemm(memory[:2], np.eye(2, dtype=H), out=out, context=sharing_nothing)
        assert caught.value.status is Status.OVERLAP
    assert (memory == 1).all()
    tcpy.gemm(memory[:2], memory[:2], out=np.ones((2, 2), H), context=sharing_nothing)  # inputs may


@pytest.mark.parametrize(("name", "alignment"), [("x", 2), ("out", 2), ("scratch_col", 4)])
def test_odd_addresses_are_refused(sharing_nothing: tcpy.Context, name: str, alignment: int) -> None:
    shapes = {"x": (2, 4, 9, 8), "out": (2, 6, 9, 8), "scratch_col": (2, 4, 9, 9, 8)}
    memory = np.zeros(2 * np.prod(shapes[name]) + alignment, np.uint8)
    odd = {name: memory[alignment // 2 :][: -alignment // 2].view(H).reshape(shapes[name])}
    x, weight = arrays()[:2]
    with pytest.raises(ValueError, match=rf"^conv2d_forward: {name} .* multiple of {alignment} is needed") as caught:
        tcpy.conv2d_forward(**{"x": x, "weight": weight, "padding": 1, "context": sharing_nothing} | odd)
    assert caught.value.status is Status.ALIGNMENT


def test_a_failed_call_leaves_the_output(sharing_nothing: tcpy.Context) -> None:
    out = np.full((2, 6, 9, 8), 5, H)
    with pytest.raises(ValueError, match="scratch_col") as caught:
        CALLS["forward"](context=sharing_nothing, out=out, scratch_col=np.zeros(4, np.uint8))
    assert caught.value.status is Status.BUFFER
    assert (out == 5).all()


def test_calls_of_a_batch_see_each_other(sharing_nothing: tcpy.Context) -> None:
    eye, shared = np.eye(4, dtype=H), tcpy.empty((4, 4), context=sharing_nothing)
    own = np.empty((4, 4), H)
    with sharing_nothing.batch():
        tcpy.gemm(eye, eye, alpha=2, out=own, context=sharing_nothing)  # into a copy
        tcpy.gemm(own, eye, alpha=3, out=shared, context=sharing_nothing)  # out of a copy, into a buffer
        tcpy.gemm(shared[1:], eye, out=own[1:], context=sharing_nothing)  # out of a copy of a part of it
        tcpy.gemm(shared[:, ::2], eye[::2], alpha=5, beta=1, c=own.copy(), out=own, context=sharing_nothing)
    expected = np.diag([2, 6, 6, 6]) + np.diag([30, 0, 30, 0])
    np.testing.assert_array_equal(own, expected)


@pytest.mark.parametrize("value", ["0", "1"])
def test_verbose_tells(
    sharing_nothing: tcpy.Context, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], value: str
) -> None:
    monkeypatch.setenv("TC_VERBOSE", value)
    tcpy.gemm(np.ones((2, 3), H), tcpy.empty((3, 4), context=sharing_nothing), context=sharing_nothing)
    told = capsys.readouterr().err.splitlines()
    names = [line.split()[1] for line in told if line.startswith("tcpy: ")]
    assert names == (["a", "out"] if value == "1" else [])
    assert all("12 bytes" in line or "16 bytes" in line for line in told if line.startswith("tcpy: "))
