/* Config files: how lines are read, what the command line keeps, and the messages. */
#include "test.h"

#include "cli/config_file.h"
#include "test_files.h"

static bool flag, other_flag;
static const char *text, *empty;
static uint32_t number;
static struct string_list list;

static const struct option table[] = {
    FLAG("strict-flag f", &flag, ""),         FLAG("other-flag", &other_flag, ""),
    STRING("some-text s", &text, "TEXT", ""), TEXT("empty", &empty, "TEXT", ""),
    UINT("port p", &number, "N", 0, 100, ""), UINT("alias-of-port", &number, "N", 0, 100, ""),
    LIST("item", &list, "NAME", ""),          {0},
};

static struct error err;

/* Parses the command line "--port 7 --item typed" if `is_typed`, then a file of this content. */
static int config_read(const char *content, size_t len, bool is_typed)
{
    struct option_set set = {.tables = {table}};
    char path[256];
    snprintf(path, sizeof path, "%s/a.conf", test_scratch_dir());
    test_file_write(path, content, len);
    flag = other_flag = false;
    text = empty = NULL;
    number = 0;
    list.n = 0;
    char *typed[] = {"--port", "7", "--item", "typed", "--strict-flag=off"};
    CHECK(args_parse(&set, is_typed ? 5 : 0, typed, &err) == 0);
    return config_file_read(path, &set, &err);
}

static int config(const char *content)
{
    return config_read(content, strlen(content), false);
}

/* The message after "FILE, ". */
static const char *complaint(const char *content)
{
    static char message[512];
    CHECK(config(content) == -1);
    const char *at = strstr(err.message, "a.conf, ");
    snprintf(message, sizeof message, "%s", at ? at + strlen("a.conf, ") : err.message);
    return message;
}

TEST(config_file, reads_options)
{
    CHECK(config("# a comment\n"
                 "\n"
                 "  port = 9\r\n"
                 "some_text one two \t\n"
                 "strict-flag\n"
                 "empty =\n"
                 "item=a#b # not part of it\n"
                 "\titem c") == 0);
    CHECK(number == 9 && flag && !other_flag && list.n == 2);
    CHECK_STR(text, "one two");
    CHECK_STR(list.items[0], "a#b");
    CHECK_STR(list.items[1], "c");
    CHECK_STR(empty, "");
    CHECK(config("") == 0 && config("\n#") == 0 && config("\r\n \t") == 0);
}

TEST(config_file, flags_are_on_or_off)
{
    CHECK(config("strict-flag = on\nother-flag off") == 0 && flag && !other_flag);
    CHECK(config("strict-flag # a comment") == 0 && flag);
    CHECK_STR(complaint("\nstrict-flag = yes"), "line 2: strict-flag is on or off, not 'yes'");
    CHECK_STR(complaint("strict-flag ="), "line 1: strict-flag is on or off, not ''");
}

TEST(config_file, quotes_keep_everything)
{
    CHECK(config("some-text = \" a # b\\ \" # c\r\nempty \"\"\n") == 0);
    CHECK_STR(text, " a # b\\ ");
    CHECK_STR(empty, "");
    const char *expected = "line 1: a value in quotes ends with a quote, and has no other";
    CHECK_STR(complaint("some-text = \"a"), expected);
    CHECK_STR(complaint("some-text = \"a\" b"), expected);
    CHECK_STR(complaint("some-text = \""), expected);
}

TEST(config_file, the_command_line_wins)
{
    const char *content = "port = 8\nitem = written\nstrict-flag\nother-flag";
    CHECK(config_read(content, strlen(content), true) == 0);
    CHECK(number == 7 && !flag && other_flag && list.n == 2);
    CHECK_STR(list.items[0], "typed");
    CHECK_STR(list.items[1], "written");
    content = "alias-of-port = 8"; /* another name for what was typed */
    CHECK(config_read(content, strlen(content), true) == 0 && number == 7);
    content = "port = x"; /* a value without effect is checked, too */
    CHECK(config_read(content, strlen(content), true) == -1);
}

TEST(config_file, says_what_is_wrong_and_where)
{
    CHECK_STR(complaint("\n\nprot = 1"), "line 3: unknown option 'prot': did you mean port?");
    CHECK_STR(complaint("port = 101"),
              "line 1: port needs a whole number from 0 to 100, not '101'");
    CHECK_STR(complaint("port"), "line 1: port needs a value (N)");
    CHECK_STR(complaint("port ="), "line 1: port needs a value (N)");
    CHECK_STR(complaint("p = 1"), "line 1: names are written in full in a file: port, not p");
    CHECK_STR(complaint("--port 1"), "line 1: names have no dashes in a file: write port");
    CHECK_STR(complaint("config a"), "line 1: a config file cannot name another one");
    CHECK_STR(complaint("= 1"), "line 1: there is no name before the =");
    CHECK_STR(complaint("port 1\n#\nport 2"), "line 3: port was already set in line 1");
    CHECK(config_read("port = 1\0", 9, false) == -1 && strstr(err.message, "NUL byte"));
    struct option_set set = {.tables = {table}};
    CHECK(config_file_read("/nowhere/a.conf", &set, &err) == -1 && err.code == ERROR_IO);
}

/* Any prefix of a file, and any byte in it, is read or refused. */
TEST(config_file, takes_any_bytes)
{
    const char *whole = "port = 9\r\nsome-text \"a\" # b\nstrict-flag\n= = \"\n\"item\" c\n";
    char changed[128];
    for (size_t len = strlen(whole), at = 0; at < len; at++) {
        config_read(whole, at, false);
        for (const char *c = "\n\r \t=\"#-\377"; *c; c++) {
            memcpy(changed, whole, len);
            changed[at] = *c;
            config_read(changed, len, false);
        }
    }
}
