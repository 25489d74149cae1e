/* The rows of the table of architectures; see architecture.h. Constant data, any thread. Defaults
 * are those of the configuration classes in transformers, and only for keys that released files
 * omit; GGUF files contain nearly all of them. */
#include "model/architecture_rows.h"

#include <math.h>

#define COUNT(array)        (sizeof(array) / sizeof *(array))
#define DEFAULTS(array)     .defaults = array, .n_defaults = COUNT(array)
#define GGUF_NAMES(array)   .gguf_names = array, .n_gguf_names = COUNT(array)
#define CONFIG_NAMES(array) .config_names = array, .n_config_names = COUNT(array)
#define CONFIG(setting, is)                                                                        \
    {                                                                                              \
        SETTING_##setting, is, NAN                                                                 \
    }
#define GGUF(setting, is)                                                                          \
    {                                                                                              \
        SETTING_##setting, NAN, is                                                                 \
    }
#define BOTH(setting, is)                                                                          \
    {                                                                                              \
        SETTING_##setting, is, is                                                                  \
    }
#define WHEN(setting)        .has_when = true, .when = SETTING_##setting
#define WHEN_IS(setting, is) WHEN(setting), .when_is = is

static const struct setting_default llama_defaults[] = {
    CONFIG(CONTEXT, 2048),
    CONFIG(NORM_EPS, 1e-6),
    CONFIG(TIED, 0),
};
static const struct setting_default mistral_defaults[] = {
    CONFIG(CONTEXT, 131072), CONFIG(NORM_EPS, 1e-6), CONFIG(TIED, 0),
    CONFIG(KV_HEADS, 8),     CONFIG(WINDOW, 4096),
};
static const struct setting_default mixtral_defaults[] = {
    CONFIG(CONTEXT, 131072),   CONFIG(NORM_EPS, 1e-5),     CONFIG(TIED, 0),
    CONFIG(KV_HEADS, 8),       CONFIG(ROPE_BASE, 1e6),     CONFIG(EXPERTS, 8),
    CONFIG(EXPERTS_CHOSEN, 2), BOTH(EXPERT_NORMALIZES, 1),
};
static const struct setting_default ministral3_defaults[] = {
    CONFIG(CONTEXT, 262144), CONFIG(NORM_EPS, 1e-5), CONFIG(TIED, 0),
    CONFIG(KV_HEADS, 8),     CONFIG(HEAD_DIM, 128),
};
static const struct setting_default mistral4_defaults[] = {
    CONFIG(CONTEXT, 1048576),   CONFIG(NORM_EPS, 1e-6),       CONFIG(TIED, 0),
    CONFIG(EXPERTS, 128),       CONFIG(EXPERTS_CHOSEN, 4),    CONFIG(EXPERT_FF, 2048),
    CONFIG(SHARED_EXPERTS, 1),  CONFIG(EXPERT_NORMALIZES, 1), CONFIG(KV_RANK, 256),
    CONFIG(Q_RANK, 1024),       CONFIG(NOPE_DIM, 64),         CONFIG(MLA_ROPE_DIM, 64),
    CONFIG(MLA_VALUE_DIM, 128), CONFIG(ROPE_INTERLEAVED, 1),
};
static const struct setting_default qwen_defaults[] = {
    CONFIG(CONTEXT, 32768), CONFIG(NORM_EPS, 1e-6),   CONFIG(TIED, 0),
    CONFIG(WINDOW, 4096),   CONFIG(WINDOW_SWITCH, 0), CONFIG(WINDOW_FROM, 28),
};
static const struct setting_default qwen2_moe_defaults[] = {
    CONFIG(CONTEXT, 32768),  CONFIG(NORM_EPS, 1e-6),    CONFIG(TIED, 0),
    CONFIG(KV_HEADS, 16),    CONFIG(WINDOW, 4096),      CONFIG(WINDOW_SWITCH, 0),
    CONFIG(EXPERTS, 60),     CONFIG(EXPERTS_CHOSEN, 4), CONFIG(EXPERT_FF, 1408),
    CONFIG(SHARED_FF, 5632), CONFIG(EXPERT_STEP, 1),
};
static const struct setting_default qwen3_defaults[] = {
    CONFIG(CONTEXT, 32768),   CONFIG(NORM_EPS, 1e-6),  CONFIG(TIED, 0),       CONFIG(WINDOW, 4096),
    CONFIG(WINDOW_SWITCH, 0), CONFIG(WINDOW_FROM, 28), CONFIG(HEAD_DIM, 128),
};
static const struct setting_default qwen3_moe_defaults[] = {
    CONFIG(CONTEXT, 32768), CONFIG(NORM_EPS, 1e-6),       CONFIG(TIED, 0),
    CONFIG(WINDOW, 4096),   CONFIG(WINDOW_SWITCH, 0),     CONFIG(KV_HEADS, 4),
    CONFIG(EXPERTS, 128),   CONFIG(EXPERTS_CHOSEN, 8),    CONFIG(EXPERT_FF, 768),
    CONFIG(EXPERT_STEP, 1), CONFIG(EXPERT_NORMALIZES, 0), GGUF(EXPERT_NORMALIZES, 1),
};
static const struct setting_default gemma_defaults[] = {
    CONFIG(CONTEXT, 8192), CONFIG(NORM_EPS, 1e-6), CONFIG(TIED, 1),
    CONFIG(HEADS, 16),     CONFIG(KV_HEADS, 16),   CONFIG(HEAD_DIM, 256),
};
static const struct setting_default gemma2_defaults[] = {
    CONFIG(CONTEXT, 8192),  CONFIG(NORM_EPS, 1e-6),  CONFIG(TIED, 1),          CONFIG(HEADS, 8),
    CONFIG(KV_HEADS, 4),    CONFIG(HEAD_DIM, 256),   CONFIG(ATTN_SCALAR, 256), BOTH(WINDOW, 4096),
    BOTH(ATTN_SOFTCAP, 50), BOTH(LOGIT_SOFTCAP, 30),
};
static const struct setting_default gemma3_defaults[] = {
    CONFIG(CONTEXT, 131072),  CONFIG(NORM_EPS, 1e-6),
    CONFIG(TIED, 1),          CONFIG(HEADS, 8),
    CONFIG(KV_HEADS, 4),      CONFIG(HEAD_DIM, 256),
    CONFIG(ATTN_SCALAR, 256), CONFIG(WINDOW, 4096),
    BOTH(ROPE_BASE, 1e6),     BOTH(ROPE_LOCAL_BASE, 10000),
};
static const struct setting_default gemma4_defaults[] = {
    CONFIG(CONTEXT, 131072),
    CONFIG(NORM_EPS, 1e-6),
    CONFIG(TIED, 1),
    CONFIG(HEADS, 8),
    CONFIG(KV_HEADS, 4),
    CONFIG(HEAD_DIM, 256),
    CONFIG(GLOBAL_HEAD_DIM, 512),
    CONFIG(WINDOW, 512),
    CONFIG(LAYER_INPUT, 256),
    BOTH(ROPE_BASE, 1e6),
    BOTH(ROPE_LOCAL_BASE, 10000),
    BOTH(EXPERT_NORMALIZES, 1),
};
static const struct setting_default phi3_defaults[] = {
    CONFIG(CONTEXT, 4096),
    CONFIG(ROPE_ORIGINAL, 4096),
    CONFIG(NORM_EPS, 1e-5),
    CONFIG(TIED, 0),
};
static const struct setting_default smollm3_defaults[] = {
    CONFIG(CONTEXT, 32768), CONFIG(NORM_EPS, 1e-6), CONFIG(TIED, 1),          CONFIG(KV_HEADS, 4),
    CONFIG(ROPE_BASE, 2e6), BOTH(ROPE_INTERVAL, 4), CONFIG(WINDOW_SWITCH, 0),
};
static const struct setting_default olmo2_defaults[] = {
    CONFIG(CONTEXT, 2048),
    CONFIG(NORM_EPS, 1e-5),
    CONFIG(TIED, 0),
};
static const struct setting_default olmo3_defaults[] = {
    CONFIG(CONTEXT, 2048), CONFIG(NORM_EPS, 1e-5), CONFIG(TIED, 0),
    CONFIG(WINDOW, 4096),  CONFIG(ROPE_BASE, 5e5),
};
static const struct setting_default flex_olmo_defaults[] = {
    CONFIG(CONTEXT, 4096),  CONFIG(NORM_EPS, 1e-6),    CONFIG(TIED, 0),
    CONFIG(ROPE_BASE, 5e5), CONFIG(EXPERTS_CHOSEN, 5), CONFIG(EXPERTS, 7),
};
static const struct setting_default olmoe_defaults[] = {
    CONFIG(CONTEXT, 4096), CONFIG(NORM_EPS, 1e-5),    CONFIG(TIED, 0),
    CONFIG(EXPERTS, 64),   CONFIG(EXPERTS_CHOSEN, 8),
};
static const struct setting_default granite_defaults[] = {
    CONFIG(CONTEXT, 2048), CONFIG(NORM_EPS, 1e-6), CONFIG(TIED, 0),
    CONFIG(ATTN_SCALE, 1), BOTH(ROPE_SWITCH, 1),
};
static const struct setting_default granitemoe_defaults[] = {
    CONFIG(CONTEXT, 2048), CONFIG(NORM_EPS, 1e-6), CONFIG(TIED, 0),           CONFIG(ATTN_SCALE, 1),
    BOTH(ROPE_SWITCH, 1),  CONFIG(EXPERTS, 8),     CONFIG(EXPERTS_CHOSEN, 2),
};
static const struct setting_default granitehybrid_defaults[] = {
    CONFIG(CONTEXT, 2048),     CONFIG(NORM_EPS, 1e-6),  CONFIG(TIED, 0),
    CONFIG(ATTN_SCALE, 1),     GGUF(ROPE_SWITCH, 1),    CONFIG(EXPERTS, 8),
    CONFIG(EXPERTS_CHOSEN, 2), CONFIG(SHARED_FF, 1024),
};
static const struct setting_default glm_defaults[] = {
    CONFIG(CONTEXT, 131072), CONFIG(NORM_EPS, 1.5625e-7), CONFIG(TIED, 0),
    CONFIG(KV_HEADS, 2),     CONFIG(HEAD_DIM, 128),       CONFIG(ROPE_PART, 0.5),
};
static const struct setting_default glm4_moe_defaults[] = {
    CONFIG(CONTEXT, 131072),      CONFIG(NORM_EPS, 1e-5),  CONFIG(TIED, 0),
    CONFIG(KV_HEADS, 8),          CONFIG(ROPE_PART, 0.5),  CONFIG(EXPERTS, 128),
    CONFIG(EXPERTS_CHOSEN, 8),    CONFIG(EXPERT_FF, 1408), CONFIG(SHARED_EXPERTS, 1),
    CONFIG(EXPERT_NORMALIZES, 1), CONFIG(DENSE_LAYERS, 1), CONFIG(PREDICTION_LAYERS, 1),
    CONFIG(QK_NORM, 0),
};
static const struct setting_default glm4_moe_lite_defaults[] = {
    CONFIG(CONTEXT, 202752),      CONFIG(NORM_EPS, 1e-5),       CONFIG(TIED, 0),
    CONFIG(EXPERTS, 64),          CONFIG(EXPERTS_CHOSEN, 4),    CONFIG(EXPERT_FF, 1536),
    CONFIG(SHARED_EXPERTS, 1),    CONFIG(EXPERT_NORMALIZES, 1), CONFIG(EXPERT_SCALE, 1.8),
    CONFIG(DENSE_LAYERS, 1),      CONFIG(KV_RANK, 512),         CONFIG(Q_RANK, 768),
    CONFIG(NOPE_DIM, 192),        CONFIG(MLA_ROPE_DIM, 64),     CONFIG(MLA_VALUE_DIM, 256),
    CONFIG(PREDICTION_LAYERS, 1), CONFIG(ROPE_INTERLEAVED, 1),
};
static const struct setting_default gpt_oss_defaults[] = {
    CONFIG(CONTEXT, 131072), CONFIG(NORM_EPS, 1e-5),    CONFIG(TIED, 0),
    CONFIG(KV_HEADS, 8),     CONFIG(HEAD_DIM, 64),      CONFIG(WINDOW, 128),
    CONFIG(EXPERTS, 128),    CONFIG(EXPERTS_CHOSEN, 4), CONFIG(ROPE_BASE, 150000),
    BOTH(SWIGLU_LIMIT, 7),
};
static const struct setting_default deepseek_v2_defaults[] = {
    CONFIG(CONTEXT, 2048),       CONFIG(NORM_EPS, 1e-6),   CONFIG(TIED, 0),
    CONFIG(EXPERTS, 64),         CONFIG(EXPERT_FF, 1407),  CONFIG(SHARED_EXPERTS, 2),
    CONFIG(DENSE_LAYERS, 0),     CONFIG(KV_RANK, 512),     CONFIG(Q_RANK, 1536),
    CONFIG(NOPE_DIM, 128),       CONFIG(MLA_ROPE_DIM, 64), CONFIG(MLA_VALUE_DIM, 128),
    CONFIG(ROPE_INTERLEAVED, 1),
};
static const struct setting_default deepseek_v3_defaults[] = {
    CONFIG(CONTEXT, 4096),
    CONFIG(NORM_EPS, 1e-6),
    CONFIG(TIED, 0),
    CONFIG(EXPERTS, 256),
    CONFIG(EXPERTS_CHOSEN, 8),
    CONFIG(EXPERT_FF, 2048),
    CONFIG(SHARED_EXPERTS, 1),
    CONFIG(EXPERT_NORMALIZES, 1),
    CONFIG(EXPERT_SCALE, 2.5),
    CONFIG(EXPERT_GROUPS, 8),
    CONFIG(EXPERT_GROUPS_CHOSEN, 4),
    CONFIG(DENSE_LAYERS, 3),
    CONFIG(KV_RANK, 512),
    CONFIG(Q_RANK, 1536),
    CONFIG(NOPE_DIM, 128),
    CONFIG(MLA_ROPE_DIM, 64),
    CONFIG(MLA_VALUE_DIM, 128),
    CONFIG(PREDICTION_LAYERS, 1),
    CONFIG(ROPE_INTERLEAVED, 1),
};
static const struct setting_default seed_oss_defaults[] = {
    CONFIG(CONTEXT, 524288), CONFIG(NORM_EPS, 1e-6), CONFIG(TIED, 0),
    CONFIG(KV_HEADS, 8),     CONFIG(HEAD_DIM, 128),
};
static const struct setting_default ernie4_5_defaults[] = {
    CONFIG(CONTEXT, 131072), CONFIG(NORM_EPS, 1e-5), CONFIG(TIED, 1),
    CONFIG(KV_HEADS, 2),     CONFIG(HEAD_DIM, 128),  CONFIG(ROPE_BASE, 5e5),
};
static const struct setting_default dots1_defaults[] = {
    CONFIG(CONTEXT, 2048),   CONFIG(NORM_EPS, 1e-6), CONFIG(TIED, 0),         CONFIG(KV_HEADS, 32),
    CONFIG(EXPERT_FF, 1408), CONFIG(WINDOW, 4096),   CONFIG(WINDOW_FROM, 62),
};
static const struct setting_default helium_defaults[] = {
    CONFIG(CONTEXT, 4096), CONFIG(NORM_EPS, 1e-8), CONFIG(TIED, 0),
    CONFIG(KV_HEADS, 20),  CONFIG(HEAD_DIM, 128),  CONFIG(ROPE_BASE, 1e5),
};
static const struct setting_default minimax_m2_defaults[] = {
    CONFIG(CONTEXT, 196608), CONFIG(NORM_EPS, 1e-6),    CONFIG(TIED, 0),
    CONFIG(KV_HEADS, 8),     CONFIG(HEAD_DIM, 128),     CONFIG(ROPE_BASE, 5e6),
    CONFIG(EXPERTS, 256),    CONFIG(EXPERTS_CHOSEN, 8), BOTH(EXPERT_NORMALIZES, 1),
};
static const struct setting_default cohere_defaults[] = {
    CONFIG(CONTEXT, 8192),  CONFIG(LAYER_NORM_EPS, 1e-5), CONFIG(TIED, 1),
    CONFIG(ROPE_BASE, 5e5), CONFIG(LOGIT_SCALE, 0.0625),  CONFIG(QK_NORM, 0),
};
static const struct setting_default cohere2_defaults[] = {
    CONFIG(CONTEXT, 8192), CONFIG(LAYER_NORM_EPS, 1e-5), CONFIG(TIED, 1),
    CONFIG(WINDOW, 4096),  CONFIG(LOGIT_SCALE, 0.0625),
};
static const struct setting_default exaone4_defaults[] = {
    CONFIG(CONTEXT, 2048),
    CONFIG(NORM_EPS, 1e-5),
    CONFIG(TIED, 0),
    CONFIG(WINDOW, 4096),
};

/* Norms around each block, as Gemma names them. */
static const struct tensor_name norms_both[] = {
    {SLOT_ATTN_POST_NORM, "post_attention_layernorm.weight"},
    {SLOT_FFN_NORM, "pre_feedforward_layernorm.weight"},
};
static const struct tensor_name norms_after[] = {
    {SLOT_ATTN_POST_NORM, "post_attention_layernorm.weight"},
};
static const struct tensor_name norms_glm4[] = {
    {SLOT_ATTN_POST_NORM, "post_self_attn_layernorm.weight"},
    {SLOT_FFN_POST_NORM, "post_mlp_layernorm.weight"},
};
/* Named post_attention_layernorm in transformers; llama.cpp kept that name. */
static const struct tensor_name ffn_norm_as_post[] = {
    {SLOT_FFN_NORM, "post_attention_norm.weight"},
};
/* Tensors that llama.cpp expects fused. */
static const struct tensor_name fused_up[] = {
    {SLOT_GATE, "ffn_up.weight", LAYOUT_HALVES},
    {SLOT_GATE, "ffn_gate.weight"},
    {SLOT_UP, "ffn_up.weight", LAYOUT_HALVES},
    {SLOT_UP, "ffn_up.weight"},
};
static const struct tensor_name fused_all[] = {
    {SLOT_Q, "attn_qkv.weight", LAYOUT_QKV},     {SLOT_Q, "attn_q.weight"},
    {SLOT_K, "attn_qkv.weight", LAYOUT_QKV},     {SLOT_K, "attn_k.weight"},
    {SLOT_V, "attn_qkv.weight", LAYOUT_QKV},     {SLOT_V, "attn_v.weight"},
    {SLOT_GATE, "ffn_up.weight", LAYOUT_HALVES}, {SLOT_GATE, "ffn_gate.weight"},
    {SLOT_UP, "ffn_up.weight", LAYOUT_HALVES},   {SLOT_UP, "ffn_up.weight"},
};
static const struct tensor_name fused_experts[] = {
    {SLOT_EXPERT_GATE, "ffn_gate_up_exps.weight", LAYOUT_HALVES},
    {SLOT_EXPERT_GATE, "ffn_gate_exps.weight"},
    {SLOT_EXPERT_UP, "ffn_gate_up_exps.weight", LAYOUT_HALVES},
    {SLOT_EXPERT_UP, "ffn_up_exps.weight"},
};
static const struct tensor_name gpt_oss_names[] = {
    {SLOT_EXPERT_GATE, "mlp.experts.gate_up_proj", LAYOUT_TRANSPOSED_PAIRS},
    {SLOT_EXPERT_GATE, "mlp.experts.gate_up_proj", LAYOUT_PAIRS},
    {SLOT_EXPERT_GATE, "mlp.experts.gate_proj"},
    {SLOT_EXPERT_UP, "mlp.experts.gate_up_proj", LAYOUT_TRANSPOSED_PAIRS},
    {SLOT_EXPERT_UP, "mlp.experts.gate_up_proj", LAYOUT_PAIRS},
    {SLOT_EXPERT_UP, "mlp.experts.up_proj"},
    {SLOT_EXPERT_DOWN, "mlp.experts.down_proj", LAYOUT_TRANSPOSED},
    {SLOT_EXPERT_DOWN, "mlp.experts.down_proj"},
    {SLOT_EXPERT_GATE_BIAS, "mlp.experts.gate_up_proj_bias", LAYOUT_PAIRS},
    {SLOT_EXPERT_GATE_BIAS, "mlp.experts.gate_proj.bias"},
    {SLOT_EXPERT_UP_BIAS, "mlp.experts.gate_up_proj_bias", LAYOUT_PAIRS},
    {SLOT_EXPERT_UP_BIAS, "mlp.experts.up_proj.bias"},
};

const struct architecture architecture_rows[] = {
    {
        .title = "Llama 2 to 3.3",
        .types = {"llama"},
        .gguf = "llama",
        DEFAULTS(llama_defaults),
        .norms = NORMS_BEFORE,
        .rope = ROPE_NEOX,
        .gguf_rope = ROPE_NORM,
        .window = WINDOW_EVERYWHERE,
    },
    {
        .title = "Mistral",
        .types = {"mistral"},
        DEFAULTS(mistral_defaults),
        .written_as = {"llama"},
        .norms = NORMS_BEFORE,
        .rope = ROPE_NEOX,
        .window = WINDOW_EVERYWHERE,
    },
    {
        .title = "Mixtral",
        .types = {"mixtral"},
        .gguf = "llama",
        WHEN(EXPERTS),
        DEFAULTS(mixtral_defaults),
        .norms = NORMS_BEFORE,
        .rope = ROPE_NEOX,
        .gguf_rope = ROPE_NORM,
        .window = WINDOW_EVERYWHERE,
        .experts = EXPERTS_INSTEAD,
        .scores = ROUTER_SOFTMAX,
    },
    {
        .title = "Ministral 3",
        .types = {"ministral3"},
        .gguf = "mistral3",
        DEFAULTS(ministral3_defaults),
        .norms = NORMS_BEFORE,
        .rope = ROPE_NEOX,
        .gguf_rope = ROPE_NORM,
        .needs_scaling = true,
        .has_temperature = true,
        .window = WINDOW_EVERYWHERE,
    },
    {
        .title = "Mistral Small 4",
        .types = {"mistral4"},
        .gguf = "mistral4",
        DEFAULTS(mistral4_defaults),
        GGUF_NAMES(fused_experts),
        .norms = NORMS_BEFORE,
        .rope = ROPE_NORM,
        .gguf_rope = ROPE_NORM,
        .needs_scaling = true,
        .has_temperature = true,
        .has_mla = true,
        .experts = EXPERTS_INSTEAD,
        .scores = ROUTER_SOFTMAX,
        .groups = GROUPS_BY_TOP2,
        .normalize_eps = 1e-20f,
        .correction = CORRECTION_OPTIONAL,
    },
    {
        .title = "Qwen 2 and 2.5",
        .types = {"qwen2"},
        .gguf = "qwen2",
        DEFAULTS(qwen_defaults),
        .norms = NORMS_BEFORE,
        .needs_biases = true,
        .rope = ROPE_NEOX,
        .gguf_rope = ROPE_NEOX,
        .window = WINDOW_FROM_LAYER,
    },
    {
        .title = "Qwen 1.5 and 2 MoE",
        .types = {"qwen2_moe"},
        .gguf = "qwen2moe",
        DEFAULTS(qwen2_moe_defaults),
        .norms = NORMS_BEFORE,
        .needs_biases = true,
        .rope = ROPE_NEOX,
        .gguf_rope = ROPE_NEOX,
        .window = WINDOW_BY_PERIOD,
        .window_period = 2,
        .experts = EXPERTS_INSTEAD,
        .scores = ROUTER_SOFTMAX,
        .gates_shared = true,
    },
    {
        .title = "Qwen 3",
        .types = {"qwen3"},
        .gguf = "qwen3",
        DEFAULTS(qwen3_defaults),
        .norms = NORMS_BEFORE,
        .qk_norm = QK_NORM_HEADS,
        .rope = ROPE_NEOX,
        .gguf_rope = ROPE_NEOX,
        .window = WINDOW_FROM_LAYER,
    },
    {
        .title = "Qwen 3 MoE",
        .types = {"qwen3_moe"},
        .gguf = "qwen3moe",
        DEFAULTS(qwen3_moe_defaults),
        .norms = NORMS_BEFORE,
        .qk_norm = QK_NORM_HEADS,
        .rope = ROPE_NEOX,
        .gguf_rope = ROPE_NEOX,
        .window = WINDOW_EVERYWHERE,
        .experts = EXPERTS_INSTEAD,
        .scores = ROUTER_SOFTMAX,
    },
    {
        .title = "Gemma, CodeGemma",
        .types = {"gemma"},
        .gguf = "gemma",
        DEFAULTS(gemma_defaults),
        .norms = NORMS_BEFORE,
        .adds_to_norm = true,
        .activation = ACTIVATION_GELU_TANH,
        .gelu_is_tanh = true,
        .rope = ROPE_NEOX,
        .gguf_rope = ROPE_NEOX,
        .scales_embd = true,
    },
    {
        .title = "Gemma 2",
        .types = {"gemma2"},
        .gguf = "gemma2",
        DEFAULTS(gemma2_defaults),
        CONFIG_NAMES(norms_both),
        .norms = NORMS_BOTH,
        .adds_to_norm = true,
        .activation = ACTIVATION_GELU_TANH,
        .rope = ROPE_NEOX,
        .gguf_rope = ROPE_NEOX,
        .window = WINDOW_BY_PERIOD,
        .window_period = 2,
        .scales_embd = true,
        .attn_scale = ATTN_SCALE_SCALAR,
        .wide_scale_layers = 46,
    },
    {
        .title = "Gemma 3",
        .types = {"gemma3_text", "gemma3"},
        .gguf = "gemma3",
        DEFAULTS(gemma3_defaults),
        CONFIG_NAMES(norms_both),
        .norms = NORMS_BOTH,
        .adds_to_norm = true,
        .qk_norm = QK_NORM_HEADS,
        .activation = ACTIVATION_GELU_TANH,
        .rope = ROPE_NEOX,
        .gguf_rope = ROPE_NEOX,
        .has_local_rope = true,
        .window = WINDOW_BY_PERIOD,
        .window_period = 6,
        .scales_embd = true,
        .attn_scale = ATTN_SCALE_SCALAR,
        .wide_scale_layers = 62,
    },
    {
        .title = "Gemma 4",
        .types = {"gemma4_text", "gemma4"},
        .gguf = "gemma4",
        DEFAULTS(gemma4_defaults),
        CONFIG_NAMES(norms_both),
        .needs_scaling = true,
        GGUF_NAMES(fused_experts),
        .norms = NORMS_BOTH,
        .qk_norm = QK_NORM_HEADS,
        .activation = ACTIVATION_GELU_TANH,
        .rope = ROPE_NEOX,
        .gguf_rope = ROPE_NEOX,
        .has_local_rope = true,
        .window = WINDOW_BY_PERIOD,
        .window_period = 6,
        .ends_full = true,
        .scales_embd = true,
        .attn_scale = ATTN_SCALE_ONE,
        .experts = EXPERTS_BESIDE,
        .scores = ROUTER_SOFTMAX,
        .norms_router_input = true,
        .norms_values = true,
        .shares_keys = true,
        .has_layer_inputs = true,
        .has_out_scale = true,
    },
    {
        .title = "Phi 3 and 4",
        .types = {"phi3"},
        .gguf = "phi3",
        DEFAULTS(phi3_defaults),
        GGUF_NAMES(fused_all),
        .norms = NORMS_BEFORE,
        .rope = ROPE_NEOX,
        .gguf_rope = ROPE_NEOX,
        .window = WINDOW_EVERYWHERE,
    },
    {
        .title = "SmolLM 3",
        .types = {"smollm3"},
        .gguf = "smollm3",
        DEFAULTS(smollm3_defaults),
        .norms = NORMS_BEFORE,
        .rope = ROPE_NEOX,
        .gguf_rope = ROPE_NORM,
        .rope_layers = ROPE_BY_INTERVAL,
        .window = WINDOW_NOWHERE,
    },
    {
        .title = "OLMo 2",
        .types = {"olmo2"},
        .gguf = "olmo2",
        DEFAULTS(olmo2_defaults),
        CONFIG_NAMES(norms_after),
        .norms = NORMS_AFTER,
        .qk_norm = QK_NORM_WHOLE,
        .rope = ROPE_NEOX,
        .gguf_rope = ROPE_NEOX,
    },
    {
        .title = "OLMo 3",
        .types = {"olmo3"},
        .gguf = "olmo2",
        WHEN(WINDOW),
        DEFAULTS(olmo3_defaults),
        CONFIG_NAMES(norms_after),
        .norms = NORMS_AFTER,
        .qk_norm = QK_NORM_WHOLE,
        .rope = ROPE_NEOX,
        .gguf_rope = ROPE_NEOX,
        .has_local_rope = true,
        .window = WINDOW_BY_PERIOD,
        .window_period = 4,
    },
    {
        .title = "FlexOlmo",
        .types = {"flex_olmo"},
        DEFAULTS(flex_olmo_defaults),
        CONFIG_NAMES(norms_after),
        .norms = NORMS_AFTER,
        .qk_norm = QK_NORM_WHOLE,
        .rope = ROPE_NEOX,
        .experts = EXPERTS_INSTEAD,
        .scores = ROUTER_SOFTMAX,
    },
    {
        .title = "OLMoE",
        .types = {"olmoe"},
        .gguf = "olmoe",
        DEFAULTS(olmoe_defaults),
        .norms = NORMS_BEFORE,
        .qk_norm = QK_NORM_WHOLE,
        .rope = ROPE_NEOX,
        .gguf_rope = ROPE_NEOX,
        .experts = EXPERTS_INSTEAD,
        .scores = ROUTER_SOFTMAX,
    },
    {
        .title = "Granite 3",
        .types = {"granite"},
        .gguf = "granite",
        DEFAULTS(granite_defaults),
        .norms = NORMS_BEFORE,
        .rope = ROPE_NEOX,
        .gguf_rope = ROPE_NORM,
        .rope_layers = ROPE_BY_SWITCH,
        .divides_logits = true,
        .attn_scale = ATTN_SCALE_FACTOR,
    },
    {
        .title = "Granite 3 MoE",
        .types = {"granitemoe", "granitemoeshared"},
        .gguf = "granitemoe",
        DEFAULTS(granitemoe_defaults),
        .norms = NORMS_BEFORE,
        .rope = ROPE_NEOX,
        .gguf_rope = ROPE_NORM,
        .rope_layers = ROPE_BY_SWITCH,
        .divides_logits = true,
        .attn_scale = ATTN_SCALE_FACTOR,
        .experts = EXPERTS_INSTEAD,
        .scores = ROUTER_SOFTMAX_CHOSEN,
    },
    {
        .title = "Granite 4 (attention layers only)",
        .types = {"granitemoehybrid"},
        .gguf = "granitehybrid",
        DEFAULTS(granitehybrid_defaults),
        .written_as = {"granite", "granitemoe"},
        .norms = NORMS_BEFORE,
        .rope = ROPE_NEOX,
        .gguf_rope = ROPE_NORM,
        .rope_layers = ROPE_BY_SWITCH,
        .divides_logits = true,
        .attn_scale = ATTN_SCALE_FACTOR,
        .experts = EXPERTS_INSTEAD,
        .scores = ROUTER_SOFTMAX_CHOSEN,
        .shared_is_dense = true,
        .needs_layer_types = true,
    },
    {
        .title = "GLM-4",
        .types = {"glm"},
        .gguf = "chatglm",
        DEFAULTS(glm_defaults),
        GGUF_NAMES(fused_up),
        .norms = NORMS_BEFORE,
        .rope = ROPE_NORM,
        .gguf_rope = ROPE_NORM,
    },
    {
        .title = "GLM-4-0414",
        .types = {"glm4"},
        .gguf = "glm4",
        DEFAULTS(glm_defaults),
        CONFIG_NAMES(norms_glm4),
        GGUF_NAMES(fused_up),
        .norms = NORMS_BOTH,
        .rope = ROPE_NORM,
        .gguf_rope = ROPE_NORM,
    },
    {
        .title = "GLM-4.5 and 4.6",
        .types = {"glm4_moe"},
        .gguf = "glm4moe",
        DEFAULTS(glm4_moe_defaults),
        GGUF_NAMES(ffn_norm_as_post),
        .norms = NORMS_BEFORE,
        .qk_norm = QK_NORM_HEADS,
        .qk_norm_is_optional = true,
        .rope = ROPE_NEOX,
        .gguf_rope = ROPE_NEOX,
        .experts = EXPERTS_INSTEAD,
        .scores = ROUTER_SIGMOID,
        .groups = GROUPS_BY_TOP2,
        .normalize_eps = 1e-20f,
        .correction = CORRECTION_REQUIRED,
    },
    {
        .title = "GLM-4.7-Flash",
        .types = {"glm4_moe_lite"},
        DEFAULTS(glm4_moe_lite_defaults),
        .written_as = {"deepseek2", "deepseek2"},
        .norms = NORMS_BEFORE,
        .rope = ROPE_NORM,
        .has_mla = true,
        .experts = EXPERTS_INSTEAD,
        .scores = ROUTER_SIGMOID,
        .groups = GROUPS_BY_TOP2,
        .normalize_eps = 1e-20f,
        .correction = CORRECTION_REQUIRED,
    },
    {
        .title = "gpt-oss",
        .types = {"gpt_oss"},
        .gguf = "gpt-oss",
        DEFAULTS(gpt_oss_defaults),
        GGUF_NAMES(ffn_norm_as_post),
        CONFIG_NAMES(gpt_oss_names),
        .norms = NORMS_BEFORE,
        .activation = ACTIVATION_SWIGLU_OAI,
        .needs_biases = true,
        .has_sinks = true,
        .rope = ROPE_NEOX,
        .gguf_rope = ROPE_NEOX,
        .needs_scaling = true,
        .yarn_is_exact = true,
        .window = WINDOW_BY_PERIOD,
        .window_period = 2,
        .experts = EXPERTS_INSTEAD,
        .scores = ROUTER_SOFTMAX_CHOSEN,
        .has_router_bias = true,
    },
    {
        .title = "DeepSeek V2",
        .types = {"deepseek_v2"},
        .gguf = "deepseek2",
        DEFAULTS(deepseek_v2_defaults),
        .norms = NORMS_BEFORE,
        .rope = ROPE_NORM,
        .gguf_rope = ROPE_NORM,
        .has_mla = true,
        .experts = EXPERTS_INSTEAD,
        .scores = ROUTER_SOFTMAX,
        .groups = GROUPS_BY_MAX,
        .groups_are_named = true,
        .correction = CORRECTION_OPTIONAL,
    },
    {
        .title = "DeepSeek V3 and R1",
        .types = {"deepseek_v3", "kimi_k2"},
        .gguf = "deepseek2",
        WHEN_IS(EXPERT_SCORES, 2),
        .when_tensor = ".exp_probs_b.bias", /* early files do not name the scores */
        DEFAULTS(deepseek_v3_defaults),
        .norms = NORMS_BEFORE,
        .rope = ROPE_NORM,
        .gguf_rope = ROPE_NORM,
        .has_mla = true,
        .experts = EXPERTS_INSTEAD,
        .scores = ROUTER_SIGMOID,
        .groups = GROUPS_BY_TOP2,
        .normalize_eps = 1e-20f,
        .correction = CORRECTION_REQUIRED,
    },
    {
        .title = "Seed-OSS",
        .types = {"seed_oss"},
        .gguf = "seed_oss",
        DEFAULTS(seed_oss_defaults),
        GGUF_NAMES(ffn_norm_as_post),
        .norms = NORMS_BEFORE,
        .needs_biases = true,
        .rope = ROPE_NEOX,
        .gguf_rope = ROPE_NEOX,
    },
    {
        .title = "ERNIE 4.5 (dense)",
        .types = {"ernie4_5"},
        .gguf = "ernie4_5",
        DEFAULTS(ernie4_5_defaults),
        .norms = NORMS_BEFORE,
        .rope = ROPE_NORM,
        .gguf_rope = ROPE_NORM,
    },
    {
        .title = "dots.llm1",
        .types = {"dots1"},
        .gguf = "dots1",
        DEFAULTS(dots1_defaults),
        .norms = NORMS_BEFORE,
        .qk_norm = QK_NORM_HEADS,
        .rope = ROPE_NEOX,
        .gguf_rope = ROPE_NEOX,
        .window = WINDOW_FROM_LAYER,
        .experts = EXPERTS_INSTEAD,
        .scores = ROUTER_SIGMOID,
        .groups = GROUPS_BY_TOP2,
        .normalize_eps = 1e-20f,
        .correction = CORRECTION_REQUIRED,
    },
    {
        .title = "Helium",
        .types = {"helium"},
        DEFAULTS(helium_defaults),
        .norms = NORMS_BEFORE,
        .rope = ROPE_NORM,
    },
    {
        .title = "MiniMax-M2",
        .types = {"minimax_m2"},
        .gguf = "minimax-m2",
        DEFAULTS(minimax_m2_defaults),
        .norms = NORMS_BEFORE,
        .qk_norm = QK_NORM_WHOLE,
        .rope = ROPE_NEOX,
        .gguf_rope = ROPE_NEOX,
        .experts = EXPERTS_INSTEAD,
        .scores = ROUTER_SIGMOID,
        .correction = CORRECTION_REQUIRED,
    },
    {
        .title = "Command R, R+, Aya (Cohere)",
        .types = {"cohere"},
        .gguf = "command-r",
        DEFAULTS(cohere_defaults),
        .norm = NORM_LAYER,
        .norms = NORMS_BEFORE,
        .qk_norm = QK_NORM_EACH_HEAD,
        .qk_norm_is_optional = true,
        .is_parallel = true,
        .rope = ROPE_NORM,
        .gguf_rope = ROPE_NORM,
    },
    {
        .title = "Command R7B and A (Cohere 2)",
        .types = {"cohere2"},
        .gguf = "cohere2",
        DEFAULTS(cohere2_defaults),
        .norm = NORM_LAYER,
        .norms = NORMS_BEFORE,
        .is_parallel = true,
        .rope = ROPE_NORM,
        .gguf_rope = ROPE_NORM,
        .rope_layers = ROPE_IN_WINDOWS,
        .window = WINDOW_BY_PERIOD,
        .window_period = 4,
    },
    {
        .title = "EXAONE 4",
        .types = {"exaone4"},
        .gguf = "exaone4",
        DEFAULTS(exaone4_defaults),
        CONFIG_NAMES(norms_after),
        .norms = NORMS_AFTER,
        .qk_norm = QK_NORM_HEADS,
        .rope = ROPE_NEOX,
        .gguf_rope = ROPE_NEOX,
        .rope_layers = ROPE_IN_WINDOWS,
        .window = WINDOW_BY_PERIOD,
        .window_period = 4,
    },
};
const size_t n_architecture_rows = COUNT(architecture_rows);
