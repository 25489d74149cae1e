/* Fuzzes the reader of safetensors files. An input whose first byte is odd is the file itself; an
 * even one is a header, to which the length is added, and the number of bytes after it. A file that
 * opens is read completely, from memory of the exact size, and must be what the format promises:
 * every byte after the header belongs to one tensor. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/strbuf.h"
#include "model/files/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

static volatile uint64_t touched;

static void check_tensor(const struct safetensors *s, const struct checkpoint_tensor *t)
{
    const uint8_t *data = t->data;
    if (t->n_dims < 1 || t->n_dims > CHECKPOINT_MAX_DIMS || !*t->name || data < s->file.bytes + 8 ||
        data + t->size_bytes > s->file.bytes + s->file.len || !tensor_type_info(t->type))
        abort();
    for (size_t i = 0; i < t->size_bytes; i++)
        touched += data[i];
}

static void try_bytes(const void *bytes, size_t len)
{
    struct safetensors s;
    struct error err = {0};
    uint64_t header_bytes, data_bytes = 0;
    void *exact = malloc(len ? len : 1);
    if (!exact)
        abort();
    memcpy(exact, bytes, len);
    if (safetensors_open_memory(&s, "input", exact, len, &err) == 0) {
        memcpy(&header_bytes, exact, sizeof header_bytes);
        for (size_t i = 0; i < s.n_tensors; i++) {
            check_tensor(&s, &s.tensors[i]);
            data_bytes += s.tensors[i].size_bytes;
        }
        if (8 + header_bytes + data_bytes != len)
            abort();
    } else if (strncmp(err.message, "input: ", 7) != 0 || strchr(err.message, '\n')) {
        abort();
    }
    safetensors_close(&s);
    free(exact);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct strbuf file = STRBUF_INIT;
    if (len == 0)
        return 0;
    if (bytes[0] % 2) {
        try_bytes(bytes + 1, len - 1);
        return 0;
    }
    uint64_t header_bytes = len - 1;
    strbuf_add(&file, &header_bytes, sizeof header_bytes);
    strbuf_add(&file, bytes + 1, len - 1);
    for (uint8_t i = 0; i < bytes[0] / 2; i++)
        strbuf_addc(&file, (char)i);
    try_bytes(strbuf_str(&file), file.len);
    strbuf_free(&file);
    return 0;
}
