/* General categories of Unicode, from the tables that the tokenizers' scanners use. */
#include "prompt/regex_unicode.h"

#include <string.h>

struct code_range {
    uint32_t first, last;
};

#include "prompt/tokenizer_pre_tables.h"

bool regex_unicode_property(struct arena *arena, const char *name, struct code_set *out)
{
    static const struct {
        const char *name, *long_name;
        const struct code_range *ranges;
        size_t n;
    } properties[] = {
        {"L", "Letter", letter_ranges, sizeof letter_ranges / sizeof *letter_ranges},
        {"N", "Number", number_ranges, sizeof number_ranges / sizeof *number_ranges},
    };
    for (size_t i = 0; i < sizeof properties / sizeof *properties; i++) {
        if (strcmp(name, properties[i].name) != 0 && strcmp(name, properties[i].long_name) != 0)
            continue;
        struct grammar_range *ranges = arena_alloc_array(arena, properties[i].n, sizeof *ranges);
        if (!ranges)
            return false;
        for (size_t j = 0; j < properties[i].n; j++)
            ranges[j] = (struct grammar_range){properties[i].ranges[j].first,
                                               properties[i].ranges[j].last};
        *out = code_set_new(arena, ranges, properties[i].n, false);
        return true;
    }
    return false;
}
