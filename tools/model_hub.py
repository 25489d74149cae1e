"""A row's weights in the form found on hubs: the keys that config.json had before transformers 5
(rope_theta, rope_scaling, torch_dtype, defaults omitted), the names and layouts of released files,
and the tensors that a text model must ignore. tools/model_draw.py explains how a hub tensor is
assembled from those of the first form."""

import copy
import math
import re


def contiguous(shape):
    return [math.prod(shape[axis + 1:]) for axis in range(len(shape))]


def whole(spec):
    return {"from": spec["name"], "offset": 0, "shape": spec["shape"],
            "strides": contiguous(spec["shape"])}


def junk(name, *shape):
    """A tensor that must be ignored."""
    return {"name": name, "shape": list(shape), "mean": 0.0, "scale": 1.0}


class Hub:
    def __init__(self, golden):
        self.config = copy.deepcopy(golden["config"])
        self.specs = {spec["name"]: spec for spec in golden["tensors"]}
        self.tensors = []

    # The configuration.

    def drop(self, *keys):
        for key in keys:
            self.config.pop(key)

    def classic(self, *left_out, old_type=False):
        """Adds top-level rope keys and torch_dtype, and removes keys that older files lack."""
        config = self.config
        config["torch_dtype"] = config.pop("dtype").replace("float32", "bfloat16")
        config["transformers_version"] = "4.51.3"
        rope = config.pop("rope_parameters")
        if "full_attention" in rope:
            local = rope["sliding_attention"]
            rope = rope["full_attention"]
            if local["rope_theta"] != rope["rope_theta"]:
                config["rope_local_base_freq"] = local["rope_theta"]
        config["rope_theta"] = rope.pop("rope_theta")
        if "partial_rotary_factor" in rope:
            config["partial_rotary_factor"] = rope.pop("partial_rotary_factor")
        kind = rope.pop("rope_type")
        if kind == "default":
            config["rope_scaling"] = None
        else:
            config["rope_scaling"] = {"type" if old_type else "rope_type": kind, **rope}
        self.drop(*left_out)

    def wrap(self, model_type, architecture, vision, **more):
        """The configuration of a vision model, with this one inside."""
        text = self.config
        text.pop("architectures")
        self.config = {"architectures": [architecture], "model_type": model_type,
                       "torch_dtype": "bfloat16", "transformers_version": "4.57.1", **more,
                       "text_config": text, "vision_config": vision}

    # The tensors.

    def add(self, *tensors):
        self.tensors += tensors

    def rename(self, pattern, new):
        for name in self.specs:
            changed = re.sub(pattern, new, name)
            if changed != name:
                self.add({"name": changed, "from": name})

    def stack(self, experts, new, *kinds):
        """Joins tensors of single experts into one of all experts, with `kinds` one after
        another."""
        found = {}
        for name, spec in self.specs.items():
            match = re.fullmatch(experts, name)
            if match and match["kind"] in kinds:
                key = (match["prefix"], int(match["expert"]))
                found.setdefault(key, {})[match["kind"]] = spec
        for prefix in sorted({key[0] for key in found}):
            every = [found[key] for key in sorted(found) if key[0] == prefix]
            parts = [whole(of[kind]) for of in every for kind in kinds]
            rows, columns = parts[0]["shape"]
            self.add({"name": prefix + new, "shape": [len(every), rows * len(kinds), columns],
                      "parts": parts})

    def split(self, pattern, *kinds):
        """Splits a tensor of all experts, [experts][rows of all kinds][columns], into single
        ones."""
        for name, spec in self.specs.items():
            match = re.fullmatch(pattern, name)
            if not match:
                continue
            experts, rows, columns = spec["shape"]
            rows //= len(kinds)
            for expert in range(experts):
                for index, kind in enumerate(kinds):
                    offset = (expert * len(kinds) + index) * rows * columns
                    self.add({"name": f"{match['prefix']}{expert}.{kind}.weight",
                              "shape": [rows, columns],
                              "parts": [{"from": name, "offset": offset, "shape": [rows, columns],
                                         "strides": [columns, 1]}]})

    def next_token_layer(self):
        """Adds a layer for multi-token prediction: the usual tensors, and its own."""
        hidden, layer = self.config["hidden_size"], self.config["num_hidden_layers"]
        self.config["num_nextn_predict_layers"] = 1
        last = f"model.layers.{layer - 1}."
        for name, spec in self.specs.items():
            if name.startswith(last):
                self.add(junk(name.replace(last, f"model.layers.{layer}."), *spec["shape"]))
        prefix = f"model.layers.{layer}."
        self.add(junk(prefix + "enorm.weight", hidden), junk(prefix + "hnorm.weight", hidden),
                 junk(prefix + "eh_proj.weight", hidden, 2 * hidden),
                 junk(prefix + "embed_tokens.weight", self.config["vocab_size"], hidden),
                 junk(prefix + "shared_head.norm.weight", hidden),
                 junk(prefix + "shared_head.head.weight", self.config["vocab_size"], hidden))


EXPERT = r"(?P<prefix>.*mlp\.experts)\.(?P<expert>\d+)\.(?P<kind>\w+)\.weight"
SIGLIP = {"model_type": "siglip_vision_model", "hidden_size": 16, "image_size": 28,
          "intermediate_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1,
          "patch_size": 14, "vision_use_head": False}
PIXTRAL = {"model_type": "pixtral", "hidden_size": 16, "image_size": 28, "head_dim": 8,
           "intermediate_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1,
           "patch_size": 14, "num_channels": 3, "rope_theta": 10000.0}


def llama2(hub):
    hub.classic("head_dim", "num_key_value_heads", "attention_bias", "mlp_bias",
                "attention_dropout")
    hub.drop("rope_theta")
    for layer in range(hub.config["num_hidden_layers"]):
        hub.add(junk(f"model.layers.{layer}.self_attn.rotary_emb.inv_freq", 4))


def llama_bias(hub):
    """Some files contain the tied head a second time."""
    hub.classic("head_dim")
    hub.add({"name": "model.embed_tokens.weight", "from": "model.embed_tokens.weight"},
            {"name": "lm_head.weight", "from": "model.embed_tokens.weight"})


def ministral3(hub):
    rope = hub.config["rope_parameters"]
    rope["type"] = rope["rope_type"]
    hub.wrap("mistral3", "Mistral3ForConditionalGeneration", PIXTRAL, image_token_index=10,
             multimodal_projector_bias=False, projector_hidden_act="gelu", spatial_merge_size=2,
             vision_feature_layer=-1)
    hub.rename(r"^", "language_model.")
    hub.add(junk("vision_tower.ln_pre.weight", 16),
            junk("vision_tower.transformer.layers.0.attention.q_proj.weight", 16, 16),
            junk("vision_tower.transformer.layers.0.attention_norm.weight", 16),
            junk("multi_modal_projector.norm.weight", 16))


def qwen2(hub):
    """A window that is named and not used."""
    hub.classic("layer_types", "attention_dropout")
    hub.config.update(sliding_window=8, max_window_layers=1)


def qwen2_window(hub):
    hub.classic("layer_types")


def qwen2_moe(hub):
    """A window that is named and not used."""
    hub.classic("layer_types")
    hub.config.update(sliding_window=8, max_window_layers=1)


def qwen3(hub):
    hub.classic("layer_types")


def qwen3_moe(hub):
    hub.classic()
    hub.config["num_experts"] = hub.config.pop("num_local_experts")


def qwen3_moe_plain(hub):
    hub.stack(EXPERT, ".gate_up_proj", "gate_proj", "up_proj")
    hub.stack(EXPERT, ".down_proj", "down_proj")


def gemma(hub):
    """The first files name a different activation than they use."""
    hub.classic("tie_word_embeddings", "use_bidirectional_attention")
    hub.config.update(hidden_act="gelu", hidden_activation=None)


def gemma2(hub):
    hub.classic("layer_types", "use_bidirectional_attention", "tie_word_embeddings")
    hub.config["hidden_act"] = hub.config["hidden_activation"]
    hub.config["cache_implementation"] = "hybrid"


def gemma3(hub):
    """As released: most of the text configuration is omitted, so defaults apply."""
    hub.classic("layer_types", "_sliding_window_pattern", "use_bidirectional_attention",
                "attention_bias", "attention_dropout", "attn_logit_softcapping",
                "final_logit_softcapping", "hidden_activation", "tie_word_embeddings",
                "num_attention_heads", "num_key_value_heads", "transformers_version")
    hub.drop("rope_theta", "rope_local_base_freq")
    hub.wrap("gemma3", "Gemma3ForConditionalGeneration", SIGLIP, boi_token_index=90,
             eoi_token_index=91, image_token_index=92, mm_tokens_per_image=1)
    hub.rename(r"^", "language_model.")
    hub.add(junk("vision_tower.vision_model.embeddings.position_embedding.weight", 4, 16),
            junk("vision_tower.vision_model.encoder.layers.0.self_attn.q_proj.weight", 16, 16),
            junk("vision_tower.vision_model.encoder.layers.0.self_attn.q_proj.bias", 16),
            junk("multi_modal_projector.mm_input_projection_weight", 16, 32),
            junk("multi_modal_projector.mm_soft_emb_norm.weight", 16))


def gemma4_config(hub):
    layers = hub.config.pop("per_layer_config")
    full = next(iter(layers.values()))
    hub.config["global_head_dim"] = full["head_dim"]
    hub.config["num_global_key_value_heads"] = full.get("num_key_value_heads")
    for key in ("moe_intermediate_size", "num_experts", "top_k_experts"):
        if hub.config[key] is None:
            hub.drop(key)


def gemma4(hub):
    """In released files, layers that share another layer's KV still have their own projections."""
    gemma4_config(hub)
    for name in list(hub.specs):
        for layer, of in ((3, 1), (4, 1), (5, 2)):
            if re.search(rf"layers\.{of}\.self_attn\.(k_proj|v_proj|k_norm)", name):
                new = name.replace(f"layers.{of}.", f"layers.{layer}.")
                hub.add(junk(new.replace("model.", "model.language_model.", 1),
                             *hub.specs[name]["shape"]))
    vision = {"model_type": "gemma4_vision", "hidden_size": 16, "intermediate_size": 16,
              "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 8,
              "num_hidden_layers": 1, "patch_size": 4}
    hub.wrap("gemma4", "Gemma4ForConditionalGeneration", vision, audio_config=None,
             image_token_id=90, tie_word_embeddings=True)
    hub.rename(r"^model\.", "model.language_model.")
    hub.add(junk("model.vision_tower.patch_embedder.input_proj.weight", 16, 48),
            junk("model.embed_vision.embedding_projection.weight", 32, 16))


def gemma4_moe(hub):
    gemma4_config(hub)


def phi3_longrope(hub):
    hub.classic(old_type=True)
    scaling = hub.config["rope_scaling"]
    scaling.pop("original_max_position_embeddings")


def smollm3(hub):
    hub.classic("layer_types")


def granitehybrid(hub):
    hub.classic("time_step_limit")
    hub.config["layer_types"] = ["attention"] * len(hub.config["layer_types"])
    hub.config.update(normalization_function="rmsnorm", init_method="mup")
    if hub.config["position_embedding_type"] is None:
        hub.config["position_embedding_type"] = "nope"


def glm4_moe(hub):
    hub.classic("output_router_logits")
    hub.next_token_layer()


def glm4_moe_lite(hub):
    hub.classic("mlp_layer_types", "qk_head_dim", "rope_interleave", "output_router_logits")
    hub.config.update(first_k_dense_replace=1, topk_method="noaux_tc", scoring_func="sigmoid",
                      partial_rotary_factor=1.0)
    hub.next_token_layer()


def gpt_oss(hub):
    """Experts as MXFP4: blocks [experts][out][in / 32][16] and their scales."""
    hub.classic("swiglu_alpha", "torch_dtype")
    hub.config["experts_per_token"] = hub.config["num_experts_per_tok"]
    hub.config["initial_context_length"] = 16
    hub.config["quantization_config"] = {
        "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router",
                                   "model.embed_tokens", "lm_head"], "quant_method": "mxfp4"}
    for name, spec in hub.specs.items():
        if spec.get("draw") == "mxfp4":
            experts, n_in, n_out = spec["shape"]
            hub.add({"name": name + "_blocks", "shape": [experts, n_out, n_in // 32, 16],
                     "mxfp4": "blocks", "from": name},
                    {"name": name + "_scales", "shape": [experts, n_out, n_in // 32],
                     "mxfp4": "scales", "from": name})


def deepseek_v2(hub):
    hub.classic("head_dim", "qk_head_dim", "mlp_bias", "output_router_logits", old_type=True)
    hub.config.update(scoring_func="softmax", moe_layer_freq=1, ep_size=1, seq_aux=True,
                      aux_loss_alpha=0.001)


def deepseek_v2_lite(hub):
    hub.drop("head_dim", "qk_head_dim")
    hub.stack(EXPERT, ".gate_up_proj", "gate_proj", "up_proj")
    hub.stack(EXPERT, ".down_proj", "down_proj")


def deepseek_v3(hub):
    hub.classic("head_dim", "qk_head_dim", "rope_interleave", "output_router_logits",
                old_type=True)
    hub.config.update(scoring_func="sigmoid", topk_method="noaux_tc", moe_layer_freq=1, ep_size=1)
    hub.next_token_layer()


def mistral4(hub):
    rope = hub.config["rope_parameters"]
    rope["type"] = rope["rope_type"]
    hub.drop("head_dim", "qk_head_dim")
    hub.wrap("mistral3", "Mistral3ForConditionalGeneration", PIXTRAL, image_token_index=10,
             multimodal_projector_bias=False, projector_hidden_act="gelu", spatial_merge_size=2,
             vision_feature_layer=-1)
    hub.rename(r"^model\.", "model.language_model.")
    hub.add(junk("model.vision_tower.ln_pre.weight", 16),
            junk("model.multi_modal_projector.norm.weight", 16))


def dots1(hub):
    hub.classic("layer_types", "output_router_logits")
    hub.config.update(scoring_func="noaux_tc", moe_layer_freq=1, sliding_window=None)


def minimax_m2(hub):
    hub.classic("output_router_logits", "partial_rotary_factor")
    hub.config.update(rotary_dim=8, scoring_func="sigmoid", use_qk_norm=True,
                      qk_norm_type="per_layer", use_routing_bias=True, use_mtp=True,
                      num_mtp_modules=1, shared_intermediate_size=0)


def cohere(hub):
    hub.classic("tie_word_embeddings", "attention_bias")
    hub.config["model_max_length"] = 4096  # the real limit


def cohere2(hub):
    hub.classic("layer_types", "head_dim", "tie_word_embeddings")
    hub.config.update(sliding_window_pattern=4, use_gated_activation=True, use_parallel_block=True,
                      position_embedding_type="rope_gptj", rotary_pct=1.0, layer_switch=4,
                      order_of_interleaved_layers="local_attn_first")


def exaone4(hub):
    hub.classic()
    hub.config["sliding_window_pattern"] = "LLLG"


def exaone4_full(hub):
    hub.classic()
    hub.config["sliding_window_pattern"] = None


FORMS = {"cohere_qk_norm": cohere, "gemma2_scale": gemma2, "granitehybrid_dense": granitehybrid,
         "granitehybrid_moe": granitehybrid, "granitehybrid_rope": granitehybrid,
         "phi3_short": phi3_longrope}


def make(row, golden):
    """Uses the function named like the row; rows without a function only get the older keys."""
    hub = Hub(golden)
    FORMS.get(row.name, globals().get(row.name, Hub.classic))(hub)
    return {"config": hub.config, "tensors": hub.tensors}
