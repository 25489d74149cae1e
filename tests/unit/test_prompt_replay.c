/* Replies that come back reuse the sampled ids: how far, and that the text is the same. */
#include "prompt/prompt.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/hash.h"
#include "test.h"
#include "test_memory.h"
#include "test_tokenizer_model.h"

#define USER(text)      "{\"role\": \"user\", \"content\": \"" text "\"}"
#define ASSISTANT(text) "{\"role\": \"assistant\", \"content\": \"" text "\"}"
#define END             "\x01" /* in sampled text: the end token */
#define START           "\x02" /* <|im_start|> */

/* One conversation on one tokenizer. */
struct talk {
    struct prompt_maker p;
    struct replay_store *store;
    uint64_t ns;
    const char *extra;
    struct prompt_digest before; /* of the last prompt */
};

static void talk_template(struct talk *t, const char *source)
{
    struct error err = {0};
    if (!source)
        return;
    chat_template_free(t->p.chat_template);
    t->p.chat_template = chat_template_parse(source, strlen(source), &err);
    if (!t->p.chat_template)
        test_fail(__FILE__, __LINE__, "%s", err.message);
    template_traits_free(&t->p.traits);
    CHECK_INT(template_traits_find(&t->p.traits, t->p.chat_template, NULL, &err), 0);
}

/* A token for each byte and ChatML, unless another template is given. */
static void talk_open(struct talk *t, const char *source)
{
    struct error err = {0};
    *t = (struct talk){0};
    CHECK(prompt_maker_open_bytes(&t->p, NULL, &err) == 0);
    CHECK(replay_store_open(&t->store, 1 << 20, &err) == 0);
    talk_template(t, source);
}

static void talk_close(struct talk *t)
{
    prompt_maker_close(&t->p);
    replay_store_close(t->store);
}

static struct prompt prompt_of(const struct talk *t, const char *messages, bool replay, bool map)
{
    struct arena arena = ARENA_INIT;
    struct error err = {0};
    char text[4096];
    snprintf(text, sizeof text, "[%s]", messages);
    struct prompt_input in = {.messages = json_parse(&arena, text, strlen(text), &err),
                              .replay = replay ? t->store : NULL,
                              .ns = t->ns,
                              .want_map = map};
    if (in.messages && t->extra)
        in.extra = json_parse(&arena, t->extra, strlen(t->extra), &err);
    struct prompt prompt;
    if (!in.messages || prompt_maker_chat(&t->p, &in, &prompt, &err) != 0)
        test_fail(__FILE__, __LINE__, "%s", err.message);
    arena_free(&arena);
    return prompt;
}

/* Tokens as text: special ones as [name], and with `cut` a | between the others. */
static void spell(const struct talk *t, const struct token_list *tokens, bool cut,
                  struct strbuf *out)
{
    for (size_t i = 0; i < tokens->len; i++) {
        size_t len;
        const char *bytes = tokenizer_bytes(t->p.tokenizer, tokens->ids[i], &len);
        bool special = tokenizer_is_special(t->p.tokenizer, tokens->ids[i]);
        strbuf_adds(out, special ? "[" : cut ? "|" : "");
        strbuf_add(out, bytes, len);
        strbuf_adds(out, special ? "]" : "");
    }
}

/* Sampled text as ids, a token for each byte. */
static size_t sample(const struct talk *t, const char *text, int32_t *ids)
{
    size_t n = 0;
    for (; *text; text++) {
        const char *special = *text == *END ? "<|im_end|>" : "<|im_start|>";
        ids[n] = *text == *END || *text == *START
                     ? tokenizer_find(t->p.tokenizer, special, strlen(special))
                     : tokenizer_find(t->p.tokenizer, text, 1);
        CHECK(ids[n++] >= 0);
    }
    return n;
}

static void ask(struct talk *t, const char *messages)
{
    struct prompt prompt = prompt_of(t, messages, true, false);
    t->before = prompt.digest;
    prompt_free(&prompt);
}

static void answer(struct talk *t, const char *sampled)
{
    int32_t ids[1024];
    size_t n = sample(t, sampled, ids);
    replay_store_add(t->store, t->ns, t->before, ids, n);
}

/* What is replayed, as "message: n of m, why; ...". The text must be the same as without a store.
 */
static const char *came_back(struct talk *t, const char *messages)
{
    static char out[512];
    struct prompt plain = prompt_of(t, messages, false, false);
    struct prompt prompt = prompt_of(t, messages, true, false);
    struct strbuf want = STRBUF_INIT, got = STRBUF_INIT;
    size_t n = 0, n_replayed = 0;
    spell(t, &plain.tokens, false, &want);
    spell(t, &prompt.tokens, false, &got);
    CHECK_STR(strbuf_str(&got), strbuf_str(&want));
    CHECK_INT(plain.n_replays + plain.n_replayed, 0);
    out[0] = '\0';
    for (size_t i = 0; i < prompt.n_replays; i++) {
        const struct prompt_replay *r = &prompt.replays[i];
        n += (size_t)snprintf(out + n, sizeof out - n, "%s%d: %zu of %zu, %s", i ? "; " : "",
                              r->message, r->n_tokens, r->n_sampled, replay_stop_name(r->stop));
        n_replayed += r->n_tokens;
    }
    CHECK_INT(prompt.n_replayed, n_replayed);
    t->before = prompt.digest;
    prompt_free(&plain);
    prompt_free(&prompt);
    strbuf_free(&want);
    strbuf_free(&got);
    return out;
}

TEST(prompt_replay, every_turn)
{
    struct talk t;
    talk_open(&t, NULL);
    CHECK_STR(came_back(&t, USER("Hi")), "");
    answer(&t, "Hello" END);
    CHECK_STR(came_back(&t, USER("Hi") "," ASSISTANT("Hello") "," USER("More")),
              "1: 6 of 6, complete");
    answer(&t, "No" END);
    CHECK_STR(came_back(&t, USER("Hi") "," ASSISTANT("Hello") "," USER("More") "," ASSISTANT(
                                "No") "," USER("Why")),
              "1: 6 of 6, complete; 3: 3 of 3, complete");
    /* The text before it differs: that answer was not sampled there. */
    CHECK_STR(came_back(&t, USER("Ho") "," ASSISTANT("Hello") "," USER("More")), "");
    CHECK_STR(came_back(&t, USER("Hi") "," ASSISTANT("Hullo") "," USER("More") "," ASSISTANT(
                                "No") "," USER("Why")),
              "1: 1 of 6, rewritten");
    talk_close(&t);
}

TEST(prompt_replay, namespaces_do_not_mix)
{
    struct talk t;
    talk_open(&t, NULL);
    t.ns = 7;
    ask(&t, USER("Hi"));
    answer(&t, "Hello" END);
    t.ns = 8;
    CHECK_STR(came_back(&t, USER("Hi") "," ASSISTANT("Hello")), "");
    t.ns = 7;
    CHECK_STR(came_back(&t, USER("Hi") "," ASSISTANT("Hello")), "1: 6 of 6, complete");
    talk_close(&t);
}

TEST(prompt_replay, only_the_assistants_text_is_replaced)
{
    struct talk t;
    talk_open(&t, "{% for m in messages %}{{ '<|im_start|>' ~ m.content ~ '<|im_end|>' }}"
                  "{% endfor %}{{ '<|im_start|>' if add_generation_prompt }}");
    ask(&t, USER("Hi"));
    answer(&t, "Hello" END START "Hello" END);
    /* The same bytes from another author are tokenized as usual. */
    CHECK_STR(came_back(&t, USER("Hi") "," USER("Hello")), "");
    CHECK_STR(came_back(&t, USER("Hi") ",{\"role\": \"tool\", \"content\": \"Hello\"}"), "");
    /* And those of the next message, even if the model had written them too. */
    CHECK_STR(came_back(&t, USER("Hi") "," ASSISTANT("Hello") "," USER("Hello")),
              "1: 7 of 13, shortened");
    talk_close(&t);
}

TEST(prompt_replay, several_answers)
{
    struct talk t;
    talk_open(&t, NULL);
    ask(&t, USER("Hi"));
    answer(&t, "Hello" END);
    answer(&t, "Help me" END);
    answer(&t, "Good day" END);
    CHECK_STR(came_back(&t, USER("Hi") "," ASSISTANT("Hello")), "1: 6 of 6, complete");
    CHECK_STR(came_back(&t, USER("Hi") "," ASSISTANT("Help me")), "1: 8 of 8, complete");
    CHECK_STR(came_back(&t, USER("Hi") "," ASSISTANT("Good day")), "1: 9 of 9, complete");
    CHECK_STR(came_back(&t, USER("Hi") "," ASSISTANT("Helmut")), "1: 3 of 8, rewritten");
    CHECK_STR(came_back(&t, USER("Hi") "," ASSISTANT("")), "");
    talk_close(&t);
}

TEST(prompt_replay, answers_that_were_cut)
{
    struct talk t;
    talk_open(&t, NULL);
    ask(&t, USER("Hi"));
    answer(&t, "Hello wor"); /* its length ran out */
    CHECK_STR(came_back(&t, USER("Hi") "," ASSISTANT("Hello wor")), "1: 9 of 9, complete");
    CHECK_STR(came_back(&t, USER("Hi") "," ASSISTANT("Hello world")), "1: 9 of 9, complete");
    CHECK_STR(came_back(&t, USER("Hi") "," ASSISTANT("Hello")), "1: 5 of 9, shortened");
    t.extra = "{\"add_generation_prompt\": false}"; /* the text ends with the message */
    CHECK_STR(came_back(&t, USER("Hi") "," ASSISTANT("Hello wo")), "1: 8 of 9, shortened");
    talk_close(&t);
}

/* ---- special tokens and what looks like them ---- */

TEST(prompt_replay, spelled_special_tokens_stay_text)
{
    struct talk t;
    talk_open(&t, NULL);
    ask(&t, USER("Say <|im_end|>"));
    answer(&t, "<|im_end|>" END);
    CHECK_STR(came_back(&t, USER("Say <|im_end|>") "," ASSISTANT("<|im_end|>") "," USER("ok")),
              "1: 11 of 11, complete");
    talk_close(&t);
    /* The special token was sampled in the middle, where the client's text has none. */
    talk_open(&t, NULL);
    ask(&t, USER("a"));
    answer(&t, "x" END "y" END);
    CHECK_STR(came_back(&t, USER("a") "," ASSISTANT("x<|im_end|>y")), "1: 1 of 4, rewritten");
    CHECK_STR(came_back(&t, USER("a") "," ASSISTANT("xy")), "1: 1 of 4, stripped");
    CHECK_STR(came_back(&t, USER("a") "," ASSISTANT("x")), "1: 2 of 4, shortened");
    talk_close(&t);
    /* It ended with a token that the template does not write. */
    talk_open(&t, NULL);
    ask(&t, USER("a"));
    answer(&t, "x" START);
    CHECK_STR(came_back(&t, USER("a") "," ASSISTANT("x")), "1: 1 of 2, ended");
    CHECK_STR(came_back(&t, USER("a") "," ASSISTANT("x<|im_start|>")), "1: 1 of 2, rewritten");
    talk_close(&t);
    /* The model spelled what the template writes as a special token. */
    talk_open(&t, NULL);
    ask(&t, USER("a"));
    answer(&t, "x<|im_end|>\n");
    CHECK_STR(came_back(&t, USER("a") "," ASSISTANT("x")), "1: 1 of 12, shortened");
    CHECK_STR(came_back(&t, USER("a") "," ASSISTANT("x<|im_end|>\\n")), "1: 12 of 12, complete");
    talk_close(&t);
}

TEST(prompt_replay, ids_that_mean_nothing)
{
    static const int32_t bad[] = {-1, 259, 100000, INT32_MIN, INT32_MAX};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct talk t;
        talk_open(&t, NULL);
        ask(&t, USER("a"));
        replay_store_add(t.store, 0, t.before, (int32_t[]){'x', bad[i], 'y'}, 3);
        CHECK_STR(came_back(&t, USER("a") "," ASSISTANT("xy")), "1: 1 of 3, stripped");
        replay_store_add(t.store, 0, t.before, (int32_t[]){bad[i]}, 1);
        talk_close(&t);
    }
}

/* Half a character came to the client as U+FFFD. */
TEST(prompt_replay, half_a_character)
{
    struct talk t;
    talk_open(&t, NULL);
    ask(&t, USER("a"));
    answer(&t, "caf\xc3");
    CHECK_STR(came_back(&t, USER("a") "," ASSISTANT("caf\xef\xbf\xbd")), "1: 3 of 4, rewritten");
    CHECK_STR(came_back(&t, USER("a") "," ASSISTANT("caf\xc3\xa9")), "1: 4 of 4, complete");
    talk_close(&t);
}

/* ---- templates ---- */

#define LOOP(body)                                                                                 \
    "{% for m in messages %}<|im_start|>{{ m.role }}\n" body "<|im_end|>\n{% endfor %}"            \
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"

TEST(prompt_replay, templates_that_trim)
{
    struct talk t;
    talk_open(&t, LOOP("{{ m.content | trim }}"));
    ask(&t, USER("a"));
    answer(&t, "  Hello\n\n" END);
    CHECK_STR(came_back(&t, USER("a") "," ASSISTANT("  Hello\\n\\n")), "1: 0 of 10, trimmed");
    ask(&t, USER("a"));
    answer(&t, "Hello\n\n" END);
    CHECK_STR(came_back(&t, USER("a") "," ASSISTANT("Hello\\n\\n")), "1: 5 of 8, trimmed");
    talk_close(&t);
    /* The client trims. */
    talk_open(&t, NULL);
    ask(&t, USER("a"));
    answer(&t, "Hello \n" END);
    CHECK_STR(came_back(&t, USER("a") "," ASSISTANT("Hello")), "1: 5 of 8, trimmed");
    CHECK_STR(came_back(&t, USER("a") "," ASSISTANT("Hello ")), "1: 6 of 8, trimmed");
    talk_close(&t);
}

TEST(prompt_replay, templates_that_rewrite)
{
    struct talk t;
    talk_open(&t, LOOP("{{ m.content | upper }}"));
    ask(&t, USER("a"));
    answer(&t, "HI there" END);
    CHECK_STR(came_back(&t, USER("a") "," ASSISTANT("HI there")), "1: 3 of 9, rewritten");
    talk_close(&t);
    talk_open(&t, LOOP("{{ m.content | replace('l', 'LL') }}"));
    ask(&t, USER("a"));
    answer(&t, "hello" END);
    CHECK_STR(came_back(&t, USER("a") "," ASSISTANT("hello")), "1: 2 of 6, rewritten");
    talk_close(&t);
}

/* The text that the template puts around a message may have been sampled. */
TEST(prompt_replay, goes_through_the_templates_words)
{
    struct talk t;
    talk_open(&t, LOOP("{{ '> ' if m.role == 'assistant' }}{{ m.content }}{{ ' <' }}"));
    ask(&t, USER("a"));
    answer(&t, "> Hello <" END "\n" START "user\n");
    CHECK_STR(came_back(&t, USER("a") "," ASSISTANT("Hello") "," USER("b")),
              "1: 17 of 17, complete");
    talk_close(&t);
}

/* The generation prompt may end anywhere in what the template writes before the message; of two
 * that fit, the one that goes further is taken. */
TEST(prompt_replay, generation_prompts_that_differ)
{
    struct talk t;
    talk_open(&t, "{% for m in messages %}<|im_start|>{{ m.role }}\n"
                  "{{ '<think>\n\n</think>\n\n' if m.role == 'assistant' }}{{ m.content }}"
                  "<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
                  "{{ '<think>\n\n</think>\n\n' if not think }}");
    ask(&t, USER("a"));
    answer(&t, "Yes.");
    t.extra = "{\"think\": true}";
    ask(&t, USER("a"));
    answer(&t, "<think>\nWell.\n</think>\n\nYes, yes." END);
    CHECK_STR(came_back(&t, USER("a") "," ASSISTANT("Yes.")), "1: 4 of 4, complete");
    CHECK_STR(came_back(&t, USER("a") "," ASSISTANT("No.")), "1: 8 of 34, rewritten");
    ask(&t, USER("a"));
    answer(&t, "<think>\n\n</think>\n\nYes." END);
    CHECK_STR(came_back(&t, USER("a") "," ASSISTANT("Yes.")), "1: 24 of 24, complete");
    /* The template writes text that was not sampled. */
    CHECK_STR(came_back(&t, USER("b")), "");
    answer(&t, "Sure." END);
    CHECK_STR(came_back(&t, USER("b") "," ASSISTANT("Sure.")), "1: 0 of 6, rewritten");
    talk_close(&t);
}

/* Two answers in a row: the second begins where the first one's span ends. */
TEST(prompt_replay, neighbours)
{
    struct talk t;
    talk_open(&t, NULL);
    ask(&t, USER("a"));
    answer(&t, "x" END "\n" START "assistant\n");
    CHECK_STR(came_back(&t, USER("a") "," ASSISTANT("x")), "1: 14 of 14, complete");
    answer(&t, "y" END);
    CHECK_STR(came_back(&t, USER("a") "," ASSISTANT("x") "," ASSISTANT("y")),
              "1: 14 of 14, complete; 2: 2 of 2, complete");
    CHECK_STR(came_back(&t, USER("a") "," ASSISTANT("x") "," ASSISTANT("") "," ASSISTANT("y")),
              "1: 14 of 14, complete; 3: 0 of 2, rewritten");
    /* One that would begin inside the first one's span is not looked for. */
    t.extra = "{\"add_generation_prompt\": false}";
    ask(&t, USER("a") "," ASSISTANT("x"));
    answer(&t, START "assistant\ny" END);
    CHECK_STR(came_back(&t, USER("a") "," ASSISTANT("x") "," ASSISTANT("y")),
              "1: 14 of 14, complete; 2: 2 of 2, complete");
    talk_close(&t);
}

#define TOOLS                                                                                      \
    LOOP("{% if m.content %}{{ m.content }}{% endif %}{% for c in m.tool_calls or [] %}"           \
         "<tool_call>\n{{ c.function | tojson }}\n</tool_call>{% endfor %}")
#define CALL(arguments)                                                                            \
    "{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"function\": {\"name\": "     \
    "\"f\", \"arguments\": " arguments "}}]}"

TEST(prompt_replay, tool_calls)
{
    struct talk t;
    talk_open(&t, TOOLS);
    ask(&t, USER("a"));
    answer(&t, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call>" END);
    CHECK_STR(came_back(&t, USER("a") "," CALL("{\"x\": 1}") "," USER("b")),
              "1: 62 of 62, complete");
    talk_close(&t);
    talk_open(&t, TOOLS); /* without the spaces */
    ask(&t, USER("a"));
    answer(&t, "<tool_call>\n{\"name\":\"f\",\"arguments\":{\"x\":1}}\n</tool_call>" END);
    CHECK_STR(came_back(&t, USER("a") "," CALL("{\"x\": 1}") "," USER("b")),
              "1: 20 of 58, rewritten");
    talk_close(&t);
}

#define THINKS(reasoning, text)                                                                    \
    "{\"role\": \"assistant\", \"reasoning_content\": \"" reasoning "\", \"content\": \"" text "\"}"
#define THOUGHT                                                                                    \
    "{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}"

TEST(prompt_replay, thinking)
{
    struct talk t;
    /* The model wrote <think>. */
    talk_open(&t, LOOP(THOUGHT "{{ m.content }}"));
    ask(&t, USER("a"));
    answer(&t, "<think>\nHm.\n</think>\n\nYes." END);
    CHECK_STR(came_back(&t, USER("a") "," THINKS("Hm.", "Yes.") "," USER("b")),
              "1: 27 of 27, complete");
    /* The client does not send it back. */
    CHECK_STR(came_back(&t, USER("a") "," ASSISTANT("Yes.") "," USER("b")), "1: 0 of 27, stripped");
    talk_close(&t);
    /* The generation prompt wrote it. */
    talk_open(&t, LOOP(THOUGHT "{{ m.content }}") "{{ '<think>\n' if add_generation_prompt }}");
    ask(&t, USER("a"));
    answer(&t, "Hm.\n</think>\n\nYes." END);
    CHECK_STR(came_back(&t, USER("a") "," THINKS("Hm.", "Yes.") "," USER("b")),
              "1: 19 of 19, complete");
    talk_close(&t);
    /* The template omits it from past messages. */
    talk_open(&t, LOOP("{{ m.content.split('</think>')[-1].lstrip('\n') }}"));
    ask(&t, USER("a"));
    answer(&t, "<think>\nHm.\n</think>\n\nYes." END);
    CHECK_STR(came_back(&t, USER("a") "," ASSISTANT("<think>\\nHm.\\n</think>\\n\\nYes.")),
              "1: 0 of 27, stripped");
    talk_close(&t);
}

/* ---- other tokenisations ---- */

static void model_open(struct talk *t)
{
    struct chat_defaults chat;
    struct error err = {0};
    *t = (struct talk){0};
    if (prompt_maker_open(&t->p, model_chat(test_model_path(), &chat), &chat, NULL, &err) ||
        replay_store_open(&t->store, 1 << 20, &err))
        test_fail(__FILE__, __LINE__, "%s", err.message);
}

TEST(prompt_replay, default_model)
{
    if (!test_model_path())
        SKIP("no default model");
    struct talk t;
    model_open(&t);
    ask(&t, USER("Hi"));
    struct prompt first = prompt_of(&t, USER("Hi"), true, false);
    static const char said[] = "  Hello  world, 12 caf\xc3\xa9s\n";
    int32_t ids[256];
    size_t n = sample(&t, "  Hello  world, 12 caf\xc3\xa9s\n" END, ids);
    replay_store_add(t.store, 0, first.digest, ids, n);
    CHECK_INT(n, sizeof said); /* a token for each byte and the end */
    static const char next[] = USER("Hi") "," ASSISTANT(
        "  Hello  world, 12 caf\xc3\xa9s\\n") "," USER("Why?");
    CHECK_STR(came_back(&t, next), "1: 27 of 27, complete");

    /* The second prompt begins with the first one's tokens and the sampled ones, and continues as
     * it would without them. */
    struct prompt second = prompt_of(&t, next, true, false);
    struct prompt plain = prompt_of(&t, next, false, false);
    size_t len = first.tokens.len;
    CHECK(second.tokens.len > len + n && second.tokens.len > plain.tokens.len);
    CHECK(memcmp(second.tokens.ids, first.tokens.ids, len * sizeof *ids) == 0);
    CHECK(memcmp(second.tokens.ids + len, ids, n * sizeof *ids) == 0);
    CHECK_INT(second.replays[0].first_token, len);
    CHECK_INT(second.replays[0].n_bytes, sizeof said - 1 + strlen("<|im_end|>"));
    size_t rest = second.tokens.len - len - n;
    CHECK(memcmp(second.tokens.ids + len + n, plain.tokens.ids + plain.tokens.len - rest,
                 rest * sizeof *ids) == 0);
    prompt_free(&first);
    prompt_free(&second);
    prompt_free(&plain);
    talk_close(&t);
}

struct dice {
    uint64_t seed, n;
};

static size_t roll(struct dice *d, size_t sides)
{
    return hash_pair(d->seed, d->n++) % sides;
}

static void message_add(struct arena *arena, struct json *messages, const char *role,
                        const char *text, size_t len)
{
    struct json *message = json_new(arena, JSON_OBJECT);
    json_append(arena, message, "role", json_new_string(arena, role, strlen(role)));
    json_append(arena, message, "content",
                json_new_string(arena, arena_copy(arena, text, len), len));
    json_append(arena, messages, NULL, message);
}

/* A text of words, punctuation and things that look like special tokens, and some tokens that spell
 * it. */
static size_t random_answer(const struct talk *t, struct dice *d, char *text, int32_t *ids,
                            size_t *n_ids)
{
    static const char *const words[] = {" the",
                                        "Hello",
                                        "\n\n",
                                        "  ",
                                        "caf\xc3\xa9",
                                        "12",
                                        "!",
                                        "<|im_end|>",
                                        "\xf0\x9f\x98\x80",
                                        "assistant\n",
                                        "<"};
    size_t len = 0, at = 0;
    for (size_t i = 1 + roll(d, 12); i-- > 0;) {
        const char *word = words[roll(d, sizeof words / sizeof *words)];
        memcpy(text + len, word, strlen(word));
        len += strlen(word);
    }
    while (at < len) {
        size_t piece = 1 + roll(d, 6);
        int32_t id = -1;
        for (piece = piece < len - at ? piece : len - at; piece > 0; piece--)
            if ((id = tokenizer_find(t->p.tokenizer, text + at, piece)) >= 0 &&
                !tokenizer_is_special(t->p.tokenizer, id))
                break;
        ids[(*n_ids)++] = id;
        at += piece;
    }
    ids[(*n_ids)++] = tokenizer_eos(t->p.tokenizer);
    return len;
}

static void check_turn(const struct talk *t, const struct json *messages, struct prompt *out)
{
    struct error err = {0};
    struct prompt_input in = {.messages = messages, .replay = t->store};
    struct prompt_input without = {.messages = messages};
    struct prompt plain;
    struct strbuf want = STRBUF_INIT, got = STRBUF_INIT;
    CHECK(prompt_maker_chat(&t->p, &in, out, &err) == 0);
    CHECK(prompt_maker_chat(&t->p, &without, &plain, &err) == 0);
    spell(t, &plain.tokens, false, &want);
    spell(t, &out->tokens, false, &got);
    CHECK_STR(strbuf_str(&got), strbuf_str(&want));
    strbuf_free(&want);
    strbuf_free(&got);
    prompt_free(&plain);
}

/* Conversations with answers in random tokens. With honest ids each prompt begins with the prompt
 * before it and its answer; with ids that were changed the text is still the same. */
static void random_talk(const struct talk *t, struct dice *d, bool honest)
{
    struct arena arena = ARENA_INIT;
    struct json *messages = json_new(&arena, JSON_ARRAY);
    struct token_list before = {0};
    char text[512];
    int32_t ids[512];
    for (size_t turn = 0; turn < 4; turn++) {
        struct prompt prompt;
        message_add(&arena, messages, "user", "Why <|im_end|>?", roll(d, 16));
        check_turn(t, messages, &prompt);
        CHECK(!honest || prompt.tokens.len > before.len);
        CHECK(!honest || before.len == 0 ||
              memcmp(prompt.tokens.ids, before.ids, before.len * sizeof *before.ids) == 0);
        CHECK(!honest || prompt.n_replays == turn);
        for (size_t i = 0; honest && i < prompt.n_replays; i++)
            CHECK_INT(prompt.replays[i].stop, REPLAY_COMPLETE);
        size_t n = 0, len = random_answer(t, d, text, ids, &n);
        for (size_t i = honest ? 0 : roll(d, 4); i-- > 0;)
            ids[roll(d, n)] = roll(d, 2) ? (int32_t)roll(d, 60000) - 100
                                         : tokenizer_eos(t->p.tokenizer);
        replay_store_add(t->store, 0, prompt.digest, ids, n);
        message_add(&arena, messages, "assistant", text, len);
        before.len = 0;
        for (size_t i = 0; i < prompt.tokens.len; i++)
            CHECK(token_list_add(&before, prompt.tokens.ids[i]));
        for (size_t i = 0; i < n; i++)
            CHECK(token_list_add(&before, ids[i]));
        prompt_free(&prompt);
    }
    token_list_free(&before);
    arena_free(&arena);
}

TEST(prompt_replay, random_answers)
{
    if (!test_model_path())
        SKIP("no default model");
    struct talk t;
    model_open(&t);
    for (uint64_t seed = 0; seed < 300; seed++)
        random_talk(&t, &(struct dice){.seed = seed}, seed % 2);
    talk_close(&t);
}

/* ---- tokens that are more than bytes ---- */

static void vocab_open_talk(struct talk *t, struct vocab *v, const char *source)
{
    char path[4096];
    struct error err = {0};
    *t = (struct talk){0};
    snprintf(path, sizeof path, "%s/replay.gguf", test_scratch_dir());
    if (vocab_open(v, path, &t->p.tokenizer, &err) || replay_store_open(&t->store, 1 << 20, &err))
        test_fail(__FILE__, __LINE__, "%s", err.message);
    t->p.drafts = calloc(1, sizeof *t->p.drafts);
    CHECK(t->p.drafts);
    talk_template(t, source);
}

/* The prompt with a | before each token, special ones as [name]. */
static const char *cut(struct talk *t, const char *messages)
{
    static char out[512];
    struct strbuf text = STRBUF_INIT;
    struct prompt prompt = prompt_of(t, messages, true, false);
    spell(t, &prompt.tokens, true, &text);
    snprintf(out, sizeof out, "%s", strbuf_str(&text));
    t->before = prompt.digest;
    strbuf_free(&text);
    prompt_free(&prompt);
    return out;
}

static void answer_ids(struct talk *t, const int32_t *ids, size_t n)
{
    replay_store_add(t->store, t->ns, t->before, ids, n);
}

#define IDS(...) (const int32_t[]){__VA_ARGS__}, sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t)

static void spm_open(struct talk *t, const char *source)
{
    struct vocab v = {.model = "llama"};
    vocab_add(&v, "<unk>", 5, 2, 0);
    vocab_add(&v, "<s>", 3, 3, 0);
    vocab_add(&v, "</s>", 4, 3, 0);
    vocab_add(&v, "\xe2\x96\x81", 3, 1, -5); /* 3 */
    vocab_add(&v, "a", 1, 1, -6);            /* 4 */
    vocab_add(&v, "b", 1, 1, -7);            /* 5 */
    vocab_add(&v, "ab", 2, 1, -2);           /* 6 */
    vocab_add(&v,
              "\xe2\x96\x81"
              "a",
              4, 1, -1);                                 /* 7 */
    vocab_add(&v, "\xe2\x96\x81\xe2\x96\x81", 6, 1, -3); /* 8 */
    vocab_add(&v, "<bot>", 5, 3, 0);                     /* 9: control */
    vocab_add(&v, "<think>", 7, 4, 0);                   /* 10: user-defined */
    vocab_open_talk(t, &v, source);
}

TEST(prompt_replay, sentencepiece_after_a_special_token)
{
    struct talk t;
    spm_open(&t, "{% for m in messages %}{{ '<s>' if m.role == 'user' else '<bot>' }}"
                 "{{ m.content }}{% endfor %}{{ '<bot>' if messages | length == 1 }}");
    CHECK_STR(cut(&t, USER("ba")), "[<s>]| |b|a[<bot>]");
    /* " a" was sampled and the client got " a": no extra space. */
    answer_ids(&t, IDS(7, 5, 2));
    CHECK_STR(cut(&t, USER("ba") "," ASSISTANT(" ab") "," USER("b")),
              "[<s>]| |b|a[<bot>]| a|b[<s>]| |b");
    /* The client removed the space: it is the one that the tokenizer adds. */
    CHECK_STR(cut(&t, USER("ba") "," ASSISTANT("ab") "," USER("b")),
              "[<s>]| |b|a[<bot>]| a|b[<s>]| |b");
    CHECK_STR(came_back(&t, USER("ba") "," ASSISTANT("ab")), "1: 2 of 3, ended");
    /* After the replayed tokens the text continues, without a space. */
    CHECK_STR(cut(&t, USER("ba") "," ASSISTANT(" abab")), "[<s>]| |b|a[<bot>]| a|b|ab");
    CHECK_STR(cut(&t, USER("ba") "," ASSISTANT("aba")), "[<s>]| |b|a[<bot>]| a|b|a");
    talk_close(&t);
    spm_open(&t, "{% for m in messages %}<s>{{ m.content }}{% endfor %}"
                 "{{ '<s>' if messages | length == 1 }}");
    CHECK_STR(cut(&t, USER("b")), "[<s>]| |b[<s>]");
    answer_ids(&t, IDS(4)); /* no space at all */
    CHECK_STR(cut(&t, USER("b") "," ASSISTANT("ab")), "[<s>]| |b[<s>]|a|b");
    answer_ids(&t, IDS(3)); /* that one goes to another prompt */
    CHECK_STR(cut(&t, USER("b")), "[<s>]| |b[<s>]");
    answer_ids(&t, IDS(3, 5)); /* nothing but the space agrees */
    CHECK_STR(cut(&t, USER("b") "," ASSISTANT("ba")), "[<s>]| |b[<s>]| |b|a");
    talk_close(&t);
}

TEST(prompt_replay, sentencepiece_in_the_middle_of_a_text)
{
    struct talk t;
    spm_open(&t, "<s>{% for m in messages %}{{ m.content | trim }}"
                 "{{ '|' if m.role == 'user' else '</s>' }}"
                 "{{ ' ' if m.role == 'user' and not loop.last }}{% endfor %}");
    CHECK_STR(cut(&t, USER("b")), "[<s>]| |b[<unk>]"); /* | is not in the vocabulary */
    answer_ids(&t, IDS(7, 4, 2));
    CHECK_STR(cut(&t, USER("b") "," ASSISTANT(" aa") "," USER("b")),
              "[<s>]| |b[<unk>]| a|a[</s>]| |b[<unk>]");
    CHECK_STR(came_back(&t, USER("b") "," ASSISTANT(" aa") "," USER("b")), "1: 3 of 3, complete");
    talk_close(&t);
}

TEST(prompt_replay, user_defined_tokens)
{
    struct talk t;
    spm_open(&t, "{% for m in messages %}<s>{{ m.content }}{% endfor %}"
                 "{{ '<s>' if messages | length == 1 }}");
    CHECK_STR(cut(&t, USER("b<think>")), "[<s>]| |b|<think>[<s>]");
    answer_ids(&t, IDS(10, 4, 5, 10, 2));
    /* It is text like any other, whoever wrote it, but a new text begins after it. */
    CHECK_STR(cut(&t, USER("b<think>") "," ASSISTANT("<think>ab<think>a")),
              "[<s>]| |b|<think>[<s>]|<think>|a|b|<think>| a");
    talk_close(&t);
}

/* ---- the map ---- */

static const char *map_of(struct talk *t, const char *messages, size_t *n_replayed)
{
    static char out[512];
    struct prompt prompt = prompt_of(t, messages, true, true);
    size_t n = 0, before = 0;
    out[0] = '\0';
    for (size_t i = 0; i < prompt.n_map; i++) {
        CHECK(prompt.map[i].token_end > before);
        CHECK(i == 0 || prompt.map[i].source != prompt.map[i - 1].source);
        n += (size_t)snprintf(out + n, sizeof out - n, "%d:%zu ", prompt.map[i].source,
                              prompt.map[i].token_end - before);
        before = prompt.map[i].token_end;
    }
    CHECK_INT(before, prompt.tokens.len);
    *n_replayed = prompt.n_replayed;
    t->before = prompt.digest;
    prompt_free(&prompt);
    return out;
}

TEST(prompt_replay, map_of_sources)
{
    struct talk t;
    size_t n;
    talk_open(&t, NULL);
    CHECK_STR(map_of(&t, USER("Hi"), &n), "-1:6 0:2 -1:13 ");
    answer(&t, "Hello" END);
    CHECK_STR(map_of(&t, USER("Hi") "," ASSISTANT("Hello") "," USER("x"), &n),
              "-1:6 0:2 -1:13 1:5 -1:8 2:1 -1:13 ");
    CHECK_INT(n, 6);
    t.extra = "{\"add_generation_prompt\": false}";
    CHECK_STR(map_of(&t, "", &n), "");
    struct prompt plain = prompt_of(&t, USER("Hi"), true, false);
    CHECK(plain.map == NULL && plain.n_map == 0);
    prompt_free(&plain);
    talk_close(&t);

    /* A space that is not in the text, unknown characters in a row, U+2581. */
    spm_open(&t, "{{ date }}</s>{% for m in messages %}<s>{{ m.content }}{% endfor %}");
    t.extra = "{\"date\": \"ab\"}";
    t.p.adds_bos = true;
    CHECK_STR(cut(&t, USER("abxyz\xc3\xa9\xe2\x96\x81"
                           "b") "," USER("b")),
              "[<s>]| a|b[</s>][<s>]| a|b[<unk>]| |b[<s>]| |b");
    CHECK_STR(map_of(&t,
                     USER("abxyz\xc3\xa9\xe2\x96\x81"
                          "b") "," USER("b"),
                     &n),
              "-1:1 -2:2 -1:2 0:5 -1:1 1:2 ");
    talk_close(&t);
}

/* ---- hostile ---- */

TEST(prompt_replay, huge_messages)
{
    struct talk t;
    struct arena arena = ARENA_INIT;
    struct error err = {0};
    enum { LEN = 3 << 20 };
    talk_open(&t, "{% for m in messages %}{{ 'x' * 300000 }}{{ m.content }}{% endfor %}"
                  "{{ 'x' * 300000 }}");
    replay_store_close(t.store);
    CHECK(replay_store_open(&t.store, 64 << 20, &err) == 0);
    char *text = malloc(LEN);
    int32_t *ids = malloc(LEN * sizeof *ids);
    CHECK(text && ids);
    for (size_t i = 0; i < LEN; i++)
        ids[i] = text[i] = 'x';
    struct json *messages = json_new(&arena, JSON_ARRAY);
    struct prompt_input in = {.messages = messages, .replay = t.store};
    struct prompt prompt;
    CHECK(prompt_maker_chat(&t.p, &in, &prompt, &err) == 0);
    replay_store_add(t.store, 0, prompt.digest, ids, LEN);
    prompt_free(&prompt);
    struct json *message = json_new(&arena, JSON_OBJECT);
    json_append(&arena, message, "role", json_new_string(&arena, "assistant", 9));
    json_append(&arena, message, "content", json_new_string(&arena, text, LEN));
    json_append(&arena, messages, NULL, message);
    CHECK(prompt_maker_chat(&t.p, &in, &prompt, &err) == 0);
    CHECK_INT(prompt.tokens.len, LEN + 600000);
    CHECK_INT(prompt.n_replayed, LEN);
    CHECK_INT(prompt.replays[0].first_token, 300000);
    prompt_free(&prompt);
    arena_free(&arena);
    free(text);
    free(ids);
    talk_close(&t);
}

/* A long conversation that comes back takes memory only for its result: its tokens (by realloc,
 * which is not counted here) and the report of its answers. */
TEST(prompt_replay, steady_state_allocates_what_it_gives)
{
    struct talk t;
    struct arena arena = ARENA_INIT;
    struct error err = {0};
    enum { N = 61 };
    talk_open(&t, NULL);
    struct json *messages = json_new(&arena, JSON_ARRAY);
    struct prompt_input in = {.messages = messages, .replay = t.store};
    struct prompt prompt;
    for (int i = 0; i < N; i++) {
        if (i % 2) {
            CHECK(prompt_maker_chat(&t.p, &in, &prompt, &err) == 0);
            replay_store_add(t.store, 0, prompt.digest, IDS('H', 'e', 'l', 'l', 'o'));
            prompt_free(&prompt);
        }
        message_append(&arena, messages, i % 2 ? "assistant" : "user", "Hello", 5);
    }
    CHECK(prompt_maker_chat(&t.p, &in, &prompt, &err) == 0);
    CHECK_INT(prompt.n_replays, N / 2);
    for (uint32_t n = 0; n < 2; n++) {
        struct prompt again;
        memory_ends_after(n);
        int status = prompt_maker_chat(&t.p, &in, &again, &err);
        memory_is_back();
        CHECK_INT(status, n ? 0 : -1);
        if (n == 0) {
            CHECK_INT(err.code, ERROR_MEMORY);
            continue;
        }
        CHECK_INT(again.tokens.len, prompt.tokens.len);
        CHECK(memcmp(again.tokens.ids, prompt.tokens.ids,
                     prompt.tokens.len * sizeof *prompt.tokens.ids) == 0);
        CHECK_INT(again.n_replayed, prompt.n_replayed);
        prompt_free(&again);
    }
    prompt_free(&prompt);
    arena_free(&arena);
    talk_close(&t);
}

/* Whichever allocation fails, the call fails as a whole, and leaves a valid state for the next one.
 */
TEST(prompt_replay, without_memory_it_says_so)
{
    struct talk t;
    struct arena arena = ARENA_INIT;
    struct error err = {0};
    struct prompt want, got;
    struct json *messages = json_new(&arena, JSON_ARRAY);
    talk_open(&t, NULL);
    ask(&t, USER("Hi"));
    answer(&t, "Hello" END);
    message_append(&arena, messages, "user", "Hi", 2);
    message_append(&arena, messages, "assistant", "Hello", 5);
    struct prompt_input in = {.messages = messages, .replay = t.store, .want_map = true};
    CHECK(prompt_maker_chat(&t.p, &in, &want, &err) == 0);
    for (uint32_t n = 0; n < 100; n++) {
        prompt_maker_close(&t.p);
        CHECK(prompt_maker_open_bytes(&t.p, NULL, &err) == 0);
        memory_ends_after(n);
        int status = prompt_maker_chat(&t.p, &in, &got, &err);
        memory_is_back();
        if (status == 0) {
            CHECK(n >= 4);
            prompt_free(&got);
            break;
        }
        CHECK(err.code == ERROR_MEMORY || err.code == ERROR_LIMIT);
        CHECK(prompt_maker_chat(&t.p, &in, &got, &err) == 0);
        CHECK_INT(got.tokens.len, want.tokens.len);
        CHECK(memcmp(got.tokens.ids, want.tokens.ids, want.tokens.len * sizeof *want.tokens.ids) ==
              0);
        CHECK_INT(got.n_replays, 1);
        prompt_free(&got);
    }
    prompt_free(&want);
    arena_free(&arena);
    talk_close(&t);
}

/* Workers make prompts while answers are added and removed. */
static void *worker_run(void *arg)
{
    struct talk *t = arg;
    for (int i = 0; i < 200; i++) {
        struct prompt one = prompt_of(t, USER("Hi"), true, false);
        struct prompt two = prompt_of(t, USER("Hi") "," ASSISTANT("Hello there") "," USER("More"),
                                      true, true);
        if (two.n_replays)
            CHECK_INT(two.n_replayed, two.replays[0].n_tokens);
        replay_store_add(t->store, t->ns, one.digest, one.tokens.ids, 1 + (size_t)i % 8);
        replay_store_add(t->store, t->ns, one.digest, IDS('H', 'e', 'l', 'l', 'o'));
        prompt_free(&one);
        prompt_free(&two);
    }
    return NULL;
}

TEST(prompt_replay, threads)
{
    struct talk t;
    pthread_t threads[4];
    talk_open(&t, NULL);
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, worker_run, &t) == 0);
    for (int i = 0; i < 100; i++)
        replay_store_clear_all(t.store);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    CHECK_STR(came_back(&t, USER("Hi") "," ASSISTANT("Hello there")), "1: 5 of 5, complete");
    talk_close(&t);
}
