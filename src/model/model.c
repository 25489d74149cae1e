/* Opens a model: its files, its row of the table, hyperparameters, weights. architecture_rows.c
 * says what the families of models are made of, not this file. Read-only after model_open, any
 * thread. */
#include "model/model.h"

#include <string.h>

#include "model/files/model_path.h"
#include "model/model_internal.h"

int refuse_memory(const struct loader *l)
{
    return error_set(l->settings.err, ERROR_MEMORY, "%s: no memory for the model",
                     l->m->checkpoint->path);
}

/* The model's own name; otherwise the name of the file or directory. */
static void read_name(struct model *m)
{
    char from_path[sizeof m->hparams.name];
    struct byte_view name;
    model_path_name(from_path, sizeof from_path, m->checkpoint->path);
    if (m->checkpoint->kind != CHECKPOINT_GGUF ||
        !gguf_get_string(m->checkpoint->gguf, "general.name", &name) || name.len == 0)
        name = byte_view_of(from_path);
    copy_plain(m->hparams.name, sizeof m->hparams.name, name.bytes, name.len);
}

static int load(struct loader *l)
{
    struct hparams *h = &l->m->hparams;
    l->arch = architecture_find(&l->settings);
    if (!l->arch)
        return -1;
    copy_plain(h->arch, sizeof h->arch, l->arch->types[0], strlen(l->arch->types[0]));
    read_name(l->m);
    if (read_shape(l) || read_ropes(l))
        return -1;
    for (uint32_t i = 0; i < h->n_layers; i++)
        if (h->layers[i].window >= h->n_context)
            h->layers[i].window = 0; /* it hides nothing */
    return take_weights(l);
}

int model_open(struct model *m, const char *path, const struct model_options *options,
               struct error *err)
{
    struct error spare = {0};
    *m = (struct model){0};
    if (checkpoint_open(&m->checkpoint, path, err))
        return -1;
    struct loader l = {
        .m = m,
        .settings = {.checkpoint = m->checkpoint, .prefix = "", .err = err ? err : &spare},
        .context = options ? options->context : 0,
    };
    int rc = load(&l);
    if (rc)
        model_close(m);
    else if (options && options->quantize)
        model_convert(m, *options->quantize);
    return rc;
}

/* Adds what a table takes in the files: its blocks, and its scales where they are separate. */
static size_t table_parts(const struct weight *w, struct file_part parts[3])
{
    if (!w->data)
        return 0;
    const struct weight_extent reach = weight_extent(w);
    size_t n = 0;
    parts[n++] = (struct file_part){w->data, reach.data_bytes};
    if (w->groups.scales)
        parts[n++] = (struct file_part){w->groups.scales, reach.scale_bytes};
    if (w->groups.biases)
        parts[n++] = (struct file_part){w->groups.biases, reach.scale_bytes};
    return n;
}

int model_settle(struct model *m, bool keeps_files, struct error *err)
{
    struct file_part parts[6];
    size_t n = table_parts(&m->token_embd, parts);
    n += table_parts(&m->layer_embd, parts + n);
    return checkpoint_settle(m->checkpoint, parts, n, keeps_files, err);
}

uint64_t model_table_bytes(const struct model *m)
{
    return weight_bytes(&m->token_embd) + (m->layer_embd.data ? weight_bytes(&m->layer_embd) : 0);
}

void model_close(struct model *m)
{
    arena_free(&m->memory);
    checkpoint_close(m->checkpoint);
    *m = (struct model){0};
}

const char *model_quantisation(const struct model *m)
{
    /* The usual names of the types in directories. */
    static const char *const names[N_TENSOR_TYPES] = {
        [TENSOR_F8_E4M3] = "FP8",
        [TENSOR_F8_E5M2] = "FP8",
        [TENSOR_FP4] = "MXFP4",
        [TENSOR_AFFINE_1] = "1 bit (MLX)",
        [TENSOR_AFFINE_2] = "2 bits (MLX)",
        [TENSOR_AFFINE_3] = "3 bits (MLX)",
        [TENSOR_AFFINE_4] = "4 bits (MLX)",
        [TENSOR_AFFINE_5] = "5 bits (MLX)",
        [TENSOR_AFFINE_6] = "6 bits (MLX)",
        [TENSOR_AFFINE_8] = "8 bits (MLX)",
    };
    uint64_t bytes[N_TENSOR_TYPES] = {0};
    size_t most = 0;
    model_type_bytes(m, bytes);
    for (size_t type = 1; type < N_TENSOR_TYPES; type++)
        if (bytes[type] > bytes[most])
            most = type;
    return names[most] ? names[most] : tensor_type_info((uint32_t)most)->name;
}
