/* Packed matrices: the packed format of a weight, its size, and which function packs it; see
 * matmul_pack.h. Runs on any thread. */
#include "engine/cpu/kernels/matmul_pack.h"

#include <stdlib.h>

#include "engine/cpu/kernels/matrix_slab.h"
#include "model/quant/quantize.h"

static const struct pack_source *pack_source(const struct weight *w, struct packed_matrix *m)
{
    const struct pack_source *source = pack_source_blocks(w, m);
    if (!source)
        source = pack_source_lattice(w, m);
    if (!source)
        source = pack_source_groups(w, m);
    return source ? source : pack_source_any(m);
}

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

static void matrix_layout(const struct weight *w, struct packed_matrix *m)
{
    m->rows = w->rows;
    m->cols = w->cols;
    m->n_panels = (w->rows + PANEL - 1) / PANEL;
    if (m->format < N_QUANT_FORMATS) {
        struct quant_format f = quant_formats[m->format];
        uint32_t per_group = group_blocks(f, m);
        m->blocks = act_blocks(w->cols);
        m->panel_bytes = (m->blocks + per_group - 1) / per_group * group_bytes(f, m);
    } else if (is_f8(m->format)) {
        m->panel_bytes = (size_t)act_blocks(w->cols) * F8_BLOCK_BYTES;
    } else {
        m->panel_bytes = (size_t)w->cols * PANEL * (m->format == PACKED_f32 ? 4 : 2);
    }
    m->panel_bytes = round_up(m->panel_bytes, PACK_ALIGN);
    m->bytes = m->n_panels * m->panel_bytes;
}

struct packed_matrix *matrix_new(const struct weight *w, struct error *err)
{
    struct packed_matrix *m = calloc(1, sizeof *m);
    if (!m) {
        error_set(err, ERROR_MEMORY, "no memory for a weight matrix");
        return NULL;
    }
    struct weight converted = weight_make(w->converted_type, 0, w->is_converted ? w->cols : 0,
                                          NULL);
    m->source = pack_source(w->is_converted ? &converted : w, m);
    m->format = m->source->format;
    matrix_layout(w, m);
    m->slab = slab_take(m->bytes, &m->data);
    if (!m->slab) {
        error_set(err, ERROR_MEMORY, "no memory for a weight matrix of %zu bytes", m->bytes);
        free(m);
        return NULL;
    }
    return m;
}

/* Converts a panel's rows from the file to the type that they are packed from. */
static void convert_rows(const struct weight *w, uint32_t first, uint32_t n, float *row,
                         const struct weight *to)
{
    for (uint32_t r = 0; r < n; r++) {
        weight_floats(w, first + r, 0, w->cols, row);
        quantize(to->type, row, (uint8_t *)(uintptr_t)to->data + r * to->row_bytes, w->cols);
    }
}

static int fill_converted(const struct packed_matrix *m, const struct weight *w, uint32_t begin,
                          uint32_t end, uint8_t *panels, struct error *err)
{
    struct weight rows = weight_make(w->converted_type, PANEL, w->cols, NULL);
    float *row = malloc(w->cols * sizeof *row);
    rows.data = malloc(PANEL * rows.row_bytes);
    int failed = row && rows.data ? 0
                                  : error_set(err, ERROR_MEMORY, "no memory to convert weights");
    for (uint32_t panel = begin; panel < end && !failed; panel++) {
        uint32_t n = panel_outputs(m, panel);
        convert_rows(w, panel * PANEL, n, row, &rows);
        m->source->pack(m, &rows, 0, n, panels + (panel - begin) * m->panel_bytes);
    }
    free(row);
    free((void *)(uintptr_t)rows.data);
    return failed;
}

int matrix_fill(const struct packed_matrix *m, const struct weight *w, uint32_t panel_begin,
                uint32_t panel_end, uint8_t *panels, struct error *err)
{
    if (w->is_converted)
        return fill_converted(m, w, panel_begin, panel_end, panels, err);
    for (uint32_t panel = panel_begin; panel < panel_end; panel++)
        m->source->pack(m, w, panel * PANEL, panel_outputs(m, panel),
                        panels + (panel - panel_begin) * m->panel_bytes);
    return 0;
}

struct packed_matrix *matrix_pack(const struct weight *w, struct error *err)
{
    struct packed_matrix *m = matrix_new(w, err);
    if (m && matrix_fill(m, w, 0, m->n_panels, m->data, err)) {
        matrix_free(m);
        return NULL;
    }
    return m;
}

void matrix_free(struct packed_matrix *m)
{
    if (!m)
        return;
    slab_release(m->slab);
    free(m);
}

enum act_kind matrix_act_kind(const struct packed_matrix *m)
{
    return m->format < N_QUANT_FORMATS ? ACT_Q8 : ACT_F32;
}

uint32_t matrix_rows(const struct packed_matrix *m)
{
    return m->rows;
}

uint32_t matrix_panels(const struct packed_matrix *m)
{
    return m->n_panels;
}

size_t matrix_bytes(const struct packed_matrix *m)
{
    return m->bytes;
}
