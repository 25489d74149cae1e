/* Expressions, with Jinja's precedences: or, and, not, comparisons, + -, ~, * / // %, ** (which
 * groups from the left here), unary minus, then filters and tests, which bind tightest. */
#include "prompt/jinja_parse.h"

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
        parse_fail(p, p->token, "the template is nested too deeply here");
        return false;
    }
    return true;
}

static struct node *parse_list(struct parser *p)
{
    struct node *node = node_new(p, NODE_LIST, p->token->position);
    parse_expect(p, TOKEN_LBRACKET);
    while (!p->failed && p->token->type != TOKEN_RBRACKET) {
        if (node->items.count && !parse_expect(p, TOKEN_COMMA))
            return NULL;
        if (p->token->type == TOKEN_RBRACKET)
            break;
        if (!nodes_add(p, node, &node->items, parse_expression(p, true)))
            return NULL;
    }
    return parse_expect(p, TOKEN_RBRACKET) ? node : NULL;
}

static struct node *parse_dict(struct parser *p)
{
    struct node *node = node_new(p, NODE_DICT, p->token->position);
    parse_expect(p, TOKEN_LBRACE);
    while (!p->failed && p->token->type != TOKEN_RBRACE) {
        if (node->items.count && !parse_expect(p, TOKEN_COMMA))
            return NULL;
        if (p->token->type == TOKEN_RBRACE)
            break;
        if (!nodes_add(p, node, &node->items, parse_expression(p, true)) ||
            !parse_expect(p, TOKEN_COLON) ||
            !nodes_add(p, node, &node->items, parse_expression(p, true)))
            return NULL;
    }
    return parse_expect(p, TOKEN_RBRACE) ? node : NULL;
}

static struct node *parse_name(struct parser *p, bool with_namespace)
{
    const struct token *token = p->token++;
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
        if (token_is_name(token, constants[i].name)) {
            struct node *node = node_new(p, NODE_CONST, token->position);
            if (node)
                node->constant = constants[i].value;
            return node;
        }
    struct node *name = node_new(p, NODE_NAME, token->position);
    if (!name || !(name->name.text = parse_text(p, token->data, token->len)))
        return NULL;
    if (!with_namespace || !parse_skip(p, TOKEN_DOT))
        return name;
    struct node *node = node_new(p, NODE_NAMESPACE_REF, token->position);
    const struct token *attribute = parse_expect(p, TOKEN_NAME);
    if (!node || !attribute || !node_over(p, node, name))
        return NULL;
    node->attribute.object = name;
    node->attribute.name = parse_text(p, attribute->data, attribute->len);
    return node->attribute.name ? node : NULL;
}

/* Strings that stand side by side are one. */
static struct node *parse_strings(struct parser *p)
{
    const struct token *first = p->token;
    size_t len = 0;
    while (p->token->type == TOKEN_STRING)
        len += p->token++->len;
    struct node *node = node_new(p, NODE_CONST, first->position);
    if (!node)
        return NULL;
    const char *data = first->data;
    if (p->token - first > 1) {
        char *joined = arena_alloc(&p->t->arena, len + 1);
        if (!joined)
            return parse_fail(p, first, "no memory for the chat template");
        data = joined;
        for (const struct token *token = first; token < p->token; token++) {
            memcpy(joined, token->data, token->len);
            joined += token->len;
        }
    }
    node->constant = value_text(parse_text(p, data, len));
    return node->constant.text ? node : NULL;
}

struct node *parse_primary(struct parser *p, bool with_namespace)
{
    const struct token *token = p->token;
    struct node *node;
    switch (token->type) {
    case TOKEN_NAME: return parse_name(p, with_namespace);
    case TOKEN_STRING: return parse_strings(p);
    case TOKEN_INT:
    case TOKEN_FLOAT:
        p->token++;
        if ((node = node_new(p, NODE_CONST, token->position)))
            node->constant = token->type == TOKEN_INT ? value_int(token->integer)
                                                      : value_real(token->real);
        return node;
    case TOKEN_LPAREN:
        p->token++;
        node = parse_tuple(p, TUPLE_PARENS, NULL);
        return node && parse_expect(p, TOKEN_RPAREN) ? node : NULL;
    case TOKEN_LBRACKET: return parse_list(p);
    case TOKEN_LBRACE: return parse_dict(p);
    default: return parse_fail(p, token, "unexpected '%s'", jinja_token_name(token->type));
    }
}

static bool is_tuple_end(const struct parser *p, const char *end_name)
{
    return p->token->type == TOKEN_PRINT_END || p->token->type == TOKEN_BLOCK_END ||
           p->token->type == TOKEN_RPAREN || (end_name && token_is_name(p->token, end_name));
}

struct node *parse_tuple(struct parser *p, int flags, const char *end_name)
{
    struct node *node = enter(p) ? node_new(p, NODE_TUPLE, p->token->position) : NULL;
    bool is_tuple = false;
    while (node) {
        if (node->items.count && !parse_expect(p, TOKEN_COMMA))
            return NULL;
        if (is_tuple_end(p, end_name))
            break;
        struct node *item = flags & TUPLE_TARGET
                                ? parse_primary(p, flags & TUPLE_NAMESPACE)
                                : parse_expression(p, !(flags & TUPLE_NO_CONDITION));
        if (!nodes_add(p, node, &node->items, item))
            return NULL;
        if (p->token->type != TOKEN_COMMA)
            break;
        is_tuple = true;
    }
    p->depth--;
    if (!node || is_tuple)
        return node;
    if (node->items.count)
        return node->items.first;
    if (!(flags & TUPLE_PARENS))
        return parse_fail(p, p->token, "Expected an expression, got '%s'",
                          jinja_token_name(p->token->type));
    return node;
}

static struct node *parse_slice_bound(struct parser *p, struct node *slice, int which)
{
    enum token_type type = p->token->type;
    if (type == TOKEN_COLON || type == TOKEN_RBRACKET || type == TOKEN_COMMA)
        return slice;
    slice->slice.bounds[which] = parse_expression(p, true);
    return node_over(p, slice, slice->slice.bounds[which]) ? slice : NULL;
}

static struct node *parse_subscript(struct parser *p)
{
    struct node *first = NULL;
    if (p->token->type != TOKEN_COLON) {
        first = parse_expression(p, true);
        if (!first || p->token->type != TOKEN_COLON)
            return first;
    }
    struct node *slice = node_new(p, NODE_SLICE, p->token->position);
    if (!slice || (first && !node_over(p, slice, first)))
        return NULL;
    slice->slice.bounds[0] = first;
    p->token++;
    if (!parse_slice_bound(p, slice, 1))
        return NULL;
    if (parse_skip(p, TOKEN_COLON))
        return parse_slice_bound(p, slice, 2);
    return slice;
}

static struct node *parse_brackets(struct parser *p, struct node *object, uint32_t position)
{
    struct node *node = node_new(p, NODE_ITEM, position);
    struct node *tuple = node_new(p, NODE_TUPLE, position);
    if (!node || !tuple)
        return NULL;
    while (!p->failed && p->token->type != TOKEN_RBRACKET) {
        if (tuple->items.count && !parse_expect(p, TOKEN_COMMA))
            return NULL;
        struct node *key = parse_subscript(p);
        if (key && key->kind == NODE_SLICE && tuple->items.count)
            return parse_fail(p, p->token, "a slice cannot stand beside another subscript");
        if (!nodes_add(p, tuple, &tuple->items, key))
            return NULL;
    }
    if (!parse_expect(p, TOKEN_RBRACKET))
        return NULL;
    node->item.object = object;
    node->item.key = tuple->items.count == 1 ? tuple->items.first : tuple;
    if (tuple->items.count > 1 && tuple->items.first->kind == NODE_SLICE)
        return parse_fail(p, p->token, "a slice cannot stand beside another subscript");
    return node_over(p, node, object) && node_over(p, node, node->item.key) ? node : NULL;
}

static struct node *parse_dot(struct parser *p, struct node *object, uint32_t position)
{
    const struct token *token = p->token;
    if (token->type != TOKEN_NAME && token->type != TOKEN_INT)
        return parse_fail(p, token, "expected name or number");
    struct node *node = node_new(p, token->type == TOKEN_NAME ? NODE_ATTRIBUTE : NODE_ITEM,
                                 position);
    if (!node || !node_over(p, node, object))
        return NULL;
    p->token++;
    if (token->type == TOKEN_NAME) {
        node->attribute.object = object;
        node->attribute.name = parse_text(p, token->data, token->len);
        return node->attribute.name ? node : NULL;
    }
    struct node *key = node_new(p, NODE_CONST, token->position);
    if (!key)
        return NULL;
    key->constant = value_int(token->integer);
    node->item.object = object;
    node->item.key = key;
    return node;
}

static bool parse_keyword_arg(struct parser *p, struct node *call)
{
    struct node *name = node_new(p, NODE_CONST, p->token->position);
    if (!name)
        return false;
    name->constant = value_text(parse_text(p, p->token->data, p->token->len));
    p->token += 2;
    return name->constant.text && nodes_add(p, call, &call->call.args.keywords, name) &&
           nodes_add(p, call, &call->call.args.keywords, parse_expression(p, true));
}

bool parse_call_args(struct parser *p, struct node *call)
{
    struct call_args *args = &call->call.args;
    const struct token *open = p->token;
    if (!parse_expect(p, TOKEN_LPAREN))
        return false;
    for (bool comma = false; p->token->type != TOKEN_RPAREN; comma = true) {
        if (comma && !parse_expect(p, TOKEN_COMMA))
            return false;
        if (p->token->type == TOKEN_RPAREN)
            break;
        bool ok = true;
        if (p->token->type == TOKEN_MUL || p->token->type == TOKEN_POW) {
            struct node **star = p->token->type == TOKEN_MUL ? &args->star : &args->star_star;
            ok = !args->star_star && !*star;
            p->token++;
            *star = parse_expression(p, true);
            if (!node_over(p, call, *star))
                return false;
        } else if (p->token->type == TOKEN_NAME && p->token[1].type == TOKEN_ASSIGN) {
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
    return parse_expect(p, TOKEN_RPAREN) != NULL;
}

static struct node *parse_call(struct parser *p, struct node *callee)
{
    struct node *node = node_new(p, NODE_CALL, p->token->position);
    if (!node || !node_over(p, node, callee))
        return NULL;
    node->call.callee = callee;
    return parse_call_args(p, node) ? node : NULL;
}

static struct node *parse_postfix(struct parser *p, struct node *node)
{
    while (node) {
        uint32_t position = p->token->position;
        if (parse_skip(p, TOKEN_DOT))
            node = parse_dot(p, node, position);
        else if (parse_skip(p, TOKEN_LBRACKET))
            node = parse_brackets(p, node, position);
        else if (p->token->type == TOKEN_LPAREN)
            node = parse_call(p, node);
        else
            break;
    }
    return node;
}

/* A filter's or test's name, which may have dots. */
static const struct text *parse_dotted_name(struct parser *p)
{
    const struct token *first = parse_expect(p, TOKEN_NAME), *last = first;
    while (last && parse_skip(p, TOKEN_DOT))
        last = parse_expect(p, TOKEN_NAME);
    return last ? parse_text(p, first->data, (size_t)(last->data + last->len - first->data)) : NULL;
}

struct node *parse_filter(struct parser *p, struct node *inner)
{
    struct node *node = node_new(p, NODE_FILTER, p->token->position);
    if (!node || (inner && !node_over(p, node, inner)))
        return NULL;
    node->call.callee = inner;
    if (!(node->call.name = parse_dotted_name(p)))
        return NULL;
    node->call.filter = filter_find(node->call.name->data, node->call.name->len);
    if (p->token->type == TOKEN_LPAREN && !parse_call_args(p, node))
        return NULL;
    return node;
}

static bool parse_test_args(struct parser *p, struct node *test)
{
    const struct token *token = p->token;
    switch (token->type) {
    case TOKEN_LPAREN: return parse_call_args(p, test);
    case TOKEN_NAME:
        if (token_is_name(token, "else") || token_is_name(token, "or") ||
            token_is_name(token, "and"))
            return true;
        if (token_is_name(token, "is"))
            return parse_fail(p, token, "You cannot chain multiple tests with is");
        break;
    case TOKEN_STRING:
    case TOKEN_INT:
    case TOKEN_FLOAT:
    case TOKEN_LBRACKET:
    case TOKEN_LBRACE: break;
    default: return true;
    }
    struct node *arg = parse_postfix(p, parse_primary(p, false));
    return nodes_add(p, test, &test->call.args.positional, arg);
}

static struct node *parse_test(struct parser *p, struct node *operand)
{
    const struct token *is = p->token++;
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
    enum token_type type = p->token->type;
    if (!enter(p))
        return NULL;
    if (type == TOKEN_SUB || type == TOKEN_ADD) {
        node = node_new(p, type == TOKEN_SUB ? NODE_NEGATE : NODE_PLUS, p->token->position);
        p->token++;
        struct node *operand = parse_unary(p, false);
        if (!node || !node_over(p, node, operand))
            return NULL;
        node->binary.left = operand;
    } else {
        node = parse_primary(p, false);
    }
    node = parse_postfix(p, node);
    while (node && with_filter) {
        if (parse_skip(p, TOKEN_PIPE))
            node = parse_filter(p, node);
        else if (token_is_name(p->token, "is"))
            node = parse_test(p, node);
        else if (p->token->type == TOKEN_LPAREN)
            node = parse_call(p, node);
        else
            break;
    }
    p->depth--;
    return node;
}

static bool compare_op(struct parser *p, uint8_t *op)
{
    const struct token *token = p->token;
    switch (token->type) {
    case TOKEN_EQ: *op = CMP_EQ; break;
    case TOKEN_NE: *op = CMP_NE; break;
    case TOKEN_LT: *op = CMP_LT; break;
    case TOKEN_LE: *op = CMP_LE; break;
    case TOKEN_GT: *op = CMP_GT; break;
    case TOKEN_GE: *op = CMP_GE; break;
    default:
        if (token_is_name(token, "in")) {
            *op = CMP_IN;
            break;
        }
        if (!token_is_name(token, "not") || !token_is_name(token + 1, "in"))
            return false;
        *op = CMP_NOT_IN;
    }
    return true;
}

static struct node *parse_compare(struct parser *p, struct node *first)
{
    struct node *node = node_new(p, NODE_COMPARE, p->token->position);
    if (!node || !node_over(p, node, first))
        return NULL;
    node->compare.first = first;
    uint8_t op;
    while (compare_op(p, &op)) {
        p->token += op == CMP_NOT_IN ? 2 : 1;
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

/* The operator at the current token: its precedence, or 0 for none. */
static int infix_at(const struct parser *p, enum node_kind *kind, uint8_t *op)
{
    *kind = NODE_BINARY;
    switch (p->token->type) {
    case TOKEN_ADD: *op = OP_ADD; return PREC_ADD;
    case TOKEN_SUB: *op = OP_SUB; return PREC_ADD;
    case TOKEN_MUL: *op = OP_MUL; return PREC_MUL;
    case TOKEN_DIV: *op = OP_DIV; return PREC_MUL;
    case TOKEN_FLOORDIV: *op = OP_FLOORDIV; return PREC_MUL;
    case TOKEN_MOD: *op = OP_MOD; return PREC_MUL;
    case TOKEN_POW: *op = OP_POW; return PREC_POW;
    case TOKEN_TILDE: *kind = NODE_CONCAT; return PREC_CONCAT;
    case TOKEN_NAME:
        *kind = token_is_name(p->token, "or") ? NODE_OR : NODE_AND;
        return token_is_name(p->token, "or")    ? PREC_OR
               : token_is_name(p->token, "and") ? PREC_AND
                                                : 0;
    default: return 0;
    }
}

static struct node *parse_concat(struct parser *p, struct node *first)
{
    struct node *node = node_new(p, NODE_CONCAT, p->token->position);
    if (!node || !nodes_add(p, node, &node->items, first))
        return NULL;
    while (parse_skip(p, TOKEN_TILDE))
        if (!nodes_add(p, node, &node->items, parse_binary(p, PREC_MUL)))
            return NULL;
    return node;
}

static struct node *parse_infix(struct parser *p, struct node *left, enum node_kind kind,
                                uint8_t op, int precedence)
{
    struct node *node = node_new(p, kind, p->token->position);
    p->token++;
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
    if (lowest <= PREC_NOT && token_is_name(p->token, "not")) {
        left = node_new(p, NODE_NOT, p->token->position);
        p->token++;
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

struct node *parse_expression(struct parser *p, bool with_condition)
{
    struct node *node = parse_binary(p, PREC_OR);
    while (node && with_condition && parse_skip_name(p, "if")) {
        struct node *whole = node_new(p, NODE_CONDITION, node->position);
        if (!whole || !node_over(p, whole, node))
            return NULL;
        whole->condition.then = node;
        whole->condition.test = parse_binary(p, PREC_OR);
        if (!node_over(p, whole, whole->condition.test))
            return NULL;
        if (parse_skip_name(p, "else")) {
            if (!enter(p))
                return NULL;
            whole->condition.otherwise = parse_expression(p, true);
            p->depth--;
            if (!node_over(p, whole, whole->condition.otherwise))
                return NULL;
        }
        node = whole;
    }
    return node;
}
