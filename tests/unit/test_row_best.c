/* The best logits of a row, and their sum. */
#include "engine/row_best.h"

#include <math.h>

#include "base/hash.h"
#include "test.h"

enum { N = 50 };

static float log_sum;
static struct row_best best[N];

static void pick(const float *logits, uint32_t n, uint32_t n_best)
{
    row_best_pick(logits, n,
                  &(struct row_output){.best = best, .n_best = n_best, .log_sum = &log_sum});
}

TEST(row_best, are_the_largest_in_order)
{
    float logits[N];
    for (uint64_t round = 0; round < 200; round++) {
        uint32_t n = 1 + (uint32_t)(hash_mix(round) % N);
        double sum = 0;
        for (uint32_t i = 0; i < n; i++) {
            logits[i] = (float)(hash_pair(round, i) % 20) - 10; /* with ties */
            sum += exp((double)logits[i]);
        }
        for (uint32_t n_best = 1; n_best <= n; n_best++) {
            pick(logits, n, n_best);
            for (uint32_t k = 0; k < n_best; k++) {
                uint32_t rank = 0, token = (uint32_t)best[k].token;
                for (uint32_t i = 0; i < n; i++)
                    rank += logits[i] > logits[token] || (i < token && logits[i] == logits[token]);
                CHECK_INT(rank, k);
                CHECK(best[k].logit == logits[token]);
            }
            CHECK(fabs((double)log_sum - log(sum)) < 1e-5);
        }
    }
}

TEST(row_best, of_numbers_that_are_none)
{
    pick((const float[]){1, NAN, 2}, 3, 2);
    CHECK(isnan(log_sum));
    pick((const float[]){NAN, 1, 2}, 3, 1);
    CHECK(isnan(log_sum));
    pick((const float[]){-INFINITY, NAN}, 2, 2);
    CHECK(isnan(log_sum));
    pick((const float[]){-INFINITY, 3, -INFINITY}, 3, 3);
    CHECK(log_sum == 3 && best[0].token == 1 && best[1].token == 0 && best[2].token == 2);
    pick((const float[]){-INFINITY, -INFINITY}, 2, 1);
    CHECK(log_sum == -INFINITY && best[0].token == 0);
    pick((const float[]){1, INFINITY, 2}, 3, 1);
    CHECK(log_sum == INFINITY && best[0].token == 1);
}
