/* Names of a directory's tensors: which prefix replaces "model." here, and which tensors do not
 * belong to the text model. Found once, when the checkpoint is opened. A tensor that is neither
 * marked here nor used by the model makes the loader reject the file, as it should. These lists are
 * for tensors that can safely be ignored, not for unknown ones. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ascii.h"
#include "base/byte_view.h"
#include "base/json.h"
#include "model/files/checkpoint_files.h"

enum { MAX_NAME_BYTES = 512, LEADING_PARTS = 3 };

/* Prefixes that may replace "model.", longer ones first. */
static const char *const text_prefixes[] = {
    "model.language_model.model.",
    "model.language_model.",
    "language_model.model.",
    "model.text_model.",
    "thinker.model.",
    "llm.model.",
    "language.model.",
    "model.",
    "language_model.",
    "text_model.",
    "transformer.",
    "", /* a base model, saved without its head */
};

static const char *const head_prefixes[] = {"",     "language_model.", "thinker.",
                                            "llm.", "language.",       "model."};

/* Parts of a multimodal model without text: one of the first parts of a name. */
static const char *const foreign_parts[] = {
    /* images */
    "vision_tower",
    "vision_model",
    "vision_encoder",
    "vision_backbone",
    "vision_embed_tokens",
    "vision",
    "visual",
    "visual_tokenizer",
    "vte",
    "vit",
    "vpm",
    "image_newline",
    "view_seperator",
    "embed_vision",
    "patch_merger",
    "gen_vision_model",
    "gen_aligner",
    "gen_embed",
    "gen_head",
    /* from images to text */
    "multi_modal_projector",
    "mm_projector",
    "vision_projection",
    "vision_proj",
    "vision_language_adapter",
    "image_projection",
    "pre_mm_projector_norm",
    "projector",
    "connector",
    "aligner",
    "resampler",
    "mlp1",
    /* sound */
    "audio_tower",
    "audio_model",
    "audio_encoder",
    "audio_projection_layer",
    "embed_audio",
    "apm",
    "talker",
    "token2wav",
    "code2wav",
    "tts",
    /* layers that predict further tokens (MTP) */
    "mtp",
};

/* Ends of names to ignore: tables that follow from config.json, and FP8 scales of activations and
 * of a KV cache, which radish does not use. */
static const char *const foreign_ends[] = {
    "rotary_emb.inv_freq",
    "rotary_emb.cos_cached",
    "rotary_emb.sin_cached",
    ".input_scale",
    ".activation_scale",
    "_activation_scale",
    ".k_scale",
    ".v_scale",
    ".kv_scale",
    ".output_scale",
    ".q_scale",
};

/* Tensors of formats that radish does not read, in case config.json does not say so. */
static const char *const quantised_ends[][2] = {
    {".qweight", "AWQ or GPTQ"},  {".weight.absmax", "bitsandbytes"},
    {".SCB", "bitsandbytes"},     {".weight_packed", "compressed-tensors"},
    {".weight_scale_2", "NVFP4"},
};

static const char *after(const char *name, const char *prefix)
{
    size_t len = strlen(prefix);
    return strncmp(name, prefix, len) == 0 ? name + len : NULL;
}

/* Whether the rest of a name after a prefix is that of a text model. */
static bool is_text(const char *rest)
{
    return after(rest, "embed_tokens.") || after(rest, "layers.0.") || after(rest, "wte.") ||
           after(rest, "h.0.");
}

static const char *find_text_prefix(const struct checkpoint *c)
{
    for (size_t p = 0; p < sizeof text_prefixes / sizeof *text_prefixes; p++)
        for (size_t i = 0; i < c->n_tensors; i++) {
            const char *rest = after(c->tensors[i].name, text_prefixes[p]);
            if (rest && is_text(rest))
                return text_prefixes[p];
        }
    return "model.";
}

static const char *find_head_prefix(const struct checkpoint_files *f)
{
    char name[64];
    for (size_t p = 0; p < sizeof head_prefixes / sizeof *head_prefixes; p++) {
        snprintf(name, sizeof name, "%slm_head.weight", head_prefixes[p]);
        if (checkpoint_lookup(f, name))
            return head_prefixes[p];
    }
    return "";
}

static bool has_foreign_part(const char *name)
{
    for (int part = 0; part < LEADING_PARTS && *name; part++) {
        size_t len = strcspn(name, ".");
        for (size_t i = 0; i < sizeof foreign_parts / sizeof *foreign_parts; i++)
            if (strlen(foreign_parts[i]) == len && memcmp(name, foreign_parts[i], len) == 0)
                return true;
        name += len + (name[len] == '.');
    }
    return false;
}

/* Layers after the last one that config.json counts predict further tokens (DeepSeek, GLM). */
static bool is_extra_layer(const struct checkpoint_files *f, const char *name, uint64_t n_layers)
{
    const char *rest = after(name, f->text_prefix);
    const char *number = rest ? after(rest, "layers.") : NULL;
    return number && ascii_is_digit(*number) && strtoull(number, NULL, 10) >= n_layers;
}

static uint64_t count_layers(const struct json *config)
{
    static const char *const keys[] = {"num_hidden_layers", "n_layers", "n_layer", "num_layers"};
    uint64_t n;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (json_to_uint64(json_get(config, keys[i]), &n))
            return n;
    return UINT64_MAX;
}

static bool is_foreign(const struct checkpoint_files *f, const char *name, uint64_t n_layers)
{
    for (size_t i = 0; i < sizeof foreign_ends / sizeof *foreign_ends; i++)
        if (string_ends(name, foreign_ends[i]))
            return true;
    return has_foreign_part(name) || is_extra_layer(f, name, n_layers);
}

int checkpoint_read_names(struct checkpoint_files *f, struct error *err)
{
    uint64_t n_layers = count_layers(f->c.text_config);
    f->text_prefix = find_text_prefix(&f->c);
    f->head_prefix = find_head_prefix(f);
    for (size_t i = 0; i < f->c.n_tensors; i++) {
        struct checkpoint_tensor *t = &f->c.tensors[i];
        t->is_ignored |= is_foreign(f, t->name, n_layers);
        for (size_t k = 0; k < sizeof quantised_ends / sizeof *quantised_ends && !t->is_ignored;
             k++)
            if (string_ends(t->name, quantised_ends[k][0]))
                return checkpoint_refuse(
                    &f->c, err,
                    "quantized with %s (it has a tensor %s), which radish does not read; use a "
                    "GGUF, MLX or FP8 version, or one that is not quantized",
                    quantised_ends[k][1], shown_name(t->name, strlen(t->name)).text);
    }
    return 0;
}

struct checkpoint_tensor *checkpoint_find(const struct checkpoint *c, const char *name)
{
    const struct checkpoint_files *f = (const struct checkpoint_files *)c;
    char stored[MAX_NAME_BYTES];
    const char *rest = after(name, "model."), *prefix = f->text_prefix;
    if (!rest && after(name, "lm_head")) {
        rest = name;
        prefix = f->head_prefix;
    }
    if (rest && prefix &&
        snprintf(stored, sizeof stored, "%s%s", prefix, rest) < (int)sizeof stored) {
        struct checkpoint_tensor *t = checkpoint_lookup(f, stored);
        if (t)
            return t;
    }
    return checkpoint_lookup(f, name);
}
