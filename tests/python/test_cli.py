"""python -m tcpy."""

from __future__ import annotations

import json
from collections.abc import Callable
from subprocess import CompletedProcess
from typing import Any

import numpy as np
import pytest
from conftest import BACKEND, ISAS, cpu_only

import tcpy
from tcpy import __main__ as main
from tcpy import _selftest, ops

Python = Callable[..., "CompletedProcess[str]"]


def test_info(python: Python) -> None:
    done = python("-m", "tcpy", "info")
    info = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    assert set(info) == {"version", "api_version", "library", *tcpy.ContextInfo.__annotations__}
    assert (info["version"], info["api_version"]) == (tcpy.__version__, 1)
    assert (info["backend"], info["isas"] or [""]) == (BACKEND, ISAS)


@cpu_only
@pytest.mark.parametrize("isa", ISAS)
def test_info_tells_why(python: Python, isa: str) -> None:
    info = json.loads(python("-m", "tcpy", "info", TC_CPU_ISA=isa, TC_NUM_THREADS="3").stdout)
    assert (info["isa"], info["isa_reason"], info["threads"]) == (isa, f"TC_CPU_ISA={isa}", 3)


def test_selftest(python: Python) -> None:
    done = python("-m", "tcpy", "selftest")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    for isa in ISAS:
        assert sum(line.startswith(f"{BACKEND} {isa}: ".replace(" :", ":")) for line in lines) == 1
    for operation in (
        "gemm ",
        "gemm transposed, f32",
        "gemm_batched",
        "conv2d_forward",
        "conv2d_backward_input",
        "conv2d_backward_weight f16",
        "conv2d_backward_weight f32",
    ):
        assert sum(line.startswith(operation) for line in lines) % len(ISAS) == 0
        assert any(line.startswith(operation) for line in lines)
    assert lines[-1] == f"{len(lines) - 1 - 3 * len(ISAS)} within bounds, 0 wrong"


@cpu_only
def test_selftest_of_one_isa(python: Python) -> None:
    done = python("-m", "tcpy", "selftest", TC_CPU_ISA="generic")
    assert done.returncode == 0
    assert [line for line in done.stdout.splitlines() if line.startswith("cpu ")] == [
        line for line in done.stdout.splitlines() if line.startswith("cpu generic: ")
    ]


def test_selftest_fails_where_a_result_is_wrong(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right = ops.conv2d_backward_input

    def wrong(*arguments: Any, **options: Any) -> Any:
        dx = right(*arguments, **options)
        dx[0, 0, 0, 0] = np.nextafter(dx[0, 0, 0, 0] + np.float16(0.01), np.float16(9))
        return dx

    monkeypatch.setattr(ops, "conv2d_backward_input", wrong)
    assert main.main(["selftest"]) == 1
    output = capsys.readouterr().out.splitlines()
    marked = {line.split()[0] for line in output if line.endswith("WRONG")}
    assert marked == {"conv2d_backward_input"}
    assert output[-1].endswith(f"{len(_selftest.CONVS) * len(ISAS)} wrong")


WRONG_ENVIRONMENT = ["TC_BACKEND=gpu", "TC_BACKEND=\udcff", "TC_NUM_THREADS=x", "TC_VERBOSE=9"]
if BACKEND == "cpu":
    WRONG_ENVIRONMENT.append("TC_CPU_ISA=sse9")
try:
    tcpy.Context("metal").close()
except NotImplementedError:
    WRONG_ENVIRONMENT.append("TC_BACKEND=metal")


@pytest.mark.parametrize("command", ["info", "selftest"])
@pytest.mark.parametrize("variable", WRONG_ENVIRONMENT)
def test_wrong_environment_is_one_line_and_status_2(python: Python, command: str, variable: str) -> None:
    name, value = variable.split("=")
    done = python("-m", "tcpy", command, **{name: value})
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("tcpy: ")
    assert value.replace("\udcff", "\ufffd") in done.stderr


@pytest.mark.parametrize("arguments", [[], ["benchmark"], ["info", "more"]])
def test_wrong_commands(python: Python, arguments: list[str]) -> None:
    done = python("-m", "tcpy", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage: python -m tcpy")


def test_help(python: Python) -> None:
    done = python("-m", "tcpy", "--help")
    assert done.returncode == 0
    assert all(command in done.stdout for command in ("info", "selftest"))
    assert python("-m", "tcpy", "--version").stdout == f"{tcpy.__version__}\n"
