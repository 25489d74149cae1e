/* See test_memory.h: the other side of the linker's --wrap. */
#include "test_memory.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"

static _Thread_local bool ends;
static _Thread_local uint32_t left;
static _Thread_local uint64_t taken;

static struct {
    atomic_uint to_failure;   /* how many allocations until one fails; 0: none fails */
    atomic_size_t held_bytes; /* an allocation of that many waits; 0: none does */
    atomic_uint n_held;
    atomic_ullong skipped_ns;
} * shared; /* with the processes that are forked */
static bool is_watched;

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *old, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
uint64_t __real_clock_now_ns(void);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
uint64_t __wrap_clock_now_ns(void);

__attribute__((constructor)) static void share(void)
{
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        abort();
}

void memory_ends_after(uint32_t n)
{
    ends = true;
    left = n;
}

void memory_is_back(void)
{
    ends = false;
}

uint64_t memory_taken(void)
{
    return taken;
}

void memory_is_watched(bool yes)
{
    is_watched = yes;
}

void memory_fails_once(uint32_t n)
{
    atomic_store(&shared->to_failure, n);
}

bool memory_has_failed(void)
{
    return atomic_load(&shared->to_failure) == 0;
}

void memory_holds(size_t n_bytes)
{
    atomic_store(&shared->held_bytes, n_bytes);
}

uint32_t memory_n_held(void)
{
    return atomic_load(&shared->n_held);
}

static void wait_if_held(size_t size)
{
    bool is_held = false;
    for (size_t least; is_watched && (least = atomic_load(&shared->held_bytes)) && size >= least;) {
        if (!is_held)
            atomic_fetch_add(&shared->n_held, 1);
        is_held = true;
        usleep(500);
    }
    if (is_held)
        atomic_fetch_sub(&shared->n_held, 1);
}

void clock_skip_ns(uint64_t ns)
{
    atomic_fetch_add(&shared->skipped_ns, ns);
}

static bool fails_once(void)
{
    unsigned n = is_watched ? atomic_load(&shared->to_failure) : 0;
    while (n && !atomic_compare_exchange_weak(&shared->to_failure, &n, n - 1))
        ;
    return n == 1;
}

/* C lets an allocator return NULL for zero bytes. This one does, and that must not be taken for a
 * failure. */
static bool fails(size_t size)
{
    taken += size;
    if (size == 0 || fails_once())
        return true;
    if (!ends)
        return false;
    if (left == 0)
        return true;
    left--;
    return false;
}

void *__wrap_malloc(size_t size)
{
    wait_if_held(size);
    return fails(size) ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
    wait_if_held(n * size);
    return fails(n * size) ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *old, size_t size)
{
    return fails_once() ? NULL : __real_realloc(old, size);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return fails(size) ? NULL : __real_aligned_alloc(alignment, size);
}

uint64_t __wrap_clock_now_ns(void)
{
    return __real_clock_now_ns() + atomic_load_explicit(&shared->skipped_ns, memory_order_relaxed);
}
