/* Sampling defaults: the name of each setting in each kind of file, its bounds (those of the
 * request's field) and where its value goes. */
#include "prompt/tokenizer/sampling_defaults.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/log.h"

/* `gguf_key`: NULL where the GGUF convention has none. */
static const struct setting {
    const char *name, *gguf_key;
    double min, max;
} settings[SAMPLING_SETTINGS] = {
    [SAMPLE_TEMPERATURE] = {"temperature", "general.sampling.temp", 0, 2},
    [SAMPLE_TOP_P] = {"top_p", "general.sampling.top_p", 0, 1},
    [SAMPLE_TOP_K] = {"top_k", "general.sampling.top_k", -1, 1 << 24},
    [SAMPLE_MIN_P] = {"min_p", "general.sampling.min_p", 0, 1},
    [SAMPLE_REPETITION_PENALTY] = {"repetition_penalty", "general.sampling.penalty_repeat", 0.01,
                                   10},
    [SAMPLE_PRESENCE_PENALTY] = {"presence_penalty", NULL, -2, 2},
    [SAMPLE_FREQUENCY_PENALTY] = {"frequency_penalty", NULL, -2, 2},
};

/* Values that makers recommend in a model's card but not in its files. A row is matched by the
 * file's metadata: `basename`, ignoring case, and a finetune, which base models lack. */
static const struct advice {
    const char *basename;
    struct sampling_defaults defaults;
} makers_advice[] = {
    {"smollm2",
     {.is_given = {[SAMPLE_TEMPERATURE] = true, [SAMPLE_TOP_P] = true},
      .values = {[SAMPLE_TEMPERATURE] = 0.2f, [SAMPLE_TOP_P] = 0.9f}}},
};

/* NaN means no value. */
static void take(struct sampling_defaults *d, size_t i, double value, const char *path,
                 const char *key)
{
    const struct setting *s = &settings[i];
    bool is_whole = i != SAMPLE_TOP_K || value == floor(value);
    if (!(value >= s->min && value <= s->max) || !is_whole) {
        log_warn("%s: \"%s\" is not %s from %g to %g: it is ignored", path, key,
                 i == SAMPLE_TOP_K ? "an integer" : "a number", s->min, s->max);
        return;
    }
    d->is_given[i] = true;
    d->values[i] = i == SAMPLE_TOP_K && value < 0 ? 0 : (float)value;
}

void sampling_defaults_from_json(struct sampling_defaults *d, const struct json *config,
                                 const char *path)
{
    for (size_t i = 0; i < SAMPLING_SETTINGS; i++) {
        const struct json *value = json_get(config, settings[i].name);
        if (value && value->type != JSON_NULL)
            take(d, i, value->type == JSON_NUMBER ? value->number : NAN, path, settings[i].name);
    }
    const struct json *draws = json_get(config, "do_sample");
    if (json_is(draws, JSON_BOOL) && !draws->boolean) {
        d->is_given[SAMPLE_TEMPERATURE] = true;
        d->values[SAMPLE_TEMPERATURE] = 0;
    }
}

static void advice_find(struct sampling_defaults *d, const struct gguf *gguf)
{
    struct byte_view basename = {NULL, 0}, finetune = {NULL, 0};
    gguf_get_string(gguf, "general.basename", &basename);
    gguf_get_string(gguf, "general.finetune", &finetune);
    for (size_t i = 0; i < sizeof makers_advice / sizeof *makers_advice && finetune.len; i++) {
        const struct advice *a = &makers_advice[i];
        if (basename.len == strlen(a->basename) &&
            strncasecmp(basename.bytes, a->basename, basename.len) == 0)
            *d = a->defaults;
    }
}

void sampling_defaults_from_gguf(struct sampling_defaults *d, const struct gguf *gguf)
{
    advice_find(d, gguf);
    for (size_t i = 0; i < SAMPLING_SETTINGS; i++) {
        const char *key = settings[i].gguf_key;
        double value = NAN;
        if (!key || !gguf_find(gguf, key))
            continue;
        gguf_get_f64(gguf, key, &value);
        take(d, i, value, gguf->path, key);
    }
}

static float value_of(const struct sampling *s, size_t i)
{
    switch ((enum sampling_setting)i) {
    case SAMPLE_TEMPERATURE: return s->temperature;
    case SAMPLE_TOP_P: return s->top_p;
    case SAMPLE_TOP_K: return (float)s->top_k;
    case SAMPLE_MIN_P: return s->min_p;
    case SAMPLE_PRESENCE_PENALTY: return s->presence_penalty;
    case SAMPLE_FREQUENCY_PENALTY: return s->frequency_penalty;
    default: return s->repetition_penalty;
    }
}

void sampling_defaults_apply(const struct sampling_defaults *d, struct sampling *s)
{
    if (d->is_given[SAMPLE_TEMPERATURE])
        s->temperature = d->values[SAMPLE_TEMPERATURE];
    if (d->is_given[SAMPLE_TOP_P])
        s->top_p = d->values[SAMPLE_TOP_P];
    if (d->is_given[SAMPLE_TOP_K])
        s->top_k = (int32_t)d->values[SAMPLE_TOP_K];
    if (d->is_given[SAMPLE_MIN_P])
        s->min_p = d->values[SAMPLE_MIN_P];
    if (d->is_given[SAMPLE_REPETITION_PENALTY])
        s->repetition_penalty = d->values[SAMPLE_REPETITION_PENALTY];
    if (d->is_given[SAMPLE_PRESENCE_PENALTY])
        s->presence_penalty = d->values[SAMPLE_PRESENCE_PENALTY];
    if (d->is_given[SAMPLE_FREQUENCY_PENALTY])
        s->frequency_penalty = d->values[SAMPLE_FREQUENCY_PENALTY];
}

/* A float as its file wrote it: 0.6, not the nearest double. */
static double shortest(float value)
{
    char text[32];
    snprintf(text, sizeof text, "%.7g", (double)value);
    return strtod(text, NULL);
}

void sampling_write_json(struct json_writer *w, const char *key, const struct sampling *s)
{
    json_object_begin(w, key);
    for (size_t i = 0; i < SAMPLING_SETTINGS; i++)
        if (i == SAMPLE_TOP_K)
            json_add_int(w, settings[i].name, s->top_k);
        else
            json_add_double(w, settings[i].name, shortest(value_of(s, i)));
    json_object_end(w);
}

void sampling_defaults_write(struct strbuf *out, const struct sampling_defaults *d)
{
    size_t n = 0;
    for (size_t i = 0; i < SAMPLING_SETTINGS; i++)
        if (d->is_given[i])
            strbuf_addf(out, "%s%s %.7g", n++ ? ", " : "", settings[i].name, (double)d->values[i]);
}

void sampling_write(struct strbuf *out, const struct sampling *s,
                    const struct sampling_defaults *model, const struct sampling_defaults *options)
{
    size_t n = 0;
    for (size_t i = 0; i < SAMPLING_SETTINGS; i++) {
        const char *source = options->is_given[i] ? " (option)"
                             : model->is_given[i] ? " (model)"
                                                  : "";
        if (i >= SAMPLE_REPETITION_PENALTY && !*source)
            continue;
        strbuf_addf(out, "%s%s %.7g%s", n++ ? ", " : "", settings[i].name, (double)value_of(s, i),
                    source);
    }
}
