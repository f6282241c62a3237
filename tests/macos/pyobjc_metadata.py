# SPDX-License-Identifier: MIT
"""What PyObjC's metadata, which are made from Apple's SDK, say of Metal and Foundation. They are read, not run."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from api import Api, Signature


@dataclass(frozen=True)
class Metadata:
    constants: dict[str, int]
    variables: set[str]
    structs: dict[str, str]  # to the encoding
    functions: dict[str, str]  # to the encodings of result and parameters
    methods: dict[
        str, list[dict[int, str]]
    ]  # by selector: for each owner, the encodings it tells, by number; -1 is the result

    def __or__(self, other: "Metadata") -> "Metadata":
        return Metadata(**{name: mine | getattr(other, name) for name, mine in vars(self).items()})


# ---- Reading -------------------------------------------------------------------------------------
def read(path: Path) -> Metadata:
    tree = ast.parse(path.read_text())
    texts = dict(assigned_texts(tree))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    registered = [literals(call) for call in calls if isinstance(call.func, ast.Name) and call.func.id == "r"]
    selectors = {selector for selector, _ in registered}
    return Metadata(
        constants={name: int(value) for name, value in re.findall(r"\$(\w+)@(-?\d+)(?=\$)", texts["enums"])},
        variables=set(re.findall(r"\$(\w+)(?=[$@])", texts["constants"])),
        structs=dict(structs(calls)),
        functions=dict(functions(tree)),
        methods={selector: [encodings(d) for s, d in registered if s == selector] for selector in selectors},
    )


def assigned_texts(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in tree.body:
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and isinstance(node.value, ast.Constant)
        ):
            yield node.targets[0].id, str(node.value.value)


def literals(call: ast.Call) -> tuple[str, dict[str, Any]]:
    """The selector, and what is told of it."""
    return ast.literal_eval(call.args[1]).decode(), ast.literal_eval(call.args[2])


def encodings(details: dict[str, Any]) -> dict[int, str]:
    """Arguments 0 and 1 are the object and the selector."""
    parts = {-1: details.get("retval", {})} | {n - 2: part for n, part in details.get("arguments", {}).items()}
    return {n: text(part["type"]) for n, part in parts.items() if "type" in part}


def text(encoding: str | bytes) -> str:
    return encoding.decode() if isinstance(encoding, bytes) else encoding


def structs(calls: list[ast.Call]) -> Iterator[tuple[str, str]]:
    for call in calls:
        if isinstance(call.func, ast.Attribute) and call.func.attr == "createStructType":
            name, encoding = (ast.literal_eval(argument) for argument in call.args[:2])
            yield name.split(".")[1], text(encoding)


def functions(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "functions":
            for name, value in ast.literal_eval(node.value).items():
                yield name, text(value[0])


# ---- Comparing -----------------------------------------------------------------------------------
SIMPLE = {
    "BOOL": "Z",
    "CFTimeInterval": "d",
    "NSError**": "^@",
    "NSInteger": "q",
    "NSUInteger": "Q",
    "id": "@",
    "uint64_t": "Q",
    "void": "v",
    "void*": "^v",
    "char*": "^t",
    "dispatch_data_t": "@",
}


def encoded(ours: Api, type_: str) -> str:
    """The runtime's encoding of a plain type."""
    if type_ in ours.structs:
        return "{" + type_ + "=" + "".join(encoded(ours, field.split()[0]) for field in ours.structs[type_]) + "}"
    if "(^" in type_:
        return "@?"
    simple = SIMPLE.get(ours.enumerations.get(type_, type_))
    return simple or ("@" if type_.endswith("*") else type_)


def differences(ours: Api, theirs: Metadata) -> Iterator[str]:
    """A sentence for everything of ours that PyObjC tells otherwise; it doesn't tell of everything."""
    for name, value in ours.constants.items():
        if theirs.constants.get(name) != value:
            yield f"{name} is {theirs.constants.get(name)}, not {value}"
    for name in ours.variables - theirs.variables:
        yield f"{name} isn't there"
    for name in ours.structs.keys() & theirs.structs.keys():
        if encoded(ours, name).split("=")[1] != theirs.structs[name].split("=")[1]:
            yield f"{name} is {theirs.structs[name]}, not {encoded(ours, name)}"
    for name, signature in ours.functions.items():
        mine = encoded(ours, signature.result) + "".join(encoded(ours, p) for p in signature.parameters)
        if theirs.functions.get(name) != mine:
            yield f"{name} is {theirs.functions.get(name)}, not {mine}"
    for (owner, selector), signatures in ours.methods.items():
        encodings_ = [encoded_signature(ours, signature) for signature in signatures]
        told = theirs.methods.get(selector[1:], [])
        if told and not any(one.items() <= mine.items() for one in told for mine in encodings_):
            yield f"{selector[0]}[{owner} {selector[1:]}] is {told}, not {encodings_}"


def encoded_signature(ours: Api, signature: Signature) -> dict[int, str]:
    return {n: encoded(ours, type_) for n, type_ in enumerate((signature.result, *signature.parameters), -1)}
