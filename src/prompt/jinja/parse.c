/* Parses statements. Error messages use Jinja's wording, because people search for it. */
#include "prompt/jinja/parse.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "prompt/unicode/unicode.h"

static bool parse_body(struct parser *p, struct node *parent, struct nodes *out,
                       const char *const *ends);

void *parse_fail(struct parser *p, const struct lexeme *at, const char *format, ...)
{
    if (p->failed)
        return NULL;
    p->failed = true;
    char message[320];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    jinja_syntax_error(p->err, p->t->source, p->t->len, at->position, "%s", message);
    return NULL;
}

bool lexeme_is_name(const struct lexeme *lexeme, const char *name)
{
    return lexeme->type == LEXEME_NAME && lexeme->len == strlen(name) &&
           memcmp(lexeme->data, name, lexeme->len) == 0;
}

bool parse_skip(struct parser *p, enum lexeme_type type)
{
    if (p->failed || p->lexeme->type != type)
        return false;
    p->lexeme++;
    return true;
}

bool parse_skip_name(struct parser *p, const char *name)
{
    if (p->failed || !lexeme_is_name(p->lexeme, name))
        return false;
    p->lexeme++;
    return true;
}

/* Describes a lexeme for messages. */
static void describe(const struct lexeme *lexeme, char out[64])
{
    if (lexeme->type == LEXEME_NAME)
        snprintf(out, 64, "%.*s", lexeme->len < 60 ? (int)lexeme->len : 60, lexeme->data);
    else
        snprintf(out, 64, "%s", jinja_lexeme_name(lexeme->type));
}

const struct lexeme *parse_expect(struct parser *p, enum lexeme_type type)
{
    if (p->failed)
        return NULL;
    if (p->lexeme->type == type)
        return p->lexeme++;
    char got[64];
    describe(p->lexeme, got);
    if (p->lexeme->type == LEXEME_END)
        return parse_fail(p, p->lexeme, "unexpected end of template, expected '%s'.",
                          jinja_lexeme_name(type));
    return parse_fail(p, p->lexeme, "expected token '%s', got '%s'", jinja_lexeme_name(type), got);
}

bool parse_expect_name(struct parser *p, const char *name)
{
    if (parse_skip_name(p, name))
        return true;
    char got[64];
    describe(p->lexeme, got);
    return parse_fail(p, p->lexeme, "expected token '%s', got '%s'", name, got);
}

struct node *node_new(struct parser *p, enum node_kind kind, uint32_t position)
{
    struct node *node = p->failed ? NULL : arena_alloc(&p->t->arena, sizeof *node);
    if (!node)
        return parse_fail(p, p->lexeme, "no memory for the chat template");
    node->kind = kind;
    node->position = position;
    node->height = 1;
    return node;
}

bool node_over(struct parser *p, struct node *parent, const struct node *child)
{
    if (!child)
        return false;
    if (child->height >= JINJA_MAX_HEIGHT) {
        const struct lexeme at = {.position = parent->position};
        return parse_fail(p, &at, "the template is nested too deeply here");
    }
    if (parent->height <= child->height)
        parent->height = child->height + 1;
    return true;
}

bool nodes_add(struct parser *p, struct node *parent, struct nodes *nodes, struct node *child)
{
    if (!child || (parent && !node_over(p, parent, child)))
        return false;
    if (nodes->last)
        nodes->last->next = child;
    else
        nodes->first = child;
    nodes->last = child;
    nodes->count++;
    return true;
}

const struct text *parse_text(struct parser *p, const char *data, size_t len)
{
    struct text *text = p->failed ? NULL : arena_alloc(&p->t->arena, sizeof *text);
    if (!text)
        return parse_fail(p, p->lexeme, "no memory for the chat template");
    *text = (struct text){
        .data = data, .len = len, .n_chars = unicode_count(data, len), .source = RENDER_TEMPLATE};
    return text;
}

static bool can_assign(const struct node *target)
{
    if (target->kind == NODE_NAME || target->kind == NODE_NAMESPACE_REF)
        return true;
    bool ok = target->kind == NODE_TUPLE;
    for (const struct node *item = ok ? target->items.first : NULL; item && ok; item = item->next)
        ok = can_assign(item);
    return ok;
}

static struct node *parse_target(struct parser *p, bool with_namespace, const char *end_name)
{
    const struct lexeme *lexeme = p->lexeme;
    struct node *target = parse_tuple(p, TUPLE_TARGET | (with_namespace ? TUPLE_NAMESPACE : 0),
                                      end_name);
    if (!target || can_assign(target))
        return target;
    return parse_fail(p, lexeme, "can't assign to this: a variable's name is expected");
}

static struct node *parse_if(struct parser *p, struct node *node)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    static const char *const else_ends[] = {"endif", NULL};
    for (struct node *branch = node; !p->failed;) {
        branch->branch.test = parse_tuple(p, TUPLE_NO_CONDITION, NULL);
        if (!node_over(p, branch, branch->branch.test) ||
            !parse_body(p, branch, &branch->branch.body, ends))
            return NULL;
        const struct lexeme *end = p->lexeme++;
        if (branch != node && !nodes_add(p, node, &node->branch.elifs, branch))
            return NULL;
        if (lexeme_is_name(end, "else")) {
            if (!parse_body(p, node, &node->branch.otherwise, else_ends))
                return NULL;
            p->lexeme++;
        }
        if (!lexeme_is_name(end, "elif"))
            return node;
        if (!(branch = node_new(p, NODE_IF, end->position)))
            return NULL;
    }
    return NULL;
}

static struct node *parse_for(struct parser *p, struct node *node)
{
    static const char *const ends[] = {"endfor", "else", NULL}, *const else_ends[] = {"endfor",
                                                                                      NULL};
    node->loop.target = parse_target(p, false, "in");
    if (!node_over(p, node, node->loop.target))
        return NULL;
    if (!parse_expect_name(p, "in"))
        return NULL;
    node->loop.iterable = parse_tuple(p, TUPLE_NO_CONDITION, "recursive");
    if (!node_over(p, node, node->loop.iterable))
        return NULL;
    if (parse_skip_name(p, "if")) {
        node->loop.test = parse_expression(p, true);
        if (!node_over(p, node, node->loop.test))
            return NULL;
    }
    node->loop.recursive = parse_skip_name(p, "recursive");
    p->loops++;
    if (!parse_body(p, node, &node->loop.body, ends))
        return NULL;
    p->loops--;
    if (lexeme_is_name(p->lexeme++, "endfor"))
        return node;
    if (!parse_body(p, node, &node->loop.otherwise, else_ends))
        return NULL;
    p->lexeme++;
    return node;
}

static struct node *parse_set(struct parser *p, struct node *node)
{
    static const char *const ends[] = {"endset", NULL};
    node->set.target = parse_target(p, true, NULL);
    if (!node_over(p, node, node->set.target))
        return NULL;
    if (parse_skip(p, LEXEME_ASSIGN)) {
        node->set.value = parse_tuple(p, 0, NULL);
        return node_over(p, node, node->set.value) ? node : NULL;
    }
    node->kind = NODE_SET_BLOCK;
    while (parse_skip(p, LEXEME_PIPE)) {
        node->set.value = parse_filter(p, node->set.value);
        if (!node_over(p, node, node->set.value))
            return NULL;
    }
    if (!parse_body(p, node, &node->set.body, ends))
        return NULL;
    p->lexeme++;
    return node;
}

static bool parse_signature(struct parser *p, struct node *owner, struct signature_node *signature)
{
    if (!parse_expect(p, LEXEME_LPAREN))
        return false;
    while (p->lexeme->type != LEXEME_RPAREN) {
        if (signature->params.count && !parse_expect(p, LEXEME_COMMA))
            return false;
        const struct lexeme *lexeme = parse_expect(p, LEXEME_NAME);
        struct node *name = lexeme ? node_new(p, NODE_NAME, lexeme->position) : NULL;
        if (!name || !(name->name.text = parse_text(p, lexeme->data, lexeme->len)) ||
            !nodes_add(p, owner, &signature->params, name))
            return false;
        if (parse_skip(p, LEXEME_ASSIGN)) {
            if (!nodes_add(p, owner, &signature->defaults, parse_expression(p, true)))
                return false;
        } else if (signature->defaults.count) {
            return parse_fail(p, lexeme, "non-default argument follows default argument");
        }
    }
    return parse_expect(p, LEXEME_RPAREN) != NULL;
}

static struct node *parse_macro(struct parser *p, struct node *node)
{
    static const char *const macro_ends[] = {"endmacro", NULL}, *const call_ends[] = {"endcall",
                                                                                      NULL};
    struct signature_node *signature = arena_alloc(&p->t->arena, sizeof *signature);
    if (!signature)
        return parse_fail(p, p->lexeme, "no memory for the chat template");
    node->macro.signature = signature;
    bool is_call = node->kind == NODE_CALL_BLOCK;
    if (is_call) {
        signature->name = parse_text(p, "caller", 6);
        if (p->lexeme->type == LEXEME_LPAREN && !parse_signature(p, node, signature))
            return NULL;
        node->macro.call = parse_expression(p, true);
        if (!node_over(p, node, node->macro.call))
            return NULL;
        if (node->macro.call->kind != NODE_CALL)
            return parse_fail(p, p->lexeme, "expected call");
    } else {
        const struct lexeme *name = parse_expect(p, LEXEME_NAME);
        signature->name = name ? parse_text(p, name->data, name->len) : NULL;
        if (!parse_signature(p, node, signature))
            return NULL;
    }
    unsigned loops = p->loops;
    p->loops = 0; /* `break` cannot leave a macro */
    if (!parse_body(p, node, &signature->body, is_call ? call_ends : macro_ends))
        return NULL;
    p->loops = loops;
    p->lexeme++;
    return node;
}

static struct node *parse_filter_block(struct parser *p, struct node *node)
{
    static const char *const ends[] = {"endfilter", NULL};
    do {
        node->set.value = parse_filter(p, node->set.value);
        if (!node_over(p, node, node->set.value))
            return NULL;
    } while (parse_skip(p, LEXEME_PIPE));
    if (!parse_body(p, node, &node->set.body, ends))
        return NULL;
    p->lexeme++;
    return node;
}

static struct node *parse_with(struct parser *p, struct node *node)
{
    static const char *const ends[] = {"endwith", NULL};
    while (!p->failed && p->lexeme->type != LEXEME_BLOCK_END) {
        if (node->with.targets.count && !parse_expect(p, LEXEME_COMMA))
            return NULL;
        if (!nodes_add(p, node, &node->with.targets, parse_target(p, false, NULL)) ||
            !parse_expect(p, LEXEME_ASSIGN) ||
            !nodes_add(p, node, &node->with.values, parse_expression(p, true)))
            return NULL;
    }
    if (!parse_body(p, node, &node->with.body, ends))
        return NULL;
    p->lexeme++;
    return node;
}

static struct node *parse_print(struct parser *p, struct node *node)
{
    while (!p->failed && p->lexeme->type != LEXEME_BLOCK_END) {
        if (node->items.count && !parse_expect(p, LEXEME_COMMA))
            return NULL;
        if (!nodes_add(p, node, &node->items, parse_expression(p, true)))
            return NULL;
    }
    return p->failed ? NULL : node;
}

static struct node *parse_generation(struct parser *p, struct node *node)
{
    static const char *const ends[] = {"endgeneration", NULL};
    unsigned loops = p->loops;
    p->loops = 0;
    if (!parse_body(p, node, &node->set.body, ends))
        return NULL;
    p->loops = loops;
    p->lexeme++;
    return node;
}

static struct node *parse_jump(struct parser *p, struct node *node)
{
    const struct lexeme at = {.position = node->position};
    if (p->loops)
        return node;
    return parse_fail(p, &at, "'%s' outside loop", node->kind == NODE_BREAK ? "break" : "continue");
}

static struct node *parse_statement(struct parser *p, const char *const *ends)
{
    static const struct {
        const char *tag;
        enum node_kind kind;
        struct node *(*parse)(struct parser *p, struct node *node);
    } statements[] = {
        {"if", NODE_IF, parse_if},
        {"for", NODE_FOR, parse_for},
        {"set", NODE_SET, parse_set},
        {"macro", NODE_MACRO, parse_macro},
        {"call", NODE_CALL_BLOCK, parse_macro},
        {"filter", NODE_FILTER_BLOCK, parse_filter_block},
        {"with", NODE_WITH, parse_with},
        {"print", NODE_PRINT, parse_print},
        {"generation", NODE_GENERATION, parse_generation},
        {"break", NODE_BREAK, parse_jump},
        {"continue", NODE_CONTINUE, parse_jump},
    };
    static const char *const refused[] = {"include", "import", "from",
                                          "extends", "block",  "autoescape"};
    const struct lexeme *tag = p->lexeme;
    if (tag->type != LEXEME_NAME)
        return parse_fail(p, tag, "tag name expected");
    for (size_t i = 0; i < sizeof statements / sizeof statements[0]; i++)
        if (lexeme_is_name(tag, statements[i].tag)) {
            p->lexeme++;
            struct node *node = node_new(p, statements[i].kind, tag->position);
            return node ? statements[i].parse(p, node) : NULL;
        }
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        if (lexeme_is_name(tag, refused[i]))
            return parse_fail(p, tag, "{%% %s %%} is not supported: a chat template is one file",
                              refused[i]);
    char name[64];
    describe(tag, name);
    if (!ends)
        return parse_fail(p, tag, "Encountered unknown tag '%s'.", name);
    char wanted[96];
    int n = snprintf(wanted, sizeof wanted, "'%s'", ends[0]);
    for (size_t i = 1; ends[i]; i++)
        n += snprintf(wanted + n, sizeof wanted - (size_t)n, " or '%s'", ends[i]);
    return parse_fail(p, tag,
                      "Encountered unknown tag '%s'. Jinja was looking for the following tags: %s.",
                      name, wanted);
}

static struct node *parse_print_tag(struct parser *p)
{
    struct node *node = node_new(p, NODE_PRINT, p->lexeme->position);
    p->lexeme++;
    if (!node || !nodes_add(p, node, &node->items, parse_tuple(p, 0, NULL)))
        return NULL;
    return parse_expect(p, LEXEME_PRINT_END) ? node : NULL;
}

static struct node *parse_data(struct parser *p)
{
    struct node *node = node_new(p, NODE_DATA, p->lexeme->position);
    if (!node)
        return NULL;
    node->constant = value_text(parse_text(p, p->lexeme->data, p->lexeme->len));
    p->lexeme++;
    return node->constant.text ? node : NULL;
}

/* Parses text, prints and blocks up to a block whose tag is one of `ends` (which is then the
 * current lexeme), or to the end of the template without `ends`. */
static bool parse_statements(struct parser *p, struct node *parent, struct nodes *out,
                             const char *const *ends)
{
    while (!p->failed && p->lexeme->type != LEXEME_END) {
        struct node *node = NULL;
        if (p->lexeme->type == LEXEME_DATA) {
            node = parse_data(p);
        } else if (p->lexeme->type == LEXEME_PRINT_BEGIN) {
            node = parse_print_tag(p);
        } else if (parse_skip(p, LEXEME_BLOCK_BEGIN)) {
            for (size_t i = 0; ends && ends[i]; i++)
                if (lexeme_is_name(p->lexeme, ends[i]))
                    return true;
            node = parse_statement(p, ends);
            if (node && !parse_expect(p, LEXEME_BLOCK_END))
                return false;
        } else {
            parse_fail(p, p->lexeme, "unexpected '%s'", jinja_lexeme_name(p->lexeme->type));
        }
        if (!nodes_add(p, parent, out, node))
            return false;
    }
    if (ends && !p->failed)
        parse_fail(p, p->lexeme, "Unexpected end of template. '%s' is missing.",
                   ends[1] && ends[2] ? ends[2] : ends[0]);
    return !p->failed;
}

static bool parse_body(struct parser *p, struct node *parent, struct nodes *out,
                       const char *const *ends)
{
    const unsigned calls = 3; /* from one body to a nested one */
    p->depth += calls;
    if (p->failed || p->depth > JINJA_MAX_PARSE_DEPTH)
        return parse_fail(p, p->lexeme, "the template is nested too deeply here");
    parse_skip(p, LEXEME_COLON);
    bool ok = parse_expect(p, LEXEME_BLOCK_END) && parse_statements(p, parent, out, ends);
    p->depth -= calls;
    return ok;
}

int jinja_parse(struct chat_template *t, const struct lexeme *lexemes, struct error *err)
{
    struct parser p = {.t = t, .lexeme = lexemes, .err = err};
    return parse_statements(&p, NULL, &t->body, NULL) ? 0 : -1;
}
