/* The command line: what is accepted, what is refused and with which words. */
#include "test.h"

#include "cli/args.h"

static bool flag;
static const char *text;
static uint32_t number;
static float fraction;
static int choice;
static struct string_list list;
static const char *const choices[] = {"red", "green", NULL};

static const struct option table[] = {
    FLAG("flag f", &flag, ""),
    STRING("some-text s", &text, "TEXT", ""),
    UINT("number n", &number, "N", 1, 100, ""),
    FLOAT("fraction", &fraction, "X", 0, 1, ""),
    CHOICE("colour", &choice, "NAME", choices, ""),
    LIST("item", &list, "NAME", ""),
    {0},
};

static struct error err;

static int parse(struct option_set *set, int argc, char **argv)
{
    *set = (struct option_set){.tables = {table}, .max_operands = 1};
    return args_parse(set, argc, argv, &err);
}

#define PARSE(set, ...)                                                                            \
    parse(set, (int)(sizeof((char *[]){__VA_ARGS__}) / sizeof(char *)), (char *[]){__VA_ARGS__})

TEST(args, sets_every_kind)
{
    struct option_set set;
    CHECK(PARSE(&set, "-f", "--some-text=x y", "-n", "42", "-fraction", "0.5", "--colour", "green",
                "--item", "a", "--item", "b", "operand") == 0);
    CHECK(flag && number == 42 && fraction == 0.5f && choice == 1 && list.n == 2);
    CHECK_STR(text, "x y");
    CHECK_STR(set.operands.items[0], "operand");
    CHECK(PARSE(&set, "--some_text", "z") == 0);
    CHECK_STR(text, "z");
    CHECK(PARSE(&set, "--", "-f") == 0);
    CHECK_STR(set.operands.items[0], "-f");
}

TEST(args, refuses_with_a_reason)
{
    struct option_set set;
    CHECK(PARSE(&set, "--nothing") == -1 && strstr(err.message, "'--nothing'"));
    CHECK(PARSE(&set, "-n", "0") == -1 && strstr(err.message, "from 1 to 100"));
    CHECK(PARSE(&set, "-n", "1.5") == -1 && strstr(err.message, "whole"));
    CHECK(PARSE(&set, "-n", "nan") == -1 && PARSE(&set, "-n", "") == -1);
    CHECK(PARSE(&set, "-n") == -1 && strstr(err.message, "needs a value"));
    CHECK(PARSE(&set, "--fraction", "2") == -1 && PARSE(&set, "--flag=1") == -1);
    CHECK(PARSE(&set, "--colour", "blue") == -1 && strstr(err.message, "red, green"));
    CHECK(PARSE(&set, "a", "b") == -1 && strstr(err.message, "'b'"));
}

TEST(args, cache_sizes)
{
    struct cache_size size;
    CHECK(cache_size_parse("2GiB", &size, &err) == 0 && size.bytes == (uint64_t)2 << 30);
    CHECK(cache_size_parse("1.5M", &size, &err) == 0 && size.bytes == 3 << 19);
    CHECK(cache_size_parse("4096", &size, &err) == 0 && size.bytes == 4096);
    CHECK(cache_size_parse("100000t", &size, &err) == 0 && size.tokens == 100000 && !size.bytes);
    CHECK(cache_size_parse("", &size, &err) == -1 && cache_size_parse("-1", &size, &err) == -1);
    CHECK(cache_size_parse("1 GiB", &size, &err) == -1 && strstr(err.message, "512MiB"));
    CHECK(cache_size_parse("nan", &size, &err) == -1 &&
          cache_size_parse("1e99", &size, &err) == -1);
}
