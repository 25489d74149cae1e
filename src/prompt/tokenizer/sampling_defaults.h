#ifndef RADISH_PROMPT_TOKENIZER_SAMPLING_DEFAULTS_H
#define RADISH_PROMPT_TOKENIZER_SAMPLING_DEFAULTS_H

#include "base/json.h"
#include "model/files/gguf.h"
#include "sched/sampler.h"

/* How the makers of a model want it sampled where nobody says otherwise: generation_config.json in
 * a directory, general.sampling.* in a GGUF file. What the files do not name stays the caller's. */
enum sampling_setting {
    SAMPLE_TEMPERATURE,
    SAMPLE_TOP_P,
    SAMPLE_TOP_K,
    SAMPLE_MIN_P,
    SAMPLE_REPETITION_PENALTY,
    SAMPLING_SETTINGS
};

struct sampling_defaults {
    bool is_given[SAMPLING_SETTINGS];
    float values[SAMPLING_SETTINGS];
};

/* A value that is out of range is left out, with a warning that names the file and the key.
 * `do_sample: false` is a temperature of 0, whatever else is there. */
void sampling_defaults_from_json(struct sampling_defaults *d, const struct json *config,
                                 const char *path);
void sampling_defaults_from_gguf(struct sampling_defaults *d, const struct gguf *gguf);

void sampling_defaults_apply(const struct sampling_defaults *d, struct sampling *sampling);

/* The five settings as an object; those that the model names as words: "temperature 0.6, top_k 20",
 * which is nothing where it names none. */
void sampling_write_json(struct json_writer *w, const char *key, const struct sampling *sampling);
void sampling_defaults_write(struct strbuf *out, const struct sampling_defaults *d);

#endif
