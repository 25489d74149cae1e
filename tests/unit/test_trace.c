/* The reader of traces, and the ideal that replays are measured against. */
#include "cli/trace.h"

#include <stdlib.h>

#include "base/hash.h"
#include "base/strbuf.h"
#include "test.h"
#include "test_files.h"

static void parse(struct trace *t, const char *text)
{
    struct error err;
    if (trace_parse(t, text, strlen(text), &err))
        test_fail(__FILE__, __LINE__, "%s", err.message);
}

static void check_refused(const char *text, const char *message)
{
    struct trace t;
    struct error err;
    CHECK(trace_parse(&t, text, strlen(text), &err) == -1);
    if (!strstr(err.message, message))
        test_fail(__FILE__, __LINE__, "\"%s\" does not say \"%s\"", err.message, message);
    CHECK(!t.requests && !t.blocks);
}

/* The tokens of a request, to be freed. */
static uint64_t *tokens_of(const struct trace *t, size_t request, int32_t offset)
{
    uint64_t *tokens = malloc(t->requests[request].n_input * sizeof *tokens);
    CHECK(tokens);
    trace_tokens(t, &t->requests[request], offset, tokens);
    return tokens;
}

static uint32_t common_prefix(const struct trace *t, size_t a, size_t b)
{
    uint64_t *x = tokens_of(t, a, 0), *y = tokens_of(t, b, 0);
    uint32_t most = t->requests[a].n_input, n = 0;
    most = t->requests[b].n_input < most ? t->requests[b].n_input : most;
    while (n < most && x[n] == y[n])
        n++;
    free(x);
    free(y);
    return n;
}

static const char two_lines[] =
    "{\"timestamp\": 0, \"input_length\": 1030, \"output_length\": 52, \"hash_ids\": [7, 8, 9]}\n"
    "{\"timestamp\": 4, \"input_length\": 600, \"output_length\": 3, \"hash_ids\": [7, 11]}\n";

TEST(trace, lines)
{
    struct trace t;
    parse(&t, two_lines);
    CHECK_INT(t.block_size, 512);
    CHECK_INT(t.n_requests, 2);
    CHECK_INT(t.n_distinct, 4);
    CHECK_INT(t.n_blocks, 5);
    CHECK_INT(t.requests[0].n_input, 1030);
    CHECK_INT(t.requests[0].n_output, 52);
    CHECK_INT(t.requests[1].n_output, 3);
    CHECK_INT(t.requests[1].first_block, 3);
    CHECK_INT(common_prefix(&t, 0, 1), 512);
    trace_free(&t);
}

TEST(trace, lines_may_be_blank_end_anyhow_and_lack_the_answer)
{
    struct trace t;
    parse(&t, "\n \r\n{\"input_length\": 1, \"hash_ids\": [-5]}\r\n\n"
              "{\"input_length\": 512, \"hash_ids\": [9223372036854775807]}");
    CHECK_INT(t.n_requests, 2);
    CHECK_INT(t.n_distinct, 2);
    CHECK_INT(t.requests[0].n_output, 0);
    trace_free(&t);
}

TEST(trace, different_blocks_differ_at_every_position)
{
    struct trace t;
    parse(&t, "{\"input_length\": 1024, \"hash_ids\": [1, 2]}\n"
              "{\"input_length\": 1024, \"hash_ids\": [2, 1]}\n");
    uint64_t *a = tokens_of(&t, 0, 100), *b = tokens_of(&t, 1, 100);
    for (int i = 0; i < 1024; i++) {
        CHECK(a[i] >= 100 && a[i] != b[i]);
        CHECK_INT(a[i], b[(i + 512) % 1024]);
        for (int k = 0; k < i; k++)
            CHECK(a[i] != a[k]);
    }
    free(a);
    free(b);
    trace_free(&t);
}

static const char agent[] =
    "{\"id\": \"x\", \"block_size\": 4, \"requests\": [\n"
    "{\"t\": 0.0, \"type\": \"n\", \"in\": 8, \"out\": 2, \"hash_ids\": [1, 2]},\n"
    "{\"type\": \"subagent\", \"requests\": [\n"
    "  {\"t\": 1, \"in\": 6, \"out\": 1, \"hash_ids\": [1]},\n"
    "  {\"t\": 1, \"in\": 6, \"hash_ids\": [1]}]},\n"
    "{\"t\": 2.5, \"in\": 3, \"out\": 0, \"hash_ids\": []}]}";

TEST(trace, agents)
{
    struct trace t;
    parse(&t, agent);
    CHECK_INT(t.block_size, 4);
    CHECK_INT(t.n_requests, 4);
    CHECK_INT(t.requests[0].n_output, 2);
    CHECK_INT(t.requests[1].n_input, 6);
    CHECK_INT(t.requests[2].n_output, 0);
    CHECK_INT(common_prefix(&t, 0, 1), 4);
    CHECK_INT(common_prefix(&t, 1, 2), 4); /* what has no id is equal to nothing */
    CHECK_INT(common_prefix(&t, 0, 3), 0);
    trace_free(&t);
}

TEST(trace, an_agent_on_one_line_is_an_agent)
{
    struct trace t;
    parse(&t, "{\"block_size\": 1, \"requests\": [{\"in\": 1, \"hash_ids\": [0]}]}\n");
    CHECK_INT(t.n_requests, 1);
    CHECK_INT(t.block_size, 1);
    trace_free(&t);
}

TEST(trace, refuses_what_is_no_trace)
{
    check_refused("", "the file is empty");
    check_refused(" \n\r\n", "the file is empty");
    check_refused("[]", "not a trace");
    check_refused("17", "not a trace");
    check_refused("hello", "expected a value");
    check_refused("{\"a\": 1}\n", "line 1: \"input_length\" is missing");
    check_refused("{\n\"a\": 1}\n", "not a trace");
    check_refused("{\"block_size\": 4, \"requests\": []}", "no request");
    check_refused("{\"requests\": []}", "\"block_size\" is missing");
    check_refused("{\"block_size\": 4, \"requests\": 1}", "\"requests\" must be an array");
    check_refused("{\"block_size\": 4, \"requests\": [null]}", "request 1: a request must be");
    check_refused("{\"block_size\": 0, \"requests\": []}", "not 0");
    check_refused("{\"block_size\": 4e9, \"requests\": []}", "not 4e9");
    check_refused("{\"block_size\": \"4\", \"requests\": []}", "not string");
}

TEST(trace, says_which_line_or_request_is_wrong)
{
    char text[512];
    static const struct {
        const char *line, *message;
    } lines[] = {
        {"{\"input_length\": 5, \"hash_ids\": [1]", "line 2: unexpected end of JSON"},
        {"{\"input_length\": 5}", "line 2: \"hash_ids\" is missing"},
        {"{\"input_length\": 5, \"hash_ids\": {}}", "line 2: \"hash_ids\" must be an array"},
        {"{\"input_length\": 5, \"hash_ids\": [\"a\"]}", "line 2: \"hash_ids\" must hold"},
        {"{\"input_length\": 5, \"hash_ids\": [1.5]}", "item 0 is not one"},
        {"{\"input_length\": 5, \"hash_ids\": [9223372036854775808]}", "whole numbers"},
        {"{\"input_length\": 5, \"hash_ids\": [1, 2]}", "5 tokens are 1 blocks of 512"},
        {"{\"input_length\": 1025, \"hash_ids\": [1]}", "1025 tokens are 3 blocks of 512"},
        {"{\"input_length\": 0, \"hash_ids\": []}", "\"input_length\" must be"},
        {"{\"input_length\": -3, \"hash_ids\": []}", "from 1 to 16777216, not -3"},
        {"{\"input_length\": 16777217, \"hash_ids\": []}", "not 16777217"},
        {"{\"input_length\": 1e99, \"hash_ids\": []}", "not 1e99"},
        {"{\"input_length\": 2.5, \"hash_ids\": []}", "not 2.5"},
        {"{\"input_length\": null, \"hash_ids\": []}", "not null"},
        {"{\"input_length\": 1, \"output_length\": -1, \"hash_ids\": []}", "not -1"},
        {"{\"input_length\": 1, \"output_length\": \"\", \"hash_ids\": []}", "not string"},
        {"[]", "line 2: a request must be an object, not array"},
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        snprintf(text, sizeof text, "{\"input_length\": 1, \"hash_ids\": [0]}\n%s\n",
                 lines[i].line);
        check_refused(text, lines[i].message);
    }
    check_refused("{\"block_size\": 4, \"requests\": [{\"in\": 1, \"hash_ids\": []},\n"
                  "{\"requests\": [{\"in\": 1, \"hash_ids\": []}, {\"in\": -1}]}]}",
                  "request 2: request 2: \"in\" must be");
}

TEST(trace, every_cut_and_change_is_read_or_refused)
{
    const char *texts[] = {two_lines, agent};
    for (int k = 0; k < 2; k++) {
        size_t len = strlen(texts[k]);
        for (size_t i = 0; i < 40 * len; i++) {
            struct trace t;
            struct error err = {0};
            size_t cut = i < len ? i : len, at = hash_pair(i, 1) % len;
            char *copy = malloc(cut + 1); /* without a NUL: nothing may be read behind it */
            CHECK(copy);
            memcpy(copy, texts[k], cut);
            if (i >= len)
                copy[at] = "0123456789-e\"{}[],:\n\0xyz"[hash_pair(i, 2) % 24];
            char *exact = realloc(copy, cut ? cut : 1);
            CHECK(exact);
            if (trace_parse(&t, exact, cut, &err) == 0)
                trace_free(&t);
            else
                CHECK(err.code != ERROR_NONE && err.message[0]);
            free(exact);
        }
    }
}

TEST(trace, different_tokens_have_an_end)
{
    struct strbuf text = STRBUF_INIT;
    struct trace t;
    struct error err;
    enum { PER_REQUEST = TRACE_MAX_LENGTH / TRACE_MAX_BLOCK_SIZE };
    strbuf_addf(&text, "{\"block_size\": %d, \"requests\": [", TRACE_MAX_BLOCK_SIZE);
    for (int r = 0; r < 128; r++) {
        strbuf_addf(&text, "%s{\"in\": %d, \"hash_ids\": [", r ? "," : "", TRACE_MAX_LENGTH);
        for (int i = 0; i < PER_REQUEST; i++)
            strbuf_addf(&text, "%s%d", i ? "," : "", r * PER_REQUEST + i);
        strbuf_adds(&text, "]}");
    }
    strbuf_adds(&text, "]}");
    CHECK(trace_parse(&t, text.data, text.len, &err) == -1);
    CHECK(err.code == ERROR_LIMIT && strstr(err.message, "request 128"));
    strbuf_free(&text);
}

TEST(trace, read_names_the_file)
{
    struct trace t;
    struct error err;
    char path[512];
    CHECK(trace_read(&t, "/nowhere/trace.json", &err) == -1);
    CHECK(err.code == ERROR_IO && strstr(err.message, "/nowhere/trace.json"));
    snprintf(path, sizeof path, "%s/bad.jsonl", test_scratch_dir());
    test_file_write_text(path, "{\"input_length\": 5}\n");
    CHECK(trace_read(&t, path, &err) == -1);
    CHECK(strstr(err.message, path) && strstr(err.message, "line 1:"));
}

/* ---- the ideal ----------------------------------------------------------------------------- */

static void check_ideal(const struct trace *t, uint64_t asked, uint64_t hit, uint64_t distinct)
{
    struct trace_ideal ideal;
    struct error err;
    CHECK(trace_ideal(t, &ideal, &err) == 0);
    CHECK_INT(ideal.asked, asked);
    CHECK_INT(ideal.hit, hit);
    CHECK_INT(ideal.distinct, distinct);
}

TEST(trace, ideal_of_a_few_requests)
{
    struct trace t;
    parse(&t, two_lines);
    check_ideal(&t, 1630, 512, 1030 + 88);
    trace_free(&t);
    /* The same again finds all but its last token; a longer end finds the shorter one. */
    parse(&t, "{\"input_length\": 600, \"hash_ids\": [1, 2]}\n"
              "{\"input_length\": 600, \"hash_ids\": [1, 2]}\n"
              "{\"input_length\": 700, \"hash_ids\": [1, 2]}\n"
              "{\"input_length\": 1025, \"hash_ids\": [1, 2, 3]}\n"
              "{\"input_length\": 512, \"hash_ids\": [2]}\n");
    check_ideal(&t, 3437, 599 + 600 + 700 + 0, 1025 + 512);
    trace_free(&t);
}

/* A trace of random requests over few blocks, as text of the agents' format. */
static void random_trace(struct trace *t, uint64_t seed, uint32_t block_size)
{
    struct strbuf text = STRBUF_INIT;
    uint64_t n = 0;
    strbuf_addf(&text, "{\"block_size\": %u, \"requests\": [", block_size);
    for (int r = 0; r < 40; r++) {
        uint32_t n_blocks = 1 + hash_pair(seed, n++) % 6;
        uint32_t length = n_blocks * block_size - hash_pair(seed, n++) % block_size;
        bool is_named = hash_pair(seed, n++) % 4 || length % block_size == 0;
        strbuf_addf(&text, "%s{\"in\": %u, \"hash_ids\": [", r ? "," : "", length);
        for (uint32_t i = 0; i < n_blocks - !is_named; i++)
            strbuf_addf(&text, "%s%u", i ? "," : "", (unsigned)(hash_pair(seed, n++) % 2 + i % 3));
        strbuf_adds(&text, "]}");
    }
    strbuf_adds(&text, "]}");
    parse(t, text.data);
    strbuf_free(&text);
}

TEST(trace, ideal_is_the_longest_common_prefix)
{
    for (uint64_t seed = 0; seed < 60; seed++) {
        struct trace t;
        uint64_t asked = 0, hit = 0, distinct = 0;
        random_trace(&t, seed, 1 + seed % 5);
        for (size_t i = 0; i < t.n_requests; i++) {
            uint32_t best = 0, length = t.requests[i].n_input;
            for (size_t k = 0; k < i; k++) {
                uint32_t n = common_prefix(&t, i, k);
                best = n > best ? n : best;
            }
            asked += length;
            hit += best < length ? best : length - 1;
            distinct += length - best;
        }
        check_ideal(&t, asked, hit, distinct);
        trace_free(&t);
    }
}
