#ifndef RADISH_ENGINE_ENGINE_H
#define RADISH_ENGINE_ENGINE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/page_run.h"
#include "engine/engine_measure.h"

/* The boundary between computing and requests. Nothing above it knows the device; nothing below it
 * knows requests. A batch is rows to compute and, for each sequence, the pages of its KV. For
 * example, two sequences of a model with a full and a windowed group, W = 3:
 *
 *   rows  source  token token token │ token        rows of a sequence are adjacent,
 *         seq       0     0     0   │   1          in order of position
 *         position  4     5     6   │   2
 *         pages    9,3   10,4  11,5 │ 20,6         one for each group
 *         output                 *  │   *          buffers of the caller's
 *
 *   seqs  0: group 0 [ 7 8 | 40 41 | 9 10 11 ]     positions 0 .. 6, as runs of pages
 *            group 1     [ 1 2 | 3 4 5 ]           positions 2 .. 6: what the rows see
 *         1: group 0 [ 18 19 20 ]   group 1 [ 30 31 6 ]
 *
 * A row at position p writes its KV to its pages, which the runs name at p as well, and sees the
 * positions up to p that its group shows it, those of the same batch included. In a group that
 * sees regions, the rows of a region see all of it. The rest of a model's memory is recurrent
 * state: a sequence's live state is in its slot, and pages hold copies of it.
 *
 * One thread owns an engine and makes all calls. They take effect in the order they are made, even
 * in an asynchronous engine. bit_exact: a row's values depend only on its sequence's inputs: not
 * on the rest of the batch, the split into batches, the threads, or the pages. */
enum { ENGINE_ABI = 1 }; /* of this header and engine_measure.h; see plugin.h */
enum { KV_MAX_GROUPS = 3, ROPE_AXES = 4 };

enum kv_type { KV_F16, KV_F32, KV_BF16 };

/* Layers that keep their results in the same way form a group with its own pages. Group 0
 * is KV_FULL and stands for positions, even in a model without such layers. At most one group is
 * KV_STATE. */
enum kv_kind {
    KV_FULL,   /* a page is a position; a row sees all of them */
    KV_WINDOW, /* a page is a position; a row sees the last `window` of them, its own included */
    KV_STATE,  /* a page is a copy of the whole state after one row */
};

struct kv_group {
    enum kv_kind kind;
    uint32_t n_layers;
    uint32_t page_bytes; /* over all layers of the group; may be 0 in group 0 */
    uint32_t window;     /* KV_WINDOW */
    uint32_t grain;      /* KV_STATE: see batch_row.pages */
    bool sees_regions;
};

struct engine_limits {
    uint32_t n_pages[KV_MAX_GROUPS]; /* as kv_groups() lists them; 0 for windows: join group 0 */
    uint32_t n_slots;                /* live states; 0 without a KV_STATE group */
    uint32_t max_rows, max_seqs;     /* in a batch */
    uint32_t max_length;             /* positions in a sequence */
    uint32_t max_image_rows;         /* of encoded images, kept at the same time */
    enum kv_type kv_type;
};

struct engine_head {
    const char *name;
    uint32_t n_values; /* for a row */
};

struct engine_info {
    char name[64];        /* "cpu (avx512-vnni, 2 threads)" */
    char fingerprint[64]; /* what the bits depend on besides the model: "avx512-vnni/q16" */
    uint32_t n_threads;   /* that compute on this machine; 0: it has none of its own */
    uint32_t n_vocab, n_embd, n_groups;
    struct kv_group groups[KV_MAX_GROUPS];
    bool bit_exact;
    bool is_async;         /* computes between submit and wait, while the caller does other work */
    uint32_t rope_axes;    /* how many of a row's rope positions count, at least 1 */
    uint32_t max_region;   /* positions of the largest region; 0: no regions */
    uint32_t max_rollback; /* rows; 0: a state cannot be rolled back */
    const struct engine_head *heads; /* [n_heads] */
    uint32_t n_heads;
    uint32_t row_tile;     /* rows computed together: whole tiles are cheapest; 0: any */
    uint64_t weight_bytes; /* the weights in the engine's own form */
    uint64_t table_bytes; /* the embeddings' tables, whose rows are read where the model has them */
    uint64_t buffer_bytes; /* for the rows of batches; like kv_bytes reserved, touched on use */
    uint64_t kv_bytes;     /* for all pages and slots */
    struct engine_cost cost;
};

/* What a row returns, each in a buffer of the caller. Several rows of a sequence may have these. */
enum { OUTPUT_LOGITS = 1, OUTPUT_BEST = 2, OUTPUT_HIDDEN = 4, OUTPUT_NORMED = 8, OUTPUT_HEAD = 16 };

struct row_best {
    int32_t token;
    float logit;
};

struct row_output {
    uint32_t wants;        /* OUTPUT_..., or'ed */
    float *logits;         /* [n_vocab]; fastest where a batch's are equally far apart */
    struct row_best *best; /* [n_best] the largest logits, largest first; ties: smaller token */
    uint32_t n_best;       /* 1 .. n_vocab */
    float *log_sum;        /* with best: ln of the sum of exp(logit); NaN if a logit is NaN */
    float *hidden;         /* [n_embd] before the last norm */
    float *normed;         /* [n_embd] after it */
    float *head_values;    /* [n_values] of info.heads[head] */
    uint32_t head;
};

enum row_source { ROW_TOKEN, ROW_IMAGE, ROW_COORDINATE, ROW_SIZE };

struct batch_row {
    enum row_source source; /* what the row's embedding is made from */
    int32_t value;          /* token id; row of the image; bin; height << 16 | width, in bins */
    uint32_t image;         /* ROW_IMAGE: from engine_encode, encoded to its end */
    uint32_t seq;           /* index into batch.seqs */
    uint32_t position;      /* index into the sequence's KV */
    uint32_t rope[ROPE_AXES];
    /* Where its KV goes. KV_STATE: where the state after this row is copied, or PAGE_NONE; an
     * engine copies where position + 1 is a multiple of `grain`, and after a sequence's last row
     * in the batch. */
    uint32_t pages[KV_MAX_GROUPS];
    const struct row_output *output; /* NULL: nothing */
};

/* Positions first .. length - 1 of a sequence in one group, at least those that its rows see. */
struct page_view {
    const struct page_run *runs;
    uint32_t n_runs, first;
};

struct region {
    uint32_t first, count; /* positions */
};

struct batch_seq {
    struct page_view pages[KV_MAX_GROUPS]; /* KV_STATE: unused */
    uint32_t length;                       /* positions after this batch */
    uint32_t slot;                         /* of its live state: that of the position before */
    uint32_t n_drafts;            /* last rows that roll_back may take back, at most max_rollback */
    uint64_t adapter;             /* from engine_load_adapter; 0: none */
    const struct region *regions; /* [n_regions] with rows in this batch, in order; each whole */
    uint32_t n_regions;
};

struct batch {
    const struct batch_seq *seqs;
    const struct batch_row *rows;
    uint32_t n_seqs, n_rows;
    /* Requests of the batch that are still wanted; other threads lower it. The engine checks it
     * between layers and stops at zero; wait then returns ERROR_CANCELED. NULL: never stops. */
    const atomic_int *live;
    uint32_t page_end[KV_MAX_GROUPS]; /* the highest page in use + 1; 0: unknown */
};

enum state_place { STATE_ZERO, STATE_SLOT, STATE_PAGE }; /* zero: before the first position */

struct state_copy {
    enum state_place from_place, to_place;
    uint32_t from, to; /* slot or page */
};

struct image_input {
    unsigned char sha256[32]; /* of the pixels and the processing parameters */
    const void *pixels;       /* as the model's processor prepares them; must stay until encoded */
    uint32_t width, height, n_rows; /* rows: how many the image takes in a sequence */
};

/* Pages of one group and the caller's memory: page_bytes each, in the order of the runs. */
struct page_io {
    uint32_t group;
    const struct page_run *runs;
    uint32_t n_runs;
    void *data;    /* must stay, untouched, until the ticket is done */
    bool is_write; /* data to pages; else pages to data */
};

struct engine {
    const struct engine_ops *ops;
    struct engine_info info;
    struct engine_limits limits;
    struct engine_times times;
};

/* 0, or -1 and an error. After ERROR_DEVICE every call fails until reopen, and pages, slots,
 * images, adapters and tickets are lost. A NULL operation is not supported. */
struct engine_ops {
    uint32_t abi; /* ENGINE_ABI */
    /* What the batch points to must stay until wait. ERROR_INPUT: no such token or adapter. */
    int (*submit)(struct engine *e, const struct batch *batch, struct error *err);
    /* Until the batch is computed; if it stopped or failed, its pages and slots are unwritten. */
    int (*wait)(struct engine *e, struct error *err);
    int (*copy_states)(struct engine *e, const struct state_copy *copies, uint32_t n,
                       struct error *err);
    /* Takes back the draft rows of the last batch from `position` on. Before the next submit. */
    int (*roll_back)(struct engine *e, uint32_t slot, uint32_t position, struct error *err);
    /* Begins to encode. ERROR_LIMIT: no room now; ERROR_INPUT: never. */
    int (*encode)(struct engine *e, const struct image_input *in, uint32_t *image,
                  struct error *err);
    /* Continues for about budget_us. 1: done, rows of later batches may use it; 0: call again. */
    int (*encode_step)(struct engine *e, uint32_t image, uint32_t budget_us, struct error *err);
    void (*encode_free)(struct engine *e, uint32_t image); /* also while it is being encoded */
    /* Returns a number that was never used before, even for the same path. */
    int (*load_adapter)(struct engine *e, const char *path, uint64_t *adapter, struct error *err);
    void (*unload_adapter)(struct engine *e, uint64_t adapter);
    /* ERROR_LIMIT: too many in progress. A ticket is valid until io_poll returns 1 or -1. */
    int (*page_io)(struct engine *e, const struct page_io *io, uint64_t *ticket, struct error *err);
    int (*io_poll)(struct engine *e, uint64_t ticket, bool waits, struct error *err); /* 0: busy */
    int (*reopen)(struct engine *e, struct error *err);
    /* Measures for about 3 * duration_ms what the machine can do, and raises *best to it. */
    int (*measure)(struct engine *e, uint32_t duration_ms, struct machine_limits *best,
                   struct error *err);
    void (*close)(struct engine *e);
};

/* The operations as functions. One that the engine lacks returns ERROR_UNSUPPORTED. */
int engine_submit(struct engine *e, const struct batch *batch, struct error *err);
int engine_wait(struct engine *e, struct error *err);
int engine_forward(struct engine *e, const struct batch *batch, struct error *err); /* both */
int engine_copy_states(struct engine *e, const struct state_copy *copies, uint32_t n,
                       struct error *err);
int engine_roll_back(struct engine *e, uint32_t slot, uint32_t position, struct error *err);
int engine_encode(struct engine *e, const struct image_input *in, uint32_t *image,
                  struct error *err);
int engine_encode_step(struct engine *e, uint32_t image, uint32_t budget_us, struct error *err);
void engine_encode_free(struct engine *e, uint32_t image);
int engine_load_adapter(struct engine *e, const char *path, uint64_t *adapter, struct error *err);
void engine_unload_adapter(struct engine *e, uint64_t adapter);
int engine_page_io(struct engine *e, const struct page_io *io, uint64_t *ticket, struct error *err);
int engine_io_poll(struct engine *e, uint64_t ticket, bool waits, struct error *err);
int engine_reopen(struct engine *e, struct error *err);
int engine_measure(struct engine *e, uint32_t duration_ms, struct machine_limits *best,
                   struct error *err); /* does nothing if the engine cannot */
void engine_close(struct engine *e);   /* NULL: nothing */

typedef void (*engine_progress)(void *context, double done); /* 0 .. 1 of the weights are ready */

#endif
