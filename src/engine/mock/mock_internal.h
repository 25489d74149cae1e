#ifndef RADISH_ENGINE_MOCK_INTERNAL_H
#define RADISH_ENGINE_MOCK_INTERNAL_H

#include <pthread.h>

#include "engine/mock/mock_engine.h"

/* The inside of the mock engine:
 *
 *   mock_engine.c    opens and closes it, checks batches and turns rows into inputs
 * mock_device.c executes jobs in order, at once or in its own thread; simulates time
 *   mock_compute.c   a batch: digests from inputs, pages and slots
 *   mock_output.c    logits and other outputs from a digest
 *   mock_tables.c    images and adapters
 *   mock_io.c        pages to and from the caller's memory
 *
 * At most two threads. The device's thread owns pages and slots; the caller's thread owns
 * everything else. They communicate through the queue of jobs. */

enum {
    MAX_IMAGES = 64,
    MAX_ADAPTERS = 64,
    MAX_TICKETS = 64,
    MAX_JOBS = 256,
    MOCK_EMBD = 16,
};

#define SALT_RUBBISH    0x72756262u
#define SALT_REGION     0x72656769u
#define SALT_STATE      0x73746174u
#define SALT_IMAGE      0x696d6167u
#define SALT_COORDINATE 0x636f6f72u
#define SALT_SIZE       0x73697a65u
#define DIGEST_START    0x7261646973680001u
#define STATE_START     0x7261646973680002u

/* A live state. The states before the last rows of its last batch are in mock_engine.drafts. */
struct mock_slot {
    uint64_t state;
    uint64_t batch;    /* number of that batch */
    uint32_t end;      /* the position after its last row */
    uint32_t n_drafts; /* rows that can be rolled back */
};

struct mock_image {
    uint64_t digest;
    uint32_t handle; /* 0: free */
    uint32_t n_rows;
    uint64_t left_us; /* encoding time left */
    bool fails, is_ready;
};

struct mock_adapter {
    uint64_t handle; /* 0: free */
    uint64_t identity;
};

struct mock_ticket {
    uint64_t number;  /* 0: free */
    uint64_t *staged; /* [n_pages] digests in transit */
    uint32_t *pages;  /* [n_pages] */
    uint32_t n_pages, group;
    uint8_t *data; /* the caller's */
    bool is_write, fails;
    bool is_lost; /* lost with the device before it was executed */
    uint32_t polls_left;
    uint64_t job; /* executed once this many jobs are done */
    bool is_delivered;
};

enum job_kind { JOB_BATCH, JOB_COPY, JOB_ROLL_BACK, JOB_SPEND, JOB_IO };

struct job {
    enum job_kind kind;
    uint64_t issued_ns; /* if the engine is asynchronous and jobs take time */
    union {
        const struct batch *batch;
        struct state_copy copy;
        struct {
            uint32_t slot, position;
        } roll_back;
        uint64_t cost_us;
        struct mock_ticket *ticket;
    };
};

struct mock_engine {
    struct engine engine;
    struct mock_options options;
    uint32_t state_group; /* 0: there is none */

    /* The caller's. */
    const struct batch *batch; /* between submit and wait */
    uint64_t *inputs;          /* [max_rows] of the batch; the device reads them */
    bool is_lost;
    struct mock_image images[MAX_IMAGES];
    uint32_t image_rows, n_images, since_image_failure;
    struct mock_adapter adapters[MAX_ADAPTERS];
    uint64_t n_adapters;
    struct mock_ticket tickets[MAX_TICKETS];
    uint64_t last_ticket, next_delivery, lost_ticket; /* numbers */
    uint32_t since_io_failure;

    /* The device's. */
    uint64_t *pages[KV_MAX_GROUPS]; /* [n_pages] */
    struct mock_slot *slots;        /* [n_slots] */
    uint64_t *drafts;               /* [n_slots][max_rollback] states before draft rows */
    float *scratch;                 /* [n_vocab] */
    uint64_t n_batches, n_rubbish;
    uint32_t since_failure, since_loss; /* batches */
    uint32_t since_nan;                 /* rows of logits */
    uint64_t free_ns;                   /* busy until then */
    bool device_is_lost;

    /* Between them. */
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t mutex; /* of wakeup */
    pthread_cond_t wakeup; /* a job, or the end */
    struct job jobs[MAX_JOBS];
    atomic_uint_fast64_t n_issued, n_done; /* jobs */
    atomic_uint_fast64_t busy_until_ns;    /* when the device's current wait ends */
    atomic_bool is_closing;
    uint64_t batch_job; /* the batch's result is ready once this many jobs are done */
    int result;
    struct error error;
};

/* mock_device.c */
int device_open(struct mock_engine *m, struct error *err);
void device_close(struct mock_engine *m);
/* Issues a job, to be executed at once or later; returns its number. On a synchronous engine a
 * batch is executed by device_wait or by the next job. */
uint64_t device_issue(struct mock_engine *m, struct job job);
void device_wait(struct mock_engine *m, uint64_t job);
bool device_has_done(struct mock_engine *m, uint64_t job);
/* Waits for the simulated time; false: the live count fell to zero first. */
bool device_spend(struct mock_engine *m, uint64_t cost_us, uint64_t issued_ns,
                  const atomic_int *live);
uint64_t device_rubbish(struct mock_engine *m);
void device_spoil_all(struct mock_engine *m);

/* mock_compute.c: called by the device */
int compute_batch(struct mock_engine *m, const struct batch *batch, uint64_t issued_ns,
                  struct error *err);
void compute_copy(struct mock_engine *m, const struct state_copy *copy);
void compute_roll_back(struct mock_engine *m, uint32_t slot, uint32_t position);

/* mock_output.c; see also mock_give_output */
extern const struct engine_head mock_heads[2];
/* Makes the logits NaN, and the best of them. */
void mock_give_nan(const struct mock_options *o, float *scratch, const struct row_output *out);

/* mock_tables.c */
int mock_encode(struct engine *e, const struct image_input *in, uint32_t *image, struct error *err);
int mock_encode_step(struct engine *e, uint32_t image, uint32_t budget_us, struct error *err);
void mock_encode_free(struct engine *e, uint32_t image);
int mock_load_adapter(struct engine *e, const char *path, uint64_t *adapter, struct error *err);
void mock_unload_adapter(struct engine *e, uint64_t adapter);
const struct mock_image *mock_image_of(const struct mock_engine *m, uint32_t image); /* or NULL */
const struct mock_adapter *mock_adapter_of(const struct mock_engine *m, uint64_t adapter);
void tables_clear(struct mock_engine *m);

/* mock_io.c */
int mock_page_io(struct engine *e, const struct page_io *io, uint64_t *ticket, struct error *err);
int mock_io_poll(struct engine *e, uint64_t ticket, bool waits, struct error *err);
void io_execute(struct mock_engine *m, struct mock_ticket *t,
                uint64_t issued_ns); /* called by the device */
void io_clear(struct mock_engine *m);

/* mock_engine.c */
int mock_lost(const struct mock_engine *m, struct error *err); /* -1: the device is lost */

#endif
