#!/usr/bin/env python3
"""Makes tests/fixtures/int8/llm-int8-threshold-*: in an environment with torch, bitsandbytes and safetensors. What bitsandbytes makes of inputs with outliers, and the
products of that in float64.

Usage: int8.py"""
import pathlib

import bitsandbytes.functional as F
import torch
from safetensors.torch import save_file

folder = pathlib.Path(__file__).resolve().parents[1] / 'fixtures' / 'int8'
generator = torch.Generator().manual_seed(11)
W = torch.randn(80, 64, generator=generator) * 0.05
X = torch.randn(24, 64, generator=generator)
X[:, [5, 41]] *= 18
codes, scale, _ = F.int8_vectorwise_quant(W.half())
weights = codes.double() * scale.double()[:, None] / 127
for threshold in (0, 2, 6):
    x_codes, x_scale, columns = F.int8_vectorwise_quant(X.half(), threshold=float(threshold))
    multiplied = x_codes.double() * x_scale.double()[:, None] / 127
    if threshold:
        multiplied[:, columns] = X[:, columns].double()
    product = multiplied @ weights.t()
    theirs, _ = torch.ops.bitsandbytes.int8_mixed_scaled_mm(X, x_codes, codes, x_scale, scale, columns, None)
    error = ((theirs - product).norm() / product.norm()).item()
    assert error < 3e-5, error  # it multiplies by 6.200124e-05, which is 1 / 127² but for 1.8e-5
    save_file({'W': W, 'X': X, 'x_codes': x_codes, 'x_scale': x_scale, 'Y': product.float()}, folder / f'llm-int8-threshold-{threshold}.safetensors')
    print(f'threshold {threshold}: {0 if columns is None else len(columns)} columns of outliers; bitsandbytes is {error:.1e} from the product in float64')
