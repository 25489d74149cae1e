/* Runs worlds with fresh seeds for as long as asked: soak SECONDS [SEED]. Prints what to repeat a
 * failure with, and a line every ten seconds. The worlds' laws are in tests/unit/cache_world.c. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/hash.h"
#include "cache_world.h"
#include "test.h"

enum { STEPS_A_WORLD = 20000 };

static const struct world_config *config;
static uint64_t seed, n_steps;

void test_fail(const char *file, int line, const char *format, ...)
{
    va_list args;
    fprintf(stderr, "%s:%d: ", file, line);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, "\ncache soak: FAILED in \"%s\" at step %llu; again with: soak 1 %llu\n",
            config->name, (unsigned long long)n_steps, (unsigned long long)seed);
    exit(1);
}

static double seconds_since(uint64_t began_ns)
{
    return (double)(clock_now_ns() - began_ns) / 1e9;
}

static void report(const struct world_totals *t, double seconds)
{
    printf("cache soak: %.0f s, %llu steps, %.0f a second; pages evicted %llu, expired %llu, "
           "cleared %llu; pages of sides from inside %llu and %llu, else %llu and %llu\n",
           seconds, (unsigned long long)t->n_steps, (double)t->n_steps / seconds,
           (unsigned long long)t->evicted, (unsigned long long)t->expired,
           (unsigned long long)t->cleared, (unsigned long long)t->interior[0],
           (unsigned long long)t->interior[1], (unsigned long long)t->tails[0],
           (unsigned long long)t->tails[1]);
    fflush(stdout);
}

static void report_kinds(const struct world_totals *t)
{
    static const char *const kinds[] = {"missed", "common", "supersequence", "prefix"};
    static const char *const reasons[] = {"none",    "never seen", "diverged",  "evicted",
                                          "expired", "cleared",    "namespace", "window"};
    printf("cache soak: lookups");
    for (int i = 0; i < MATCH_KINDS; i++)
        printf(" %s %llu", kinds[i], (unsigned long long)t->lookups[i]);
    printf("; explanations");
    for (int i = 0; i <= MISS_WINDOW; i++)
        printf(" %s %llu", reasons[i], (unsigned long long)t->misses[i]);
    printf(" (forgotten %llu); refused %llu, pins %llu, withdrawals %llu\n",
           (unsigned long long)t->n_forgotten, (unsigned long long)t->n_refused,
           (unsigned long long)t->n_pinned, (unsigned long long)t->n_withdrawn);
}

int main(int argc, char **argv)
{
    if (argc < 2 || argc > 3) {
        fprintf(stderr, "usage: soak SECONDS [SEED]\n");
        return 2;
    }
    double seconds = atof(argv[1]), next_report = 10;
    struct world_totals totals = {0};
    uint64_t began_ns = clock_now_ns();
    seed = argc > 2 ? strtoull(argv[2], NULL, 10) : (uint64_t)time(NULL) * 1000003;
    printf("cache soak: begins with seed %llu\n", (unsigned long long)seed);
    for (; seconds_since(began_ns) < seconds; seed++) {
        config = &world_configs[hash_mix(seed) % n_world_configs];
        struct world *w = world_open(config, seed);
        for (n_steps = 0; n_steps < STEPS_A_WORLD && !world_is_old(w); n_steps++)
            world_step(w);
        world_close(w, &totals);
        if (seconds_since(began_ns) >= next_report) {
            report(&totals, seconds_since(began_ns));
            next_report += 10;
        }
    }
    report(&totals, seconds_since(began_ns));
    report_kinds(&totals);
    return 0;
}
