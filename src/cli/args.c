/* Table-driven command line parsing; see args.h. Errors name the option, the value it was given,
 * and what it expects. */
#include "cli/args.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/foreign_options.h"

static bool names_equal(const char *given, const char *name, size_t len)
{
    if (strlen(given) != len)
        return false;
    for (size_t i = 0; i < len; i++)
        if ((given[i] == '_' ? '-' : given[i]) != name[i])
            return false;
    return true;
}

/* `given` is the bare name, or the name with its dashes to match an exact spelling. */
static bool option_is_named(const struct option *o, const char *given)
{
    for (const char *name = o->names; *name;) {
        size_t len = strcspn(name, " ");
        bool is_exact = name[0] == '-';
        if (is_exact ? strlen(given) == len && memcmp(given, name, len) == 0
                     : names_equal(given, name, len))
            return true;
        name += len + (name[len] == ' ');
    }
    return false;
}

static const struct option *option_find(const struct option_set *set, const char *given)
{
    for (size_t t = 0; t < OPTION_TABLES && set->tables[t]; t++)
        for (const struct option *o = set->tables[t]; o->names; o++)
            if (option_is_named(o, given))
                return o;
    return NULL;
}

/* The long name closest to what was typed; NULL if none is close. */
static const char *option_nearest(const struct option_set *set, const char *given, char out[64])
{
    size_t best = SIZE_MAX;
    for (size_t t = 0; t < OPTION_TABLES && set->tables[t]; t++)
        for (const struct option *o = set->tables[t]; o->names; o++)
            for (const char *name = o->names; *name && o->help;) {
                char one[64];
                size_t len = strcspn(name, " ");
                snprintf(one, sizeof one, "%.*s", (int)len, name);
                size_t distance = name_distance(given, one);
                if (len > 1 && name[0] != '-' && distance < best) {
                    best = distance;
                    memcpy(out, one, sizeof one);
                }
                name += len + (name[len] == ' ');
            }
    return name_is_near(given, best) ? out : NULL;
}

/* Whether the command has every option that the advice names. What stands in backquotes is another
 * command line. */
static bool advice_applies(const struct option_set *set, const char *advice)
{
    bool is_quoted = false;
    for (const char *at = advice; *at; at++) {
        char name[64];
        is_quoted ^= *at == '`';
        if (is_quoted || *at != '-' || (at > advice && at[-1] != ' ' && at[-1] != '('))
            continue;
        at += strspn(at, "-");
        snprintf(name, sizeof name, "%.*s", (int)strcspn(at, " ,;)"), at);
        if (!option_find(set, name))
            return false;
    }
    return true;
}

/* Reports an option that is in no table and suggests a fix. `prefix` stands before names there. */
static int option_unknown(const struct option_set *set, const char *spelled, const char *given,
                          const char *prefix, struct error *err)
{
    char name[64], nearest[64];
    snprintf(name, sizeof name, "%s", given);
    for (char *c = name; *c; c++)
        *c = *c == '_' ? '-' : *c;
    const char *advice;
    for (size_t nth = 0; (advice = foreign_option_advice(name, nth)); nth++)
        if (advice_applies(set, advice))
            return error_set(err, ERROR_INPUT, "unknown option '%s': %s", spelled, advice);
    if (option_nearest(set, name, nearest))
        return error_set(err, ERROR_INPUT, "unknown option '%s': did you mean %s%s?", spelled,
                         prefix, nearest);
    return error_set(err, ERROR_INPUT, "unknown option '%s'", spelled);
}

static int name_length(const struct option *o)
{
    return (int)strcspn(o->names, " ");
}

static const char *dashes(const struct option *o)
{
    return o->names[0] == '-' ? "" : "--";
}

/* "from 1 to 100", "of at least 0", or "up to 2147483647" if the value exceeds that. */
static void range_describe(const struct option *o, double value, char *out, size_t size)
{
    if (o->max > 0)
        snprintf(out, size, "from %.10g to %.10g", o->min, o->max);
    else if (value > INT32_MAX)
        snprintf(out, size, "up to %.10g", (double)INT32_MAX);
    else
        snprintf(out, size, "of at least %.10g", o->min);
}

static int number_parse(const struct option *o, const char *text, double *value, struct error *err)
{
    char *end, range[64];
    errno = 0;
    *value = strtod(text, &end);
    bool is_number = end != text && !*end && !errno;
    if (is_number && o->type == OPTION_COUNT && *value == -1) {
        *value = 0;
        return 0;
    }
    bool is_whole = o->type == OPTION_FLOAT || *value == floor(*value);
    double max = o->max > 0 ? o->max : (double)INT32_MAX;
    if (is_number && *value >= o->min && *value <= max && is_whole)
        return 0;
    range_describe(o, *value, range, sizeof range);
    return error_set(err, ERROR_INPUT, "%s needs a%s number %s%s, not '%s'", o->names,
                     o->type == OPTION_FLOAT ? "" : " whole", range,
                     o->type == OPTION_COUNT ? ", or -1 for no limit" : "", text);
}

static int choice_parse(const struct option *o, const char *text, struct error *err)
{
    char known[128] = "";
    for (int i = 0; o->choices[i]; i++) {
        if (strcmp(o->choices[i], text) == 0) {
            *(int *)o->target = i;
            return 0;
        }
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i ? ", " : "",
                 o->choices[i]);
    }
    return error_set(err, ERROR_INPUT, "%s must be one of %s, not '%s'", o->names, known, text);
}

static int seed_parse(const struct option *o, const char *text, struct error *err)
{
    char *end;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    if (end == text || *end || errno || number < -1)
        return error_set(err, ERROR_INPUT,
                         "%s needs a whole number from 0 to %lld, or -1 for a random one, "
                         "not '%s'",
                         o->names, LLONG_MAX, text);
    *(struct seed *)o->target = (struct seed){.is_given = number >= 0, .value = (uint64_t)number};
    return 0;
}

static int number_set(const struct option *o, const char *text, struct error *err)
{
    double number;
    if (number_parse(o, text, &number, err))
        return -1;
    if (o->type == OPTION_FLOAT)
        *(float *)o->target = (float)number;
    else if (o->type == OPTION_TOKENS)
        *(struct cache_size *)o->target = (struct cache_size){.tokens = (uint64_t)number};
    else
        *(uint32_t *)o->target = (uint32_t)number;
    return 0;
}

/* "128,512": each number must be valid as the option's single value. */
static int numbers_set(const struct option *o, const char *text, struct error *err)
{
    struct number_list list = {.n = 0};
    for (const char *at = text, *end; at; at = *end ? end + 1 : NULL) {
        char one[64];
        double number;
        struct error cause;
        end = at + strcspn(at, ",");
        int len = snprintf(one, sizeof one, "%.*s", (int)(end - at), at);
        if (list.n == NUMBER_LIST_MAX || len >= (int)sizeof one)
            return error_set(err, ERROR_INPUT, "%s takes at most %d numbers, not '%s'", o->names,
                             NUMBER_LIST_MAX, text);
        if (number_parse(o, one, &number, &cause))
            return strchr(text, ',')
                       ? error_set(err, ERROR_INPUT, "%s in '%s'", cause.message, text)
                       : error_set(err, ERROR_INPUT, "%s", cause.message);
        list.items[list.n++] = (uint32_t)number;
    }
    *(struct number_list *)o->target = list;
    return 0;
}

static int list_add(const struct option *o, const char *text, struct error *err)
{
    struct string_list *list = o->target;
    if (list->n == sizeof list->items / sizeof *list->items)
        return error_set(err, ERROR_INPUT, "%s was given too many times: the limit is %zu",
                         o->names, list->n);
    list->items[list->n++] = text;
    return 0;
}

/* Parses a value with a unit. Errors start with the option's name. */
static int amount_set(const struct option *o, const char *text, struct error *err)
{
    struct error cause;
    int failed = o->type == OPTION_SIZE    ? cache_size_parse(text, o->target, &cause)
                 : o->type == OPTION_SHARE ? memory_share_parse(text, o->target, &cause)
                                           : duration_parse(text, o->target, &cause);
    if (failed)
        error_set(err, cause.code, "%s: %s", o->names, cause.message);
    return failed;
}

static int flag_set(const struct option *o, const char *text, struct error *err)
{
    bool is_on = strcmp(text, "on") == 0;
    if (!is_on && strcmp(text, "off") != 0)
        return error_set(err, ERROR_INPUT, "%s is on or off, not '%s'", o->names, text);
    *(bool *)o->target = is_on;
    return 0;
}

/* Notes where an option was set. Returns the earlier place, or NULL if there was none. */
static const struct option_origin *origin_note(struct option_set *set, const struct option *o,
                                               unsigned line)
{
    for (size_t i = 0; i < set->n_origins; i++)
        if (set->origins[i].target == o->target)
            return &set->origins[i];
    assert(set->n_origins < OPTIONS_MAX);
    set->origins[set->n_origins++] = (struct option_origin){o->target, line};
    return NULL;
}

static int option_set_value(const struct option *o, const char *text, struct error *err)
{
    if (o->type != OPTION_FLAG && o->type != OPTION_TEXT && !*text)
        return error_set(err, ERROR_INPUT, "%s needs a value (%s)", o->names, o->value);
    switch (o->type) {
    case OPTION_FLAG: return flag_set(o, text, err);
    case OPTION_STRING:
    case OPTION_TEXT: *(const char **)o->target = text; return 0;
    case OPTION_CHOICE: return choice_parse(o, text, err);
    case OPTION_SEED: return seed_parse(o, text, err);
    case OPTION_SIZE:
    case OPTION_SHARE:
    case OPTION_TIME: return amount_set(o, text, err);
    case OPTION_LIST: return list_add(o, text, err);
    case OPTION_UINTS: return numbers_set(o, text, err);
    case OPTION_UINT:
    case OPTION_COUNT:
    case OPTION_TOKENS:
    case OPTION_FLOAT: return number_set(o, text, err);
    }
    return 0;
}

/* Parses the option at argv[*at]. Its value follows '=' or is the next argument. */
static int option_take(struct option_set *set, int argc, char **argv, int *at, struct error *err)
{
    char name[64];
    const char *given = argv[*at] + 1 + (argv[*at][1] == '-');
    size_t len = strcspn(given, "=");
    const char *value = given[len] == '=' ? given + len + 1 : NULL;
    snprintf(name, sizeof name, "%.*s", (int)(len + (size_t)(given - argv[*at])), argv[*at]);
    const struct option *o = option_find(set, name);
    if (!o)
        o = option_find(set, name + (given - argv[*at]));
    if (!o)
        return option_unknown(set, argv[*at], name + (given - argv[*at]), "--", err);
    if (o->type != OPTION_FLAG && !value) {
        if (++*at >= argc)
            return error_set(err, ERROR_INPUT, "'%s' needs a value (%s)", argv[*at - 1], o->value);
        value = argv[*at];
    }
    origin_note(set, o, 0);
    struct option as_typed = *o; /* errors then name the option as the user did */
    as_typed.names = name;
    return option_set_value(&as_typed, value ? value : "on", err);
}

/* Checks a value without setting anything. */
static int option_check_value(const struct option *o, const char *text, struct error *err)
{
    union {
        bool flag;
        const char *text;
        uint32_t number;
        float fraction;
        int choice;
        uint64_t time;
        struct number_list numbers;
        struct seed seed;
        struct cache_size size;
        struct memory_share share;
        struct string_list list;
    } unused = {0};
    struct option copy = *o;
    copy.target = &unused;
    return option_set_value(&copy, text, err);
}

int args_set_from_file(struct option_set *set, unsigned line, const char *name, const char *value,
                       struct error *err)
{
    const struct option *o = option_find(set, name);
    const char *bare = name + strspn(name, "-");
    if (bare > name && option_find(set, bare))
        return error_set(err, ERROR_INPUT, "names have no dashes in a file: write %s", bare);
    if (!o)
        return option_unknown(set, name, bare, "", err);
    if (!name[1])
        return error_set(err, ERROR_INPUT, "names are written in full in a file: %.*s, not %s",
                         name_length(o), o->names, name);
    if (o->type != OPTION_FLAG && !value)
        return error_set(err, ERROR_INPUT, "%s needs a value (%s)", name, o->value);
    const struct option_origin *earlier = origin_note(set, o, line);
    if (earlier && earlier->line && o->type != OPTION_LIST)
        return error_set(err, ERROR_INPUT, "%s was already set in line %u", name, earlier->line);
    struct option as_written = *o;
    as_written.names = name;
    return earlier && o->type != OPTION_LIST
               ? option_check_value(&as_written, value ? value : "on", err)
               : option_set_value(&as_written, value ? value : "on", err);
}

int args_unexpected(const struct option_set *set, const char *operand, struct error *err)
{
    return error_set(err, ERROR_INPUT, "unexpected argument '%s'%s%s", operand,
                     set->operand_hint ? ": " : "", set->operand_hint ? set->operand_hint : "");
}

int args_parse(struct option_set *set, int argc, char **argv, struct error *err)
{
    bool only_operands = false;
    for (int i = 0; i < argc; i++) {
        if (!only_operands && strcmp(argv[i], "--") == 0) {
            only_operands = true;
        } else if (!only_operands && argv[i][0] == '-' && argv[i][1]) {
            if (option_take(set, argc, argv, &i, err))
                return -1;
        } else {
            if (set->operands.n == set->max_operands)
                return args_unexpected(set, argv[i], err);
            set->operands.items[set->operands.n++] = argv[i];
        }
    }
    return 0;
}

/* Writes an option's short and long names: "-m, --model FILE". */
static void option_spell(const struct option *o, char *out, size_t size)
{
    const char *letter = NULL;
    for (const char *name = o->names; *name;) {
        size_t len = strcspn(name, " ");
        if (len == 1)
            letter = name;
        name += len + (name[len] == ' ');
    }
    snprintf(out, size, "%s%.1s%s%s%.*s%s%s", letter ? "-" : "", letter ? letter : "",
             letter ? ", " : "    ", dashes(o), name_length(o), o->names, o->value ? " " : "",
             o->value ? o->value : "");
}

bool args_is_shown(const struct option_set *set, const struct option *o)
{
    char name[64];
    snprintf(name, sizeof name, "%.*s", name_length(o), o->names);
    return o->help && option_find(set, name) == o;
}

void args_print_options(const struct option_set *set)
{
    for (size_t t = 0; t < OPTION_TABLES && set->tables[t]; t++) {
        for (const struct option *o = set->tables[t]; o->names; o++) {
            char spelling[96];
            if (!args_is_shown(set, o))
                continue;
            option_spell(o, spelling, sizeof spelling);
            printf("  %-31s %s\n", spelling, o->help);
        }
    }
}

int cache_size_parse(const char *text, struct cache_size *size, struct error *err)
{
    static const struct {
        const char *suffix;
        double factor; /* 0: tokens */
    } units[] = {
        {"", 1},          {"K", 1024},     {"KiB", 1024},  {"KB", 1e3},      {"M", 1 << 20},
        {"MiB", 1 << 20}, {"MB", 1e6},     {"G", 1 << 30}, {"GiB", 1 << 30}, {"GB", 1e9},
        {"T", 0x1p40},    {"TiB", 0x1p40}, {"TB", 1e12},   {"t", 0},         {"tokens", 0},
    };
    char *end;
    double number = strtod(text, &end);
    if (strcmp(text, "max") == 0) {
        *size = (struct cache_size){.is_max = true};
        return 0;
    }
    if (end != text && number > 0) {
        for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
            if (strcmp(end, units[i].suffix) != 0 || !(number * units[i].factor < 0x1p60) ||
                !(number < 0x1p60))
                continue;
            *size = (struct cache_size){0};
            if (units[i].factor > 0)
                size->bytes = (uint64_t)(number * units[i].factor);
            else
                size->tokens = (uint64_t)number;
            return 0;
        }
    }
    return error_set(err, ERROR_INPUT,
                     "'%s' is not a size: write bytes as 512MiB or 2GiB, tokens as 100000t, or "
                     "max for all free memory",
                     text);
}

int memory_share_parse(const char *text, struct memory_share *share, struct error *err)
{
    char *end;
    double number = strtod(text, &end);
    struct cache_size size;
    if (end != text && !*end && number > 0 && number <= 1) {
        *share = (struct memory_share){.fraction = number};
        return 0;
    }
    if (cache_size_parse(text, &size, NULL) == 0 && size.bytes >= 1 << 20) {
        *share = (struct memory_share){.bytes = size.bytes};
        return 0;
    }
    return error_set(err, ERROR_INPUT,
                     "'%s' is not an amount of memory: give a fraction of the free memory, such as "
                     "0.9, or a size of at least 1MiB, such as 20GiB",
                     text);
}

int duration_parse(const char *text, uint64_t *ms, struct error *err)
{
    static const struct {
        const char *suffix;
        double factor;
    } units[] = {{"", 60e3},    {"ms", 1},     {"s", 1e3},    {"m", 60e3},
                 {"min", 60e3}, {"h", 3600e3}, {"d", 86400e3}};
    const double most_ms = 100 * 365 * 86400e3;
    char *end;
    double number = strtod(text, &end);
    for (size_t i = 0; end != text && i < sizeof units / sizeof *units; i++) {
        double value = number * units[i].factor;
        if (strcmp(end, units[i].suffix) == 0 && value >= 0 && value <= most_ms) {
            *ms = (uint64_t)value;
            return 0;
        }
    }
    return error_set(err, ERROR_INPUT, "'%s' is not a duration: write it as 90s, 30m or 2h", text);
}
