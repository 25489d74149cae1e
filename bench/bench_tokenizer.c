/* The speed of encoding and decoding text.
 *
 *   build/bench_tokenizer [MODEL.gguf | DIR [FILE...]]
 *
 * Each file is one text; the default is two texts, this repository's documents and its code. Each
 * is encoded with the model's vocabulary and every pre-tokeniser, or with a directory's own
 * tokenizer, for which the time to open is shown too:
 *   new       the whole text, by a newly opened tokenizer
 *   again     the same once more
 *   messages  in pieces of about 500 bytes, as in a chat
 *   decode    the ids back to text
 * Then a conversation of 30 messages, about 3,000 tokens, becomes a prompt with the model's own
 * chat template: all of it as text, and with its answers in a replay store, as a server has them.
 *   first     by a newly opened prompt maker
 *   again     the same once more
 *   grown     after the same conversation without its last question and answer, as in a chat
 * Every figure is the best of several rounds, in processor time of one thread; a MB is 10^6 bytes
 * of text. */
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "prompt/prompt.h"
#include "prompt/tokenizer/families.h"

enum {
    ROUNDS = 7,
    MESSAGE_BYTES = 500,
    N_MESSAGES = 31, /* 15 questions and answers, and the last question */
    CHAT_ROUNDS = 200,
    CHAT_MESSAGE_BYTES = 360,
    MAX_FILE_BYTES = 1 << 30,
};

struct text {
    const char *name;
    struct strbuf bytes;
};

enum { NEW, AGAIN, MESSAGES, DECODE, TIMES };

struct result {
    uint64_t ns[TIMES]; /* the best */
    uint64_t open_ns;
    size_t n_tokens;
};

static void fail(const char *what)
{
    fprintf(stderr, "bench_tokenizer: %s\n", what);
    exit(1);
}

static uint64_t thread_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void add_file(struct strbuf *to, const char *path)
{
    struct strbuf bytes = STRBUF_INIT;
    struct error err = {0};
    if (file_read(path, MAX_FILE_BYTES, &bytes, &err) != 0)
        fail(err.message);
    strbuf_add(to, strbuf_str(&bytes), bytes.len);
    strbuf_free(&bytes);
}

static void add_pattern(struct strbuf *to, const char *pattern)
{
    glob_t found;
    if (glob(pattern, 0, NULL, &found) != 0)
        return;
    for (size_t i = 0; i < found.gl_pathc; i++)
        add_file(to, found.gl_pathv[i]);
    globfree(&found);
}

/* The source of a tokenizer: a file or a directory. */
struct source {
    const struct gguf *gguf;
    const char *directory; /* NULL: the file */
};

static struct tokenizer *open_chat(const struct source *from, struct chat_defaults *chat)
{
    struct tokenizer *t = NULL;
    struct error err = {0};
    if ((from->directory ? tokenizer_open_directory(&t, chat, from->directory, 0, &err)
                         : tokenizer_open(&t, chat, from->gguf, &err)) != 0)
        fail(err.message);
    return t;
}

static struct tokenizer *open_own(const struct source *from)
{
    return open_chat(from, NULL);
}

static struct tokenizer *open_as(const struct source *from, const char *pre)
{
    struct tokenizer *t = open_own(from);
    struct error err = {0};
    const struct pre_family *family = pre_family_find(pre, strlen(pre));
    if (from->directory || t->kind != TOKENIZER_BPE)
        return t;
    for (; t->n_pre > 0; t->n_pre--)
        pre_step_close(&t->pre[t->n_pre - 1]);
    memset(t->pre, 0, sizeof t->pre);
    t->n_normal = 0;
    if (!family || pre_family_apply(family, t, &err) != 0)
        fail(family ? err.message : "no such pre-tokeniser");
    return t;
}

static void encode(const struct tokenizer *t, const char *text, size_t len, struct token_list *ids)
{
    struct error err = {0};
    if (tokenizer_encode(t, text, len, TOKENIZE_PARSE_SPECIAL, ids, &err) != 0)
        fail(err.message);
}

/* Splits after the first space or newline past MESSAGE_BYTES. */
static void encode_messages(const struct tokenizer *t, const struct strbuf *text,
                            struct token_list *ids)
{
    for (size_t at = 0, end; at < text->len; at = end) {
        end = at + MESSAGE_BYTES < text->len ? at + MESSAGE_BYTES : text->len;
        while (end < text->len && text->data[end - 1] != ' ' && text->data[end - 1] != '\n')
            end++;
        ids->len = 0;
        encode(t, text->data + at, end - at, ids);
    }
}

static void keep_best(uint64_t *best, uint64_t begin)
{
    uint64_t took = thread_ns() - begin;
    if (*best == 0 || took < *best)
        *best = took;
}

static void run_round(const struct source *from, const char *pre, const struct strbuf *text,
                      struct result *r)
{
    uint64_t open_begin = thread_ns();
    struct tokenizer *t = open_as(from, pre);
    keep_best(&r->open_ns, open_begin);
    struct token_list ids = {0}, few = {0};
    struct strbuf back = STRBUF_INIT;
    uint64_t begin = thread_ns();
    encode(t, text->data, text->len, &ids);
    keep_best(&r->ns[NEW], begin);
    r->n_tokens = ids.len;
    ids.len = 0;
    begin = thread_ns();
    encode(t, text->data, text->len, &ids);
    keep_best(&r->ns[AGAIN], begin);
    begin = thread_ns();
    encode_messages(t, text, &few);
    keep_best(&r->ns[MESSAGES], begin);
    strbuf_reserve(&back, text->len);
    begin = thread_ns();
    tokenizer_decode(t, ids.ids, ids.len, true, &back);
    keep_best(&r->ns[DECODE], begin);
    if (back.failed || (t->kind == TOKENIZER_BPE && back.len > text->len + 1))
        fail("the text did not come back");
    strbuf_free(&back);
    token_list_free(&ids);
    token_list_free(&few);
    tokenizer_close(t);
}

static void run(const struct source *from, const char *pre, const struct text *text)
{
    struct result r = {0};
    if (text->bytes.len == 0)
        fail("a text is empty; run it in the root of the repository, or name files");
    for (int i = 0; i < ROUNDS; i++)
        run_round(from, pre, &text->bytes, &r);
    double bytes = (double)text->bytes.len, tokens = (double)r.n_tokens;
    printf("%-10s %-16.16s %8.1f %8.1f %8.1f %8.1f %12.2f %9.1f %9.2f\n", pre, text->name,
           bytes * 1e3 / (double)r.ns[NEW], bytes * 1e3 / (double)r.ns[AGAIN],
           bytes * 1e3 / (double)r.ns[MESSAGES], bytes * 1e3 / (double)r.ns[DECODE],
           tokens * 1e3 / (double)r.ns[MESSAGES], (double)r.ns[MESSAGES] / tokens, bytes / tokens);
    if (from->directory)
        printf("%-10s opened in %.1f ms\n", "", (double)r.open_ns / 1e6);
}

/* ---- conversations ---- */

static struct json *make_messages(struct arena *arena, const struct strbuf *text, int n)
{
    struct json *messages = json_new(arena, JSON_ARRAY);
    for (int i = 0; i < n; i++) {
        size_t at = (size_t)i * CHAT_MESSAGE_BYTES % (text->len - CHAT_MESSAGE_BYTES);
        message_append(arena, messages, i % 2 ? "assistant" : "user", text->data + at,
                       CHAT_MESSAGE_BYTES);
    }
    if (arena->failed)
        fail("no memory");
    return messages;
}

static void chat(const struct prompt_maker *maker, const struct json *messages,
                 struct replay_store *store, struct prompt *out)
{
    struct prompt_input in = {.messages = messages, .replay = store};
    struct error err = {0};
    if (prompt_maker_chat(maker, &in, out, &err) != 0)
        fail(err.message);
}

/* Puts the answers into the store, as if they had been sampled. */
static void fill_store(const struct prompt_maker *maker, struct arena *arena,
                       const struct strbuf *text, struct replay_store *store)
{
    for (int i = 1; i < N_MESSAGES; i += 2) {
        struct prompt before;
        struct token_list ids = {0};
        size_t at = (size_t)i * CHAT_MESSAGE_BYTES % (text->len - CHAT_MESSAGE_BYTES);
        chat(maker, make_messages(arena, text, i), store, &before);
        encode(maker->tokenizer, text->data + at, CHAT_MESSAGE_BYTES, &ids);
        token_list_add(&ids, tokenizer_eos(maker->tokenizer));
        replay_store_add(store, 0, before.digest, ids.ids, ids.len);
        token_list_free(&ids);
        prompt_free(&before);
    }
}

static uint64_t time_chat(const struct prompt_maker *maker, const struct json *messages,
                          struct replay_store *store, struct prompt *out, uint64_t *best)
{
    uint64_t begin = thread_ns();
    chat(maker, messages, store, out);
    uint64_t took = thread_ns() - begin;
    if (*best == 0 || took < *best)
        *best = took;
    return took;
}

static void run_chat(const struct source *from, const struct strbuf *text, bool replays)
{
    struct arena arena = ARENA_INIT;
    struct error err = {0};
    struct replay_store *store = NULL;
    uint64_t first = 0, again = 0, grown = 0;
    size_t n_tokens = 0, n_replayed = 0;
    const struct json *before = make_messages(&arena, text, N_MESSAGES - 2);
    const struct json *messages = make_messages(&arena, text, N_MESSAGES);
    for (int i = 0; i < ROUNDS; i++) {
        struct prompt_maker maker;
        struct chat_defaults defaults;
        struct prompt prompt, other;
        if (prompt_maker_open(&maker, open_chat(from, &defaults), &defaults, NULL, &err) != 0 ||
            (replays && replay_store_open(&store, 1 << 20, &err) != 0))
            fail(err.message);
        time_chat(&maker, messages, store, &prompt, &first);
        if (replays)
            fill_store(&maker, &arena, text, store);
        for (int k = 0; k < CHAT_ROUNDS; k++) {
            prompt_free(&prompt);
            time_chat(&maker, messages, store, &prompt, &again);
        }
        prompt_free(&prompt);
        prompt_maker_close(&maker);
        if (prompt_maker_open(&maker, open_chat(from, &defaults), &defaults, NULL, &err) != 0)
            fail(err.message);
        chat(&maker, before, store, &other);
        time_chat(&maker, messages, store, &prompt, &grown);
        n_tokens = prompt.tokens.len;
        n_replayed = prompt.n_replayed;
        prompt_free(&prompt);
        prompt_free(&other);
        prompt_maker_close(&maker);
        replay_store_close(store);
        store = NULL;
    }
    printf("%-10s %7zu tokens, %5zu of them replayed; us: first %.0f, again %.0f, grown %.0f\n",
           replays ? "replayed" : "as text", n_tokens, n_replayed, (double)first / 1e3,
           (double)again / 1e3, (double)grown / 1e3);
    arena_free(&arena);
}

static const char *default_model(void)
{
    static char path[4096];
    const char *home = getenv("HOME");
    snprintf(path, sizeof path, "%s/.cache/radish/SmolLM2-135M-Instruct.Q4_1.gguf",
             home ? home : "");
    return path;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

int main(int argc, char **argv)
{
    static const char *const pres[] = {"smollm", "llama-bpe", "qwen2", "gpt-2"};
    struct text own[] = {{.name = "English"}, {.name = "code"}};
    const char *model = argc > 1 ? argv[1] : default_model();
    struct gguf gguf;
    struct error err = {0};
    struct stat info;
    struct source from = {.gguf = &gguf};
    if (argc < 2 && access(model, R_OK) != 0) {
        printf("there is no model at %s; name one\n", model);
        return 0;
    }
    if (stat(model, &info) == 0 && S_ISDIR(info.st_mode))
        from.directory = model;
    else if (gguf_open(&gguf, model, &err) != 0)
        fail(err.message);
    size_t n_pres = from.directory ? 1 : sizeof pres / sizeof *pres;
    if (argc < 3) {
        add_pattern(&own[0].bytes, "*.md");
        add_pattern(&own[0].bytes, "docs/*.md");
        add_pattern(&own[1].bytes, "src/*/*.[ch]");
        add_pattern(&own[1].bytes, "src/*/*/*.[ch]");
        add_pattern(&own[1].bytes, "tools/*.py");
    }
    printf("%-10s %-16s %8s %8s %8s %8s %12s %9s %9s\n", "", "MB/s:", "new", "again", "messages",
           "decode", "Mtokens/s", "ns/token", "bytes");
    for (size_t i = 0; i < n_pres; i++) {
        const char *pre = from.directory ? base_name(model) : pres[i];
        for (int k = 0; argc < 3 && k < 2; k++)
            run(&from, pre, &own[k]);
        for (int k = 2; k < argc; k++) {
            struct text given = {.name = base_name(argv[k])};
            add_file(&given.bytes, argv[k]);
            run(&from, pre, &given);
            strbuf_free(&given.bytes);
        }
    }
    if (from.directory)
        return 0;
    if (argc > 2)
        add_file(&own[0].bytes, argv[2]);
    printf("\na conversation of %d messages\n", N_MESSAGES);
    run_chat(&from, &own[0].bytes, false);
    run_chat(&from, &own[0].bytes, true);
    strbuf_free(&own[0].bytes);
    strbuf_free(&own[1].bytes);
    gguf_close(&gguf);
    return 0;
}
