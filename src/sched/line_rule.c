/* Ends an answer at a line with too little indentation; see line_rule.h. Owned by one sequence, and
 * kept when that sequence is preempted. */
#include "sched/line_rule.h"

uint32_t line_rule_feed(struct line_rule *l, uint32_t min_indent, const char *bytes, uint32_t len)
{
    for (uint32_t i = 0; i < len; i++) {
        if (bytes[i] == '\n') {
            *l = (struct line_rule){.at_indent = true};
        } else if (l->at_indent && (bytes[i] == ' ' || bytes[i] == '\t')) {
            l->indent++;
        } else {
            if (l->at_indent && l->indent < min_indent)
                return i;
            l->at_indent = false;
        }
    }
    return len;
}
