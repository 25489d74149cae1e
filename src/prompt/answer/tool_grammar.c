/* The grammar of calls: their frame. The arguments are in tool_arguments.c. Built on a worker.
 *
 *   first ( name middle arguments )  [ between ( name middle arguments ) ]*  last
 *
 * In a grammar, a marker that is a control token is not text, however it is spelled. So every piece
 * goes through call_text_add. */
#include "prompt/answer/tool_grammar.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "prompt/answer/answer_internal.h"
#include "prompt/answer/tool_grammar_internal.h"

/* ---- the frame ---- */

/* The pieces between names and arguments, from the template or from the format. */
struct call_frame {
    const char *first, *middle, *between, *last; /* `between` NULL: one call */
};

/* The answer parser accepts any white space between the parts of calls, but nothing else. */
static bool shape_fits(const struct template_traits *t, const struct call_form *f)
{
    return t && t->has_call_shape && f->arguments == CALL_JSON &&
           equal_but_space(strbuf_str(&t->first), f->first) &&
           equal_but_space(strbuf_str(&t->middle), f->middle) &&
           equal_but_space(strbuf_str(&t->last), f->last) &&
           (!t->takes_several_calls || !f->between ||
            equal_but_space(strbuf_str(&t->between), f->between));
}

static struct call_frame frame_find(const struct template_traits *t, const struct call_form *f)
{
    struct call_frame frame = {f->first, f->middle, f->between, f->last};
    if (shape_fits(t, f))
        frame = (struct call_frame){strbuf_str(&t->first), strbuf_str(&t->middle),
                                    strbuf_str(&t->between), strbuf_str(&t->last)};
    if (!f->between || (t && t->takes_calls && !t->takes_several_calls))
        frame.between = NULL;
    return frame;
}

const char *tool_grammar_trigger(const struct answer_style *style,
                                 const struct template_traits *traits)
{
    return call_form_find(style->tools, traits)->trigger;
}

/* ---- texts ---- */

static grammar_expr literal_join(struct grammar_builder *b, grammar_expr before, const char *text,
                                 size_t len)
{
    grammar_expr parts[2] = {before, len ? grammar_literal(b, text, len) : grammar_empty(b)};
    return grammar_sequence(b, parts, 2);
}

/* A text with control tokens spelled out, which are matched as tokens. `t` NULL: none are. */
static grammar_expr marked_text_add(struct grammar_builder *b, const struct tokenizer *t,
                                    const char *text, size_t len)
{
    grammar_expr e = grammar_empty(b);
    size_t plain = 0; /* start of the text that is not in `e` yet */
    for (size_t i = 0; i < len;) {
        int32_t id = t ? tokenizer_special_at(t, text + i, len - i) : -1;
        if (id < 0 || !tokenizer_is_special(t, id)) {
            i++;
            continue;
        }
        size_t token_len;
        tokenizer_bytes(t, id, &token_len);
        grammar_expr parts[2] = {literal_join(b, e, text + plain, i - plain), grammar_token(b, id)};
        e = grammar_sequence(b, parts, 2);
        plain = i += token_len;
    }
    return literal_join(b, e, text + plain, len - plain);
}

grammar_expr call_text_add(const struct call_grammar *g, const char *text, size_t len)
{
    return marked_text_add(g->b, g->tokenizer, text, len);
}

grammar_expr call_string_add(const struct call_grammar *g, const char *text)
{
    return call_text_add(g, text, strlen(text));
}

grammar_expr answer_content_add(struct grammar_builder *b, const struct answer_style *style,
                                const struct tokenizer *t, grammar_expr text)
{
    static const char role[] = HARMONY_ROLE, channel[] = HARMONY_FINAL;
    if (style->tools == TOOLS_FUNCTIONARY)
        return grammar_sequence(
            b,
            (grammar_expr[]){grammar_literal(b, FUNCTIONARY_TEXT, strlen(FUNCTIONARY_TEXT)), text},
            2);
    if (style->tools != TOOLS_HARMONY)
        return text;
    grammar_expr parts[] = {grammar_repeat(b, marked_text_add(b, t, role, sizeof role - 1), 0, 1),
                            marked_text_add(b, t, channel, sizeof channel - 1), text};
    return grammar_sequence(b, parts, 3);
}

/* ---- calls ---- */

static grammar_expr number_add(struct grammar_builder *b)
{
    const struct code_range digit = {'0', '9'};
    grammar_expr parts[2] = {grammar_literal(b, ":", 1),
                             grammar_repeat(b, grammar_class(b, &digit, 1, false), 1, 3)};
    return grammar_sequence(b, parts, 2);
}

/* name middle arguments */
static grammar_expr call_add(struct call_grammar *g, const char *middle)
{
    grammar_expr parts[4] = {
        grammar_literal(g->b, g->tool->name, g->tool->name_len),
        g->form->is_numbered ? number_add(g->b) : grammar_empty(g->b),
        call_string_add(g, middle),
        call_arguments_add(g),
    };
    return parts[3] == GRAMMAR_NONE ? GRAMMAR_NONE : grammar_sequence(g->b, parts, 4);
}

/* A call of any of the functions, as a rule. */
static grammar_expr any_call_add(struct call_grammar *g, const struct tool_grammar_options *o,
                                 const char *middle)
{
    size_t n = o->only ? 1 : tool_set_size(o->tools);
    assert(n);
    grammar_expr *calls = calloc(n, sizeof *calls);
    if (!calls)
        return GRAMMAR_NONE;
    bool failed = false;
    for (size_t i = 0; i < n && !failed; i++) {
        g->tool = o->only ? o->only : tool_set_at(o->tools, i);
        calls[i] = call_add(g, middle);
        failed = calls[i] == GRAMMAR_NONE;
    }
    grammar_expr rule = GRAMMAR_NONE;
    if (!failed) {
        rule = grammar_rule(g->b);
        grammar_define(g->b, rule, grammar_choice(g->b, calls, n));
    }
    free(calls);
    return rule;
}

static grammar_expr calls_add(struct call_grammar *g, const struct tool_grammar_options *o)
{
    struct call_frame frame = frame_find(o->traits, g->form);
    grammar_expr call = any_call_add(g, o, frame.middle);
    if (call == GRAMMAR_NONE)
        return GRAMMAR_NONE;
    grammar_expr more = grammar_empty(g->b);
    if (o->parallel && frame.between) {
        grammar_expr next[2] = {call_string_add(g, frame.between), call};
        more = grammar_repeat(g->b, grammar_sequence(g->b, next, 2), 0, GRAMMAR_NO_MAX);
    }
    grammar_expr parts[4] = {call_string_add(g, frame.first), call, more,
                             call_string_add(g, frame.last)};
    return grammar_sequence(g->b, parts, 4);
}

grammar_expr tool_grammar_add(struct grammar_builder *b, const struct tool_grammar_options *o,
                              struct error *err)
{
    struct error why = {0};
    struct call_grammar g = {
        .b = b,
        .form = call_form_find(o->style->tools, o->traits),
        .tokenizer = o->tokenizer,
        .err = &why,
    };
    grammar_expr e = calls_add(&g, o);
    if (e != GRAMMAR_NONE)
        return e;
    if (why.code == ERROR_NONE)
        error_set(&why, ERROR_MEMORY, "no memory for a grammar of calls");
    if (err)
        *err = why;
    return GRAMMAR_NONE;
}
