/* The GGUF reader, mostly with files that lie. Bytes are passed in memory of their exact size, so
 * that the sanitizer sees any read past them; a file that opens is then read completely. */
#include "test.h"
#include "test_files.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gguf_builder.h"
#include "model/files/gguf.h"

static const char PATH[] = "some/file.gguf";

/* Reads every byte and every number that the reader reports. */
static double touch_everything(const struct gguf *g)
{
    double sum = 0;
    for (size_t i = 0; i < g->n_values; i++) {
        const struct gguf_value *v = &g->values[i];
        sum += v->key.bytes[v->key.len - 1];
        for (uint64_t s = 0; v->strings && s < v->count; s++)
            for (size_t c = 0; c < v->strings[s].len; c++)
                sum += v->strings[s].bytes[c];
        bool is_float = v->item_type == GGUF_F32 || v->item_type == GGUF_F64;
        for (uint64_t n = 0; v->type == GGUF_ARRAY && !v->strings && n < v->count; n++) {
            sum += gguf_array_f64(v, n) > 0;
            sum += !is_float && gguf_array_i64(v, n) > 0;
        }
        char key[80];
        snprintf(key, sizeof key, "%.*s", (int)(v->key.len < 79 ? v->key.len : 79), v->key.bytes);
        uint64_t u64 = 0;
        double f64 = 0;
        bool boolean = false;
        struct byte_view string = {"", 0};
        sum += gguf_get_u64(g, key, &u64) + gguf_get_f64(g, key, &f64) +
               gguf_get_bool(g, key, &boolean) + gguf_get_string(g, key, &string);
    }
    for (size_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *t = &g->tensors[i];
        for (size_t b = 0; b < t->size_bytes; b++)
            sum += ((const uint8_t *)t->data)[b];
        CHECK_INT((uintptr_t)t->data % 8, 0);
        float *row = malloc(t->dims[0] * sizeof *row);
        CHECK(row != NULL);
        dequantize(t->type, t->data, row, t->dims[0]);
        sum += row[0] > 0;
        free(row);
    }
    return sum;
}

/* Opens a copy of the bytes. An error must name the file, and say what is wrong and where. */
static int try_open(const void *bytes, size_t len, struct error *err)
{
    struct gguf g;
    void *exact = NULL;
    CHECK_INT(posix_memalign(&exact, 32, len ? len : 1), 0);
    if (len)
        memcpy(exact, bytes, len);
    *err = (struct error){0};
    int rc = gguf_open_memory(&g, PATH, exact, len, err);
    if (rc == 0) {
        touch_everything(&g);
    } else {
        CHECK_INT(err->code, ERROR_FORMAT);
        char begin[64];
        int n = snprintf(begin, sizeof begin, "%s: at offset %zu: ", PATH, err->position);
        CHECK(strncmp(err->message, begin, (size_t)n) == 0);
        CHECK(strlen(err->message) > (size_t)n + 10);
        CHECK(err->position <= len);
    }
    gguf_close(&g);
    free(exact);
    return rc;
}

static void check_refused(struct gguf_builder *b, const char *why, const char *file, int line)
{
    struct error err;
    gguf_builder_finish(b);
    if (try_open(b->file.data, b->file.len, &err) == 0)
        test_fail(file, line, "opened, expected \"%s\"", why);
    if (!strstr(err.message, why))
        test_fail(file, line, "\"%s\" does not say \"%s\"", err.message, why);
    gguf_builder_free(b);
}
#define CHECK_REFUSED(builder, why) check_refused(builder, why, __FILE__, __LINE__)

/* One of everything. */
static void build_sample(struct gguf_builder *b)
{
    build_key_string(b, "general.architecture", "llama");
    build_key(b, "u8", GGUF_U8);
    strbuf_addc(&b->pairs, (char)200);
    build_key(b, "i8", GGUF_I8);
    strbuf_addc(&b->pairs, -3);
    build_key(b, "u16", GGUF_U16);
    strbuf_add(&b->pairs, "\xff\xff", 2);
    build_key(b, "i16", GGUF_I16);
    strbuf_add(&b->pairs, "\xfe\xff", 2);
    build_key_u32(b, "u32", 4000000000u);
    build_key(b, "i32", GGUF_I32);
    build_u32(&b->pairs, (uint32_t)-7);
    build_key_f32(b, "f32", 0.25f);
    build_key(b, "yes", GGUF_BOOL);
    strbuf_addc(&b->pairs, 1);
    build_key(b, "u64", GGUF_U64);
    build_u64(&b->pairs, UINT64_MAX);
    build_key(b, "i64", GGUF_I64);
    build_u64(&b->pairs, 1u << 30);
    build_key(b, "f64", GGUF_F64);
    build_u64(&b->pairs, 0xbff8000000000000u); /* -1.5 */
    build_key_array(b, "tokens", GGUF_STRING, 3);
    build_string(&b->pairs, "a");
    build_string(&b->pairs, "");
    build_string(&b->pairs, "ccc");
    build_key_array(b, "scores", GGUF_F32, 2);
    build_u32(&b->pairs, 0x3f800000);
    build_u32(&b->pairs, 0xc0000000);
    build_key_array(b, "kinds", GGUF_I32, 2);
    build_u32(&b->pairs, 6);
    build_u32(&b->pairs, (uint32_t)-1);
    build_key_array(b, "nothing", GGUF_STRING, 0);
    build_key_array(b, "flags", GGUF_BOOL, 2);
    strbuf_add(&b->pairs, "\0\1", 2);
    build_tensor(b, "norm", TENSOR_F32, 5, 1);
    build_tensor(b, "matrix", TENSOR_Q4_1, 64, 3);
    build_tensor(b, "last", TENSOR_Q6_K, 256, 2);
}

static void check_sample(const struct gguf *g)
{
    uint64_t u64 = 0;
    double f64 = 0;
    bool yes = false;
    struct byte_view s;
    CHECK_INT(g->n_values, 17);
    CHECK_INT(g->n_tensors, 3);
    CHECK(gguf_get_string(g, "general.architecture", &s) && s.len == 5);
    CHECK(memcmp(s.bytes, "llama", 5) == 0);
    CHECK(gguf_get_u64(g, "u8", &u64) && u64 == 200);
    CHECK(gguf_get_u64(g, "u16", &u64) && u64 == 65535);
    CHECK(gguf_get_u64(g, "u32", &u64) && u64 == 4000000000u);
    CHECK(gguf_get_u64(g, "u64", &u64) && u64 == UINT64_MAX);
    CHECK(gguf_get_u64(g, "i64", &u64) && u64 == 1u << 30);
    CHECK(!gguf_get_u64(g, "i8", &u64) && !gguf_get_u64(g, "i16", &u64));
    CHECK(!gguf_get_u64(g, "i32", &u64) && !gguf_get_u64(g, "f32", &u64));
    CHECK(!gguf_get_u64(g, "yes", &u64) && !gguf_get_u64(g, "tokens", &u64));
    CHECK(!gguf_get_u64(g, "absent", &u64));
    CHECK(gguf_get_f64(g, "f32", &f64) && f64 == 0.25);
    CHECK(gguf_get_f64(g, "f64", &f64) && f64 == -1.5);
    CHECK(gguf_get_f64(g, "i8", &f64) && f64 == -3);
    CHECK(gguf_get_f64(g, "i16", &f64) && f64 == -2);
    CHECK(gguf_get_f64(g, "u64", &f64) && f64 == 0x1p64);
    CHECK(!gguf_get_f64(g, "general.architecture", &f64) && !gguf_get_f64(g, "scores", &f64));
    CHECK(gguf_get_bool(g, "yes", &yes) && yes);
    CHECK(!gguf_get_bool(g, "u8", &yes) && !gguf_get_string(g, "u8", &s));
    CHECK(!gguf_get_string(g, "tokens", &s));
    const struct gguf_value *tokens = gguf_find(g, "tokens");
    CHECK(tokens && tokens->type == GGUF_ARRAY && tokens->item_type == GGUF_STRING);
    CHECK_INT(tokens->count, 3);
    CHECK(tokens->strings[1].len == 0 && tokens->strings[2].len == 3);
    const struct gguf_value *scores = gguf_find(g, "scores");
    CHECK(scores && scores->count == 2 && gguf_array_f64(scores, 1) == -2.0);
    const struct gguf_value *kinds = gguf_find(g, "kinds");
    CHECK(kinds && gguf_array_i64(kinds, 0) == 6 && gguf_array_i64(kinds, 1) == -1);
    CHECK(gguf_array_f64(kinds, 1) == -1.0);
    CHECK(gguf_find(g, "nothing") && gguf_find(g, "nothing")->count == 0);
    const struct gguf_tensor *matrix = gguf_tensor(g, "matrix");
    CHECK(matrix && matrix->type == TENSOR_Q4_1 && matrix->n_dims == 2);
    CHECK(matrix->dims[0] == 64 && matrix->dims[1] == 3 && matrix->dims[2] == 1);
    CHECK_INT(matrix->size_bytes, 64 / 32 * 3 * 20);
    CHECK(!gguf_tensor(g, "matri") && !gguf_tensor(g, "matrix2") && !gguf_tensor(g, ""));
    float first;
    memcpy(&first, gguf_tensor(g, "norm")->data, sizeof first);
    CHECK(first == 0.5f);
}

TEST(gguf, reads_back_what_was_written)
{
    for (uint32_t version = 2; version <= 3; version++) {
        struct gguf_builder b = {.version = version};
        char path[512];
        struct gguf g;
        struct error err;
        build_sample(&b);
        gguf_builder_finish(&b);
        snprintf(path, sizeof path, "%s/sample.gguf", test_scratch_dir());
        test_file_write(path, b.file.data, b.file.len);
        if (gguf_open(&g, path, &err))
            test_fail(__FILE__, __LINE__, "%s", err.message);
        CHECK_INT(g.version, version);
        CHECK_STR(g.path, path);
        check_sample(&g);
        touch_everything(&g);
        gguf_close(&g);
        gguf_close(&g);
        gguf_builder_free(&b);
    }
}

TEST(gguf, follows_the_alignment_that_the_file_states)
{
    struct gguf_builder b = {.alignment = 256};
    struct gguf g;
    struct error err;
    build_key_u32(&b, "general.alignment", 256);
    build_tensor(&b, "a", TENSOR_F32, 3, 1);
    build_tensor(&b, "b", TENSOR_F32, 3, 1);
    gguf_builder_finish(&b);
    CHECK_INT(gguf_open_memory(&g, PATH, b.file.data, b.file.len, &err), 0);
    CHECK_INT((const uint8_t *)gguf_tensor(&g, "a")->data - g.map, 256);
    CHECK_INT((const uint8_t *)gguf_tensor(&g, "b")->data - g.map, 512);
    gguf_close(&g);
    gguf_builder_free(&b);
}

TEST(gguf, a_file_without_tensors_or_pairs_is_one)
{
    struct gguf_builder b = {0};
    struct error err;
    gguf_builder_finish(&b);
    CHECK_INT(b.file.len, 24);
    CHECK_INT(try_open(b.file.data, b.file.len, &err), 0);
    gguf_builder_free(&b);
}

/* The last tensor's data ends the file, so that each shorter file lacks something. */
TEST(gguf, refuses_the_file_cut_at_every_length)
{
    struct gguf_builder b = {0};
    struct error err;
    build_sample(&b);
    gguf_builder_finish(&b);
    CHECK_INT(try_open(b.file.data, b.file.len, &err), 0);
    for (size_t len = 0; len < b.file.len; len++) {
        CHECK_INT(try_open(b.file.data, len, &err), -1);
        CHECK(strstr(err.message, "is it cut short?") != NULL);
    }
    gguf_builder_free(&b);
}

TEST(gguf, survives_every_header_byte_changed)
{
    static const uint8_t values[] = {0x00, 0x01, 0x02, 0x08, 0x09, 0x0c, 0x20,
                                     0x7f, 0x80, 0xc0, 0xf0, 0xfe, 0xff};
    struct gguf_builder b = {0};
    struct error err;
    int refused = 0, opened = 0;
    build_sample(&b);
    gguf_builder_finish(&b);
    for (size_t at = 0; at < b.header_bytes; at++) {
        char was = b.file.data[at];
        for (size_t i = 0; i < sizeof values + 8; i++) {
            b.file.data[at] = i < 8 ? (char)(was ^ 1 << i) : (char)values[i - 8];
            *(try_open(b.file.data, b.file.len, &err) ? &refused : &opened) += 1;
        }
        b.file.data[at] = was;
    }
    CHECK(refused > 1000); /* the structure */
    CHECK(opened > 1000);  /* names and scalars, which may be anything */
    gguf_builder_free(&b);
}

/* Two bytes at a time reach what one cannot: a length and the data that it then covers. */
TEST(gguf, survives_random_damage)
{
    struct gguf_builder b = {0};
    struct error err;
    uint64_t random = 1;
    build_sample(&b);
    gguf_builder_finish(&b);
    char *copy = malloc(b.file.len);
    CHECK(copy != NULL);
    for (int round = 0; round < 20000; round++) {
        memcpy(copy, b.file.data, b.file.len);
        for (int n = 0; n < 3; n++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            copy[8 + (random >> 33) % (b.header_bytes - 8)] = (char)(random >> 25);
        }
        try_open(copy, b.file.len, &err);
    }
    free(copy);
    gguf_builder_free(&b);
}

TEST(gguf, refuses_counts_that_the_file_cannot_hold)
{
    static const uint64_t counts[] = {1u << 30, (uint64_t)1 << 60, UINT64_MAX, UINT64_MAX / 8 + 1};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        CHECK_REFUSED(&(struct gguf_builder){.n_pairs = counts[i]}, "key-value pairs");
        CHECK_REFUSED(&(struct gguf_builder){.n_tensors = counts[i]}, "tensors");
        struct gguf_builder b = {0};
        build_key_array(&b, "strings", GGUF_STRING, counts[i]);
        strbuf_add(&b.pairs, "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16);
        CHECK_REFUSED(&b, "strings, more than the file can hold");
        build_key_array(&b, "numbers", GGUF_F64, counts[i]);
        CHECK_REFUSED((b.n_pairs = 1, &b), "values, more than the file has left");
        b = (struct gguf_builder){0};
        build_key(&b, "text", GGUF_STRING);
        build_u64(&b.pairs, counts[i]);
        CHECK_REFUSED(&b, "bytes, more than the file has left");
        b = (struct gguf_builder){.n_pairs = 1};
        build_u64(&b.pairs, counts[i]);
        strbuf_adds(&b.pairs, "a key that is long enough to be counted");
        CHECK_REFUSED(&b, "a key claims");
    }
    /* Within the limit on counts, but still more than the actual bytes. */
    CHECK_REFUSED(&(struct gguf_builder){.n_pairs = 1000},
                  "too short for the 1000 key-value pairs");
    CHECK_REFUSED(&(struct gguf_builder){.n_tensors = 1000}, "too short for the 1000 tensors");
}

TEST(gguf, refuses_values_that_are_not_what_they_say)
{
    struct gguf_builder b = {0};
    build_key(&b, "k", 13);
    build_u64(&b.pairs, 0);
    CHECK_REFUSED(&b, "key k has the unknown type 13");
    b = (struct gguf_builder){0};
    build_key_array(&b, "k", GGUF_ARRAY, 1);
    build_u32(&b.pairs, GGUF_U8);
    CHECK_REFUSED(&b, "key k is an array of arrays");
    b = (struct gguf_builder){0};
    build_key_array(&b, "k", 99, 1);
    build_u32(&b.pairs, GGUF_U8);
    CHECK_REFUSED(&b, "key k has the unknown type 99");
    b = (struct gguf_builder){0};
    build_key(&b, "k", GGUF_BOOL);
    strbuf_addc(&b.pairs, 2);
    CHECK_REFUSED(&b, "key k holds a boolean of 2");
    b = (struct gguf_builder){0};
    build_key_u32(&b, "same", 1);
    build_key_string(&b, "same", "x");
    CHECK_REFUSED(&b, "the key same appears twice");
    b = (struct gguf_builder){0};
    build_key_u32(&b, "", 1);
    strbuf_adds(&b.infos, "padding");
    CHECK_REFUSED(&b, "a key is empty");
    b = (struct gguf_builder){.n_pairs = 1};
    build_u64(&b.pairs, 70000);
    for (int i = 0; i < 70000; i++)
        strbuf_addc(&b.pairs, 'x');
    CHECK_REFUSED(&b, "a key is 70000 bytes long");
    b = (struct gguf_builder){0};
    build_key(&b, "terminal \x1b[2J bell", 77);
    strbuf_addc(&b.pairs, 0);
    CHECK_REFUSED(&b, "key terminal ?[2J bell has the unknown type 77");
}

TEST(gguf, refuses_a_wild_alignment)
{
    static const uint32_t bad[] = {0, 1, 4, 24, 33, 1u << 21, 1u << 31, UINT32_MAX};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct gguf_builder b = {0};
        build_key_u32(&b, "general.alignment", bad[i]);
        build_tensor(&b, "t", TENSOR_F32, 4, 1);
        CHECK_REFUSED(&b, "general.alignment is");
    }
    struct gguf_builder b = {0};
    build_key_string(&b, "general.alignment", "32");
    CHECK_REFUSED(&b, "general.alignment is not a whole number");
}

static void refuse_tensor(uint32_t type, uint32_t n_dims, const uint64_t *dims, uint64_t offset,
                          const char *why)
{
    struct gguf_builder b = {0};
    build_info(&b, "t", type, n_dims, dims, offset);
    for (int i = 0; i < 256; i++)
        strbuf_addc(&b.data, 1);
    CHECK_REFUSED(&b, why);
}

TEST(gguf, refuses_tensors_that_do_not_fit)
{
    const uint64_t huge = (uint64_t)1 << 62;
    refuse_tensor(TENSOR_F32, 0, NULL, 0, "has 0 dimensions");
    refuse_tensor(TENSOR_F32, 5, (uint64_t[5]){1, 1, 1, 1, 1}, 0, "has 5 dimensions");
    refuse_tensor(TENSOR_F32, UINT32_MAX >> 27, (uint64_t[31]){1}, 0, "has 31 dimensions");
    refuse_tensor(TENSOR_F32, 1, (uint64_t[]){0}, 0, "a dimension of 0");
    refuse_tensor(TENSOR_F32, 2, (uint64_t[]){4, 0}, 0, "a dimension of 0");
    refuse_tensor(TENSOR_F32, 2, (uint64_t[]){huge, 4}, 0, "more values than a 64-bit count");
    refuse_tensor(TENSOR_F32, 4, (uint64_t[]){1 << 16, 1 << 16, 1 << 16, 1 << 16}, 0,
                  "more values than a 64-bit count");
    refuse_tensor(TENSOR_F32, 1, (uint64_t[]){huge}, 0, "more bytes than a 64-bit count");
    refuse_tensor(TENSOR_Q8_0, 1, (uint64_t[]){huge * 3}, 0, "is not in the file");
    refuse_tensor(TENSOR_F32, 1, (uint64_t[]){65}, 0, "is not in the file");
    refuse_tensor(TENSOR_F32, 1, (uint64_t[]){64}, 32, "is not in the file");
    refuse_tensor(TENSOR_F32, 1, (uint64_t[]){1}, 256, "is not in the file");
    refuse_tensor(TENSOR_F32, 1, (uint64_t[]){1}, UINT64_MAX - 31, "is not in the file");
    refuse_tensor(TENSOR_F32, 1, (uint64_t[]){1}, 4, "not a multiple of 32");
    refuse_tensor(TENSOR_Q4_0, 2, (uint64_t[]){33, 32}, 0, "not a multiple of Q4_0's block of 32");
    refuse_tensor(TENSOR_Q6_K, 2, (uint64_t[]){128, 2}, 0, "not a multiple of Q6_K's block of 256");
    refuse_tensor(24, 1, (uint64_t[]){256}, 0, "tensor t is of type 24 (I8)");
    refuse_tensor(TENSOR_F8_E4M3, 1, (uint64_t[]){256}, 0, "is of type 64 (unknown)");
    refuse_tensor(4, 1, (uint64_t[]){32}, 0, "tensor t is of type 4 (Q4_2)");
    for (uint32_t type = TENSOR_F8_E4M3; type <= N_TENSOR_TYPES; type++) /* not GGUF's numbers */
        refuse_tensor(type, 1, (uint64_t[]){32}, 0, "which radish does not read");
    refuse_tensor(1000, 1, (uint64_t[]){32}, 0, "tensor t is of type 1000 (unknown)");
    struct gguf_builder b = {0};
    build_tensor(&b, "twin", TENSOR_F32, 4, 1);
    build_tensor(&b, "twin", TENSOR_F32, 4, 1);
    CHECK_REFUSED(&b, "the tensor twin appears twice");
}

/* Nothing is written through a tensor, so two of them may share bytes. */
TEST(gguf, allows_tensors_that_share_data)
{
    struct gguf_builder b = {0};
    struct error err;
    build_tensor(&b, "one", TENSOR_F32, 8, 2);
    build_info(&b, "two", TENSOR_F32, 1, (uint64_t[]){8}, 32);
    gguf_builder_finish(&b);
    CHECK_INT(try_open(b.file.data, b.file.len, &err), 0);
    gguf_builder_free(&b);
}

TEST(gguf, tells_other_files_and_versions_apart)
{
    struct error err;
    CHECK_REFUSED(&(struct gguf_builder){.version = 1}, "GGUF version 1");
    CHECK_REFUSED(&(struct gguf_builder){.version = 4}, "radish reads versions 2 and 3");
    CHECK_REFUSED(&(struct gguf_builder){.version = 0x03000000}, "big-endian");
    CHECK_REFUSED(&(struct gguf_builder){.version = 0x12345678}, "radish reads versions 2 and 3");
    CHECK_INT(try_open("PK\3\4", 4, &err), -1);
    CHECK(strstr(err.message, "not a GGUF file: it begins with the bytes 50 4b 03 04"));
    CHECK_INT(try_open("<!DOCTYPE html>", 15, &err), -1);
    CHECK(strstr(err.message, "it begins with \"<!DO\" (a web page? download the file itself"));
    CHECK_INT(try_open("version https://git-lfs", 23, &err), -1);
    CHECK(strstr(err.message, "it begins with \"vers\" (a Git LFS pointer? run git lfs pull)"));
    CHECK_INT(try_open("FUGG\0\0\0\3", 8, &err), -1);
    CHECK(strstr(err.message, "not a GGUF file"));
    const char *old = test_shared_path("data/models/stories260K/tinyllamas-stories-260k-f32.gguf");
    if (old) {
        struct gguf g;
        CHECK_INT(gguf_open(&g, old, &err), -1);
        CHECK(strstr(err.message, old) && strstr(err.message, "GGUF version 1"));
        CHECK_INT(err.position, 4);
    }
}

static void check_unopenable(const char *path, const char *why)
{
    struct gguf g;
    struct error err = {0};
    CHECK_INT(gguf_open(&g, path, &err), -1);
    if (!strstr(err.message, path) || !strstr(err.message, why))
        test_fail(__FILE__, __LINE__, "\"%s\" does not say %s: %s", err.message, path, why);
    gguf_close(&g);
}

TEST(gguf, refuses_what_is_not_a_file_to_map)
{
    char path[512];
    const char *dir = test_scratch_dir();
    snprintf(path, sizeof path, "%s/absent.gguf", dir);
    check_unopenable(path, "No such file");
    check_unopenable(dir, "a directory");
    check_unopenable("/dev/null", "not a regular file");
    snprintf(path, sizeof path, "%s/empty.gguf", dir);
    test_file_write(path, "", 0);
    check_unopenable(path, "the file is empty");
    snprintf(path, sizeof path, "%s/fifo.gguf", dir);
    CHECK_INT(mkfifo(path, 0600), 0);
    check_unopenable(path, "not a regular file"); /* and it does not wait for a writer */
    unlink(path);
}
