/* Runs worlds with fresh seeds: the cache against its model for as long as asked (soak SECONDS
 * [SEED [WORLD]]; WORLD selects names that contain it), or the scheduler on a mock engine with
 * every feature, for N steps (soak --steps N [SEED]). Prints a line every ten seconds, and the
 * options that repeat a failure. The worlds' rules are in tests/unit/cache_world.c and
 * tests/unit/sched_world.h. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/hash.h"
#include "cache_world.h"
#include "sched_world.h"
#include "test.h"

enum { STEPS_A_WORLD = 20000, STEPS_A_SCHEDULER = 5000 };

static const char *world_name, *again; /* the running world, and the options that repeat it */
static const char *wanted = "";        /* filter for the names of the cache worlds */
static uint64_t seed, n_steps;

void test_fail(const char *file, int line, const char *format, ...)
{
    va_list args;
    fprintf(stderr, "%s:%d: ", file, line);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, "\nsoak: FAILED in \"%s\" at step %llu; again with: soak %s %llu %s\n",
            world_name, (unsigned long long)n_steps, again, (unsigned long long)seed, wanted);
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

static void report_scheduler(const struct sched_totals *t, double seconds)
{
    printf("scheduler soak: %.0f s, %llu steps, %.0f a second; %llu requests, %llu tokens checked; "
           "%llu images in prompts, %llu encoded; %llu of %llu prompt tokens cached\n",
           seconds, (unsigned long long)t->n_steps, (double)t->n_steps / seconds,
           (unsigned long long)t->n_requests, (unsigned long long)t->n_tokens,
           (unsigned long long)t->n_images, (unsigned long long)t->n_encoded,
           (unsigned long long)t->cached_tokens, (unsigned long long)t->prompt_tokens);
    fflush(stdout);
}

static void report_scheduler_kinds(const struct sched_totals *t)
{
    printf("scheduler soak: canceled %llu, failed %llu, preempted %llu, retried %llu, forked %llu, "
           "adapters loaded %llu, devices lost %llu; pages of sides evicted %llu + %llu and "
           "%llu + %llu; worlds of 1, 2, 3 groups: %llu, %llu, %llu\n",
           (unsigned long long)t->n_canceled, (unsigned long long)t->n_failed,
           (unsigned long long)t->n_preempted, (unsigned long long)t->n_retried,
           (unsigned long long)t->n_forked, (unsigned long long)t->n_adapters,
           (unsigned long long)t->n_lost, (unsigned long long)t->interior[0],
           (unsigned long long)t->tails[0], (unsigned long long)t->interior[1],
           (unsigned long long)t->tails[1], (unsigned long long)t->n_worlds[1],
           (unsigned long long)t->n_worlds[2], (unsigned long long)t->n_worlds[3]);
}

static int soak_scheduler(uint64_t want)
{
    struct sched_totals totals = {0};
    uint64_t began_ns = clock_now_ns();
    double next_report = 10;
    world_name = "scheduler";
    again = "--steps 1";
    printf("scheduler soak: begins with seed %llu\n", (unsigned long long)seed);
    for (; totals.n_steps < want; seed++) {
        struct sched_world *w = sched_world_open(seed);
        for (n_steps = 0; n_steps < STEPS_A_SCHEDULER; n_steps++)
            sched_world_step(w);
        sched_world_close(w, &totals);
        if (seconds_since(began_ns) >= next_report) {
            report_scheduler(&totals, seconds_since(began_ns));
            next_report += 10;
        }
    }
    report_scheduler(&totals, seconds_since(began_ns));
    report_scheduler_kinds(&totals);
    return 0;
}

/* A random world among the wanted ones; NULL: none matches. */
static const struct world_config *pick_world(uint64_t random)
{
    const struct world_config *found[64];
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_world_configs; i++)
        if (strstr(world_configs[i].name, wanted))
            found[n++] = &world_configs[i];
    return n ? found[random % n] : NULL;
}

static int soak_cache(double seconds)
{
    struct world_totals totals = {0};
    uint64_t began_ns = clock_now_ns();
    double next_report = 10;
    again = "1";
    printf("cache soak: begins with seed %llu\n", (unsigned long long)seed);
    for (; seconds_since(began_ns) < seconds; seed++) {
        const struct world_config *config = pick_world(hash_mix(seed));
        world_name = config->name;
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

int main(int argc, char **argv)
{
    bool of_scheduler = argc > 1 && strcmp(argv[1], "--steps") == 0;
    int n = of_scheduler ? 3 : 2;
    wanted = !of_scheduler && argc > 3 ? argv[3] : "";
    if (argc < n || argc > 4 || !pick_world(0)) {
        fprintf(stderr, "usage: soak SECONDS [SEED [WORLD]]\n       soak --steps N [SEED]\n");
        return 2;
    }
    seed = argc > n ? strtoull(argv[n], NULL, 10) : (uint64_t)time(NULL) * 1000003;
    return of_scheduler ? soak_scheduler(strtoull(argv[2], NULL, 10)) : soak_cache(atof(argv[1]));
}
