"""Every public name is documented: sections, examples, and a place in the README."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from subprocess import CompletedProcess
from typing import Any

import pytest
from conftest import ROOT

import tcpy


def public() -> Iterator[tuple[str, Any]]:
    for name in tcpy.__all__:
        yield name, getattr(tcpy, name)
    for owner in (tcpy.Buffer, tcpy.Context):
        for name, member in vars(owner).items():
            if not name.startswith("_"):
                function = member.__func__ if isinstance(member, classmethod) else member
                yield f"{owner.__name__}.{name}", function


PUBLIC = dict(public())


@pytest.mark.parametrize("name", PUBLIC)
def test_docstring(name: str) -> None:
    thing = PUBLIC[name]
    text = inspect.getdoc(thing) or ""
    assert text, "no docstring"
    if isinstance(thing, property):
        return
    assert "Examples\n--------\n>>> " in text
    if inspect.isfunction(thing):
        signature = inspect.signature(thing)
        parameters = [parameter for parameter in signature.parameters if parameter not in ("self", "cls")]
        if parameters:
            assert "Parameters\n----------\n" in text
            described = text.split("Parameters\n----------\n")[1].split("\n\n")[0]
            named = re.findall(r"^(\w+(?:, \w+)*)(?: : |$)", described, flags=re.M)
            assert ", ".join(named).split(", ") == parameters
        if signature.return_annotation not in ("None", "Iterator[Context]"):
            assert "Returns\n-------\n" in text


def test_what_can_fail_says_how() -> None:
    never_fail = {"Buffer.close", "Context.close"}
    for name, thing in PUBLIC.items():
        if (inspect.isfunction(thing) or thing in (tcpy.Buffer, tcpy.Context)) and name not in never_fail:
            assert "Raises\n------\n" in (inspect.getdoc(thing) or ""), name


def test_readme_names_every_public_name() -> None:
    readme = (ROOT / "README.md").read_text()
    assert not [name for name in tcpy.__all__ if not re.search(rf"\b{name}\b", readme)]


def test_readme_example(python: Callable[..., CompletedProcess[str]]) -> None:
    readme = (ROOT / "README.md").read_text()
    block = re.search(r"<!-- example: python -->\n```python\n(.*?)```", readme, flags=re.S)
    assert block
    done = python("-W", "error", "-c", block[1])
    assert (done.stdout, done.stderr) == (block[1].split("  # ")[1], "")


def test_all_is_all() -> None:
    found = {name for name, thing in vars(tcpy).items() if not name.startswith("_") and not inspect.ismodule(thing)}
    assert found == set(tcpy.__all__)
    assert tcpy.__all__ == sorted(tcpy.__all__)
