/* SentencePiece's precompiled rules of normalisation: a double-array trie (Darts) of what is
 * replaced, and the replacements, each ended by a NUL:
 *
 *   u32 bytes of the trie | u32 units ... | replacements
 *
 * A unit holds a label, an offset to its children and whether the first of them is a leaf, whose
 * value is a position among the replacements. The file is untrusted. A walk only looks at units
 * that exist, and is no longer than the text; a position past the end replaces by nothing. The
 * result is valid UTF-8, as later steps require: the replacements are, none is taken from the
 * middle of a character, and none replaces half of one. */
#include "prompt/tokenizer/tokenizer_internal.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/utf8.h"
#include "base/task.h"

struct charsmap {
    uint32_t *units;
    size_t n_units;
    char *texts;
    size_t len; /* of `texts`, which ends with a NUL */
};

static uint32_t unit_offset(uint32_t unit)
{
    return (unit >> 10) << ((unit & (1u << 9)) >> 6);
}

int charsmap_open(struct charsmap **out, const char *bytes, size_t len, struct error *err)
{
    const unsigned char *b = (const unsigned char *)bytes;
    uint32_t size = 0;
    for (int i = 3; i >= 0 && len >= 4; i--)
        size = size << 8 | b[i];
    if (len < 4 || size > len - 4 || size % 4 != 0 || size == 0)
        return error_set(err, ERROR_FORMAT, "the precompiled_charsmap (%zu bytes) is not valid",
                         len);
    struct charsmap *map = calloc(1, sizeof *map);
    if (map) {
        map->n_units = size / 4;
        map->len = len - 4 - size + 1;
        map->units = malloc(size);
        map->texts = malloc(map->len);
    }
    if (!map || !map->units || !map->texts) {
        charsmap_close(map);
        return error_set(err, ERROR_MEMORY, "no memory for a precompiled_charsmap");
    }
    for (size_t i = 0; i < map->n_units; i++) {
        const unsigned char *u = b + 4 + 4 * i;
        map->units[i] = u[0] | (uint32_t)u[1] << 8 | (uint32_t)u[2] << 16 | (uint32_t)u[3] << 24;
    }
    memcpy(map->texts, bytes + 4 + size, map->len - 1);
    map->texts[map->len - 1] = '\0';
    if (!utf8_is_valid(map->texts, map->len)) {
        charsmap_close(map);
        return error_set(err, ERROR_FORMAT,
                         "a precompiled_charsmap has replacements that are not UTF-8");
    }
    *out = map;
    return 0;
}

void charsmap_close(struct charsmap *map)
{
    if (!map)
        return;
    free(map->units);
    free(map->texts);
    free(map);
}

static bool is_continuation(char byte)
{
    return ((unsigned char)byte & 0xc0) == 0x80;
}

/* The replacement of the shortest or the longest prefix of `text` that has one, or NULL. The
 * longest prefix always ends at a character; the shortest may not, so its `width` is
 * meaningless. */
static const char *find(const struct charsmap *map, bool longest, const char *text, size_t len,
                        size_t *width)
{
    const char *found = NULL;
    uint32_t at = unit_offset(map->units[0]);
    for (size_t i = 0; i < len && text[i]; i++) {
        unsigned char byte = (unsigned char)text[i];
        at ^= byte;
        if (at >= map->n_units || (map->units[at] & (1u << 31 | 0xff)) != byte)
            break;
        bool has_leaf = map->units[at] >> 8 & 1;
        at ^= unit_offset(map->units[at]);
        if (!has_leaf)
            continue;
        if (at >= map->n_units)
            break;
        uint32_t place = map->units[at] & 0x7fffffff;
        const char *to = map->texts + (place < map->len ? place : map->len - 1);
        if (is_continuation(*to) || (longest && i + 1 < len && is_continuation(text[i + 1])))
            continue;
        found = to;
        *width = i + 1;
        if (!longest)
            break;
    }
    return found;
}

static void apply_longest(const struct charsmap *map, const char *text, size_t len,
                          struct strbuf *out)
{
    for (size_t at = 0, width; at < len && out->len <= MAX_TEXT_BYTES && task_goes_on(8);
         at += width) {
        const char *to = find(map, true, text + at, len - at, &width);
        if (to) {
            strbuf_adds(out, to);
            continue;
        }
        width = utf8_valid_prefix(text + at, len - at);
        strbuf_add(out, text + at, width);
    }
}

/* The end of the grapheme that starts at `at`. */
static size_t grapheme_end(const char *text, size_t len, size_t at)
{
    utf8proc_int32_t state = 0;
    size_t width = utf8_valid_prefix(text + at, len - at);
    int32_t last = (int32_t)utf8_decode(text + at, width);
    for (at += width; at < len; at += width) {
        width = utf8_valid_prefix(text + at, len - at);
        int32_t code = (int32_t)utf8_decode(text + at, width);
        if (utf8proc_grapheme_break_stateful(last, code, &state))
            break;
        last = code;
    }
    return at;
}

/* As `tokenizers` does: a grapheme of less than six bytes is replaced as a whole by the replacement
 * of any prefix of it. Without such a rule, and in longer graphemes, each character is replaced by
 * itself. */
static void apply_graphemes(const struct charsmap *map, const char *text, size_t len,
                            struct strbuf *out)
{
    size_t unused;
    for (size_t at = 0, end; at < len && out->len <= MAX_TEXT_BYTES && task_goes_on(16); at = end) {
        end = grapheme_end(text, len, at);
        const char *to = end - at < 6 ? find(map, false, text + at, end - at, &unused) : NULL;
        if (to) {
            strbuf_adds(out, to);
            continue;
        }
        for (size_t i = at, width; i < end; i += width) {
            width = utf8_valid_prefix(text + i, end - i);
            to = find(map, false, text + i, width, &unused);
            if (to)
                strbuf_adds(out, to);
            else
                strbuf_add(out, text + i, width);
        }
    }
}

void charsmap_apply(const struct charsmap *map, bool longest, const char *text, size_t len,
                    struct strbuf *out)
{
    if (longest)
        apply_longest(map, text, len, out);
    else
        apply_graphemes(map, text, len, out);
}
