/* The line editor, key by key: what is typed, and the resulting text. */
#include "test.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/utf8.h"
#include "cli/terminal/line_editor.h"

static struct line_editor editor;

static bool is_open(void *context, const char *text)
{
    (void)context;
    return text[0] == '"' && (!text[1] || text[strlen(text) - 1] != '"');
}

static void complete(void *context, const char *text, size_t len, struct completion_list *out)
{
    static const char *const words[] = {"/save ", "/set ", "/system "};
    (void)context;
    for (size_t i = 0; i < 3; i++)
        if (strncmp(words[i], text, len) == 0)
            completion_list_add(out, words[i], strlen(words[i]));
}

/* Types keys at a fresh prompt; the drawing is discarded. */
static enum line_result type(const char *keys)
{
    FILE *screen = stdout;
    editor.input.fd = -1;
    editor.is_open = is_open;
    editor.complete = complete;
    strbuf_adds(&editor.input.ahead, keys);
    stdout = fopen("/dev/null", "w");
    enum line_result result = line_editor_read(&editor, "> ");
    fclose(stdout);
    stdout = screen;
    return result;
}

/* The text that these keys and Enter make. */
static const char *typed(const char *keys)
{
    char all[512];
    snprintf(all, sizeof all, "%s\r", keys);
    CHECK_INT(type(all), LINE_TEXT);
    return strbuf_str(&editor.line);
}

static void editor_end(void)
{
    line_editor_free(&editor);
    editor = (struct line_editor){0};
}

TEST(line_editor, keys_of_emacs)
{
    CHECK_STR(typed("abc"), "abc");
    CHECK_STR(typed("abc\001X"), "Xabc");                  /* Ctrl-A */
    CHECK_STR(typed("abc\002\002X"), "aXbc");              /* Ctrl-B */
    CHECK_STR(typed("abc\001\006X\005Y"), "aXbcY");        /* Ctrl-F, Ctrl-E */
    CHECK_STR(typed("abc\001\004"), "bc");                 /* Ctrl-D */
    CHECK_STR(typed("one two\002\002\013X"), "one tX");    /* Ctrl-K */
    CHECK_STR(typed("one two\002\002\025"), "wo");         /* Ctrl-U */
    CHECK_STR(typed("one two\027\031\031"), "one twotwo"); /* Ctrl-W, Ctrl-Y */
    CHECK_STR(typed("teh\024"), "the");                    /* Ctrl-T */
    CHECK_STR(typed("one-two\033bX"), "one-Xtwo");
    CHECK_STR(typed("one-two\001\033f\033d"), "one");
    CHECK_STR(typed("one-two\033\177"), "one-");
    CHECK_STR(typed("one two\033[1;5DX\033[1;5CY"), "one XtwoY"); /* Ctrl-Left, -Right */
    CHECK_STR(typed("ab\033[D\033[3~\033OHx\033[4~y"), "xay");
    editor_end();
}

TEST(line_editor, glyphs_are_one_step)
{
    CHECK_STR(typed("a\U0001f469\u200d\U0001f4bb\177b"), "ab");
    CHECK_STR(typed("e\u0301x\002\177"), "x");
    CHECK_STR(typed("\u6f22\u5b57\033[DX"), "\u6f22X\u5b57");
    editor_end();
}

TEST(line_editor, several_lines)
{
    CHECK_STR(typed("a\033\rb"), "a\nb");                      /* Alt-Enter */
    CHECK_STR(typed("a\033[13;2ub\033[27;5;13~c"), "a\nb\nc"); /* Shift-Enter, Ctrl-Enter */
    CHECK_STR(typed("\"one\rtwo\""), "\"one\ntwo\"");          /* Enter, while it is open */
    CHECK_STR(typed("ab\033\rcd\033[AX"), "abX\ncd");          /* Up: to the first line */
    CHECK_STR(typed("abc\033\rd\033[A\033[BX"), "abc\ndX");
    CHECK_STR(typed("ab\033\rcd\001X\033[A\001Y"), "Yab\nXcd");
    CHECK_STR(typed("ab\033\rcd\001\177"), "abcd");
    CHECK_STR(typed("ab\033\rcd\033[A\005\013"), "abcd"); /* Ctrl-K at the end joins */
    editor_end();
}

TEST(line_editor, pasted_text_is_text)
{
    CHECK_STR(typed("\033[200~a\rb\r\nc\td\033[201~"), "a\nb\nc\td");
    CHECK_STR(typed("\033[200~\003\004\022x\033[201~"), "x"); /* no keys in there */
    CHECK_STR(typed("x\033[201~y"), "xy");
    CHECK_INT(type("\033[200~a"), LINE_END); /* cut off */
    editor_end();
}

TEST(line_editor, ends)
{
    CHECK_INT(type("\004"), LINE_END);
    CHECK_INT(type("abc"), LINE_END);
    CHECK_INT(type("\003"), LINE_INTERRUPTED);
    CHECK_INT(type("abc\003\003"), LINE_INTERRUPTED); /* the first one empties the line */
    CHECK_STR(typed("abc\003d"), "d");
    editor_end();
}

TEST(line_editor, history)
{
    history_add(&editor.history, "first");
    history_add(&editor.history, "second\nline");
    CHECK_STR(typed("\033[A"), "second\nline");
    CHECK_STR(typed("\033[A\033[A\033[A"), "first"); /* through both lines of the second */
    CHECK_STR(typed("draft\020\020\020\016\016\016"), "draft");
    CHECK_STR(typed("\033[B\033[Bx"), "x");
    editor_end();
}

TEST(line_editor, search)
{
    history_add(&editor.history, "Why is the sky blue?");
    history_add(&editor.history, "And the sea?");
    history_add(&editor.history, "What is it?");
    CHECK_STR(typed("\022the"), "And the sea?");
    CHECK_STR(typed("\022the\022"), "Why is the sky blue?");
    CHECK_STR(typed("\022the\022\023"), "And the sea?");
    CHECK_STR(typed("\022SKYx\177"), "Why is the sky blue?");
    CHECK_STR(typed("\022sky\001So: "), "So: Why is the sky blue?");
    CHECK_STR(typed("draft\022sky\007"), "draft"); /* Ctrl-G */
    CHECK_STR(typed("draft\022nothing"), "draft");
    editor_end();
}

TEST(line_editor, completion)
{
    CHECK_STR(typed("/sa\t"), "/save ");
    CHECK_STR(typed("/s\t\t\tx"), "/sx");
    CHECK_STR(typed("/q\t"), "/q");
    CHECK_STR(typed("/sys x\002\002\t"), "/system  x");
    editor_end();
}

TEST(line_editor, keys_that_mean_nothing_leave_no_trace)
{
    CHECK_STR(typed("a\033[15~b\033[1;2Pc\033xd\0357e"), "abcd7e");
    CHECK_STR(typed("a\033[99999999999999999;99;99;99;99~b"), "ab");
    editor_end();
}

TEST(line_editor, what_was_typed_ahead_comes_first)
{
    int ends[2];
    CHECK_INT(pipe(ends), 0);
    struct key_input in = {.fd = ends[0]};
    CHECK_INT(write(ends[1], "ab\003c", 4), 4);
    CHECK_INT(key_input_fill(&in), 1); /* Ctrl-C is reported, and not kept */
    CHECK_INT(key_input_fill(&in), 0);
    CHECK_INT(write(ends[1], "d", 1), 1);
    for (const char *want = "abcd"; *want; want++) {
        CHECK(key_is_pending(&in));
        CHECK_INT(key_read(&in), *want);
    }
    CHECK(!key_is_pending(&in));
    close(ends[1]);
    CHECK_INT(key_input_fill(&in), 1); /* the terminal is gone */
    CHECK_INT(key_read(&in), KEY_END_OF_INPUT);
    close(ends[0]);
    key_input_free(&in);
}

TEST(line_editor, any_keys_leave_whole_text)
{
    static const char *const keys[] = {
        "a",         "\u6f22",    "\u0301", "\U0001f469", "\u200d", " ",      "\033\r", "\001",
        "\002",      "\004",      "\005",   "\006",       "\013",   "\016",   "\020",   "\024",
        "\025",      "\027",      "\031",   "\177",       "\033b",  "\033f",  "\033d",  "\033\177",
        "\033[A",    "\033[B",    "\033[C", "\033[D",     "\t",     "\022",   "\007",   "\023",
        "\033[200~", "\033[201~", "\003",   "\f",         "/s",     "\033[H", "\033[F", "\033[3~",
    };
    unsigned state = 1;
    history_add(&editor.history, "one\ntwo \u6f22");
    history_add(&editor.history, "e\u0301");
    for (int round = 0; round < 1000; round++) {
        char all[512] = "";
        for (int i = 0; i < 40; i++) {
            state = state * 1103515245 + 12345;
            strcat(all, keys[(state >> 16) % (sizeof keys / sizeof *keys)]);
        }
        strcat(all, "\033[201~\r\003\003"); /* ends it, whatever it is in */
        type(all);
        CHECK(utf8_is_valid(strbuf_str(&editor.line), editor.line.len));
        CHECK(editor.cursor <= editor.line.len);
        editor.input.n_taken = editor.input.ahead.len = 0;
    }
    editor_end();
}
