/* One table of keys, and the readers for both GGUF and config.json; see settings.h. Used by the
 * thread that loads the model. An absent key gets the row's default; a null one does not. */
#include "model/settings.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MAX_ALIASES = 4 };

/* GGUF's key after the architecture's name, and config.json's keys, the usual one first. NULL: that
 * kind of file does not have it. */
static const struct setting_key {
    const char *gguf;
    const char *config[MAX_ALIASES];
} keys[N_SETTINGS] = {
    [SETTING_LAYERS] = {"block_count", {"num_hidden_layers", "n_layers", "n_layer"}},
    [SETTING_EMBD] = {"embedding_length", {"hidden_size", "n_embd"}},
    [SETTING_FF] = {"feed_forward_length", {"intermediate_size"}},
    [SETTING_CONTEXT] = {"context_length", {"max_position_embeddings", "n_positions"}},
    [SETTING_LONGER_CONTEXT] = {NULL, {"model_max_length"}},
    [SETTING_VOCAB] = {"vocab_size", {"vocab_size"}},
    [SETTING_NORM_EPS] = {"attention.layer_norm_rms_epsilon", {"rms_norm_eps", "norm_eps"}},
    [SETTING_LAYER_NORM_EPS] = {"attention.layer_norm_epsilon", {"layer_norm_eps"}},
    [SETTING_ACTIVATION] = {NULL, {"hidden_activation", "hidden_act"}},
    [SETTING_TIED] = {NULL, {"tie_word_embeddings"}},
    [SETTING_HEADS] = {"attention.head_count", {"num_attention_heads", "n_head"}},
    [SETTING_KV_HEADS] = {"attention.head_count_kv", {"num_key_value_heads"}},
    [SETTING_GLOBAL_KV_HEADS] = {NULL, {"num_global_key_value_heads"}},
    [SETTING_HEAD_DIM] = {"attention.key_length", {"head_dim"}},
    [SETTING_VALUE_DIM] = {"attention.value_length"},
    [SETTING_WINDOW_HEAD_DIM] = {"attention.key_length_swa"},
    [SETTING_GLOBAL_HEAD_DIM] = {NULL, {"global_head_dim"}},
    [SETTING_PER_LAYER] = {NULL, {"per_layer_config"}},
    [SETTING_WINDOW] = {"attention.sliding_window", {"sliding_window"}},
    [SETTING_WINDOW_SWITCH] = {NULL, {"use_sliding_window"}},
    [SETTING_WINDOW_PATTERN] = {"attention.sliding_window_pattern",
                                {"sliding_window_pattern", "_sliding_window_pattern"}},
    [SETTING_WINDOW_FROM] = {NULL, {"max_window_layers"}},
    [SETTING_LAYER_TYPES] = {NULL, {"layer_types", "layers_block_type"}},
    [SETTING_KV_SHARED] = {"attention.shared_kv_layers", {"num_kv_shared_layers"}},
    [SETTING_VALUES_ARE_KEYS] = {NULL, {"attention_k_eq_v"}},
    [SETTING_DOUBLE_WIDE] = {NULL, {"use_double_wide_mlp"}},
    [SETTING_LAYER_INPUT] = {"embedding_length_per_layer_input", {"hidden_size_per_layer_input"}},
    [SETTING_QK_NORM] = {NULL, {"use_qk_norm"}},
    [SETTING_ROPE_BASE] = {"rope.freq_base", {"rope_theta"}},
    [SETTING_ROPE_LOCAL_BASE] = {"rope.freq_base_swa", {"rope_local_base_freq"}},
    [SETTING_ROPE_DIM] = {"rope.dimension_count", {"rotary_dim"}},
    [SETTING_ROPE_LOCAL_DIM] = {"rope.dimension_count_swa"},
    [SETTING_ROPE_PART] = {NULL, {"partial_rotary_factor"}},
    [SETTING_ROPE_PARAMETERS] = {NULL, {"rope_parameters"}},
    [SETTING_ROPE_SCALING] = {NULL, {"rope_scaling"}},
    [SETTING_ROPE_TYPE] = {"rope.scaling.type"},
    [SETTING_ROPE_FACTOR] = {"rope.scaling.factor"},
    [SETTING_ROPE_OLD_FACTOR] = {"rope.scale_linear"},
    [SETTING_ROPE_ORIGINAL] = {"rope.scaling.original_context_length",
                               {"original_max_position_embeddings"}},
    [SETTING_ROPE_AMPLITUDE] = {"rope.scaling.attn_factor"},
    [SETTING_ROPE_YARN_AMPLITUDE] = {"rope.scaling.yarn_attn_factor"},
    [SETTING_ROPE_BETA_FAST] = {"rope.scaling.yarn_beta_fast"},
    [SETTING_ROPE_BETA_SLOW] = {"rope.scaling.yarn_beta_slow"},
    [SETTING_ROPE_LOG_MULTIPLIER] = {"rope.scaling.yarn_log_multiplier"},
    [SETTING_ROPE_SWITCH] = {"rope.scaling.finetuned", {"position_embedding_type"}},
    [SETTING_ROPE_INTERLEAVED] = {NULL, {"rope_interleave"}},
    [SETTING_ROPE_LAYERS] = {NULL, {"no_rope_layers"}},
    [SETTING_ROPE_INTERVAL] = {NULL, {"no_rope_layer_interval"}},
    [SETTING_TEMPERATURE] = {"attention.temperature_scale"},
    [SETTING_TEMPERATURE_LENGTH] = {"attention.temperature_length"},
    [SETTING_EMBD_SCALE] = {"embedding_scale", {"embedding_multiplier"}},
    [SETTING_RESIDUAL_SCALE] = {"residual_scale", {"residual_multiplier"}},
    [SETTING_ATTN_SCALE] = {"attention.scale", {"attention_multiplier"}},
    [SETTING_ATTN_SCALAR] = {NULL, {"query_pre_attn_scalar"}},
    [SETTING_LOGIT_SCALE] = {"logit_scale", {"logit_scale", "logits_scaling"}},
    [SETTING_ATTN_SOFTCAP] = {"attn_logit_softcapping", {"attn_logit_softcapping"}},
    [SETTING_LOGIT_SOFTCAP] = {"final_logit_softcapping", {"final_logit_softcapping"}},
    [SETTING_EXPERTS] = {"expert_count", {"num_experts", "num_local_experts", "n_routed_experts"}},
    [SETTING_EXPERTS_SWITCH] = {NULL, {"enable_moe_block"}},
    [SETTING_EXPERTS_CHOSEN] = {"expert_used_count",
                                {"num_experts_per_tok", "top_k_experts", "experts_per_token"}},
    [SETTING_EXPERT_FF] = {"expert_feed_forward_length", {"moe_intermediate_size"}},
    [SETTING_SHARED_EXPERTS] = {"expert_shared_count", {"n_shared_experts"}},
    [SETTING_SHARED_FF] = {"expert_shared_feed_forward_length",
                           {"shared_intermediate_size", "shared_expert_intermediate_size"}},
    [SETTING_EXPERT_GROUPS] = {"expert_group_count", {"n_group"}},
    [SETTING_EXPERT_GROUPS_CHOSEN] = {"expert_group_used_count", {"topk_group"}},
    [SETTING_EXPERT_SCORES] = {"expert_gating_func", {"scoring_func"}},
    [SETTING_EXPERT_METHOD] = {NULL, {"topk_method"}},
    [SETTING_EXPERT_NORMALIZES] = {"expert_weights_norm", {"norm_topk_prob"}},
    [SETTING_EXPERT_SCALE] = {"expert_weights_scale", {"routed_scaling_factor"}},
    [SETTING_DENSE_LAYERS] = {"leading_dense_block_count", {"first_k_dense_replace"}},
    [SETTING_DENSE_LIST] = {NULL, {"mlp_only_layers"}},
    [SETTING_EXPERT_STEP] = {NULL, {"decoder_sparse_step"}},
    [SETTING_EXPERT_FREQUENCY] = {NULL, {"moe_layer_freq"}},
    [SETTING_MLP_TYPES] = {NULL, {"mlp_layer_types"}},
    [SETTING_SWIGLU_LIMIT] = {NULL, {"swiglu_limit"}},
    [SETTING_SWIGLU_ALPHA] = {NULL, {"swiglu_alpha"}},
    [SETTING_Q_RANK] = {"attention.q_lora_rank", {"q_lora_rank"}},
    [SETTING_KV_RANK] = {"attention.kv_lora_rank", {"kv_lora_rank"}},
    [SETTING_NOPE_DIM] = {NULL, {"qk_nope_head_dim"}},
    [SETTING_MLA_ROPE_DIM] = {"rope.dimension_count", {"qk_rope_head_dim"}},
    [SETTING_MLA_VALUE_DIM] = {"attention.value_length_mla", {"v_head_dim"}},
    [SETTING_MLA_KEY_DIM] = {"attention.key_length_mla"},
    [SETTING_PREDICTION_LAYERS] = {"nextn_predict_layers",
                                   {"num_nextn_predict_layers", "num_mtp_layers"}},
};

/* A value from either kind of file; both NULL: none. */
struct value {
    const struct json *json;
    const struct gguf_value *gguf;
};

static bool is_gguf(const struct settings *s)
{
    return s->checkpoint->kind == CHECKPOINT_GGUF;
}

int settings_refuse(const struct settings *s, const char *format, ...)
{
    char what[400];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return error_set(s->err, ERROR_FORMAT, "%s: %s", s->checkpoint->path, what);
}

void copy_plain(char *out, size_t size, const char *bytes, size_t len)
{
    size_t kept = len < size ? len : size - 1;
    while (kept < len && kept > 0 && ((unsigned char)bytes[kept] & 0xc0) == 0x80)
        kept--;
    for (size_t i = 0; i < kept; i++)
        out[i] = (unsigned char)bytes[i] < 0x20 || bytes[i] == 0x7f ? ' ' : bytes[i];
    out[kept] = '\0';
}

/* The member under the first of its names that exists and is not null. */
static const struct json *find_json(const struct settings *s, enum setting id, const char **name)
{
    const struct json *null = NULL;
    for (size_t i = 0; i < MAX_ALIASES && keys[id].config[i]; i++) {
        const struct json *v = json_get(s->checkpoint->text_config, keys[id].config[i]);
        if (v && v->type == JSON_NULL && !null)
            null = v;
        else if (v) {
            *name = keys[id].config[i];
            return v;
        }
    }
    *name = keys[id].config[0];
    return null;
}

static struct value find(const struct settings *s, enum setting id)
{
    struct value v = {NULL, NULL};
    const char *name;
    if (!is_gguf(s)) {
        v.json = find_json(s, id, &name);
    } else if (keys[id].gguf) {
        char key[128];
        snprintf(key, sizeof key, "%s.%s", s->prefix, keys[id].gguf);
        v.gguf = gguf_find(s->checkpoint->gguf, key);
    }
    return v;
}

const char *setting_gguf_key(enum setting id)
{
    return keys[id].gguf;
}

struct setting_name setting_name(const struct settings *s, enum setting id)
{
    struct setting_name n;
    if (is_gguf(s)) {
        snprintf(n.text, sizeof n.text, "%s.%s", s->prefix, keys[id].gguf ? keys[id].gguf : "?");
    } else {
        const char *name;
        find_json(s, id, &name);
        snprintf(n.text, sizeof n.text, "%s", name ? name : "?");
    }
    return n;
}

static bool is_absent(struct value v)
{
    return !v.json && !v.gguf;
}

static bool is_null(struct value v)
{
    return v.json && v.json->type == JSON_NULL;
}

bool setting_is_set(const struct settings *s, enum setting id)
{
    struct value v = find(s, id);
    return !is_absent(v) && !is_null(v);
}

static bool find_default(const struct settings *s, enum setting id, double *out)
{
    for (size_t i = 0; i < s->n_defaults; i++) {
        double value = is_gguf(s) ? s->defaults[i].gguf : s->defaults[i].config;
        if (s->defaults[i].id == id && !isnan(value)) {
            *out = value;
            return true;
        }
    }
    return false;
}

/* Finds the value to read. 0: found. 1: absent, and `fallback` is the row's default or NAN. -1:
 * required but absent. */
static int look_up(const struct settings *s, enum setting id, enum presence presence,
                   struct value *v, double *fallback)
{
    *v = find(s, id);
    *fallback = NAN;
    if (!is_absent(*v) && !is_null(*v))
        return 0;
    bool may_default = is_absent(*v) && !(is_gguf(s) && presence == REQUIRED);
    if (may_default && find_default(s, id, fallback))
        return 1;
    return presence == OPTIONAL
               ? 1
               : settings_refuse(s, "the key %s is missing", setting_name(s, id).text);
}

static bool is_list(struct value v)
{
    return v.json ? v.json->type == JSON_ARRAY : v.gguf && v.gguf->type == GGUF_ARRAY;
}

static const struct json *json_item(const struct json *list, size_t i)
{
    const struct json *item = list->first;
    while (item && i-- > 0)
        item = item->next;
    return item;
}

static bool is_whole_type(enum gguf_type type)
{
    return type != GGUF_F32 && type != GGUF_F64 && type != GGUF_STRING && type != GGUF_ARRAY;
}

/* Item `i` of a list, or the value itself, as a number. */
static bool to_u64(struct value v, size_t i, uint64_t *out)
{
    int64_t number = -1;
    if (v.json) {
        const struct json *item = is_list(v) ? json_item(v.json, i) : v.json;
        if (item && item->type == JSON_BOOL)
            number = item->boolean;
        else if (!item || !json_to_int64(item, &number))
            return false;
    } else if (is_list(v) ? i < v.gguf->count && is_whole_type(v.gguf->item_type)
                          : is_whole_type(v.gguf->type) && v.gguf->type != GGUF_BOOL) {
        struct gguf_value one = *v.gguf;
        if (!is_list(v)) {
            one.item_type = one.type;
            one.type = GGUF_ARRAY;
            one.count = 1;
            i = 0;
        }
        number = gguf_array_i64(&one, i);
    }
    *out = (uint64_t)number;
    return number >= 0;
}

static bool to_f64(struct value v, double *out)
{
    if (v.json) {
        *out = v.json->number;
        return v.json->type == JSON_NUMBER;
    }
    if (v.gguf->type == GGUF_F32 || v.gguf->type == GGUF_F64) {
        struct gguf_value one = *v.gguf;
        one.item_type = one.type;
        one.type = GGUF_ARRAY;
        one.count = 1;
        *out = gguf_array_f64(&one, 0);
        return true;
    }
    uint64_t whole;
    if (is_list(v) || !to_u64(v, 0, &whole))
        return false;
    *out = (double)whole;
    return true;
}

static int check_range(const struct settings *s, const char *name, uint64_t value, uint32_t min,
                       uint32_t max, uint32_t *out)
{
    if (value < min || value > max)
        return settings_refuse(s, "%s is %" PRIu64 "; expected %" PRIu32 " to %" PRIu32, name,
                               value, min, max);
    *out = (uint32_t)value;
    return 0;
}

int setting_u32(const struct settings *s, enum setting id, enum presence presence, uint32_t min,
                uint32_t max, uint32_t *out)
{
    struct value v;
    double fallback;
    int found = look_up(s, id, presence, &v, &fallback);
    if (found) {
        if (found == 1 && !isnan(fallback))
            *out = (uint32_t)fallback;
        return found == 1 ? 0 : -1;
    }
    uint64_t value;
    bool is_flag = v.json && v.json->type == JSON_BOOL;
    if (is_list(v) || is_flag || !to_u64(v, 0, &value))
        return settings_refuse(s, "the key %s is not a whole number of 0 or more",
                               setting_name(s, id).text);
    return check_range(s, setting_name(s, id).text, value, min, max, out);
}

int setting_number(const struct settings *s, enum setting id, double *out)
{
    struct value v;
    double fallback, value;
    int found = look_up(s, id, OPTIONAL, &v, &fallback);
    if (found) {
        if (!isnan(fallback))
            *out = fallback;
        return 0;
    }
    if (!to_f64(v, &value))
        return settings_refuse(s, "the key %s is not a number", setting_name(s, id).text);
    if (!isfinite((float)value))
        return settings_refuse(s, "%s is %g; expected a finite number", setting_name(s, id).text,
                               value);
    *out = value;
    return 0;
}

int setting_positive(const struct settings *s, enum setting id, enum presence presence, float *out)
{
    struct value v;
    double fallback, value;
    int found = look_up(s, id, presence, &v, &fallback);
    if (found) {
        if (found == 1 && !isnan(fallback))
            *out = (float)fallback;
        return found == 1 ? 0 : -1;
    }
    if (!to_f64(v, &value))
        return settings_refuse(s, "the key %s is not a number", setting_name(s, id).text);
    float narrow = (float)value;
    if (!isfinite(narrow) || !(narrow > 0))
        return settings_refuse(s, "%s is %g; expected a finite number above 0",
                               setting_name(s, id).text, value);
    *out = narrow;
    return 0;
}

int setting_bool(const struct settings *s, enum setting id, bool *out)
{
    struct value v;
    double fallback;
    if (look_up(s, id, OPTIONAL, &v, &fallback)) {
        if (!isnan(fallback))
            *out = fallback != 0;
        return 0;
    }
    if (v.json ? v.json->type != JSON_BOOL : v.gguf->type != GGUF_BOOL)
        return settings_refuse(s, "the key %s is not true or false", setting_name(s, id).text);
    *out = v.json ? v.json->boolean : *(const uint8_t *)v.gguf->data != 0;
    return 0;
}

static bool to_text(struct value v, size_t i, char *out, size_t size)
{
    if (v.json) {
        const struct json *item = is_list(v) ? json_item(v.json, i) : v.json;
        if (!json_is(item, JSON_STRING))
            return false;
        copy_plain(out, size, item->text, item->text_len);
        return true;
    }
    bool is_string = is_list(v) ? v.gguf->item_type == GGUF_STRING && i < v.gguf->count
                                : v.gguf->type == GGUF_STRING;
    if (!is_string)
        return false;
    const struct byte_view *string = &v.gguf->strings[is_list(v) ? i : 0];
    copy_plain(out, size, string->bytes, string->len);
    return true;
}

int setting_text(const struct settings *s, enum setting id, char *out, size_t size)
{
    struct value v = find(s, id);
    if (is_absent(v) || is_null(v))
        return 0;
    if (is_list(v) || !to_text(v, 0, out, size))
        return settings_refuse(s, "the key %s is not a string", setting_name(s, id).text);
    return 0;
}

size_t setting_count(const struct settings *s, enum setting id)
{
    struct value v = find(s, id);
    if (!is_list(v))
        return 0;
    return v.json ? v.json->count : (size_t)v.gguf->count;
}

int setting_item_u32(const struct settings *s, enum setting id, size_t i, uint32_t min,
                     uint32_t max, uint32_t *out)
{
    struct value v = find(s, id);
    uint64_t value;
    if (is_absent(v) || is_null(v))
        return 0;
    if (!is_list(v))
        return setting_u32(s, id, OPTIONAL, min, max, out);
    char name[160];
    snprintf(name, sizeof name, "%s[%zu]", setting_name(s, id).text, i);
    if (!to_u64(v, i, &value))
        return settings_refuse(s, "%s is not a whole number of 0 or more", name);
    return check_range(s, name, value, min, max, out);
}

int setting_item_text(const struct settings *s, enum setting id, size_t i, char *out, size_t size)
{
    struct value v = find(s, id);
    if (is_absent(v) || !is_list(v) || !to_text(v, i, out, size))
        return settings_refuse(s, "%s[%zu] is not a string", setting_name(s, id).text, i);
    return 0;
}

int setting_object(const struct settings *s, enum setting id, const struct json **out)
{
    struct value v = find(s, id);
    *out = NULL;
    if (is_absent(v) || is_null(v))
        return 0;
    if (!json_is(v.json, JSON_OBJECT))
        return settings_refuse(s, "the key %s is not an object", setting_name(s, id).text);
    *out = v.json;
    return 0;
}

static const struct json *member(struct setting_member at, const char *key)
{
    const struct json *v = json_get(at.object, key);
    return json_is(v, JSON_NULL) ? NULL : v;
}

int member_number(const struct settings *s, struct setting_member at, const char *key, double *out)
{
    const struct json *v = member(at, key);
    if (!v)
        return 0;
    if (v->type != JSON_NUMBER || !isfinite((float)v->number))
        return settings_refuse(s, "%s.%s is not a finite number", at.name, key);
    *out = v->number;
    return 0;
}

int member_u32(const struct settings *s, struct setting_member at, const char *key, uint32_t min,
               uint32_t max, uint32_t *out)
{
    const struct json *v = member(at, key);
    uint64_t value;
    char name[160];
    if (!v)
        return 0;
    snprintf(name, sizeof name, "%s.%s", at.name, key);
    if (!json_to_uint64(v, &value))
        return settings_refuse(s, "%s is not a whole number of 0 or more", name);
    return check_range(s, name, value, min, max, out);
}

int member_bool(const struct settings *s, struct setting_member at, const char *key, bool *out)
{
    const struct json *v = member(at, key);
    if (!v)
        return 0;
    if (v->type != JSON_BOOL)
        return settings_refuse(s, "%s.%s is not true or false", at.name, key);
    *out = v->boolean;
    return 0;
}
