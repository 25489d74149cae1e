/* What a person and a script see of an answer: its text, its thoughts, how it ended. */
#include "test.h"

#include <stdlib.h>

#include "cli/chat/answer_view.h"
#include "cli/terminal/terminal.h"

static const struct answer_style thinks = {.think_begin = "<think>", .think_end = "</think>"};

/* The standard output for the pieces, which are separated by '|'. */
static const char *shown(struct answer_view *v, const struct answer_style *style,
                         const char *pieces, const char *note)
{
    static char text[1024];
    char *bytes;
    size_t len;
    FILE *out = stdout, *err = stderr;
    stdout = open_memstream(&bytes, &len);
    stderr = fopen("/dev/null", "w");
    answer_view_begin(v, style, false);
    for (const char *at = pieces; *at;) {
        size_t n = strcspn(at, "|");
        answer_view_add(v, at, n);
        at += n + (at[n] == '|');
    }
    answer_view_end(v, note);
    answer_view_gap(v);
    fclose(stdout);
    fclose(stderr);
    stdout = out;
    stderr = err;
    snprintf(text, sizeof text, "%s", bytes);
    free(bytes);
    return text;
}

TEST(answer_view, a_terminal_gets_an_empty_row_behind_it)
{
    struct answer_view v = {.is_terminal = true};
    CHECK_STR(shown(&v, &thinks, "Pa|ris.", ""), "Paris.\n\n");
    CHECK_STR(shown(&v, &thinks, "Paris.\n", ""), "Paris.\n\n");
    CHECK_STR(shown(&v, &thinks, "Par", "[stopped]"), "Par [stopped]\n\n");
    CHECK_STR(shown(&v, &thinks, "", "[stopped]"), "[stopped]\n\n");
    CHECK_STR(strbuf_str(&v.content), "");
    answer_view_free(&v);
}

TEST(answer_view, a_note_is_not_broken)
{
    struct answer_view v = {.is_terminal = true};
    int columns = (int)terminal_size().columns, note = (int)strlen("[max_tokens reached]");
    char text[400], want[500];
    for (int len = columns - note - 5; len < columns && len < 400; len++) {
        snprintf(text, sizeof text, "%0*d", len, 0);
        snprintf(want, sizeof want, "%s%s[max_tokens reached]\n\n", text,
                 len + 1 + note < columns ? " " : "\n");
        CHECK_STR(shown(&v, &thinks, text, "[max_tokens reached]"), want);
    }
    answer_view_free(&v);
}

TEST(answer_view, thoughts_are_told_apart)
{
    struct answer_view v = {.is_terminal = true};
    CHECK_STR(shown(&v, &thinks, "<thi|nk>\nHm.\n</th|ink>\n\nParis.", ""),
              "Thinking...\nHm.\n\nParis.\n\n");
    CHECK_STR(strbuf_str(&v.content), "Paris.");
    CHECK_STR(strbuf_str(&v.thoughts), "Hm.");
    CHECK_STR(shown(&v, &thinks, "<think>Hm", "[stopped]"), "Thinking...\nHm [stopped]\n\n");
    v.has_colors = true;
    CHECK_STR(shown(&v, &thinks, "<think>Hm.</think>Paris.", ""),
              "\033[2mThinking...\nHm.\n\n\033[0mParis.\n\n");
    answer_view_free(&v);
}

TEST(answer_view, a_script_gets_the_answer_alone)
{
    static const struct answer_style plain;
    struct answer_view v = {0};
    CHECK_STR(shown(&v, &thinks, "<think>Hm.</think>Paris.", ""), "Paris.\n");
    CHECK_STR(shown(&v, &thinks, "Par", "[stopped]"), "Par\n");
    CHECK_STR(shown(&v, &plain, "<think>a\033[2J", ""), "<think>a\033[2J\n"); /* as it is */
    answer_view_free(&v);
}
