/* Fuzzes the GGUF reader and the model loader. An input whose first byte is odd is the file itself;
 * an even one is a list of edits to a small valid model, because random bytes seldom get past the
 * header. A file that opens is read completely, from memory of the exact size. */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz.h"
#include "model/model.h"
#include "model_builder.h"

static volatile uint64_t touched;

static void touch(const void *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++)
        touched += ((const uint8_t *)bytes)[i];
}

static void touch_gguf(const struct gguf *g)
{
    for (size_t i = 0; i < g->n_values; i++) {
        const struct gguf_value *v = &g->values[i];
        touch(v->key.bytes, v->key.len);
        for (uint64_t s = 0; v->strings && s < v->count; s++)
            touch(v->strings[s].bytes, v->strings[s].len);
        for (uint64_t n = 0; v->type == GGUF_ARRAY && !v->strings && n < v->count; n++)
            touched += gguf_array_f64(v, n) > 0;
    }
    for (size_t i = 0; i < g->n_tensors; i++)
        touch(g->tensors[i].data, g->tensors[i].size_bytes);
}

static void check_error(const struct error *err, const char *path)
{
    if (err->code == ERROR_NONE || strncmp(err->message, path, strlen(path)) != 0)
        abort();
}

static void try_gguf(const char *bytes, size_t len)
{
    struct gguf g;
    struct error err = {0};
    void *exact = malloc(len ? len : 1);
    if (!exact)
        abort();
    memcpy(exact, bytes, len);
    if (gguf_open_memory(&g, "input", exact, len, &err) == 0)
        touch_gguf(&g);
    else
        check_error(&err, "input");
    gguf_close(&g);
    free(exact);
}

static void try_model(const char *bytes, size_t len)
{
    static int fd = -1;
    static char path[64];
    struct model m;
    struct error err = {0};
    if (fd < 0) {
        fd = memfd_create("fuzz", MFD_CLOEXEC);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    if (ftruncate(fd, 0) != 0 || pwrite(fd, bytes, len, 0) != (ssize_t)len)
        abort();
    if (model_open(&m, path, NULL, &err) == 0) {
        touch_gguf(m.checkpoint->gguf);
        for (uint32_t i = 0; i < m.hparams.n_layers; i++)
            touch(&m.layers[i], sizeof m.layers[i]);
    } else {
        check_error(&err, path);
    }
    model_close(&m);
}

/* Each edit is three bytes: where (little endian, modulo the length) and the new byte. Two
 * remaining bytes truncate the file there. */
static void apply_edits(struct strbuf *file, const uint8_t *edits, size_t len)
{
    for (; len >= 3; edits += 3, len -= 3)
        file->data[(size_t)(edits[0] | edits[1] << 8) % file->len] = (char)edits[2];
    if (len == 2)
        file->len = (size_t)(edits[0] | edits[1] << 8) % (file->len + 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct strbuf file = STRBUF_INIT;
    if (len > 0 && bytes[0] % 2 == 0) {
        static struct gguf_builder model;
        if (!model.file.len)
            build_model(&model, &(struct tweak){0});
        strbuf_add(&file, model.file.data, model.file.len);
        apply_edits(&file, bytes + 1, len - 1);
    } else if (len > 0) {
        strbuf_add(&file, bytes + 1, len - 1);
    }
    try_gguf(strbuf_str(&file), file.len);
    try_model(strbuf_str(&file), file.len);
    strbuf_free(&file);
    return 0;
}
