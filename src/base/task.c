/* The task of a thread. Its CPU time counts, so that a busy machine makes no task late. */
#include "base/task.h"

#include "base/clock.h"

enum { LOOK_EVERY = 1 << 14 };

_Thread_local struct task *task_of_thread;

void task_begin(struct task *t)
{
    t->begun_ns = clock_thread_ns();
    t->left = 0; /* looks at once: it may have become unwanted while it waited */
    t->end = TASK_DONE;
    task_of_thread = t;
}

enum task_end task_finish(uint64_t *used_ns)
{
    struct task *t = task_of_thread;
    if (used_ns)
        *used_ns = clock_thread_ns() - t->begun_ns;
    task_of_thread = NULL;
    return t->end;
}

bool task_look(struct task *t)
{
    t->left = 0;
    if (t->end != TASK_DONE)
        return false;
    for (size_t i = 0; i < sizeof t->flags / sizeof *t->flags; i++)
        if (t->flags[i] && atomic_load_explicit(t->flags[i], memory_order_relaxed))
            t->end = TASK_UNWANTED;
    if (t->end == TASK_DONE && t->limit_ns && clock_thread_ns() - t->begun_ns > t->limit_ns)
        t->end = TASK_LATE;
    if (t->end == TASK_DONE)
        t->left = LOOK_EVERY;
    return t->end == TASK_DONE;
}

bool task_has_time(uint64_t ns)
{
    struct task *t = task_of_thread;
    if (t && t->end == TASK_DONE && t->limit_ns && t->limit_ns < ns) {
        t->left = 0;
        t->end = TASK_LATE;
    }
    return !task_is_stopped();
}

int task_error(struct error *err)
{
    return error_set(err, ERROR_CANCELED, "the work was stopped");
}
