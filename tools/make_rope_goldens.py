#!/usr/bin/env python3
"""Makes the goldens of rotary embeddings: the frequencies and amplitudes that transformers computes
from the configurations of released models, old and new.

    pip install torch transformers
    python3 tools/make_rope_goldens.py tests/unit/data/rope_goldens.json

Each case has its config.json, the context that the model is opened for (which longrope's factors
depend on), and for each kind of layer: inv_freq and attention_scaling.
"""

import importlib
import json
import sys

from transformers import AutoConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

SIZES = {"hidden_size": 4096, "intermediate_size": 8192, "num_hidden_layers": 8,
         "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 96}
HEAD = {"head_dim": 128}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192}
YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
DEEPSEEK = {"type": "yarn", "factor": 40, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0,
            "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096}
MLA = {"kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
       "v_head_dim": 128, "num_key_value_heads": 32, "n_routed_experts": 8, "n_group": 1,
       "topk_group": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
LONG = [round(1.0 + 0.5 * i, 2) for i in range(48)]
SHORT = [round(1.0 + 0.02 * i, 2) for i in range(48)]
PHI = {"hidden_size": 3072, "max_position_embeddings": 131072,
       "original_max_position_embeddings": 4096, "rope_theta": 10000.0}
FULL, SLIDING = "full_attention", "sliding_attention"

# name, model_type, changes, context
CASES = [
    ("llama_2", "llama", {"max_position_embeddings": 4096}, 0),
    ("llama_3_1", "llama", {"max_position_embeddings": 131072, "rope_theta": 500000.0,
                            "rope_scaling": LLAMA3}, 0),
    ("llama_3_2", "llama", {"max_position_embeddings": 131072, "rope_theta": 500000.0, **HEAD,
                            "rope_scaling": {**LLAMA3, "factor": 32.0}}, 0),
    ("llama_3_new_form", "llama", {"max_position_embeddings": 131072,
                                   "rope_parameters": {**LLAMA3, "rope_theta": 500000.0}}, 0),
    ("linear", "llama", {"rope_scaling": {"type": "linear", "factor": 2.5},
                         "max_position_embeddings": 4096}, 0),
    ("qwen_2_5_yarn", "qwen2", {"rope_theta": 1000000.0, "rope_scaling": YARN,
                                "max_position_embeddings": 32768}, 0),
    ("yarn_attention_factor", "qwen3", {"rope_theta": 1000000.0, **HEAD, "rope_scaling": {
        **YARN, "attention_factor": 0.75}, "max_position_embeddings": 32768}, 0),
    ("yarn_equal_ends", "qwen3", {"rope_theta": 10000.0, **HEAD, "rope_scaling": {
        **YARN, "beta_fast": 1, "beta_slow": 1, "truncate": False},
        "max_position_embeddings": 32768}, 0),
    ("deepseek_v3", "deepseek_v3", {**MLA, "max_position_embeddings": 163840,
                                    "rope_theta": 10000, "rope_scaling": DEEPSEEK}, 0),
    ("deepseek_v2_lite", "deepseek_v2", {**MLA, "max_position_embeddings": 163840,
                                         "rope_theta": 10000, "rope_scaling": {
                                             **DEEPSEEK, "mscale": 0.707, "mscale_all_dim": 0.5}},
     0),
    ("gpt_oss", "gpt_oss", {"head_dim": 64, "rope_theta": 150000, "num_local_experts": 4,
                            "num_experts_per_tok": 2, "max_position_embeddings": 131072,
                            "rope_scaling": {"rope_type": "yarn", "factor": 32.0,
                                             "beta_fast": 32.0, "beta_slow": 1.0,
                                             "truncate": False,
                                             "original_max_position_embeddings": 4096}}, 0),
    ("ministral_3", "ministral3", {**HEAD, "max_position_embeddings": 262144, "rope_parameters": {
        "type": "yarn", "rope_type": "yarn", "rope_theta": 1000000.0, "factor": 16.0,
        "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0,
        "llama_4_scaling_beta": 0.1, "original_max_position_embeddings": 16384}}, 0),
    ("phi_3_long", "phi3", {**PHI, "rope_scaling": {
        "type": "longrope", "long_factor": LONG, "short_factor": SHORT}}, 0),
    ("phi_3_short", "phi3", {**PHI, "rope_scaling": {
        "type": "longrope", "long_factor": LONG, "short_factor": SHORT}}, 4096),
    ("phi_4_mini", "phi3", {**PHI, **{"num_attention_heads": 24, "partial_rotary_factor": 0.75},
                            "rope_scaling": {"type": "longrope", "long_factor": LONG,
                                             "short_factor": SHORT}}, 8192),
    ("gemma_3", "gemma3_text", {"head_dim": 256, "rope_scaling": {
        "factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024}, 0),
    ("gemma_3_bases", "gemma3_text", {"head_dim": 256, "rope_theta": 2e6,
                                      "rope_local_base_freq": 5000.0}, 0),
    ("gemma_4", "gemma4_text", {"head_dim": 256, "global_head_dim": 512,
                                "hidden_size_per_layer_input": 0, "rope_parameters": {
                                    FULL: {"rope_type": "proportional", "rope_theta": 1000000.0,
                                           "partial_rotary_factor": 0.25},
                                    SLIDING: {"rope_type": "default", "rope_theta": 10000.0}}},
     0),
    ("olmo_3", "olmo3", {"rope_theta": 500000, "max_position_embeddings": 65536,
                         "sliding_window": 4096, "rope_scaling": {
                             "rope_type": "yarn", "factor": 8.0, "beta_fast": 32, "beta_slow": 1,
                             "original_max_position_embeddings": 8192,
                             "attention_factor": 1.2079441541679836}}, 0),
    ("glm_4", "glm4", {**HEAD, "rope_theta": 10000.0, "partial_rotary_factor": 0.5}, 0),
    ("minimax_m2", "minimax_m2", {**HEAD, "rotary_dim": 64, "rope_theta": 5000000,
                                  "num_local_experts": 4, "num_experts_per_tok": 2}, 0),
    ("smollm_3", "smollm3", {"rope_theta": 5000000.0, "max_position_embeddings": 65536}, 0),
    ("cohere_2", "cohere2", {"rope_theta": 50000, "sliding_window": 4096}, 0),
]


def rotary(config):
    module = importlib.import_module(type(config).__module__.replace("configuration", "modeling"))
    names = [name for name in dir(module) if name.endswith("RotaryEmbedding")
             and not any(part in name for part in ("Vision", "Audio", "Multi"))]
    return getattr(module, names[0])(config)


def numbers(tensor):
    return [float(f"{value:.9g}") for value in tensor.tolist()]


def make(name, model_type, changes, context):
    config = {"model_type": model_type, **SIZES, **changes}
    made = AutoConfig.for_model(**json.loads(json.dumps(config)))
    rope = rotary(made)
    layers = {}
    if hasattr(rope, "inv_freq"):
        frequencies, amplitude = rope.inv_freq, rope.attention_scaling
        if made.rope_parameters["rope_type"] == "longrope":
            frequencies, amplitude = ROPE_INIT_FUNCTIONS["longrope"](
                made, None, seq_len=context or made.max_position_embeddings)
        layers["all"] = (frequencies, amplitude)
    else:
        for kind in (FULL, SLIDING):
            layers[kind] = (getattr(rope, f"{kind}_inv_freq"),
                            getattr(rope, f"{kind}_attention_scaling"))
    return {"name": name, "config": config, "context": context, "layers": {
        kind: {"amplitude": float(amplitude), "frequencies": numbers(frequencies)}
        for kind, (frequencies, amplitude) in layers.items()}}


def main():
    lines = ",\n ".join(json.dumps(make(*case)) for case in CASES)
    with open(sys.argv[1], "w", encoding="utf-8") as out:
        out.write(f"[{lines}]\n")


main()
