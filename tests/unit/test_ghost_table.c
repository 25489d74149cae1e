/* The table of recent removals. */
#include "cache/ghost_table.h"

#include "base/hash.h"
#include "cache/prefix_tree.h"
#include "test.h"

/* A digest in the given set, one of many. */
static uint64_t in_set(uint64_t set, uint64_t nth)
{
    return nth << 32 | set;
}

static struct ghost_table *open_ghosts(void)
{
    struct ghost_table *g = NULL;
    struct error err;
    CHECK_INT(ghost_table_open(&g, &err), 0);
    return g;
}

static void add(struct ghost_table *g, uint64_t digest, uint64_t gone_ns)
{
    *ghost_table_add(g) = (struct ghost){digest, gone_ns, gone_ns / 2, MISS_EVICTED};
}

TEST(ghost_table, finds_what_was_added_last)
{
    struct ghost_table *g = open_ghosts();
    CHECK(ghost_table_find(g, 5) == NULL);
    CHECK(ghost_table_find(g, 0) == NULL);
    add(g, in_set(5, 0), 100);
    add(g, in_set(5, 1), 101);
    *ghost_table_add(g) = (struct ghost){in_set(5, 0), 102, 52, MISS_CLEARED};
    CHECK_INT(ghost_table_find(g, in_set(5, 0))->gone_ns, 102);
    CHECK_INT(ghost_table_find(g, in_set(5, 0))->why, MISS_CLEARED);
    CHECK_INT(ghost_table_find(g, in_set(5, 1))->last_used_ns, 50);
    CHECK(ghost_table_find(g, in_set(5, 2)) == NULL);
    CHECK(ghost_table_find(g, in_set(5, 1) + GHOST_SETS) == NULL); /* its tag, not its digest */
    add(g, in_set(5, 0), 103);                                     /* after someone has asked */
    CHECK_INT(ghost_table_find(g, in_set(5, 0))->gone_ns, 103);
    ghost_table_close(g);
}

TEST(ghost_table, forgets_the_oldest_of_a_set)
{
    struct ghost_table *g = open_ghosts();
    for (uint64_t i = 1; i <= GHOST_WAYS + 2; i++)
        add(g, in_set(9, i), i);
    CHECK(ghost_table_find(g, in_set(9, 1)) == NULL);
    CHECK(ghost_table_find(g, in_set(9, 2)) == NULL);
    for (uint64_t i = 3; i <= GHOST_WAYS + 2; i++)
        CHECK_INT(ghost_table_find(g, in_set(9, i))->gone_ns, i);
    ghost_table_close(g);
}

TEST(ghost_table, forgets_what_is_overwritten)
{
    for (int asks = 0; asks < 2; asks++) {
        struct ghost_table *g = open_ghosts();
        add(g, in_set(1, 1), 7);
        add(g, in_set(2, 2), 8);
        if (asks)
            CHECK_INT(ghost_table_find(g, in_set(1, 1))->gone_ns, 7);
        for (uint64_t i = 0; i < GHOST_LOG - 1; i++)
            add(g, in_set(100 + i % 1000, i), i);
        CHECK(ghost_table_find(g, in_set(1, 1)) == NULL);
        CHECK_INT(ghost_table_find(g, in_set(2, 2))->gone_ns, 8); /* the oldest in the log */
        add(g, in_set(3, 3), 9);
        CHECK(ghost_table_find(g, in_set(2, 2)) == NULL);
        CHECK_INT(ghost_table_find(g, in_set(3, 3))->gone_ns, 9);
        ghost_table_close(g);
    }
}

TEST(ghost_table, finds_what_is_in_its_log)
{
    struct ghost_table *g = open_ghosts();
    uint32_t n = GHOST_LOG + GHOST_LOG / 2, n_found = 0;
    for (uint32_t i = 0; i < n; i++)
        add(g, hash_pair(1, i), i);
    for (uint32_t i = 0; i < n; i++) {
        const struct ghost *found = ghost_table_find(g, hash_pair(1, i));
        CHECK(!found || (found->gone_ns == i && i >= n - GHOST_LOG));
        n_found += found != NULL;
    }
    CHECK(n_found > GHOST_LOG * 8 / 10); /* some sets have more of them than places */
    CHECK(ghost_table_find(g, hash_pair(1, n - 1)));
    ghost_table_close(g);
}
