/* The table of edges against a plain array, as full as it gets. */
#include "cache/edge_table.h"

#include "base/hash.h"

#include "test.h"
#include "test_death.h"

TEST(edge_table, finds_replaces_and_forgets)
{
    struct edge_table e;
    struct error err;
    CHECK_INT(edge_table_open(&e, 4, &err), 0);
    CHECK_INT(edge_table_find(&e, 0, 0), 0);
    edge_table_put(&e, 0, 0, 5);
    edge_table_put(&e, 0, UINT64_MAX, 6);
    edge_table_put(&e, 1, 0, 7);
    CHECK_INT(edge_table_find(&e, 0, 0), 5);
    CHECK_INT(edge_table_find(&e, 0, UINT64_MAX), 6);
    CHECK_INT(edge_table_find(&e, 1, 0), 7);
    CHECK_INT(edge_table_find(&e, 1, UINT64_MAX), 0);
    edge_table_put(&e, 0, 0, 8);
    CHECK_INT(edge_table_find(&e, 0, 0), 8);
    CHECK_INT(e.count, 3);
    edge_table_remove(&e, 0, 0);
    CHECK_INT(edge_table_find(&e, 0, 0), 0);
    CHECK_INT(edge_table_find(&e, 1, 0), 7);
    CHECK_INT(e.count, 2);
    CHECK_ABORTS(edge_table_remove(&e, 0, 0));
    edge_table_close(&e);
}

/* Few slots, so that runs of neighbours are long and wrap around the end; every key is searched
 * after every step. */
TEST(edge_table, random_against_an_array)
{
    enum { MAX = 8, PARENTS = 4, TOKENS = 16, STEPS = 20000 };
    struct edge_table e;
    struct error err;
    uint32_t want[PARENTS][TOKENS] = {{0}}, count = 0;
    uint64_t random = 99;
    CHECK_INT(edge_table_open(&e, MAX, &err), 0);
    for (uint32_t step = 1; step <= STEPS; step++) {
        uint64_t r = hash_mix(random++);
        uint32_t parent = r % PARENTS, token = (r >> 8) % TOKENS;
        uint32_t *at = &want[parent][token];
        if (*at && r >> 32 & 1) {
            edge_table_remove(&e, parent, token);
            *at = 0;
            count--;
        } else if (*at || count < MAX) {
            edge_table_put(&e, parent, token, step);
            count += *at == 0;
            *at = step;
        }
        CHECK_INT(e.count, count);
        for (uint32_t p = 0; p < PARENTS; p++)
            for (uint32_t t = 0; t < TOKENS; t++)
                CHECK_INT(edge_table_find(&e, p, t), want[p][t]);
    }
    edge_table_close(&e);
}
