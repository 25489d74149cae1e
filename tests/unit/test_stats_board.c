/* Statistics are read consistently, whatever the writer does at the same time. */
#include <pthread.h>
#include <stdlib.h>

#include "sched/stats_board.h"
#include "test.h"

enum { ROUNDS = 20000 };

static struct stats_board board;
static atomic_bool is_over;

/* All of it is one number. */
static struct scheduler_stats stats_of(unsigned char number)
{
    struct scheduler_stats stats;
    memset(&stats, number, sizeof stats);
    return stats;
}

TEST(stats_board, what_was_written_last_is_read)
{
    struct stats_board *b = calloc(1, sizeof *b);
    struct scheduler_stats got, want;
    for (unsigned char number = 1; number < 5; number++) {
        want = stats_of(number);
        stats_board_write(b, &want);
        stats_board_read(b, &got);
        CHECK(memcmp(&got, &want, sizeof got) == 0);
    }
    free(b);
}

static void *write_on(void *unused)
{
    (void)unused;
    for (unsigned i = 0; !atomic_load(&is_over); i++) {
        struct scheduler_stats stats = stats_of((unsigned char)i);
        stats_board_write(&board, &stats);
    }
    return NULL;
}

TEST(stats_board, threads_never_read_a_part)
{
    pthread_t writer;
    int n_torn = 0;
    atomic_store(&is_over, false);
    CHECK(pthread_create(&writer, NULL, write_on, NULL) == 0);
    for (int i = 0; i < ROUNDS; i++) {
        struct scheduler_stats got, want;
        stats_board_read(&board, &got);
        want = stats_of(*(unsigned char *)&got);
        n_torn += memcmp(&got, &want, sizeof got) != 0;
    }
    atomic_store(&is_over, true);
    pthread_join(writer, NULL);
    CHECK_INT(n_torn, 0);
}
