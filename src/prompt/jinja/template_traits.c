/* Detects what a chat template accepts, by trial. Runs once, on the thread that loads a model.
 *
 * The trial conversations use words that occur in no template ("zquser", ...), so finding one in
 * the rendering means that the template rendered it. Rendering without an error is not enough: many
 * templates silently drop what they do not know. */
#include "prompt/jinja/template_traits.h"

#include <stdio.h>
#include <string.h>

/* The words of the trial conversations. None contains another. */
#define NEEDLE_NAME        "zqcall"
#define NEEDLE_ARGUMENTS   "{\"zqkey\": \"zqvalue\"}"
#define NEEDLE_KEY         "zqkey"
#define NEEDLE_NAME_2      "zqnext"
#define NEEDLE_ARGUMENTS_2 "{\"zqfield\": \"zqtwo\"}"
#define NEEDLE_TEXT        "zqtext"
#define SHORT_ID           "zqid00001"
#define SHORT_ID_2         "zqid00002"
#define NAMED_ID           "functions." NEEDLE_NAME ":0"
#define NAMED_ID_2         "functions." NEEDLE_NAME_2 ":1"

#define MESSAGE(role, text) "{\"role\": \"" role "\", \"content\": \"" text "\"}"
#define TOOLS                                                                                      \
    "\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"zqtool\", "                   \
    "\"description\": \"zqabout\", \"parameters\": {\"type\": \"object\", \"properties\": "        \
    "{\"zqparam\": {\"type\": \"string\", \"description\": \"zqwhat\"}}, "                         \
    "\"required\": [\"zqparam\"]}}}]"
#define BARE_TOOL   "\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"zqbare\"}}]"
#define GENERATE    ", \"add_generation_prompt\": true"
#define NO_GENERATE ", \"add_generation_prompt\": false"

struct prober {
    const struct chat_template *t;
    const struct json *context;
    struct template_traits *traits;
    struct arena arena;
    struct rendering out; /* of the last trial; empty if the template raised */
    struct strbuf text;   /* of the trial being built */
    bool no_memory;
};

struct json *content_parts_new(struct arena *arena, const char *text, size_t len)
{
    struct json *parts = json_new(arena, JSON_ARRAY), *part = json_new(arena, JSON_OBJECT);
    json_append(arena, part, "type", json_new_string(arena, "text", 4));
    json_append(arena, part, "text", json_new_string(arena, text, len));
    json_append(arena, parts, NULL, part);
    return parts;
}

static void contents_to_parts(struct arena *arena, const struct json *messages)
{
    json_each (message, messages)
        for (struct json *m = message->first; m; m = m->next)
            if (m->type == JSON_STRING && strcmp(m->key, "content") == 0) {
                const struct json *parts = content_parts_new(arena, m->text, m->text_len);
                if (!parts)
                    return;
                m->type = JSON_ARRAY;
                m->first = parts->first;
                m->last = parts->last;
                m->count = parts->count;
            }
}

/* A template that takes a variable `functions` gets the tools there, as text. */
static void functions_append(struct prober *p, struct json *root)
{
    const struct json *tools = json_get(root, "tools");
    struct strbuf text = STRBUF_INIT;
    if (!tools || !json_get(p->context, "functions"))
        return;
    json_write(&text, tools);
    json_append(&p->arena, root, "functions",
                json_new_string(&p->arena, strbuf_str(&text), text.len));
    p->arena.failed |= text.failed;
    strbuf_free(&text);
}

static void context_share(struct prober *p, struct json *root)
{
    for (const struct json *m = p->context ? p->context->first : NULL; m; m = m->next) {
        struct json *copy = json_new(&p->arena, m->type);
        if (!copy || json_get(root, m->key))
            continue;
        *copy = *m;
        copy->next = NULL;
        json_append(&p->arena, root, m->key, copy);
    }
}

/* Renders with the members of an object, given as the JSON text between its braces. False if the
 * template raises. */
static bool trial(struct prober *p, const char *members)
{
    /* A real date could make equal trials differ. */
    const struct render_options options = {.now_unix = 1700000000};
    struct error err = {0};
    struct strbuf text = STRBUF_INIT;
    strbuf_addf(&text, "{%s}", members);
    struct json *root = json_parse(&p->arena, strbuf_str(&text), text.len, &err);
    int failed = -1;
    if (root) {
        if (p->traits->wants_parts)
            contents_to_parts(&p->arena, json_get(root, "messages"));
        functions_append(p, root);
        context_share(p, root);
        if (p->traits->has_thinking_switch && !json_get(root, "enable_thinking"))
            json_append(&p->arena, root, "enable_thinking", json_new_bool(&p->arena, true));
        if (!p->arena.failed)
            failed = chat_template_render(p->t, root, &options, &p->out, &err);
        p->traits->renders |= !failed;
    }
    if (p->arena.failed || text.failed || (failed && err.code == ERROR_MEMORY))
        p->no_memory = true;
    if (failed)
        strbuf_clear(&p->out.text);
    strbuf_free(&text);
    arena_reset(&p->arena);
    return !failed;
}

static bool seen(const struct prober *p, const char *needle)
{
    return strstr(strbuf_str(&p->out.text), needle);
}

/* ---- roles ---- */

static void find_roles(struct prober *p)
{
    struct template_traits *t = p->traits;
    trial(p, "\"messages\": [" MESSAGE("user", "zquser") "]" GENERATE);
    if (!seen(p, "zquser")) {
        t->wants_parts = true;
        trial(p, "\"messages\": [" MESSAGE("user", "zquser") "]" GENERATE);
        t->wants_parts = seen(p, "zquser");
    }
    trial(p, "\"messages\": [" MESSAGE("system", "zqsystem") ", " MESSAGE("user",
                                                                          "zquser") "]" GENERATE);
    t->takes_system = seen(p, "zqsystem") && seen(p, "zquser");
    trial(p, "\"messages\": [" MESSAGE("system", "zqsystem") ", " MESSAGE(
                 "system", "zqother") ", " MESSAGE("user", "zquser") "]" GENERATE);
    t->takes_several_systems = seen(p, "zqsystem") && seen(p, "zqother") && seen(p, "zquser");
    trial(
        p,
        "\"messages\": [" MESSAGE("user", "zquser") ", " MESSAGE(
            "assistant",
            "zqanswer") ", " MESSAGE("system",
                                     "zqsystem") ", " MESSAGE("user",
                                                              "zqmore") ", " MESSAGE("system",
                                                                                     "zqother") "]" GENERATE);
    t->takes_late_systems = seen(p, "zqsystem") && seen(p, "zqmore") && seen(p, "zqother");
    trial(p,
          "\"messages\": [" MESSAGE("user", "zquser") ", " MESSAGE("user", "zqmore") ", " MESSAGE(
              "assistant",
              "zqanswer") ", " MESSAGE("assistant",
                                       "zqfurther") ", " MESSAGE("user", "zqlast") "]" GENERATE);
    t->wants_alternation = !(seen(p, "zquser") && seen(p, "zqmore") && seen(p, "zqanswer") &&
                             seen(p, "zqfurther") && seen(p, "zqlast"));
}

/* Later trials have thinking switched on, as prompts do by default. */
static void find_thinking_switch(struct prober *p)
{
    struct strbuf with = STRBUF_INIT;
    bool rendered = trial(
        p, "\"enable_thinking\": true, \"messages\": [" MESSAGE("user", "zquser") "]" GENERATE);
    strbuf_add(&with, strbuf_str(&p->out.text), p->out.text.len);
    p->no_memory |= with.failed;
    rendered &= trial(
        p, "\"enable_thinking\": false, \"messages\": [" MESSAGE("user", "zquser") "]" GENERATE);
    p->traits->has_thinking_switch = rendered &&
                                     strcmp(strbuf_str(&with), strbuf_str(&p->out.text)) != 0;
    strbuf_free(&with);
}

/* ---- calls ---- */

/* The form of a trial's assistant message with calls. */
struct call_trial {
    const char *variables; /* of the template, "" or ending in a comma */
    const char *content;   /* JSON; NULL: no content */
    const char *extra;     /* more members, "" or ending in a comma */
    bool object;           /* arguments as an object */
    int n_calls;
    const char *id, *id_2;
    const char *more; /* later messages, "" or starting with a comma */
    bool generate;
};

static void call_add(struct strbuf *s, const struct call_trial *c, const char *id, const char *name,
                     const char *arguments)
{
    strbuf_addf(s,
                "{\"id\": \"%s\", \"type\": \"function\", \"function\": {\"name\": \"%s\", "
                "\"arguments\": ",
                id, name);
    if (c->object)
        strbuf_adds(s, arguments);
    else
        json_write_string(s, arguments, strlen(arguments));
    strbuf_adds(s, "}}");
}

static bool call_trial(struct prober *p, const struct call_trial *c)
{
    struct strbuf *s = &p->text;
    strbuf_clear(s);
    strbuf_adds(s, c->variables);
    strbuf_adds(s,
                TOOLS ", \"messages\": [" MESSAGE("user", "zquser") ", "
                                                                    "{\"role\": \"assistant\", ");
    if (c->content)
        strbuf_addf(s, "\"content\": %s, ", c->content);
    strbuf_adds(s, c->extra);
    strbuf_adds(s, "\"tool_calls\": [");
    call_add(s, c, c->id, NEEDLE_NAME, NEEDLE_ARGUMENTS);
    if (c->n_calls > 1) {
        strbuf_adds(s, ", ");
        call_add(s, c, c->id_2, NEEDLE_NAME_2, NEEDLE_ARGUMENTS_2);
    }
    strbuf_addf(s, "]}%s]%s", c->more, c->generate ? GENERATE : NO_GENERATE);
    p->no_memory |= s->failed;
    return !s->failed && trial(p, strbuf_str(s));
}

/* How a call's arguments were rendered, worst first. */
enum arguments_form {
    ARGUMENTS_MISSING, /* or the whole call */
    ARGUMENTS_SPOILT,  /* JSON text quoted once more, or an object as Python prints it */
    ARGUMENTS_OWN,     /* names and values in the template's own format */
    ARGUMENTS_PLAIN,   /* the JSON text, once */
};

static enum arguments_form arguments_form(const struct prober *p)
{
    if (!seen(p, NEEDLE_NAME) || !seen(p, NEEDLE_KEY) || !seen(p, "zqvalue"))
        return ARGUMENTS_MISSING;
    if (seen(p, NEEDLE_ARGUMENTS))
        return ARGUMENTS_PLAIN;
    if (seen(p, "\\\"zqkey") || seen(p, "'zqkey'") || seen(p, "\\u0022zqkey"))
        return ARGUMENTS_SPOILT;
    return ARGUMENTS_OWN;
}

/* Finds the content that lets calls be rendered and the form of arguments that renders them best:
 * the client's text if it is rendered unchanged, else the object. */
static bool find_call_form(struct prober *p, struct call_trial *c, const char *content)
{
    c->content = content;
    c->object = true;
    call_trial(p, c);
    enum arguments_form as_object = arguments_form(p);
    c->object = false;
    call_trial(p, c);
    enum arguments_form as_text = arguments_form(p);
    /* A template with its own format for arguments needs the object, even if it renders text
     * unchanged. */
    c->object = as_object == ARGUMENTS_OWN || as_object > as_text;
    return as_object > ARGUMENTS_SPOILT || as_text > ARGUMENTS_SPOILT;
}

static size_t count(const char *text, const char *needle)
{
    size_t n = 0;
    while ((text = strstr(text, needle))) {
        n++;
        text += strlen(needle);
    }
    return n;
}

/* Some templates print null as a word. */
static bool spells_null(struct prober *p, const struct call_trial *calls)
{
    struct call_trial c = *calls;
    call_trial(p, &c);
    size_t n = count(strbuf_str(&p->out.text), "None");
    c.content = "\"\"";
    return call_trial(p, &c) && seen(p, NEEDLE_NAME) && count(strbuf_str(&p->out.text), "None") < n;
}

static void find_calls(struct prober *p, struct call_trial *c)
{
    struct template_traits *t = p->traits;
    t->takes_calls = find_call_form(p, c, "null");
    if (!t->takes_calls || spells_null(p, c))
        t->takes_calls = t->wants_text_content = find_call_form(p, c, "\"\"");
    if (!t->takes_calls) {
        c->id = NAMED_ID;
        c->id_2 = NAMED_ID_2;
        t->takes_calls = t->wants_named_ids = find_call_form(p, c, "null");
    }
    if (!t->takes_calls)
        return;
    t->wants_argument_object = c->object;
    struct call_trial other = *c;
    other.content = "\"" NEEDLE_TEXT "\"";
    call_trial(p, &other);
    t->wants_calls_alone = !seen(p, NEEDLE_NAME) ||
                           (!seen(p, NEEDLE_TEXT) && !t->wants_alternation);
    static const char *const ids[] = {"zqi", "call_zqid0000000000000000001"};
    other = *c;
    for (size_t i = 0; i < sizeof ids / sizeof *ids && !t->wants_named_ids; i++) {
        other.id = ids[i];
        call_trial(p, &other);
        t->wants_short_ids |= !seen(p, NEEDLE_NAME);
    }
    other = *c;
    other.n_calls = 2;
    call_trial(p, &other);
    t->takes_several_calls = arguments_form(p) != ARGUMENTS_MISSING && seen(p, NEEDLE_NAME_2) &&
                             seen(p, "zqfield") && seen(p, "zqtwo");
}

static void find_tools(struct prober *p)
{
    trial(p, TOOLS ", \"messages\": [" MESSAGE("user", "zquser") "]" GENERATE);
    if (!seen(p, "zqtool"))
        trial(p, TOOLS ", \"messages\": [" MESSAGE("system", "zqsystem") ", " MESSAGE(
                     "user", "zquser") "]" GENERATE);
    p->traits->takes_tools = seen(p, "zqtool") && seen(p, "zquser");
    p->traits->wants_whole_tools = p->traits->takes_tools &&
                                   !(trial(p, BARE_TOOL ", \"messages\": [" MESSAGE(
                                                  "user", "zquser") "]" GENERATE) &&
                                     seen(p, "zqbare"));
}

/* A result and later messages, because templates treat earlier messages differently. */
#define RESULT                                                                                     \
    ", {\"role\": \"tool\", \"tool_call_id\": \"" SHORT_ID "\", \"name\": \"" NEEDLE_NAME "\", "   \
    "\"content\": \"zqresult\"}"

static bool result_trial(struct prober *p, const struct call_trial *calls)
{
    struct call_trial c = *calls;
    c.more = RESULT ", " MESSAGE("assistant", "zqanswer") ", " MESSAGE("user", "zqmore");
    c.generate = true;
    return call_trial(p, &c) && seen(p, "zqresult") && seen(p, NEEDLE_NAME);
}

/* The user's next message comes before the answer to a result. */
static bool interruption_trial(struct prober *p, const struct call_trial *calls)
{
    struct call_trial c = *calls;
    c.more = RESULT ", " MESSAGE("user", "zqmore");
    c.generate = true;
    return call_trial(p, &c) && seen(p, "zqresult") && seen(p, "zqmore");
}

/* Templates that print every role's name and text also render results, but their models were not
 * trained on them. So results count only if the template knows functions. */
static void find_results(struct prober *p, struct call_trial *calls)
{
    struct template_traits *t = p->traits;
    if (!t->takes_calls) {
        t->takes_results = t->takes_tools &&
                           trial(p,
                                 TOOLS ", \"messages\": [" MESSAGE("user", "zquser") ", " MESSAGE(
                                     "assistant", "zqanswer") RESULT "]" GENERATE) &&
                           seen(p, "zqresult");
        return;
    }
    t->takes_results = result_trial(p, calls);
    if (!t->takes_results && !t->wants_text_content) {
        /* Some accept null in the last message only. */
        calls->content = "\"\"";
        t->takes_results = t->wants_text_content = result_trial(p, calls);
        if (!t->takes_results)
            calls->content = "null";
    }
    t->wants_answered_results = t->takes_results && !interruption_trial(p, calls);
}

/* ---- reasoning ---- */

#define THINKING "\"enable_thinking\": true, \"thinking\": true, "

/* Some templates render the reasoning of all answers, some only since the user's last message. So
 * the trial needs a call and a result. */
static bool reasoning_seen(struct prober *p, const struct call_trial *calls, const char *key)
{
    struct strbuf s = STRBUF_INIT;
    strbuf_addf(&s,
                THINKING "\"messages\": [" MESSAGE(
                    "user", "zquser") ", {\"role\": \"assistant\", "
                                      "\"content\": \"zqanswer\", \"%s\": \"zqthought\"}, " MESSAGE(
                                          "user", "zqmore") "]" GENERATE,
                key);
    p->no_memory |= s.failed;
    bool found = trial(p, strbuf_str(&s)) && seen(p, "zqthought");
    if (!found && p->traits->takes_calls && p->traits->takes_results) {
        strbuf_clear(&s);
        strbuf_addf(&s, "\"%s\": \"zqthought\", ", key);
        struct call_trial c = *calls;
        c.extra = strbuf_str(&s);
        c.variables = THINKING;
        c.more = RESULT;
        c.generate = true;
        found = call_trial(p, &c) && seen(p, "zqthought");
    }
    strbuf_free(&s);
    return found;
}

static void find_reasoning(struct prober *p, const struct call_trial *calls)
{
    static const char *const keys[] = {"reasoning_content", "thinking", "reasoning"};
    struct template_traits *t = p->traits;
    for (size_t i = 0; i < sizeof keys / sizeof *keys && !t->reasoning_key; i++)
        if (reasoning_seen(p, calls, keys[i]))
            t->reasoning_key = keys[i];
    t->takes_reasoning = t->reasoning_key;
    if (t->takes_reasoning && t->takes_calls) {
        char extra[64];
        snprintf(extra, sizeof extra, "\"%s\": \"zqthought\", ", t->reasoning_key);
        struct call_trial c = *calls;
        c.content = "\"" NEEDLE_TEXT "\"";
        c.extra = extra;
        c.variables = THINKING;
        t->takes_reasoned_text = call_trial(p, &c);
    } else {
        t->takes_reasoned_text = t->takes_reasoning;
    }
}

/* ---- the shape of calls ---- */

/* Where an answer starts in a rendering, and what ends it:
 *
 *   <|im_start|>user\nzquser<|im_end|>\n<|im_start|>assistant\nzqtext<|im_end|>\n
 *   [ before -----------------------------------------------]      [ after ----] */
struct answer_frame {
    struct strbuf before, after;
};

static bool frame_find(struct prober *p, struct answer_frame *f)
{
    if (!trial(p, TOOLS ", \"messages\": [" MESSAGE("user", "zquser") ", " MESSAGE(
                      "assistant", NEEDLE_TEXT) "]" NO_GENERATE))
        return false;
    const char *text = strbuf_str(&p->out.text), *at = strstr(text, NEEDLE_TEXT);
    if (!at)
        return false;
    strbuf_add(&f->before, text, (size_t)(at - text));
    strbuf_adds(&f->after, at + strlen(NEEDLE_TEXT));
    /* Some put a space before text but not before a call. */
    while (f->before.len && strchr(" \n", f->before.data[f->before.len - 1]))
        f->before.data[--f->before.len] = '\0';
    p->no_memory |= f->before.failed || f->after.failed;
    return !p->no_memory;
}

/* Where the answer starts in the last rendering: after the frame, or where it differs from the
 * frame (text may have a marker that calls lack), moved back to the end of the previous marker or
 * line. */
static size_t frame_end(const struct prober *p, const struct answer_frame *f, bool *whole)
{
    const char *text = strbuf_str(&p->out.text), *before = strbuf_str(&f->before);
    size_t n = 0;
    while (n < f->before.len && n < p->out.text.len && text[n] == before[n])
        n++;
    *whole = n == f->before.len;
    while (!*whole && n > 0 && text[n - 1] != '>' && text[n - 1] != '\n')
        n--;
    return n;
}

/* The part of the last rendering inside the frame. `fits`: both ends of the frame were found. */
static const char *frame_cut(const struct prober *p, const struct answer_frame *f, size_t *len,
                             bool *fits)
{
    bool whole;
    const char *text = strbuf_str(&p->out.text), *answer = text + frame_end(p, f, &whole);
    size_t n = p->out.text.len;
    *len = n - (size_t)(answer - text);
    *fits = whole && *len >= f->after.len &&
            memcmp(text + n - f->after.len, strbuf_str(&f->after), f->after.len) == 0;
    *len -= *fits ? f->after.len : 0;
    for (; *len && strchr(" \n", *answer); answer++)
        --*len;
    return answer;
}

/* The text from a call's name to its arguments, or to the first argument's name. */
static bool shape_cut_middle(struct template_traits *t, const char *text)
{
    const char *name = strstr(text, NEEDLE_NAME), *until = strstr(text, NEEDLE_ARGUMENTS);
    if (!until)
        until = strstr(text, NEEDLE_KEY);
    if (count(text, NEEDLE_NAME) != 1 || !until || until < name)
        return false;
    const char *middle = name + strlen(NEEDLE_NAME);
    strbuf_add(&t->middle, middle, (size_t)(until - middle));
    return true;
}

/* Finds `first` and `last` in an answer with one call. False if the arguments are not plain
 * JSON. */
static bool shape_cut_ends(struct template_traits *t, const char *answer)
{
    const char *name = strstr(answer, NEEDLE_NAME), *arguments = strstr(answer, NEEDLE_ARGUMENTS);
    if (!name)
        return false;
    strbuf_add(&t->first, answer, (size_t)(name - answer));
    if (!arguments || count(answer, NEEDLE_ARGUMENTS) != 1)
        return false;
    strbuf_adds(&t->last, arguments + strlen(NEEDLE_ARGUMENTS));
    return true;
}

/* Finds `between` in an answer with two calls, which must have the shape of a single call. */
static bool shape_cut_between(struct template_traits *t, const char *answer, struct strbuf *whole)
{
    const char *begin = strstr(answer, NEEDLE_ARGUMENTS), *end = strstr(answer, NEEDLE_NAME_2);
    if (!begin || !end || begin > end)
        return false;
    begin += strlen(NEEDLE_ARGUMENTS);
    strbuf_add(&t->between, begin, (size_t)(end - begin));
    strbuf_addf(whole,
                "%s" NEEDLE_NAME "%s" NEEDLE_ARGUMENTS "%s" NEEDLE_NAME_2 "%s" NEEDLE_ARGUMENTS_2
                "%s",
                strbuf_str(&t->first), strbuf_str(&t->middle), strbuf_str(&t->between),
                strbuf_str(&t->middle), strbuf_str(&t->last));
    return strcmp(strbuf_str(whole), answer) == 0;
}

/* Puts the answer of a trial, without its frame, into `out`. False if the frame does not fit. */
static bool answer_of(struct prober *p, const struct answer_frame *f, const struct call_trial *c,
                      struct strbuf *out)
{
    size_t len;
    bool fits = false;
    const char *answer = call_trial(p, c) ? frame_cut(p, f, &len, &fits) : NULL;
    strbuf_clear(out);
    if (answer)
        strbuf_add(out, answer, len);
    p->no_memory |= out->failed;
    return fits;
}

static void find_shape(struct prober *p, const struct call_trial *calls)
{
    struct template_traits *t = p->traits;
    struct answer_frame frame = {STRBUF_INIT, STRBUF_INIT};
    struct strbuf answer = STRBUF_INIT, whole = STRBUF_INIT;
    struct call_trial c = *calls;
    if (!t->takes_calls || !call_trial(p, &c) || !shape_cut_middle(t, strbuf_str(&p->out.text)))
        return;
    bool fits = frame_find(p, &frame) && answer_of(p, &frame, &c, &answer);
    t->has_call_shape = shape_cut_ends(t, strbuf_str(&answer)) && fits;
    c.n_calls = 2;
    if (t->has_call_shape && t->takes_several_calls)
        t->has_call_shape = answer_of(p, &frame, &c, &answer) &&
                            shape_cut_between(t, strbuf_str(&answer), &whole);
    p->no_memory |= t->first.failed || t->middle.failed || t->last.failed || t->between.failed ||
                    whole.failed;
    if (!t->has_call_shape) {
        strbuf_clear(&t->between);
        strbuf_clear(&t->last);
    }
    strbuf_free(&frame.before);
    strbuf_free(&frame.after);
    strbuf_free(&answer);
    strbuf_free(&whole);
}

int template_traits_find(struct template_traits *out, const struct chat_template *t,
                         const struct json *context, struct error *err)
{
    *out = (struct template_traits){0};
    if (!t)
        return 0;
    struct prober p = {.t = t, .context = context, .traits = out};
    struct call_trial calls = {
        .variables = "", .extra = "", .more = "", .n_calls = 1, .id = SHORT_ID, .id_2 = SHORT_ID_2};
    find_roles(&p);
    find_thinking_switch(&p);
    find_tools(&p);
    find_calls(&p, &calls);
    find_results(&p, &calls);
    find_reasoning(&p, &calls);
    find_shape(&p, &calls);
    rendering_free(&p.out);
    strbuf_free(&p.text);
    arena_free(&p.arena);
    if (!p.no_memory)
        return 0;
    template_traits_free(out);
    return error_set(err, ERROR_MEMORY, "no memory to try the chat template");
}

void template_traits_free(struct template_traits *t)
{
    strbuf_free(&t->first);
    strbuf_free(&t->middle);
    strbuf_free(&t->last);
    strbuf_free(&t->between);
    *t = (struct template_traits){0};
}
