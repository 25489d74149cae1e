"""The rows of tools/make_model_goldens.py: small configurations of every architecture, and their
features with the change that turns each off in transformers."""

import dataclasses
import math
import re
import sys

import torch

VOCABULARY = 96


@dataclasses.dataclass
class Feature:
    name: str
    config: dict | None = None
    fill: tuple | None = None
    patch: object = None  # called with the model; returns a function that undoes it


def config_off(name, **changes):
    return Feature(name, config=changes)


def fill_off(name, pattern, value=0.0):
    return Feature(name, fill=(re.compile(pattern), value))


def patch_off(name, patch):
    return Feature(name, patch=patch)


def heads_tiled(model):
    """Query head h takes KV head h % n instead of h // group."""
    module = sys.modules[type(each_module(model, r"self_attn$")[0]).__module__]
    saved = module.repeat_kv
    module.repeat_kv = lambda states, n: states.repeat(1, n, 1, 1)
    return lambda: setattr(module, "repeat_kv", saved)


def each_module(model, name):
    return [m for path, m in model.named_modules() if re.search(name, path)]


def bypass(pattern):
    """The modules return their input."""
    def patch(model):
        found = each_module(model, pattern)
        assert found, pattern
        for module in found:
            module.forward = lambda x, *rest: x
    return patch


def positions_zero(model):
    for module in model.modules():
        if type(module).__name__.endswith("RotaryEmbedding"):
            forward = module.forward
            module.forward = (lambda x, position_ids, *rest, f=forward, **more:
                              f(x, position_ids * 0, *rest, **more))


def activation_relu(model):
    found = [m for m in model.modules() if hasattr(m, "act_fn") or hasattr(m, "activation_fn")
             or hasattr(m, "activation")]
    assert found
    for module in found:
        for name in ("act_fn", "activation_fn", "activation"):
            if hasattr(module, name):
                setattr(module, name, torch.nn.ReLU())


def rounded(x):
    return float(f"{x:.3g}")


@dataclasses.dataclass
class Row:
    name: str
    model_type: str
    config: dict
    features: list
    zero_centred: bool = False  # 1 is added to norm weights
    embedding: float = 1.0      # standard deviation
    sharpness: float = 1.7      # of q and k
    rules: list = dataclasses.field(default_factory=list)  # (pattern, mean, scale)
    architecture: str = ""
    context: int = 0  # that the model must be opened with; 0: as trained

    def rule(self, name, shape):
        """How the named tensor is drawn."""
        for pattern, *values in self.rules:
            if re.search(pattern, name):
                if callable(values[0]):
                    return values[0](shape)
                return {"mean": values[0], "scale": values[1]}
        centre = 0.2 if self.zero_centred else 1.0
        if re.search(r"(q|k|query|key)_(layer)?norm\.weight$", name):
            return {"mean": rounded(centre + 0.5), "scale": 0.5}
        if re.search(r"norm(_\d)?\.weight$|_norm\.weight$|norm\d?\.weight$", name):
            return {"mean": centre, "scale": 0.4}
        if name.endswith("bias") or len(shape) < 2:
            return {"mean": 0.125, "scale": 0.5}
        if re.search(r"embed_tokens\.weight$", name):
            return {"mean": 0.0, "scale": rounded(math.sqrt(3) * self.embedding)}
        gain = 1.0
        if re.search(r"(q_proj|k_proj|q_b_proj|kv_b_proj|qkv_proj|kv_a_proj_with_mqa)\.weight$",
                     name):
            gain = self.sharpness
        if re.search(r"(gate|router|router\.layer|router\.proj)\.weight$", name):
            gain = 2.0
        return {"mean": 0.0, "scale": rounded(gain * math.sqrt(3 / shape[-1]))}


def base(**changes):
    """The sizes of most rows."""
    config = dict(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=3,
                  num_attention_heads=4, num_key_value_heads=2, head_dim=8,
                  max_position_embeddings=512, rms_norm_eps=0.03, pad_token_id=0, bos_token_id=1,
                  eos_token_id=2, tie_word_embeddings=False,
                  rope_parameters={"rope_type": "default", "rope_theta": 500.0})
    config.update(changes)
    return {key: value for key, value in config.items() if value is not ...}


GQA = patch_off("gqa", heads_tiled)
ROPE = patch_off("rope", positions_zero)
EPS = config_off("norm eps", rms_norm_eps=1e-6)
ACT = patch_off("activation", activation_relu)
THETA = config_off("rope theta", rope_parameters={"rope_theta": 150.0})
COMMON = [GQA, ROPE, EPS, ACT]
DENSE = [*COMMON, THETA]


def window(size, off=None, **more):
    return [config_off("window", sliding_window=off, **more),
            config_off("window edge", sliding_window=size + 1)]


def top_k(k, key="num_experts_per_tok"):
    return config_off("experts used", **{key: k - 1})


ROWS = []


def row(name, model_type, config, features, **options):
    ROWS.append(Row(name, model_type, config, features, **options))


row("llama2", "llama",
    base(num_key_value_heads=4, rope_parameters={"rope_type": "default", "rope_theta": 10000.0}),
    [f for f in DENSE if f is not GQA])

LLAMA3 = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0,
          "high_freq_factor": 4.0, "original_max_position_embeddings": 24}
row("llama3", "llama", base(head_dim=16, rope_parameters=LLAMA3),
    [*DENSE,
     config_off("llama3 scaling", rope_parameters={"rope_type": "default"}),
     config_off("low_freq_factor", rope_parameters={"low_freq_factor": 0.25}),
     config_off("high_freq_factor", rope_parameters={"high_freq_factor": 16.0})])

row("llama_bias", "llama", base(attention_bias=True, mlp_bias=True, tie_word_embeddings=True),
    [*DENSE,
     fill_off("q bias", r"q_proj\.bias"), fill_off("k bias", r"k_proj\.bias"),
     fill_off("v bias", r"v_proj\.bias"), fill_off("o bias", r"o_proj\.bias"),
     fill_off("gate bias", r"gate_proj\.bias"), fill_off("up bias", r"up_proj\.bias"),
     fill_off("down bias", r"down_proj\.bias")],
    embedding=0.5)

row("qwen3", "qwen3", base(head_dim=16, tie_word_embeddings=True, layer_types=...),
    [*DENSE, patch_off("q norm", bypass(r"q_norm$")), patch_off("k norm", bypass(r"k_norm$"))],
    embedding=0.5)

# Values that released files omit are written out: bases, number of heads, pattern of layers.
GEMMA3_ROPE = {"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
               "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}
row("gemma3", "gemma3_text",
    base(num_hidden_layers=7, head_dim=8, num_attention_heads=8, num_key_value_heads=4,
         sliding_window=8, query_pre_attn_scalar=8, tie_word_embeddings=True,
         rope_parameters=GEMMA3_ROPE,
         layer_types=["sliding_attention"] * 5 + ["full_attention", "sliding_attention"]),
    [*COMMON, *window(8, 512),
     config_off("query scale", query_pre_attn_scalar=16),
     config_off("linear scaling", rope_parameters={"full_attention": {
         "rope_type": "default", "rope_theta": 1e6}}),
     config_off("local theta", rope_parameters={"sliding_attention": {
         "rope_type": "default", "rope_theta": 1e6}}),
     config_off("global theta", rope_parameters={"full_attention": {
         "rope_type": "linear", "factor": 8.0, "rope_theta": 1e4}}),
     patch_off("q norm", bypass(r"q_norm$")), patch_off("k norm", bypass(r"k_norm$")),
     patch_off("post attention norm", bypass(r"post_attention_layernorm$")),
     patch_off("post feedforward norm", bypass(r"post_feedforward_layernorm$")),
     fill_off("embedding scale", r"embed_scale", 1.0),
     config_off("pattern of layers", layer_types=["full_attention", *["sliding_attention"] * 6])],
    zero_centred=True, embedding=0.25, sharpness=1.0)

for name, norm in (("qwen3_moe", True), ("qwen3_moe_plain", False)):
    row(name, "qwen3_moe",
        base(num_hidden_layers=5, head_dim=16, moe_intermediate_size=24, num_experts=8,
             num_experts_per_tok=3, norm_topk_prob=norm, decoder_sparse_step=2,
             mlp_only_layers=[3]) if norm else
        base(head_dim=16, moe_intermediate_size=24, num_experts=8, num_experts_per_tok=3,
             norm_topk_prob=norm, decoder_sparse_step=1, mlp_only_layers=[]),
        [*DENSE, config_off("norm_topk_prob", norm_topk_prob=not norm), top_k(3),
         patch_off("q norm", bypass(r"q_norm$")), patch_off("k norm", bypass(r"k_norm$"))])


def mxfp4(exponent):
    return lambda shape: {"draw": "mxfp4", "exponent": exponent}


YARN_OSS = {"rope_type": "yarn", "rope_theta": 500.0, "factor": 8.0, "beta_fast": 0.8,
            "beta_slow": 0.2, "truncate": False, "original_max_position_embeddings": 16}
row("gpt_oss", "gpt_oss",
    base(num_hidden_layers=4, hidden_size=64, intermediate_size=64, head_dim=16,
         num_local_experts=6,
         num_experts_per_tok=3, sliding_window=8, swiglu_limit=7.0, rope_parameters=YARN_OSS),
    [GQA, ROPE, EPS, THETA, *window(8, 512),
     fill_off("sinks", r"sinks", -1e9),
     config_off("yarn", rope_parameters={"rope_type": "default"}),
     config_off("yarn truncate", rope_parameters={"truncate": True}),
     config_off("yarn beta_fast", rope_parameters={"beta_fast": 32.0}),
     config_off("yarn attention factor", rope_parameters={"attention_factor": 1.0}),
     config_off("swiglu limit", swiglu_limit=100.0), config_off("swiglu alpha", swiglu_alpha=1.0),
     fill_off("router bias", r"router\.bias"), top_k(3),
     fill_off("gate up bias", r"gate_up_proj_bias"), fill_off("down bias", r"down_proj_bias"),
     fill_off("q bias", r"q_proj\.bias"), fill_off("k bias", r"k_proj\.bias"),
     fill_off("v bias", r"v_proj\.bias"), fill_off("o bias", r"o_proj\.bias")],
    rules=[(r"gate_up_proj$", mxfp4(-4)), (r"down_proj$", mxfp4(-9)), (r"sinks", 1.0, 1.0)])


def mla(**changes):
    """Norms of the latents always use an eps of 1e-6. Real configurations have the same value; here
    one row has another, to tell them apart."""
    config = dict(head_dim=..., num_key_value_heads=4, rms_norm_eps=1e-6, kv_lora_rank=16,
                  q_lora_rank=24, qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=12,
                  moe_intermediate_size=24, num_hidden_layers=4)
    config.update(changes)
    return base(**config)


MLA = [ROPE, ACT, THETA,
       patch_off("kv latent norm", bypass(r"kv_a_layernorm$"))]
Q_LORA = patch_off("q latent norm", bypass(r"q_a_layernorm$"))
SHARED = fill_off("shared experts", r"shared_experts\.down_proj\.weight")
CORRECTION = fill_off("router correction", r"e_score_correction_bias")
CORRECTION_RULE = (r"e_score_correction_bias", 0.25, 0.5)

YARN = {"rope_type": "yarn", "rope_theta": 50.0, "factor": 8.0, "beta_fast": 0.8,
        "beta_slow": 0.2, "mscale": 1.0, "mscale_all_dim": 1.0,
        "original_max_position_embeddings": 16}
YARN_OFF = [config_off("yarn", rope_parameters={"factor": 1.0}),
            config_off("yarn betas", rope_parameters={"beta_fast": 32.0, "beta_slow": 1.0})]
row("deepseek_v3", "deepseek_v3",
    mla(n_routed_experts=8, num_experts_per_tok=3, n_group=4, topk_group=2, n_shared_experts=1,
        first_k_dense_replace=1, routed_scaling_factor=2.5, norm_topk_prob=True,
        rope_parameters=YARN, num_mtp_layers=0),
    [*MLA, Q_LORA, SHARED, CORRECTION, *YARN_OFF, top_k(3),
     config_off("yarn mscale", rope_parameters={"mscale": 0.5}),
     config_off("yarn mscale_all_dim", rope_parameters={"mscale_all_dim": 0.4}),
     config_off("rope interleave", rope_interleave=False),
     config_off("routed scaling", routed_scaling_factor=1.0),
     config_off("norm_topk_prob", norm_topk_prob=False),
     config_off("groups", n_group=1, topk_group=1)],
    rules=[CORRECTION_RULE], sharpness=1.4)

LATENT = [*MLA, SHARED, top_k(3)]


def latent_eps(model):
    """The norm of the latent takes the configuration's eps, not 1e-6."""
    for module in each_module(model, r"kv_a_layernorm$"):
        module.variance_epsilon = model.config.rms_norm_eps


row("deepseek_v2", "deepseek_v2",
    mla(n_routed_experts=8, num_experts_per_tok=3, n_group=4, topk_group=2, n_shared_experts=2,
        first_k_dense_replace=1, routed_scaling_factor=4.0, topk_method="group_limited_greedy",
        rope_parameters={**YARN, "mscale": 0.9, "mscale_all_dim": 0.7}),
    [*LATENT, Q_LORA, *YARN_OFF,
     config_off("yarn mscale", rope_parameters={"mscale": 0.4}),
     config_off("yarn mscale_all_dim", rope_parameters={"mscale_all_dim": 0.3}),
     config_off("routed scaling", routed_scaling_factor=1.0),
     config_off("groups", topk_method="greedy")],
    sharpness=1.4)
row("deepseek_v2_lite", "deepseek_v2",
    mla(n_routed_experts=6, num_experts_per_tok=3, n_shared_experts=2, first_k_dense_replace=1,
        q_lora_rank=None, topk_method="greedy", num_hidden_layers=3, rms_norm_eps=0.03),
    [*LATENT, EPS, patch_off("eps of the kv latent norm", latent_eps)], sharpness=1.4)

row("glm4_moe_lite", "glm4_moe_lite",
    mla(n_routed_experts=8, num_experts_per_tok=3, n_group=1, topk_group=1, n_shared_experts=1,
        mlp_layer_types=["dense", "sparse", "sparse", "sparse"], routed_scaling_factor=1.8,
        norm_topk_prob=True, rms_norm_eps=1e-5),
    [*LATENT, Q_LORA, CORRECTION,
     config_off("rope interleave", rope_interleave=False),
     config_off("routed scaling", routed_scaling_factor=1.0),
     config_off("norm_topk_prob", norm_topk_prob=False)],
    rules=[CORRECTION_RULE], sharpness=1.4)

LLAMA4 = config_off("llama 4 scaling", rope_parameters={"llama_4_scaling_beta": 0.0})
row("mistral4", "mistral4",
    mla(n_routed_experts=8, num_experts_per_tok=3, n_group=1, topk_group=1, n_shared_experts=1,
        first_k_dense_replace=0, routed_scaling_factor=1.5, norm_topk_prob=True,
        num_hidden_layers=3,
        rope_parameters={**YARN, "llama_4_scaling_beta": 0.4, "max_position_embeddings": 512}),
    [*LATENT, Q_LORA, *YARN_OFF, LLAMA4,
     config_off("rope interleave", rope_interleave=False),
     config_off("routed scaling", routed_scaling_factor=1.0),
     config_off("norm_topk_prob", norm_topk_prob=False)],
    sharpness=1.4, architecture="Mistral4ForCausalLM")

row("ministral3", "ministral3",
    base(head_dim=16, rope_parameters={**YARN, "llama_4_scaling_beta": 0.4,
                                       "max_position_embeddings": 512}),
    [*DENSE, *YARN_OFF, LLAMA4,
     config_off("yarn mscale", rope_parameters={"mscale": 0.5})])

row("mistral", "mistral", base(head_dim=16, sliding_window=8), [*DENSE, *window(8)])

MOE = [*DENSE, top_k(3)]
row("mixtral", "mixtral", base(num_local_experts=6, num_experts_per_tok=3), MOE)

QKV_BIAS = [fill_off(f"{x} bias", rf"{x}_proj\.bias") for x in "qkv"]
QK_NORM = [patch_off("q norm", bypass(r"q_norm$")), patch_off("k norm", bypass(r"k_norm$"))]
row("qwen2", "qwen2", base(head_dim=...), [*DENSE, *QKV_BIAS])
row("qwen2_window", "qwen2",
    base(head_dim=..., num_hidden_layers=4, use_sliding_window=True, sliding_window=8,
         max_window_layers=2),
    [*DENSE, *QKV_BIAS, config_off("window", use_sliding_window=False),
     config_off("window edge", sliding_window=9), config_off("window layers", max_window_layers=3)])

POST_NORMS = [patch_off("post attention norm", bypass(r"post_attention_layernorm$")),
              patch_off("post feedforward norm", bypass(r"post_feedforward_layernorm$"))]
EMBED_SCALE = fill_off("embedding scale", r"embed_scale", 1.0)
row("gemma", "gemma", base(head_dim=16, tie_word_embeddings=True,
                          rope_parameters={"rope_type": "default", "rope_theta": 10000.0}),
    [*DENSE, EMBED_SCALE], zero_centred=True, embedding=0.25, sharpness=1.3)

GEMMA2 = dict(head_dim=16, sliding_window=8, tie_word_embeddings=True,
              attn_logit_softcapping=4.0, final_logit_softcapping=3.0,
              rope_parameters={"rope_type": "default", "rope_theta": 10000.0})
row("gemma2", "gemma2",
    base(**GEMMA2, num_hidden_layers=4, query_pre_attn_scalar=16,
         layer_types=["sliding_attention", "full_attention"] * 2),
    [*DENSE, *window(8, 512), *POST_NORMS, EMBED_SCALE,
     config_off("attention softcap", attn_logit_softcapping=None),
     config_off("final softcap", final_logit_softcapping=None),
     config_off("pattern of layers", layer_types=["full_attention", "sliding_attention"] * 2)],
    zero_centred=True, embedding=0.25, sharpness=1.3)
row("gemma2_scale", "gemma2",
    base(**GEMMA2, num_hidden_layers=2, query_pre_attn_scalar=5,
         layer_types=["sliding_attention", "full_attention"]),
    [config_off("query scale", query_pre_attn_scalar=16)],
    zero_centred=True, embedding=0.25, sharpness=1.3)


def queries_scaled(model):
    for module in each_module(model, r"self_attn$"):
        module.scaling = module.head_dim ** -0.5


def kv_from_first(model):
    """Layers that share KV take the first layer's of their kind, not the last's."""
    seen = set()
    for module in each_module(model, r"self_attn$"):
        module.store_full_length_kv = module.layer_type not in seen
        seen.add(module.layer_type)


GEMMA4_ROPE = {"full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25,
                                  "rope_theta": 500.0},
               "sliding_attention": {"rope_type": "default", "rope_theta": 20.0}}
GEMMA4_RULES = [(r"(q|k)_norm\.weight$", 0.75, 0.25), (r"layer_scalar", 0.75, 0.25),
                (r"per_expert_scale", 1.0, 0.5), (r"router\.scale", 5.0, 1.5),
                (r"embed_tokens_per_layer", 0.0, 0.5)]
GEMMA4 = [*COMMON, *window(8, 512), *QK_NORM, *POST_NORMS, EMBED_SCALE,
          patch_off("v norm", bypass(r"v_norm$")),
          patch_off("query scale", queries_scaled),
          fill_off("layer scalars", r"layer_scalar", 1.0),
          config_off("final softcap", final_logit_softcapping=None),
          config_off("partial rotary", rope_parameters={"full_attention": {
              "rope_type": "proportional", "partial_rotary_factor": 1.0, "rope_theta": 500.0}}),
          config_off("local theta", rope_parameters={"sliding_attention": {
              "rope_type": "default", "rope_theta": 500.0}}),
          config_off("global theta", rope_parameters={"full_attention": {
              "rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 20.0}})]
GEMMA4_LAYERS = ["sliding_attention", "sliding_attention", "full_attention"] * 2
row("gemma4", "gemma4_text",
    base(num_hidden_layers=6, head_dim=8, global_head_dim=16, sliding_window=8,
         tie_word_embeddings=True, rope_parameters=GEMMA4_ROPE, layer_types=GEMMA4_LAYERS,
         vocab_size_per_layer_input=VOCABULARY, hidden_size_per_layer_input=8,
         num_kv_shared_layers=3, use_double_wide_mlp=True, final_logit_softcapping=3.0),
    [*GEMMA4, patch_off("shared KV", kv_from_first),
     fill_off("per-layer embeddings", r"embed_tokens_per_layer\.weight"),
     fill_off("per-layer projection", r"per_layer_model_projection\.weight"),
     patch_off("per-layer projection norm", bypass(r"per_layer_projection_norm$")),
     patch_off("post per-layer norm", bypass(r"post_per_layer_input_norm$"))],
    embedding=0.25, rules=GEMMA4_RULES)
row("gemma4_moe", "gemma4_text",
    base(num_hidden_layers=4, head_dim=8, global_head_dim=16, sliding_window=8,
         tie_word_embeddings=True, rope_parameters=GEMMA4_ROPE,
         layer_types=["sliding_attention", "full_attention"] * 2,
         vocab_size_per_layer_input=VOCABULARY, hidden_size_per_layer_input=0,
         num_global_key_value_heads=1, attention_k_eq_v=True, final_logit_softcapping=3.0,
         enable_moe_block=True, num_experts=6, top_k_experts=3, moe_intermediate_size=24),
    [*GEMMA4, top_k(3, "top_k_experts"),
     fill_off("expert scales", r"per_expert_scale", 1.0),
     fill_off("router scale", r"router\.scale", 5.0),
     patch_off("router norm", bypass(r"router\.norm$")),
     patch_off("pre norm of the experts", bypass(r"pre_feedforward_layernorm_2$")),
     patch_off("post norm of the experts", bypass(r"post_feedforward_layernorm_2$")),
     patch_off("post norm of the mlp", bypass(r"post_feedforward_layernorm_1$"))],
    embedding=0.25, rules=GEMMA4_RULES)

row("phi3", "phi3",
    base(head_dim=..., num_attention_heads=4, sliding_window=8, pad_token_id=0),
    [*DENSE, *window(8)])
LONGROPE = {"rope_type": "longrope", "rope_theta": 500.0, "partial_rotary_factor": 0.75,
            "short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5],
            "long_factor": [1.0, 1.5, 2.5, 4.0, 6.0, 9.0],
            "original_max_position_embeddings": 24}
row("phi3_longrope", "phi3",
    base(head_dim=..., hidden_size=64, intermediate_size=64, num_hidden_layers=2,
         original_max_position_embeddings=24, rope_parameters=LONGROPE),
    [*DENSE,
     config_off("long factors", rope_parameters={"long_factor": LONGROPE["short_factor"]}),
     config_off("attention factor", rope_parameters={"attention_factor": 1.0}),
     config_off("partial rotary", rope_parameters={
         "partial_rotary_factor": 1.0, "short_factor": [1.0] * 8,
         "long_factor": [1.0, 1.5, 2.5, 4.0, 6.0, 9.0, 9.0, 9.0]})])

# Transformers chooses the factors by the length of each prompt; radish chooses once, by the context
# that the model is opened for.
row("phi3_short", "phi3",
    base(head_dim=..., hidden_size=64, intermediate_size=64, num_hidden_layers=2,
         original_max_position_embeddings=64,
         rope_parameters={**LONGROPE, "original_max_position_embeddings": 64}),
    [config_off("short factors", rope_parameters={"short_factor": LONGROPE["long_factor"]}),
     config_off("attention factor", rope_parameters={"attention_factor": 1.0})], context=64)

row("smollm3", "smollm3",
    base(head_dim=..., num_hidden_layers=5, tie_word_embeddings=True,
         no_rope_layers=[1, 1, 1, 0, 1], no_rope_layer_interval=4),
    [*DENSE, config_off("layers without rope", no_rope_layers=[1, 1, 1, 1, 1]),
     config_off("which layers", no_rope_layers=[1, 1, 0, 1, 1])], embedding=0.5)

row("olmo2", "olmo2", base(head_dim=...), [*DENSE, *QK_NORM, *POST_NORMS])
# transformers reads rope_theta of older files for one kind of layer only; the other kind has this
# default, which is also the value of real files.
YARN_OLMO = {key: value for key, value in YARN.items() if not key.startswith("mscale")}
YARN_OLMO["rope_theta"] = 5e5
row("olmo3", "olmo3",
    base(head_dim=..., num_hidden_layers=4, sliding_window=8,
         layer_types=["sliding_attention", "sliding_attention", "sliding_attention",
                      "full_attention"],
         rope_parameters={"sliding_attention": {"rope_type": "default", "rope_theta": 5e5},
                          "full_attention": YARN_OLMO}),
    [*COMMON, *window(8, 512), *QK_NORM, *POST_NORMS,
     config_off("yarn on full layers", rope_parameters={"full_attention": {
         "rope_type": "default", "rope_theta": 5e5}}),
     config_off("yarn only on full layers", rope_parameters={"sliding_attention": YARN_OLMO}),
     config_off("yarn attention factor", rope_parameters={"full_attention": {
         **YARN_OLMO, "attention_factor": 1.0}}),
     config_off("theta", rope_parameters={"sliding_attention": {
         "rope_type": "default", "rope_theta": 500.0}})])

NORM_TOPK = config_off("norm_topk_prob", norm_topk_prob=True)
row("flex_olmo", "flex_olmo", base(head_dim=..., num_experts=6, num_experts_per_tok=3),
    [*MOE, *QK_NORM, *POST_NORMS, NORM_TOPK])
row("qwen2_moe", "qwen2_moe",
    base(head_dim=..., num_experts=6, num_experts_per_tok=3, moe_intermediate_size=24,
         shared_expert_intermediate_size=40),
    [*MOE, *QKV_BIAS, NORM_TOPK,
     fill_off("shared expert", r"shared_expert\.down_proj\.weight"),
     fill_off("gate of the shared expert", r"shared_expert_gate\.weight")])
# GGUF files always have this eps.
row("olmoe", "olmoe", base(head_dim=..., num_experts=6, num_experts_per_tok=3, rms_norm_eps=1e-5),
    [*(f for f in MOE if f is not EPS), *QK_NORM, NORM_TOPK])

GRANITE = dict(head_dim=..., embedding_multiplier=6.0, logits_scaling=4.0,
               residual_multiplier=0.5, attention_multiplier=0.25)
MULTIPLIERS = [config_off("embedding multiplier", embedding_multiplier=1.0),
               config_off("logits scaling", logits_scaling=1.0),
               config_off("residual multiplier", residual_multiplier=1.0),
               config_off("attention multiplier", attention_multiplier=8 ** -0.5)]
row("granite", "granite", base(**GRANITE, tie_word_embeddings=True),
    [*DENSE, *MULTIPLIERS], embedding=0.25, sharpness=2.0)
row("granitemoe", "granitemoe", base(**GRANITE, num_local_experts=6, num_experts_per_tok=3),
    [*MOE, *MULTIPLIERS], embedding=0.25, sharpness=2.0)
HYBRID = dict(**GRANITE, layer_types=["full_attention"] * 3, mamba_n_heads=4, mamba_d_head=16,
              time_step_limit=None)
SHARED_MLP = fill_off("shared mlp", r"shared_mlp\.output_linear\.weight")
for name, experts, position in (("granitehybrid_dense", 0, "rope"), ("granitehybrid_moe", 6, None),
                                ("granitehybrid_rope", 6, "rope")):
    row(name, "granitemoehybrid",
        base(**HYBRID, num_local_experts=experts, num_experts_per_tok=3 if experts else 0,
             shared_intermediate_size=40 if experts else 48, position_embedding_type=position),
        [GQA, EPS, ACT, *MULTIPLIERS, SHARED_MLP,
         *([top_k(3)] if experts else []), *([ROPE, THETA] if position else []),
         *([] if position else [config_off("no rope", position_embedding_type="rope")])],
        embedding=0.25, sharpness=2.0)

PARTIAL = {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5}
PARTIAL_OFF = config_off("partial rotary", rope_parameters={"partial_rotary_factor": 1.0})
GLM = dict(head_dim=16, attention_bias=True, rope_parameters=PARTIAL)
row("glm", "glm",
    base(**{**GLM, "head_dim": 8, "rope_parameters": {**PARTIAL, "rope_theta": 10000.0}},
         rms_norm_eps=1e-5),
    [GQA, ROPE, ACT, THETA, *QKV_BIAS, PARTIAL_OFF])
row("glm4", "glm4", base(**GLM),
    [*DENSE, *QKV_BIAS, PARTIAL_OFF,
     patch_off("post attention norm", bypass(r"post_self_attn_layernorm$")),
     patch_off("post mlp norm", bypass(r"post_mlp_layernorm$"))])
row("glm4_moe", "glm4_moe",
    base(**GLM, num_hidden_layers=4, use_qk_norm=True, n_routed_experts=8, num_experts_per_tok=3,
         n_group=1, topk_group=1, n_shared_experts=1, first_k_dense_replace=1,
         moe_intermediate_size=24, routed_scaling_factor=2.5, norm_topk_prob=True,
         num_mtp_layers=0),
    [*MOE, *QKV_BIAS, PARTIAL_OFF, *QK_NORM, SHARED, CORRECTION,
     config_off("routed scaling", routed_scaling_factor=1.0),
     config_off("norm_topk_prob", norm_topk_prob=False)],
    rules=[CORRECTION_RULE])

row("seed_oss", "seed_oss", base(head_dim=16), [*DENSE, *QKV_BIAS])

row("ernie4_5", "ernie4_5", base(head_dim=16, tie_word_embeddings=True), DENSE, embedding=0.5)

row("dots1", "dots1",
    base(head_dim=16, num_hidden_layers=4, n_routed_experts=8, num_experts_per_tok=3,
         n_shared_experts=2, first_k_dense_replace=1, moe_intermediate_size=24,
         routed_scaling_factor=2.5, norm_topk_prob=True),
    [*MOE, *QK_NORM, SHARED, CORRECTION,
     config_off("routed scaling", routed_scaling_factor=1.0),
     config_off("norm_topk_prob", norm_topk_prob=False)],
    rules=[CORRECTION_RULE])

row("helium", "helium", base(), DENSE)

row("minimax_m2", "minimax_m2",
    base(head_dim=16, intermediate_size=24, num_local_experts=8, num_experts_per_tok=3,
         rope_parameters=PARTIAL),
    [*MOE, PARTIAL_OFF, *QK_NORM, CORRECTION], rules=[CORRECTION_RULE])



def norm_of_first_head(model):
    for module in each_module(model, r"(q|k)_norm$"):
        module.weight.data[:] = module.weight.data[0]


COHERE = [GQA, ROPE, ACT, THETA, config_off("norm eps", layer_norm_eps=1e-6),
          config_off("logit scale", logit_scale=1.0)]
for name, norm in (("cohere", False), ("cohere_qk_norm", True)):
    row(name, "cohere",
        base(head_dim=..., rms_norm_eps=..., layer_norm_eps=0.03, logit_scale=0.25,
             tie_word_embeddings=True, use_qk_norm=norm),
        [*COHERE, *QK_NORM, patch_off("norms of each head", norm_of_first_head)] if norm
        else COHERE, embedding=0.5)
row("cohere2", "cohere2",
    base(head_dim=..., rms_norm_eps=..., layer_norm_eps=0.03, num_hidden_layers=4,
         sliding_window=8, logit_scale=0.25, tie_word_embeddings=True,
         layer_types=["sliding_attention", "sliding_attention", "sliding_attention",
                      "full_attention"]),
    [*COHERE, *window(8, 512),
     config_off("pattern of layers", layer_types=["sliding_attention", "full_attention"] * 2)],
    embedding=0.5)

EXAONE_LAYERS = ["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"]
row("exaone4", "exaone4",
    base(head_dim=..., num_hidden_layers=4, sliding_window=8, sliding_window_pattern=4,
         layer_types=EXAONE_LAYERS),
    [*DENSE, config_off("window edge", sliding_window=9), config_off("window", sliding_window=512),
     *QK_NORM, *POST_NORMS,
     config_off("pattern of layers", layer_types=["sliding_attention", "full_attention"] * 2)])
row("exaone4_full", "exaone4",
    base(head_dim=..., sliding_window=None, layer_types=["full_attention"] * 3,
         rope_parameters=LLAMA3, tie_word_embeddings=True),
    [*DENSE, *QK_NORM, *POST_NORMS,
     config_off("llama3 scaling", rope_parameters={"rope_type": "default"})],
    embedding=0.5)


# A family that no one has made, of parts that transformers has: the example of docs/models.md, which
# shows the file from here on.
import transformers
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3MoE
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssAttention, GptOssRotaryEmbedding


class MadeUpConfig(transformers.Cohere2Config):
    model_type = "made_up"
    attribute_map = {"num_local_experts": "n_routed_experts"}


class MadeUpForCausalLM(transformers.Cohere2ForCausalLM):
    """Command R7B's layers with the attention of gpt-oss and the experts of DeepSeek V3."""
    config_class = MadeUpConfig

    def __init__(self, config):
        super().__init__(config)
        self.model.rotary_emb = GptOssRotaryEmbedding(config)
        for i, layer in enumerate(self.model.layers):
            layer.self_attn = GptOssAttention(config, i)
            layer.mlp = DeepseekV3MoE(config)


transformers.AutoConfig.register("made_up", MadeUpConfig)
row("made_up", "made_up",
    base(rms_norm_eps=..., layer_norm_eps=0.03, logit_scale=0.25, sliding_window=8,
         layer_types=["sliding_attention", "full_attention"] * 2, num_hidden_layers=4,
         n_routed_experts=8, num_experts_per_tok=3, n_group=4, topk_group=2, n_shared_experts=1,
         moe_intermediate_size=24, routed_scaling_factor=2.5, norm_topk_prob=True),
    [*COHERE, *window(8, 512), fill_off("sinks", r"sinks", -1e9), top_k(3), SHARED, CORRECTION,
     config_off("groups", n_group=1, topk_group=1),
     config_off("routed scaling", routed_scaling_factor=1.0),
     config_off("norm_topk_prob", norm_topk_prob=False)],
    rules=[CORRECTION_RULE, (r"sinks", 1.0, 1.0)], architecture="MadeUpForCausalLM")
