/* The steps of tokenizer.json: normalizer, pre_tokenizer, post_processor, decoder. Each is an
 * object with a "type"; a Sequence has a list of others. Unknown types are rejected by name,
 * because a tokenizer that skips a step silently gives wrong ids. */
#include "prompt/tokenizer/draft.h"

#include <string.h>

#include "base/utf8.h"
#include "prompt/tokenizer/families.h"

enum { MAX_NESTING = 8 };

static bool is_null(const struct json *value)
{
    return !value || value->type == JSON_NULL;
}

/* The value of "type", NUL-terminated, or NULL and an error. */
static const char *type_of(const struct token_draft *d, const char *part, const struct json *value)
{
    const struct json *type = json_get(value, "type");
    if (json_is(type, JSON_STRING))
        return type->text;
    draft_bad(d, "%s has no \"type\"", part);
    return NULL;
}

static int refuse(const struct token_draft *d, const char *part, const char *type)
{
    return draft_bad(d, "%s of type \"%.64s\" is not supported", part, type);
}

static int wrong(const struct token_draft *d, const char *type, const char *key)
{
    return draft_bad(d, "\"%s\" of %s is missing or invalid", key, type);
}

static bool flag_of(const struct json *value, const char *key, bool otherwise)
{
    const struct json *flag = json_get(value, key);
    return json_is(flag, JSON_BOOL) ? flag->boolean : otherwise;
}

typedef int step_reader(struct token_draft *d, const struct json *value, int depth);

/* Reads the members of a Sequence with the reader of its kind of step. */
static int read_sequence(struct token_draft *d, const struct json *value, const char *key,
                         step_reader *read, int depth)
{
    const struct json *list = json_get(value, key);
    if (!json_is(list, JSON_ARRAY))
        return wrong(d, "Sequence", key);
    if (depth >= MAX_NESTING)
        return draft_bad(d, "%s are nested deeper than %d", key, MAX_NESTING);
    json_each (item, list)
        if (read(d, item, depth + 1) != 0)
            return -1;
    return 0;
}

static int keep_string(struct token_draft *d, const struct json *value, const char *type,
                       const char *key, struct byte_view *out)
{
    const struct json *text = json_get(value, key);
    if (!json_is(text, JSON_STRING))
        return wrong(d, type, key);
    *out = tokenizer_keep(d->t, text->text, text->text_len);
    return out->bytes ? 0 : draft_no_memory(d);
}

/* {"String": "..."} or {"Regex": "..."}: one of `text` and `regex` is given. */
static int read_pattern(struct token_draft *d, const struct json *value, const char *type,
                        struct byte_view *text, const struct json **regex)
{
    const struct json *pattern = json_get(value, "pattern");
    *regex = json_get(pattern, "Regex");
    if (json_is(*regex, JSON_STRING))
        return 0;
    *regex = NULL;
    if (!json_is(json_get(pattern, "String"), JSON_STRING))
        return wrong(d, type, "pattern");
    if (keep_string(d, pattern, type, "String", text) != 0)
        return -1;
    return text->len ? 0 : wrong(d, type, "pattern");
}

static int at_path(const struct token_draft *d, const struct error *cause)
{
    return error_set(d->err, cause->code, "%s: %s", d->path, cause->message);
}

static int open_regex(struct token_draft *d, struct text_regex **out, const char *pattern,
                      size_t len)
{
    struct error cause = {0};
    if (text_regex_open(out, pattern, len, &cause) == 0)
        return 0;
    return at_path(d, &cause);
}

/* ---- normalizers ---- */

static int read_charsmap(struct token_draft *d, const struct json *value, struct normal_step *step)
{
    const struct json *text = json_get(value, "precompiled_charsmap");
    struct byte_view bytes;
    struct error cause = {0};
    if (!json_is(text, JSON_STRING))
        return wrong(d, "Precompiled", "precompiled_charsmap");
    if (draft_base64(d, text->text, text->text_len, &bytes) != 0)
        return -1;
    if (bytes.len == 0)
        return wrong(d, "Precompiled", "precompiled_charsmap");
    step->kind = NORMAL_CHARSMAP;
    if (charsmap_open(&step->charsmap, bytes.bytes, bytes.len, &cause) != 0)
        return at_path(d, &cause);
    return 0;
}

static int read_replace(struct token_draft *d, const struct json *value, struct normal_step *step)
{
    const struct json *regex;
    if (read_pattern(d, value, "Replace", &step->from, &regex) != 0 ||
        keep_string(d, value, "Replace", "content", &step->to) != 0)
        return -1;
    step->kind = regex ? NORMAL_REPLACE_REGEX : NORMAL_REPLACE;
    return regex ? open_regex(d, &step->regex, regex->text, regex->text_len) : 0;
}

static int read_normalizer(struct token_draft *d, const struct json *value, int depth)
{
    static const struct {
        const char *type;
        enum normal_kind kind;
    } plain[] = {{"NFC", NORMAL_NFC},
                 {"NFD", NORMAL_NFD},
                 {"NFKC", NORMAL_NFKC},
                 {"NFKD", NORMAL_NFKD},
                 {"Lowercase", NORMAL_LOWERCASE}};
    struct tokenizer *t = d->t;
    const char *type = type_of(d, "a normalizer", value);
    if (!type)
        return -1;
    if (strcmp(type, "Sequence") == 0)
        return read_sequence(d, value, "normalizers", read_normalizer, depth);
    if (t->n_normal == MAX_NORMAL_STEPS)
        return draft_bad(d, "the normalizer has more than %d steps", MAX_NORMAL_STEPS);
    struct normal_step *step = &t->normal[t->n_normal++];
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (strcmp(type, plain[i].type) == 0) {
            step->kind = plain[i].kind;
            return 0;
        }
    if (strcmp(type, "Prepend") == 0) {
        step->kind = NORMAL_PREPEND;
        if (keep_string(d, value, type, "prepend", &step->to) != 0)
            return -1;
        t->add_space_prefix = t->add_space_prefix || step->to.len > 0;
        return 0;
    }
    if (strcmp(type, "Strip") == 0) {
        step->kind = NORMAL_STRIP;
        step->left = flag_of(value, "strip_left", true);
        step->right = flag_of(value, "strip_right", true);
        return 0;
    }
    if (strcmp(type, "Replace") == 0)
        return read_replace(d, value, step);
    if (strcmp(type, "Precompiled") == 0)
        return read_charsmap(d, value, step);
    return refuse(d, "a normalizer", type);
}

int draft_read_normalizer(struct token_draft *d, const struct json *value)
{
    return is_null(value) ? 0 : read_normalizer(d, value, 0);
}

/* ---- pre-tokenizers ---- */

static struct pre_step *add_pre_step(struct token_draft *d, enum pre_kind kind)
{
    struct error cause = {0};
    struct pre_step *step = pre_add_step(d->t, kind, SPLIT_ISOLATED, &cause);
    if (!step)
        at_path(d, &cause);
    return step;
}

int draft_split_step(struct token_draft *d, const char *pattern, size_t len,
                     enum split_behavior behavior, bool invert)
{
    /* True if it matches the whole text as words, as the families' patterns do. */
    bool words = behavior == SPLIT_ISOLATED ? true : behavior == SPLIT_REMOVED && invert;
    struct error cause = {0};
    if (words) {
        strbuf_add(&d->words, pattern, len);
        strbuf_addc(&d->words, '\n');
    } else {
        strbuf_adds(&d->words, DRAFT_OTHER);
    }
    return pre_add_split(d->t, pattern, len, behavior, invert, &cause) == 0 ? 0
                                                                            : at_path(d, &cause);
}

int draft_apply_family(struct token_draft *d, const char *name)
{
    const struct pre_family *family = pre_family_find(name, strlen(name));
    for (size_t i = 0; i < MAX_CUTS && family->cuts[i]; i++)
        strbuf_addf(&d->words, "%s\n", family->cuts[i]);
    return pre_family_apply(family, d->t, d->err);
}

static int read_behavior(struct token_draft *d, const struct json *value, const char *type,
                         enum split_behavior *out)
{
    static const char *const names[] = {"Isolated", "Removed", "Contiguous", "MergedWithPrevious",
                                        "MergedWithNext"}; /* as the enum */
    const struct json *behavior = json_get(value, "behavior");
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
        if (json_equals(behavior, names[i])) {
            *out = (enum split_behavior)i;
            return 0;
        }
    return wrong(d, type, "behavior");
}

static int read_split(struct token_draft *d, const struct json *value)
{
    enum split_behavior behavior = SPLIT_ISOLATED;
    const struct json *regex;
    struct byte_view text = {0};
    bool invert = flag_of(value, "invert", false);
    if (read_behavior(d, value, "Split", &behavior) != 0 ||
        read_pattern(d, value, "Split", &text, &regex) != 0)
        return -1;
    if (regex)
        return draft_split_step(d, regex->text, regex->text_len, behavior, invert);
    struct pre_step *step = add_pre_step(d, PRE_STRING);
    if (!step)
        return -1;
    strbuf_adds(&d->words, DRAFT_OTHER);
    step->text = text;
    step->behavior = behavior;
    step->invert = invert;
    return 0;
}

/* ByteLevel's own pattern is GPT-2's. */
static int read_byte_level(struct token_draft *d, const struct json *value)
{
    struct tokenizer *t = d->t;
    if (flag_of(value, "add_prefix_space", true)) {
        if (!add_pre_step(d, PRE_PREFIX_SPACE))
            return -1;
        t->add_space_prefix = true;
        strbuf_adds(&d->words, DRAFT_OTHER);
    }
    if (!flag_of(value, "use_regex", true))
        return 0;
    return draft_split_step(d, PATTERN_GPT2, strlen(PATTERN_GPT2), SPLIT_ISOLATED, false);
}

static int read_metaspace_mark(struct token_draft *d, const struct json *value,
                               struct byte_view *mark, enum prepend_scheme *prepend)
{
    static const char *const schemes[] = {"always", "first", "never"}; /* as the enum */
    if (keep_string(d, value, "Metaspace", "replacement", mark) != 0)
        return -1;
    if (mark->len == 0 || utf8_valid_prefix(mark->bytes, mark->len) != mark->len)
        return wrong(d, "Metaspace", "replacement");
    const struct json *scheme = json_get(value, "prepend_scheme");
    *prepend = flag_of(value, "add_prefix_space", true) ? PREPEND_ALWAYS : PREPEND_NEVER;
    for (unsigned i = 0; i < sizeof schemes / sizeof *schemes; i++)
        if (json_equals(scheme, schemes[i])) {
            *prepend = (enum prepend_scheme)i;
            return 0;
        }
    return is_null(scheme) ? 0 : wrong(d, "Metaspace", "prepend_scheme");
}

static int read_metaspace(struct token_draft *d, const struct json *value)
{
    struct pre_step *step = add_pre_step(d, PRE_METASPACE);
    if (!step)
        return -1;
    strbuf_adds(&d->words, DRAFT_OTHER);
    step->splits = flag_of(value, "split", true);
    if (read_metaspace_mark(d, value, &step->text, &step->prepend) != 0)
        return -1;
    d->t->add_space_prefix = d->t->add_space_prefix || step->prepend == PREPEND_ALWAYS;
    return 0;
}

static int read_punctuation(struct token_draft *d, const struct json *value)
{
    struct pre_step *step = add_pre_step(d, PRE_PUNCTUATION);
    strbuf_adds(&d->words, DRAFT_OTHER);
    if (!step || !json_get(value, "behavior"))
        return step ? 0 : -1;
    return read_behavior(d, value, "Punctuation", &step->behavior);
}

static int read_pre_tokenizer(struct token_draft *d, const struct json *value, int depth)
{
    const char *type = type_of(d, "a pre_tokenizer", value);
    struct pre_step *step;
    if (!type)
        return -1;
    if (strcmp(type, "Sequence") == 0)
        return read_sequence(d, value, "pretokenizers", read_pre_tokenizer, depth);
    if (strcmp(type, "ByteLevel") == 0)
        return read_byte_level(d, value);
    if (strcmp(type, "Split") == 0)
        return read_split(d, value);
    if (strcmp(type, "Metaspace") == 0)
        return read_metaspace(d, value);
    if (strcmp(type, "Punctuation") == 0)
        return read_punctuation(d, value);
    if (strcmp(type, "Digits") == 0) {
        if (!(step = add_pre_step(d, PRE_DIGITS)))
            return -1;
        bool each = flag_of(value, "individual_digits", false);
        step->behavior = each ? SPLIT_ISOLATED : SPLIT_CONTIGUOUS;
        strbuf_adds(&d->words, each ? CUT_DIGITS "\n" : DRAFT_OTHER);
        return 0;
    }
    bool whitespace = strcmp(type, "Whitespace") == 0;
    if (!whitespace && strcmp(type, "WhitespaceSplit") != 0)
        return refuse(d, "a pre_tokenizer", type);
    if (!(step = add_pre_step(d, whitespace ? PRE_WHITESPACE : PRE_WHITESPACE_SPLIT)))
        return -1;
    strbuf_adds(&d->words, DRAFT_OTHER);
    step->behavior = SPLIT_REMOVED;
    step->invert = whitespace; /* it matches words */
    return 0;
}

/* True if ByteLevel is the last step, as in every model that has it. */
bool draft_is_byte_level(const struct json *pre_tokenizer)
{
    for (int depth = 0; depth < MAX_NESTING; depth++) {
        if (json_equals(json_get(pre_tokenizer, "type"), "ByteLevel"))
            return true;
        const struct json *list = json_get(pre_tokenizer, "pretokenizers");
        pre_tokenizer = json_is(list, JSON_ARRAY) ? list->last : NULL;
    }
    return false;
}

/* True if a ByteLevel is not the last step: later steps would see its alphabet. */
static bool has_early_byte_level(const struct json *value, bool is_last, int depth)
{
    if (json_equals(json_get(value, "type"), "ByteLevel"))
        return !is_last;
    const struct json *list = json_get(value, "pretokenizers");
    for (const struct json *item = json_is(list, JSON_ARRAY) && depth < MAX_NESTING ? list->first
                                                                                    : NULL;
         item; item = item->next)
        if (has_early_byte_level(item, is_last && !item->next, depth + 1))
            return true;
    return false;
}

int draft_read_pre_tokenizer(struct token_draft *d, const struct json *value)
{
    if (is_null(value))
        return 0;
    if (has_early_byte_level(value, true, 0))
        return draft_bad(d, "a pre_tokenizer ByteLevel that is not the last step is not supported");
    return read_pre_tokenizer(d, value, 0);
}

/* ---- decoders ---- */

static int read_decoder_strip(struct token_draft *d, const struct json *value,
                              struct decode_step *step)
{
    uint64_t start, stop;
    if (keep_string(d, value, "Strip", "content", &step->from) != 0)
        return -1;
    if (step->from.len == 0 ||
        utf8_valid_prefix(step->from.bytes, step->from.len) != step->from.len)
        return wrong(d, "Strip", "content");
    if (!json_to_uint64(json_get(value, "start"), &start) || start > UINT32_MAX)
        return wrong(d, "Strip", "start");
    if (!json_to_uint64(json_get(value, "stop"), &stop) || stop > UINT32_MAX)
        return wrong(d, "Strip", "stop");
    step->kind = DECODE_STRIP;
    step->start = (uint32_t)start;
    step->stop = (uint32_t)stop;
    return draft_decode_step(d, *step);
}

static int read_decoder_replace(struct token_draft *d, const struct json *value,
                                struct decode_step *step)
{
    const struct json *regex;
    step->kind = DECODE_REPLACE;
    if (read_pattern(d, value, "Replace", &step->from, &regex) != 0 ||
        keep_string(d, value, "Replace", "content", &step->to) != 0 ||
        (regex && open_regex(d, &step->regex, regex->text, regex->text_len) != 0))
        return -1;
    return draft_decode_step(d, *step);
}

static int read_decoder(struct token_draft *d, const struct json *value, int depth)
{
    struct decode_step step = {0};
    enum prepend_scheme prepend;
    const char *type = type_of(d, "a decoder", value);
    if (!type)
        return -1;
    if (strcmp(type, "Sequence") == 0)
        return read_sequence(d, value, "decoders", read_decoder, depth);
    if (strcmp(type, "Replace") == 0)
        return read_decoder_replace(d, value, &step);
    if (strcmp(type, "Strip") == 0)
        return read_decoder_strip(d, value, &step);
    if (strcmp(type, "Metaspace") == 0) {
        step.kind = DECODE_METASPACE;
        if (read_metaspace_mark(d, value, &step.from, &prepend) != 0)
            return -1;
        step.drops_first = prepend != PREPEND_NEVER;
        return draft_decode_step(d, step);
    }
    if (strcmp(type, "ByteLevel") == 0) { /* it also joins all tokens to one text */
        step.kind = DECODE_BYTE_LEVEL;
        if (draft_decode_step(d, step) != 0)
            return -1;
        step.kind = DECODE_FUSE;
        return draft_decode_step(d, step);
    }
    if (strcmp(type, "ByteFallback") == 0)
        step.kind = DECODE_BYTE_FALLBACK;
    else if (strcmp(type, "Fuse") == 0)
        step.kind = DECODE_FUSE;
    else
        return refuse(d, "a decoder", type);
    return draft_decode_step(d, step);
}

/* For a file without a decoder. `tokenizers` would join tokens with spaces, which nobody wants to
 * read; we undo what the model's pre-tokenizer did instead. */
static int infer_decoder(struct token_draft *d)
{
    struct decode_step step = {.kind = DECODE_BYTE_LEVEL};
    if (d->kind == TOKENIZER_BPE)
        return draft_decode_step(d, step);
    step = (struct decode_step){
        .kind = DECODE_REPLACE, .from = {SPACE_MARK, SPACE_MARK_LEN}, .to = {" ", 1}};
    if (draft_decode_step(d, step) != 0)
        return -1;
    return draft_decode_step(d, (struct decode_step){.kind = DECODE_BYTE_FALLBACK});
}

int draft_read_decoder(struct token_draft *d, const struct json *value)
{
    return is_null(value) ? infer_decoder(d) : read_decoder(d, value, 0);
}
