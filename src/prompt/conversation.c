/* Fits conversations to a template: roles and contents. Calls and results are in
 * conversation_tools.c. Runs on a worker; shared data is read-only.
 *
 * The renderer knows the source of a text by its message. Texts of different messages may be
 * merged, but text from a client must never count as the template's (`tools` also comes from the
 * client). */
#include "prompt/conversation.h"

#include <string.h>

#include "prompt/conversation_internal.h"

void turn_push(struct fitting *f, struct turn turn)
{
    f->made[f->n_made++] = turn;
}

void turns_swap(struct fitting *f)
{
    struct turn *made = f->made;
    f->made = f->turns;
    f->turns = made;
    f->n = f->n_made;
    f->n_made = 0;
}

bool content_is_empty(const struct json *content)
{
    return !json_is(content, JSON_STRING) ? !json_is(content, JSON_ARRAY) : content->text_len == 0;
}

const struct json *content_take(struct arena *arena, struct strbuf *text)
{
    struct json *content = NULL;
    if (!text->failed)
        content = json_new_string(arena, strbuf_str(text), text->len);
    else
        arena->failed = true;
    strbuf_free(text);
    return content;
}

const struct json *content_join(struct arena *arena, const struct json *a, const char *between,
                                const struct json *b)
{
    if (content_is_empty(a))
        return b ? b : a;
    if (content_is_empty(b))
        return a;
    struct strbuf text = STRBUF_INIT;
    strbuf_add(&text, a->text, a->text_len);
    strbuf_adds(&text, between);
    strbuf_add(&text, b->text, b->text_len);
    return content_take(arena, &text);
}

/* ---- in ---- */

static enum turn_role role_read(const struct json *message)
{
    const struct json *role = json_get(message, "role");
    if (json_equals(role, "system") || json_equals(role, "developer"))
        return TURN_SYSTEM;
    return json_equals(role, "user")        ? TURN_USER
           : json_equals(role, "assistant") ? TURN_ASSISTANT
           : json_equals(role, "tool")      ? TURN_TOOL
                                            : TURN_OTHER;
}

static const struct json *calls_of(const struct json *message)
{
    const struct json *calls = json_get(message, "tool_calls");
    return json_is(calls, JSON_ARRAY) && calls->count ? calls : NULL;
}

/* The maximum number of turns after any pass: for each message its text, each of its calls and an
 * answer in between, plus the tools' prompt. */
static size_t capacity_for(const struct json *messages)
{
    size_t capacity = 2;
    json_each (message, messages) {
        const struct json *calls = calls_of(message);
        capacity += 2 + (calls ? calls->count : 0);
    }
    return capacity;
}

static void turns_read(struct fitting *f)
{
    int32_t i = 0;
    size_t n_calls = 0;
    json_each (message, f->in->messages) {
        const struct json *calls = calls_of(message), *content = json_get(message, "content");
        struct turn turn = {
            .role = role_read(message),
            .origin = i++,
            .source = message,
            .content = json_is(content, JSON_NULL) ? NULL : content,
            .calls = calls ? calls->first : NULL,
            .n_calls = calls ? calls->count : 0,
            .first_call = n_calls,
        };
        n_calls += turn.n_calls;
        turn_push(f, turn);
    }
    turns_swap(f);
}

/* ---- systems ---- */

/* The leading system messages and the tools' prompt as one text. */
static struct turn systems_merge(struct fitting *f, size_t n, const struct json *prompt)
{
    struct turn merged = {.role = TURN_SYSTEM, .origin = -1};
    if (n)
        merged = f->turns[0];
    for (size_t i = 1; i < n; i++)
        merged.content = content_join(f->arena, merged.content, "\n\n", f->turns[i].content);
    if (prompt)
        merged.content = content_join(f->arena, merged.content, "\n\n", prompt);
    return merged;
}

static void system_to_user(struct turn *turn)
{
    turn->role = TURN_USER;
    turn->source = NULL;
}

/* Makes the start of the list, up to the first message that is not a system message. Returns the
 * number of messages used. */
static size_t fit_leading_systems(struct fitting *f)
{
    const struct json *prompt = tool_prompt(f);
    size_t n = 0;
    while (n < f->n && f->turns[n].role == TURN_SYSTEM)
        n++;
    if (n == 0 && !prompt)
        return 0;
    if (f->traits->takes_system && f->traits->takes_several_systems && !prompt) {
        for (size_t i = 0; i < n; i++)
            turn_push(f, f->turns[i]);
        return n;
    }
    struct turn merged = systems_merge(f, n, prompt);
    if (f->traits->takes_system) {
        turn_push(f, merged);
        return n;
    }
    if (n == f->n || f->turns[n].role != TURN_USER) {
        system_to_user(&merged);
        turn_push(f, merged);
        return n;
    }
    struct turn user = f->turns[n];
    user.content = content_join(f->arena, merged.content, "\n\n", user.content);
    turn_push(f, user);
    return n + 1;
}

static void fit_systems(struct fitting *f)
{
    for (size_t i = fit_leading_systems(f); i < f->n; i++) {
        struct turn turn = f->turns[i];
        if (turn.role == TURN_SYSTEM && !f->traits->takes_late_systems)
            system_to_user(&turn);
        turn_push(f, turn);
    }
    turns_swap(f);
}

/* ---- turns ---- */

/* True if a turn can be merged with the one before it. */
static bool merges(const struct turn *before, const struct turn *turn)
{
    return before->role == turn->role && before->n_calls == 0 &&
           (turn->role == TURN_USER || turn->role == TURN_ASSISTANT) &&
           !json_is(before->content, JSON_ARRAY) && !json_is(turn->content, JSON_ARRAY);
}

static void fit_turns(struct fitting *f)
{
    for (size_t i = 0; i < f->n; i++) {
        struct turn turn = f->turns[i], *before = f->n_made ? &f->made[f->n_made - 1] : NULL;
        if (f->traits->wants_alternation && before && merges(before, &turn)) {
            before->content = content_join(f->arena, before->content, "\n\n", turn.content);
            before->calls = turn.calls;
            before->n_calls = turn.n_calls;
            before->first_call = turn.first_call;
            continue;
        }
        if (f->traits->wants_answered_results && before && before->role == TURN_TOOL &&
            turn.role == TURN_USER)
            turn_push(f, (struct turn){.role = TURN_ASSISTANT,
                                       .origin = -1,
                                       .content = json_new_string(f->arena, " ", 1)});
        turn_push(f, turn);
    }
    turns_swap(f);
}

/* ---- out ---- */

static const char *role_name(const struct turn *turn)
{
    static const char *const names[] = {"system", "user", "assistant", "tool"};
    const struct json *role = turn->source ? json_get(turn->source, "role") : NULL;
    return turn->role != TURN_OTHER     ? names[turn->role]
           : json_is(role, JSON_STRING) ? role->text
                                        : "user";
}

static void content_append(const struct fitting *f, const struct turn *turn, struct json *message)
{
    const struct json *content = turn->content;
    bool is_empty = content_is_empty(content);
    if (is_empty && turn->n_calls && !f->traits->wants_text_content)
        json_append(f->arena, message, "content", json_new(f->arena, JSON_NULL));
    else if (!is_empty && !json_is(content, JSON_STRING))
        json_append(f->arena, message, "content", json_share(f->arena, content));
    else if (f->traits->wants_parts)
        json_append(f->arena, message, "content",
                    content_parts_new(f->arena, is_empty ? "" : content->text,
                                      is_empty ? 0 : content->text_len));
    else
        json_append(f->arena, message, "content",
                    json_new_string(f->arena, is_empty ? "" : content->text,
                                    is_empty ? 0 : content->text_len));
}

static const struct json *reasoning_of(const struct json *message)
{
    const struct json *reasoning = json_get(message, "reasoning_content");
    if (!json_is(reasoning, JSON_STRING))
        reasoning = json_get(message, "reasoning");
    return json_is(reasoning, JSON_STRING) && reasoning->text_len ? reasoning : NULL;
}

static void reasoning_append(const struct fitting *f, const struct turn *turn, struct json *message)
{
    const struct json *reasoning = reasoning_of(turn->source);
    if (reasoning && turn->role == TURN_ASSISTANT && f->traits->reasoning_key &&
        (f->traits->takes_reasoned_text || !turn->n_calls || content_is_empty(turn->content)))
        json_append(f->arena, message, f->traits->reasoning_key, json_share(f->arena, reasoning));
}

/* True for members that are set from the turn. */
static bool is_fitted(const char *key)
{
    static const char *const keys[] = {"role",      "content",    "reasoning_content",
                                       "reasoning", "tool_calls", "tool_call_id"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(key, keys[i]) == 0)
            return true;
    return false;
}

static struct json *message_make(const struct fitting *f, size_t i)
{
    const struct turn *turn = &f->turns[i];
    const char *role = role_name(turn);
    struct json *message = json_new(f->arena, JSON_OBJECT);
    if (!message)
        return NULL;
    json_append(f->arena, message, "role", json_new_string(f->arena, role, strlen(role)));
    content_append(f, turn, message);
    if (json_is(turn->source, JSON_OBJECT)) {
        reasoning_append(f, turn, message);
        json_each (member, turn->source)
            if (!is_fitted(member->key))
                json_append(f->arena, message, member->key, json_share(f->arena, member));
    }
    calls_append(f, turn, message);
    if (turn->role == TURN_TOOL)
        result_append(f, f->turns, i, message);
    return message;
}

int conversation_fit(struct fitted_conversation *out, const struct conversation *in,
                     const struct template_traits *traits, const struct answer_style *style,
                     struct arena *arena, struct error *err)
{
    struct fitting f = {.in = in, .traits = traits, .style = style, .arena = arena};
    *out = (struct fitted_conversation){0};
    f.capacity = capacity_for(in->messages);
    f.turns = arena_alloc_array(arena, f.capacity, sizeof *f.turns);
    f.made = arena_alloc_array(arena, f.capacity, sizeof *f.made);
    out->origins = arena_alloc_array(arena, f.capacity, sizeof *out->origins);
    out->messages = json_new(arena, JSON_ARRAY);
    if (!arena->failed) {
        turns_read(&f);
        fit_calls(&f);
        fit_results(&f);
        fit_systems(&f);
        fit_turns(&f);
        for (size_t i = 0; i < f.n; i++) {
            json_append(arena, out->messages, NULL, message_make(&f, i));
            out->origins[i] = f.turns[i].origin;
        }
        out->tools = tools_fit(&f);
    }
    return arena->failed ? error_set(err, ERROR_MEMORY, "no memory for a conversation") : 0;
}
