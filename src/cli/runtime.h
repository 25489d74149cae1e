#ifndef RADISH_CLI_RUNTIME_H
#define RADISH_CLI_RUNTIME_H

#include "base/strbuf.h"
#include "cli/args.h"
#include "cli/command.h"
#include "cli/engines.h"
#include "engine/kv_sizes.h"
#include "engine/mock/mock_engine.h"
#include "model/model.h"
#include "prompt/prompt.h"

/* A model, its engine and its prompt maker, opened as the command line says. */
enum engine_choice { ENGINE_AUTO, ENGINE_CPU, ENGINE_CUDA, ENGINE_MOCK };
/* What to run if the model fails to load. */
enum fallback { FALLBACK_NONE, FALLBACK_MOCK };

struct runtime_options {
    const char *model_path;
    int engine;         /* enum engine_choice */
    int kv_type;        /* enum kv_type */
    int activations;    /* enum activation_type */
    uint32_t n_threads; /* 0: the engine chooses */
    int pack_cache;     /* enum pack_cache_mode */
    int pinning;        /* enum pinning */
    uint32_t context;   /* 0: what the model was trained with */
    uint32_t max_seqs;
    struct cache_size cache_size; /* not given: a fifth of the memory, 256 MiB to 8 GiB */
    const char *device;           /* GPU: number or UUID; NULL: the first */
    struct memory_share gpu_memory;
    const char *quantize; /* the type that weights are computed in; NULL: their own */
    const char *kernels;
    const char *template_path;
    int thinking; /* enum thinking_mode */
    int fallback; /* enum fallback */
    struct mock_options mock;
};

/* The one configuration of this process, and the tables of options that fill it in. */
extern struct runtime_options runtime_options;
extern const struct option runtime_model_options[];         /* --model */
extern const struct option runtime_default_model_options[]; /* ... if there is a default */
extern const struct option runtime_engine_options[];        /* --threads, --kv-type, ... */
extern const struct option runtime_batch_options[];         /* --max-seqs */
extern const struct option runtime_template_options[];      /* --chat-template-file */
extern const struct option runtime_mock_options[]; /* --mock-*: tests use them, help hides them */

/* Where `make serve` and `make chat` keep the default model, whether or not it exists. */
void runtime_default_model_path(struct strbuf *out);
/* command_parse for a command that computes: it needs a model, unless the engine is mock or the
 * command uses the default model and that exists. */
bool runtime_parse(const struct command *command, struct option_set *set, int argc, char **argv,
                   int *status);

struct runtime {
    struct model model; /* not open with the mock engine */
    struct engine *engine;
    struct device_engine device; /* its plug-in; not loaded: the CPU or the mock computes */
    struct prompt_maker prompt;  /* RUNTIME_COMPUTES: without a tokenizer if there is none */
    char model_name[128];        /* the file's name without ".gguf" */
    const char *quantisation;    /* of most weights: "Q4_1" */
    uint32_t context;
    uint32_t model_context; /* the largest that the model allows; 0: any */
    bool is_fallback;       /* the mock engine, because the model failed to load */
};

/* Rows computed in one batch, unless more sequences run. */
enum { RUNTIME_BATCH_ROWS = 512 };

/* What a runtime is opened for: to answer, with prompts and a scheduler, or for the engine alone.
 * Then all KV is in one group, and there is a tokenizer only if the model has one. */
enum runtime_use { RUNTIME_ANSWERS, RUNTIME_COMPUTES };

/* Memory for a page of each group, in addition to its KV. */
struct kv_tables runtime_tables(uint32_t n_groups);

/* Fails if the model's or the template's path does not exist, as runtime_open would later. A model
 * that another engine can stand in for may be missing. */
int runtime_check_paths(struct error *err);
/* Opens everything. Shows progress on stderr if it is a terminal. */
int runtime_open(struct runtime *r, enum runtime_use use, struct error *err);
void runtime_close(struct runtime *r);

/* For commands that compute nothing: open only the model's files, or only their tokenizer.
 * `context`: the context to open the model for; 0: the trained one. */
int runtime_open_model(struct model *m, uint32_t context, struct error *err);
int runtime_open_tokenizer(struct tokenizer **out, struct chat_defaults *chat, struct error *err);
/* Fails if -c is more than a model with that context supports. */
int runtime_check_context(uint32_t trained, struct error *err);
/* The tokenizer of an open model. */
int runtime_model_tokenizer(const struct model *m, struct tokenizer **out,
                            struct chat_defaults *chat, struct error *err);

#endif
