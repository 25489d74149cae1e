#!/usr/bin/env python3
"""Makes the goldens of weight types: random blocks of every type and the floats to which the
reference implementations dequantize them.

    pip install gguf numpy "mlx[cpu]"
    python3 tools/make_quant_goldens.py tests/unit/data

quant_goldens.bin has the types of GGUF, decoded by the `gguf` package of llama.cpp; it cannot
decode Q1_0 and Q2_0, so these follow their definition in ggml. weight_goldens.bin has the types of
directories, with separate scales, decoded by mlx. There the stored scales are widened to float32
first: with 16-bit scales mlx would round the result to their type.

The bits of a block are random; its half-precision scales go through ordinary, tiny, subnormal,
zero, largest and negative values, and MXFP4's exponents from the smallest to the largest. Scales
that are not finite are omitted, because NaN payloads are unspecified. The files are little endian:

    magic "RQG1" | entries, each:  type u32 | values u32 | bytes u32 | blocks | values as float32
    magic "RWG1" | entries, each:  type u32 | scale type u32 | columns of a group u32 | rows u32 |
                                   columns u32 | bytes u32, of scales u32, of biases u32 |
                                   quants | scales | biases | values as float32
"""

import os
import struct
import sys

import mlx.core as mx
import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType as T
from gguf.quants import dequantize

# Where each block keeps its half-precision scales.
SCALES_AT = {
    T.Q4_0: (0,), T.Q4_1: (0, 2), T.Q5_0: (0,), T.Q5_1: (0, 2), T.Q8_0: (0,),
    T.Q2_K: (80, 82), T.Q3_K: (108,), T.Q4_K: (0, 2), T.Q5_K: (0, 2), T.Q6_K: (208,),
    T.IQ4_NL: (0,), T.MXFP4: (),
    T.IQ2_XXS: (0,), T.IQ2_XS: (0,), T.IQ2_S: (0,), T.IQ3_XXS: (0,), T.IQ3_S: (0,),
    T.IQ1_S: (0,), T.IQ1_M: (), T.IQ4_XS: (0,), T.TQ1_0: (52,), T.TQ2_0: (64,), T.NVFP4: (),
}  # fmt: skip

EXTREMES = np.array(
    [1.0, -1.0, 0.0, -0.0, 65504.0, -65504.0, 6.103515625e-05, 5.960464477539063e-08,
     -5.960464477539063e-08, 0.33325195, -0.0123, 1000.5],
    dtype=np.float16,
)  # fmt: skip

# The numbers of src/model/quant/quant.h.
TENSOR_F32, TENSOR_F16, TENSOR_BF16, TENSOR_Q1_0, TENSOR_Q2_0 = 0, 1, 30, 41, 42
TENSOR_F8_E4M3, TENSOR_E8M0, TENSOR_FP4 = 64, 66, 67
TENSOR_AFFINE = {1: 68, 2: 69, 3: 70, 4: 71, 5: 72, 6: 73, 8: 74}


def half_scales(rng, nth, n_blocks):
    scales = np.roll(np.resize(EXTREMES, n_blocks), 5 * nth)
    ordinary = rng.normal(0, 0.05, n_blocks).astype(np.float16)
    return np.where(np.arange(n_blocks) < len(EXTREMES), scales, ordinary).astype(np.float16)


def make_blocks(rng, kind, n_blocks):
    size = GGML_QUANT_SIZES[kind][1]
    blocks = rng.integers(0, 256, (n_blocks, size), dtype=np.uint8)
    for nth, at in enumerate(SCALES_AT[kind]):
        blocks[:, at : at + 2] = half_scales(rng, nth, n_blocks).view(np.uint8).reshape(-1, 2)
    # The corner cases of the packing: all bits set or all clear, except in the scales.
    keep = np.zeros(size, dtype=bool)
    for at in SCALES_AT[kind]:
        keep[at : at + 2] = True
    blocks[0, ~keep], blocks[1, ~keep] = 255, 0
    if kind == T.MXFP4:  # 12 * 2^(251 - 128): the largest finite one for all codes
        blocks[:, 0] = np.resize([0, 1, 2, 3, 250, 251, *range(100, 150, 3)], n_blocks)
    if kind == T.IQ1_M:  # the float16 is spread over the top 4 bits of four numbers
        d = half_scales(rng, 0, n_blocks).view(np.uint16)
        for i in range(4):
            at = 48 + 2 * i + 1
            blocks[:, at] = blocks[:, at] & 15 | ((d >> 4 * i & 15) << 4).astype(np.uint8)
    if kind == T.NVFP4:
        blocks[:, :4] = np.arange(n_blocks * 4, dtype=np.uint8).reshape(-1, 4)
    return blocks


def make_floats(rng, kind):
    if kind == T.F32:
        return rng.normal(0, 1, 64).astype(np.float32).view(np.uint8)
    bits = np.concatenate(
        [np.arange(0, 65536, 521), [0, 1, 0x3FF, 0x400, 0x7BFF, 0x7C00, 0x7F80, 0x8000, 0xFC00]]
    ).astype(np.uint16)
    floats = dequantize(bits.view(np.uint8), kind)
    return bits[np.isfinite(floats)].view(np.uint8)


def write_entry(out, kind, blocks, values):
    values = np.ascontiguousarray(values, dtype="<f4").reshape(-1)
    assert np.isfinite(values).all()
    out.write(struct.pack("<III", kind, values.size, blocks.size))
    out.write(blocks.tobytes() + values.tobytes())


def write_plain_bits(rng, out, kind, bits):
    """Q1_0 and Q2_0: d, then 16 bytes of consecutive values."""
    blocks = rng.integers(0, 256, (16, 18), dtype=np.uint8)
    d = half_scales(rng, 0, 16)
    blocks[:, :2] = d.view(np.uint8).reshape(-1, 2)
    fields = np.unpackbits(blocks[:, 2:], axis=-1, bitorder="little").reshape(16, -1, bits)
    q = (fields * (1 << np.arange(bits))).sum(axis=-1).astype(np.float32)
    q = q * 2 - 1 if bits == 1 else q - 1
    write_entry(out, kind, blocks, q * d.astype(np.float32)[:, None])


def write_gguf(rng, out):
    out.write(b"RQG1")
    for kind in [T.F32, T.F16, T.BF16, *SCALES_AT]:
        if kind in SCALES_AT:
            # More blocks for small ones and for NVFP4's 256 scales.
            n_blocks = 64 if kind == T.NVFP4 else 24 if GGML_QUANT_SIZES[kind][0] == 32 else 12
            blocks = make_blocks(rng, kind, n_blocks)
            with np.errstate(all="ignore"):
                values = dequantize(blocks, kind)
        else:
            blocks = make_floats(rng, kind)
            values = dequantize(blocks.view(np.float32) if kind == T.F32 else blocks, kind)
        write_entry(out, kind, blocks, values)
    write_plain_bits(rng, out, TENSOR_Q1_0, 1)
    write_plain_bits(rng, out, TENSOR_Q2_0, 2)


def raw(array):
    if array is None:
        return b""
    return np.array(array.view(mx.uint16) if array.dtype == mx.bfloat16 else array).tobytes()


def write_groups(out, kind, scale_kind, group, quants, scales, biases, values):
    values = np.array(values, dtype="<f4")
    assert np.isfinite(values).all()
    data, s, b = raw(quants), raw(scales), raw(biases)
    out.write(struct.pack("<8I", kind, scale_kind, group, *values.shape, len(data), len(s), len(b)))
    out.write(data + s + b + values.tobytes())


def write_affine(rng, out):
    kinds = {mx.float32: TENSOR_F32, mx.float16: TENSOR_F16, mx.bfloat16: TENSOR_BF16}
    for bits, kind in TENSOR_AFFINE.items():
        for group in (32, 64, 128):
            for dtype, scale_kind in kinds.items():
                w = mx.array(rng.normal(0, 0.05, (3, 128)).astype(np.float32)).astype(dtype)
                q, s, b = mx.quantize(w, group_size=group, bits=bits)
                wide = [x.astype(mx.float32) for x in (s, b)]
                values = mx.dequantize(q, *wide, group_size=group, bits=bits)
                write_groups(out, kind, scale_kind, group, q, s, b, values)


def write_small_floats(out):
    """Every exponent of E8M0 whose products are finite, every scale of E4M3 that is a number, every
    code of the quants."""
    codes4 = np.arange(16, dtype=np.uint8)
    nibbles = (codes4[0::2] | codes4[1::2] << 4).astype(np.uint8)  # all 16 codes
    codes8 = np.array([c for c in range(256) if c & 0x7F != 0x7F] + [0, 0x80], dtype=np.uint8)
    exponents = mx.array(np.arange(0, 248, 31, dtype=np.uint8)[None, :])
    e4m3 = mx.array(codes8.reshape(2, 128))
    cases = [
        ("mxfp4", TENSOR_FP4, TENSOR_E8M0, 32, np.tile(nibbles, 16), exponents),
        ("mxfp8", TENSOR_F8_E4M3, TENSOR_E8M0, 32, codes8, exponents),
        ("nvfp4", TENSOR_FP4, TENSOR_F8_E4M3, 16, np.tile(nibbles, 256), e4m3),
    ]
    for mode, kind, scale_kind, group, quants, scales in cases:
        q = mx.array(quants.view(np.uint32).reshape(scales.shape[0], -1))
        values = mx.dequantize(q, scales, mode=mode, dtype=mx.float32)
        write_groups(out, kind, scale_kind, group, q, scales, None, values)


def main(folder):
    mx.set_default_device(mx.cpu)
    with open(os.path.join(folder, "quant_goldens.bin"), "wb") as out:
        write_gguf(np.random.default_rng(20250710), out)
    with open(os.path.join(folder, "weight_goldens.bin"), "wb") as out:
        out.write(b"RWG1")
        write_affine(np.random.default_rng(20250711), out)
        write_small_floats(out)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
