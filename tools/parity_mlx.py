#!/usr/bin/env python3
"""Compares radish with mlx-lm on models that MLX quantised: a tiny model in every mode.

    pip install "mlx[cpu]" mlx-lm
    python3 tools/parity_mlx.py build/radish

For each mode, number of bits and group size a tiny Llama is quantised by mlx-lm and run by it in
float32. `floats` is the largest relative error of radish with weights turned into floats
(--quantize f32), `q16` that of quantised weights with 16-bit activations. If either exceeds 1e-3,
it exits with 1. `q8` is radish's default, with 8-bit activations.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import mlx.core as mx
import mlx.utils
import numpy as np
from mlx_lm.models import llama
from mlx_lm.utils import quantize_model, save_model

CONFIG = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 128,
    "num_hidden_layers": 3, "intermediate_size": 256, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 32, "rms_norm_eps": 1e-5, "vocab_size": 160,
    "rope_theta": 10000.0, "max_position_embeddings": 512, "tie_word_embeddings": False,
    "hidden_act": "silu",
}
MODES = [("affine", b, g) for b in (1, 2, 3, 4, 5, 6, 8) for g in (32, 64, 128)]
MODES += [("mxfp4", 4, 32), ("mxfp8", 8, 32), ("nvfp4", 4, 16)]
TOKENS = [(i * 37 + 11) % 160 for i in range(40)]


def make(mode, bits, group, dtype, override):
    mx.random.seed(7)
    model = llama.Model(llama.ModelArgs.from_dict(CONFIG))
    scaled = [(n, (mx.random.normal(p.shape) * (0.8 / p.shape[-1] ** 0.5) if p.ndim == 2 else
                   1 + 0.2 * mx.random.normal(p.shape)).astype(dtype))
              for n, p in mlx.utils.tree_flatten(model.parameters())]
    model.load_weights(scaled)

    def predicate(path, module):
        if not hasattr(module, "to_quantized"):
            return False
        if override and path.endswith("layers.1.mlp.down_proj"):
            return {"bits": 8, "group_size": 32, "mode": "affine"}
        return not (override and path.endswith("layers.0.self_attn.k_proj"))

    model, config = quantize_model(model, dict(CONFIG), group, bits, mode=mode,
                                   quant_predicate=predicate)
    return model, config


def run(radish, path, *options):
    out = subprocess.run([radish, "logits", "-m", path, "--tokens", ",".join(map(str, TOKENS)),
                          "--all", "--json", "--kv-type", "f32", *options],
                         capture_output=True, text=True, check=False)
    if out.returncode:
        sys.exit(out.stderr)
    return np.array(json.loads(out.stdout)["logits"], np.float64)


def error(got, want):
    return float((np.abs(got - want).max(-1) / np.abs(want).max(-1)).max())


def main():
    radish, failed = sys.argv[1], False
    print("mode     bits group scales    floats     q16        q8")
    for mode, bits, group in MODES:
        for dtype, override in ((mx.float32, False), (mx.bfloat16, True), (mx.float16, False)):
            model, config = make(mode, bits, group, dtype, override)
            with tempfile.TemporaryDirectory() as path:
                save_model(path, model)
                pathlib.Path(path, "config.json").write_text(json.dumps(config))
                # The same stored weights, computed in float32.
                model.set_dtype(mx.float32)
                want = np.array(model(mx.array([TOKENS]))[0].astype(mx.float32), np.float64)
                floats = error(run(radish, path, "--quantize", "f32"), want)
                q16 = error(run(radish, path, "--activations", "q16"), want)
                q8 = error(run(radish, path), want)
            bad = not max(floats, q16) <= 1e-3
            failed |= bad
            print(f"{mode:8} {bits:4} {group:5} {str(dtype)[9:]:9} {floats:.2e}   {q16:.2e}   {q8:.2e}"
                  f"{'  FAILED' if bad else ''}", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
