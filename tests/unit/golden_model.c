/* Goldens of tiny models: reads them, draws their weights and writes them as directories. The
 * generator must give the bits of tools/model_draw.py: the sum is made in double and rounded once
 * to float, then cut to the upper 16 bits, so that bfloat16 holds the same value. */
#include "golden_model.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/strbuf.h"
#include "test.h"
#include "test_files.h"

enum { MX_BLOCK = 32 };

static uint64_t fnv1a64(const char *text)
{
    uint64_t value = 0xcbf29ce484222325u;
    for (; *text; text++)
        value = (value ^ (uint8_t)*text) * 0x100000001b3u;
    return value;
}

static const struct json *get(const struct json *object, const char *key, enum json_type type)
{
    const struct json *value = json_get(object, key);
    if (!json_is(value, type))
        test_fail(__FILE__, __LINE__, "the golden has no %s of type %s", key, json_type_name(type));
    return value;
}

static uint32_t to_u32(const struct json *value)
{
    uint64_t number;
    CHECK(json_to_uint64(value, &number) && number <= UINT32_MAX);
    return (uint32_t)number;
}

static void *allocate(struct arena *arena, size_t count, size_t size)
{
    void *memory = arena_alloc_array(arena, count, size);
    CHECK(memory != NULL);
    return memory;
}

static void read_shape(struct golden_tensor *t, const struct json *shape)
{
    t->count = 1;
    json_each (size, shape) {
        CHECK(t->n_dims < GOLDEN_MAX_DIMS);
        t->shape[t->n_dims++] = to_u32(size);
        t->count *= to_u32(size);
    }
}

/* The top 24 bits of a hash as a number in [-1, 1), moved and scaled. */
static void draw_uniform(const struct golden_tensor *t, float *out)
{
    double mean = get(t->spec, "mean", JSON_NUMBER)->number;
    double scale = get(t->spec, "scale", JSON_NUMBER)->number;
    uint64_t base = fnv1a64(t->name);
    for (size_t i = 0; i < t->count; i++) {
        double u = (double)(hash_mix(base + i) >> 40) / (1 << 23) - 1.0;
        float value = (float)(mean + scale * u);
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        bits &= 0xffff0000u;
        memcpy(&out[i], &bits, sizeof bits);
    }
}

/* Four-bit codes and powers of two on [experts][out][in], where a tensor is [experts][in][out]. */
struct mx_grid {
    uint64_t base;
    int exponent;
    uint32_t n_experts, n_in, n_out;
};

static struct mx_grid mx_grid_of(const struct golden_tensor *t)
{
    CHECK_INT(t->n_dims, 3);
    CHECK_INT(t->shape[1] % MX_BLOCK, 0);
    return (struct mx_grid){fnv1a64(t->name), (int)get(t->spec, "exponent", JSON_NUMBER)->number,
                            t->shape[0], t->shape[1], t->shape[2]};
}

static unsigned mx_code(const struct mx_grid *g, size_t row, uint32_t in)
{
    return (unsigned)(hash_mix(g->base + row * g->n_in + in) >> 60);
}

static int mx_power(const struct mx_grid *g, size_t row, uint32_t block)
{
    uint64_t hash = hash_mix(g->base + row * g->n_in + (size_t)block * MX_BLOCK);
    return g->exponent + (int)(hash >> 8 & 3);
}

static void draw_mxfp4(const struct golden_tensor *t, float *out)
{
    static const float values[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                     -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
    struct mx_grid g = mx_grid_of(t);
    for (uint32_t e = 0; e < g.n_experts; e++)
        for (uint32_t i = 0; i < g.n_in; i++)
            for (uint32_t o = 0; o < g.n_out; o++) {
                size_t row = (size_t)e * g.n_out + o;
                *out++ = ldexpf(values[mx_code(&g, row, i)], mx_power(&g, row, i / MX_BLOCK));
            }
}

/* Of every element and where it stands. */
static uint64_t tensor_sum(const struct golden_tensor *t)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < t->count; i++) {
        uint32_t bits = 0;
        if (t->is_bytes)
            bits = ((const uint8_t *)t->data)[i];
        else
            memcpy(&bits, (const float *)t->data + i, sizeof bits);
        sum += hash_mix((uint64_t)i << 32 | bits);
    }
    return sum;
}

static void check_sum(const char *what, uint64_t sum, const struct json *of)
{
    char text[17];
    snprintf(text, sizeof text, "%016llx", (unsigned long long)sum);
    const char *want = get(of, "sum", JSON_STRING)->text;
    if (strcmp(text, want) != 0)
        test_fail(__FILE__, __LINE__, "%s: the generator gives %s, expected %s", what, text, want);
}

static void draw_plain(struct golden *g, const struct json *specs)
{
    g->plain.tensors = allocate(&g->arena, specs->count, sizeof *g->plain.tensors);
    json_each (spec, specs) {
        struct golden_tensor *t = &g->plain.tensors[g->plain.n_tensors++];
        *t = (struct golden_tensor){.name = get(spec, "name", JSON_STRING)->text, .spec = spec};
        read_shape(t, get(spec, "shape", JSON_ARRAY));
        t->data = allocate(&g->arena, t->count, sizeof(float));
        if (json_equals(json_get(spec, "draw"), "mxfp4"))
            draw_mxfp4(t, t->data);
        else
            draw_uniform(t, t->data);
        check_sum(t->name, tensor_sum(t), spec);
    }
}

static struct golden_tensor *find_plain(struct golden *g, const struct json *part)
{
    const char *name = get(part, "from", JSON_STRING)->text;
    for (uint32_t i = 0; i < g->plain.n_tensors; i++)
        if (strcmp(g->plain.tensors[i].name, name) == 0) {
            g->plain.tensors[i].is_used = true;
            return &g->plain.tensors[i];
        }
    test_fail(__FILE__, __LINE__, "the golden has no tensor %s", name);
}

/* Writes the elements of a strided view of `from`, in order; returns how many. */
static size_t cut_part(const struct golden_tensor *from, const struct json *part, float *out)
{
    struct golden_tensor view = {0};
    uint32_t strides[GOLDEN_MAX_DIMS] = {0}, index[GOLDEN_MAX_DIMS] = {0}, n_strides = 0;
    size_t at = to_u32(get(part, "offset", JSON_NUMBER));
    read_shape(&view, get(part, "shape", JSON_ARRAY));
    json_each (stride, get(part, "strides", JSON_ARRAY)) {
        CHECK(n_strides < view.n_dims);
        strides[n_strides++] = to_u32(stride);
    }
    CHECK_INT(n_strides, view.n_dims);
    for (size_t n = 0; n < view.count; n++) {
        CHECK(at < from->count);
        out[n] = ((const float *)from->data)[at];
        for (uint32_t d = view.n_dims; d-- > 0;) {
            at += strides[d];
            if (++index[d] < view.shape[d])
                break;
            at -= (size_t)strides[d] * view.shape[d];
            index[d] = 0;
        }
    }
    return view.count;
}

static void cut_parts(struct golden *g, struct golden_tensor *t, const struct json *parts)
{
    size_t n = 0;
    json_each (part, parts) {
        size_t room = t->count - n, size = 1;
        json_each (length, get(part, "shape", JSON_ARRAY))
            size *= to_u32(length);
        CHECK(size <= room);
        n += cut_part(find_plain(g, part), part, (float *)t->data + n);
    }
    CHECK_INT(n, t->count);
}

/* The bytes on disk for a tensor on the grid: two codes a byte, or biased powers. */
static void cut_mxfp4(const struct golden_tensor *from, struct golden_tensor *t, bool scales)
{
    struct mx_grid g = mx_grid_of(from);
    uint8_t *out = t->data;
    size_t n_rows = (size_t)g.n_experts * g.n_out;
    CHECK_INT(t->count, n_rows * g.n_in / (scales ? MX_BLOCK : 2));
    for (size_t row = 0; row < n_rows; row++)
        for (uint32_t i = 0; i < g.n_in; i += scales ? MX_BLOCK : 2)
            *out++ = (uint8_t)(scales ? mx_power(&g, row, i / MX_BLOCK) + 127
                                      : (int)(mx_code(&g, row, i) | mx_code(&g, row, i + 1) << 4));
}

static void cut_tensor(struct golden *g, struct golden_tensor *t, const struct json *spec)
{
    const struct json *mxfp4 = json_get(spec, "mxfp4"), *parts = json_get(spec, "parts");
    *t = (struct golden_tensor){.name = get(spec, "name", JSON_STRING)->text, .spec = spec};
    if (!mxfp4 && !parts && json_get(spec, "from")) {
        const struct golden_tensor *from = find_plain(g, spec);
        const char *name = t->name;
        *t = *from;
        t->name = name;
        return;
    }
    read_shape(t, get(spec, "shape", JSON_ARRAY));
    t->is_bytes = mxfp4 != NULL;
    t->data = allocate(&g->arena, t->count, t->is_bytes ? 1 : sizeof(float));
    if (mxfp4)
        cut_mxfp4(find_plain(g, spec), t, json_equals(mxfp4, "scales"));
    else if (parts)
        cut_parts(g, t, parts);
    else
        draw_uniform(t, t->data);
}

/* The hub form's own tensors, then those of the first form that nothing was cut from. */
static void cut_hub(struct golden *g, const struct json *golden)
{
    const struct json *specs = get(golden, "tensors", JSON_ARRAY);
    struct golden_form *hub = &g->hub;
    uint64_t sum = 0;
    hub->tensors = allocate(&g->arena, specs->count + g->plain.n_tensors, sizeof *hub->tensors);
    json_each (spec, specs)
        cut_tensor(g, &hub->tensors[hub->n_tensors++], spec);
    for (uint32_t i = 0; i < g->plain.n_tensors; i++)
        if (!g->plain.tensors[i].is_used)
            hub->tensors[hub->n_tensors++] = g->plain.tensors[i];
    for (uint32_t i = 0; i < hub->n_tensors; i++)
        sum += hash_mix(fnv1a64(hub->tensors[i].name) + tensor_sum(&hub->tensors[i]));
    check_sum("hub", sum, golden);
}

static int base64_digit(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

/* Gives the number of bytes. */
static size_t base64_decode(const struct json *text, uint8_t *out, size_t room)
{
    uint32_t bits = 0;
    size_t n = 0;
    for (size_t i = 0; i < text->text_len && text->text[i] != '='; i++) {
        int digit = base64_digit(text->text[i]);
        CHECK(digit >= 0);
        bits = bits << 6 | (uint32_t)digit;
        if (i % 4 == 0)
            continue;
        CHECK(n < room);
        out[n++] = (uint8_t)(bits >> (6 - 2 * (i % 4)));
    }
    return n;
}

void golden_open(struct golden *g, const char *name)
{
    char path[256];
    struct strbuf text = STRBUF_INIT;
    struct error err;
    *g = (struct golden){0};
    snprintf(path, sizeof path, "tests/models/%s.json", name);
    if (file_read(path, 0, &text, &err))
        test_fail(__FILE__, __LINE__, "%s", err.message);
    const struct json *root = json_parse(&g->arena, text.data, text.len, &err);
    if (!root)
        test_fail(__FILE__, __LINE__, "%s: %s", path, err.message);
    strbuf_free(&text);
    const struct json *tokens = get(root, "tokens", JSON_ARRAY);
    const struct json *logits = get(root, "logits", JSON_STRING);
    const struct json *hub = get(root, "hub", JSON_OBJECT), *context = json_get(root, "context");
    g->context = context ? to_u32(context) : 0;
    g->tokens = allocate(&g->arena, tokens->count, sizeof *g->tokens);
    json_each (token, tokens)
        g->tokens[g->n_tokens++] = (int32_t)to_u32(token);
    g->logits = allocate(&g->arena, logits->text_len, 1);
    size_t n_bytes = base64_decode(logits, (uint8_t *)g->logits, logits->text_len);
    CHECK(g->n_tokens > 0 && n_bytes % (g->n_tokens * sizeof(float)) == 0);
    g->n_vocab = (uint32_t)(n_bytes / sizeof(float) / g->n_tokens);
    g->plain.config = get(root, "config", JSON_OBJECT);
    g->hub.config = get(hub, "config", JSON_OBJECT);
    draw_plain(g, get(root, "tensors", JSON_ARRAY));
    cut_hub(g, hub);
}

void golden_close(struct golden *g)
{
    arena_free(&g->arena);
}

static void write_file(const char *directory, const char *name, const struct strbuf *text)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    CHECK(!text->failed);
    test_file_write(path, text->data, text->len);
}

static void add_data(struct strbuf *out, const struct golden_tensor *t, enum golden_type type)
{
    if (t->is_bytes || type == GOLDEN_F32) {
        strbuf_add(out, t->data, t->count * (t->is_bytes ? 1 : sizeof(float)));
        return;
    }
    for (size_t i = 0; i < t->count; i++) {
        uint32_t bits;
        memcpy(&bits, (const float *)t->data + i, sizeof bits);
        CHECK_INT(bits & 0xffff, 0);
        uint16_t half = (uint16_t)(bits >> 16);
        strbuf_add(out, &half, sizeof half);
    }
}

/* A safetensors file of every n_shards-th tensor: the length of the header, the header, the data.
 */
static void write_shard(const struct golden_form *form, enum golden_type type, uint32_t shard,
                        uint32_t n_shards, const char *directory, const char *name)
{
    struct strbuf header = STRBUF_INIT, data = STRBUF_INIT, file = STRBUF_INIT;
    struct json_writer w = {.out = &header};
    json_object_begin(&w, NULL);
    for (uint32_t i = shard; i < form->n_tensors; i += n_shards) {
        const struct golden_tensor *t = &form->tensors[i];
        size_t begin = data.len;
        add_data(&data, t, type);
        json_object_begin(&w, t->name);
        json_add_string(&w, "dtype", t->is_bytes ? "U8" : type == GOLDEN_F32 ? "F32" : "BF16");
        json_array_begin(&w, "shape");
        for (uint32_t d = 0; d < t->n_dims; d++)
            json_add_int(&w, NULL, t->shape[d]);
        json_array_end(&w);
        json_array_begin(&w, "data_offsets");
        json_add_int(&w, NULL, (int64_t)begin);
        json_add_int(&w, NULL, (int64_t)data.len);
        json_array_end(&w);
        json_object_end(&w);
    }
    json_object_end(&w);
    while (header.len % 8 != 0)
        strbuf_addc(&header, ' ');
    uint64_t header_len = header.len;
    strbuf_add(&file, &header_len, sizeof header_len);
    strbuf_add(&file, header.data, header.len);
    strbuf_add(&file, data.data, data.len);
    CHECK(!header.failed && !data.failed);
    write_file(directory, name, &file);
    strbuf_free(&header);
    strbuf_free(&data);
    strbuf_free(&file);
}

static void shard_name(uint32_t shard, uint32_t n_shards, char *name, size_t size)
{
    if (n_shards == 1)
        snprintf(name, size, "model.safetensors");
    else
        snprintf(name, size, "model-%05u-of-%05u.safetensors", shard + 1, n_shards);
}

static void write_index(const struct golden_form *form, uint32_t n_shards, const char *directory)
{
    struct strbuf text = STRBUF_INIT;
    struct json_writer w = {.out = &text};
    char name[64];
    json_object_begin(&w, NULL);
    json_object_begin(&w, "metadata");
    json_object_end(&w);
    json_object_begin(&w, "weight_map");
    for (uint32_t i = 0; i < form->n_tensors; i++) {
        shard_name(i % n_shards, n_shards, name, sizeof name);
        json_add_string(&w, form->tensors[i].name, name);
    }
    json_object_end(&w);
    json_object_end(&w);
    write_file(directory, "model.safetensors.index.json", &text);
    strbuf_free(&text);
}

void golden_write(const struct golden_form *form, enum golden_type type, uint32_t n_shards,
                  const char *directory)
{
    struct strbuf config = STRBUF_INIT;
    char name[64];
    if (mkdir(directory, 0777) != 0 && errno != EEXIST)
        test_fail(__FILE__, __LINE__, "cannot make %s", directory);
    json_write(&config, form->config);
    write_file(directory, "config.json", &config);
    strbuf_free(&config);
    for (uint32_t shard = 0; shard < n_shards; shard++) {
        shard_name(shard, n_shards, name, sizeof name);
        write_shard(form, type, shard, n_shards, directory, name);
    }
    if (n_shards > 1)
        write_index(form, n_shards, directory);
}
