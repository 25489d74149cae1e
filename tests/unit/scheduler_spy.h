#ifndef RADISH_TEST_SCHEDULER_SPY_H
#define RADISH_TEST_SCHEDULER_SPY_H

#include "scheduler_fixture.h"

/* Sits between the scheduler and the fixture's mock engine: records the calls, and makes some fail.
 * Also requests with images, and the answers that follow from the tokens of a request alone, on a
 * mock with any groups. */

enum spy_call { SPY_SUBMIT, SPY_WAIT, SPY_COPY, SPY_ENCODE, SPY_ENCODE_STEP, SPY_CALLS };

enum { SPY_BATCHES = 4096, SPY_ENCODES = 64 };

struct spy_batch {
    uint32_t n_seqs, n_rows;
    uint32_t n_copies; /* rows that have the state copied */
};

struct spy {
    struct spy_batch batches[SPY_BATCHES]; /* the first ones that were submitted */
    uint32_t n_batches;
    uint32_t n_copied[3][3];       /* states, by place: from, to */
    uint32_t encoded[SPY_ENCODES]; /* rows of the images in the order they were taken */
    uint32_t n_encodes, n_frees;   /* images that were taken, and freed */
    uint32_t n_reopened;

    /* Faults. A lost device stays lost until it is reopened; then it is empty. */
    enum spy_call fails_at;
    uint32_t fails_after; /* calls of that kind that succeed first */
    uint32_t n_failures;  /* calls that then fail; 0: none */
    enum error_code code;
    int32_t deadly_token; /* the device is lost with every batch that has it; -1: none */
    uint32_t n_closed;    /* how many times reopening it fails */
    bool is_lost, is_doomed;
    /* Called when a batch has been submitted, and before it is waited for. */
    void (*at_submit)(void *context);
    void (*at_wait)(void *context);
    void *context;
    const struct batch *batch; /* on its way, or NULL */
};

extern struct spy spy;
void spy_on(struct fixture *f);
void spy_fail(enum spy_call call, uint32_t after, uint32_t n, enum error_code code);

/* An image with this many positions; cols 0: it has no grid. */
struct request_image image_make(unsigned char digest, uint32_t length, uint16_t cols);
/* A prompt in which a digit is the image of that index; greedy, continues past end tokens. */
struct client *client_make_mixed(const char *prompt, const struct request_image *images,
                                 uint32_t n_images, uint32_t max_tokens);
/* Fails the test unless the client got all that its request asks for, and the answer is the one
 * that follows from its tokens; the prompt's log probabilities too, if it asked for them. adapter:
 * its path, or NULL. */
void check_oracle(const struct fixture *f, const struct client *c, const char *adapter);
/* The same for an answer that ended early. */
void check_oracle_beginning(const struct fixture *f, const struct client *c, const char *adapter);

#endif
