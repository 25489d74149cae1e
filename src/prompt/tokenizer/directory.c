/* Loads a tokenizer from a directory in Hugging Face's layout: finds the file with the vocabulary
 * and reads the files beside it. Those are optional. A file that exists but cannot be read is an
 * error; it is not treated as missing. */
#include "prompt/tokenizer/draft.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"

enum { MAX_VOCAB_BYTES = 256 << 20, MAX_CONFIG_BYTES = 32 << 20 };

struct directory {
    const char *path;
    struct token_draft *draft;
    struct strbuf file;                             /* path of the current file */
    const struct json *config, *generation, *model; /* NULL: missing */
};

static const char *path_of(struct directory *dir, const char *name)
{
    strbuf_clear(&dir->file);
    strbuf_addf(&dir->file, "%s/%s", dir->path, name);
    dir->draft->path = strbuf_str(&dir->file);
    return dir->draft->path;
}

static bool has_file(struct directory *dir, const char *name)
{
    return access(path_of(dir, name), F_OK) == 0;
}

/* Parses a file as a tree; `*out` is NULL if it does not exist. */
static int read_json(struct directory *dir, const char *name, const struct json **out)
{
    struct token_draft *d = dir->draft;
    struct strbuf text = STRBUF_INIT;
    struct error cause = {0};
    *out = NULL;
    if (!has_file(dir, name))
        return 0;
    int failed = file_read(d->path, MAX_CONFIG_BYTES, &text, d->err);
    if (!failed && !(*out = json_parse_file(&d->arena, strbuf_str(&text), text.len, &cause)))
        failed = error_set(d->err, cause.code == ERROR_MEMORY ? ERROR_MEMORY : ERROR_FORMAT,
                           "%s: %s", d->path, cause.message);
    if (!failed && (*out)->type != JSON_OBJECT)
        failed = draft_bad(d, "it is not a JSON object");
    strbuf_free(&text);
    return failed;
}

/* ---- tokens that tokenizer_config.json names ---- */

/* The string, or the content of an object; NULL bytes if neither. */
static struct byte_view token_text(const struct json *value)
{
    if (json_is(value, JSON_OBJECT))
        value = json_get(value, "content");
    return json_is(value, JSON_STRING) && value->text_len ? json_bytes(value)
                                                          : (struct byte_view){NULL, 0};
}

/* The tokens named here (BOS, EOS and so on) are special even if no file says so. */
static int add_named(struct token_draft *d, const struct json *config)
{
    static const char *const names[] = {"bos_token", "eos_token", "unk_token", "pad_token"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct byte_view text = token_text(json_get(config, names[i]));
        if (!text.bytes || draft_is_added(d, text))
            continue;
        for (uint32_t id = 0; id < d->n; id++)
            if (byte_view_equal(d->spellings[id], text)) {
                if (draft_added(d, text, id, ADDED_SPECIAL) != 0)
                    return -1;
                break;
            }
    }
    return 0;
}

int draft_read_config_added(struct token_draft *d, const struct json *config)
{
    const struct json *list = json_get(config, "added_tokens_decoder");
    d->added_replace = true;
    if (list && list->type != JSON_NULL && list->type != JSON_OBJECT)
        return draft_bad(d, "\"added_tokens_decoder\" in tokenizer_config.json is not an object");
    for (const struct json *token = list ? list->first : NULL; token; token = token->next) {
        char *end;
        struct byte_view text = token_text(token);
        if (!text.bytes)
            return draft_bad(d, "\"added_tokens_decoder\" in tokenizer_config.json has a token "
                                "without \"content\"");
        if (draft_is_added(d, text))
            continue;
        errno = 0;
        unsigned long long id = strtoull(token->key, &end, 10);
        if (errno || end == token->key || *end || token->key[0] < '0' || token->key[0] > '9')
            return draft_bad(d,
                             "\"added_tokens_decoder\" in tokenizer_config.json has the key "
                             "\"%.64s\", which is no id",
                             token->key);
        if (draft_read_added(d, token, id) != 0)
            return -1;
    }
    return add_named(d, config);
}

static int32_t named_token(const struct directory *dir, const char *name, int32_t otherwise)
{
    struct byte_view text = token_text(json_get(dir->config, name));
    int32_t id = text.bytes ? draft_find(dir->draft, text) : -1;
    return id >= 0 ? id : otherwise;
}

/* ---- ids ---- */

/* Reads an id or a list of ids; each one that is a token ends a generation. The first sets `*first`
 * if that is not set yet. */
static void mark_ids(struct tokenizer *t, const struct json *value, int32_t *first)
{
    const struct json *item = json_is(value, JSON_ARRAY) ? value->first : value;
    bool list = json_is(value, JSON_ARRAY);
    for (; item; item = list ? item->next : NULL) {
        uint64_t id;
        if (!json_to_uint64(item, &id) || id >= t->n_tokens)
            continue;
        t->ends[id] = 1;
        if (*first < 0)
            *first = (int32_t)id;
    }
}

static void read_ids(struct directory *dir)
{
    struct tokenizer *t = dir->draft->t;
    t->bos = named_token(dir, "bos_token", t->bos);
    t->eos = named_token(dir, "eos_token", t->eos);
    mark_ids(t, json_get(dir->generation, "eos_token_id"), &t->eos);
    mark_ids(t, json_get(dir->model, "eos_token_id"), &t->eos);
    mark_ids(t, json_get(json_get(dir->model, "text_config"), "eos_token_id"), &t->eos);
    if (t->eos >= 0)
        t->ends[t->eos] = 1;
    uint64_t bos;
    if (t->bos < 0 && !dir->config && json_to_uint64(json_get(dir->model, "bos_token_id"), &bos) &&
        bos < t->n_tokens)
        t->bos = (int32_t)bos;
}

static int read_around(struct directory *dir, const char *key, int32_t id, struct token_list *list)
{
    const struct json *flag = json_get(dir->config, key);
    if (!json_is(flag, JSON_BOOL))
        return 0;
    list->len = 0;
    if (flag->boolean && id >= 0 && !token_list_add(list, id))
        return draft_no_memory(dir->draft);
    return 0;
}

/* The BOS and EOS settings of tokenizer_config.json apply if tokenizer.json has no template, as in
 * DeepSeek's models: their ByteLevel processor only changes offsets, and they were trained with a
 * BOS. A template takes precedence, as in transformers 5, with one exception: "add_eos_token" can
 * remove what the template appends. Command R's template ends the turn there, and a model does not
 * answer a prompt whose turn has ended. */
static int read_all_around(struct directory *dir)
{
    struct token_draft *d = dir->draft;
    if (!d->has_template)
        return read_around(dir, "add_bos_token", d->t->bos, &d->t->before) != 0 ||
                       read_around(dir, "add_eos_token", d->t->eos, &d->t->after) != 0
                   ? -1
                   : 0;
    const struct json *ends = json_get(dir->config, "add_eos_token");
    if (json_is(ends, JSON_BOOL) && !ends->boolean)
        d->t->after.len = 0;
    return 0;
}

/* ---- chat templates ---- */

static int keep_template(struct directory *dir, const char *text, size_t len, char **out,
                         size_t *out_len)
{
    return chat_defaults_keep(out, out_len, text, len) ? 0 : draft_no_memory(dir->draft);
}

static int keep_file(struct directory *dir, char **out, size_t *out_len)
{
    struct strbuf text = STRBUF_INIT;
    int failed = file_read(dir->draft->path, MAX_CONFIG_BYTES, &text, dir->draft->err);
    if (!failed)
        failed = keep_template(dir, strbuf_str(&text), text.len, out, out_len);
    strbuf_free(&text);
    return failed;
}

/* A string, or a list of {name, template}: "default", and "tool_use" for requests with tools. */
static int template_from(struct directory *dir, const struct json *value)
{
    struct chat_defaults *c = &dir->draft->chat;
    const struct json *chosen = json_is(value, JSON_STRING) ? value : NULL, *of_tools = NULL;
    for (const struct json *item = json_is(value, JSON_ARRAY) ? value->first : NULL; item;
         item = item->next) {
        const struct json *name = json_get(item, "name"), *text = json_get(item, "template");
        if (!json_is(text, JSON_STRING))
            continue;
        if (json_equals(name, "tool_use"))
            of_tools = text;
        if (!chosen || json_equals(name, "default"))
            chosen = text;
    }
    if (of_tools && keep_template(dir, of_tools->text, of_tools->text_len, &c->tool_template,
                                  &c->tool_template_len) != 0)
        return -1;
    return chosen ? keep_template(dir, chosen->text, chosen->text_len, &c->chat_template,
                                  &c->chat_template_len)
                  : 0;
}

static int read_template(struct directory *dir)
{
    struct chat_defaults *c = &dir->draft->chat;
    const struct json *value;
    if (has_file(dir, "chat_template.jinja")) {
        if (keep_file(dir, &c->chat_template, &c->chat_template_len) != 0)
            return -1;
    } else {
        if (read_json(dir, "chat_template.json", &value) != 0 ||
            template_from(dir, json_get(value ? value : dir->config, "chat_template")) != 0)
            return -1;
    }
    if (has_file(dir, "additional_chat_templates/tool_use.jinja"))
        return keep_file(dir, &c->tool_template, &c->tool_template_len);
    return 0;
}

/* ---- the vocabulary ---- */

/* The first file, in order, whose name looks like tiktoken's; NULL if there is none. */
static char *find_tiktoken(const char *path)
{
    DIR *entries = opendir(path);
    char *found = NULL;
    for (struct dirent *entry; entries && (entry = readdir(entries));) {
        const char *name = entry->d_name, *dot = strrchr(name, '.');
        bool is = strcmp(name, "tiktoken.model") == 0 || (dot && strcmp(dot, ".tiktoken") == 0);
        if (is && (!found || strcmp(name, found) < 0)) {
            free(found);
            found = strdup(name);
        }
    }
    if (entries)
        closedir(entries);
    return found;
}

/* The current file is vocab.json; the files beside it are read into the arena. */
static int read_vocab_json(struct directory *dir)
{
    struct token_draft *d = dir->draft;
    struct vocab_files files = {0};
    struct strbuf merges = STRBUF_INIT;
    int failed = read_json(dir, "added_tokens.json", &files.added) ||
                 read_json(dir, "special_tokens_map.json", &files.special) ||
                 file_read(path_of(dir, "merges.txt"), MAX_VOCAB_BYTES, &merges, d->err);
    if (!failed) {
        files.merges = arena_copy(&d->arena, strbuf_str(&merges), merges.len);
        files.merges_len = merges.len;
        failed = !files.merges ? draft_no_memory(d) : 0;
    }
    strbuf_free(&merges);
    path_of(dir, "vocab.json");
    return failed ? -1 : draft_read_vocab_json(d, dir->config, &files);
}

enum vocab_kind { VOCAB_NONE, VOCAB_JSON, VOCAB_MODEL, VOCAB_TEKKEN, VOCAB_TEXT };

/* Finds the file with the vocabulary and makes it the current file. */
static enum vocab_kind find_vocabulary(struct directory *dir)
{
    if (has_file(dir, "tokenizer.json"))
        return VOCAB_JSON;
    if (has_file(dir, "tokenizer.model"))
        return VOCAB_MODEL;
    char *tiktoken = find_tiktoken(dir->path);
    if (tiktoken) {
        path_of(dir, tiktoken);
        free(tiktoken);
        return VOCAB_MODEL;
    }
    if (has_file(dir, "tekken.json"))
        return VOCAB_TEKKEN;
    return has_file(dir, "merges.txt") && has_file(dir, "vocab.json") ? VOCAB_TEXT : VOCAB_NONE;
}

static int read_vocabulary(struct directory *dir)
{
    struct token_draft *d = dir->draft;
    enum vocab_kind kind = find_vocabulary(dir);
    if (kind == VOCAB_NONE)
        return error_set(d->err, ERROR_IO,
                         "%s has no tokenizer: there is no tokenizer.json, tokenizer.model, "
                         "tiktoken.model, *.tiktoken, tekken.json, or vocab.json with merges.txt "
                         "in it",
                         dir->path);
    if (file_read(d->path, MAX_VOCAB_BYTES, &d->file, d->err) != 0)
        return -1;
    d->is_json = kind == VOCAB_JSON;
    switch (kind) {
    case VOCAB_JSON: return draft_read_json(d, dir->config);
    case VOCAB_TEKKEN: return draft_read_tekken(d, dir->config);
    case VOCAB_TEXT: return read_vocab_json(dir);
    default: break;
    }
    return draft_is_tiktoken(&d->file) ? draft_read_tiktoken(d, dir->config)
                                       : draft_read_sentencepiece(d, dir->config);
}

static int read_directory(struct directory *dir)
{
    struct token_draft *d = dir->draft;
    if (read_json(dir, "tokenizer_config.json", &dir->config) != 0 ||
        read_json(dir, "generation_config.json", &dir->generation) != 0 ||
        read_json(dir, "config.json", &dir->model) != 0 || read_vocabulary(dir) != 0 ||
        draft_finish(d) != 0)
        return -1;
    read_ids(dir);
    sampling_defaults_from_json(&d->chat.sampling, dir->generation,
                                path_of(dir, "generation_config.json"));
    if (read_all_around(dir) != 0 || read_template(dir) != 0)
        return -1;
    tokenizer_mark_ends(d->t);
    tokenizer_find_fim(d->t, NULL);
    return 0;
}

int draft_read_directory(struct token_draft *d, const char *path)
{
    struct directory dir = {.path = path, .draft = d};
    int failed = read_directory(&dir);
    strbuf_free(&dir.file);
    return failed;
}

bool draft_has_directory(const char *path)
{
    struct token_draft draft = {0};
    struct directory dir = {.path = path, .draft = &draft};
    bool has = find_vocabulary(&dir) != VOCAB_NONE;
    strbuf_free(&dir.file);
    return has;
}

int tokenizer_open_directory(struct tokenizer **out, struct chat_defaults *chat, const char *path,
                             uint32_t n_vocab, struct error *err)
{
    struct token_draft draft = {.err = err, .n_vocab = n_vocab};
    int failed = draft_read_directory(&draft, path);
    if (!failed) {
        *out = draft.t;
        draft.t = NULL;
        chat_defaults_move(chat, &draft.chat);
    }
    draft_close(&draft);
    return failed;
}
