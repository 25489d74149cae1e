#!/usr/bin/env python3
"""Makes tests/unit/data/quant_goldens.bin: random blocks of every tensor type and the floats that
the reference implementation (the `gguf` package of llama.cpp) dequantizes them to.

    pip install gguf numpy
    python3 tools/make_quant_goldens.py tests/unit/data/quant_goldens.bin

The bits of a block are random; its half-precision scales go through ordinary, tiny, subnormal,
zero, largest and negative values, and MXFP4's exponents from the smallest to the largest. A scale that is not finite is left out, because NaN payloads
are nobody's contract. The file is little endian:

    magic "RQG1" | entries, each:  type u32 | values u32 | bytes u32 | blocks | values as float32
"""

import struct
import sys

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType as T
from gguf.quants import dequantize

# Where each block keeps its half-precision scales.
SCALES_AT = {
    T.Q4_0: (0,), T.Q4_1: (0, 2), T.Q5_0: (0,), T.Q5_1: (0, 2), T.Q8_0: (0,),
    T.Q2_K: (80, 82), T.Q3_K: (108,), T.Q4_K: (0, 2), T.Q5_K: (0, 2), T.Q6_K: (208,),
    T.IQ4_NL: (0,), T.MXFP4: (),
}  # fmt: skip

EXTREMES = np.array(
    [1.0, -1.0, 0.0, -0.0, 65504.0, -65504.0, 6.103515625e-05, 5.960464477539063e-08,
     -5.960464477539063e-08, 0.33325195, -0.0123, 1000.5],
    dtype=np.float16,
)  # fmt: skip


def make_blocks(rng, kind, n_blocks):
    size = GGML_QUANT_SIZES[kind][1]
    blocks = rng.integers(0, 256, (n_blocks, size), dtype=np.uint8)
    for nth, at in enumerate(SCALES_AT[kind]):
        scales = np.roll(np.resize(EXTREMES, n_blocks), 5 * nth)
        ordinary = rng.normal(0, 0.05, n_blocks).astype(np.float16)
        scales = np.where(np.arange(n_blocks) < len(EXTREMES), scales, ordinary)
        blocks[:, at : at + 2] = scales.astype(np.float16).view(np.uint8).reshape(-1, 2)
    # Every bit set and every bit clear, but for the scales, are the corners of the packing.
    keep = np.zeros(size, dtype=bool)
    for at in SCALES_AT[kind]:
        keep[at : at + 2] = True
    blocks[0, ~keep], blocks[1, ~keep] = 255, 0
    if kind == T.MXFP4:  # 12 * 2^(251 - 128) is the largest that is finite for all codes
        blocks[:, 0] = np.resize([0, 1, 2, 3, 250, 251, *range(100, 150, 3)], n_blocks)
    return blocks


def make_floats(rng, kind):
    if kind == T.F32:
        return rng.normal(0, 1, 64).astype(np.float32).view(np.uint8)
    bits = np.concatenate(
        [np.arange(0, 65536, 521), [0, 1, 0x3FF, 0x400, 0x7BFF, 0x7C00, 0x7F80, 0x8000, 0xFC00]]
    ).astype(np.uint16)
    floats = dequantize(bits.view(np.uint8), kind)
    return bits[np.isfinite(floats)].view(np.uint8)


def main(path):
    rng = np.random.default_rng(20250710)
    with open(path, "wb") as out:
        out.write(b"RQG1")
        for kind in [T.F32, T.F16, T.BF16, *SCALES_AT]:
            if kind in SCALES_AT:
                n_blocks = 24 if GGML_QUANT_SIZES[kind][0] == 32 else 12
                blocks = make_blocks(rng, kind, n_blocks)
                with np.errstate(all="ignore"):
                    values = dequantize(blocks, kind)
            else:
                blocks = make_floats(rng, kind)
                values = dequantize(blocks.view(np.float32) if kind == T.F32 else blocks, kind)
            values = np.ascontiguousarray(values, dtype="<f4").reshape(-1)
            assert np.isfinite(values).all()
            out.write(struct.pack("<III", kind, values.size, blocks.size))
            out.write(blocks.tobytes() + values.tobytes())


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
