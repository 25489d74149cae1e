/* Lines that leave a block of code end an answer, wherever tokens are split. */
#include "sched/line_rule.h"

#include <string.h>

#include "test.h"

/* How many bytes stay, fed in pieces of `step` bytes. */
static uint32_t kept(const char *text, uint32_t min_indent, uint32_t step)
{
    struct line_rule l = {0};
    uint32_t len = (uint32_t)strlen(text);
    for (uint32_t at = 0; at < len; at += step) {
        uint32_t n = len - at < step ? len - at : step;
        uint32_t got = line_rule_feed(&l, min_indent, text + at, n);
        if (got < n)
            return at + got;
    }
    return len;
}

TEST(line_rule, ends_at_the_first_text_that_is_indented_too_little)
{
    static const struct {
        const char *text;
        uint32_t min_indent, kept;
    } cases[] = {
        {"x = 1\n    y\n\n  return", 4, 15}, /* the empty line is skipped */
        {"x\n    y\n    z", 4, 13},
        {"x\ny", 1, 2},
        {"x\ny", 0, 3},
        {"x\n\ty\n z", 1, 7},
        {"x\n", 4, 2},
        {"\n}", 1, 1},
        {"\n \t }", 3, 5},
        {"\n \t }", 4, 4},
        {"", 4, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (uint32_t step = 1; step < 20; step++)
            CHECK_INT(kept(cases[i].text, cases[i].min_indent, step), cases[i].kept);
}
