"""Contexts for every ISA of the machine."""

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
    ISAS = _best.info()["isas"] or [""]


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
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TC_")}
        if "TC_LIBRARY" in os.environ:
            environment["TC_LIBRARY"] = os.environ["TC_LIBRARY"]
        environment |= {"PYTHONPATH": str(ROOT), **variables}
        command = [sys.executable, *map(str, arguments)]
        return subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300)

    return run
