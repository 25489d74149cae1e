/* Packs the IQ types of GGUF: each value, of which a type has at most 16, becomes its 4-bit index
 * in the matrix' table. Runs on any thread. */
#include "engine/cpu/kernels/matmul_pack.h"

#include "model/quant/lattice.h"

static void pack_lattice(struct quant_format f, const struct packed_matrix *m,
                         const struct weight *w, uint32_t first, uint32_t outputs, uint8_t *to)
{
    const struct lattice *lattice = lattice_of(w->type);
    const uint32_t super_bytes = tensor_type_info(w->type)->block_bytes;
    uint8_t codes[256] = {0}; /* index of each value + 128 */
    for (uint8_t i = 0; i < 16; i++)
        codes[m->table[i]] = i;
    for (uint32_t block = 0; block < m->blocks; block++)
        for (uint32_t lane = 0; lane < outputs; lane++) {
            const uint8_t *row = (const uint8_t *)w->data + (first + lane) * w->row_bytes;
            struct lattice_part part;
            struct unpacked u = {0};
            lattice->read(row + block / SUPER_BLOCKS * super_bytes, block % SUPER_BLOCKS, &part);
            u.scale = part.d;
            memcpy(u.part_scale, part.scale, sizeof u.part_scale);
            for (int i = 0; i < ACT_BLOCK; i++)
                u.quants[i] = codes[part.values[i] + 128];
            pack_head(&u, f, m, lane, block, to);
            pack_quants(u.quants, f.bits, (uint32_t *)(to + quants_at(f, m, block)) + lane);
        }
}

static void pack_one_part(const struct packed_matrix *m, const struct weight *w, uint32_t first,
                          uint32_t outputs, uint8_t *to)
{
    pack_lattice(quant_formats[PACKED_k4_table], m, w, first, outputs, to);
}

static void pack_two_parts(const struct packed_matrix *m, const struct weight *w, uint32_t first,
                           uint32_t outputs, uint8_t *to)
{
    pack_lattice(quant_formats[PACKED_k4x2_table], m, w, first, outputs, to);
}

const struct pack_source *pack_source_lattice(const struct weight *w, struct packed_matrix *m)
{
    static const struct pack_source one_part = {PACKED_k4_table, pack_one_part};
    static const struct pack_source two_parts = {PACKED_k4x2_table, pack_two_parts};
    const struct lattice *lattice = lattice_of(w->type);
    if (!lattice || w->groups.scales)
        return NULL;
    m->scale = w->groups.scale != 0 ? lattice->unit * w->groups.scale : lattice->unit;
    for (int i = 0; i < 16; i++)
        m->table[i] = (uint8_t)(lattice->numbers[i] + 128);
    return w->type == TENSOR_IQ2_XS || w->type == TENSOR_IQ2_S || w->type == TENSOR_IQ1_M
               ? &two_parts
               : &one_part;
}
