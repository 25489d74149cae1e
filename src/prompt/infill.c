/* Prompts for filling a gap; see infill.h. Runs on the workers. Texts are cut exactly as in
 * llama-server, so an editor gets the same prompts from both. */
#include "prompt/infill.h"

#include <string.h>

bool infill_is_possible(const struct tokenizer *t, const char **why)
{
    const struct fim_tokens *fim = tokenizer_fim(t);
    *why = fim->prefix < 0   ? "no prefix token"
           : fim->suffix < 0 ? "no suffix token"
           : fim->middle < 0 ? "no middle token"
                             : NULL;
    return !*why;
}

/* The parts of a prompt being assembled. */
struct parts {
    struct token_list prefix, suffix, line, files;
};

static int encode(const struct prompt_maker *p, struct byte_view text, int flags,
                  struct token_list *out, struct error *err)
{
    return text.len ? tokenizer_encode(p->tokenizer, text.bytes, text.len, flags, out, err) : 0;
}

static int add_token(struct token_list *out, int32_t id, struct error *err)
{
    return token_list_add(out, id) ? 0 : error_set(err, ERROR_MEMORY, "no memory for a prompt");
}

static int add_tokens(struct token_list *out, const int32_t *ids, size_t n, struct error *err)
{
    if (n == 0)
        return 0;
    if (!token_list_reserve(out, n))
        return error_set(err, ERROR_MEMORY, "no memory for a prompt");
    memcpy(out->ids + out->len, ids, n * sizeof *ids);
    out->len += n;
    return 0;
}

/* The head of a file: its token and name on a separate line. A model without such a token gets a
 * separator instead. */
static int add_head(const struct prompt_maker *p, int32_t token, struct byte_view name,
                    struct token_list *out, struct error *err)
{
    struct strbuf line = STRBUF_INIT;
    strbuf_add(&line, name.bytes, name.len);
    strbuf_addc(&line, '\n');
    int failed = line.failed ? error_set(err, ERROR_MEMORY, "no memory for a prompt")
                             : add_token(out, token, err);
    if (!failed)
        failed = encode(p, (struct byte_view){line.data, line.len}, 0, out, err);
    strbuf_free(&line);
    return failed;
}

/* ---- cuts before tokenizing ---- */

/* The most bytes to tokenize if `n_tokens` are kept: twice as many as they can have. The other half
 * is dropped again, with all tokens that the cut has changed. The exception is a single word that
 * reaches through that half, such as a very long run of spaces: its tokens shift. */
static size_t most_bytes(const struct infill_input *in, size_t n_tokens)
{
    return in->most_tokens && in->token_bytes ? 2 * n_tokens * in->token_bytes : SIZE_MAX;
}

/* Moves a cut out of the middle of a character. */
static size_t next_character(struct byte_view text, size_t at)
{
    while (at < text.len && ((unsigned char)text.bytes[at] & 0xc0) == 0x80)
        at++;
    return at;
}

static struct byte_view beginning_of(struct byte_view text, size_t most)
{
    if (text.len > most)
        text.len = next_character(text, most);
    return text;
}

/* Starts at a line if possible, because no vocabulary has words that span lines. */
static struct byte_view end_of(struct byte_view text, size_t most)
{
    if (text.len <= most)
        return text;
    size_t at = text.len - most;
    const char *feed = memchr(text.bytes + at, '\n', most / 2);
    at = feed ? (size_t)(feed - text.bytes) + 1 : next_character(text, at);
    return (struct byte_view){text.bytes + at, text.len - at};
}

/* The first file that can matter. `most` is the size limit for its text and name. The head of each
 * file has at least one token. */
static size_t first_file(const struct infill_input *in, size_t *most)
{
    size_t left = most_bytes(in, in->most_file_tokens), i = in->n_files;
    *most = left;
    while (i > 0 && left > 0) {
        const struct infill_file *f = &in->files[--i];
        const size_t n_bytes = f->name.len + f->text.len + in->token_bytes;
        *most = left;
        left = n_bytes < left ? left - n_bytes : 0;
    }
    return i;
}

/* ---- parts ---- */

static int add_files(const struct prompt_maker *p, const struct infill_input *in,
                     struct token_list *out, struct error *err)
{
    const struct fim_tokens *fim = tokenizer_fim(p->tokenizer);
    static const char mark[] = "\n\n--- snippet ---\n\n";
    if (fim->repository >= 0 && add_head(p, fim->repository, byte_view_of("myproject"), out, err))
        return -1;
    size_t most;
    const size_t first = first_file(in, &most);
    for (size_t i = first; i < in->n_files; i++) {
        struct infill_file f = in->files[i];
        if (i == first) {
            f.text = end_of(f.text, most);
            f.name = end_of(f.name, most - f.text.len);
        }
        int failed = fim->file >= 0 ? add_head(p, fim->file, f.name, out, err)
                                    : encode(p, byte_view_of(mark), 0, out, err);
        if (failed || encode(p, f.text, 0, out, err))
            return -1;
    }
    return fim->file >= 0 ? add_head(p, fim->file, byte_view_of("filename"), out, err) : 0;
}

static int encode_parts(const struct prompt_maker *p, const struct infill_input *in,
                        struct parts *parts, struct error *err)
{
    const size_t quarter = in->most_tokens / 4;
    const struct byte_view prefix = end_of(in->prefix, most_bytes(in, 3 * quarter));
    const struct byte_view suffix = beginning_of(in->suffix, most_bytes(in, quarter));
    if (encode(p, prefix, 0, &parts->prefix, err) || encode(p, suffix, 0, &parts->suffix, err) ||
        encode(p, in->line, TOKENIZE_PARSE_SPECIAL, &parts->line, err))
        return -1;
    return in->has_files ? add_files(p, in, &parts->files, err) : 0;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static int join(const struct prompt_maker *p, const struct infill_input *in,
                const struct parts *parts, struct token_list *out, struct error *err)
{
    const struct fim_tokens *fim = tokenizer_fim(p->tokenizer);
    size_t n_prefix = parts->prefix.len, n_suffix = parts->suffix.len, n_files = parts->files.len;
    if (in->most_tokens) {
        size_t quarter = in->most_tokens / 4, n_line = parts->line.len + 2;
        n_prefix = least(n_prefix, 3 * quarter);
        n_suffix = least(n_suffix, quarter > n_line ? quarter - n_line : 0);
        n_files = least(n_files, in->most_file_tokens);
    }
    const int32_t bos = p->adds_bos ? tokenizer_bos(p->tokenizer) : -1;
    return add_tokens(out, parts->files.ids + parts->files.len - n_files, n_files, err) ||
                   (bos >= 0 && add_token(out, bos, err)) || add_token(out, fim->prefix, err) ||
                   add_tokens(out, parts->prefix.ids + parts->prefix.len - n_prefix, n_prefix,
                              err) ||
                   add_tokens(out, parts->line.ids, parts->line.len, err) ||
                   add_token(out, fim->suffix, err) ||
                   add_tokens(out, parts->suffix.ids, n_suffix, err) ||
                   add_token(out, fim->middle, err)
               ? -1
               : 0;
}

int prompt_maker_infill(const struct prompt_maker *p, const struct infill_input *in,
                        struct prompt *out, struct error *err)
{
    struct parts parts = {0};
    *out = (struct prompt){0};
    int failed = encode_parts(p, in, &parts, err) || join(p, in, &parts, &out->tokens, err) ? -1
                                                                                            : 0;
    token_list_free(&parts.prefix);
    token_list_free(&parts.suffix);
    token_list_free(&parts.line);
    token_list_free(&parts.files);
    if (failed)
        prompt_free(out);
    return failed;
}
