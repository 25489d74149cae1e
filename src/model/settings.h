#ifndef RADISH_MODEL_SETTINGS_H
#define RADISH_MODEL_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "model/files/checkpoint.h"

/* What a model's files say about it, under one name for each setting, whichever kind of file it
 * is:
 *
 *   SETTING_HEADS    GGUF  llama.attention.head_count      config.json  num_attention_heads
 *   SETTING_EXPERTS  GGUF  qwen3moe.expert_count           config.json  num_experts, or
 *                                                          num_local_experts, n_routed_experts
 *
 * A key of config.json that is null has no value, and no default either: that is how a file says
 * that it has no window. An error is one line with the path and the key as the file spells it. */
enum setting {
    SETTING_LAYERS,
    SETTING_EMBD,
    SETTING_FF,
    SETTING_CONTEXT,
    SETTING_LONGER_CONTEXT,
    SETTING_VOCAB,
    SETTING_NORM_EPS,
    SETTING_LAYER_NORM_EPS,
    SETTING_ACTIVATION,
    SETTING_TIED,
    SETTING_HEADS,
    SETTING_KV_HEADS,
    SETTING_GLOBAL_KV_HEADS,
    SETTING_HEAD_DIM,
    SETTING_VALUE_DIM,
    SETTING_WINDOW_HEAD_DIM, /* GGUF: of windowed layers */
    SETTING_GLOBAL_HEAD_DIM, /* config.json: of the others */
    SETTING_PER_LAYER,       /* an object of layers that differ */
    SETTING_WINDOW,
    SETTING_WINDOW_SWITCH,
    SETTING_WINDOW_PATTERN,
    SETTING_WINDOW_FROM, /* the first layer with a window */
    SETTING_LAYER_TYPES,
    SETTING_KV_SHARED,
    SETTING_VALUES_ARE_KEYS,
    SETTING_DOUBLE_WIDE,
    SETTING_LAYER_INPUT,
    SETTING_QK_NORM,
    SETTING_ROPE_BASE,
    SETTING_ROPE_LOCAL_BASE,
    SETTING_ROPE_DIM,
    SETTING_ROPE_LOCAL_DIM,
    SETTING_ROPE_PART, /* of a head that is rotated */
    SETTING_ROPE_PARAMETERS,
    SETTING_ROPE_SCALING,
    SETTING_ROPE_TYPE,
    SETTING_ROPE_FACTOR,
    SETTING_ROPE_OLD_FACTOR,
    SETTING_ROPE_ORIGINAL,
    SETTING_ROPE_AMPLITUDE,
    SETTING_ROPE_YARN_AMPLITUDE,
    SETTING_ROPE_BETA_FAST,
    SETTING_ROPE_BETA_SLOW,
    SETTING_ROPE_LOG_MULTIPLIER,
    SETTING_ROPE_SWITCH,
    SETTING_ROPE_INTERLEAVED,
    SETTING_ROPE_LAYERS,
    SETTING_ROPE_INTERVAL,
    SETTING_TEMPERATURE,
    SETTING_TEMPERATURE_LENGTH,
    SETTING_EMBD_SCALE,
    SETTING_RESIDUAL_SCALE,
    SETTING_ATTN_SCALE,
    SETTING_ATTN_SCALAR,
    SETTING_LOGIT_SCALE,
    SETTING_ATTN_SOFTCAP,
    SETTING_LOGIT_SOFTCAP,
    SETTING_EXPERTS,
    SETTING_EXPERTS_SWITCH,
    SETTING_EXPERTS_CHOSEN,
    SETTING_EXPERT_FF,
    SETTING_SHARED_EXPERTS,
    SETTING_SHARED_FF,
    SETTING_EXPERT_GROUPS,
    SETTING_EXPERT_GROUPS_CHOSEN,
    SETTING_EXPERT_SCORES,
    SETTING_EXPERT_METHOD,
    SETTING_EXPERT_NORMALIZES,
    SETTING_EXPERT_SCALE,
    SETTING_DENSE_LAYERS, /* that many come first */
    SETTING_DENSE_LIST,   /* numbers of the others */
    SETTING_EXPERT_STEP,
    SETTING_EXPERT_FREQUENCY,
    SETTING_MLP_TYPES,
    SETTING_SWIGLU_LIMIT,
    SETTING_SWIGLU_ALPHA,
    SETTING_Q_RANK,
    SETTING_KV_RANK,
    SETTING_NOPE_DIM,
    SETTING_MLA_ROPE_DIM,
    SETTING_MLA_VALUE_DIM,
    SETTING_MLA_KEY_DIM,
    SETTING_PREDICTION_LAYERS, /* after the last, for multi-token prediction; not used */
    N_SETTINGS
};

/* The default of a row of the table of architectures, where the file says nothing. */
struct setting_default {
    enum setting id;
    double config, gguf; /* NAN: none */
};

/* Required numbers have no defaults in GGUF files: their writers leave none out. */
enum presence { REQUIRED, OPTIONAL };

struct settings {
    const struct checkpoint *checkpoint;
    const char *prefix; /* of GGUF's keys: general.architecture */
    const struct setting_default *defaults;
    size_t n_defaults;
    struct error *err;
};

/* "path: what is wrong"; returns -1. */
__attribute__((format(printf, 2, 3))) int settings_refuse(const struct settings *s,
                                                          const char *format, ...);

/* GGUF's key after the architecture's name, or NULL. */
const char *setting_gguf_key(enum setting id);

struct setting_name {
    char text[128];
};
/* As the file spells it, or would. */
struct setting_name setting_name(const struct settings *s, enum setting id);

bool setting_is_set(const struct settings *s, enum setting id); /* in the file, and not null */

/* Each leaves `out` as it is where the file has no value and the row no default. */
int setting_u32(const struct settings *s, enum setting id, enum presence presence, uint32_t min,
                uint32_t max, uint32_t *out);
int setting_positive(const struct settings *s, enum setting id, enum presence presence, float *out);
int setting_number(const struct settings *s, enum setting id, double *out);
int setting_bool(const struct settings *s, enum setting id, bool *out);
/* Cut to fit, without control characters. */
int setting_text(const struct settings *s, enum setting id, char *out, size_t size);

/* Lists. A value that is not a list counts as every item, so one number for all layers and a list
 * of numbers read alike. */
size_t setting_count(const struct settings *s, enum setting id); /* 0: not a list */
int setting_item_u32(const struct settings *s, enum setting id, size_t i, uint32_t min,
                     uint32_t max, uint32_t *out);
int setting_item_text(const struct settings *s, enum setting id, size_t i, char *out, size_t size);

/* An object of config.json, or NULL. 0, or -1: it is something else. */
int setting_object(const struct settings *s, enum setting id, const struct json **out);

/* The same for members of such an object; `name` is the object's, for messages. */
struct setting_member {
    const struct json *object;
    const char *name;
};
int member_number(const struct settings *s, struct setting_member at, const char *key, double *out);
int member_u32(const struct settings *s, struct setting_member at, const char *key, uint32_t min,
               uint32_t max, uint32_t *out);
int member_bool(const struct settings *s, struct setting_member at, const char *key, bool *out);

/* Copies what fits, cut before a UTF-8 sequence that does not, without control characters. */
void copy_plain(char *out, size_t size, const char *bytes, size_t len);

#endif
