"""The libraries to compare with. Each one is optional: what can't be imported is named as absent."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from .._selftest import environment
from .problems import Array, Call, Operands
from .suites import Case, Conv


@dataclass(frozen=True)
class Variant:
    """A peer with its tensors in one memory layout."""

    peer: str
    layout: str
    runtime: str  # whose threads run it
    prepare: Callable[[Case, str, Operands], Call]  # conversions of operands are done here, outside of the timed call
    to_numpy: Callable[[Case, Any], Array]  # a call's result, in this library's axis order

    @property
    def name(self) -> str:
        return f"{self.peer} {self.layout}".rstrip()


@dataclass(frozen=True)
class Peer:
    name: str
    about: str
    conv: list[Variant]
    gemm: list[Variant]

    def variants(self, case: Case) -> list[Variant]:
        return self.conv if isinstance(case, Conv) else self.gemm


# ---- PyTorch ---------------------------------------------------------------------------------------------------------


def _torch_conv(torch: Any, dtype: Any, layout: Any, case: Conv, op: str, data: Operands) -> Call:
    """The call that autograd makes for the direction.

    Forward and dx work on tensors that are `dtype` all along. For dw the tensors are float16, as in training with
    them, and whoever takes another dtype pays for the casts.
    """
    half = {name: torch.from_numpy(array).contiguous(memory_format=layout) for name, array in data.items()}
    x, weight, dy = (half[name].to(dtype) for name in ("x", "weight", "y"))
    stride, padding = [case.stride] * 2, [case.padding] * 2
    backward = torch.ops.aten.convolution_backward

    def gradient(x: Any, dy: Any, which: int) -> Any:
        wanted = [index == which for index in range(3)]
        how = (None, stride, padding, [1, 1], False, [0, 0], case.groups, wanted)
        return backward(dy, x, weight, *how)[which]

    calls: dict[str, Call] = {
        "forward": lambda: torch.nn.functional.conv2d(x, weight, None, stride, padding, 1, case.groups),
        "dx": lambda: gradient(x, dy, 0),
        "dw": lambda: gradient(half["x"].to(dtype), half["y"].to(dtype), 1).to(torch.float16),
    }
    return calls[op]


def _torch_gemm(torch: Any, dtype: Any, case: Any, op: str, data: Operands) -> Call:
    a, b = (torch.from_numpy(data[name]).to(dtype) for name in ("a", "b"))
    a, b = (a.mT if case.transpose_a else a), (b.mT if case.transpose_b else b)
    return lambda: torch.matmul(a, b)


def _torch_numpy(case: Case, result: Any) -> Array:
    array: Array = result.float().numpy()
    return array


def _torch_peer(dtype_name: str, name: str, threads: int) -> Peer:
    torch: Any = importlib.import_module("torch")
    torch.set_num_threads(threads)
    dtype = getattr(torch, dtype_name)
    layouts = {"nchw": torch.contiguous_format, "channels_last": torch.channels_last}
    conv = [
        Variant(name, layout, "torch", partial(_torch_conv, torch, dtype, memory_format), _torch_numpy)
        for layout, memory_format in layouts.items()
    ]
    gemm = [Variant(name, "", "torch", partial(_torch_gemm, torch, dtype), _torch_numpy)]
    about = f"PyTorch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}, {torch.get_num_threads()} threads"
    about += "; " + ", ".join(layouts) + ("" if dtype is torch.float16 else "; dw casts from float16 and back")
    return Peer(name, about, conv, gemm)


# ---- MLX: channels last, and nothing is computed before it is asked for ----------------------------------------------


def _mlx_conv(mx: Any, case: Conv, op: str, data: Operands) -> Call:
    x, weight, dy = (mx.array(np.moveaxis(data[name], 1, -1)) for name in ("x", "weight", "y"))

    def conv(x: Any, weight: Any) -> Any:
        return mx.conv2d(x, weight, case.stride, case.padding, 1, case.groups)

    def gradient(function: Callable[[Any], Any], at: Any) -> Any:
        return mx.vjp(function, [at], [dy])[1][0]

    graphs: dict[str, Call] = {
        "forward": lambda: conv(x, weight),
        "dx": lambda: gradient(lambda x: conv(x, weight), x),
        "dw": lambda: gradient(lambda weight: conv(x, weight), weight),
    }
    return _mlx_evaluated(mx, graphs[op], x, weight, dy)


def _mlx_gemm(mx: Any, case: Any, op: str, data: Operands) -> Call:
    a, b = mx.array(data["a"]), mx.array(data["b"])
    left, right = (a.swapaxes(-1, -2) if case.transpose_a else a), (b.swapaxes(-1, -2) if case.transpose_b else b)
    return _mlx_evaluated(mx, lambda: left @ right, a, b)


def _mlx_evaluated(mx: Any, graph: Call, *inputs: Any) -> Call:
    mx.eval(*inputs)

    def call() -> Any:
        result = graph()
        mx.eval(result)
        return result

    return call


def _mlx_numpy(case: Case, result: Any) -> Array:
    array = np.array(result)
    return np.moveaxis(array, -1, 1) if isinstance(case, Conv) else array


def _mlx_peer(name: str, threads: int) -> Peer:
    mx: Any = importlib.import_module("mlx.core")
    conv = [Variant(name, "channels_last", "mlx", partial(_mlx_conv, mx), _mlx_numpy)]
    gemm = [Variant(name, "", "mlx", partial(_mlx_gemm, mx), _mlx_numpy)]
    return Peer(name, f"MLX {mx.__version__}, {mx.default_device()}, its own threads; channels_last", conv, gemm)


# Variables that hold PyTorch's libraries to the instructions of an ISA. They must be set before it is imported.
HELD: dict[str, dict[str, str]] = {
    "generic": {"ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2", "ATEN_CPU_CAPABILITY": "default"},
    "avx2": {"ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"},
    "avx512": {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_FP16", "MKL_ENABLE_INSTRUCTIONS": "AVX512"},
}


def hold_peers(isa: str) -> ExitStack:
    """Hold the peers to the instructions of our kernels as long as the result is open; what the user set stays."""
    held = ExitStack()
    for name, value in HELD.get(isa, {}).items():
        held.enter_context(environment(name, os.environ.get(name, value)))
    return held


# ---- Finding them ----------------------------------------------------------------------------------------------------

PEERS: dict[str, tuple[str, Callable[[str, int], Peer]]] = {
    "torch-fp16": ("torch", partial(_torch_peer, "float16")),
    "torch-bf16": ("torch", partial(_torch_peer, "bfloat16")),
    "torch-fp32": ("torch", partial(_torch_peer, "float32")),
    "mlx-fp16": ("mlx", _mlx_peer),
}


def load_peers(names: Iterable[str], threads: int) -> tuple[list[Peer], dict[str, str]]:
    """The peers that are here, and why the others are not."""
    found: list[Peer] = []
    absent: dict[str, str] = {}
    for name in names:
        package, make = PEERS[name]
        try:
            found.append(make(name, threads))
        except ModuleNotFoundError:
            absent[name] = f"not installed (pip install {package})"
        except ImportError as error:
            absent[name] = f"can't be imported: {error}"
    return found, absent
