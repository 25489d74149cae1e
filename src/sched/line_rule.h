#ifndef RADISH_SCHED_LINE_RULE_H
#define RADISH_SCHED_LINE_RULE_H

#include <stdbool.h>
#include <stdint.h>

/* Ends an answer where its text leaves a block of code: at the first text of a line that is
 * indented by fewer spaces and tabs than `min_indent`. The first line goes on with the prompt's,
 * so it is not looked at, and neither are empty lines. Works on bytes, so where tokens part changes
 * nothing.
 *
 *   min_indent 4       "x = 1\n    y = 2\n\n  return"
 *                                            ▲ the answer ends here
 */
struct line_rule {
    bool at_indent; /* only white space has come since the last line feed */
    uint32_t indent;
};

/* How many of the bytes may stay: `len`, or fewer when the answer ends. */
uint32_t line_rule_feed(struct line_rule *l, uint32_t min_indent, const char *bytes, uint32_t len);

#endif
