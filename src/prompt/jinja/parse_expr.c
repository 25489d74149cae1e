/* Expressions, with Jinja's precedences: or, and, not, comparisons, + -, ~, * / // %, **
 * (left-associative here), unary minus, then filters and tests, which bind tightest. */
#include "prompt/jinja/parse.h"

#include <string.h>

enum precedence {
    PREC_OR = 1,
    PREC_AND,
    PREC_NOT,
    PREC_COMPARE,
    PREC_ADD,
    PREC_CONCAT,
    PREC_MUL,
    PREC_POW,
};

static struct node *parse_binary(struct parser *p, int lowest);

static bool enter(struct parser *p)
{
    if (p->failed || ++p->depth > JINJA_MAX_PARSE_DEPTH) {
        parse_fail(p, p->lexeme, "the template is nested too deeply here");
        return false;
    }
    return true;
}

static struct node *parse_list(struct parser *p)
{
    struct node *node = node_new(p, NODE_LIST, p->lexeme->position);
    parse_expect(p, LEXEME_LBRACKET);
    while (!p->failed && p->lexeme->type != LEXEME_RBRACKET) {
        if (node->items.count && !parse_expect(p, LEXEME_COMMA))
            return NULL;
        if (p->lexeme->type == LEXEME_RBRACKET)
            break;
        if (!nodes_add(p, node, &node->items, parse_expression(p, true)))
            return NULL;
    }
    return parse_expect(p, LEXEME_RBRACKET) ? node : NULL;
}

static struct node *parse_dict(struct parser *p)
{
    struct node *node = node_new(p, NODE_DICT, p->lexeme->position);
    parse_expect(p, LEXEME_LBRACE);
    while (!p->failed && p->lexeme->type != LEXEME_RBRACE) {
        if (node->items.count && !parse_expect(p, LEXEME_COMMA))
            return NULL;
        if (p->lexeme->type == LEXEME_RBRACE)
            break;
        if (!nodes_add(p, node, &node->items, parse_expression(p, true)) ||
            !parse_expect(p, LEXEME_COLON) ||
            !nodes_add(p, node, &node->items, parse_expression(p, true)))
            return NULL;
    }
    return parse_expect(p, LEXEME_RBRACE) ? node : NULL;
}

static struct node *parse_name(struct parser *p, bool with_namespace)
{
    const struct lexeme *lexeme = p->lexeme++;
    static const struct {
        const char *name;
        struct value value;
    } constants[] = {
        {"true", {.type = V_BOOL, .boolean = true}},
        {"True", {.type = V_BOOL, .boolean = true}},
        {"false", {.type = V_BOOL, .boolean = false}},
        {"False", {.type = V_BOOL, .boolean = false}},
        {"none", {.type = V_NONE}},
        {"None", {.type = V_NONE}},
    };
    for (size_t i = 0; i < sizeof constants / sizeof constants[0]; i++)
        if (lexeme_is_name(lexeme, constants[i].name)) {
            struct node *node = node_new(p, NODE_CONST, lexeme->position);
            if (node)
                node->constant = constants[i].value;
            return node;
        }
    struct node *name = node_new(p, NODE_NAME, lexeme->position);
    if (!name || !(name->name.text = parse_text(p, lexeme->data, lexeme->len)))
        return NULL;
    if (!with_namespace || !parse_skip(p, LEXEME_DOT))
        return name;
    struct node *node = node_new(p, NODE_NAMESPACE_REF, lexeme->position);
    const struct lexeme *attribute = parse_expect(p, LEXEME_NAME);
    if (!node || !attribute || !node_over(p, node, name))
        return NULL;
    node->attribute.object = name;
    node->attribute.name = parse_text(p, attribute->data, attribute->len);
    return node->attribute.name ? node : NULL;
}

/* Adjacent strings are concatenated. */
static struct node *parse_strings(struct parser *p)
{
    const struct lexeme *first = p->lexeme;
    size_t len = 0;
    while (p->lexeme->type == LEXEME_STRING)
        len += p->lexeme++->len;
    struct node *node = node_new(p, NODE_CONST, first->position);
    if (!node)
        return NULL;
    const char *data = first->data;
    if (p->lexeme - first > 1) {
        char *joined = arena_alloc(&p->t->arena, len + 1);
        if (!joined)
            return parse_fail(p, first, "no memory for the chat template");
        data = joined;
        for (const struct lexeme *lexeme = first; lexeme < p->lexeme; lexeme++) {
            memcpy(joined, lexeme->data, lexeme->len);
            joined += lexeme->len;
        }
    }
    node->constant = value_text(parse_text(p, data, len));
    return node->constant.text ? node : NULL;
}

struct node *parse_primary(struct parser *p, bool with_namespace)
{
    const struct lexeme *lexeme = p->lexeme;
    struct node *node;
    switch (lexeme->type) {
    case LEXEME_NAME: return parse_name(p, with_namespace);
    case LEXEME_STRING: return parse_strings(p);
    case LEXEME_INT:
    case LEXEME_FLOAT:
        p->lexeme++;
        if ((node = node_new(p, NODE_CONST, lexeme->position)))
            node->constant = lexeme->type == LEXEME_INT ? value_int(lexeme->integer)
                                                        : value_real(lexeme->real);
        return node;
    case LEXEME_LPAREN:
        p->lexeme++;
        node = parse_tuple(p, TUPLE_PARENS, NULL);
        return node && parse_expect(p, LEXEME_RPAREN) ? node : NULL;
    case LEXEME_LBRACKET: return parse_list(p);
    case LEXEME_LBRACE: return parse_dict(p);
    default: return parse_fail(p, lexeme, "unexpected '%s'", jinja_lexeme_name(lexeme->type));
    }
}

static bool is_tuple_end(const struct parser *p, const char *end_name)
{
    return p->lexeme->type == LEXEME_PRINT_END || p->lexeme->type == LEXEME_BLOCK_END ||
           p->lexeme->type == LEXEME_RPAREN || (end_name && lexeme_is_name(p->lexeme, end_name));
}

struct node *parse_tuple(struct parser *p, int flags, const char *end_name)
{
    struct node *node = enter(p) ? node_new(p, NODE_TUPLE, p->lexeme->position) : NULL;
    bool is_tuple = false;
    while (node) {
        if (node->items.count && !parse_expect(p, LEXEME_COMMA))
            return NULL;
        if (is_tuple_end(p, end_name))
            break;
        struct node *item = flags & TUPLE_TARGET
                                ? parse_primary(p, flags & TUPLE_NAMESPACE)
                                : parse_expression(p, !(flags & TUPLE_NO_CONDITION));
        if (!nodes_add(p, node, &node->items, item))
            return NULL;
        if (p->lexeme->type != LEXEME_COMMA)
            break;
        is_tuple = true;
    }
    p->depth--;
    if (!node || is_tuple)
        return node;
    if (node->items.count)
        return node->items.first;
    if (!(flags & TUPLE_PARENS))
        return parse_fail(p, p->lexeme, "Expected an expression, got '%s'",
                          jinja_lexeme_name(p->lexeme->type));
    return node;
}

static struct node *parse_slice_bound(struct parser *p, struct node *slice, int which)
{
    enum lexeme_type type = p->lexeme->type;
    if (type == LEXEME_COLON || type == LEXEME_RBRACKET || type == LEXEME_COMMA)
        return slice;
    slice->slice.bounds[which] = parse_expression(p, true);
    return node_over(p, slice, slice->slice.bounds[which]) ? slice : NULL;
}

static struct node *parse_subscript(struct parser *p)
{
    struct node *first = NULL;
    if (p->lexeme->type != LEXEME_COLON) {
        first = parse_expression(p, true);
        if (!first || p->lexeme->type != LEXEME_COLON)
            return first;
    }
    struct node *slice = node_new(p, NODE_SLICE, p->lexeme->position);
    if (!slice || (first && !node_over(p, slice, first)))
        return NULL;
    slice->slice.bounds[0] = first;
    p->lexeme++;
    if (!parse_slice_bound(p, slice, 1))
        return NULL;
    if (parse_skip(p, LEXEME_COLON))
        return parse_slice_bound(p, slice, 2);
    return slice;
}

static struct node *parse_brackets(struct parser *p, struct node *object, uint32_t position)
{
    struct node *node = node_new(p, NODE_ITEM, position);
    struct node *tuple = node_new(p, NODE_TUPLE, position);
    if (!node || !tuple)
        return NULL;
    while (!p->failed && p->lexeme->type != LEXEME_RBRACKET) {
        if (tuple->items.count && !parse_expect(p, LEXEME_COMMA))
            return NULL;
        struct node *key = parse_subscript(p);
        if (key && key->kind == NODE_SLICE && tuple->items.count)
            return parse_fail(p, p->lexeme, "a slice cannot stand beside another subscript");
        if (!nodes_add(p, tuple, &tuple->items, key))
            return NULL;
    }
    if (!parse_expect(p, LEXEME_RBRACKET))
        return NULL;
    node->item.object = object;
    node->item.key = tuple->items.count == 1 ? tuple->items.first : tuple;
    if (tuple->items.count > 1 && tuple->items.first->kind == NODE_SLICE)
        return parse_fail(p, p->lexeme, "a slice cannot stand beside another subscript");
    return node_over(p, node, object) && node_over(p, node, node->item.key) ? node : NULL;
}

static struct node *parse_dot(struct parser *p, struct node *object, uint32_t position)
{
    const struct lexeme *lexeme = p->lexeme;
    if (lexeme->type != LEXEME_NAME && lexeme->type != LEXEME_INT)
        return parse_fail(p, lexeme, "expected name or number");
    struct node *node = node_new(p, lexeme->type == LEXEME_NAME ? NODE_ATTRIBUTE : NODE_ITEM,
                                 position);
    if (!node || !node_over(p, node, object))
        return NULL;
    p->lexeme++;
    if (lexeme->type == LEXEME_NAME) {
        node->attribute.object = object;
        node->attribute.name = parse_text(p, lexeme->data, lexeme->len);
        return node->attribute.name ? node : NULL;
    }
    struct node *key = node_new(p, NODE_CONST, lexeme->position);
    if (!key)
        return NULL;
    key->constant = value_int(lexeme->integer);
    node->item.object = object;
    node->item.key = key;
    return node;
}

static bool parse_keyword_arg(struct parser *p, struct node *call)
{
    struct node *name = node_new(p, NODE_CONST, p->lexeme->position);
    if (!name)
        return false;
    name->constant = value_text(parse_text(p, p->lexeme->data, p->lexeme->len));
    p->lexeme += 2;
    return name->constant.text && nodes_add(p, call, &call->call.args.keywords, name) &&
           nodes_add(p, call, &call->call.args.keywords, parse_expression(p, true));
}

bool parse_call_args(struct parser *p, struct node *call)
{
    struct call_args *args = &call->call.args;
    const struct lexeme *open = p->lexeme;
    if (!parse_expect(p, LEXEME_LPAREN))
        return false;
    for (bool comma = false; p->lexeme->type != LEXEME_RPAREN; comma = true) {
        if (comma && !parse_expect(p, LEXEME_COMMA))
            return false;
        if (p->lexeme->type == LEXEME_RPAREN)
            break;
        bool ok = true;
        if (p->lexeme->type == LEXEME_MUL || p->lexeme->type == LEXEME_POW) {
            struct node **star = p->lexeme->type == LEXEME_MUL ? &args->star : &args->star_star;
            ok = !args->star_star && !*star;
            p->lexeme++;
            *star = parse_expression(p, true);
            if (!node_over(p, call, *star))
                return false;
        } else if (p->lexeme->type == LEXEME_NAME && p->lexeme[1].type == LEXEME_ASSIGN) {
            ok = !args->star_star;
            if (!parse_keyword_arg(p, call))
                return false;
        } else {
            ok = !args->star && !args->star_star && !args->keywords.count;
            if (!nodes_add(p, call, &args->positional, parse_expression(p, true)))
                return false;
        }
        if (!ok)
            return parse_fail(p, open, "invalid syntax for function call expression");
    }
    return parse_expect(p, LEXEME_RPAREN) != NULL;
}

static struct node *parse_call(struct parser *p, struct node *callee)
{
    struct node *node = node_new(p, NODE_CALL, p->lexeme->position);
    if (!node || !node_over(p, node, callee))
        return NULL;
    node->call.callee = callee;
    return parse_call_args(p, node) ? node : NULL;
}

static struct node *parse_postfix(struct parser *p, struct node *node)
{
    while (node) {
        uint32_t position = p->lexeme->position;
        if (parse_skip(p, LEXEME_DOT))
            node = parse_dot(p, node, position);
        else if (parse_skip(p, LEXEME_LBRACKET))
            node = parse_brackets(p, node, position);
        else if (p->lexeme->type == LEXEME_LPAREN)
            node = parse_call(p, node);
        else
            break;
    }
    return node;
}

/* The name of a filter or test, which may contain dots. */
static const struct text *parse_dotted_name(struct parser *p)
{
    const struct lexeme *first = parse_expect(p, LEXEME_NAME), *last = first;
    while (last && parse_skip(p, LEXEME_DOT))
        last = parse_expect(p, LEXEME_NAME);
    return last ? parse_text(p, first->data, (size_t)(last->data + last->len - first->data)) : NULL;
}

struct node *parse_filter(struct parser *p, struct node *inner)
{
    struct node *node = node_new(p, NODE_FILTER, p->lexeme->position);
    if (!node || (inner && !node_over(p, node, inner)))
        return NULL;
    node->call.callee = inner;
    if (!(node->call.name = parse_dotted_name(p)))
        return NULL;
    node->call.filter = filter_find(node->call.name->data, node->call.name->len);
    if (p->lexeme->type == LEXEME_LPAREN && !parse_call_args(p, node))
        return NULL;
    return node;
}

static bool parse_test_args(struct parser *p, struct node *test)
{
    const struct lexeme *lexeme = p->lexeme;
    switch (lexeme->type) {
    case LEXEME_LPAREN: return parse_call_args(p, test);
    case LEXEME_NAME:
        if (lexeme_is_name(lexeme, "else") || lexeme_is_name(lexeme, "or") ||
            lexeme_is_name(lexeme, "and"))
            return true;
        if (lexeme_is_name(lexeme, "is"))
            return parse_fail(p, lexeme, "You cannot chain multiple tests with is");
        break;
    case LEXEME_STRING:
    case LEXEME_INT:
    case LEXEME_FLOAT:
    case LEXEME_LBRACKET:
    case LEXEME_LBRACE: break;
    default: return true;
    }
    struct node *arg = parse_postfix(p, parse_primary(p, false));
    return nodes_add(p, test, &test->call.args.positional, arg);
}

static struct node *parse_test(struct parser *p, struct node *operand)
{
    const struct lexeme *is = p->lexeme++;
    bool negated = parse_skip_name(p, "not");
    struct node *node = node_new(p, NODE_TEST, is->position);
    if (!node || !node_over(p, node, operand))
        return NULL;
    node->call.callee = operand;
    if (!(node->call.name = parse_dotted_name(p)))
        return NULL;
    node->call.test = test_find(node->call.name->data, node->call.name->len);
    if (!parse_test_args(p, node))
        return NULL;
    if (!negated)
        return node;
    struct node *opposite = node_new(p, NODE_NOT, is->position);
    if (!opposite || !node_over(p, opposite, node))
        return NULL;
    opposite->binary.left = node;
    return opposite;
}

static struct node *parse_unary(struct parser *p, bool with_filter)
{
    struct node *node;
    enum lexeme_type type = p->lexeme->type;
    if (!enter(p))
        return NULL;
    if (type == LEXEME_SUB || type == LEXEME_ADD) {
        node = node_new(p, type == LEXEME_SUB ? NODE_NEGATE : NODE_PLUS, p->lexeme->position);
        p->lexeme++;
        struct node *operand = parse_unary(p, false);
        if (!node || !node_over(p, node, operand))
            return NULL;
        node->binary.left = operand;
    } else {
        node = parse_primary(p, false);
    }
    node = parse_postfix(p, node);
    while (node && with_filter) {
        if (parse_skip(p, LEXEME_PIPE))
            node = parse_filter(p, node);
        else if (lexeme_is_name(p->lexeme, "is"))
            node = parse_test(p, node);
        else if (p->lexeme->type == LEXEME_LPAREN)
            node = parse_call(p, node);
        else
            break;
    }
    p->depth--;
    return node;
}

static bool compare_op(struct parser *p, uint8_t *op)
{
    const struct lexeme *lexeme = p->lexeme;
    switch (lexeme->type) {
    case LEXEME_EQ: *op = CMP_EQ; break;
    case LEXEME_NE: *op = CMP_NE; break;
    case LEXEME_LT: *op = CMP_LT; break;
    case LEXEME_LE: *op = CMP_LE; break;
    case LEXEME_GT: *op = CMP_GT; break;
    case LEXEME_GE: *op = CMP_GE; break;
    default:
        if (lexeme_is_name(lexeme, "in")) {
            *op = CMP_IN;
            break;
        }
        if (!lexeme_is_name(lexeme, "not") || !lexeme_is_name(lexeme + 1, "in"))
            return false;
        *op = CMP_NOT_IN;
    }
    return true;
}

static struct node *parse_compare(struct parser *p, struct node *first)
{
    struct node *node = node_new(p, NODE_COMPARE, p->lexeme->position);
    if (!node || !node_over(p, node, first))
        return NULL;
    node->compare.first = first;
    uint8_t op;
    while (compare_op(p, &op)) {
        p->lexeme += op == CMP_NOT_IN ? 2 : 1;
        struct node *right = parse_binary(p, PREC_ADD);
        struct node *operand = right ? node_new(p, NODE_COMPARE, right->position) : NULL;
        if (!operand || !node_over(p, operand, right))
            return NULL;
        operand->op = op;
        operand->compare.first = right;
        if (!nodes_add(p, node, &node->compare.rest, operand))
            return NULL;
    }
    return node;
}

/* The operator at the current lexeme: its precedence, or 0 if it is not an operator. */
static int infix_at(const struct parser *p, enum node_kind *kind, uint8_t *op)
{
    *kind = NODE_BINARY;
    switch (p->lexeme->type) {
    case LEXEME_ADD: *op = OP_ADD; return PREC_ADD;
    case LEXEME_SUB: *op = OP_SUB; return PREC_ADD;
    case LEXEME_MUL: *op = OP_MUL; return PREC_MUL;
    case LEXEME_DIV: *op = OP_DIV; return PREC_MUL;
    case LEXEME_FLOORDIV: *op = OP_FLOORDIV; return PREC_MUL;
    case LEXEME_MOD: *op = OP_MOD; return PREC_MUL;
    case LEXEME_POW: *op = OP_POW; return PREC_POW;
    case LEXEME_TILDE: *kind = NODE_CONCAT; return PREC_CONCAT;
    case LEXEME_NAME:
        *kind = lexeme_is_name(p->lexeme, "or") ? NODE_OR : NODE_AND;
        return lexeme_is_name(p->lexeme, "or")    ? PREC_OR
               : lexeme_is_name(p->lexeme, "and") ? PREC_AND
                                                  : 0;
    default: return 0;
    }
}

static struct node *parse_concat(struct parser *p, struct node *first)
{
    struct node *node = node_new(p, NODE_CONCAT, p->lexeme->position);
    if (!node || !nodes_add(p, node, &node->items, first))
        return NULL;
    while (parse_skip(p, LEXEME_TILDE))
        if (!nodes_add(p, node, &node->items, parse_binary(p, PREC_MUL)))
            return NULL;
    return node;
}

static struct node *parse_infix(struct parser *p, struct node *left, enum node_kind kind,
                                uint8_t op, int precedence)
{
    struct node *node = node_new(p, kind, p->lexeme->position);
    p->lexeme++;
    struct node *right = parse_binary(p, precedence + 1);
    if (!node || !node_over(p, node, left) || !node_over(p, node, right))
        return NULL;
    node->op = op;
    node->binary.left = left;
    node->binary.right = right;
    return node;
}

static struct node *parse_binary(struct parser *p, int lowest)
{
    if (!enter(p))
        return NULL;
    struct node *left;
    if (lowest <= PREC_NOT && lexeme_is_name(p->lexeme, "not")) {
        left = node_new(p, NODE_NOT, p->lexeme->position);
        p->lexeme++;
        struct node *operand = parse_binary(p, PREC_NOT);
        if (!left || !node_over(p, left, operand))
            return NULL;
        left->binary.left = operand;
    } else {
        left = parse_unary(p, true);
    }
    while (left) {
        enum node_kind kind;
        uint8_t op = 0;
        int precedence = compare_op(p, &op) ? PREC_COMPARE : infix_at(p, &kind, &op);
        if (precedence == 0 || precedence < lowest)
            break;
        if (precedence == PREC_COMPARE)
            left = parse_compare(p, left);
        else if (precedence == PREC_CONCAT)
            left = parse_concat(p, left);
        else
            left = parse_infix(p, left, kind, op, precedence);
    }
    p->depth--;
    return left;
}

/* Parses `then` if test else otherwise, starting at the `if`. */
static struct node *parse_condition(struct parser *p, struct node *then)
{
    struct node *node = node_new(p, NODE_CONDITION, then->position);
    if (!node || !enter(p))
        return NULL;
    node->condition.then = then;
    node->condition.test = parse_binary(p, PREC_OR);
    if (parse_skip_name(p, "else")) {
        node->condition.otherwise = parse_expression(p, true);
        if (!node_over(p, node, node->condition.otherwise))
            return NULL;
    }
    p->depth--;
    return node_over(p, node, then) && node_over(p, node, node->condition.test) ? node : NULL;
}

struct node *parse_expression(struct parser *p, bool with_condition)
{
    struct node *node = parse_binary(p, PREC_OR);
    while (node && with_condition && parse_skip_name(p, "if"))
        node = parse_condition(p, node);
    return node;
}
