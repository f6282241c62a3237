# SPDX-License-Identifier: MIT
"""Every selector, type and value that the simulator's Metal.h and our Foundation.h declare, against Apple's.

There are two accounts of Apple's. libtc/metal compiles against our headers without a warning (test_mach_o.py), so it
uses nothing that isn't compared.
"""

import shutil
import sys
from pathlib import Path

import metal_cpp
import pyobjc_metadata as pyobjc
import pytest
from api import Api, differences
from download import unpacked_wheel
from ours import declared
from project import ROOT
from target import Target, metal_headers

pytestmark = pytest.mark.skipif(sys.platform == "darwin", reason="Apple's own headers are here: the build is the test")

METAL_H = ROOT / "tests/metalsim/framework/include/Metal/Metal.h"

# What metal-cpp leaves out; PyObjC has it.
NOT_IN_METAL_CPP = {
    "+[NSString stringWithUTF8String:] is nothing, not id(char*)",
    "-[NSString initWithBytes:length:encoding:] is nothing, not id(void*, NSUInteger, NSStringEncoding)",
    "MTLCommandBufferErrorDomain isn't there",
    "MTLLibraryErrorDomain isn't there",
}

# PyObjC knows the methods of protocols without the protocols: its status is MTLIOCommandBuffer's.
NOT_IN_PYOBJC = {"-[MTLCommandBuffer status] is [{-1: 'q'}], not [{-1: 'Q'}]"}


@pytest.fixture(scope="module")
def apples(downloads: Path) -> Api:
    return metal_cpp.read(unpacked_wheel("mlx-metal", downloads) / "mlx/include/metal_cpp")


@pytest.fixture(scope="module")
def metadata(downloads: Path) -> pyobjc.Metadata:
    metal, cocoa = (unpacked_wheel(f"pyobjc-framework-{name}", downloads) for name in ("Metal", "Cocoa"))
    return pyobjc.read(metal / "Metal/_metadata.py") | pyobjc.read(cocoa / "Foundation/_metadata.py")


def ours(target: Target, folder: Path, header: Path = METAL_H, prefixes: str = "MTL|NS") -> Api:
    """What a file that imports our headers and this Metal.h sees under these names."""
    framework = folder / "framework"
    (framework / "Metal").mkdir(parents=True)
    shutil.copy(header, framework / "Metal/Metal.h")
    source = folder / "import.m"
    source.write_text("#import <MetalPerformanceShaders/MetalPerformanceShaders.h>\n")
    return declared(target.syntax_tree(source, metal_headers(folder / "include", framework)), prefixes)


# ---- As they are ---------------------------------------------------------------------------------
def test_agrees_with_metal_cpp(target: Target, apples: Api, tmp_path: Path) -> None:
    found = ours(target, tmp_path)
    assert {("MTLDevice", "-newCommandQueue"), ("NSError", "-code")} <= found.methods.keys()
    assert set(differences(found, apples)) == NOT_IN_METAL_CPP


def test_agrees_with_pyobjc(target: Target, metadata: pyobjc.Metadata, tmp_path: Path) -> None:
    found = ours(target, tmp_path)
    assert set(pyobjc.differences(found, metadata)) == NOT_IN_PYOBJC
    told = [method for method in found.methods if method[1][1:] in metadata.methods]
    assert len(told) > len(found.methods) / 2
    assert {"stringWithUTF8String:", "initWithBytes:length:encoding:"} <= metadata.methods.keys()


def test_performance_shaders(target: Target, downloads: Path, tmp_path: Path) -> None:
    """What bench_mps.m needs. PyObjC names selectors only where there is something to say about them."""
    path = (
        unpacked_wheel("pyobjc-framework-MetalPerformanceShaders", downloads) / "MetalPerformanceShaders/_metadata.py"
    )
    found = ours(target, tmp_path, prefixes="MPS")
    assert found.constants.keys() == {"MPSDataTypeFloatBit", "MPSDataTypeFloat16"}
    assert list(pyobjc.differences(found, pyobjc.read(path))) == []
    names = path.read_text().replace("_", ":")
    assert [selector for _, selector in found.methods if ":" in selector and selector[1:] not in names] == [
        "-encodeToCommandBuffer:leftMatrix:rightMatrix:resultMatrix:"
    ]


# ---- Each with a fault ---------------------------------------------------------------------------
# A change to Metal.h, and whether metal-cpp and PyObjC tell that it is wrong.
FAULTS = {
    "a selector's part": (
        "newBufferWithLength:(NSUInteger)length options:",
        "newBufferWithLength:(NSUInteger)length option:",
        1,
        0,
    ),
    "a parameter's type": ("setBufferOffset:(NSUInteger)", "setBufferOffset:(int)", 1, 1),
    "a result's type": ("(BOOL)supportsFamily:", "(NSInteger)supportsFamily:", 1, 1),
    "a property's type": ("BOOL hasUnifiedMemory", "NSUInteger hasUnifiedMemory", 1, 1),
    "a getter's name": ("getter=isLowPower", "getter=lowPower", 1, 0),
    "an object's class": ("- (id<MTLSharedEvent>)newSharedEvent", "- (id<MTLEvent>)newSharedEvent", 1, 0),
    "a value": ("MTLGPUFamilyApple7 = 1007", "MTLGPUFamilyApple7 = 1006", 1, 1),
    "a shifted value": ("MTLResourceStorageModePrivate = 2 << 4", "MTLResourceStorageModePrivate = 2 << 5", 1, 1),
    "a constant's name": ("MTLCommandBufferStatusError", "MTLCommandBufferStatusFailed", 1, 1),
    "an enumeration's type": ("typedef NSInteger MTLGPUFamily", "typedef NSUInteger MTLGPUFamily", 1, 1),
    "the order of fields": ("NSUInteger width, height, depth;", "NSUInteger depth, height, width;", 1, 0),
    "a field's type": ("NSUInteger width, height, depth;", "unsigned width, height, depth;", 1, 1),
    "a function's name": ("MTLCopyAllDevices", "MTLGetAllDevices", 1, 1),
    "a variable's name": ("MTLLibraryErrorDomain", "MTLLibraryErrorsDomain", 1, 1),
    "a class for a protocol": ("@protocol MTLFunction <NSObject>", "@interface MTLFunction : NSObject", 1, 0),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_finds_a_fault(target: Target, apples: Api, metadata: pyobjc.Metadata, tmp_path: Path, fault: str) -> None:
    right, wrong, *told = FAULTS[fault]
    text = METAL_H.read_text()
    assert right in text
    header = tmp_path / "Metal.h"
    header.write_text(text.replace(right, wrong))
    found = ours(target, tmp_path / "tree", header)
    counts = (
        set(differences(found, apples)) - NOT_IN_METAL_CPP,
        set(pyobjc.differences(found, metadata)) - NOT_IN_PYOBJC,
    )
    assert [bool(sentences) for sentences in counts] == [bool(n) for n in told], counts
