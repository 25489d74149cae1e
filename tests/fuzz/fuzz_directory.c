/* Fuzzes the files that describe a model: config.json, the index of shards, the header of a shard.
 * The input is a list of edits to one of them in a small model (a golden of tests/models), because
 * random bytes seldom get past the first key; or it is the whole file. A model that opens is run
 * for a few tokens, to check that its settings fit its tensors.
 *
 *   byte 0: which model   byte 1: which file, whether edits, and the form   then edits or the file
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/strbuf.h"
#include "engine/cpu/cpu_engine.h"
#include "fuzz.h"
#include "golden_model.h"

enum { MAX_MODELS = 64, N_FORMS = 2, N_FILES = 3, N_TOKENS = 3 };
static const char *const file_names[N_FILES] = {"config.json", "model.safetensors.index.json",
                                                "model-00001-of-00002.safetensors"};

/* A golden in one of its forms, written once. */
struct base {
    char directory[512];
    struct strbuf files[N_FILES];
};

static char *names[MAX_MODELS];
static size_t n_names;
static struct base bases[MAX_MODELS][N_FORMS];

static void find_models(void)
{
    struct dirent **entries;
    int n = scandir("tests/models", &entries, NULL, alphasort);
    for (int i = 0; i < n && n_names < MAX_MODELS; i++) {
        char *end = strstr(entries[i]->d_name, ".json");
        if (end)
            names[n_names++] = strndup(entries[i]->d_name, (size_t)(end - entries[i]->d_name));
        free(entries[i]);
    }
    if (n < 0 || n_names == 0)
        test_fail(__FILE__, __LINE__, "run it where tests/models is");
    free(entries);
}

static void write_base_file(const struct base *base, int file, const struct strbuf *text)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", base->directory, file_names[file]);
    FILE *out = fopen(path, "wb");
    CHECK(out != NULL);
    CHECK(fwrite(strbuf_str(text), 1, text->len, out) == text->len);
    CHECK(fclose(out) == 0);
}

static struct base *open_base(size_t model, size_t form)
{
    struct base *base = &bases[model][form];
    struct error err;
    if (base->directory[0])
        return base;
    struct golden golden;
    golden_open(&golden, names[model]);
    snprintf(base->directory, sizeof base->directory, "%s/%s.%zu", test_scratch_dir(), names[model],
             form);
    golden_write(form ? &golden.hub : &golden.plain, GOLDEN_F32, 2, base->directory);
    golden_close(&golden);
    for (int i = 0; i < N_FILES; i++) {
        char path[600];
        snprintf(path, sizeof path, "%s/%s", base->directory, file_names[i]);
        if (file_read(path, 1u << 30, &base->files[i], &err))
            test_fail(__FILE__, __LINE__, "%s", err.message);
    }
    return base;
}

/* What a value may become. */
static const char *const values[] = {
    "null",
    "true",
    "false",
    "0",
    "1",
    "2",
    "-1",
    "3",
    "4",
    "7",
    "8",
    "16",
    "32",
    "0.5",
    "1e308",
    "-1e308",
    "1e-30",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "65536",
    "\"\"",
    "\"x\"",
    "[]",
    "{}",
    "[0]",
    "[1,2,3]",
    "\"full_attention\"",
    "\"sliding_attention\"",
    "[\"full_attention\"]",
    "\"yarn\"",
    "\"llama3\"",
    "\"longrope\"",
    "\"linear\"",
    "\"dynamic\"",
    "\"proportional\"",
    "\"default\"",
    "\"F16\"",
    "\"BF16\"",
    "\"F8_E4M3\"",
    "\"U8\"",
    "\"U32\"",
    "\"I64\"",
    "[1]",
    "[32]",
    "[32,32]",
    "[0,0]",
    "{\"rope_type\":\"yarn\",\"factor\":4}",
    "{\"bits\":4,\"group_size\":32}",
    "{\"factor\":0}",
    "\"float16\"",
    "\"gelu\"",
    "\"silu\"",
    "\"sigmoid\"",
    "\"softmax\"",
    "\"noaux_tc\"",
    "96",
};

/* Where the n-th value of a JSON text starts: after a colon, a comma or a bracket. */
static size_t value_at(const struct strbuf *text, size_t begin, size_t n)
{
    size_t at = begin, found = 0;
    for (size_t rounds = 0; rounds < 2; rounds++, at = begin)
        for (; at < text->len; at++)
            if (strchr(":,[", text->data[at]) && text->data[at] && found++ == n)
                return at + 1;
    return begin;
}

/* The end of the value (or the member) that starts at `at`. */
static size_t value_end(const struct strbuf *text, size_t at)
{
    int depth = 0;
    bool quoted = false;
    for (; at < text->len; at++) {
        char c = text->data[at];
        if (c == '"')
            quoted = !quoted;
        if (quoted)
            continue;
        if (depth == 0 && strchr(",]}", c))
            break;
        depth += c == '[' || c == '{';
        depth -= c == ']' || c == '}';
    }
    return at;
}

static void replace(struct strbuf *text, size_t at, size_t end, const char *with, size_t len)
{
    struct strbuf out = STRBUF_INIT;
    strbuf_add(&out, text->data, at);
    strbuf_add(&out, with, len);
    strbuf_add(&out, text->data + end, text->len - end);
    CHECK(!out.failed);
    strbuf_free(text);
    *text = out;
}

/* An edit is three bytes: two say which value, and one says what replaces it: a value of the list,
 * another value of the text, or nothing. */
static void apply_edits(struct strbuf *text, size_t begin, const uint8_t *edits, size_t len)
{
    enum { N_VALUES = sizeof values / sizeof *values };
    for (; len >= 3; edits += 3, len -= 3) {
        size_t at = value_at(text, begin, edits[0] | (size_t)edits[1] << 8);
        size_t end = value_end(text, at);
        if (edits[2] < N_VALUES) {
            replace(text, at, end, values[edits[2]], strlen(values[edits[2]]));
        } else if (edits[2] == 255) {
            replace(text, at, end, "", 0);
        } else {
            size_t from = value_at(text, begin, (size_t)edits[2] - N_VALUES);
            char *copy = strndup(text->data + from, value_end(text, from) - from);
            CHECK(copy != NULL);
            replace(text, at, end, copy, strlen(copy));
            free(copy);
        }
    }
}

static void compute(const struct model *m)
{
    struct engine *e;
    struct error err = {0};
    struct engine_limits limits = {.n_pages = {N_TOKENS, N_TOKENS},
                                   .max_rows = N_TOKENS,
                                   .max_seqs = 1,
                                   .max_length = N_TOKENS,
                                   .kv_type = KV_F32};
    if (cpu_engine_open(&e, m, &limits, &(struct cpu_options){.n_threads = 1}, &err)) {
        CHECK(err.message[0]);
        return;
    }
    struct page_run run = {0, N_TOKENS};
    struct batch_seq seq = {.pages = {{&run, 1, 0}, {&run, 1, 0}}, .length = N_TOKENS};
    struct batch_row rows[N_TOKENS];
    struct row_output outputs[N_TOKENS];
    float *logits = malloc((size_t)N_TOKENS * e->info.n_vocab * sizeof *logits);
    struct batch batch = {.seqs = &seq, .n_seqs = 1, .rows = rows, .n_rows = N_TOKENS};
    CHECK(logits != NULL);
    for (uint32_t p = 0; p < N_TOKENS; p++) {
        outputs[p] = (struct row_output){.wants = OUTPUT_LOGITS,
                                         .logits = logits + (size_t)p * e->info.n_vocab};
        rows[p] = (struct batch_row){.value = (int32_t)(p * (e->info.n_vocab - 1) / N_TOKENS),
                                     .position = p,
                                     .rope = {p},
                                     .pages = {p, p},
                                     .output = &outputs[p]};
    }
    CHECK(engine_forward(e, &batch, &err) == 0);
    free(logits);
    engine_close(e);
}

static void check_error(const struct error *err, const char *directory)
{
    if (err->code != ERROR_NONE && strstr(err->message, directory) && !strchr(err->message, '\n'))
        return;
    test_fail(__FILE__, __LINE__, "a message without the path, or of two lines: %s", err->message);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct model m;
    struct error err = {0};
    struct strbuf text = STRBUF_INIT;
    if (len < 2)
        return 0;
    if (!n_names)
        find_models();
    struct base *base = open_base(bytes[0] % n_names, bytes[1] % N_FORMS);
    int file = bytes[1] / 2 % 8 < 5 ? 0 : bytes[1] / 2 % 8 == 5 ? 1 : 2;
    bool edits = bytes[1] < 224;
    const struct strbuf *from = &base->files[file];
    size_t begin = file == 2 ? sizeof(uint64_t) : 0;
    if (edits)
        strbuf_add(&text, from->data, from->len);
    else
        strbuf_add(&text, bytes + 2, len - 2);
    if (edits && file == 2) { /* edits the header alone, then restores its length and the data */
        uint64_t header_bytes;
        memcpy(&header_bytes, from->data, sizeof header_bytes);
        text.len = begin + header_bytes;
        apply_edits(&text, begin, bytes + 2, len - 2);
        uint64_t edited_bytes = text.len - begin;
        memcpy(text.data, &edited_bytes, sizeof edited_bytes);
        strbuf_add(&text, from->data + begin + header_bytes, from->len - begin - header_bytes);
    } else if (edits) {
        apply_edits(&text, begin, bytes + 2, len - 2);
    }
    write_base_file(base, file, &text);
    if (model_open(&m, base->directory, NULL, &err) == 0)
        compute(&m);
    else
        check_error(&err, base->directory);
    model_close(&m);
    write_base_file(base, file, from);
    strbuf_free(&text);
    return 0;
}
