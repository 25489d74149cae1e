#ifndef RADISH_ENGINE_ENGINE_H
#define RADISH_ENGINE_ENGINE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/page_run.h"
#include "model/model.h"

/* The boundary between what is computed and who asked for it. Above it nothing knows the device;
 * below it nothing knows requests. An engine holds the KV of `n_pages` positions, layer by layer;
 * a batch is rows to compute and, for each sequence, where its KV lies.
 *
 *   seqs   [ runs: pages 7..39, 80..95 │ length ]  [ ... ]      one per sequence in the batch
 *   rows   [ token, position, page, seq, output ] [ ... ]       rows of one sequence are adjacent
 *                                                               and in order of position
 * A row at position p writes KV to its page (which the runs also name, at index p) and attends to
 * positions 0..p of its sequence, so rows of one batch see those before them in the same batch.
 * Layers that see only a window of positions keep their KV in pages of their own, of which a
 * sequence needs no more than the window: a row has a page there too.
 *
 * One thread owns an engine; it is also compute thread 0 where the engine has threads.
 * bit_exact: a row's values depend on nothing but the tokens before it: not on the rest of the
 * batch, on how the prompt was cut, on the number of threads, or on which pages hold the KV. */

enum kv_type { KV_F16, KV_F32, KV_BF16 };

static inline uint32_t kv_type_bytes(enum kv_type type)
{
    return type == KV_F32 ? 4 : 2;
}

/* How exact the activations are that quantised weights meet: 8 bits and a scale for 32 of them, or
 * 16 bits, which costs no memory for weights, but twice the operations. */
enum activation_type { ACTIVATIONS_Q8, ACTIVATIONS_Q16 };

/* Whether weights, in the form that an engine prepares them in, are kept in a file beside the model
 * for the next start: where that is clearly faster than to prepare them again, or always. */
enum pack_cache_mode { PACK_CACHE_OFF, PACK_CACHE_AUTO, PACK_CACHE_ON };

/* Layers that keep KV in the same way. The first group has those that see all positions (there may
 * be none: then its pages only stand for positions), the second those that see a window. */
enum kv_group_id { KV_FULL, KV_WINDOW, KV_GROUPS };

/* Whether each compute thread keeps to one CPU. Auto: where cpu_topology_should_pin says so. */
enum pinning { PIN_OFF, PIN_AUTO, PIN_ON };

struct engine_limits {
    uint32_t n_pages;        /* KV positions */
    uint32_t n_window_pages; /* of them in the group of windowed layers; 0: the model has none */
    uint32_t max_rows;       /* rows in a batch */
    uint32_t max_seqs;       /* sequences in a batch */
    uint32_t max_length;     /* positions in a sequence */
    uint32_t n_threads;      /* 0: one for each fast core */
    enum pinning pinning;
    enum kv_type kv_type;
    enum activation_type activations;
    enum pack_cache_mode pack_cache;
    const char *kernels; /* kernel path by name ("scalar", "avx2", ...), NULL: the best there is */
};

struct kv_group {
    uint32_t n_layers;
    uint32_t page_bytes; /* of one position over all layers of the group */
    uint32_t window;     /* positions that a row sees, itself among them; 0: all */
};

/* Multiply-adds, of small integers and of floats. */
struct engine_macs {
    uint64_t int8, floats;
};

/* The least that computing takes, to see how near it comes to what the machine can do. A batch also
 * reads the pages of each of its sequences once. All zero: the engine does not know. */
struct engine_cost {
    uint64_t layer_bytes;          /* of weights, read by every batch */
    uint64_t head_bytes;           /* and by one with rows that want logits */
    struct engine_macs layer_macs; /* of a row */
    struct engine_macs head_macs;  /* and of one that wants logits */
    uint64_t position_macs;        /* of floats: of a row, for each position that it sees */
};

/* Where the time of all batches since open went, as thread 0 saw it. */
struct engine_times {
    uint64_t products_ns, attention_ns, other_ns;
};

/* What the machine can do at best with the engine's threads and instructions. */
struct machine_limits {
    double read_bytes_per_s; /* from memory */
    double int8_macs_per_s, float_macs_per_s;
    uint64_t cache_bytes; /* the last level's, as the system tells it; 0: not known */
};

struct engine_info {
    char name[64]; /* "cpu (avx512-vnni, 2 threads)" */
    uint32_t n_vocab;
    uint32_t n_groups; /* 2 with windowed layers, else 1 */
    struct kv_group groups[KV_GROUPS];
    bool bit_exact;
    bool is_async; /* it computes while the caller does something else: submit returns at once */
    uint32_t row_tile;     /* rows that are computed together: whole tiles are cheapest; 0: any */
    uint64_t weight_bytes; /* weights in the form that the engine has made of them */
    uint64_t
        file_bytes; /* of the model's file, that are read in use: at most so many are in memory */
    uint64_t buffer_bytes; /* for the rows of batches; as those below reserved, touched on use */
    uint64_t kv_bytes;     /* for n_pages */
    struct engine_cost cost;
};

/* Positions first .. length - 1 of a sequence in the second group. */
struct window_pages {
    const struct page_run *runs;
    uint32_t n_runs;
    uint32_t first; /* at most the first position that a row of the batch sees */
};

struct batch_seq {
    const struct page_run *runs; /* [n_runs], covering positions 0 .. length - 1 */
    uint32_t n_runs;
    uint32_t length; /* positions after this batch */
    struct window_pages window;
};

enum row_output { OUTPUT_NONE, OUTPUT_LOGITS };

struct batch_row {
    int32_t token;
    uint32_t position; /* index into the sequence's KV, and its rope position */
    uint32_t page;
    uint32_t seq; /* index into batch.seqs */
    enum row_output output;
    uint32_t window_page; /* in the second group */
};

struct batch {
    const struct batch_seq *seqs;
    const struct batch_row *rows;
    uint32_t n_seqs, n_rows;
    float *logits; /* [rows that ask for them, in order][n_vocab], the caller's */
    /* How many of the batch's requests are still wanted; other threads lower it. The engine looks
     * between layers and stops at zero: wait then gives ERROR_CANCELED, and the pages of the batch
     * count as unwritten. NULL: never stopped. */
    const atomic_int *live;
    /* Sequences have no page from here on. They have some that no row was computed for yet, which
     * the engine may make ready. 0: not known. */
    uint32_t page_end;
    uint32_t window_page_end; /* the same in the second group */
};

struct engine {
    const struct engine_ops *ops;
    struct engine_info info;
    struct engine_limits limits;
    struct engine_times times;
};

struct engine_ops {
    /* Takes a batch; everything it points to stays until wait returns. */
    int (*submit)(struct engine *e, const struct batch *batch, struct error *err);
    /* The batch is computed (0), was stopped or failed (-1). */
    int (*wait)(struct engine *e, struct error *err);
    /* Looks for some 3 * duration_ms at what the machine can do and raises *best to it. NULL: the
     * engine does not know. */
    int (*measure)(struct engine *e, uint32_t duration_ms, struct machine_limits *best,
                   struct error *err);
    void (*close)(struct engine *e);
};

static inline int engine_submit(struct engine *e, const struct batch *batch, struct error *err)
{
    return e->ops->submit(e, batch, err);
}

static inline int engine_wait(struct engine *e, struct error *err)
{
    return e->ops->wait(e, err);
}

/* submit and wait in one */
static inline int engine_forward(struct engine *e, const struct batch *batch, struct error *err)
{
    return engine_submit(e, batch, err) ? -1 : engine_wait(e, err);
}

static inline int engine_measure(struct engine *e, uint32_t duration_ms,
                                 struct machine_limits *best, struct error *err)
{
    return e->ops->measure ? e->ops->measure(e, duration_ms, best, err) : 0;
}

static inline void engine_close(struct engine *e)
{
    if (e)
        e->ops->close(e);
}

/* Called while weights are prepared, with the share done (0..1). */
typedef void (*engine_progress)(void *context, double done);

/* The engines. The model stays open as long as the engine. */
int cpu_engine_open(struct engine **out, const struct model *model,
                    const struct engine_limits *limits, engine_progress progress, void *context,
                    struct error *err);

/* Deterministic fake logits from the tokens alone, for tests without weights: the KV of a page is
 * a digest of the tokens up to it, so that a wrong page table gives wrong logits. With a window it
 * has a second group, in which it reads exactly what a row may see. */
struct mock_options {
    uint32_t n_vocab;
    uint32_t n_tokens;      /* that prompts may have, if more than n_vocab */
    uint32_t row_cost_us;   /* time that each row takes */
    uint32_t batch_cost_us; /* time that each batch takes */
    int32_t fail_token;     /* a batch with this token fails; -1: none */
    uint32_t fail_every;    /* every n-th batch fails once; 0: none */
    uint32_t nan_every;     /* every n-th row of logits is no numbers; 0: none */
    int32_t end_token;      /* made likely now and then, so that answers end; -1: never */
    uint32_t window;        /* positions that a row sees in the second group; 0: there is none */
};

int mock_engine_open(struct engine **out, const struct mock_options *options,
                     const struct engine_limits *limits, struct error *err);

#endif
