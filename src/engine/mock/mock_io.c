/* Copies the mock's pages to and from the caller's memory. The device moves digests between its
 * pages and `staged`, in the order of jobs. io_poll fills in the caller's memory some polls later,
 * so that a caller who reads it too early sees garbage, and one who changes it too early is caught.
 *
 * In memory, a page is its digest and, if pages are larger, numbers derived from it. Writing a page
 * without those numbers stores garbage. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "engine/mock/mock_internal.h"

/* Number k of a page, of page_bytes / 8. */
static uint64_t number_of(uint64_t digest, uint32_t k)
{
    return k == 0 ? digest : hash_mix(digest + k);
}

static void page_write(uint64_t digest, uint8_t *data, uint32_t page_bytes)
{
    for (uint32_t k = 0; k < page_bytes / 8; k++) {
        uint64_t number = number_of(digest, k);
        memcpy(data + k * sizeof number, &number, sizeof number);
    }
}

/* False if the numbers do not form a page. */
static bool page_read(const uint8_t *data, uint32_t page_bytes, uint64_t *digest)
{
    memcpy(digest, data, sizeof *digest);
    for (uint32_t k = 1; k < page_bytes / 8; k++) {
        uint64_t number;
        memcpy(&number, data + k * sizeof number, sizeof number);
        if (number != number_of(*digest, k))
            return false;
    }
    return true;
}

static uint32_t page_bytes_of(const struct mock_engine *m, const struct mock_ticket *t)
{
    return m->engine.info.groups[t->group].page_bytes;
}

/* Stages what will be written, or garbage until the data is read. */
static void stage(struct mock_engine *m, struct mock_ticket *t)
{
    uint32_t page_bytes = page_bytes_of(m, t);
    for (uint32_t i = 0; page_bytes && i < t->n_pages; i++) {
        uint8_t *data = t->data + (size_t)i * page_bytes;
        if (!t->is_write)
            memset(data, 0xa5, page_bytes);
        else if (!page_read(data, page_bytes, &t->staged[i]))
            t->staged[i] = hash_pair(SALT_RUBBISH, t->staged[i]);
    }
}

static int ticket_open(struct mock_engine *m, struct mock_ticket *t, const struct page_io *io,
                       struct error *err)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < io->n_runs; i++)
        n += io->runs[i].count;
    *t = (struct mock_ticket){.pages = malloc((n + (size_t)1) * sizeof *t->pages),
                              .staged = malloc((n + (size_t)1) * sizeof *t->staged),
                              .group = io->group,
                              .data = io->data,
                              .is_write = io->is_write};
    if (!t->pages || !t->staged) {
        free(t->pages);
        free(t->staged);
        return error_set(err, ERROR_MEMORY, "no memory to move %u pages", n);
    }
    for (uint32_t i = 0; i < io->n_runs; i++) {
        for (uint32_t k = 0; k < io->runs[i].count; k++) {
            uint32_t page = io->runs[i].first + k;
            assert(page < m->engine.limits.n_pages[io->group]);
            t->pages[t->n_pages++] = page;
        }
    }
    stage(m, t);
    return 0;
}

int mock_page_io(struct engine *e, const struct page_io *io, uint64_t *ticket, struct error *err)
{
    struct mock_engine *m = (struct mock_engine *)e;
    struct mock_ticket *t = &m->tickets[(m->last_ticket + 1) % MAX_TICKETS];
    assert(io->group < e->info.n_groups);
    if (mock_lost(m, err))
        return -1;
    if (t->number)
        return error_set(err, ERROR_LIMIT, "%d page transfers are already in progress",
                         MAX_TICKETS);
    if (ticket_open(m, t, io, err))
        return -1;
    uint32_t every = m->options.fail_io_every;
    t->fails = every && ++m->since_io_failure >= every;
    m->since_io_failure = t->fails ? 0 : m->since_io_failure;
    t->polls_left = m->options.io_polls;
    t->number = *ticket = ++m->last_ticket;
    t->job = device_issue(m, (struct job){.kind = JOB_IO, .ticket = t});
    return 0;
}

void io_execute(struct mock_engine *m, struct mock_ticket *t, uint64_t issued_ns)
{
    device_spend(m, (uint64_t)m->options.io_page_cost_us * t->n_pages, issued_ns, NULL);
    for (uint32_t i = 0; i < t->n_pages; i++) {
        uint64_t *page = &m->pages[t->group][t->pages[i]];
        if (t->is_write)
            *page = t->fails ? device_rubbish(m) : t->staged[i];
        else
            t->staged[i] = *page;
    }
}

/* The caller's memory now has what was read, or must still have what was written. */
static void deliver(struct mock_engine *m, struct mock_ticket *t)
{
    uint32_t page_bytes = page_bytes_of(m, t);
    for (uint32_t i = 0; page_bytes && i < t->n_pages; i++) {
        uint8_t *data = t->data + (size_t)i * page_bytes;
        uint64_t digest;
        if (t->is_lost)
            break;
        if (!t->is_write && !t->fails)
            page_write(t->staged[i], data, page_bytes);
        else if (t->is_write && !page_read(data, page_bytes, &digest))
            assert(hash_pair(SALT_RUBBISH, digest) == t->staged[i]);
        else if (t->is_write)
            assert(digest == t->staged[i]);
    }
    t->is_delivered = true;
}

/* Delivers what is due, in order. A poll that does not wait brings the first delivery closer. */
static void deliver_due(struct mock_engine *m, uint64_t ticket, bool waits)
{
    for (; m->next_delivery < m->last_ticket; m->next_delivery++) {
        struct mock_ticket *t = &m->tickets[(m->next_delivery + 1) % MAX_TICKETS];
        if (waits && t->number > ticket)
            return;
        if (waits)
            device_wait(m, t->job);
        else if (!device_has_done(m, t->job) || (t->polls_left > 0 && t->polls_left-- > 0))
            return;
        deliver(m, t);
    }
}

static void ticket_close(struct mock_ticket *t)
{
    free(t->pages);
    free(t->staged);
    *t = (struct mock_ticket){0};
}

int mock_io_poll(struct engine *e, uint64_t ticket, bool waits, struct error *err)
{
    struct mock_engine *m = (struct mock_engine *)e;
    struct mock_ticket *t = &m->tickets[ticket % MAX_TICKETS];
    if (mock_lost(m, err))
        return -1;
    if (ticket <= m->lost_ticket)
        return error_set(err, ERROR_DEVICE, "the device was lost with the pages");
    assert(t->number == ticket);
    deliver_due(m, ticket, waits);
    if (!t->is_delivered)
        return 0;
    bool fails = t->fails, is_lost = t->is_lost;
    ticket_close(t);
    if (is_lost)
        return error_set(err, ERROR_DEVICE, "the device was lost with the pages");
    return fails ? error_set(err, ERROR_FAILED, "the mock engine fails to move every %u pages",
                             m->options.fail_io_every)
                 : 1;
}

void io_clear(struct mock_engine *m)
{
    for (uint32_t i = 0; i < MAX_TICKETS; i++)
        ticket_close(&m->tickets[i]);
    m->lost_ticket = m->next_delivery = m->last_ticket;
}
