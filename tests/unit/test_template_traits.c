/* What templates accept: each trait with a template made for it, and the real templates of the
 * shared data; the well-known ones were checked by hand. */
#include "prompt/jinja/template_traits.h"

#include <stdlib.h>

#include "base/clock.h"
#include "test.h"
#include "test_memory.h"

static const char context_text[] = "{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\"}";

static int traits_of(struct template_traits *out, const char *source, size_t len)
{
    struct error err = {0};
    struct arena arena = ARENA_INIT;
    struct json *context = json_parse(&arena, context_text, strlen(context_text), &err);
    struct chat_template *t = chat_template_parse(source, len, &err);
    if (!t)
        test_fail(__FILE__, __LINE__, "%s", err.message);
    int failed = template_traits_find(out, t, context, &err);
    chat_template_free(t);
    arena_free(&arena);
    return failed;
}

/* The traits in one line, in a fixed order. */
static const char *describe(const struct template_traits *t)
{
    static char line[256];
    snprintf(line, sizeof line, "%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s %s%s%s%s",
             t->takes_system ? "system" : "-", t->takes_several_systems ? " several" : "",
             t->takes_late_systems ? " late" : "", t->wants_alternation ? " alternate" : "",
             t->takes_tools ? " tools" : "", t->takes_calls ? " calls" : "",
             t->takes_several_calls ? " parallel" : "", t->takes_results ? " results" : "",
             t->wants_answered_results ? " answered" : "",
             !t->takes_calls            ? ""
             : t->wants_argument_object ? " object"
                                        : " text",
             t->wants_text_content ? " content" : "", t->wants_calls_alone ? " alone" : "",
             t->wants_short_ids ? " short" : "", t->wants_named_ids ? " named" : "",
             t->wants_parts ? " parts" : "", t->reasoning_key ? t->reasoning_key : ".",
             t->takes_reasoning && !t->takes_reasoned_text ? " exclusive" : "",
             t->has_thinking_switch ? " switch" : "", t->has_call_shape ? " shape" : "");
    return line;
}

static const char *describe_source(const char *source)
{
    struct template_traits t;
    CHECK(traits_of(&t, source, strlen(source)) == 0);
    CHECK(t.takes_reasoning == (t.reasoning_key != NULL));
    t.has_call_shape = false; /* has a test of its own */
    const char *line = describe(&t);
    template_traits_free(&t);
    return line;
}

#define EACH(body)     "{% for m in messages %}" body "{% endfor %}"
#define CONTENT        EACH("<{{ m.role }}>{{ m.content }}")
#define NEEDS(role)    "{% if m.role != '" role "' %}{{ raise_exception('no') }}{% endif %}"
#define CALLS(body)    "{% for c in m.tool_calls or [] %}{% set f = c.function %}" body "{% endfor %}"
#define JSON_CALL(how) CALLS("[{{ f.name }} {{ f.arguments" how " }}]")

TEST(template_traits, no_template_takes_nothing)
{
    struct template_traits t;
    struct error err;
    CHECK(template_traits_find(&t, NULL, NULL, &err) == 0);
    CHECK_STR(describe(&t), "- .");
    template_traits_free(&t);
}

TEST(template_traits, roles)
{
    CHECK_STR(describe_source(CONTENT), "system several late .");
    CHECK_STR(describe_source(EACH(NEEDS("user") "{{ m.content }}")), "- alternate .");
    CHECK_STR(describe_source("{{ messages[0].content }}{% for m in messages[1:] %}"
                              "{% if m.role == 'system' %}{{ raise_exception('late') }}{% endif %}"
                              "{{ m.content }}{% endfor %}"),
              "system .");
    /* A second system message that is silently dropped counts as not supported. */
    CHECK_STR(describe_source(EACH("{% if m.role != 'system' or loop.first %}{{ m.content }}"
                                   "{% endif %}")),
              "system .");
    CHECK_STR(describe_source(EACH("{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
                                   "{{ raise_exception('turns') }}{% endif %}{{ m.content }}")),
              "- alternate .");
    CHECK_STR(describe_source(EACH("{% for p in m.content %}{{ p.text }}{% endfor %}")),
              "system several late parts .");
    /* Nothing is rendered: neither strings nor parts. */
    CHECK_STR(describe_source("hello"), "- alternate .");
}

TEST(template_traits, arguments_are_plain_json_once)
{
#define OTHERS "system several late "
    CHECK_STR(describe_source(EACH("{{ m.content }}" JSON_CALL("|tojson"))),
              OTHERS "calls parallel results object content .");
    CHECK_STR(describe_source(EACH("{{ m.content }}" JSON_CALL(""))),
              OTHERS "calls parallel results text content .");
    /* Both work: the client's text is unchanged. */
    CHECK_STR(describe_source(EACH("{{ m.content }}" CALLS(
                  "[{{ f.name }}{{ f.arguments if f.arguments is string else f.arguments|tojson "
                  "}}]"))),
              OTHERS "calls parallel results text content .");
    CHECK_STR(describe_source(EACH("{{ m.content }}" CALLS("[{{ f.name }}{% for k, v in "
                                                           "f.arguments|items %}{{ k }}={{ v }};"
                                                           "{% endfor %}]"))),
              OTHERS "calls parallel results object content .");
    /* An object printed by Python, or a quoted text, is not a call that a model should see. */
    CHECK_STR(describe_source(EACH("{{ m.content }}" CALLS("[{{ f.name }}{{ f.arguments|string|"
                                                           "tojson }}]"))),
              OTHERS ".");
    /* The name alone is not a call. */
    CHECK_STR(describe_source(EACH("{{ m.content }}" CALLS("{{ f.name }}"))), OTHERS ".");
}

TEST(template_traits, content_beside_calls)
{
#define TOOLS_TOO "{{ tools|tojson if tools }}"
    CHECK_STR(describe_source(TOOLS_TOO EACH("{{ m.content or '' }}" JSON_CALL(""))),
              OTHERS "tools calls parallel results text .");
    CHECK_STR(describe_source(TOOLS_TOO EACH("{{ m.content + '' }}" JSON_CALL(""))),
              OTHERS "tools calls parallel results text content .");
    CHECK_STR(describe_source(TOOLS_TOO EACH("{% if m.content is none %}" JSON_CALL(
                  "") "{% else %}{{ m.content }}{% endif %}")),
              OTHERS "tools calls parallel results text alone .");
    /* Null is fine in the last message and raises in others. */
    CHECK_STR(describe_source(TOOLS_TOO EACH(
                  "{{ (m.content or '') if loop.last else m.content.strip() }}" JSON_CALL(""))),
              OTHERS "tools calls parallel results text content .");
    /* It drops the text. */
    CHECK_STR(describe_source(TOOLS_TOO EACH(
                  "{% if m.tool_calls %}" JSON_CALL("") "{% else %}{{ m.content }}{% endif %}")),
              OTHERS "tools calls parallel results text alone .");
}

TEST(template_traits, ids_and_numbers_of_calls)
{
#define IDS(test)                                                                                  \
    TOOLS_TOO EACH("{{ m.content or '' }}" CALLS("{% if not (" test                                \
                                                 ") %}{{ raise_exception('id') }}{% endif %}"      \
                                                 "[{{ f.name }}{{ f.arguments }}]"))
    CHECK_STR(describe_source(IDS("c.id|length == 9")),
              OTHERS "tools calls parallel results text short .");
    CHECK_STR(describe_source(IDS("c.id|length >= 9")),
              OTHERS "tools calls parallel results text short .");
    CHECK_STR(describe_source(IDS("m.tool_calls|length == 1")),
              OTHERS "tools calls results text .");
    CHECK_STR(describe_source(
                  TOOLS_TOO EACH("{{ m.content or '' }}" CALLS("[{{ c.id }}{{ f.arguments }}]"))),
              OTHERS "tools calls parallel results text named .");
    CHECK_STR(describe_source(TOOLS_TOO EACH(
                  "{{ m.content or '' }}{% if m.tool_calls %}{% set f = m.tool_calls[0].function "
                  "%}[{{ f.name }}{{ f.arguments }}]{% endif %}")),
              OTHERS "tools calls results text .");
}

TEST(template_traits, results)
{
    CHECK_STR(describe_source(TOOLS_TOO EACH(
                  "{% if m.role != 'tool' %}{{ m.content or '' }}{% endif %}" JSON_CALL(""))),
              OTHERS "tools calls parallel text .");
    CHECK_STR(describe_source(TOOLS_TOO EACH(
                  "{% if m.role == 'user' and loop.previtem and loop.previtem.role == 'tool' %}"
                  "{{ raise_exception('answer first') }}{% endif %}"
                  "{{ m.content or '' }}" JSON_CALL(""))),
              OTHERS "tools calls parallel results answered text .");
    /* Any role is rendered, but no functions: it has no results. */
    CHECK_STR(describe_source(CONTENT), "system several late .");
}

TEST(template_traits, reasoning)
{
    CHECK_STR(describe_source(EACH("{{ m.reasoning_content }}{{ m.content }}")),
              OTHERS "reasoning_content");
    CHECK_STR(describe_source(EACH("{{ m.thinking }}{{ m.content }}")), OTHERS "thinking");
    CHECK_STR(describe_source(TOOLS_TOO EACH(
                  "{% if m.reasoning and m.content and m.tool_calls %}{{ raise_exception('both') }}"
                  "{% endif %}{{ m.reasoning }}{{ m.content or '' }}" JSON_CALL(""))),
              OTHERS "tools calls parallel results text reasoning exclusive");
    CHECK_STR(describe_source(CONTENT "{% if enable_thinking %}<think>{% endif %}"),
              OTHERS ". switch");
    CHECK_STR(describe_source(CONTENT "{{ raise_exception('off') if enable_thinking is false }}"),
              OTHERS ".");
}

static void check_shape(const char *source, const char *first, const char *middle,
                        const char *between, const char *last)
{
    struct template_traits t;
    CHECK(traits_of(&t, source, strlen(source)) == 0);
    CHECK_STR(strbuf_str(&t.first), first);
    CHECK_STR(strbuf_str(&t.middle), middle);
    CHECK_STR(strbuf_str(&t.between), between);
    CHECK_STR(strbuf_str(&t.last), last);
    CHECK(t.has_call_shape == (*last != '\0'));
    template_traits_free(&t);
}

#define CHATML(assistant)                                                                          \
    "{{ tools|tojson if tools }}{% for m in messages %}<|im_start|>{{ m.role }}\n"                 \
    "{{ '<think></think>' if m.role == 'assistant' }}{{ m.content or '' }}" assistant              \
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"

TEST(template_traits, shape_of_calls)
{
    check_shape(CHATML(CALLS("{{ '\n' }}<call>{{ f.name }}: {{ f.arguments }}</call>")), "<call>",
                ": ", "</call>\n<call>", "</call>");
    check_shape(CHATML("{% if m.tool_calls %}[" CALLS(
                    "{{ ', ' if not loop.first }}({{ f.name }}|{{ f.arguments }})") "]{% endif %}"),
                "[(", "|", "), (", ")]");
    /* One call only: there is nothing between calls. */
    check_shape(CHATML("{% if m.tool_calls %}{% set f = m.tool_calls[0].function %}"
                       "<{{ f.name }}={{ f.arguments }}>{% endif %}"),
                "<", "=", "", ">");
    /* An id in each call: the text before it is known. */
    check_shape(CHATML(CALLS("<{{ f.name }}={{ f.arguments }}#{{ c.id }}>")), "<", "=", "", "");
    /* Arguments in another form: up to the first one's name. */
    check_shape(CHATML(CALLS("<{{ f.name }}>{% for k, v in f.arguments|items %}<{{ k }}={{ v }}>"
                             "{% endfor %}</>")),
                "<", "><", "", "");
    /* The name is written twice. */
    check_shape(CHATML(CALLS("<{{ f.name }}={{ f.arguments }}/{{ f.name }}>")), "", "", "", "");
}

/* ---- real templates ---- */

struct known {
    const char *name, *traits;
};

/* Read by hand in the templates themselves. */
static const struct known known[] = {
    {"llama.cpp/models/templates/Qwen-Qwen2.5-7B-Instruct.jinja",
     "system several late tools calls parallel results object . shape"},
    {"llama.cpp/models/templates/Qwen-Qwen3-0.6B.jinja",
     "system several late tools calls parallel results text content reasoning_content switch "
     "shape"},
    {"llama.cpp/models/templates/Qwen-QwQ-32B.jinja",
     "system several late tools calls parallel results object content . switch shape"},
    {"llama.cpp/models/templates/Qwen3-Coder.jinja",
     "system several late tools calls parallel results object ."},
    {"llama.cpp/models/templates/meta-llama-Llama-3.1-8B-Instruct.jinja",
     "system several late tools calls results object alone . shape"},
    {"llama.cpp/models/templates/meta-llama-Llama-3.2-3B-Instruct.jinja",
     "system several late tools calls results object alone . shape"},
    {"llama.cpp/models/templates/mistralai-Mistral-Nemo-Instruct-2407.jinja",
     "system alternate tools calls parallel results answered object short ."},
    {"llama.cpp/models/templates/Mistral-Small-3.2-24B-Instruct-2506.jinja",
     "system alternate tools calls parallel results answered object short ."},
    {"llama.cpp/models/templates/mistralai-Ministral-3-14B-Reasoning-2512.jinja",
     "system alternate tools calls parallel results answered text content . shape"},
    {"hfjs-automap:library/mistral:7b-instruct-fp16", "- alternate ."},
    {"hfjs-automap:library/mixtral:8x7b", "system alternate ."},
    {"llama.cpp/models/templates/google-gemma-2-2b-it.jinja", "- alternate ."},
    {"tokenizer_config:lenml-gemma3", "system alternate ."},
    {"llama.cpp/models/templates/google-gemma-4-31B-it.jinja",
     "system several late tools calls parallel results object reasoning_content switch"},
    {"llama.cpp/models/templates/deepseek-ai-DeepSeek-R1-Distill-Llama-8B.jinja",
     "system calls parallel results text alone ."},
    {"hfjs-automap:library/deepseek-v3:671b",
     "system several late calls parallel results text alone ."},
    {"llama.cpp/models/templates/deepseek-ai-DeepSeek-V3.1.jinja",
     "system several late calls parallel results object . switch shape"},
    {"llama.cpp/models/templates/deepseek-ai-DeepSeek-V3.2.jinja",
     "system several late tools calls parallel results object reasoning_content switch"},
    {"hfjs-automap:library/command-r:35b", "system alternate ."},
    {"llama.cpp/models/templates/NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use.jinja",
     "system several late tools calls parallel results text alone . shape"},
    {"hfjs-automap:library/phi4:14b", "system several late ."},
    {"hfjs-automap:library/phi3:14b", "- ."},
    {"llama.cpp/models/templates/GLM-4.6.jinja",
     "system several late tools calls parallel results object content reasoning_content switch"},
    {"llama.cpp/models/templates/moonshotai-Kimi-K2.jinja",
     "system several late tools calls parallel results object ."},
    {"llama.cpp/models/templates/openai-gpt-oss-120b.jinja",
     "system tools calls results object content thinking exclusive"},
    {"hfjs-automap:library/smollm2:135m", "system several late ."},
    {"llama.cpp/models/templates/HuggingFaceTB-SmolLM3-3B.jinja", "system . switch"},
    {"hfjs-automap:library/llama2:7b", "system alternate ."},
    {"hfjs-automap:library/llama3:8b", "system several late ."},
    {"llama.cpp/models/templates/MiniMax-M2.jinja",
     "system tools calls parallel results object content reasoning_content"},
    {"llama.cpp/models/templates/ibm-granite-granite-4.0.jinja",
     "system several late tools calls parallel results text . shape"},
};

struct survey {
    int n, systems, alternating, tools, calls, results, reasoning, shapes, n_known;
    double worst_ms;
};

static void survey_add(struct survey *s, const char *name, const struct json *source)
{
    struct template_traits t;
    uint64_t begun = clock_now_ns();
    CHECK(traits_of(&t, source->text, source->text_len) == 0);
    double ms = (double)(clock_now_ns() - begun) / 1e6;
    s->worst_ms = ms > s->worst_ms ? ms : s->worst_ms;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].name, name) == 0) {
            s->n_known++;
            if (strcmp(describe(&t), known[i].traits) != 0)
                test_fail(__FILE__, __LINE__, "%s is \"%s\", expected \"%s\"", name, describe(&t),
                          known[i].traits);
        }
    s->n++;
    s->systems += t.takes_system;
    s->alternating += t.wants_alternation;
    s->tools += t.takes_tools;
    s->calls += t.takes_calls;
    s->results += t.takes_results;
    s->reasoning += t.takes_reasoning;
    s->shapes += t.has_call_shape;
    template_traits_free(&t);
}

TEST(template_traits, of_real_templates)
{
    const char *path = test_shared_path("data/templates/generated_templates.jsonl");
    if (!path)
        SKIP("no shared templates");
    FILE *f = fopen(path, "r");
    CHECK(f);
    struct survey s = {0};
    char *line = NULL;
    size_t capacity = 0;
    for (ssize_t n; (n = getline(&line, &capacity, f)) > 0;) {
        struct arena arena = ARENA_INIT;
        struct error err = {0};
        struct json *item = json_parse(&arena, line, (size_t)n, &err);
        CHECK(item);
        survey_add(&s, json_get(item, "name")->text, json_get(item, "template"));
        arena_free(&arena);
    }
    free(line);
    fclose(f);
    printf("traits of %d templates, the slowest in %.1f ms\n", s.n, s.worst_ms);
    CHECK_INT(s.n_known, sizeof known / sizeof *known);
    CHECK_INT(s.n, 228);
    CHECK_INT(s.systems, 197);
    CHECK_INT(s.alternating, 42);
    CHECK_INT(s.tools, 119);
    CHECK_INT(s.calls, 117);
    CHECK_INT(s.results, 126);
    CHECK_INT(s.reasoning, 38);
    CHECK_INT(s.shapes, 50);
}

TEST(template_traits, memory_runs_out)
{
    static const char source[] = CHATML(CALLS("<call>{{ f.name }}: {{ f.arguments }}</call>"));
    struct error err = {0};
    struct chat_template *t = chat_template_parse(source, sizeof source - 1, &err);
    CHECK(t);
    int n_failed = 0;
    for (uint32_t n = 0; n < 4000; n = n * 5 / 4 + 1) {
        struct template_traits traits;
        memory_ends_after(n);
        int failed = template_traits_find(&traits, t, NULL, &err);
        memory_is_back();
        n_failed += failed != 0;
        if (failed)
            CHECK_INT(err.code, ERROR_MEMORY);
        else
            CHECK_STR(describe(&traits), OTHERS "tools calls parallel results text . shape");
        template_traits_free(&traits);
    }
    CHECK(n_failed > 3);
    chat_template_free(t);
}
