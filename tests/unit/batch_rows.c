/* Batches of plain tokens; see batch_rows.h. */
#include "batch_rows.h"

#include "test.h"

enum { MAX_OUTPUTS = 4096 };

const struct row_output wants_logits = {.wants = OUTPUT_LOGITS};

struct batch_row token_row(int32_t token, uint32_t position, uint32_t page, uint32_t seq,
                           const struct row_output *output)
{
    return (struct batch_row){.value = token,
                              .seq = seq,
                              .position = position,
                              .rope = {position, position, position, position},
                              .pages = {page, page},
                              .output = output};
}

int forward_rows(struct engine *e, const struct batch *batch, struct batch_row *rows, float *logits,
                 struct error *err)
{
    static struct row_output outputs[MAX_OUTPUTS];
    uint32_t n = 0;
    CHECK(batch->rows == rows);
    for (uint32_t i = 0; i < batch->n_rows; i++) {
        if (rows[i].output != WANTS_LOGITS)
            continue;
        CHECK(n < MAX_OUTPUTS);
        outputs[n] = (struct row_output){.wants = OUTPUT_LOGITS,
                                         .logits = logits + (size_t)n * e->info.n_vocab};
        rows[i].output = &outputs[n++];
    }
    int rc = engine_forward(e, batch, err);
    for (uint32_t i = 0, k = 0; i < batch->n_rows && k < n; i++)
        if (rows[i].output == &outputs[k]) {
            rows[i].output = WANTS_LOGITS;
            k++;
        }
    return rc;
}
