"""Contexts, the default one, threads and forks."""

from __future__ import annotations

import copy
import gc
import multiprocessing
import pickle
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from conftest import BACKEND, ISAS

import tcpy
from tcpy._load import lib
from tcpy._selftest import halves

RNG = np.random.default_rng(20)
A, B = halves(RNG, 120, 130), halves(RNG, 130, 110)
X, W = halves(RNG, 2, 8, 20, 20), halves(RNG, 16, 8, 3, 3)


def work(context: tcpy.Context | None = None) -> bytes:
    y = tcpy.conv2d_forward(X, W, padding=1, context=context)
    dw = tcpy.conv2d_backward_weight(X, y, kernel_size=3, padding=1, context=context)
    return tcpy.gemm(A, B, context=context).tobytes() + y.tobytes() + dw.tobytes()


def test_info(context: tcpy.Context) -> None:
    info = context.info()
    assert set(info) == set(tcpy.ContextInfo.__annotations__)
    assert (info["backend"], info["isas"] or [""]) == (BACKEND, ISAS)
    assert info["isa_reason"] == f"TC_CPU_ISA={info['isa']}" if BACKEND == "cpu" else "probe" in info["isa_reason"]
    assert info["isa"] in info["kernel"]
    assert info["device"]
    assert info["threads"] == context.threads
    assert repr(context) == f"<tcpy.Context {info}>"


def test_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    with tcpy.Context(threads=3) as context:
        assert context.threads == 3
        context.threads = np.int64(1024)
        assert context.threads == 1024
        for count in (-1, 0, 1025, 2**64 + 1, 2**70, 10**5000):
            with pytest.raises(ValueError, match=r"^threads is .*, 1 to 1024 is allowed$"):
                context.threads = count
            with pytest.raises(ValueError, match=r"^threads is .*, 1 to 1024 is allowed$"):
                tcpy.Context(threads=count)
        for none in ("two", True):
            with pytest.raises(TypeError, match=f"^threads is {none!r}, an integer is needed"):
                context.threads = none
        assert context.threads == 1024
    monkeypatch.setenv("TC_NUM_THREADS", "5")
    assert tcpy.Context().threads == 5


@pytest.mark.parametrize("backend", ["gpu", "", "CPU", 1, None, ["cpu"], np.array(["cpu", "auto"])])
def test_wrong_backends(backend: Any) -> None:
    with pytest.raises(ValueError, match=r"backend is .* one of \['auto', 'cpu', 'metal'\] is needed") as caught:
        tcpy.Context(backend)
    assert caught.value.status is tcpy.Status.ARGUMENT


WRONG_ENVIRONMENT = [
    *([("TC_CPU_ISA", "sse9", ValueError)] if BACKEND == "cpu" else []),
    ("TC_BACKEND", "gpu", ValueError),
    ("TC_NUM_THREADS", "many", ValueError),
    ("TC_NUM_THREADS", "0", ValueError),
    ("TC_VERBOSE", "2", ValueError),
    ("TC_CONV_PATH", "fast", ValueError),
]


@pytest.mark.parametrize(("name", "value", "error"), WRONG_ENVIRONMENT)
def test_wrong_environment(monkeypatch: pytest.MonkeyPatch, name: str, value: str, error: type[Exception]) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(error, match=f"{name}={value}") as caught:
        tcpy.Context()
    assert caught.value.status is tcpy.Status.ENVIRONMENT


def test_closed() -> None:
    context = tcpy.Context()
    with context:
        assert not context.closed
    context.close()
    assert context.closed
    assert repr(context) == "<tcpy.Context closed>"
    dy, closed = np.ones((2, 16, 18, 18), np.float16), "context is closed"
    uses: list[tuple[Callable[[], object], str]] = [
        (context.info, "tc_device_info_get: "),
        (context.trim, "tc_context_trim: "),
        (lambda: context.threads, "tc_context_get_threads: "),
        (lambda: context.batch().__enter__(), "tc_batch_begin: "),
        (lambda: tcpy.gemm(A, B, context=context), f"gemm: {closed}"),
        (lambda: tcpy.conv2d_forward(X, W, context=context), f"conv2d_forward: {closed}"),
        (lambda: tcpy.conv2d_backward_input(dy, W, input_size=20, context=context), f"conv2d_backward_input: {closed}"),
        (
            lambda: tcpy.conv2d_backward_weight(X, dy, kernel_size=3, context=context),
            f"conv2d_backward_weight: {closed}",
        ),
        (lambda: tcpy.empty(3, context=context), f"empty: {closed}"),
        (lambda: tcpy.Buffer(8, context), closed),
        (lambda: tcpy.Buffer.wrap(A, context), closed),
    ]
    for use, sentence in uses:
        with pytest.raises(RuntimeError, match=f"^{sentence}") as caught:
            use()
        assert caught.value.status is tcpy.Status.CLOSED


def test_a_context_that_was_not_made_is_closed() -> None:
    context = tcpy.Context.__new__(tcpy.Context)
    context.close()
    assert (context.closed, repr(context)) == (True, "<tcpy.Context closed>")


def test_text_of_the_library_is_read_whatever_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    sentences = ""
    for value in ("é" * 500, "e" + "é" * 500):  # one of which is cut inside a character
        monkeypatch.setenv("TC_BACKEND", value)
        with pytest.raises(ValueError, match=r"TC_BACKEND=e?é") as caught:
            tcpy.Context()
        sentences += str(caught.value)
    assert "\ufffd" in sentences
    monkeypatch.undo()

    def device_info(_: object, info: Any) -> None:
        info._obj.device = b"caf\xe9 " * 25 + "é".encode()[:1]

    monkeypatch.setattr(lib, "tc_device_info_get", device_info)
    assert tcpy.default_context().info()["device"] == "caf\ufffd " * 25 + "\ufffd"


def test_the_handle_stays_valid_after_close() -> None:
    context = tcpy.Context()
    context.close()
    others = [tcpy.Context() for _ in range(10)]
    assert context._handle not in {other._handle for other in others}


def test_arrays_of_a_closed_context_are_refused_not_lost() -> None:
    with tcpy.Context() as context:
        a = tcpy.empty((2, 2), context=context)
    with pytest.raises(RuntimeError):
        tcpy.gemm(a, a, context=context)
    np.testing.assert_array_equal(a, 0)


def test_trim() -> None:
    with tcpy.Context() as context:
        before = work(context)
        context.trim()
        assert work(context) == before


@pytest.mark.parametrize("copy_of", [copy.copy, copy.deepcopy, pickle.dumps])
def test_no_copies(copy_of: Callable[[Any], Any]) -> None:
    with tcpy.Context() as context, pytest.raises(TypeError, match="can't be copied or pickled"):
        copy_of(context)


# ---- Batches ---------------------------------------------------------------------------------------------------------


def test_batch() -> None:
    with tcpy.Context() as context:
        alone = work(context)
        with context.batch() as same:
            assert same is context
            inside = work(context)
            scratch = tcpy.empty((4, 4), context=context)
            tcpy.gemm(scratch, scratch, context=context)
            del scratch
            gc.collect()
        assert inside == alone
        with pytest.raises(RuntimeError) as caught, context.batch(), context.batch():
            pass
        assert caught.value.status is tcpy.Status.STATE
        with pytest.raises(KeyError), context.batch():
            raise KeyError
        assert work(context) == alone


def test_operands_live_until_the_end_of_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    with tcpy.Context() as context:
        freed: list[Any] = []
        monkeypatch.setattr(context, "_free", freed.extend)
        with context.batch():
            tcpy.gemm(A, B, context=context)
            kept = tcpy.empty((4, 4), context=context)
            tcpy.gemm(kept, A[:4, :4].copy(), context=context)
            assert not freed
        assert len(freed) == 6
        monkeypatch.undo()
        context._free(freed)


# ---- The default context ---------------------------------------------------------------------------------------------


def test_one_default_context_for_all_threads(python: Callable[..., Any]) -> None:
    script = """
import threading, time, tcpy
fast = tcpy.context.Context
def slow():
    time.sleep(0.1)
    return fast()
tcpy.context.Context = slow
barrier, seen = threading.Barrier(16), []
def use():
    barrier.wait()
    seen.append(tcpy.default_context())
threads = [threading.Thread(target=use) for _ in range(16)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(seen), len(set(map(id, seen))))
"""
    assert python("-c", script).stdout == "16 1\n"


def test_the_default_context_is_made_late_and_again_after_close(python: Callable[..., Any]) -> None:
    script = """
import os
os.environ["TC_NUM_THREADS"] = "none"
import tcpy
os.environ["TC_NUM_THREADS"] = "1"
first = tcpy.default_context()
first.close()
assert tcpy.default_context() is not first
print(tcpy.default_context().threads)
"""
    assert python("-c", script).stdout == "1\n"


# ---- Threads ---------------------------------------------------------------------------------------------------------


def test_one_context_for_many_threads(context: tcpy.Context) -> None:
    expected = work(context)
    with ThreadPoolExecutor(8) as pool:
        assert {expected} == set(pool.map(lambda _: work(context), range(80)))


def test_errors_belong_to_their_thread() -> None:
    def fail(nbytes: int) -> None:
        scratch = np.zeros(nbytes, np.uint8)
        with pytest.raises(ValueError, match=f"scratch_col holds {nbytes} bytes"):
            tcpy.conv2d_forward(X, W, scratch_col=scratch)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(fail, range(0, 800, 4)))


def test_closing_under_running_calls() -> None:
    for _ in range(30):
        context = tcpy.Context()
        ends: list[bool] = []

        def use(context: tcpy.Context = context, ends: list[bool] = ends) -> None:
            try:
                while True:
                    work(context)
            except RuntimeError as error:
                ends.append(error.status is tcpy.Status.CLOSED)

        threads = [threading.Thread(target=use) for _ in range(3)]
        for thread in threads:
            thread.start()
        time.sleep(0.005)
        context.close()
        for thread in threads:
            thread.join(30)
        assert ends == [True] * 3


# ---- Forks -----------------------------------------------------------------------------------------------------------

fork = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def assert_children_work(expected: bytes, context: tcpy.Context | None = None, rounds: int = 1) -> None:
    """On the CPU as the parent does; after a fork from one that uses a GPU, on the CPU only."""

    def child() -> None:
        if BACKEND == "cpu":
            assert work(context) == expected
            with tcpy.Context() as own:
                assert work(own) == expected
            return
        for use in (lambda: work(context), tcpy.Context):
            with pytest.raises(RuntimeError, match="forked") as caught:
                use()
            assert caught.value.status is tcpy.Status.DEVICE
        with tcpy.Context("cpu") as own:
            assert len(work(own)) == len(expected)

    for _ in range(rounds):
        process = multiprocessing.get_context("fork").Process(target=child)
        process.start()
        process.join(60)
        stuck = process.is_alive()
        process.kill()
        assert not stuck
        assert process.exitcode == 0


@fork
def test_fork_after_use(context: tcpy.Context) -> None:
    context.threads = 4
    expected = work(context)
    assert_children_work(expected, context)
    assert work(context) == expected


@fork
def test_fork_with_the_default_context() -> None:
    expected = work()
    assert_children_work(expected)
    assert work() == expected


def test_fork_before_the_default_context(python: Callable[..., Any]) -> None:
    script = """
import os, signal, warnings, tcpy
warnings.simplefilter("ignore", DeprecationWarning)
child = os.fork()
signal.alarm(60)
threads = tcpy.default_context().threads
if not child:
    os._exit(threads)
print(threads, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert python("-c", script, TC_NUM_THREADS="3").stdout == "3 3\n"


@fork
def test_fork_while_other_threads_are_inside_calls() -> None:
    with tcpy.Context(threads=2) as context:
        expected = work(context)
        stop = threading.Event()

        def use() -> None:
            while not stop.is_set():
                work(context)

        threads = [threading.Thread(target=use) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            assert_children_work(expected, context, rounds=10)
        finally:
            stop.set()
            for thread in threads:
                thread.join(30)
        assert work(context) == expected


def test_exit_with_everything_alive(python: Callable[..., Any]) -> None:
    script = """
import atexit
atexit.register(lambda: print(float(array.sum()), tcpy.gemm(array, array, context=context).sum()))
import numpy as np, tcpy
context = tcpy.Context(threads=2)
array = tcpy.empty((64, 64), context=context)
tcpy.gemm(array, array)
"""
    done = python("-X", "dev", "-c", script)
    assert (done.stdout, done.stderr, done.returncode) == ("0.0 0.0\n", "", 0)
