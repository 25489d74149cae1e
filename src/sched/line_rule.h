#ifndef RADISH_SCHED_LINE_RULE_H
#define RADISH_SCHED_LINE_RULE_H

#include <stdbool.h>
#include <stdint.h>

/* Ends an answer where its text leaves a block of code: at the first text of a line that is
 * indented by fewer spaces and tabs than `min_indent`. The first line continues the prompt's last
 * line, so it is not checked; empty lines are not checked either. Works on bytes, so token
 * boundaries do not matter.
 *
 *   min_indent 4       "x = 1\n    y = 2\n\n  return"
 *                                            ▲ the answer ends here
 */
struct line_rule {
    bool at_indent; /* only white space has come since the last line feed */
    uint32_t indent;
};

/* Number of bytes to keep: `len`, or fewer if the answer ends. */
uint32_t line_rule_feed(struct line_rule *l, uint32_t min_indent, const char *bytes, uint32_t len);

#endif
