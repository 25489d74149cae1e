#ifndef RADISH_PROMPT_ANSWER_ANSWER_PARSER_H
#define RADISH_PROMPT_ANSWER_ANSWER_PARSER_H

#include "prompt/answer/answer_style.h"
#include "prompt/answer/tool_set.h"

/* Takes an answer's raw text as it arrives and reports thinking, content and calls as soon as they
 * are certain. The result does not depend on how the text is split into pieces.
 *
 *   <think>Hm.</think>Let me look.<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>
 *          [1]         [2]                   [3: f]                    [4: {"a": 1}][5]
 *
 *   1 PIECE_REASONING  2 PIECE_CONTENT  3 CALL_BEGIN  4 CALL_ARGUMENTS (in parts)  5 CALL_END
 *
 * Text that only looks like a call stays content: a call that is malformed, is cut off, or names a
 * function that the request does not have. Arguments that have been reported cannot be taken back:
 * if they turn out to be invalid JSON or end too early, CALL_BROKEN ends the call and repeats all
 * of it as it was written. Only markers, white space around them at the start and end of the
 * content, and white space between calls are dropped. */
enum answer_piece {
    PIECE_REASONING,
    PIECE_CONTENT,
    PIECE_CALL_BEGIN,     /* the function's name */
    PIECE_CALL_ARGUMENTS, /* more of a JSON object's text, unchanged if the model wrote JSON */
    PIECE_CALL_END,
    PIECE_CALL_BROKEN, /* the call as it was written, with the white space before it */
    PIECE_CALL_ID, /* before CALL_BEGIN: the model's id for the call, if its template repeats ids */
};

typedef void answer_piece_fn(void *context, enum answer_piece piece, const char *text, size_t len);

struct answer_parser;

struct answer_parser_options {
    const struct answer_style *style;
    const struct tool_set *tools; /* NULL: no search for calls */
    bool starts_in_thinking;      /* the prompt ends with the marker that starts it */
    bool continues;               /* the prompt ends in the middle of the content */
    answer_piece_fn *piece;
    void *context;
};

/* False: answers of that style need no parsing; all of it is content. */
bool answer_parser_is_needed(const struct answer_style *style, const struct tool_set *tools);
struct answer_parser *answer_parser_new(const struct answer_parser_options *o); /* NULL: memory */
void answer_parser_free(struct answer_parser *p);
void answer_parser_add(struct answer_parser *p, const char *text, size_t len);
/* No more text will come. */
void answer_parser_end(struct answer_parser *p);
bool answer_parser_failed(const struct answer_parser *p);      /* out of memory */
bool answer_parser_is_thinking(const struct answer_parser *p); /* reasoning comes next */

#endif
