/* Turns a GGUF file into a model: hyper-parameters and named views of its weights. A family of
 * models is a row of the table `architectures`, not code. Read-only after model_open, any thread.
 * What a newcomer gets wrong: a file that is well formed may still lie about its shapes. Every
 * tensor is checked against the hyper-parameters here, and a tensor that this program would not
 * use is refused, because computing without it would be wrong in silence. */
#include "model/model.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_LAYERS = 1024,
    MAX_HEADS = 4096,
    MAX_WIDTH = 1 << 20, /* of embeddings, heads and feed-forward layers */
    MAX_VOCAB = 1 << 24,
    MAX_CONTEXT = 1 << 28,
    MAX_KEY_BYTES = 96,
};

enum presence { REQUIRED, OPTIONAL };

struct architecture {
    const char *name;
    enum rope_kind rope_kind;
    enum presence attention_biases; /* on q, k and v */
};

static const struct architecture architectures[] = {
    {"llama", ROPE_NORM, OPTIONAL},
    {"qwen2", ROPE_NEOX, REQUIRED},
};

/* A tensor's two dimensions, in words that hyper-parameters turn into numbers. */
enum extent { ONE, EMBD, Q_DIM, KV_DIM, FF, VOCAB, ROPE_PAIRS };

/* What a layer has: name in the file, place in struct layer_weights, [rows][cols]. */
static const struct layer_tensor {
    const char *name;
    size_t place;
    enum extent rows, cols;
    bool is_attention_bias;
} layer_tensors[] = {
    {"attn_norm.weight", offsetof(struct layer_weights, attn_norm), ONE, EMBD, false},
    {"attn_q.weight", offsetof(struct layer_weights, attn_q), Q_DIM, EMBD, false},
    {"attn_k.weight", offsetof(struct layer_weights, attn_k), KV_DIM, EMBD, false},
    {"attn_v.weight", offsetof(struct layer_weights, attn_v), KV_DIM, EMBD, false},
    {"attn_output.weight", offsetof(struct layer_weights, attn_output), EMBD, Q_DIM, false},
    {"attn_q.bias", offsetof(struct layer_weights, attn_q_bias), ONE, Q_DIM, true},
    {"attn_k.bias", offsetof(struct layer_weights, attn_k_bias), ONE, KV_DIM, true},
    {"attn_v.bias", offsetof(struct layer_weights, attn_v_bias), ONE, KV_DIM, true},
    {"ffn_norm.weight", offsetof(struct layer_weights, ffn_norm), ONE, EMBD, false},
    {"ffn_gate.weight", offsetof(struct layer_weights, ffn_gate), FF, EMBD, false},
    {"ffn_up.weight", offsetof(struct layer_weights, ffn_up), FF, EMBD, false},
    {"ffn_down.weight", offsetof(struct layer_weights, ffn_down), EMBD, FF, false},
};

/* A model on its way in: what the helpers below all need. */
struct loader {
    struct model *m;
    const struct architecture *arch;
    bool *is_used; /* [n_tensors] */
    struct error *err;
};

#define refuse(l, ...) refuse_at((l)->m->gguf.path, (l)->err, __VA_ARGS__)

/* "path: what is wrong". */
__attribute__((format(printf, 3, 4))) static int refuse_at(const char *path, struct error *err,
                                                           const char *format, ...)
{
    char what[400];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return error_set(err, ERROR_FORMAT, "%s: %s", path, what);
}

struct key {
    char text[MAX_KEY_BYTES];
};

/* "llama" and "block_count" give "llama.block_count". */
static struct key key_of(const struct loader *l, const char *suffix)
{
    struct key key;
    snprintf(key.text, sizeof key.text, "%s.%s", l->arch->name, suffix);
    return key;
}

static bool has_key(const struct loader *l, const char *suffix)
{
    return gguf_find(&l->m->gguf, key_of(l, suffix).text) != NULL;
}

/* A whole number from `min` to `max`. An OPTIONAL one that is absent leaves `out` as it is. */
static int read_u32(const struct loader *l, const char *suffix, enum presence presence,
                    uint32_t min, uint32_t max, uint32_t *out)
{
    struct key key = key_of(l, suffix);
    uint64_t value;
    if (!has_key(l, suffix))
        return presence == OPTIONAL ? 0 : refuse(l, "the key %s is missing", key.text);
    if (!gguf_get_u64(&l->m->gguf, key.text, &value))
        return refuse(l, "the key %s is not a whole number that is 0 or more", key.text);
    if (value < min || value > max)
        return refuse(l, "%s is %" PRIu64 ", not from %" PRIu32 " to %" PRIu32, key.text, value,
                      min, max);
    *out = (uint32_t)value;
    return 0;
}

/* A finite number above 0, also as a float. */
static int read_positive(const struct loader *l, const char *suffix, enum presence presence,
                         float *out)
{
    struct key key = key_of(l, suffix);
    double value;
    if (!has_key(l, suffix))
        return presence == OPTIONAL ? 0 : refuse(l, "the key %s is missing", key.text);
    if (!gguf_get_f64(&l->m->gguf, key.text, &value))
        return refuse(l, "the key %s is not a number", key.text);
    float narrow = (float)value;
    if (!isfinite(narrow) || !(narrow > 0))
        return refuse(l, "%s is %g, not a finite number above 0", key.text, value);
    *out = narrow;
    return 0;
}

static bool string_is(struct gguf_string s, const char *text)
{
    return s.len == strlen(text) && memcmp(s.bytes, text, s.len) == 0;
}

/* Copies what fits, cut before a UTF-8 sequence that does not, without control characters. */
static void copy_name(char *out, size_t size, struct gguf_string from)
{
    size_t len = from.len < size ? from.len : size - 1;
    while (len < from.len && len > 0 && ((unsigned char)from.bytes[len] & 0xc0) == 0x80)
        len--;
    for (size_t i = 0; i < len; i++)
        out[i] = (unsigned char)from.bytes[i] < 0x20 || from.bytes[i] == 0x7f ? ' ' : from.bytes[i];
    out[len] = '\0';
}

static int refuse_architecture(struct loader *l)
{
    char known[128] = "";
    for (size_t i = 0, n = 0; i < sizeof architectures / sizeof *architectures; i++)
        n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", i ? ", " : "",
                              architectures[i].name);
    return refuse(l, "radish does not know the architecture \"%s\"; it knows: %s",
                  l->m->hparams.arch, known);
}

static int find_architecture(struct loader *l)
{
    struct hparams *h = &l->m->hparams;
    struct gguf_string name;
    if (!gguf_get_string(&l->m->gguf, "general.architecture", &name))
        return refuse(l, "the key general.architecture is missing or not a string");
    for (size_t i = 0; i < sizeof architectures / sizeof *architectures; i++)
        if (string_is(name, architectures[i].name))
            l->arch = &architectures[i];
    copy_name(h->arch, sizeof h->arch, name);
    if (!l->arch)
        return refuse_architecture(l);
    h->rope_kind = l->arch->rope_kind;
    const char *slash = strrchr(l->m->gguf.path, '/');
    const char *file = slash ? slash + 1 : l->m->gguf.path;
    if (!gguf_get_string(&l->m->gguf, "general.name", &name) || name.len == 0)
        name = (struct gguf_string){file, strlen(file)};
    copy_name(h->name, sizeof h->name, name);
    return 0;
}

/* What would be computed wrongly without a word is refused with one. */
static int refuse_unknown_features(const struct loader *l)
{
    uint32_t n_experts = 0, window = 0;
    if (read_u32(l, "expert_count", OPTIONAL, 0, UINT32_MAX, &n_experts) ||
        read_u32(l, "attention.sliding_window", OPTIONAL, 0, UINT32_MAX, &window))
        return -1;
    if (n_experts > 0)
        return refuse(l, "a mixture of experts (%s is %" PRIu32 "), which radish cannot run",
                      key_of(l, "expert_count").text, n_experts);
    if (window > 0 && window < l->m->hparams.n_context)
        return refuse(l, "sliding-window attention (%s is %" PRIu32 "), which radish cannot run",
                      key_of(l, "attention.sliding_window").text, window);
    return 0;
}

static int read_heads(const struct loader *l)
{
    struct hparams *h = &l->m->hparams;
    if (read_u32(l, "attention.head_count", REQUIRED, 1, MAX_HEADS, &h->n_heads))
        return -1;
    h->n_kv_heads = h->n_heads;
    if (read_u32(l, "attention.head_count_kv", OPTIONAL, 1, MAX_HEADS, &h->n_kv_heads))
        return -1;
    if (h->n_heads % h->n_kv_heads)
        return refuse(l, "%" PRIu32 " heads cannot share %" PRIu32 " key-value heads", h->n_heads,
                      h->n_kv_heads);
    if (!has_key(l, "attention.key_length") && h->n_embd % h->n_heads)
        return refuse(l,
                      "an embedding of %" PRIu32 " is not a multiple of %" PRIu32
                      " heads, and %s is missing",
                      h->n_embd, h->n_heads, key_of(l, "attention.key_length").text);
    h->head_dim = h->n_embd / h->n_heads;
    if (read_u32(l, "attention.key_length", OPTIONAL, 1, MAX_WIDTH, &h->head_dim))
        return -1;
    uint32_t value_dim = h->head_dim;
    if (read_u32(l, "attention.value_length", OPTIONAL, 1, MAX_WIDTH, &value_dim))
        return -1;
    if (value_dim != h->head_dim)
        return refuse(l,
                      "keys of %" PRIu32 " and values of %" PRIu32
                      " differ in length, which radish cannot run",
                      h->head_dim, value_dim);
    if ((uint64_t)h->n_heads * h->head_dim > MAX_WIDTH)
        return refuse(l, "%" PRIu32 " heads of %" PRIu32 " are wider than %d", h->n_heads,
                      h->head_dim, MAX_WIDTH);
    return 0;
}

static int read_rope(const struct loader *l)
{
    struct hparams *h = &l->m->hparams;
    struct gguf_string scaling = {"linear", 6}; /* what a factor without a type has always meant */
    float factor = 1;
    h->rope_dim = h->head_dim;
    h->rope_base = 10000;
    h->rope_scale = 1;
    if (read_u32(l, "rope.dimension_count", OPTIONAL, 1, MAX_WIDTH, &h->rope_dim) ||
        read_positive(l, "rope.freq_base", OPTIONAL, &h->rope_base) ||
        read_positive(l, "rope.scale_linear", OPTIONAL, &factor) ||
        read_positive(l, "rope.scaling.factor", OPTIONAL, &factor))
        return -1;
    if (h->rope_dim > h->head_dim || h->rope_dim % 2)
        return refuse(l, "%s is %" PRIu32 ", not even and at most the head's %" PRIu32,
                      key_of(l, "rope.dimension_count").text, h->rope_dim, h->head_dim);
    struct key key = key_of(l, "rope.scaling.type");
    if (has_key(l, "rope.scaling.type") && !gguf_get_string(&l->m->gguf, key.text, &scaling))
        return refuse(l, "the key %s is not a string", key.text);
    if (string_is(scaling, "linear")) {
        h->rope_scale = 1 / factor;
        if (!isfinite(h->rope_scale))
            return refuse(l, "rope scaling by %g is too small", (double)factor);
    } else if (!string_is(scaling, "none")) {
        char shown[32];
        copy_name(shown, sizeof shown, scaling);
        return refuse(l, "%s is \"%s\"; radish knows none and linear", key.text, shown);
    }
    return 0;
}

/* The vocabulary is told three times; all of them must agree before any token is trusted. */
static int read_vocabulary(const struct loader *l)
{
    struct hparams *h = &l->m->hparams;
    const struct gguf_value *tokens = gguf_find(&l->m->gguf, "tokenizer.ggml.tokens");
    const struct gguf_tensor *embd = gguf_tensor(&l->m->gguf, "token_embd.weight");
    if (!tokens || tokens->type != GGUF_ARRAY || tokens->item_type != GGUF_STRING)
        return refuse(l, "the key tokenizer.ggml.tokens is missing or not an array of strings");
    if (tokens->count < 1 || tokens->count > MAX_VOCAB)
        return refuse(l, "tokenizer.ggml.tokens has %" PRIu64 " tokens, not 1 to %d", tokens->count,
                      MAX_VOCAB);
    h->n_vocab = (uint32_t)tokens->count;
    if (!embd)
        return refuse(l, "the tensor token_embd.weight is missing");
    if (embd->dims[1] != h->n_vocab)
        return refuse(
            l, "token_embd.weight has %" PRIu64 " rows but the tokenizer has %" PRIu32 " tokens",
            embd->dims[1], h->n_vocab);
    uint32_t told = h->n_vocab;
    if (read_u32(l, "vocab_size", OPTIONAL, 1, MAX_VOCAB, &told))
        return -1;
    if (told != h->n_vocab)
        return refuse(l, "%s is %" PRIu32 " but the tokenizer has %" PRIu32 " tokens",
                      key_of(l, "vocab_size").text, told, h->n_vocab);
    return 0;
}

static int read_hparams(struct loader *l)
{
    struct hparams *h = &l->m->hparams;
    if (read_u32(l, "block_count", REQUIRED, 1, MAX_LAYERS, &h->n_layers) ||
        read_u32(l, "embedding_length", REQUIRED, 1, MAX_WIDTH, &h->n_embd) ||
        read_u32(l, "feed_forward_length", REQUIRED, 1, MAX_WIDTH, &h->n_ff) ||
        read_u32(l, "context_length", REQUIRED, 1, MAX_CONTEXT, &h->n_context) ||
        read_positive(l, "attention.layer_norm_rms_epsilon", REQUIRED, &h->norm_eps))
        return -1;
    return refuse_unknown_features(l) || read_heads(l) || read_rope(l) || read_vocabulary(l) ? -1
                                                                                             : 0;
}

static uint32_t extent_value(const struct hparams *h, enum extent extent)
{
    switch (extent) {
    case ONE: return 1;
    case EMBD: return h->n_embd;
    case Q_DIM: return h->n_heads * h->head_dim;
    case KV_DIM: return h->n_kv_heads * h->head_dim;
    case FF: return h->n_ff;
    case VOCAB: return h->n_vocab;
    case ROPE_PAIRS: return h->rope_dim / 2;
    }
    return 0;
}

/* A tensor's shape as the file writes it: the fastest dimension first. */
struct shape {
    char text[96];
};

static struct shape shape_of(const struct gguf_tensor *t)
{
    struct shape s;
    int at = 0;
    for (uint32_t i = 0; i < t->n_dims; i++)
        at += snprintf(s.text + at, sizeof s.text - (size_t)at, "%s%" PRIu64, i ? ", " : "[",
                       t->dims[i]);
    snprintf(s.text + at, sizeof s.text - (size_t)at, "]");
    return s;
}

/* Fills `out` from the tensor of that name. An OPTIONAL one that is absent leaves it without
 * data. Vectors must be F32: they are few, and adding or scaling by them is done in floats. */
static int take(struct loader *l, const char *name, enum presence presence, enum extent rows,
                enum extent cols, struct weight *out)
{
    const struct gguf *g = &l->m->gguf;
    const struct gguf_tensor *t = gguf_tensor(g, name);
    if (!t)
        return presence == OPTIONAL ? 0 : refuse(l, "the tensor %s is missing", name);
    *out = (struct weight){t->type, extent_value(&l->m->hparams, rows),
                           extent_value(&l->m->hparams, cols), t->data};
    bool is_vector = rows == ONE;
    if (t->dims[0] != out->cols || t->dims[1] != out->rows || t->dims[2] != 1 || t->dims[3] != 1) {
        char expected[48];
        if (is_vector)
            snprintf(expected, sizeof expected, "[%" PRIu32 "]", out->cols);
        else
            snprintf(expected, sizeof expected, "[%" PRIu32 ", %" PRIu32 "]", out->cols, out->rows);
        return refuse(l, "the tensor %s has the shape %s, expected %s", name, shape_of(t).text,
                      expected);
    }
    if (is_vector && t->type != TENSOR_F32)
        return refuse(l, "the tensor %s is %s; radish reads norms and biases as F32 only", name,
                      tensor_type_info(t->type)->name);
    l->is_used[t - g->tensors] = true;
    l->m->n_params += (uint64_t)out->rows * out->cols;
    l->m->weight_bytes += t->size_bytes;
    return 0;
}

static int take_layer(struct loader *l, uint32_t layer)
{
    for (size_t i = 0; i < sizeof layer_tensors / sizeof *layer_tensors; i++) {
        const struct layer_tensor *row = &layer_tensors[i];
        struct weight *out = (struct weight *)((char *)&l->m->layers[layer] + row->place);
        char name[64];
        snprintf(name, sizeof name, "blk.%" PRIu32 ".%s", layer, row->name);
        enum presence presence = row->is_attention_bias ? l->arch->attention_biases : REQUIRED;
        if (take(l, name, presence, row->rows, row->cols, out))
            return -1;
    }
    return 0;
}

static int check_rope_freqs(const struct loader *l)
{
    const struct weight *w = &l->m->rope_freqs;
    for (uint32_t i = 0; w->data && i < w->cols; i++) {
        float divisor = ((const float *)w->data)[i];
        if (!isfinite(divisor) || !(divisor > 0))
            return refuse(l, "rope_freqs.weight holds %g, not a finite number above 0",
                          (double)divisor);
    }
    return 0;
}

/* Old converters wrote the rotation as a tensor too; it says nothing that rope.* does not. */
static bool is_redundant(struct gguf_string name)
{
    static const char suffix[] = ".attn_rot_embd";
    size_t len = sizeof suffix - 1;
    return name.len > len && memcmp(name.bytes + name.len - len, suffix, len) == 0;
}

static int refuse_unused(const struct loader *l)
{
    const struct gguf *g = &l->m->gguf;
    for (size_t i = 0; i < g->n_tensors; i++) {
        char name[65];
        if (l->is_used[i] || is_redundant(g->tensors[i].name))
            continue;
        copy_name(name, sizeof name, g->tensors[i].name);
        return refuse(l, "the tensor %s has no place in the architecture %s as radish knows it",
                      name, l->arch->name);
    }
    return 0;
}

static int take_weights(struct loader *l)
{
    struct model *m = l->m;
    if (take(l, "token_embd.weight", REQUIRED, VOCAB, EMBD, &m->token_embd) ||
        take(l, "output_norm.weight", REQUIRED, ONE, EMBD, &m->output_norm) ||
        take(l, "output.weight", OPTIONAL, VOCAB, EMBD, &m->output) ||
        take(l, "rope_freqs.weight", OPTIONAL, ONE, ROPE_PAIRS, &m->rope_freqs))
        return -1;
    if (!m->output.data)
        m->output = m->token_embd;
    for (uint32_t i = 0; i < m->hparams.n_layers; i++)
        if (take_layer(l, i))
            return -1;
    /* Tensors may share bytes of the file; packed, each takes its own. */
    if (m->weight_bytes > m->gguf.map_bytes)
        return refuse(l, "its tensors would take %" PRIu64 " bytes, more than the file has",
                      m->weight_bytes);
    return check_rope_freqs(l) || refuse_unused(l) ? -1 : 0;
}

static int load(struct loader *l)
{
    struct model *m = l->m;
    if (find_architecture(l) || read_hparams(l))
        return -1;
    m->layers = calloc(m->hparams.n_layers, sizeof *m->layers);
    l->is_used = calloc(m->gguf.n_tensors, sizeof *l->is_used); /* token_embd: never zero */
    if (!m->layers || !l->is_used)
        return error_set(l->err, ERROR_MEMORY, "%s: no memory for the model", m->gguf.path);
    return take_weights(l);
}

int model_open(struct model *m, const char *path, struct error *err)
{
    *m = (struct model){0};
    if (gguf_open(&m->gguf, path, err))
        return -1;
    struct loader l = {.m = m, .err = err};
    int rc = load(&l);
    free(l.is_used);
    if (rc)
        model_close(m);
    return rc;
}

void model_close(struct model *m)
{
    free(m->layers);
    gguf_close(&m->gguf);
    *m = (struct model){0};
}

const char *model_quantisation(const struct model *m)
{
    size_t bytes[N_TENSOR_TYPES] = {0}, most = 0;
    for (size_t i = 0; i < m->gguf.n_tensors; i++)
        bytes[m->gguf.tensors[i].type] += m->gguf.tensors[i].size_bytes;
    for (size_t type = 1; type < N_TENSOR_TYPES; type++)
        if (bytes[type] > bytes[most])
            most = type;
    return tensor_type_info((uint32_t)most)->name;
}
