/* The ropes of a model, from its files; see rope_scaling.h. Used by the thread that loads.
 * config.json has had three forms. Old: rope_theta and rope_scaling at the top. New:
 * rope_parameters with everything. Newest: rope_parameters once for each kind of layer. */
#include "model/model_internal.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "model/rope_scaling.h"

/* The common input for the ropes of all layers. */
struct ropes {
    struct loader *l;
    struct rope_spec specs[MAX_ROPES];
    const float *freqs, *long_factors, *short_factors; /* GGUF's tensors, or config.json's lists */
    uint32_t factors_dim;                              /* the dim that they were read for */
    uint32_t trained;                                  /* the file's context */
    bool has_original;                                 /* the file has the original context */
};

/* The context length that selects longrope's factors. */
static double context_of(const struct ropes *r)
{
    return r->l->context ? r->l->context : r->trained;
}

static int check_positive(const struct loader *l, const char *what, double value, double above)
{
    return isfinite(value) && value > above
               ? 0
               : refuse(l, "rope's %s is %g; expected a finite number above %g", what, value,
                        above);
}

static int check_spec(const struct loader *l, const struct rope_spec *spec)
{
    bool is_yarn = spec->scaling == ROPE_SCALING_YARN;
    bool is_llama3 = spec->scaling == ROPE_SCALING_LLAMA3;
    bool is_long = spec->scaling == ROPE_SCALING_LONG;
    if (check_positive(l, "base", spec->base, is_yarn ? 1 : 0) ||
        check_positive(l, "factor", spec->factor, 0))
        return -1;
    if (!isfinite((float)(1 / spec->factor)))
        return refuse(l, "rope scaling by %g is too small", spec->factor);
    if ((is_yarn || is_llama3 || is_long) &&
        check_positive(l, "original context", spec->original, is_long ? 1 : 0))
        return -1;
    if (is_yarn && (check_positive(l, "beta_fast", spec->beta_fast, 0) ||
                    check_positive(l, "beta_slow", spec->beta_slow, 0)))
        return -1;
    if (is_llama3 && !(spec->high_factor > spec->low_factor && spec->low_factor > 0))
        return refuse(l,
                      "rope's high_freq_factor is %g, which is not above its low_freq_factor of %g",
                      spec->high_factor, spec->low_factor);
    if (spec->amplitude < 0 || spec->mscale < 0 || spec->mscale_all_dim < 0)
        return refuse(l, "a factor of rope's amplitude is below 0");
    return 0;
}

static int check_divisors(const struct loader *l, const char *name, const float *values, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (!isfinite(values[i]) || !(values[i] > 0))
            return refuse(l, "%s holds %g; expected a finite number above 0", name,
                          (double)values[i]);
    return 0;
}

/* GGUF: reads divisors from a tensor, if it exists. */
static int take_divisors(struct loader *l, const char *name, uint32_t n, const float **out)
{
    float *values = NULL;
    if (take_floats(l, name, n, &values))
        return -1;
    *out = values;
    return values ? check_divisors(l, name, values, n) : 0;
}

static int take_gguf_factors(struct ropes *r, uint32_t dim)
{
    struct loader *l = r->l;
    if (r->factors_dim)
        return r->factors_dim == dim || (!r->freqs && !r->long_factors)
                   ? 0
                   : refuse(l,
                            "its layers turn %" PRIu32 " and %" PRIu32
                            " values, but it has one list of rope's divisors",
                            r->factors_dim, dim);
    r->factors_dim = dim;
    if (take_divisors(l, "rope_freqs.weight", dim / 2, &r->freqs) ||
        take_divisors(l, "rope_factors_long.weight", dim / 2, &r->long_factors) ||
        take_divisors(l, "rope_factors_short.weight", dim / 2, &r->short_factors))
        return -1;
    if (!r->long_factors != !r->short_factors)
        return refuse(l, "the tensor rope_factors_%s.weight is missing",
                      r->long_factors ? "short" : "long");
    return 0;
}

static void choose_long(const struct ropes *r, struct rope_spec *spec)
{
    r->l->m->hparams.n_context_short = (uint32_t)fmin(spec->original, MAX_CONTEXT);
    spec->scaling = ROPE_SCALING_LONG;
    spec->divisors = context_of(r) > spec->original ? r->long_factors : r->short_factors;
    spec->long_divisors = r->long_factors;
    spec->short_divisors = r->short_factors;
}

/* YaRN as in llama.cpp's files. The logarithm's multiplier is mscale_all_dim, or a tenth of it for
 * models with latent attention. mscale is omitted, because it is the same or 1. An amplitude below
 * 1 is not an attention_factor but what some files call attn_factor, which nobody uses. */
static int read_gguf_yarn(const struct loader *l, struct rope_spec *spec)
{
    const struct settings *s = &l->settings;
    double multiplier = 0, amplitude = 0, times = 1;
    if (setting_number(s, SETTING_ROPE_BETA_FAST, &spec->beta_fast) ||
        setting_number(s, SETTING_ROPE_BETA_SLOW, &spec->beta_slow) ||
        setting_number(s, SETTING_ROPE_LOG_MULTIPLIER, &multiplier) ||
        setting_number(s, SETTING_ROPE_YARN_AMPLITUDE, &amplitude) ||
        setting_number(s, SETTING_ROPE_AMPLITUDE, &times))
        return -1;
    spec->is_exact = l->arch->yarn_is_exact;
    spec->mscale_all_dim = l->arch->has_mla ? multiplier * 10 : multiplier;
    spec->mscale = l->arch->has_mla ? spec->mscale_all_dim : 1;
    if (amplitude < 1)
        amplitude = multiplier > 0 ? yarn_mscale(spec->factor, spec->mscale) /
                                         yarn_mscale(spec->factor, spec->mscale_all_dim)
                                   : yarn_mscale(spec->factor, 1);
    spec->amplitude = amplitude * times;
    return 0;
}

static int read_gguf_scaling(struct ropes *r, struct rope_spec *spec)
{
    struct loader *l = r->l;
    const struct settings *s = &l->settings;
    char type[32] = "linear"; /* the meaning of a factor without a type */
    float factor = 1;
    if (setting_text(s, SETTING_ROPE_TYPE, type, sizeof type) ||
        setting_positive(s, SETTING_ROPE_OLD_FACTOR, OPTIONAL, &factor) ||
        setting_positive(s, SETTING_ROPE_FACTOR, OPTIONAL, &factor) ||
        setting_number(s, SETTING_ROPE_ORIGINAL, &spec->original) ||
        take_gguf_factors(r, spec->dim))
        return -1;
    r->has_original = setting_is_set(s, SETTING_ROPE_ORIGINAL);
    spec->divisors = r->freqs;
    if (r->long_factors) {
        spec->factor = r->trained / spec->original;
        choose_long(r, spec);
        return setting_number(s, SETTING_ROPE_AMPLITUDE, &spec->amplitude);
    }
    if (strcmp(type, "linear") == 0) {
        spec->scaling = ROPE_SCALING_LINEAR;
        spec->factor = factor;
    } else if (strcmp(type, "yarn") == 0) {
        spec->scaling = ROPE_SCALING_YARN;
        spec->factor = factor;
        return read_gguf_yarn(l, spec);
    } else if (strcmp(type, "none") != 0) {
        return refuse(l,
                      "%s is \"%s\"; radish supports none, linear, yarn and longrope (with its "
                      "factors as tensors)",
                      setting_name(s, SETTING_ROPE_TYPE).text, type);
    }
    return 0;
}

static int read_gguf_rope(struct ropes *r, uint32_t layer, struct rope_spec *spec)
{
    struct loader *l = r->l;
    const struct settings *s = &l->settings;
    bool is_local = l->m->hparams.layers[layer].is_windowed;
    float base = 10000;
    if (setting_positive(s, SETTING_ROPE_BASE, OPTIONAL, &base))
        return -1;
    if (is_local && (l->arch->has_local_rope || setting_is_set(s, SETTING_ROPE_LOCAL_BASE)) &&
        setting_positive(s, SETTING_ROPE_LOCAL_BASE, OPTIONAL, &base))
        return -1;
    spec->base = base;
    enum setting dim = is_local && (setting_is_set(s, SETTING_ROPE_LOCAL_DIM) ||
                                    setting_is_set(s, SETTING_WINDOW_HEAD_DIM))
                           ? SETTING_ROPE_LOCAL_DIM
                           : SETTING_ROPE_DIM;
    uint32_t head_dim = spec->dim;
    if (!l->arch->has_mla && setting_u32(s, dim, OPTIONAL, 1, MAX_WIDTH, &spec->dim))
        return -1;
    if (spec->dim > head_dim || spec->dim % 2)
        return refuse(l, "%s is %" PRIu32 ", not even and at most the head's %" PRIu32,
                      setting_name(s, dim).text, spec->dim, head_dim);
    return is_local && l->arch->has_local_rope ? 0 : read_gguf_scaling(r, spec);
}

/* A list of numbers from config.json, each above 0. */
static int read_list(struct loader *l, struct setting_member at, const char *key, uint32_t n,
                     const float **out)
{
    const struct json *list = json_get(at.object, key);
    if (!json_is(list, JSON_ARRAY) || list->count != n)
        return refuse(l, "%s.%s is not a list of %" PRIu32 " numbers", at.name, key, n);
    float *values = arena_alloc_array(&l->m->memory, n + 1, sizeof *values);
    if (!values)
        return refuse_memory(l);
    uint32_t i = 0;
    json_each (item, list) {
        values[i++] = item->type == JSON_NUMBER ? (float)item->number : NAN;
    }
    *out = values;
    return check_divisors(l, key, values, n);
}

static int read_long(struct ropes *r, struct setting_member at, struct rope_spec *spec)
{
    struct loader *l = r->l;
    spec->factor = r->trained / spec->original;
    if (member_number(&l->settings, at, "factor", &spec->factor) ||
        member_number(&l->settings, at, "attention_factor", &spec->amplitude))
        return -1;
    if (r->factors_dim != spec->dim &&
        (read_list(l, at, "long_factor", spec->dim / 2, &r->long_factors) ||
         read_list(l, at, "short_factor", spec->dim / 2, &r->short_factors)))
        return -1;
    r->factors_dim = spec->dim;
    choose_long(r, spec);
    return 0;
}

/* A number rounded as in a GGUF file, so that the model gives the same bits from either. */
static int member_float(const struct settings *s, struct setting_member at, const char *key,
                        double *out)
{
    double value = NAN;
    if (member_number(s, at, key, &value))
        return -1;
    if (!isnan(value))
        *out = (float)value;
    return 0;
}

static int read_yarn(const struct loader *l, struct setting_member at, struct rope_spec *spec)
{
    const struct settings *s = &l->settings;
    bool truncates = true;
    spec->scaling = ROPE_SCALING_YARN;
    if (member_float(s, at, "factor", &spec->factor) ||
        member_float(s, at, "beta_fast", &spec->beta_fast) ||
        member_float(s, at, "beta_slow", &spec->beta_slow) ||
        member_number(s, at, "mscale", &spec->mscale) ||
        member_number(s, at, "mscale_all_dim", &spec->mscale_all_dim) ||
        member_number(s, at, "attention_factor", &spec->amplitude) ||
        member_bool(s, at, "truncate", &truncates))
        return -1;
    spec->is_exact = !truncates;
    return 0;
}

static int read_llama3(const struct loader *l, struct setting_member at, struct rope_spec *spec)
{
    const struct settings *s = &l->settings;
    spec->scaling = ROPE_SCALING_LLAMA3;
    return member_number(s, at, "factor", &spec->factor) ||
                   member_number(s, at, "low_freq_factor", &spec->low_factor) ||
                   member_number(s, at, "high_freq_factor", &spec->high_factor)
               ? -1
               : 0;
}

static int read_scaling(struct ropes *r, struct setting_member at, struct rope_spec *spec)
{
    struct loader *l = r->l;
    const struct settings *s = &l->settings;
    const struct json *type = json_get(at.object, "rope_type");
    char name[32] = "default";
    if (!type || type->type == JSON_NULL)
        type = json_get(at.object, "type");
    if (type && type->type != JSON_NULL) {
        if (type->type != JSON_STRING)
            return refuse(l, "%s.rope_type is not a string", at.name);
        copy_plain(name, sizeof name, type->text, type->text_len);
    }
    bool has_lists = json_get(at.object, "short_factor") != NULL;
    if (strcmp(name, "default") == 0)
        return 0;
    if (strcmp(name, "linear") == 0) {
        spec->scaling = ROPE_SCALING_LINEAR;
        return member_number(s, at, "factor", &spec->factor);
    }
    if (strcmp(name, "longrope") == 0 || strcmp(name, "su") == 0 ||
        (strcmp(name, "yarn") == 0 && has_lists))
        return read_long(r, at, spec);
    if (strcmp(name, "yarn") == 0)
        return read_yarn(l, at, spec);
    if (strcmp(name, "llama3") == 0)
        return read_llama3(l, at, spec);
    if (strcmp(name, "proportional") == 0) {
        spec->scaling = ROPE_SCALING_PROPORTIONAL;
        return member_number(s, at, "factor", &spec->factor);
    }
    if (strcmp(name, "dynamic") == 0)
        return refuse(l,
                      "%s asks for dynamic NTK scaling, whose frequencies depend on the current "
                      "length; no cached prefix could ever be reused",
                      at.name);
    return refuse(l,
                  "%s.rope_type is \"%s\"; radish supports default, linear, yarn, llama3, longrope "
                  "and proportional",
                  at.name, name);
}

/* The object that describes a layer's rope, in whichever of the three forms; none for windowed
 * layers with their own rope in the old form. */
static int find_object(const struct loader *l, uint32_t layer, struct setting_member *at,
                       bool *is_nested)
{
    const struct settings *s = &l->settings;
    const struct json *parameters, *scaling;
    const char *kind = l->m->hparams.layers[layer].is_windowed ? "sliding_attention"
                                                               : "full_attention";
    bool is_local = l->m->hparams.layers[layer].is_windowed && l->arch->has_local_rope;
    *is_nested = false;
    if (setting_object(s, SETTING_ROPE_SCALING, &scaling) ||
        setting_object(s, SETTING_ROPE_PARAMETERS, &parameters))
        return -1;
    if (l->arch->needs_scaling && !scaling && !parameters)
        return refuse(l, "the key rope_parameters is missing");
    *at = (struct setting_member){scaling, "rope_scaling"};
    if (!scaling && parameters) {
        const struct json *nested = json_get(parameters, kind);
        *at = (struct setting_member){parameters, "rope_parameters"};
        if (nested || json_get(parameters, "full_attention")) {
            if (nested && nested->type != JSON_OBJECT && nested->type != JSON_NULL)
                return refuse(l, "rope_parameters.%s is not an object", kind);
            *is_nested = true;
            at->object = json_is(nested, JSON_OBJECT) ? nested : NULL;
            return 0;
        }
    }
    if (is_local)
        at->object = NULL;
    return 0;
}

/* How many values of a head are rotated: given as a fraction, or as a number. */
static int read_part(const struct loader *l, struct setting_member at, struct rope_spec *spec)
{
    const struct settings *s = &l->settings;
    uint32_t head_dim = spec->dim;
    double part = 1;
    bool has_number = setting_is_set(s, SETTING_ROPE_DIM) && !setting_is_set(s, SETTING_ROPE_PART);
    if (l->arch->has_mla && head_dim % 2)
        return refuse(l, "qk_rope_head_dim is %" PRIu32 ", which is not even", head_dim);
    if (l->arch->has_mla)
        return 0;
    if ((!has_number && setting_number(s, SETTING_ROPE_PART, &part)) ||
        (has_number && setting_u32(s, SETTING_ROPE_DIM, OPTIONAL, 1, head_dim, &spec->dim)))
        return -1;
    if (member_number(s, at, "partial_rotary_factor", &part))
        return -1;
    if (!(part > 0 && part <= 1))
        return refuse(l, "partial_rotary_factor is %g; expected a number above 0 and at most 1",
                      part);
    spec->part = part;
    bool is_proportional = spec->scaling == ROPE_SCALING_PROPORTIONAL;
    if (!is_proportional && (!has_number || json_get(at.object, "partial_rotary_factor")))
        spec->dim = (uint32_t)(head_dim * part);
    if (spec->dim == 0 || spec->dim % 2)
        return refuse(l,
                      "%" PRIu32 " of a head's %" PRIu32 " values would be turned, not an even "
                      "number above 0",
                      spec->dim, head_dim);
    return 0;
}

/* In the old form, files have the original context at the top, where it takes precedence. */
static int read_original(struct ropes *r, struct setting_member at, bool is_nested,
                         struct rope_spec *spec)
{
    const struct settings *s = &r->l->settings;
    static const char key[] = "original_max_position_embeddings";
    if (member_number(s, at, key, &spec->original))
        return -1;
    r->has_original = json_is(json_get(at.object, key), JSON_NUMBER) ||
                      setting_is_set(s, SETTING_ROPE_ORIGINAL);
    return is_nested ? 0 : setting_number(s, SETTING_ROPE_ORIGINAL, &spec->original);
}

static bool is_type(struct setting_member at, const char *name)
{
    return json_equals(json_get(at.object, "rope_type"), name) ||
           json_equals(json_get(at.object, "type"), name);
}

static int read_config_rope(struct ropes *r, uint32_t layer, struct rope_spec *spec)
{
    struct loader *l = r->l;
    const struct settings *s = &l->settings;
    bool is_local = l->m->hparams.layers[layer].is_windowed && l->arch->has_local_rope, is_nested;
    struct setting_member at;
    if (find_object(l, layer, &at, &is_nested) || setting_number(s, SETTING_ROPE_BASE, &spec->base))
        return -1;
    if (is_local && setting_number(s, SETTING_ROPE_LOCAL_BASE, &spec->base))
        return -1;
    if (is_type(at, "proportional"))
        spec->scaling = ROPE_SCALING_PROPORTIONAL;
    if (member_number(s, at, "rope_theta", &spec->base) || read_part(l, at, spec) ||
        read_original(r, at, is_nested, spec))
        return -1;
    return read_scaling(r, at, spec);
}

/* The index of a rope equal to `spec`, created if there is none yet. */
static int add_rope(struct ropes *r, const struct rope_spec *spec, enum rope_kind kind,
                    uint32_t *index)
{
    struct hparams *h = &r->l->m->hparams;
    for (uint32_t i = 0; i < h->n_ropes; i++)
        if (memcmp(&r->specs[i], spec, sizeof *spec) == 0) {
            *index = i;
            return 0;
        }
    if (h->n_ropes == MAX_ROPES)
        return refuse(r->l, "its layers have more than %d kinds of rope", MAX_ROPES);
    struct rope *rope = &h->ropes[h->n_ropes];
    struct rope_spec *copy = arena_alloc(&r->l->m->memory, sizeof *copy);
    rope->kind = kind;
    rope->dim = spec->dim;
    rope->frequencies = arena_alloc_array(&r->l->m->memory, spec->dim / 2 + 1,
                                          sizeof *rope->frequencies);
    if (!copy || !rope->frequencies)
        return refuse_memory(r->l);
    *copy = *spec;
    rope->spec = copy;
    rope->amplitude = (float)rope_compute(spec, rope->frequencies);
    for (uint32_t i = 0; i < spec->dim / 2; i++)
        if (!isfinite(rope->frequencies[i]))
            return refuse(r->l, "rope's frequencies are not finite");
    r->specs[h->n_ropes] = *spec;
    *index = h->n_ropes++;
    return 0;
}

/* Sets what else depends on a rope: the context, and the scale of latent attention. */
static void apply_scaling(struct ropes *r, const struct rope_spec *spec, struct layer_shape *shape)
{
    struct loader *l = r->l;
    double stretched = spec->factor * spec->original;
    if (spec->scaling == ROPE_SCALING_YARN && r->has_original && stretched > r->trained)
        l->m->hparams.n_context = (uint32_t)fmin(stretched, MAX_CONTEXT);
    if (l->arch->has_mla && spec->scaling != ROPE_SCALING_NONE && spec->mscale_all_dim > 0) {
        double mscale = yarn_mscale(spec->factor, spec->mscale_all_dim);
        shape->attn_scale *= (float)(mscale * mscale);
    }
}

static int read_temperature(struct loader *l, double original)
{
    const struct settings *s = &l->settings;
    struct hparams *h = &l->m->hparams;
    double scale = 0;
    struct setting_member at;
    bool is_nested;
    if (is_gguf(l)) { /* the file says it, as for Mistral Large under DeepSeek's name */
        if (setting_number(s, SETTING_TEMPERATURE, &scale) ||
            setting_number(s, SETTING_TEMPERATURE_LENGTH, &original))
            return -1;
    } else if (l->arch->has_temperature && (find_object(l, 0, &at, &is_nested) ||
                                            member_number(s, at, "llama_4_scaling_beta", &scale))) {
        return -1;
    }
    if (scale != 0 && !(original >= 1 && original <= MAX_CONTEXT))
        return refuse(l, "the length for the attention temperature is %g; expected 1 to %d",
                      original, MAX_CONTEXT);
    h->temperature_scale = (float)scale;
    h->temperature_length = scale != 0 ? (uint32_t)original : 0;
    return 0;
}

/* Whether a layer has a rope. */
static int has_rope(struct loader *l, uint32_t layer, bool *has)
{
    const struct settings *s = &l->settings;
    uint32_t interval = 0, flag = 1;
    char type[32] = "";
    *has = true;
    switch (l->arch->rope_layers) {
    case ROPE_EVERYWHERE: return 0;
    case ROPE_IN_WINDOWS:
        *has = l->m->hparams.layers[layer].is_windowed || !l->has_windows;
        return 0;
    case ROPE_BY_INTERVAL:
        if (setting_count(s, SETTING_ROPE_LAYERS) > 0) {
            if (setting_item_u32(s, SETTING_ROPE_LAYERS, layer, 0, 1, &flag))
                return -1;
            *has = flag;
            return 0;
        }
        if (setting_u32(s, SETTING_ROPE_INTERVAL, OPTIONAL, 1, MAX_LAYERS, &interval))
            return -1;
        *has = interval == 0 || (layer + 1) % interval != 0;
        return 0;
    case ROPE_BY_SWITCH:
        *has = false;
        if (is_gguf(l) || !setting_is_set(s, SETTING_ROPE_SWITCH))
            return setting_bool(s, SETTING_ROPE_SWITCH, has);
        if (setting_text(s, SETTING_ROPE_SWITCH, type, sizeof type))
            return -1;
        *has = strcmp(type, "rope") == 0;
        return *has || strcmp(type, "nope") == 0
                   ? 0
                   : refuse(l, "position_embedding_type is \"%s\"; radish supports rope and nope",
                            type);
    }
    return 0;
}

int read_ropes(struct loader *l)
{
    struct hparams *h = &l->m->hparams;
    struct ropes r = {.l = l, .trained = h->n_context};
    enum rope_kind kind = is_gguf(l) ? l->arch->gguf_rope : l->arch->rope;
    bool is_interleaved = kind == ROPE_NORM;
    double original = r.trained;
    if (l->arch->has_mla && setting_bool(&l->settings, SETTING_ROPE_INTERLEAVED, &is_interleaved))
        return -1;
    if (setting_count(&l->settings, SETTING_ROPE_LAYERS) > 0 &&
        setting_count(&l->settings, SETTING_ROPE_LAYERS) < h->n_layers)
        return refuse(l, "no_rope_layers has %zu items for %" PRIu32 " layers",
                      setting_count(&l->settings, SETTING_ROPE_LAYERS), h->n_layers);
    for (uint32_t i = 0; i < h->n_layers; i++) {
        struct layer_shape *shape = &h->layers[i];
        struct rope_spec spec;
        bool has;
        memset(&spec, 0, sizeof spec); /* it is compared with memcmp */
        spec.dim = l->arch->has_mla ? h->mla.rope_dim : shape->key_dim;
        spec.base = 10000;
        spec.factor = spec.part = 1;
        spec.original = r.trained;
        spec.beta_fast = 32;
        spec.beta_slow = 1;
        shape->rope = ROPE_NONE;
        if (has_rope(l, i, &has))
            return -1;
        if (!has)
            continue;
        if ((is_gguf(l) ? read_gguf_rope(&r, i, &spec) : read_config_rope(&r, i, &spec)) ||
            check_spec(l, &spec) ||
            add_rope(&r, &spec, is_interleaved ? ROPE_NORM : ROPE_NEOX, &shape->rope))
            return -1;
        apply_scaling(&r, &spec, shape);
        original = spec.original;
    }
    return read_temperature(l, original);
}
