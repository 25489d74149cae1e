#ifndef RADISH_BASE_TASK_H
#define RADISH_BASE_TASK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* Work that may be stopped half-way: a worker's job, whose client may hang up, whose server may
 * stop, and which may take longer than it was given. A thread has one task at a time.
 * Loops over input of any size, however deep below it (JSON, tokenizer, templates, grammars), count
 * what they do:
 *
 *   for (...) {
 *       if (!task_goes_on(1))
 *           return task_error(err);
 *
 * The count only decides when to look at the clock and at the flags, about every 50 microseconds.
 * A stopped task stays stopped. On threads without a task everything goes on. */
enum task_end {
    TASK_DONE,     /* it was not stopped */
    TASK_UNWANTED, /* a flag was set */
    TASK_LATE,     /* it took longer than its limit, or would have */
};

struct task {
    const atomic_bool *flags[2]; /* any of them stops it; NULL: none */
    uint64_t limit_ns;           /* of the thread's CPU time; 0: none */

    /* Set by task_begin. */
    uint64_t begun_ns;
    size_t left; /* until the next look */
    enum task_end end;
};

extern _Thread_local struct task *task_of_thread;

void task_begin(struct task *t);
/* Ends the thread's task and says why it stopped. `used_ns` (may be NULL): its CPU time. */
enum task_end task_finish(uint64_t *used_ns);

bool task_look(struct task *t); /* for task_goes_on */

/* Counts `n` bytes, nodes or steps, each about as much work as reading a few words of memory. False
 * if the task must stop. */
static inline bool task_goes_on(size_t n)
{
    struct task *t = task_of_thread;
    if (!t)
        return true;
    if (n >= t->left)
        return task_look(t);
    t->left -= n;
    return true;
}

/* Before something that may take long whatever its input's size: false, and the task is late, if it
 * has a limit of less than `ns`. */
bool task_has_time(uint64_t ns);

static inline bool task_is_stopped(void)
{
    return task_of_thread && task_of_thread->end != TASK_DONE;
}

/* ERROR_CANCELED; returns -1. */
int task_error(struct error *err);

#endif
