"""fp16 GEMM and 2-D convolution, with both gradients, on the CPU: the Python face of libtc.

Examples
--------
>>> import numpy as np, tcpy
>>> x = np.ones((1, 3, 8, 8), np.float16)
>>> weight = np.ones((4, 3, 3, 3), np.float16)
>>> y = tcpy.conv2d_forward(x, weight, padding=1)
>>> y.shape, float(y.max())
((1, 4, 8, 8), 27.0)
"""

from ._abi import Status
from ._load import lib as _lib
from ._load import text as _text
from .buffer import Buffer, empty
from .context import Context, ContextInfo, default_context
from .errors import TcError
from .ops import (
    conv2d_backward_input,
    conv2d_backward_weight,
    conv2d_forward,
    conv2d_out_dim,
    conv2d_scratch_col_bytes,
    conv2d_scratch_dx_bytes,
    gemm,
)

__version__: str = _text(_lib.tc_version())

__all__ = [
    "Buffer",
    "Context",
    "ContextInfo",
    "Status",
    "TcError",
    "conv2d_backward_input",
    "conv2d_backward_weight",
    "conv2d_forward",
    "conv2d_out_dim",
    "conv2d_scratch_col_bytes",
    "conv2d_scratch_dx_bytes",
    "default_context",
    "empty",
    "gemm",
]
