/* How much of the host's work overlaps the device's: eight streams decode on the mock engine, whose
 * batches take a fixed time, while their filters take time to make masks.
 *
 *   one after the other   masks + device + the rest
 *   overlapped            max(masks, device) + the rest
 *
 * `the rest` is the work that needs logits, and submitting. It is measured with masks and a device
 * that take no time. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "engine/mock/mock_engine.h"
#include "sched/scheduler.h"

enum { WORDS = 1024, STREAMS = 8, STEPS = 200, ROUNDS = 5, PROMPT = 16 };

struct slow_filter {
    struct token_filter base;
    uint32_t mask_us;
};

static void die(const char *message)
{
    fprintf(stderr, "bench_overlap: %s\n", message);
    exit(1);
}

static const uint64_t *slow_mask(struct token_filter *filter, uint32_t n_left)
{
    const struct slow_filter *f = (const struct slow_filter *)filter;
    uint64_t end_ns = clock_now_ns() + f->mask_us * UINT64_C(1000);
    (void)n_left;
    while (f->mask_us && clock_now_ns() < end_ns)
        continue;
    return NULL; /* any token is allowed */
}

static enum filter_verdict slow_accept(struct token_filter *filter, int32_t token)
{
    (void)filter;
    (void)token;
    return FILTER_GO_ON;
}

static const struct token_filter_ops slow_ops = {.mask = slow_mask, .accept = slow_accept};

static struct token_table make_table(void)
{
    static const char *bytes[WORDS];
    static uint32_t lengths[WORDS];
    static bool is_end[WORDS];
    for (uint32_t i = 0; i < WORDS; i++) {
        bytes[i] = "a";
        lengths[i] = 1;
    }
    return (struct token_table){WORDS, bytes, lengths, is_end};
}

/* Microseconds per decode step. */
static double measure(bool is_async, uint32_t device_us, uint32_t mask_us)
{
    static struct request requests[STREAMS];
    static uint64_t prompts[STREAMS][PROMPT];
    struct slow_filter filters[STREAMS];
    struct mock_options mock = {.n_vocab = WORDS,
                                .fail_token = -1,
                                .end_token = -1,
                                .batch_cost_us = device_us,
                                .is_async = is_async};
    uint32_t length = PROMPT + STEPS + 64;
    struct engine_limits limits = {
        .n_pages = {STREAMS * length}, .max_rows = 256, .max_seqs = STREAMS, .max_length = length};
    struct scheduler_options options = {
        .tokens = make_table(), .max_seqs = STREAMS, .max_length = length, .step_budget_ms = 100};
    struct scheduler *s;
    struct sched_event event;
    struct error err;
    if (mock_engine_open(&options.engine, &mock, &limits, &err) ||
        scheduler_open(&s, &options, &err))
        die(err.message);
    for (uint32_t i = 0; i < STREAMS; i++) {
        for (uint32_t k = 0; k < PROMPT; k++)
            prompts[i][k] = cache_token_text((int32_t)(i * PROMPT + k));
        filters[i] = (struct slow_filter){{&slow_ops}, mask_us / STREAMS};
        requests[i] = (struct request){.tokens = prompts[i],
                                       .n_tokens = PROMPT,
                                       .max_tokens = STEPS + 32,
                                       .filter = &filters[i].base,
                                       .sampling = SAMPLING_DEFAULT};
        requests[i].sampling.temperature = 0;
        if (scheduler_submit(s, &requests[i]) != SUBMIT_OK)
            die("submit");
    }
    for (uint32_t i = 0; i < 16; i++)
        scheduler_step(s);
    uint64_t took_ns = 0;
    for (uint32_t i = 0; i < STEPS; i++) {
        for (uint32_t k = 0; k < STREAMS; k++)
            while (scheduler_next_event(s, &requests[k], &event))
                continue;
        uint64_t start_ns = clock_now_ns();
        scheduler_step(s);
        took_ns += clock_now_ns() - start_ns;
    }
    scheduler_close(s);
    engine_close(options.engine);
    return (double)took_ns / STEPS / 1e3;
}

static double best(bool is_async, uint32_t device_us, uint32_t mask_us)
{
    double least = 0;
    for (uint32_t i = 0; i < ROUNDS; i++) {
        double us = measure(is_async, device_us, mask_us);
        least = i == 0 || us < least ? us : least;
    }
    return least;
}

int main(void)
{
    static const uint32_t masks_us[] = {0, 400, 1200, 2000, 2800, 4000};
    const uint32_t device_us = 2000;
    double rest_us = best(true, 0, 0);
    printf("%d streams, a device of %u us a batch; submitting, sampling and the rest: %.0f us\n",
           STREAMS, device_us, rest_us);
    printf("%10s %18s %12s %14s %8s\n", "masks, us", "one by one, us", "overlapped", "at best",
           "ratio");
    for (size_t i = 0; i < sizeof masks_us / sizeof *masks_us; i++) {
        uint32_t mask_us = masks_us[i], longer = mask_us > device_us ? mask_us : device_us;
        double one_by_one = best(false, device_us, mask_us), us = best(true, device_us, mask_us);
        printf("%10u %18.0f %12.0f %14.0f %8.2f\n", mask_us, one_by_one, us, longer + rest_us,
               us / (longer + rest_us));
    }
    return 0;
}
