"""Contexts for every ISA of the machine, or on the GPU that TC_BACKEND names."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import tcpy

ROOT = Path(__file__).parents[2]

with tcpy.Context() as _best:
    _info = _best.info()
BACKEND, ISAS = _info["backend"], _info["isas"] or [""]

cpu_only = pytest.mark.skipif(BACKEND != "cpu", reason=f"is about the CPU's kernels, and this is {BACKEND}")
# On other systems than macOS the library's Metal is the simulator of tests/metalsim.
SIMULATED = BACKEND == "metal" and sys.platform != "darwin"

not_simulated = pytest.mark.skipif(
    SIMULATED,
    reason="measures speed or moves the library, and this is the simulator: slow, and found beside the library",
)
any_memory = pytest.mark.skipif(BACKEND == "metal", reason="wraps parts of pages, and Metal shares whole ones only")


@pytest.fixture(params=ISAS)
def context(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[tcpy.Context]:
    """A context on each ISA in turn."""
    monkeypatch.setenv("TC_CPU_ISA", request.param)
    with tcpy.Context() as made:
        assert made.info()["isa"] == request.param
        yield made


@pytest.fixture
def python(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run Python on this checkout in a fresh process, in an empty folder."""

    def run(*arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
        kept = ("TC_LIBRARY", "TC_BACKEND")
        environment = {name: value for name, value in os.environ.items() if name in kept or not name.startswith("TC_")}
        environment |= {"PYTHONPATH": str(ROOT), **variables}
        command = [sys.executable, *map(str, arguments)]
        return subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300)

    return run
