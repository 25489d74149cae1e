/* `radish logits`: prints the logits of the next token, for comparison with other programs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/command.h"
#include "cli/runtime.h"

static const char *tokens_text;
static bool all_rows, as_json;

static const struct option logits_options[] = {
    STRING("tokens", &tokens_text, "IDS", "the prompt as token ids: 1,2,3 (see `radish tokenize`)"),
    FLAG("all", &all_rows, "print the logits after every token, not only after the last"),
    FLAG("json", &as_json, "print all logits as JSON (default: only the ten highest, as text)"),
    {0},
};

/* Parses the ids without a range check: the vocabulary is known only once the model is open. */
static int tokens_parse(struct token_list *list, struct error *err)
{
    if (!tokens_text)
        return error_set(err, ERROR_INPUT,
                         "--tokens is missing: give token ids, such as --tokens 1,2,3");
    for (const char *at = tokens_text; *at;) {
        char *end;
        long id = strtol(at, &end, 10);
        if (end == at || (*end && *end != ',') || id < 0 || id > INT32_MAX)
            return error_set(err, ERROR_INPUT,
                             "--tokens needs token ids such as 1,2,3, not '%.20s'", at);
        if (!token_list_add(list, (int32_t)id))
            return error_set(err, ERROR_MEMORY, "no memory for the tokens");
        at = end + (*end == ',');
    }
    return 0;
}

static int tokens_check(const struct token_list *list, uint32_t n_vocab, struct error *err)
{
    for (size_t i = 0; i < list->len; i++)
        if ((uint32_t)list->ids[i] >= n_vocab)
            return error_set(err, ERROR_INPUT, "--tokens needs ids from 0 to %u, not %d",
                             n_vocab - 1, list->ids[i]);
    return 0;
}

static void row_print_json(const float *logits, uint32_t n)
{
    printf("[");
    for (uint32_t i = 0; i < n; i++)
        printf("%s%.9g", i ? "," : "", (double)logits[i]);
    printf("]");
}

static void row_print_best(const struct tokenizer *t, const float *logits, uint32_t n)
{
    enum { SHOWN = 10 };
    int32_t best[SHOWN];
    for (int k = 0; k < SHOWN && k < (int)n; k++) {
        best[k] = -1;
        for (uint32_t i = 0; i < n; i++) {
            bool taken = false;
            for (int j = 0; j < k; j++)
                taken |= best[j] == (int32_t)i;
            if (!taken && (best[k] < 0 || logits[i] > logits[best[k]]))
                best[k] = (int32_t)i;
        }
        struct strbuf text = STRBUF_INIT;
        size_t len;
        const char *bytes = t ? tokenizer_bytes(t, best[k], &len) : NULL;
        if (bytes)
            json_write_string(&text, bytes, len);
        printf("%8d %10.4f  %s\n", best[k], (double)logits[best[k]], strbuf_str(&text));
        strbuf_free(&text);
    }
}

/* Computes the tokens in chunks and prints the requested rows. */
static int rows_compute(struct runtime *r, const struct token_list *list, struct error *err)
{
    enum { CHUNK = 64 };
    struct engine *engine = r->engine;
    uint32_t n_vocab = engine->info.n_vocab, n = (uint32_t)list->len;
    if (n > r->context)
        return error_set(err, ERROR_INPUT, "--tokens has %u ids, but the context (-c) holds %u", n,
                         r->context);
    float *logits = malloc((size_t)CHUNK * n_vocab * sizeof *logits); /* [CHUNK][n_vocab] */
    if (!logits)
        return error_set(err, ERROR_MEMORY, "no memory for the logits");
    struct row_output outputs[CHUNK];
    for (uint32_t i = 0; i < CHUNK; i++)
        outputs[i] = (struct row_output){.wants = OUTPUT_LOGITS,
                                         .logits = logits + (size_t)i * n_vocab};
    struct page_run run = {.first = 0};
    int failed = 0;
    for (uint32_t done = 0; done < n && !failed; done += CHUNK) {
        struct batch_row rows[CHUNK];
        uint32_t n_rows = n - done < CHUNK ? n - done : CHUNK;
        for (uint32_t i = 0; i < n_rows; i++)
            rows[i] = (struct batch_row){
                .value = list->ids[done + i],
                .position = done + i,
                .rope = {done + i},
                .pages = {done + i},
                .output = all_rows            ? &outputs[i]
                          : done + i + 1 == n ? &outputs[0]
                                              : NULL,
            };
        run.count = done + n_rows;
        struct batch_seq seq = {.pages = {{&run, 1, 0}}, .length = run.count};
        struct batch batch = {.seqs = &seq, .n_seqs = 1, .rows = rows, .n_rows = n_rows};
        failed = engine_forward(engine, &batch, err);
        uint32_t n_out = failed ? 0 : all_rows ? n_rows : done + n_rows == n;
        for (uint32_t i = 0; i < n_out; i++) {
            if (!as_json)
                row_print_best(r->prompt.tokenizer, logits + (size_t)i * n_vocab, n_vocab);
            else
                row_print_json(logits + (size_t)i * n_vocab, n_vocab);
            printf("%s", as_json && all_rows && done + i + 1 < n ? "," : as_json ? "" : "\n");
        }
    }
    free(logits);
    return failed;
}

static int logits_run(const struct command *command, int argc, char **argv)
{
    struct option_set set;
    struct runtime runtime;
    struct token_list list = {0};
    struct error err;
    int status;
    if (!runtime_parse(command, &set, argc, argv, &status))
        return status;
    if (tokens_parse(&list, &err) || runtime_open(&runtime, RUNTIME_COMPUTES, &err)) {
        token_list_free(&list);
        return command_fail_option(command, &err);
    }
    int failed = tokens_check(&list, runtime.engine->info.n_vocab, &err);
    if (!failed && as_json)
        printf("{\"logits\":%s", all_rows ? "[" : "");
    failed = failed || rows_compute(&runtime, &list, &err);
    if (!failed && as_json)
        printf("%s}\n", all_rows ? "]" : "");
    token_list_free(&list);
    runtime_close(&runtime);
    return failed ? command_fail_option(command, &err) : EXIT_OK;
}

const struct command command_logits = {
    .name = "logits",
    .summary = "print the model's scores for the next token",
    .usage = "-m PATH --tokens IDS [OPTIONS]",
    .example = "radish logits -m model.gguf --tokens 1,2,3 --json",
    .operand_hint = "the model is given with -m PATH",
    .tables = {runtime_model_options, logits_options, runtime_engine_options, runtime_mock_options},
    .run = logits_run,
};
