#ifndef RADISH_CLI_ARGS_H
#define RADISH_CLI_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* Command-line options as tables: a command lists its options, each with the variable it sets, and
 * the parser, the checks and --help all use that list. Names may be written with one dash or two,
 * and with '_' for '-'. A name that begins with '-' must be written exactly so and takes
 * precedence:
 * "-max_tokens" is not --max-tokens. Config files (cli/config_file.h) set the same options. */
enum option_type {
    OPTION_FLAG,   /* bool: --name and --name=on set it, --name=off clears it */
    OPTION_STRING, /* const char *, not empty */
    OPTION_TEXT,   /* const char *, may be empty */
    OPTION_UINT,   /* uint32_t, between min and max */
    OPTION_UINTS,  /* struct number_list: several of those, with commas between them */
    OPTION_COUNT,  /* uint32_t, between min and max, or -1, which sets 0: no limit */
    OPTION_FLOAT,  /* float, between min and max */
    OPTION_SEED,   /* struct seed */
    OPTION_SIZE,   /* struct cache_size */
    OPTION_SHARE,  /* struct memory_share */
    OPTION_TOKENS, /* struct cache_size, given as a number of tokens from min on */
    OPTION_TIME,   /* uint64_t, in milliseconds */
    OPTION_LIST,   /* struct string_list of strings that are not empty, repeatable */
    OPTION_CHOICE, /* int: index into `choices` */
};

/* "512MiB", "2GiB", "1.5G", "4096": bytes. "100000t" or "100000tokens": tokens. "max": all free
 * memory. */
struct cache_size {
    uint64_t bytes, tokens; /* one of them, or neither: the default */
    bool is_max;
};

/* "0.9": this part of the memory that is free. "20GiB": bytes. */
struct memory_share {
    double fraction; /* above 0, at most 1 */
    uint64_t bytes;  /* one of them, or neither: the default */
};

/* The seed of an answer's random numbers. */
struct seed {
    bool is_given; /* false: a new one for each answer */
    uint64_t value;
};

struct string_list {
    const char *items[16];
    size_t n;
};

enum { NUMBER_LIST_MAX = 32 };

struct number_list {
    uint32_t items[NUMBER_LIST_MAX];
    size_t n;
};

struct option {
    const char *names; /* "model m": the long name first, then others; one letter is short */
    enum option_type type;
    void *target;
    const char *value;          /* what --help calls the value */
    const char *help;           /* NULL: works, but --help does not show it */
    double min, max;            /* UINT(S), COUNT, FLOAT: max 0 is no bound but INT32_MAX */
    const char *const *choices; /* CHOICE: NULL-terminated */
};

/* One line of a table. */
#define NO_MAX 0
#define FLAG(names_, target_, help_)                                                               \
    {                                                                                              \
        names_, OPTION_FLAG, target_, NULL, help_, 0, 0, NULL                                      \
    }
#define STRING(names_, target_, value_, help_)                                                     \
    {                                                                                              \
        names_, OPTION_STRING, target_, value_, help_, 0, 0, NULL                                  \
    }
#define TEXT(names_, target_, value_, help_)                                                       \
    {                                                                                              \
        names_, OPTION_TEXT, target_, value_, help_, 0, 0, NULL                                    \
    }
#define UINT(names_, target_, value_, min_, max_, help_)                                           \
    {                                                                                              \
        names_, OPTION_UINT, target_, value_, help_, min_, max_, NULL                              \
    }
#define UINTS(names_, target_, value_, min_, max_, help_)                                          \
    {                                                                                              \
        names_, OPTION_UINTS, target_, value_, help_, min_, max_, NULL                             \
    }
#define COUNT(names_, target_, value_, min_, max_, help_)                                          \
    {                                                                                              \
        names_, OPTION_COUNT, target_, value_, help_, min_, max_, NULL                             \
    }
#define FLOAT(names_, target_, value_, min_, max_, help_)                                          \
    {                                                                                              \
        names_, OPTION_FLOAT, target_, value_, help_, min_, max_, NULL                             \
    }
#define SEED(names_, target_, value_, help_)                                                       \
    {                                                                                              \
        names_, OPTION_SEED, target_, value_, help_, 0, 0, NULL                                    \
    }
#define SIZE(names_, target_, value_, help_)                                                       \
    {                                                                                              \
        names_, OPTION_SIZE, target_, value_, help_, 0, 0, NULL                                    \
    }
#define SHARE(names_, target_, value_, help_)                                                      \
    {                                                                                              \
        names_, OPTION_SHARE, target_, value_, help_, 0, 0, NULL                                   \
    }
#define TOKENS(names_, target_, value_, min_, help_)                                               \
    {                                                                                              \
        names_, OPTION_TOKENS, target_, value_, help_, min_, NO_MAX, NULL                          \
    }
#define DURATION(names_, target_, value_, help_)                                                   \
    {                                                                                              \
        names_, OPTION_TIME, target_, value_, help_, 0, 0, NULL                                    \
    }
#define LIST(names_, target_, value_, help_)                                                       \
    {                                                                                              \
        names_, OPTION_LIST, target_, value_, help_, 0, 0, NULL                                    \
    }
#define CHOICE(names_, target_, value_, choices_, help_)                                           \
    {                                                                                              \
        names_, OPTION_CHOICE, target_, value_, help_, 0, 0, choices_                              \
    }

enum { OPTION_TABLES = 12, OPTIONS_MAX = 256 };

/* Where an option was set. Options that share a target count as one. */
struct option_origin {
    const void *target;
    unsigned line; /* of the config file; 0: the command line */
};

/* Several tables of options, each ended by an entry without names. If two tables have an option of
 * the same name, the first one wins. */
struct option_set {
    const struct option *tables[OPTION_TABLES];
    struct string_list operands; /* what is not an option */
    size_t max_operands;
    const char *operand_hint; /* what to do instead of giving one more; NULL: no idea */
    struct option_origin origins[OPTIONS_MAX]; /* [n_origins] */
    size_t n_origins;
};

int args_parse(struct option_set *set, int argc, char **argv, struct error *err);
/* The error for an operand that the command does not take. */
int args_unexpected(const struct option_set *set, const char *operand, struct error *err);
/* Sets the option that line `line` of a config file names: in full, without dashes. `value` NULL:
 * the line has only the name. An option that the command line set keeps that value; the value here
 * is checked all the same. Lists take the values of both. The texts must outlive the options. */
int args_set_from_file(struct option_set *set, unsigned line, const char *name, const char *value,
                       struct error *err);
/* Whether --help shows the option: it has a help text, and no earlier table has its name. */
bool args_is_shown(const struct option_set *set, const struct option *o);
void args_print_options(const struct option_set *set);

int cache_size_parse(const char *text, struct cache_size *size, struct error *err);
int memory_share_parse(const char *text, struct memory_share *share, struct error *err);
/* "90s", "30m", "2h", "1d"; a plain number is minutes. */
int duration_parse(const char *text, uint64_t *ms, struct error *err);

#endif
