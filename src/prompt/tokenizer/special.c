/* Added tokens in running text. If several start at the same place, the longest wins, and the
 * leftmost comes first, as in the `tokenizers` library. A text is searched for their first bytes,
 * mostly just "<"; from there, each further byte that could belong to a token costs a binary
 * search. A special token that is not wanted here is skipped as a whole, so that no other is found
 * inside it. */
#include "prompt/tokenizer/tokenizer_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

static int compare_tokens(const void *a, const void *b)
{
    const struct byte_view *x = &((const struct added_token *)a)->text;
    const struct byte_view *y = &((const struct added_token *)b)->text;
    return byte_view_compare(*x, *y);
}

int special_list_add(struct special_list *list, struct added_token token, struct error *err)
{
    if (token.text.len == 0)
        return 0;
    if (list->n == list->capacity) {
        uint32_t capacity = list->capacity ? 2 * list->capacity : 16;
        struct added_token *items = realloc(list->items, capacity * sizeof *items);
        if (!items)
            return error_set(err, ERROR_MEMORY, "no memory for a list of special tokens");
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->n++] = token;
    return 0;
}

void special_list_ready(struct special_list *list)
{
    uint32_t i = 0, n = list->n;
    if (n > 1)
        qsort(list->items, n, sizeof *list->items, compare_tokens);
    for (unsigned byte = 0; byte < 256; byte++) {
        list->first[byte] = i;
        while (i < n && (unsigned char)list->items[i].text.bytes[0] == byte)
            i++;
    }
    list->first[256] = i;
    list->only_byte = -1;
    if (n > 0) {
        unsigned char byte = (unsigned char)list->items[0].text.bytes[0];
        if (list->first[byte + 1] - list->first[byte] == n)
            list->only_byte = byte;
    }
}

void special_list_close(struct special_list *list)
{
    free(list->items);
    list->items = NULL;
}

/* The first of items[low .. high), which agree up to `at`, whose byte there is at least `byte`. A
 * token that ends at `at` sorts before all that continue. */
static uint32_t lower_bound(const struct special_list *list, uint32_t low, uint32_t high, size_t at,
                            unsigned byte)
{
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const struct byte_view *text = &list->items[middle].text;
        if (text->len == at || (unsigned char)text->bytes[at] < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

size_t special_list_skip(const struct special_list *list, const char *text, size_t len)
{
    if (list->n == 0)
        return len;
    if (list->only_byte >= 0) {
        const char *found = memchr(text, list->only_byte, len);
        return found ? (size_t)(found - text) : len;
    }
    size_t at = 0;
    while (at < len &&
           list->first[(unsigned char)text[at]] == list->first[(unsigned char)text[at] + 1])
        at++;
    return at;
}

const struct added_token *special_list_match(const struct special_list *list, const char *text,
                                             size_t len)
{
    unsigned char byte = (unsigned char)text[0];
    uint32_t low = list->first[byte], high = list->first[byte + 1];
    const struct added_token *best = NULL;
    for (size_t at = 1; low < high; at++) {
        if (list->items[low].text.len == at)
            best = &list->items[low];
        if (at == len)
            break;
        byte = (unsigned char)text[at];
        low = lower_bound(list, low, high, at, byte);
        high = lower_bound(list, low, high, at, byte + 1u);
    }
    return best;
}

/* The character that ends at `end` > 0, and where it begins; 0 for invalid bytes. */
static uint32_t char_before(const char *text, size_t end, size_t *begin)
{
    for (size_t width = 1; width <= 4 && width <= end; width++)
        if (utf8_valid_prefix(text + end - width, width) == width) {
            *begin = end - width;
            return utf8_decode(text + *begin, width);
        }
    *begin = end - 1;
    return 0;
}

static uint32_t char_at(const char *text, size_t len, size_t at, size_t *width)
{
    *width = utf8_valid_prefix(text + at, len - at);
    return *width ? utf8_decode(text + at, *width) : 0;
}

static bool is_in_word(const char *text, size_t len, size_t begin, size_t end)
{
    size_t other;
    return (begin > 0 && char_is_word(char_before(text, begin, &other))) ||
           (end < len && char_is_word(char_at(text, len, end, &other)));
}

int encode_between(struct encoder *e, const struct special_list *list, const char *text, size_t len,
                   enum text_place place, run_encoder *between)
{
    size_t run = 0; /* start of the text not encoded yet */
    for (size_t at = 0; (at += special_list_skip(list, text + at, len - at)) < len;) {
        const struct added_token *found = special_list_match(list, text + at, len - at);
        if (!found) {
            at++;
            continue;
        }
        size_t begin = at, end = at + found->text.len, other;
        at = end;
        if ((found->flags & ADDED_SPECIAL && !e->parse_special) ||
            (found->flags & ADDED_SINGLE_WORD && is_in_word(text, len, begin, end)))
            continue;
        if (found->flags & ADDED_LSTRIP)
            while (begin > run && char_is_space(char_before(text, begin, &other)))
                begin = other;
        if (found->flags & ADDED_RSTRIP)
            while (end < len && char_is_space(char_at(text, len, end, &other)))
                end += other;
        if (begin > run && between(e, text + run, begin - run, run ? PLACE_LATER : place) != 0)
            return -1;
        if (encoder_add(e, found->id) != 0)
            return -1;
        at = run = end;
    }
    return len > run ? between(e, text + run, len - run, run ? PLACE_LATER : place) : 0;
}
