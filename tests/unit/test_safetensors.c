/* Safetensors files: what is read, and each kind of error with its message. */
#include "model/files/safetensors.h"

#include "checkpoint_builder.h"
#include "test_memory.h"

/* Opens bytes in memory of their exact size, so that a read past their end is noticed. */
static int open_bytes(struct safetensors *s, const void *bytes, size_t len, void **exact,
                      struct error *err)
{
    *exact = malloc(len ? len : 1);
    CHECK(*exact != NULL);
    memcpy(*exact, bytes, len);
    *err = (struct error){0};
    return safetensors_open_memory(s, "m.st", *exact, len, err);
}

static void check_bytes(const void *bytes, size_t len, const char *why)
{
    struct safetensors s;
    struct error err;
    void *exact;
    int rc = open_bytes(&s, bytes, len, &exact, &err);
    if (rc == 0)
        test_fail(__FILE__, __LINE__, "opened, expected \"%s\"", why);
    if (!strstr(err.message, why) || strncmp(err.message, "m.st: ", 6) != 0)
        test_fail(__FILE__, __LINE__, "\"%s\", expected \"%s\"", err.message, why);
    CHECK(strchr(err.message, '\n') == NULL);
    safetensors_close(&s);
    free(exact);
}

/* A header as given, followed by `data_len` bytes. */
static void check_header(const char *header, size_t data_len, const char *why)
{
    char data[256] = {0};
    struct strbuf file = STRBUF_INIT;
    st_file(&file, header, strlen(header), data, data_len);
    check_bytes(file.data, file.len, why);
    strbuf_free(&file);
}

TEST(safetensors, reads_all_types)
{
    static const struct {
        const char *dtype;
        enum tensor_type type;
        size_t bytes; /* of six values */
    } cases[] = {
        {"F64", TENSOR_F64, 48},        {"F32", TENSOR_F32, 24},        {"F16", TENSOR_F16, 12},
        {"BF16", TENSOR_BF16, 12},      {"F8_E4M3", TENSOR_F8_E4M3, 6}, {"F4", TENSOR_FP4, 3},
        {"F8_E5M2", TENSOR_F8_E5M2, 6}, {"F8_E8M0", TENSOR_E8M0, 6},    {"I64", TENSOR_I64, 48},
        {"U64", TENSOR_U64, 48},        {"I32", TENSOR_I32, 24},        {"U32", TENSOR_U32, 24},
        {"I16", TENSOR_I16, 12},        {"U16", TENSOR_U16, 12},        {"I8", TENSOR_I8, 6},
        {"U8", TENSOR_U8, 6},           {"BOOL", TENSOR_BOOL, 6},
    };
    size_t n = sizeof cases / sizeof *cases, at = 0;
    struct st_builder b = {0};
    struct strbuf file = STRBUF_INIT;
    struct safetensors s;
    struct error err;
    void *exact;
    strbuf_adds(&b.header, "\"__metadata__\":{\"format\":\"pt\"}");
    for (size_t i = 0; i < n; i++)
        st_add(&b, cases[i].dtype, cases[i].dtype, "[2, 3]", cases[i].bytes);
    st_finish(&b, 0, &file);
    size_t data_len = 0;
    for (size_t i = 0; i < n; i++)
        data_len += cases[i].bytes;
    CHECK_INT(open_bytes(&s, file.data, file.len, &exact, &err), 0);
    CHECK_INT(s.n_tensors, n);
    for (size_t i = 0; i < n; i++) {
        const struct checkpoint_tensor *t = &s.tensors[i];
        CHECK_STR(t->name, cases[i].dtype);
        CHECK_INT(t->type, cases[i].type);
        CHECK_INT(t->n_dims, 2);
        CHECK(t->dims[0] == 2 && t->dims[1] == 3 && t->dims[2] == 1 && t->dims[3] == 1);
        CHECK_INT(t->size_bytes, cases[i].bytes);
        CHECK_INT((const uint8_t *)t->data - s.file.bytes, s.file.len - data_len + at);
        CHECK(!t->is_used && !t->is_ignored);
        at += cases[i].bytes;
    }
    safetensors_close(&s);
    safetensors_close(&s);
    free(exact);
    strbuf_free(&file);
}

TEST(safetensors, folds_ranks)
{
    struct st_builder b = {0};
    struct strbuf file = STRBUF_INIT;
    struct safetensors s;
    struct error err;
    void *exact;
    st_add(&b, "scalar", "F32", "[]", 4);
    st_add(&b, "six", "U8", "[2, 3, 1, 2, 5, 7]", 420);
    st_add(&b, "none", "F32", "[3, 0]", 0);
    st_finish(&b, 0, &file);
    CHECK_INT(open_bytes(&s, file.data, file.len, &exact, &err), 0);
    CHECK_INT(s.tensors[0].n_dims, 1);
    CHECK_INT(s.tensors[0].dims[0], 1);
    CHECK_INT(s.tensors[1].n_dims, 4);
    CHECK_INT(s.tensors[1].dims[0], 6);
    CHECK_INT(s.tensors[1].dims[1], 2);
    CHECK_INT(s.tensors[1].dims[3], 7);
    CHECK_INT(s.tensors[2].dims[1], 0);
    CHECK(s.tensors[2].is_ignored);
    safetensors_close(&s);
    free(exact);
    strbuf_free(&file);
}

/* The order in the header is not the order of the data; spaces may follow the header. */
TEST(safetensors, reads_any_order)
{
    static const char header[] =
        "{\"b\":{\"shape\":[1],\"data_offsets\":[4,8],\"dtype\":\"F32\",\"more\":1},"
        "\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}    ";
    struct strbuf file = STRBUF_INIT;
    struct safetensors s;
    struct error err;
    void *exact;
    st_file(&file, header, sizeof header - 1, "abcdefgh", 8);
    CHECK_INT(open_bytes(&s, file.data, file.len, &exact, &err), 0);
    CHECK_STR(s.tensors[0].name, "b");
    CHECK(memcmp(s.tensors[0].data, "efgh", 4) == 0);
    CHECK(memcmp(s.tensors[1].data, "abcd", 4) == 0);
    safetensors_close(&s);
    free(exact);
    strbuf_free(&file);
}

TEST(safetensors, refuses_headers)
{
    check_bytes("", 0, "only 0 bytes");
    check_bytes("\x10\0\0\0\0\0\0", 7, "only 7 bytes");
    check_bytes("\x10\0\0\0\0\0\0\0", 8, "ends (8 bytes) inside its header of 16 bytes");
    check_bytes("\x10\0\0\0\0\0\0\0{}", 10, "is the download incomplete?");
    check_bytes("\0\0\0\0\0\0\0\0{}", 10, "its header: unexpected end of JSON");
    check_bytes("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10, "a header of 18446744073709551615 bytes");
    check_bytes("\x01\xe1\xf5\x05\0\0\0\0{}", 10, "a header of 100000001 bytes");
    check_bytes("PK\x03\x04 a zip file", 15, "no header begins");
    check_bytes("<!DOCTYPE html><html>", 21, "not a safetensors file");
    check_header("{", 0, "its header: unexpected end of JSON");
    check_header("{\"a\":1", 0, "its header: ");
    check_header("{\"a\":{}}}", 0, "its header: ");
    check_header("{\"a\":{},\"a\":{}}", 0, "appears twice");
    check_header("{\"\xff\":{}}", 0, "UTF-8");
    check_header("{\"a\":1}", 0, "the entry of the tensor a is not an object");
    check_header("{\"a\\u0000b\":{}}", 0, "a NUL in it: a?b");
    check_header("{\"\":{}}", 0, "empty");
}

TEST(safetensors, refuses_tensors)
{
    static const struct {
        const char *entry, *why;
    } cases[] = {
        {"\"shape\":[2],\"data_offsets\":[0,8]", "t has no dtype"},
        {"\"dtype\":7,\"shape\":[2],\"data_offsets\":[0,8]", "t has no dtype"},
        {"\"dtype\":\"F8_E3M4\",\"shape\":[8],\"data_offsets\":[0,8]", "the dtype F8_E3M4, which"},
        {"\"dtype\":\"F32\",\"data_offsets\":[0,8]", "t has no shape"},
        {"\"dtype\":\"F32\",\"shape\":{},\"data_offsets\":[0,8]", "t has no shape"},
        {"\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]", "not made of whole numbers"},
        {"\"dtype\":\"F32\",\"shape\":[2.5],\"data_offsets\":[0,8]", "not made of whole numbers"},
        {"\"dtype\":\"F32\",\"shape\":[\"2\"],\"data_offsets\":[0,8]", "not made of whole numbers"},
        {"\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,8]",
         "more values than a 64-bit count can hold"},
        {"\"dtype\":\"F32\",\"shape\":[4611686018427387905],\"data_offsets\":[0,8]",
         "has 8 bytes, which does not match its shape and dtype"},
        {"\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]",
         "has 8 bytes, which does not match its shape"},
        {"\"dtype\":\"F4\",\"shape\":[15],\"data_offsets\":[0,8]",
         "has 8 bytes, which does not match its shape"},
        {"\"dtype\":\"F32\",\"shape\":[2]", "no data_offsets with two"},
        {"\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0]", "no data_offsets with two"},
        {"\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8,9]", "no data_offsets with two"},
        {"\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[-8,0]", "no data_offsets with two"},
        {"\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]", "ends (0) before it begins (8)"},
        {"\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]",
         "ends 4 bytes before the end of the tensor t; is the download incomplete?"},
        {"\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]",
         "4 bytes follow the data of its last tensor"},
        {"\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]",
         "a hole of 4 bytes before the data of the tensor t"},
        {"\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
         "\"u\":{\"dtype\":\"U8\",\"shape\":[6],\"data_offsets\":[2,8]",
         "u shares bytes with the tensor t"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char header[512];
        snprintf(header, sizeof header, "{\"t\":{%s}}", cases[i].entry);
        check_header(header, 8, cases[i].why);
    }
}

/* Names come from anyone: nothing in a message moves a terminal's cursor, and lines stay short. */
TEST(safetensors, shows_names_harmlessly)
{
    char header[1200], name[1001];
    check_header("{\"\\u001b[2J\\u0007\":1}", 0, "tensor ?[2J? is not");
    memset(name, 'n', 1000);
    name[1000] = '\0';
    snprintf(header, sizeof header, "{\"%s\":1}", name);
    check_header(header, 0, "nnn... is not an object");
}

/* Every prefix of a valid file is rejected, in one line. */
TEST(safetensors, refuses_each_truncation)
{
    struct st_builder b = {0};
    struct strbuf file = STRBUF_INIT;
    st_add(&b, "a", "F32", "[2, 2]", 16);
    st_add(&b, "b", "BF16", "[3]", 6);
    st_finish(&b, 0, &file);
    for (size_t len = 0; len < file.len; len++)
        check_bytes(file.data, len, "");
    strbuf_free(&file);
}

/* The memory for parsing a header is bounded by its length, whatever it expands to. */
TEST(safetensors, bounds_memory)
{
    struct strbuf header = STRBUF_INIT, file = STRBUF_INIT;
    strbuf_adds(&header, "{\"a\":[0");
    for (int i = 0; i < 1000000; i++)
        strbuf_adds(&header, ",0");
    strbuf_adds(&header, "]}");
    st_file(&file, header.data, header.len, "", 0);
    check_bytes(file.data, file.len, "JSON is too large");
    strbuf_clear(&header);
    strbuf_adds(&header, "{\"a\":");
    for (int i = 0; i < 100000; i++)
        strbuf_addc(&header, '[');
    st_file(&file, header.data, header.len, "", 0);
    check_bytes(file.data, file.len, "nested too deeply");
    strbuf_free(&header);
    strbuf_free(&file);
}

TEST(safetensors, out_of_memory)
{
    struct st_builder b = {0};
    struct strbuf file = STRBUF_INIT;
    struct safetensors s;
    int n = 0, rc = -1;
    st_add(&b, "a", "F32", "[2, 2]", 16);
    st_add(&b, "b", "F32", "[2]", 8);
    st_finish(&b, 0, &file);
    for (; rc; n++) {
        struct error err = {0};
        memory_ends_after((uint32_t)n);
        rc = safetensors_open_memory(&s, "m.st", file.data, file.len, &err);
        memory_is_back();
        CHECK(rc == 0 || err.code == ERROR_MEMORY || strstr(err.message, "memory"));
        safetensors_close(&s);
        CHECK(n < 50);
    }
    CHECK(n > 3);
    strbuf_free(&file);
}
