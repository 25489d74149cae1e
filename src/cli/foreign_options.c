/* Advice for other servers' options and for misspelled ones. */
#include "cli/foreign_options.h"

#include <string.h>

#define ONE_DEVICE                                                                                 \
    "radish computes all layers on one device; use --engine cuda or --engine cpu (the default "    \
    "is the GPU if there is one)"
#define NO_DOWNLOAD                                                                                \
    "radish has no downloads yet; download the GGUF file or directory first, then give its path "  \
    "with "                                                                                        \
    "-m"
#define NO_IMAGES      "radish has no image input yet"
#define NO_ADAPTERS    "radish has no LoRA adapters yet; merge the adapter into the model first"
#define NO_EMBEDDINGS  "radish has no embeddings or reranking yet"
#define NO_SPECULATION "radish has no speculative decoding yet; leave this option out"
#define NO_CLUSTER     "radish runs in one process on one machine; leave this option out"
#define ALWAYS         "radish always does this; leave this option out"
#define OWN_BATCH      "radish sizes its batches itself; leave this option out"

/* Names separated by spaces, as args.h writes them. A command gives the first advice whose options
 * it has itself; another command's stand in backquotes. */
static const struct {
    const char *names, *advice;
} foreign[] = {
    {"ngl gpu-layers n-gpu-layers num-gpu cpu-moe n-cpu-moe cmoe ncmoe override-tensor ot",
     ONE_DEVICE},
    {"main-gpu mg", "use --device N"},
    {"split-mode sm tensor-split ts", "radish uses one GPU; --device N chooses it"},
    {"gpu-memory-utilization",
     "use --gpu-memory FRACTION, of the memory that is free, or --gpu-memory 20GiB"},
    {"hf hfr hf-repo hff hf-file hft hf-token hfd hf-repo-draft mu model-url docker-repo dr "
     "download-dir revision pull",
     NO_DOWNLOAD},
    {"mmproj mm mmproj-url mmu no-mmproj limit-mm-per-prompt image", NO_IMAGES},
    {"lora lora-scaled lora-base enable-lora lora-modules control-vector", NO_ADAPTERS},
    {"embedding embeddings pooling reranking rerank runner", NO_EMBEDDINGS},
    {"md model-draft draft draft-max draft-min draft-n draft-p-min cd ctx-size-draft ngld "
     "gpu-layers-draft speculative-config",
     NO_SPECULATION},
    {"ssl-keyfile ssl-certfile", "use --tls-cert FILE and --tls-key FILE"},
    {"tensor-parallel-size tp pipeline-parallel-size pp data-parallel-size dp "
     "distributed-executor-backend rpc",
     NO_CLUSTER},
    {"cb cont-batching jinja enable-prefix-caching enable-chunked-prefill cache-prompt "
     "enable-auto-tool-choice no-mmap",
     ALWAYS},
    {"mmap", "radish copies what it needs of the model's file to memory; leave this option out"},
    {"b batch-size ub ubatch-size max-num-batched-tokens",
     OWN_BATCH " (--step-budget-ms bounds a step)"},
    {"b batch-size ub ubatch-size max-num-batched-tokens", OWN_BATCH},
    {"fa flash-attn attention-backend enforce-eager numa mlock",
     "radish chooses this itself; leave this option out"},
    {"ctk cache-type-k ctv cache-type-v kv-cache-dtype",
     "use --kv-type f16, f32 or bf16; keys and values have the same type"},
    {"max-model-len", "use --context N (-c)"},
    {"num-ctx", "use --context N (-c)"},
    {"served-model-name", "use --alias NAME"},
    {"max-num-seqs num-parallel", "use --max-seqs N"},
    {"dtype quantization", "use --quantize TYPE for weights and --kv-type TYPE for the cache"},
    {"chat-template", "give the template as a file with --chat-template-file FILE"},
    {"tool-call-parser", "use --tool-format NAME"},
    {"reasoning-parser reasoning-format",
     "radish detects the format itself; --thinking on|off|auto controls thinking"},
    {"reasoning-budget", "use --thinking on|off, or thinking_budget_tokens in a request"},
    {"keepalive keep-alive", "radish keeps its model loaded; leave this option out"},
    {"rope-scaling rope-scale rope-freq-base rope-freq-scale yarn-orig-ctx yarn-ext-factor",
     "radish reads RoPE scaling from the model's file; leave this option out"},
    {"trust-remote-code", "radish never runs code that comes with a model; leave this option out"},
    {"metrics", "radish has no Prometheus metrics yet; GET /stats has counters"},
    {"slot-save-path", "radish cannot save its cache to disk yet"},
    {"cache-reuse",
     "radish reuses every prefix that requests have in common; leave this option out"},
    {"slots", "GET /slots is always there; leave this option out"},
    {"verbose v log-verbosity lv", "use --log-level debug"},
    {"verbose", "use --timings"},
    {"verbose v log-verbosity lv", "set RADISH_LOG=debug in the environment"},
    {"log-disable", "use --log-level error"},
    {"log-disable", "set RADISH_LOG=error in the environment"},
    {"grammar json-schema j grammar-file",
     "send `grammar` or `response_format` in a request to the server"},
    {"format", "send `response_format` in a request to the server"},
    {"interactive i cnv conversation no-cnv no-conversation st single-turn",
     "`radish chat` holds a conversation, `radish run` gives one answer; leave this option out"},
    {"no-display-prompt", "radish never prints the prompt; leave this option out"},
    {"p prompt", "use `radish run -m PATH \"prompt\"`"},
    {"f file", "use `radish run -m PATH < FILE`"},
};

static const struct {
    const char *name, *advice;
} foreign_commands[] = {
    {"pull", NO_DOWNLOAD},
    {"ls", "radish has no list of models yet; `radish info PATH` describes one"},
    {"list", "radish has no list of models yet; `radish info PATH` describes one"},
    {"show", "use `radish info PATH`"},
    {"rm", "radish keeps no models of its own yet; remove the file"},
    {"ps", "radish serves one model; GET /v1/models names it"},
    {"stop", "stop the server with Ctrl-C, or send it SIGTERM"},
    {"generate", "use `radish run -m PATH \"prompt\"`"},
};

const char *foreign_command_advice(const char *name)
{
    for (size_t i = 0; i < sizeof foreign_commands / sizeof *foreign_commands; i++)
        if (strcmp(foreign_commands[i].name, name) == 0)
            return foreign_commands[i].advice;
    return NULL;
}

const char *foreign_option_advice(const char *name, size_t nth)
{
    size_t n = strlen(name);
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        for (const char *at = foreign[i].names; *at;) {
            size_t len = strcspn(at, " ");
            if (len == n && memcmp(at, name, n) == 0 && nth-- == 0)
                return foreign[i].advice;
            at += len + (at[len] == ' ');
        }
    return NULL;
}

enum { MAX_NAME = 64 };

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Damerau-Levenshtein distance, one table row at a time; swapping neighbours is one edit. */
size_t name_distance(const char *a, const char *b)
{
    size_t rows[3][MAX_NAME + 1], n_a = strlen(a), n_b = strlen(b);
    if (n_a > MAX_NAME || n_b > MAX_NAME)
        return n_a > n_b ? n_a : n_b;
    for (size_t j = 0; j <= n_b; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= n_a; i++) {
        size_t *row = rows[i % 3];
        const size_t *above = rows[(i - 1) % 3], *second = rows[(i + 1) % 3]; /* row i - 2 */
        row[0] = i;
        for (size_t j = 1; j <= n_b; j++) {
            row[j] = least(least(above[j], row[j - 1]) + 1, above[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = least(row[j], second[j - 2] + 1);
        }
    }
    return rows[n_a % 3][n_b];
}

bool name_is_near(const char *given, size_t distance)
{
    size_t n = strlen(given);
    return n > 2 && distance <= (n + 1) / 3;
}
