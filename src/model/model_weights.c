/* From the names of a checkpoint's tensors to the slots of a model; see architecture.h. Used by
 * the thread that loads. A well-formed file may still lie about its shapes. Every tensor is
 * checked against the hyperparameters, and one without a slot is rejected, because computing
 * without it would silently give wrong answers. */
#include "model/model_internal.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/byte_view.h"

/* Where a tensor goes. */
struct target {
    struct loader *l;
    uint32_t layer; /* NO_LAYER: the model's */
    enum slot slot;
    uint32_t rows, cols; /* expected, of one expert */
};

/* A name as in the file. */
struct full_name {
    char text[160];
};

/* Directories are asked for the most common names; the checkpoint maps them to the prefix of the
 * text model in a multimodal one. */
static struct full_name full_name(const struct target *t, const char *name)
{
    struct full_name n;
    bool is_file = is_gguf(t->l), is_head = t->slot == SLOT_OUTPUT;
    const char *prefix = is_file || is_head ? "" : "model.";
    if (t->layer == NO_LAYER)
        snprintf(n.text, sizeof n.text, "%s%s", prefix, name);
    else
        snprintf(n.text, sizeof n.text, "%s%s.%" PRIu32 ".%s", prefix, is_file ? "blk" : "layers",
                 t->layer, name);
    return n;
}

/* The name of one expert's tensor. */
static struct full_name expert_name(const struct target *t, const char *name, uint32_t expert)
{
    const char *at = strstr(name, "%u");
    char text[96];
    snprintf(text, sizeof text, "%.*s%" PRIu32 "%s", (int)(at - name), name, expert, at + 2);
    return full_name(t, text);
}

static struct tensor_names names_of(const struct loader *l, enum slot slot)
{
    return architecture_names(l->arch, is_gguf(l), slot);
}

/* Whether a slot is the second of two fused parts. */
static bool is_second(enum slot slot)
{
    return slot == SLOT_UP || slot == SLOT_UP_BIAS || slot == SLOT_EXPERT_UP ||
           slot == SLOT_EXPERT_UP_BIAS || slot == SLOT_SHARED_UP;
}

/* Where q, k or v begins in a fused tensor, and the size of all three. */
static uint32_t qkv_first(const struct target *t, uint32_t *whole)
{
    uint32_t q = extent_value(&t->l->m->hparams, t->layer, Q_DIM),
             kv = extent_value(&t->l->m->hparams, t->layer, KV_DIM);
    *whole = q + 2 * kv;
    if (t->slot == SLOT_Q || t->slot == SLOT_Q_BIAS)
        return 0;
    return t->slot == SLOT_K || t->slot == SLOT_K_BIAS ? q : q + kv;
}

static void count_params(struct loader *l, const struct weight *w)
{
    l->m->n_params += (uint64_t)w->rows * w->cols;
}

/* Takes one matrix from one tensor. 1: there is no tensor of that name. */
static int take_matrix_from(const struct target *t, const char *name, enum layout layout,
                            struct weight *out)
{
    struct loader *l = t->l;
    struct checkpoint *c = l->m->checkpoint;
    struct weight whole;
    uint32_t rows = t->rows, first = 0;
    if (layout == LAYOUT_QKV) {
        first = qkv_first(t, &rows);
    } else if (layout == LAYOUT_HALVES) {
        first = is_second(t->slot) ? rows : 0;
        rows *= 2;
    } else if (layout == LAYOUT_KV_B) {
        const struct mla_shape *mla = &l->m->hparams.mla;
        rows = extent_value(&l->m->hparams, t->layer, HEADS) * (mla->nope_dim + mla->value_dim);
        int found = checkpoint_weight(c, name, rows, mla->kv_rank, &whole, l->settings.err);
        return found ? found : copy_kv_b(l, &whole, t->slot == SLOT_K_B, out);
    }
    int found = checkpoint_weight(c, name, rows, t->cols, &whole, l->settings.err);
    if (found == 0)
        *out = weight_slice(&whole, first, 1, t->rows);
    return found;
}

static void *slot_place(const struct target *t)
{
    struct model *m = t->l->m;
    return t->layer == NO_LAYER ? (char *)m + slots[t->slot].place
                                : (char *)&m->layers[t->layer] + slots[t->slot].place;
}

static int refuse_missing(const struct target *t)
{
    struct tensor_names names = names_of(t->l, t->slot);
    for (size_t i = 0; i < names.count; i++)
        if (names.names[i].slot == t->slot) {
            bool is_one = strstr(names.names[i].name, "%u") != NULL;
            struct full_name n = is_one ? expert_name(t, names.names[i].name, 0)
                                        : full_name(t, names.names[i].name);
            size_t len = strlen(n.text);
            bool is_full = slots[t->slot].kind != MATRIX || is_gguf(t->l);
            return refuse(
                t->l, "the tensor %s%s is missing", n.text,
                is_full || (len > 7 && strcmp(n.text + len - 7, ".weight") == 0) ? "" : ".weight");
        }
    return refuse(t->l, "a tensor is missing");
}

/* Tries a slot's names in order with `take_from`, which returns 1 if there is no such tensor and -1
 * if it does not fit. If none fits, reports the first that did not. */
static int try_names(const struct target *t, enum presence presence, void *out,
                     int (*take_from)(const struct target *t, const struct tensor_name *name,
                                      void *out))
{
    struct tensor_names names = names_of(t->l, t->slot);
    struct error first = {0}, *err = t->l->settings.err;
    bool has_failed = false;
    for (size_t i = 0; i < names.count; i++) {
        if (names.names[i].slot != t->slot)
            continue;
        int found = take_from(t, &names.names[i], out);
        if (found == 0)
            return 0;
        if (found < 0 && !has_failed)
            first = *err;
        has_failed |= found < 0;
    }
    if (has_failed) {
        *err = first;
        return -1;
    }
    return presence == OPTIONAL ? 1 : refuse_missing(t);
}

static int take_matrix(const struct target *t, const struct tensor_name *name, void *out)
{
    struct weight w;
    int found = take_matrix_from(t, full_name(t, name->name).text, name->layout, &w);
    if (found)
        return found;
    count_params(t->l, &w);
    *(struct weight *)out = w;
    return 0;
}

/* Reads a whole tensor as floats, which may have more than one dimension. */
static int read_floats(struct loader *l, const char *name, uint32_t rows, uint32_t cols, float *out)
{
    struct checkpoint *c = l->m->checkpoint;
    struct weight w;
    if (rows == 1)
        return checkpoint_vector(c, name, out, cols, l->settings.err);
    int found = checkpoint_weight(c, name, rows, cols, &w, l->settings.err);
    for (uint32_t r = 0; found == 0 && r < rows; r++)
        weight_floats(&w, r, 0, cols, out + (size_t)r * cols);
    return found;
}

/* Reads all floats of a slot, [n_stacks][cols], from a tensor that may also hold those of other
 * slots. */
static int take_floats_from(const struct target *t, const struct tensor_name *name,
                            uint32_t n_stacks, float **out)
{
    struct loader *l = t->l;
    struct full_name full = full_name(t, name->name);
    uint32_t whole = t->cols, first = 0, step = 1;
    if (!checkpoint_find(l->m->checkpoint, full.text))
        return 1;
    if (name->layout == LAYOUT_QKV) {
        first = qkv_first(t, &whole);
    } else if (name->layout == LAYOUT_HALVES || name->layout == LAYOUT_PAIRS) {
        bool is_pairs = name->layout == LAYOUT_PAIRS;
        whole = 2 * t->cols;
        step = is_pairs ? 2 : 1;
        first = !is_second(t->slot) ? 0 : is_pairs ? 1 : t->cols;
    }
    float *all = arena_alloc_array(&l->m->memory, (size_t)n_stacks * whole + 1, sizeof *all);
    if (!all)
        return refuse_memory(l);
    int found = read_floats(l, full.text, n_stacks, whole, all);
    if (found)
        return found;
    for (size_t s = 0; s < n_stacks; s++)
        for (size_t i = 0; i < t->cols; i++)
            all[s * t->cols + i] = all[s * whole + first + i * step];
    l->m->n_params += (uint64_t)n_stacks * t->cols;
    *out = all;
    return 0;
}

static int take_vector(const struct target *t, const struct tensor_name *name, void *out)
{
    float *values = NULL;
    int found = take_floats_from(t, name, 1, &values);
    if (found)
        return found;
    if (slots[t->slot].kind == NORM && t->l->arch->adds_to_norm && !is_gguf(t->l))
        for (uint32_t i = 0; i < t->cols; i++)
            values[i] += 1;
    if (t->slot == SLOT_OUT_SCALE)
        *(float *)out = values[0];
    else
        *(const float **)out = values;
    return 0;
}

int take_floats(struct loader *l, const char *name, uint64_t n, float **out)
{
    if (!checkpoint_find(l->m->checkpoint, name))
        return 0;
    *out = arena_alloc_array(&l->m->memory, n + 1, sizeof **out);
    if (!*out)
        return refuse_memory(l);
    l->m->n_params += n;
    return checkpoint_vector(l->m->checkpoint, name, *out, n, l->settings.err);
}

static struct target target_of(struct loader *l, uint32_t layer, enum slot slot)
{
    return (struct target){l, layer, slot, extent_value(&l->m->hparams, layer, slots[slot].rows),
                           extent_value(&l->m->hparams, layer, slots[slot].cols)};
}

/* If an OPTIONAL tensor is absent, its slot is unchanged. */
static int take_slot(struct loader *l, uint32_t layer, enum slot slot, enum presence presence)
{
    struct target t = target_of(l, layer, slot);
    int found = try_names(&t, presence, slot_place(&t),
                          slots[slot].kind == MATRIX ? take_matrix : take_vector);
    return found < 0 ? -1 : 0;
}

static bool has_slot(struct loader *l, uint32_t layer, enum slot slot)
{
    struct target t = target_of(l, layer, slot);
    struct tensor_names names = names_of(l, slot);
    for (size_t i = 0; i < names.count; i++) {
        if (names.names[i].slot != slot)
            continue;
        struct full_name n = full_name(&t, names.names[i].name);
        char module[180];
        snprintf(module, sizeof module, "%s.weight", n.text);
        if (checkpoint_find(l->m->checkpoint, n.text) || checkpoint_find(l->m->checkpoint, module))
            return true;
    }
    return false;
}

/* Ignores tensors that a file has and the model does not use: keys and values of a layer that reads
 * those of another, or a head that is the embedding; and also the tensors that belong to them. */
static void ignore_slot(struct loader *l, uint32_t layer, enum slot slot)
{
    static const char *const ends[] = {"",        ".weight", ".bias",
                                       ".scales", ".biases", ".weight_scale_inv",
                                       "_blocks", "_scales", ".weight_scale"};
    struct target t = target_of(l, layer, slot);
    struct tensor_names names = names_of(l, slot);
    for (size_t i = 0; i < names.count; i++) {
        if (names.names[i].slot != slot || names.names[i].layout != LAYOUT_WHOLE)
            continue;
        struct full_name n = full_name(&t, names.names[i].name);
        for (size_t k = 0; k < sizeof ends / sizeof *ends; k++) {
            char name[200];
            snprintf(name, sizeof name, "%s%s", n.text, ends[k]);
            struct checkpoint_tensor *tensor = checkpoint_find(l->m->checkpoint, name);
            if (tensor)
                tensor->is_ignored = true;
        }
    }
}

static struct weight *expert_place(const struct target *t, struct expert_weights *experts,
                                   uint32_t e)
{
    return (struct weight *)((char *)&experts[e] + slots[t->slot].place);
}

/* Takes all experts of one slot, from one tensor each. */
static int take_each_expert(const struct target *t, const char *name,
                            struct expert_weights *experts)
{
    struct loader *l = t->l;
    for (uint32_t e = 0; e < l->m->hparams.router.n_experts; e++) {
        struct full_name full = expert_name(t, name, e);
        struct weight *w = expert_place(t, experts, e);
        int found = take_matrix_from(t, full.text, LAYOUT_WHOLE, w);
        if (found == 1 && e > 0)
            return refuse(l, "the tensor %s is missing", full.text);
        if (found)
            return found;
        count_params(l, w);
    }
    return 0;
}

/* Takes a stack as [experts][rows][cols], transposed if necessary; its rows may be those of gate
 * and up. */
static int take_stack(const struct target *t, const struct tensor_name *name, struct weight *out)
{
    struct loader *l = t->l;
    struct checkpoint *c = l->m->checkpoint;
    struct full_name full = full_name(t, name->name);
    uint64_t n = l->m->hparams.router.n_experts;
    uint32_t times = name->layout == LAYOUT_WHOLE || name->layout == LAYOUT_TRANSPOSED ? 1 : 2;
    bool is_turned = name->layout == LAYOUT_TRANSPOSED || name->layout == LAYOUT_TRANSPOSED_PAIRS;
    struct weight file;
    if (n * t->rows * times > UINT32_MAX || n * t->cols > UINT32_MAX)
        return refuse(l, "%" PRIu64 " experts of %" PRIu32 " rows are too many", n, t->rows);
    if (!is_turned)
        return checkpoint_weight(c, full.text, (uint32_t)n * t->rows * times, t->cols, out,
                                 l->settings.err);
    if (!checkpoint_find(c, full.text))
        return 1;
    int found = checkpoint_weight(c, full.text, (uint32_t)n * t->cols, t->rows * times, &file,
                                  l->settings.err);
    return found ? found
                 : copy_transposed(l, &file, (uint32_t)n, times == 2 && is_second(t->slot), times,
                                   out);
}

/* GGUF: the scale of each expert for a stack of NVFP4, in `out`; NULL if there are none. Gemma 4
 * uses the same name for a slot of its own. */
static int take_expert_scales(const struct target *t, const char *stack_name, float **out)
{
    struct loader *l = t->l;
    const char *end = strstr(stack_name, ".weight");
    char name[96];
    *out = NULL;
    if (!is_gguf(l) || !end || (t->slot == SLOT_EXPERT_DOWN && l->arch->norms_router_input))
        return 0;
    snprintf(name, sizeof name, "%.*s.scale", (int)(end - stack_name), stack_name);
    struct full_name full = full_name(t, name);
    uint32_t n = l->m->hparams.router.n_experts;
    const struct checkpoint_tensor *scales = checkpoint_find(l->m->checkpoint, full.text);
    if (!scales || scales->is_used) /* one scale for all */
        return 0;
    if (take_floats(l, full.text, n, out))
        return -1;
    for (uint32_t e = 0; e < n; e++)
        if (!isfinite((*out)[e]) || (*out)[e] == 0)
            return refuse(l, "%s holds %g, which is not a valid scale", full.text,
                          (double)(*out)[e]);
    return 0;
}

static int take_expert_matrix(const struct target *t, const struct tensor_name *name, void *out)
{
    uint32_t stride = t->rows, first = 0, step = 1;
    struct weight stack;
    float *scales;
    if (strstr(name->name, "%u"))
        return take_each_expert(t, name->name, out);
    int found = take_stack(t, name, &stack);
    if (found)
        return found;
    if (take_expert_scales(t, name->name, &scales))
        return -1;
    if (name->layout == LAYOUT_HALVES || name->layout == LAYOUT_PAIRS) {
        stride = 2 * t->rows;
        step = name->layout == LAYOUT_PAIRS ? 2 : 1;
        first = !is_second(t->slot) ? 0 : step == 2 ? 1 : t->rows;
    }
    for (uint32_t e = 0; e < t->l->m->hparams.router.n_experts; e++) {
        struct weight *w = expert_place(t, out, e);
        *w = weight_slice(&stack, e * stride + first, step, t->rows);
        if (scales)
            w->groups.scale = scales[e];
        count_params(t->l, w);
    }
    return 0;
}

static int take_expert_biases(const struct target *t, const struct tensor_name *name, void *out)
{
    struct expert_weights *experts = out;
    uint32_t n = t->l->m->hparams.router.n_experts;
    float *values = NULL;
    int found = take_floats_from(t, name, n, &values);
    if (found)
        return found;
    for (uint32_t e = 0; e < n; e++)
        *(const float **)((char *)&experts[e] + slots[t->slot].place) = values +
                                                                        (size_t)e * t->cols;
    return 0;
}

static int take_experts(struct loader *l, uint32_t layer)
{
    const struct architecture *a = l->arch;
    uint32_t n = l->m->hparams.router.n_experts;
    struct expert_weights *experts = arena_alloc_array(&l->m->memory, n, sizeof *experts);
    if (!experts)
        return refuse_memory(l);
    l->m->layers[layer].experts = experts;
    for (enum slot slot = SLOT_EXPERT_GATE; slot <= SLOT_EXPERT_DOWN_BIAS; slot++) {
        struct target t = target_of(l, layer, slot);
        bool is_matrix = slots[slot].kind == MATRIX;
        if (try_names(&t, is_matrix ? REQUIRED : OPTIONAL, experts,
                      is_matrix ? take_expert_matrix : take_expert_biases) < 0)
            return -1;
    }
    if (take_slot(l, layer, SLOT_ROUTER, REQUIRED) ||
        (a->has_router_bias && take_slot(l, layer, SLOT_ROUTER_BIAS, REQUIRED)))
        return -1;
    if (a->correction != CORRECTION_NONE &&
        take_slot(l, layer, SLOT_ROUTER_CORRECTION,
                  a->correction == CORRECTION_REQUIRED ? REQUIRED : OPTIONAL))
        return -1;
    if (a->norms_router_input && (take_slot(l, layer, SLOT_ROUTER_SCALE, REQUIRED) ||
                                  take_slot(l, layer, SLOT_EXPERT_SCALE, REQUIRED)))
        return -1;
    if (a->experts == EXPERTS_BESIDE && (take_slot(l, layer, SLOT_DENSE_POST_NORM, REQUIRED) ||
                                         take_slot(l, layer, SLOT_EXPERT_NORM, REQUIRED) ||
                                         take_slot(l, layer, SLOT_EXPERT_POST_NORM, REQUIRED)))
        return -1;
    return 0;
}

static int take_slots(struct loader *l, uint32_t layer, const enum slot *list, size_t n,
                      enum presence presence)
{
    for (size_t i = 0; i < n; i++)
        if (take_slot(l, layer, list[i], presence))
            return -1;
    return 0;
}
#define TAKE(l, layer, presence, ...)                                                              \
    take_slots(l, layer, (const enum slot[]){__VA_ARGS__},                                         \
               sizeof((const enum slot[]){__VA_ARGS__}) / sizeof(enum slot), presence)

static int take_latent(struct loader *l, uint32_t layer)
{
    if (l->m->hparams.mla.q_rank) {
        if (TAKE(l, layer, REQUIRED, SLOT_Q_A, SLOT_Q_A_NORM, SLOT_Q_B) ||
            TAKE(l, layer, OPTIONAL, SLOT_Q_A_BIAS))
            return -1;
    } else if (TAKE(l, layer, REQUIRED, SLOT_Q)) {
        return -1;
    }
    return TAKE(l, layer, REQUIRED, SLOT_KV_A, SLOT_KV_A_NORM, SLOT_K_B, SLOT_V_B) ||
                   TAKE(l, layer, OPTIONAL, SLOT_KV_A_BIAS)
               ? -1
               : 0;
}

static int take_qkv(struct loader *l, uint32_t layer)
{
    static const enum slot of_keys[] = {SLOT_K, SLOT_V, SLOT_K_BIAS, SLOT_V_BIAS, SLOT_K_NORM};
    struct layer_shape *shape = &l->m->hparams.layers[layer];
    const struct architecture *a = l->arch;
    enum presence biases = a->needs_biases ? REQUIRED : OPTIONAL;
    if (TAKE(l, layer, REQUIRED, SLOT_Q) || TAKE(l, layer, biases, SLOT_Q_BIAS) ||
        (a->qk_norm != QK_NORM_NONE && TAKE(l, layer, l->qk_norm, SLOT_Q_NORM)))
        return -1;
    if (shape->kv_layer != layer) {
        for (size_t i = 0; i < sizeof of_keys / sizeof *of_keys; i++)
            ignore_slot(l, layer, of_keys[i]);
        return 0;
    }
    if (is_gguf(l) && a->shares_keys && !has_slot(l, layer, SLOT_V))
        shape->values_are_keys = true;
    if (TAKE(l, layer, REQUIRED, SLOT_K) || TAKE(l, layer, biases, SLOT_K_BIAS) ||
        (a->qk_norm != QK_NORM_NONE && TAKE(l, layer, l->qk_norm, SLOT_K_NORM)))
        return -1;
    return shape->values_are_keys
               ? 0
               : TAKE(l, layer, REQUIRED, SLOT_V) || TAKE(l, layer, biases, SLOT_V_BIAS);
}

static int take_attention(struct loader *l, uint32_t layer)
{
    const struct architecture *a = l->arch;
    if ((a->norms & NORMS_BEFORE && TAKE(l, layer, REQUIRED, SLOT_ATTN_NORM)) ||
        (a->has_mla ? take_latent(l, layer) : take_qkv(l, layer)) ||
        TAKE(l, layer, REQUIRED, SLOT_ATTN_OUTPUT) || TAKE(l, layer, OPTIONAL, SLOT_OUTPUT_BIAS))
        return -1;
    return (a->has_sinks && TAKE(l, layer, REQUIRED, SLOT_SINKS)) ||
                   (a->norms & NORMS_AFTER && TAKE(l, layer, REQUIRED, SLOT_ATTN_POST_NORM))
               ? -1
               : 0;
}

static int take_layer(struct loader *l, uint32_t layer)
{
    const struct architecture *a = l->arch;
    const struct hparams *h = &l->m->hparams;
    const struct layer_shape *shape = &h->layers[layer];
    l->m->layers[layer].out_scale = 1;
    if (take_attention(l, layer) ||
        (a->norms & NORMS_BEFORE && !a->is_parallel && TAKE(l, layer, REQUIRED, SLOT_FFN_NORM)))
        return -1;
    if (shape->n_ff && (TAKE(l, layer, REQUIRED, SLOT_GATE, SLOT_UP, SLOT_DOWN) ||
                        TAKE(l, layer, OPTIONAL, SLOT_GATE_BIAS, SLOT_UP_BIAS, SLOT_DOWN_BIAS)))
        return -1;
    if (shape->has_experts && take_experts(l, layer))
        return -1;
    if (shape->has_experts && h->router.n_ff_shared &&
        (TAKE(l, layer, REQUIRED, SLOT_SHARED_GATE, SLOT_SHARED_UP, SLOT_SHARED_DOWN) ||
         (a->gates_shared && TAKE(l, layer, REQUIRED, SLOT_SHARED_ROUTER))))
        return -1;
    if (a->norms & NORMS_AFTER && TAKE(l, layer, REQUIRED, SLOT_FFN_POST_NORM))
        return -1;
    if (h->n_embd_layer &&
        TAKE(l, layer, REQUIRED, SLOT_LAYER_GATE, SLOT_LAYER_OUTPUT, SLOT_LAYER_POST_NORM))
        return -1;
    return a->has_out_scale ? TAKE(l, layer, OPTIONAL, SLOT_OUT_SCALE) : 0;
}

/* GGUF states the vocabulary's size three times; all must agree before any token is trusted. A file
 * without a tokenizer says so. */
static int read_gguf_vocabulary(struct loader *l)
{
    struct hparams *h = &l->m->hparams;
    const struct settings *s = &l->settings;
    const struct gguf_value *tokens = gguf_find(l->m->checkpoint->gguf, "tokenizer.ggml.tokens");
    const struct checkpoint_tensor *embd = checkpoint_find(l->m->checkpoint, "token_embd.weight");
    struct byte_view kind = {"", 0};
    gguf_get_string(l->m->checkpoint->gguf, "tokenizer.ggml.model", &kind);
    if (!tokens && kind.len == 4 && memcmp(kind.bytes, "none", 4) == 0)
        return setting_u32(s, SETTING_VOCAB, REQUIRED, 1, MAX_VOCAB, &h->n_vocab);
    if (!tokens || tokens->type != GGUF_ARRAY || tokens->item_type != GGUF_STRING)
        return refuse(l, "the key tokenizer.ggml.tokens is missing or not an array of strings");
    if (tokens->count < 1 || tokens->count > MAX_VOCAB)
        return refuse(l, "tokenizer.ggml.tokens has %" PRIu64 " tokens, not 1 to %d", tokens->count,
                      MAX_VOCAB);
    h->n_vocab = (uint32_t)tokens->count;
    if (!embd)
        return refuse(l, "the tensor token_embd.weight is missing");
    if (embd->n_dims == 2 && embd->dims[0] != h->n_vocab)
        return refuse(
            l, "token_embd.weight has %" PRIu64 " rows but the tokenizer has %" PRIu32 " tokens",
            embd->dims[0], h->n_vocab);
    uint32_t told = h->n_vocab;
    if (setting_u32(s, SETTING_VOCAB, OPTIONAL, 1, MAX_VOCAB, &told))
        return -1;
    if (told != h->n_vocab)
        return refuse(l, "%s is %" PRIu32 " but the tokenizer has %" PRIu32 " tokens",
                      setting_name(s, SETTING_VOCAB).text, told, h->n_vocab);
    return 0;
}

/* If embedding and head are one tensor, directories may store it under either name. */
static bool has_head_alone(struct loader *l)
{
    return !is_gguf(l) && l->is_tied && !has_slot(l, NO_LAYER, SLOT_TOKEN_EMBD) &&
           has_slot(l, NO_LAYER, SLOT_OUTPUT);
}

/* A directory's vocabulary is as long as its embedding; there may be no tokenizer. */
static int read_vocabulary(struct loader *l)
{
    struct hparams *h = &l->m->hparams;
    bool is_head = has_head_alone(l);
    struct target t = target_of(l, NO_LAYER, is_head ? SLOT_OUTPUT : SLOT_TOKEN_EMBD);
    struct full_name name = full_name(&t, is_head ? "lm_head.weight" : "embed_tokens.weight");
    const struct checkpoint_tensor *embd = checkpoint_find(l->m->checkpoint, name.text);
    if (!embd)
        return refuse(l, "the tensor %s is missing", name.text);
    bool has_shape = embd->n_dims == 2;
    if (has_shape && embd->dims[0] <= MAX_VOCAB)
        h->n_vocab = (uint32_t)embd->dims[0];
    if (setting_u32(&l->settings, SETTING_VOCAB, has_shape ? OPTIONAL : REQUIRED, 1, MAX_VOCAB,
                    &h->n_vocab))
        return -1;
    if (has_shape && embd->dims[0] != h->n_vocab)
        return refuse(l, "%s has %" PRIu64 " rows but vocab_size is %" PRIu32, name.text,
                      embd->dims[0], h->n_vocab);
    return 0;
}

/* Takes the embedding and the head: its own, or the embedding if the file says so or has no head.
 */
static int take_ends(struct loader *l)
{
    struct model *m = l->m;
    if (has_head_alone(l)) {
        if (take_slot(l, NO_LAYER, SLOT_OUTPUT, REQUIRED))
            return -1;
        m->token_embd = m->output;
        return 0;
    }
    if (take_slot(l, NO_LAYER, SLOT_TOKEN_EMBD, REQUIRED))
        return -1;
    bool is_told = !is_gguf(l) && setting_is_set(&l->settings, SETTING_TIED);
    if (!is_gguf(l) && l->is_tied && (is_told || !has_slot(l, NO_LAYER, SLOT_OUTPUT)))
        ignore_slot(l, NO_LAYER, SLOT_OUTPUT);
    else if (take_slot(l, NO_LAYER, SLOT_OUTPUT, is_told ? REQUIRED : OPTIONAL))
        return -1;
    if (!m->output.data)
        m->output = m->token_embd;
    return 0;
}

/* Tensors of a GGUF file that repeat its keys or are not used: rotations written by old converters,
 * and prediction layers (MTP) after the last layer. For directories, the checkpoint does this. */
static bool is_redundant(const struct loader *l, const char *name)
{
    if (!is_gguf(l))
        return false;
    if (string_ends(name, ".attn_rot_embd"))
        return true;
    if (strncmp(name, "blk.", 4) != 0)
        return false;
    unsigned long layer = strtoul(name + 4, NULL, 10);
    uint32_t n = l->m->hparams.n_layers;
    return layer >= n && layer < n + l->n_prediction_layers;
}

static int refuse_unused(const struct loader *l)
{
    const struct checkpoint *c = l->m->checkpoint;
    for (size_t i = 0; i < c->n_tensors; i++) {
        char name[65];
        if (c->tensors[i].is_used || c->tensors[i].is_ignored ||
            is_redundant(l, c->tensors[i].name))
            continue;
        copy_plain(name, sizeof name, c->tensors[i].name, strlen(c->tensors[i].name));
        return refuse(l, "radish has no use for the tensor %s in the architecture %s", name,
                      l->arch->types[0]);
    }
    return 0;
}

static uint64_t used_bytes(const struct checkpoint *c)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < c->n_tensors; i++)
        bytes += c->tensors[i].is_used ? c->tensors[i].size_bytes : 0;
    return bytes;
}

int take_weights(struct loader *l)
{
    struct model *m = l->m;
    if ((is_gguf(l) ? read_gguf_vocabulary(l) : read_vocabulary(l)) || take_ends(l) ||
        take_slot(l, NO_LAYER, SLOT_OUTPUT_NORM, REQUIRED))
        return -1;
    if (m->hparams.n_embd_layer &&
        TAKE(l, NO_LAYER, REQUIRED, SLOT_LAYER_EMBD, SLOT_LAYER_PROJ, SLOT_LAYER_PROJ_NORM))
        return -1;
    for (uint32_t i = 0; i < m->hparams.n_layers; i++)
        if (take_layer(l, i))
            return -1;
    m->weight_bytes = used_bytes(m->checkpoint);
    /* Tensors may share bytes of the file; once packed, each has its own. */
    if (m->weight_bytes > m->checkpoint->file_bytes)
        return refuse(l, "its tensors would take %" PRIu64 " bytes, more than the file has",
                      m->weight_bytes);
    return refuse_unused(l);
}

static void count_type(const struct weight *w, uint64_t bytes[N_TENSOR_TYPES])
{
    if (w->data)
        bytes[w->type] += weight_bytes(w);
}

void model_type_bytes(const struct model *m, uint64_t bytes[N_TENSOR_TYPES])
{
    count_type(&m->token_embd, bytes);
    if (m->output.data != m->token_embd.data)
        count_type(&m->output, bytes);
    for (uint32_t i = 0; i < m->hparams.n_layers; i++) {
        const struct layer_weights *layer = &m->layers[i];
        for (enum slot slot = 0; slot < SLOT_EXPERT_GATE; slot++)
            if (slots[slot].kind == MATRIX)
                count_type((const struct weight *)((const char *)layer + slots[slot].place), bytes);
        for (uint32_t e = 0; layer->experts && e < m->hparams.router.n_experts; e++) {
            count_type(&layer->experts[e].gate, bytes);
            count_type(&layer->experts[e].up, bytes);
            count_type(&layer->experts[e].down, bytes);
        }
    }
}
