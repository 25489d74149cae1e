/* The tensors of a GGUF file for a model from a directory, and the check of the written file; see
 * gguf_export.h. Used by the thread that writes. A tensor in the file may hold several slots (q, k
 * and v; gate and up), and a slot of a layer with experts is one tensor for all of them. */
#include "model/convert/gguf_export.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/model_internal.h"
#include "model/rope_scaling.h"

struct exporter {
    const struct model *m;
    const struct architecture *a;
    struct arena memory;
    struct tensor_source *tensors; /* [capacity] */
    size_t n, capacity;
    struct error *err;
};

static int no_memory(const struct exporter *x)
{
    return error_set(x->err, ERROR_MEMORY, "%s: no memory to write it", x->m->checkpoint->path);
}

static bool is_expert(enum slot slot)
{
    return slot >= SLOT_EXPERT_GATE && slot < SLOT_TOKEN_EMBD;
}

static bool is_model(enum slot slot)
{
    return slot >= SLOT_TOKEN_EMBD;
}

/* The address of the slot's weight or vector; NULL if the layer has no experts. */
static const void *slot_at(const struct exporter *x, uint32_t layer, enum slot slot,
                           uint32_t expert)
{
    const struct layer_weights *l = layer == NO_LAYER ? NULL : &x->m->layers[layer];
    const char *from = !l ? (const char *)x->m : (const char *)l;
    if (is_expert(slot))
        from = l->experts ? (const char *)&l->experts[expert] : NULL;
    return from ? from + slots[slot].place : NULL;
}

static bool has_slot(const struct exporter *x, uint32_t layer, enum slot slot)
{
    const void *at = slot_at(x, layer, slot, 0);
    if (slot == SLOT_OUT_SCALE)
        return x->a->has_out_scale;
    if (slot == SLOT_OUTPUT && x->m->output.data == x->m->token_embd.data)
        return false;
    if (!at)
        return false;
    return slots[slot].kind == MATRIX ? ((const struct weight *)at)->data != NULL
                                      : *(const float *const *)at != NULL;
}

/* The slot's name in files of the architecture, or NULL. */
static const char *slot_name(const struct exporter *x, enum slot slot)
{
    struct tensor_names names = architecture_names(x->a, true, slot);
    for (size_t i = 0; i < names.count; i++)
        if (names.names[i].slot == slot)
            return names.names[i].name;
    return NULL;
}

/* Whether both slots are in one tensor. */
static bool is_together(const struct exporter *x, uint32_t layer, enum slot slot, enum slot other)
{
    return is_expert(slot) == is_expert(other) && is_model(slot) == is_model(other) &&
           has_slot(x, layer, other) && slot_name(x, other) &&
           strcmp(slot_name(x, slot), slot_name(x, other)) == 0;
}

/* Which rows are rotated as halves in the directory and as pairs in the file. */
static struct row_pairs pairs_of(const struct exporter *x, uint32_t layer, enum slot slot)
{
    const struct hparams *h = &x->m->hparams;
    const struct mla_shape *mla = &h->mla;
    enum rope_kind kind = h->n_ropes ? h->ropes[0].kind : x->a->rope;
    bool is_q = slot == SLOT_Q || slot == SLOT_Q_BIAS || slot == SLOT_Q_B;
    bool is_k = slot == SLOT_K || slot == SLOT_K_BIAS;
    if (kind != ROPE_NEOX || x->a->gguf_rope != ROPE_NORM || layer == NO_LAYER)
        return (struct row_pairs){0};
    if (mla->kv_rank && is_q)
        return (struct row_pairs){mla->nope_dim + mla->rope_dim, mla->nope_dim, mla->rope_dim};
    if (mla->kv_rank)
        return slot == SLOT_KV_A
                   ? (struct row_pairs){mla->kv_rank + mla->rope_dim, mla->kv_rank, mla->rope_dim}
                   : (struct row_pairs){0};
    const struct layer_shape *shape = &h->layers[layer];
    uint32_t dim = shape->rope == ROPE_NONE ? shape->key_dim : h->ropes[shape->rope].dim;
    return is_q || is_k ? (struct row_pairs){shape->key_dim, 0, dim} : (struct row_pairs){0};
}

/* The slot as a weight: a vector is one row, or one column if its values must be reordered. */
static struct weight weight_of(const struct exporter *x, uint32_t layer, enum slot slot,
                               uint32_t expert, bool is_column)
{
    const void *at = slot_at(x, layer, slot, expert);
    if (slots[slot].kind == MATRIX)
        return *(const struct weight *)at;
    uint32_t n = extent_value(&x->m->hparams, layer, slots[slot].cols);
    const float *values = slot == SLOT_OUT_SCALE ? at : *(const float *const *)at;
    return weight_make(TENSOR_F32, is_column ? n : 1, is_column ? 1 : n, values);
}

static struct tensor_source *new_tensor(struct exporter *x, uint32_t layer, const char *name,
                                        uint32_t n_parts)
{
    if (x->n == x->capacity) {
        size_t capacity = x->capacity ? 2 * x->capacity : 256;
        struct tensor_source *grown = realloc(x->tensors, capacity * sizeof *grown);
        if (!grown)
            return NULL;
        x->tensors = grown;
        x->capacity = capacity;
    }
    char text[96];
    if (layer == NO_LAYER)
        snprintf(text, sizeof text, "%s", name);
    else
        snprintf(text, sizeof text, "blk.%" PRIu32 ".%s", layer, name);
    char *copy = arena_alloc(&x->memory, strlen(text) + 1);
    struct weight *parts = arena_alloc_array(&x->memory, n_parts, sizeof *parts);
    if (!copy || !parts)
        return NULL;
    memcpy(copy, text, strlen(text) + 1);
    x->tensors[x->n] = (struct tensor_source){.name = copy, .parts = parts, .n_parts = n_parts};
    return &x->tensors[x->n++];
}

static void set_dims(const struct exporter *x, struct tensor_source *t, enum slot slot)
{
    uint64_t rows = 0;
    for (uint32_t i = 0; i < t->n_parts; i++)
        rows += t->parts[i].rows;
    bool is_vector = slots[slot].kind != MATRIX;
    /* Stacks of experts or heads have an extra dimension. */
    uint64_t n = is_expert(slot)                        ? x->m->hparams.router.n_experts
                 : slot == SLOT_K_B || slot == SLOT_V_B ? x->m->hparams.layers[0].n_heads
                                                        : 1;
    t->dims[0] = t->parts[0].cols;
    t->dims[1] = is_vector ? n : rows / n;
    t->dims[2] = is_vector ? 1 : n;
    t->n_dims = n > 1 || (!is_vector && is_expert(slot)) ? (is_vector ? 2 : 3) : is_vector ? 1 : 2;
    if (is_vector && t->parts[0].cols == 1 && !is_expert(slot))
        t->dims[0] = rows;
}

static int add_slot(struct exporter *x, uint32_t layer, enum slot slot)
{
    const char *name = slot_name(x, slot);
    if (!has_slot(x, layer, slot))
        return 0;
    if (!name)
        return error_set(x->err, ERROR_FORMAT,
                         "%s: layer %" PRIu32 " has a bias that GGUF cannot store",
                         x->m->checkpoint->path, layer);
    uint32_t n_slots = 0, n_experts = is_expert(slot) ? x->m->hparams.router.n_experts : 1, n = 0;
    for (enum slot other = 0; other < N_SLOTS; other++) {
        if (!is_together(x, layer, slot, other))
            continue;
        if (other < slot)
            return 0; /* it was written with that one */
        n_slots++;
    }
    struct tensor_source *t = new_tensor(x, layer, name, n_slots * n_experts);
    if (!t)
        return no_memory(x);
    t->pairs = pairs_of(x, layer, slot);
    t->is_wide = slot == SLOT_ROUTER;
    struct weight *parts = (struct weight *)t->parts;
    for (uint32_t e = 0; e < n_experts; e++)
        for (enum slot other = slot; other < N_SLOTS; other++)
            if (is_together(x, layer, slot, other))
                parts[n++] = weight_of(x, layer, other, e, t->pairs.n > 0);
    set_dims(x, t, slot);
    return 0;
}

/* Divisors of rope's frequencies, which are tensors in GGUF. */
static int add_divisors(struct exporter *x, const char *name, const float *values, uint32_t n)
{
    struct tensor_source *t = new_tensor(x, NO_LAYER, name, 1);
    if (!t)
        return no_memory(x);
    *(struct weight *)t->parts = weight_make(TENSOR_F32, 1, n, values);
    t->n_dims = 1;
    t->dims[0] = n;
    return 0;
}

static int add_ropes(struct exporter *x)
{
    const struct hparams *h = &x->m->hparams;
    for (uint32_t i = 0; i < h->n_ropes; i++) {
        const struct rope_spec *spec = h->ropes[i].spec;
        uint32_t n = spec->dim / 2;
        if (spec->scaling == ROPE_SCALING_LONG)
            return add_divisors(x, "rope_factors_long.weight", spec->long_divisors, n) ||
                   add_divisors(x, "rope_factors_short.weight", spec->short_divisors, n);
        if (spec->scaling != ROPE_SCALING_LLAMA3 && spec->scaling != ROPE_SCALING_PROPORTIONAL)
            continue;
        float *divisors = arena_alloc_array(&x->memory, n, sizeof *divisors);
        if (!divisors)
            return no_memory(x);
        for (uint32_t j = 0; j < n; j++)
            divisors[j] = rope_divisor(spec, j);
        return add_divisors(x, "rope_freqs.weight", divisors, n);
    }
    return 0;
}

static int add_tensors(struct exporter *x)
{
    for (enum slot slot = SLOT_TOKEN_EMBD; slot < N_SLOTS; slot++)
        if (add_slot(x, NO_LAYER, slot))
            return -1;
    if (add_ropes(x))
        return -1;
    for (uint32_t i = 0; i < x->m->hparams.n_layers; i++)
        for (enum slot slot = 0; slot < SLOT_TOKEN_EMBD; slot++)
            if (add_slot(x, i, slot))
                return -1;
    return 0;
}

/* ---- checking the written file ---- */

static bool is_near(double a, double b)
{
    return a == b || fabs(a - b) <= 1e-6 * fmax(fabs(a), fabs(b));
}

static bool is_same_rope(const struct hparams *a, uint32_t i, const struct hparams *b, uint32_t j)
{
    if (i == ROPE_NONE || j == ROPE_NONE)
        return i == j;
    const struct rope *x = &a->ropes[i], *y = &b->ropes[j];
    if (x->dim != y->dim || !is_near(x->amplitude, y->amplitude))
        return false;
    for (uint32_t k = 0; k < x->dim / 2; k++)
        if (!is_near(x->frequencies[k], y->frequencies[k]) &&
            fabs(x->frequencies[k] - y->frequencies[k]) > 1e-20)
            return false;
    return true;
}

/* What differs in a layer, or NULL. */
static const char *layer_difference(const struct hparams *a, const struct hparams *b, uint32_t i)
{
    const struct layer_shape *x = &a->layers[i], *y = &b->layers[i];
    if (x->n_heads != y->n_heads || x->n_kv_heads != y->n_kv_heads || x->key_dim != y->key_dim ||
        x->value_dim != y->value_dim)
        return "the heads of a layer";
    if (x->window != y->window)
        return "the windows of its layers";
    if (x->kv_layer != y->kv_layer || x->values_are_keys != y->values_are_keys)
        return "which layers share keys and values";
    if (x->n_ff != y->n_ff || x->has_experts != y->has_experts)
        return "which layers have experts";
    if (!is_near(x->attn_scale, y->attn_scale))
        return "the scale of attention";
    return is_same_rope(a, x->rope, b, y->rope) ? NULL : "the rope of a layer";
}

static const char *difference(const struct hparams *a, const struct hparams *b)
{
    const struct router *x = &a->router, *y = &b->router;
    if (a->n_layers != b->n_layers || a->n_embd != b->n_embd || a->n_vocab != b->n_vocab ||
        a->n_context != b->n_context || a->n_embd_layer != b->n_embd_layer)
        return "its size";
    if (a->norm != b->norm || a->norm_eps != b->norm_eps || a->is_parallel != b->is_parallel ||
        a->qk_norm != b->qk_norm)
        return "its norms";
    if (a->activation != b->activation || a->activation_limit != b->activation_limit)
        return "its activation";
    if (!is_near(a->embd_scale, b->embd_scale) || !is_near(a->residual_scale, b->residual_scale) ||
        !is_near(a->logit_scale, b->logit_scale) || a->attn_softcap != b->attn_softcap ||
        a->logit_softcap != b->logit_softcap)
        return "its scales";
    if (a->temperature_scale != b->temperature_scale ||
        a->temperature_length != b->temperature_length)
        return "the temperature of attention";
    if (memcmp(&a->mla, &b->mla, sizeof a->mla) != 0)
        return "its latent attention";
    if (x->n_experts != y->n_experts || x->n_chosen != y->n_chosen || x->n_ff != y->n_ff ||
        x->n_ff_shared != y->n_ff_shared || x->scores != y->scores || x->n_groups != y->n_groups ||
        x->n_chosen_groups != y->n_chosen_groups || (x->n_groups > 1 && x->groups != y->groups) ||
        x->normalizes != y->normalizes || !is_near(x->normalize_eps, y->normalize_eps) ||
        !is_near(x->scale, y->scale) || x->norms_input != y->norms_input)
        return "how it chooses experts";
    for (uint32_t i = 0; i < a->n_layers; i++)
        if (layer_difference(a, b, i))
            return layer_difference(a, b, i);
    return NULL;
}

static int check_file(void *context, const char *path, struct error *err)
{
    const struct model *m = context;
    struct model written;
    if (model_open(&written, path, NULL, err))
        return -1;
    const char *what = difference(&m->hparams, &written.hparams);
    model_close(&written);
    return what ? error_set(err, ERROR_FORMAT, "%s: a GGUF file cannot describe %s",
                            m->checkpoint->path, what)
                : 0;
}

int gguf_export(const struct model *m, const struct gguf_writer *tokenizer, const char *to_path,
                struct parallel *pool, const struct requantize_options *options,
                struct requantize_result *result, struct error *err)
{
    struct exporter x = {.m = m, .a = architecture_named(m->hparams.arch), .err = err};
    struct gguf_writer head = {0};
    int failed = gguf_export_keys(m, x.a, &head, err) || add_tensors(&x);
    if (!failed) {
        struct tensor_file file = {m->checkpoint->path, to_path,   &head,        x.tensors, x.n,
                                   check_file,          (void *)m, m->checkpoint};
        gguf_add_values(&head, tokenizer);
        failed = tensor_file_write(&file, pool, options, result, err);
    }
    gguf_writer_free(&head);
    arena_free(&x.memory);
    free(x.tensors);
    return failed ? -1 : 0;
}
