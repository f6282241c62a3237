"""tcpy/_abi.py against the header: as a C compiler reads it, and prototype by prototype."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
from enum import IntEnum
from pathlib import Path

import pytest
from conftest import ROOT

from tcpy import _abi
from tcpy._load import lib

HEADER = ROOT / "include" / "tc" / "tc.h"

ENUMS: dict[str, tuple[str, type[IntEnum]]] = {
    "tc_backend_t": ("TC_BACKEND_", _abi.Backend),
    "tc_dtype_t": ("TC_DTYPE_", _abi.Dtype),
    "tc_layout_t": ("TC_LAYOUT_", _abi.Layout),
    "tc_activation_t": ("TC_ACTIVATION_", _abi.Activation),
    "tc_math_mode_t": ("TC_MATH_", _abi.MathMode),
    "tc_status_t": ("TC_ERROR_", _abi.Status),
}
STRUCTS: dict[str, type[ctypes.Structure]] = {
    "tc_device_info": _abi.DeviceInfo,
    "tc_gemm_desc": _abi.GemmDesc,
    "tc_gemm_batched_desc": _abi.GemmBatchedDesc,
    "tc_conv2d_desc": _abi.Conv2dDesc,
}
SCALARS = {
    "int32_t": ctypes.c_int32,
    "int64_t": ctypes.c_int64,
    "size_t": ctypes.c_size_t,
    "uint16_t": ctypes.c_uint16,
    "float": ctypes.c_float,
    "void": None,
    "const char *": ctypes.c_char_p,
    **dict.fromkeys(ENUMS, ctypes.c_int),
}


def header() -> str:
    """The header's declarations: no comments, no preprocessor lines, single spaces."""
    text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.S)
    return re.sub(r"\s+", " ", re.sub(r"^#(.*\\\n)*.*$", "", text, flags=re.M))


def enumerators() -> list[str]:
    bodies = re.findall(r"typedef enum \w+ \{(.*?)\}", header())
    return [name for body in bodies for name in re.findall(r"(TC_\w+) =", body)]


def fields(structure: type[ctypes.Structure]) -> dict[str, type]:
    inherited = structure.__base__
    base = fields(inherited) if inherited is not ctypes.Structure else {}
    return base | {field[0]: field[1] for field in structure._fields_}


def struct_fields(name: str) -> list[str]:
    body = re.search(rf"typedef struct {name} \{{(.*?)\}} {name};", header())
    assert body
    declarations = [re.sub(r"\[\d+\]", "", text).strip() for text in body[1].split(";")[:-1]]
    return [part.split()[-1] for text in declarations for part in text.split(",")]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """Numbers that a C program reads out of the header."""
    expressions = [*enumerators(), "TC_API_VERSION"]
    for name in STRUCTS:
        expressions.append(f"sizeof({name})")
        for field in struct_fields(name):
            expressions += [f"offsetof({name}, {field})", f"sizeof((({name} *)0)->{field})"]
    lines = [f'  printf("%s=%lld\\n", "{text}", (long long){text});' for text in expressions]
    folder = tmp_path_factory.mktemp("abi")
    source = folder / "dump.c"
    source.write_text("#include <stdio.h>\n#include <tc/tc.h>\nint main(void) {\n" + "\n".join(lines) + "\n}\n")
    compiler = os.environ.get("CC") or shutil.which("cc") or "gcc"
    subprocess.run([*compiler.split(), "-I", HEADER.parents[1], source, "-o", folder / "dump"], check=True)
    output = subprocess.run([folder / "dump"], check=True, capture_output=True, text=True).stdout
    pairs = (line.rsplit("=", 1) for line in output.splitlines())
    return {text: int(number) for text, number in pairs}


def test_enums(compiled: dict[str, int]) -> None:
    mirrored = {f"{prefix}{item.name}": item.value for prefix, enum in ENUMS.values() for item in enum}
    mirrored["TC_OK"] = mirrored.pop("TC_ERROR_OK")
    assert mirrored == {name: compiled[name] for name in enumerators()}


def test_api_version(compiled: dict[str, int]) -> None:
    assert compiled["TC_API_VERSION"] == _abi.API_VERSION == lib.tc_api_version()


@pytest.mark.parametrize("name", STRUCTS)
def test_structs(compiled: dict[str, int], name: str) -> None:
    structure = STRUCTS[name]
    assert list(fields(structure)) == struct_fields(name)
    assert ctypes.sizeof(structure) == compiled[f"sizeof({name})"]
    for field, kind in fields(structure).items():
        assert getattr(structure, field).offset == compiled[f"offsetof({name}, {field})"], field
        assert ctypes.sizeof(kind) == compiled[f"sizeof((({name} *)0)->{field})"], field


def test_every_struct_and_enum_is_mirrored() -> None:
    assert set(re.findall(r"typedef struct (\w+) \{", header())) == set(STRUCTS)
    assert set(re.findall(r"typedef enum (\w+) \{", header())) == set(ENUMS)


def mirror(declaration: str) -> object:
    """The ctypes type for a parameter's declaration."""
    kind, stars = re.sub(r"\w+$", "", declaration.strip()).strip(), declaration.count("*")
    bare = kind.replace("const", "").replace("*", "").strip()
    if stars == 0:
        return SCALARS[bare]
    if bare in STRUCTS:
        return ctypes.POINTER(STRUCTS[bare])
    if stars == 2:
        return ctypes.POINTER(ctypes.c_void_p)
    return ctypes.POINTER(ctypes.c_int64) if bare == "int64_t" else ctypes.c_void_p


def prototypes() -> dict[str, tuple[object, list[object]]]:
    found = re.findall(r"TC_API ([^;(]*?)(tc_\w+)\((.*?)\);", header())
    return {
        name: (SCALARS[result.strip()], [] if given == "void" else [mirror(text) for text in given.split(",")])
        for result, name, given in found
    }


def test_signatures() -> None:
    mirrored = {name: (result.ctype, given) for name, (result, given) in _abi.SIGNATURES.items()}
    assert mirrored == prototypes()
    assert len(mirrored) == header().count("TC_API ")


def test_functions_that_can_fail_raise() -> None:
    failing = {name for name, (result, _) in _abi.SIGNATURES.items() if result.is_status or result.failure}
    statuses = set(re.findall(r"TC_API tc_status_t (tc_\w+)", header()))
    assert failing == statuses | {
        "tc_conv2d_out_dim",
        "tc_conv2d_scratch_col_bytes",
        "tc_conv2d_scratch_dx_bytes",
    }


def test_header_is_the_one_of_this_checkout() -> None:
    assert Path(_abi.__file__).parents[1] == ROOT
