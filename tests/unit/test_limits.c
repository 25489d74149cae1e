/* Limits: buckets against a count of what was let through, and meters that come and go. */
#include "serve/api/limits.h"

#include "base/hash.h"
#include "test.h"

#define S  UINT64_C(1000000000)
#define T0 (100 * S)

static struct error err;

static struct limit_set limits_of(const char *text)
{
    struct limit_set set;
    CHECK_INT(limits_read(&set, text, &err), 0);
    return set;
}

TEST(limits, are_read)
{
    struct limit_set set = limits_of(" requests-at-once=4,tokens-per-minute=100000000 , "
                                     "requests-per-minute=0,");
    CHECK_INT(set.of[LIMIT_REQUESTS_AT_ONCE], 4);
    CHECK_INT(set.of[LIMIT_TOKENS_PER_MINUTE], 100000000);
    CHECK(set.of[LIMIT_REQUESTS_PER_MINUTE] == LIMIT_NONE && set.of[LIMIT_TOKENS_PER_REQUEST] == 0);
    static const char *const wrong[] = {"",
                                        " ,",
                                        "4",
                                        "requests=4",
                                        "requests-at-once",
                                        "requests-at-once=",
                                        "requests-at-once=4x",
                                        "requests-at-once=4 requests-at-once=4",
                                        "tokens-per-minute=100000001",
                                        "requests-at-once=+4"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK_INT(limits_read(&set, wrong[i], &err), -1);
        CHECK_INT(err.code, ERROR_INPUT);
    }
}

TEST(limits, of_a_key_come_before_the_default)
{
    struct limit_set own = limits_of("requests-at-once=0,tokens-per-minute=5");
    struct limit_set otherwise = limits_of("requests-at-once=4,requests-per-minute=7,"
                                           "tokens-per-minute=9");
    struct limit_set both = limits_or(&own, &otherwise);
    CHECK_INT(limit_of(&both, LIMIT_REQUESTS_AT_ONCE), 0);
    CHECK_INT(limit_of(&both, LIMIT_REQUESTS_PER_MINUTE), 7);
    CHECK_INT(limit_of(&both, LIMIT_TOKENS_PER_MINUTE), 5);
    CHECK_INT(limit_of(&both, LIMIT_TOKENS_PER_REQUEST), 0);
}

static bool begin(struct limiter *l, uint64_t client, const struct limit_set *set, uint64_t now_ns,
                  uint32_t *meter)
{
    struct limit_refusal refusal;
    return limiter_begin(l, client, set, now_ns, meter, &refusal);
}

TEST(limits, requests_at_once)
{
    struct limiter l = {0};
    struct limit_set set = limits_of("requests-at-once=2");
    struct limit_refusal refusal;
    uint32_t a, b, c, other;
    CHECK(begin(&l, 1, &set, T0, &a) && begin(&l, 1, &set, T0, &b));
    CHECK(!limiter_begin(&l, 1, &set, T0, &c, &refusal));
    CHECK(refusal.limit == LIMIT_REQUESTS_AT_ONCE && refusal.allowed == 2);
    CHECK(begin(&l, 2, &set, T0, &other));
    limiter_end(&l, a);
    CHECK(begin(&l, 1, &set, T0, &c) && !begin(&l, 1, &set, T0, &a));
    limiter_free(&l);
}

TEST(limits, none_means_none)
{
    struct limiter l = {0};
    struct limit_set set = {0};
    uint32_t meter;
    for (int i = 0; i < 1000; i++)
        CHECK(begin(&l, 1, &set, T0, &meter) && meter == 0);
    limiter_end(&l, 0);
    limiter_charge(&l, 0, 1, 1000000, T0);
    CHECK_INT(limiter_level(&l, 0, LIMIT_TOKENS_PER_MINUTE, T0).limit, 0);
    CHECK(!l.meters);
}

/* A minute's worth at once, then exactly the limit, however it is divided. */
TEST(limits, requests_a_minute_are_exact)
{
    static const uint32_t rates[] = {1, 7, 11, 60, 997, 60000};
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        struct limiter l = {0};
        struct limit_set set = {.of = {[LIMIT_REQUESTS_PER_MINUTE] = rates[i]}};
        uint32_t meter, n = 0;
        while (begin(&l, 1, &set, T0, &meter))
            n++;
        CHECK_INT(n, rates[i]);
        n = 0;
        const uint64_t step_ns = 60 * S / rates[i] / 3 + 1;
        for (uint64_t now_ns = T0; now_ns <= T0 + 600 * S; now_ns += step_ns)
            n += begin(&l, 1, &set, now_ns, &meter);
        CHECK(n >= 10 * rates[i] - 1 && n <= 10 * rates[i] + 1);
        limiter_free(&l);
    }
}

TEST(limits, a_refusal_says_how_long)
{
    struct limiter l = {0};
    struct limit_set set = limits_of("requests-per-minute=6");
    struct limit_refusal refusal;
    uint32_t meter;
    for (int i = 0; i < 6; i++) {
        CHECK(begin(&l, 1, &set, T0, &meter));
        struct limit_level level = limiter_level(&l, meter, LIMIT_REQUESTS_PER_MINUTE, T0);
        CHECK_INT(level.limit, 6);
        CHECK_INT(level.left, 5 - i);
        CHECK_INT(level.full_in_ns, (i + 1) * 10 * S);
    }
    CHECK(!limiter_begin(&l, 1, &set, T0 + 4 * S, &meter, &refusal));
    CHECK(refusal.limit == LIMIT_REQUESTS_PER_MINUTE && refusal.wait_ns == 6 * S);
    CHECK(!begin(&l, 1, &set, T0 + 10 * S - 1, &meter) && begin(&l, 1, &set, T0 + 10 * S, &meter));
    limiter_free(&l);
}

TEST(limits, tokens_may_fall_below_empty_and_are_paid_back)
{
    struct limiter l = {0};
    struct limit_set set = limits_of("tokens-per-minute=600");
    struct limit_refusal refusal;
    uint32_t meter;
    CHECK(begin(&l, 1, &set, T0, &meter));
    limiter_charge(&l, meter, 1, 599, T0);
    CHECK_INT(limiter_level(&l, meter, LIMIT_TOKENS_PER_MINUTE, T0).left, 1);
    CHECK(begin(&l, 1, &set, T0, &meter));
    limiter_charge(&l, meter, 1, 1801, T0); /* 1800 more than there are: three minutes */
    CHECK_INT(limiter_level(&l, meter, LIMIT_TOKENS_PER_MINUTE, T0).left, 0);
    CHECK(!limiter_begin(&l, 1, &set, T0, &meter, &refusal));
    CHECK(refusal.limit == LIMIT_TOKENS_PER_MINUTE && refusal.wait_ns == 180 * S + S / 10);
    CHECK(!begin(&l, 1, &set, T0 + 180 * S, &meter));
    CHECK(begin(&l, 1, &set, T0 + 180 * S + S / 10, &meter));
    CHECK_INT(limiter_level(&l, meter, LIMIT_TOKENS_PER_MINUTE, T0 + 210 * S).left, 300);
    limiter_free(&l);
}

/* One token at a time for ten minutes, as an answer comes. */
TEST(limits, tokens_one_by_one_are_exact)
{
    struct limiter l = {0};
    struct limit_set set = limits_of("tokens-per-minute=70007");
    struct limit_refusal refusal;
    uint64_t n = 0, now_ns = T0;
    uint32_t meter;
    while (now_ns < T0 + 600 * S) {
        if (!limiter_begin(&l, 1, &set, now_ns, &meter, &refusal)) {
            now_ns += refusal.wait_ns;
            continue;
        }
        for (int i = 0; i < 100; i++, n++)
            limiter_charge(&l, meter, 1, 1, now_ns += 1000);
        limiter_end(&l, meter);
    }
    CHECK(n > 11 * 70007 - 200 && n < 11 * 70007 + 200); /* a full bucket, and ten minutes */
    limiter_free(&l);
}

TEST(limits, a_refused_request_costs_nothing)
{
    struct limiter l = {0};
    struct limit_set set = limits_of("requests-per-minute=60,requests-at-once=1");
    uint32_t meter, other;
    CHECK(begin(&l, 1, &set, T0, &meter));
    for (int i = 0; i < 1000; i++)
        CHECK(!begin(&l, 1, &set, T0, &other));
    CHECK_INT(limiter_level(&l, meter, LIMIT_REQUESTS_PER_MINUTE, T0).left, 59);
    limiter_free(&l);
}

TEST(limits, a_meter_outlives_a_change)
{
    struct limiter l = {0};
    struct limit_set set = limits_of("requests-per-minute=2"),
                     more = limits_of("requests-per-minute=4");
    uint32_t meter;
    CHECK(begin(&l, 1, &set, T0, &meter) && begin(&l, 1, &set, T0, &meter));
    CHECK(!begin(&l, 1, &more, T0, &meter)); /* empty stays empty */
    CHECK(begin(&l, 1, &more, T0 + 15 * S, &meter) && !begin(&l, 1, &more, T0 + 15 * S, &meter));
    limiter_free(&l);
}

/* More clients than meters: those at rest make room, those at work keep their count. */
TEST(limits, of_many_clients)
{
    struct limiter l = {0};
    struct limit_set set = limits_of("requests-at-once=1,tokens-per-minute=60");
    uint32_t meter, busy;
    CHECK(begin(&l, 7, &set, T0, &busy));
    for (uint64_t i = 0; i < 3 * LIMITER_METERS; i++) {
        CHECK(begin(&l, 1000 + i, &set, T0, &meter) && meter > 1);
        limiter_end(&l, meter);
    }
    CHECK(!begin(&l, 7, &set, T0, &meter));
    limiter_end(&l, busy);
    CHECK(begin(&l, 7, &set, T0, &busy));
    limiter_charge(&l, busy, 7, 30, T0);
    limiter_end(&l, busy);
    for (uint64_t i = 0; i < 3 * LIMITER_METERS; i++) { /* its bucket is not full: it stays */
        CHECK(begin(&l, 90000 + i, &set, T0 + S, &meter));
        limiter_end(&l, meter);
    }
    CHECK(begin(&l, 7, &set, T0 + S, &busy));
    CHECK_INT(limiter_level(&l, busy, LIMIT_TOKENS_PER_MINUTE, T0 + S).left, 31);
    limiter_free(&l);
}

TEST(limits, when_all_meters_are_in_use_the_rest_share_one)
{
    struct limiter l = {0};
    struct limit_set set = limits_of("requests-at-once=3,tokens-per-minute=60");
    uint32_t meter, shared[4];
    for (uint64_t i = 1; i < LIMITER_METERS; i++)
        CHECK(begin(&l, i, &set, T0, &meter) && meter > 1);
    for (uint64_t i = 0; i < 4; i++)
        CHECK_INT(begin(&l, 100000 + i, &set, T0, &shared[i]), i < 3);
    CHECK(shared[0] == 1 && shared[3] == 1);
    CHECK(begin(&l, 5, &set, T0, &meter) && meter > 1);
    limiter_end(&l, shared[0]);
    CHECK(begin(&l, 100009, &set, T0, &meter) && meter == 1);
    limiter_charge(&l, meter, 100009, 60, T0);
    limiter_end(&l, meter);
    CHECK(!begin(&l, 100010, &set, T0, &meter));
    limiter_free(&l);
}

/* Tokens of a request whose meter went to another client are not charged to that one. */
TEST(limits, a_late_charge_finds_its_own_meter)
{
    struct limiter l = {0};
    struct limit_set set = limits_of("requests-at-once=1,tokens-per-minute=60");
    uint32_t first, meter = 0;
    CHECK(begin(&l, 7, &set, T0, &first));
    limiter_end(&l, first);
    uint64_t other = 1000;
    for (; meter != first; other++) {
        CHECK(begin(&l, other, &set, T0, &meter));
        limiter_end(&l, meter);
    }
    limiter_charge(&l, first, 7, 60, T0);
    CHECK(begin(&l, other - 1, &set, T0, &meter) && meter == first);
    limiter_charge(&l, first, other - 1, 1, T0);
    CHECK_INT(limiter_level(&l, meter, LIMIT_TOKENS_PER_MINUTE, T0).left, 59);
    limiter_free(&l);
}
