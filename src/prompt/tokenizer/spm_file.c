/* SentencePiece's own file, tokenizer.model: a protobuf message. Strict: every length is checked
 * against the bytes left, varints have at most ten bytes, and fields that we read must have their
 * type.
 *
 *   ModelProto      1 pieces (repeated)   2 trainer_spec   3 normalizer_spec
 *   SentencePiece   1 piece   2 score (float)   3 type
 *   TrainerSpec     3 model_type   24 treat_whitespace_as_suffix   35 byte_fallback
 *                   40 unk_id   41 bos_id   42 eos_id
 *   NormalizerSpec  2 precompiled_charsmap   3 add_dummy_prefix   4 remove_extra_whitespaces
 *                   5 escape_whitespaces
 */
#include "prompt/tokenizer/draft.h"

#include <math.h>
#include <string.h>

enum wire { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

struct proto {
    const unsigned char *at, *end;
};

struct field {
    uint64_t number;
    enum wire wire;
    uint64_t value; /* of a varint or fixed */
    struct proto bytes;
};

static bool read_varint(struct proto *p, uint64_t *out)
{
    *out = 0;
    for (unsigned shift = 0; shift < 70 && p->at < p->end; shift += 7) {
        unsigned char byte = *p->at++;
        if (shift == 63 && byte > 1)
            return false;
        *out |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return true;
    }
    return false;
}

static bool read_fixed(struct proto *p, size_t size, uint64_t *out)
{
    if ((size_t)(p->end - p->at) < size)
        return false;
    *out = 0;
    for (size_t i = size; i-- > 0;)
        *out = *out << 8 | p->at[i];
    p->at += size;
    return true;
}

static bool read_field(struct proto *p, struct field *f)
{
    uint64_t tag, len;
    if (!read_varint(p, &tag) || tag >> 3 == 0 || tag >> 3 > 0x1fffffff)
        return false;
    *f = (struct field){.number = tag >> 3, .wire = (enum wire)(tag & 7)};
    switch (f->wire) {
    case WIRE_VARINT: return read_varint(p, &f->value);
    case WIRE_FIXED64: return read_fixed(p, 8, &f->value);
    case WIRE_FIXED32: return read_fixed(p, 4, &f->value);
    case WIRE_BYTES:
        if (!read_varint(p, &len) || len > (uint64_t)(p->end - p->at))
            return false;
        f->bytes = (struct proto){p->at, p->at + len};
        p->at += len;
        return true;
    }
    return false;
}

struct spm {
    struct token_draft *d;
    uint64_t n_pieces;
    uint64_t model_type;
    bool byte_fallback, whitespace_suffix;
    uint64_t unk_id, bos_id, eos_id; /* int32 on the wire: -1 is a huge number */
    struct proto charsmap;
    bool dummy_prefix, extra_whitespaces, escapes;
};

static int damaged(const struct spm *s, const char *what)
{
    return draft_bad(s->d, "%s is not a valid protobuf message", what);
}

/* Checks that a field has its expected wire type. */
static int need_wire(const struct spm *s, const struct field *f, enum wire wire, const char *what)
{
    return f->wire == wire ? 0
                           : draft_bad(s->d, "field %llu of %s has a wrong type",
                                       (unsigned long long)f->number, what);
}

static int read_piece(struct spm *s, struct proto p)
{
    static const char what[] = "a piece";
    struct byte_view text = {"", 0};
    uint64_t type = TOKEN_NORMAL;
    uint32_t bits = 0;
    float score;
    for (struct field f; p.at < p.end;) {
        if (!read_field(&p, &f))
            return damaged(s, what);
        if (f.number == 1) {
            if (need_wire(s, &f, WIRE_BYTES, what) != 0)
                return -1;
            text = (struct byte_view){(const char *)f.bytes.at, (size_t)(f.bytes.end - f.bytes.at)};
        } else if (f.number == 2) {
            if (need_wire(s, &f, WIRE_FIXED32, what) != 0)
                return -1;
            bits = (uint32_t)f.value;
        } else if (f.number == 3) {
            if (need_wire(s, &f, WIRE_VARINT, what) != 0)
                return -1;
            type = f.value;
        }
    }
    memcpy(&score, &bits, sizeof score);
    uint64_t id = s->n_pieces++;
    if (type < TOKEN_NORMAL || type > TOKEN_BYTE)
        return draft_bad(s->d, "piece %llu has an unknown type", (unsigned long long)id);
    if (isnan(score))
        return draft_bad(s->d, "piece %llu has a score that is not a number",
                         (unsigned long long)id);
    if (draft_token(s->d, id, text, (enum token_type)type, score) != 0)
        return -1;
    /* Control tokens are matched in the raw text, user-defined symbols in the normalised one: no
     * space is added after those. */
    if (type == TOKEN_CONTROL || type == TOKEN_UNKNOWN)
        return text.len ? draft_added(s->d, text, id, ADDED_SPECIAL) : 0;
    if (type == TOKEN_USER_DEFINED)
        return text.len ? draft_added(s->d, text, id, ADDED_NORMALIZED) : 0;
    return 0;
}

static int read_trainer(struct spm *s, struct proto p)
{
    static const char what[] = "the trainer_spec";
    for (struct field f; p.at < p.end;) {
        uint64_t *number = NULL;
        bool *flag = NULL;
        if (!read_field(&p, &f))
            return damaged(s, what);
        switch (f.number) {
        case 3: number = &s->model_type; break;
        case 24: flag = &s->whitespace_suffix; break;
        case 35: flag = &s->byte_fallback; break;
        case 40: number = &s->unk_id; break;
        case 41: number = &s->bos_id; break;
        case 42: number = &s->eos_id; break;
        default: continue;
        }
        if (need_wire(s, &f, WIRE_VARINT, what) != 0)
            return -1;
        if (number)
            *number = f.value;
        else
            *flag = f.value != 0;
    }
    return 0;
}

static int read_normalizer(struct spm *s, struct proto p)
{
    static const char what[] = "the normalizer_spec";
    for (struct field f; p.at < p.end;) {
        bool *flag = NULL;
        if (!read_field(&p, &f))
            return damaged(s, what);
        switch (f.number) {
        case 2: break;
        case 3: flag = &s->dummy_prefix; break;
        case 4: flag = &s->extra_whitespaces; break;
        case 5: flag = &s->escapes; break;
        default: continue;
        }
        if (need_wire(s, &f, flag ? WIRE_VARINT : WIRE_BYTES, what) != 0)
            return -1;
        if (flag)
            *flag = f.value != 0;
        else
            s->charsmap = f.bytes;
    }
    return 0;
}

static int read_model(struct spm *s)
{
    const unsigned char *bytes = (const unsigned char *)strbuf_str(&s->d->file);
    struct proto p = {bytes, bytes + s->d->file.len};
    for (struct field f; p.at < p.end;) {
        if (!read_field(&p, &f))
            return damaged(s, "it");
        if (f.number < 1 || f.number > 3)
            continue;
        if (need_wire(s, &f, WIRE_BYTES, "the model") != 0)
            return -1;
        int failed = f.number == 1   ? read_piece(s, f.bytes)
                     : f.number == 2 ? read_trainer(s, f.bytes)
                                     : read_normalizer(s, f.bytes);
        if (failed)
            return -1;
    }
    return 0;
}

static int refuse_odd(const struct spm *s)
{
    static const char *const types[] = {"none", "unigram", "bpe", "word", "char"};
    if (s->model_type != 1 && s->model_type != 2)
        return draft_bad(s->d,
                         "a SentencePiece model of type %s is not supported; use unigram or bpe",
                         s->model_type < 5 ? types[s->model_type] : "unknown");
    if (s->whitespace_suffix)
        return draft_bad(s->d, "a SentencePiece model with treat_whitespace_as_suffix is not "
                               "supported");
    if (!s->escapes)
        return draft_bad(s->d, "a SentencePiece model without escape_whitespaces is not supported");
    return 0;
}

/* A token that the trainer spec names by id; -1 if none. */
static int32_t piece_at(const struct spm *s, uint64_t id)
{
    return id < s->n_pieces ? (int32_t)id : -1;
}

static int add_steps(struct spm *s)
{
    struct token_draft *d = s->d;
    struct tokenizer *t = d->t;
    struct error cause = {0};
    if (s->charsmap.end > s->charsmap.at) {
        struct normal_step *step = &t->normal[t->n_normal++];
        step->kind = NORMAL_CHARSMAP_LONG;
        if (charsmap_open(&step->charsmap, (const char *)s->charsmap.at,
                          (size_t)(s->charsmap.end - s->charsmap.at), &cause) != 0)
            return error_set(d->err, cause.code, "%s: %s", d->path, cause.message);
    }
    if (s->extra_whitespaces)
        t->normal[t->n_normal++].kind = NORMAL_EXTRA_SPACES;
    tokenizer_add_marks(t, s->dummy_prefix);
    t->single_scores = true;
    if (s->dummy_prefix || s->extra_whitespaces)
        t->lead = (struct decode_lead){" ", 1, s->extra_whitespaces ? UINT32_MAX : 1, true};
    const struct decode_step marks = {
        .kind = DECODE_REPLACE, .from = {SPACE_MARK, SPACE_MARK_LEN}, .to = {" ", 1}};
    if (draft_decode_step(d, marks) != 0)
        return -1;
    return draft_decode_step(d, (struct decode_step){.kind = DECODE_BYTE_FALLBACK});
}

int draft_read_sentencepiece(struct token_draft *d, const struct json *config)
{
    struct spm s = {.d = d,
                    .model_type = 1,
                    .bos_id = 1,
                    .eos_id = 2,
                    .dummy_prefix = true,
                    .extra_whitespaces = true,
                    .escapes = true};
    if (read_model(&s) != 0 || refuse_odd(&s) != 0 || draft_read_config_added(d, config) != 0 ||
        draft_make(d, s.model_type == 1 ? TOKENIZER_UNIGRAM : TOKENIZER_SPM) != 0)
        return -1;
    d->byte_fallback = s.byte_fallback;
    d->no_prefix_for_added = true;
    d->t->fuse_unknown = true;
    if (piece_at(&s, s.unk_id) >= 0)
        d->unknown = d->spellings[s.unk_id];
    d->t->bos = piece_at(&s, s.bos_id);
    d->t->eos = piece_at(&s, s.eos_id);
    if (d->t->bos >= 0 && !token_list_add(&d->t->before, d->t->bos))
        return draft_no_memory(d);
    return add_steps(&s);
}
