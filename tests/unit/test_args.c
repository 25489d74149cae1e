/* The command line: what is accepted, what is rejected and with which message. */
#include "test.h"

#include "cli/args.h"
#include "cli/foreign_options.h"

static bool flag;
static const char *text;
static uint32_t number;
static float fraction;
static int choice;
static struct string_list list;
static const char *words;
static uint32_t count, unbounded;
static struct seed seed;
static struct cache_size size_option;
static struct number_list numbers;
static struct memory_share share;
static const char *const choices[] = {"red", "green", NULL};

static const struct option table[] = {
    FLAG("flag f", &flag, ""),
    STRING("some-text s", &text, "TEXT", ""),
    UINT("number n", &number, "N", 1, 100, ""),
    FLOAT("fraction", &fraction, "X", 0, 1, ""),
    CHOICE("colour", &choice, "NAME", choices, ""),
    LIST("item", &list, "NAME", ""),
    TEXT("words", &words, "TEXT", ""),
    COUNT("count", &count, "N", 1, NO_MAX, ""),
    UINT("unbounded", &unbounded, "N", 0, NO_MAX, NULL),
    UINT("million", &unbounded, "N", 0, 1e6, ""),
    SEED("seed", &seed, "N", ""),
    SIZE("size", &size_option, "SIZE", ""),
    TOKENS("-exact_name", &size_option, "N", 2, "as it stands"),
    COUNT("exact-name", &count, "N", 1, NO_MAX, ""),
    UINTS("lengths l", &numbers, "N,...", 1, 4096, ""),
    SHARE("memory", &share, "SHARE", ""),
    STRING("engine", &text, "NAME", ""),
    STRING("path m", &text, "PATH", ""),
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
    CHECK_STR(err.message, "--flag is on or off, not '1'");
    flag = true;
    CHECK(PARSE(&set, "--flag=off") == 0 && !flag && PARSE(&set, "--flag=on") == 0 && flag);
    CHECK(PARSE(&set, "--colour", "blue") == -1 && strstr(err.message, "red, green"));
    CHECK(PARSE(&set, "a", "b") == -1);
    CHECK_STR(err.message, "unexpected argument 'b'");
    set = (struct option_set){.tables = {table}, .operand_hint = "leave it out"};
    CHECK(args_parse(&set, 1, (char *[]){"a"}, &err) == -1);
    CHECK_STR(err.message, "unexpected argument 'a': leave it out");
}

TEST(args, names_an_option_as_it_was_typed)
{
    struct option_set set;
    CHECK(PARSE(&set, "-n", "4k") == -1);
    CHECK_STR(err.message, "-n needs a whole number from 1 to 100, not '4k'");
    CHECK(PARSE(&set, "--some_text=") == -1);
    CHECK_STR(err.message, "--some_text needs a value (TEXT)");
    CHECK(PARSE(&set, "-colour=blue") == -1);
    CHECK_STR(err.message, "-colour must be one of red, green, not 'blue'");
}

TEST(args, refuses_empty_values)
{
    struct option_set set;
    CHECK(PARSE(&set, "-s", "") == -1);
    CHECK_STR(err.message, "-s needs a value (TEXT)");
    CHECK(PARSE(&set, "--some-text=") == -1 && PARSE(&set, "--item", "") == -1);
    CHECK(PARSE(&set, "--size", "") == -1 && PARSE(&set, "--seed", "") == -1);
    CHECK(PARSE(&set, "--words", "") == 0); /* an empty text says something */
    CHECK_STR(words, "");
}

TEST(args, writes_numbers_plainly)
{
    struct option_set set;
    CHECK(PARSE(&set, "--million", "-1") == -1);
    CHECK_STR(err.message, "--million needs a whole number from 0 to 1000000, not '-1'");
    CHECK(PARSE(&set, "--unbounded", "-1") == -1);
    CHECK_STR(err.message, "--unbounded needs a whole number of at least 0, not '-1'");
    CHECK(PARSE(&set, "--unbounded", "9999999999") == -1);
    CHECK_STR(err.message, "--unbounded needs a whole number up to 2147483647, not '9999999999'");
    CHECK(PARSE(&set, "--unbounded", "2147483647") == 0 && unbounded == INT32_MAX);
}

TEST(args, minus_one_is_no_limit_where_there_may_be_none)
{
    struct option_set set;
    CHECK(PARSE(&set, "--count", "7") == 0 && count == 7);
    CHECK(PARSE(&set, "--count", "-1") == 0 && count == 0);
    CHECK(PARSE(&set, "--count", "0") == -1 && PARSE(&set, "--count", "-2") == -1);
    CHECK_STR(err.message,
              "--count needs a whole number of at least 1, or -1 for no limit, not '-2'");
}

TEST(args, lists_of_numbers)
{
    struct option_set set;
    CHECK(PARSE(&set, "-l", "128") == 0 && numbers.n == 1 && numbers.items[0] == 128);
    CHECK(PARSE(&set, "--lengths=1,4096,2,2") == 0 && numbers.n == 4);
    CHECK(numbers.items[0] == 1 && numbers.items[1] == 4096 && numbers.items[3] == 2);
    CHECK(PARSE(&set, "-l", "7", "-l", "8, 9") == 0 && numbers.n == 2 && numbers.items[1] == 9);
    CHECK(PARSE(&set, "-l", "x") == -1);
    CHECK_STR(err.message, "-l needs a whole number from 1 to 4096, not 'x'");
    CHECK(PARSE(&set, "-l", "1,x,3") == -1);
    CHECK_STR(err.message, "-l needs a whole number from 1 to 4096, not 'x' in '1,x,3'");
    CHECK(PARSE(&set, "-l", "1,") == -1 && strstr(err.message, "not '' in '1,'"));
    CHECK(PARSE(&set, "-l", ",1") == -1 && PARSE(&set, "-l", "1,,2") == -1);
    CHECK(PARSE(&set, "-l", ",") == -1 && PARSE(&set, "-l", "") == -1);
    CHECK(PARSE(&set, "-l", "1,4097") == -1 && PARSE(&set, "-l", "0,1") == -1);
    CHECK(PARSE(&set, "-l", "1;2") == -1 && PARSE(&set, "-l", "1.5,2") == -1);
    CHECK(numbers.n == 2 && numbers.items[1] == 9); /* what was refused has changed nothing */
    /* As many as fit; then one too many, and a number that never ends. */
    char many[200] = "1";
    for (int i = 1; i < NUMBER_LIST_MAX; i++)
        strcat(many, ",1");
    CHECK(PARSE(&set, "-l", many) == 0 && numbers.n == NUMBER_LIST_MAX);
    strcat(many, ",1");
    CHECK(PARSE(&set, "-l", many) == -1 && strstr(err.message, "at most 32 numbers"));
    memset(many, ' ', 150);
    memcpy(many + 150, "1x", 3);
    CHECK(PARSE(&set, "-l", many) == -1);
}

TEST(args, an_earlier_table_hides_options_of_the_same_name)
{
    static uint32_t hidden;
    static const struct option first[] = {UINTS("number n", &numbers, "N,...", 0, 9, ""), {0}};
    static const struct option second[] = {UINT("number n", &hidden, "N", 0, 9, ""), {0}};
    struct option_set set = {.tables = {first, second}};
    char *argv[] = {"-n", "4,5"};
    CHECK(args_parse(&set, 2, argv, &err) == 0 && numbers.n == 2 && hidden == 0);
}

TEST(args, seeds)
{
    struct option_set set;
    CHECK(PARSE(&set, "--seed", "0") == 0 && seed.is_given && seed.value == 0);
    CHECK(PARSE(&set, "--seed", "9223372036854775807") == 0 && seed.value == INT64_MAX);
    CHECK(PARSE(&set, "--seed", "-1") == 0 && !seed.is_given);
    CHECK(PARSE(&set, "--seed", "-2") == -1 && strstr(err.message, "-1 for a random one"));
    CHECK(PARSE(&set, "--seed", "9223372036854775808") == -1 && PARSE(&set, "--seed", "1x") == -1);
}

TEST(args, cache_sizes)
{
    struct cache_size size;
    CHECK(cache_size_parse("2GiB", &size, &err) == 0 && size.bytes == (uint64_t)2 << 30);
    CHECK(cache_size_parse("1.5M", &size, &err) == 0 && size.bytes == 3 << 19);
    CHECK(cache_size_parse("4096", &size, &err) == 0 && size.bytes == 4096);
    CHECK(cache_size_parse("100000t", &size, &err) == 0 && size.tokens == 100000 && !size.bytes);
    CHECK(cache_size_parse("max", &size, &err) == 0 && size.is_max && !size.bytes && !size.tokens);
    CHECK(cache_size_parse("4096", &size, &err) == 0 && !size.is_max);
    CHECK(cache_size_parse("Max", &size, &err) == -1 &&
          cache_size_parse("max1", &size, &err) == -1);
    CHECK(cache_size_parse("", &size, &err) == -1 && cache_size_parse("-1", &size, &err) == -1);
    CHECK(cache_size_parse("1 GiB", &size, &err) == -1 && strstr(err.message, "512MiB"));
    CHECK(cache_size_parse("nan", &size, &err) == -1 &&
          cache_size_parse("1e99", &size, &err) == -1);
    struct option_set set;
    CHECK(PARSE(&set, "--size", "2K") == 0 && size_option.bytes == 2048);
    CHECK(PARSE(&set, "--size", "2XB") == -1 && strstr(err.message, "--size: '2XB'"));
}

TEST(args, durations)
{
    uint64_t ms = 7;
    CHECK(duration_parse("30m", &ms, &err) == 0 && ms == 30 * 60 * 1000);
    CHECK(duration_parse("0", &ms, &err) == 0 && ms == 0);
    CHECK(duration_parse("30", &ms, &err) == 0 && ms == 30 * 60 * 1000);
    CHECK(duration_parse("90s", &ms, &err) == 0 && ms == 90000);
    CHECK(duration_parse("250ms", &ms, &err) == 0 && ms == 250);
    CHECK(duration_parse("1.5m", &ms, &err) == 0 && ms == 90000);
    CHECK(duration_parse("2h", &ms, &err) == 0 && ms == 7200000);
    CHECK(duration_parse("7d", &ms, &err) == 0 && ms == 7 * 86400000u);
    static const char *const wrong[] = {"",    "s",  "30x", "-1",  "-1s",
                                        "1 s", "1x", "nan", "inf", "1e99d"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK_INT(duration_parse(wrong[i], &ms, &err), -1);
        CHECK(strstr(err.message, "30m") != NULL);
    }
    CHECK(ms == 7 * 86400000u);
}

TEST(args, an_exact_spelling_is_an_option_of_its_own)
{
    struct option_set set;
    size_option = (struct cache_size){0};
    count = 0;
    CHECK(PARSE(&set, "-exact_name", "100000") == 0);
    CHECK(size_option.tokens == 100000 && size_option.bytes == 0 && !size_option.is_max);
    CHECK(PARSE(&set, "-exact_name=7") == 0);
    CHECK(size_option.tokens == 7 && count == 0);
    static char *const others[] = {"--exact-name", "--exact_name", "-exact-name"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        count = 0;
        CHECK(PARSE(&set, others[i], "9") == 0);
        CHECK(count == 9 && size_option.tokens == 7);
    }
    CHECK(PARSE(&set, "--size", "2GiB", "-exact_name", "8") == 0);
    CHECK(size_option.tokens == 8 && size_option.bytes == 0);
    CHECK(PARSE(&set, "-exact_name", "1") == -1);
    CHECK_STR(err.message, "-exact_name needs a whole number of at least 2, not '1'");
    CHECK(PARSE(&set, "-exact_name", "100k") == -1 && PARSE(&set, "-exact_name", "-5") == -1);
    CHECK(PARSE(&set, "-exact_name=") == -1);
    CHECK_STR(err.message, "-exact_name needs a value (N)");
    CHECK(PARSE(&set, "-exact_name") == -1);
    CHECK_STR(err.message, "'-exact_name' needs a value (N)");
}

TEST(args, an_unknown_option_names_the_nearest)
{
    static const struct {
        char *given;
        const char *message;
    } cases[] = {
        {"--color", "unknown option '--color': did you mean --colour?"},
        {"--colour-=x", "unknown option '--colour-=x': did you mean --colour?"},
        {"-fractoin", "unknown option '-fractoin': did you mean --fraction?"},
        {"--some_txet", "unknown option '--some_txet': did you mean --some-text?"},
        {"--zzz", "unknown option '--zzz'"},
        {"-z", "unknown option '-z'"},
        {"---", "unknown option '---'"},
        {"--unbounde", "unknown option '--unbounde'"}, /* one that help hides is not named */
        {"-ngl", "unknown option '-ngl': radish computes all layers on one device; use --engine "
                 "cuda or --engine cpu (the default is the GPU if there is one)"},
        {"--n_gpu_layers=99",
         "unknown option '--n_gpu_layers=99': radish computes all layers on one device; use "
         "--engine cuda or --engine cpu (the default is the GPU if there is one)"},
        {"--verbose", "unknown option '--verbose': set RADISH_LOG=debug in the environment"},
        {"--max-model-len", "unknown option '--max-model-len'"}, /* this command has no -c */
        {"--prompt", "unknown option '--prompt': use `radish run -m PATH \"prompt\"`"},
        {"-hf", NULL},
        {"--mmproj", NULL},
        {"--lora", NULL},
        {"--embedding", NULL},
    };
    struct option_set set;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK(PARSE(&set, cases[i].given) == -1);
        if (cases[i].message)
            CHECK_STR(err.message, cases[i].message);
        else
            CHECK(strstr(err.message, "radish has no "));
    }
    char longest[400] = "--";
    memset(longest + 2, 'x', sizeof longest - 3);
    CHECK(PARSE(&set, longest) == -1 && strstr(err.message, "unknown option"));
}

TEST(args, counts_typing_errors)
{
    static const struct {
        const char *a, *b;
        size_t distance;
    } cases[] = {
        {"", "", 0},
        {"abc", "abc", 0},
        {"abc", "abd", 1},
        {"abc", "acb", 1},
        {"abc", "ab", 1},
        {"", "abc", 3},
        {"kitten", "sitting", 3},
        {"quantise", "quantize", 1},
        {"abcd", "badc", 2},
        {"ca", "abc", 3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_INT(name_distance(cases[i].a, cases[i].b), cases[i].distance);
        CHECK_INT(name_distance(cases[i].b, cases[i].a), cases[i].distance);
    }
    CHECK(name_is_near("serv", 1) && !name_is_near("serv", 2) && !name_is_near("ab", 1));
}

TEST(args, shares_of_memory)
{
    static const struct {
        const char *text;
        double fraction;
        uint64_t bytes;
    } good[] = {{"0.9", 0.9, 0},    {"1", 1, 0},
                {"1e-3", 1e-3, 0},  {"20GiB", 0, (uint64_t)20 << 30},
                {"1M", 0, 1 << 20}, {"1048576", 0, 1 << 20}};
    static const char *const bad[] = {"0", "-1", "1.5", "2", "100000t", "max", "nan", "1K", "90%"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        share = (struct memory_share){.fraction = 5, .bytes = 5};
        CHECK_INT(memory_share_parse(good[i].text, &share, &err), 0);
        CHECK(share.fraction == good[i].fraction && share.bytes == good[i].bytes);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_INT(memory_share_parse(bad[i], &share, &err), -1);
    CHECK_STR(err.message, "'90%' is not an amount of memory: give a fraction of the free "
                           "memory, such as 0.9, or a size of at least 1MiB, such as 20GiB");
}
