#ifndef RADISH_PROMPT_TOKENIZER_SAMPLING_DEFAULTS_H
#define RADISH_PROMPT_TOKENIZER_SAMPLING_DEFAULTS_H

#include "base/json.h"
#include "model/files/gguf.h"
#include "sched/sampler.h"

/* The default sampling settings, for requests that do not set them. Each setting comes from the
 * first of these that has it:
 *
 *   the options of the command line     --temp, --top-p, ...
 *   the model's files                   generation_config.json, general.sampling.* of a GGUF file
 *   the makers' advice                  a table, for models whose files do not say it
 *   SAMPLING_USUAL                      llama-server's defaults
 */
enum sampling_setting {
    SAMPLE_TEMPERATURE,
    SAMPLE_TOP_P,
    SAMPLE_TOP_K,
    SAMPLE_MIN_P,
    SAMPLE_REPETITION_PENALTY,
    SAMPLE_PRESENCE_PENALTY,
    SAMPLE_FREQUENCY_PENALTY,
    SAMPLING_SETTINGS
};

#define SAMPLING_USUAL                                                                             \
    {                                                                                              \
        .temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f, .typical_p = 1.0f,       \
        .xtc_threshold = 0.1f, .repetition_penalty = 1.0f, .dry_base = 1.75f,                      \
        .dry_allowed_length = 2                                                                    \
    }

struct sampling_defaults {
    bool is_given[SAMPLING_SETTINGS];
    float values[SAMPLING_SETTINGS];
};

/* A value that is out of range is ignored, with a warning that names the file and the key.
 * `do_sample: false` means temperature 0, whatever else is set. A GGUF file is looked up in the
 * table of makers' advice by its metadata (general.basename, ...), never by its path. */
void sampling_defaults_from_json(struct sampling_defaults *d, const struct json *config,
                                 const char *path);
void sampling_defaults_from_gguf(struct sampling_defaults *d, const struct gguf *gguf);

/* Overwrites the settings that are given, and only those. */
void sampling_defaults_apply(const struct sampling_defaults *d, struct sampling *sampling);

/* All settings as a JSON object. */
void sampling_write_json(struct json_writer *w, const char *key, const struct sampling *sampling);
/* The settings that are given, in words: "temperature 0.6, top_k 20". */
void sampling_defaults_write(struct strbuf *out, const struct sampling_defaults *d);
/* The settings in effect, with the source of each: "temperature 0.6 (option), top_p 0.95 (model),
 * top_k 40, min_p 0.05". Penalties are omitted if they are off and nobody set them. */
void sampling_write(struct strbuf *out, const struct sampling *sampling,
                    const struct sampling_defaults *model, const struct sampling_defaults *options);

#endif
