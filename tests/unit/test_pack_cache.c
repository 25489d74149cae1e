/* The file of packed weights: what is written is read back, and nothing that can happen to the file
 * or to the model makes a start use wrong weights, fail, or harm another file. */
#include "engine/cpu/pack_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/hash.h"
#include "engine/cpu/kernels/matmul_internal.h"
#include "golden_model.h"
#include "test.h"
#include "test_files.h"

enum { HEADER_BYTES = 1000, N_WEIGHTS = 5 };

/* A model's file, as far as the cache uses it. */
struct fake_model {
    char path[512], cache_path[600], temporary_path[700];
    uint8_t *bytes;
    size_t size_bytes;
    struct gguf gguf;
    struct checkpoint checkpoint;
    struct gguf_tensor tensors[N_WEIGHTS];
    struct weight weights[N_WEIGHTS];
};

static const struct weight shapes[N_WEIGHTS] = {{TENSOR_Q4_1, 40, 64, NULL},
                                                {TENSOR_Q8_0, 16, 96, NULL},
                                                {TENSOR_F32, 2100, 640, NULL}, /* two pieces */
                                                {TENSOR_Q6_K, 17, 256, NULL},
                                                {TENSOR_F16, 3, 50, NULL}};

static size_t weight_size(const struct weight *w)
{
    const struct tensor_type_info *type = tensor_type_info(w->type);
    return (size_t)w->rows * w->cols / type->block_len * type->block_bytes;
}

static void model_make(struct fake_model *m)
{
    *m = (struct fake_model){0};
    snprintf(m->path, sizeof m->path, "%s/fake.gguf", test_scratch_dir());
    snprintf(m->cache_path, sizeof m->cache_path, "%s.radish-packed", m->path);
    snprintf(m->temporary_path, sizeof m->temporary_path, "%s.tmp", m->cache_path);
    unlink(m->cache_path);
    unlink(m->temporary_path);
    m->size_bytes = HEADER_BYTES;
    for (int i = 0; i < N_WEIGHTS; i++)
        m->size_bytes += weight_size(&shapes[i]);
    m->bytes = malloc(m->size_bytes);
    CHECK(m->bytes != NULL);
    for (size_t i = 0; i < m->size_bytes; i++)
        m->bytes[i] = (uint8_t)hash_mix(i);
    uint8_t *at = m->bytes + HEADER_BYTES;
    for (int i = 0; i < N_WEIGHTS; at += weight_size(&shapes[i++])) {
        m->weights[i] = weight_make(shapes[i].type, shapes[i].rows, shapes[i].cols, at);
        m->tensors[i].data = at;
    }
    test_file_write(m->path, m->bytes, m->size_bytes);
    m->gguf = (struct gguf){.path = m->path,
                            .map = m->bytes,
                            .map_bytes = m->size_bytes,
                            .tensors = m->tensors,
                            .n_tensors = N_WEIGHTS};
    m->checkpoint = (struct checkpoint){
        .path = m->path, .gguf = &m->gguf, .file_bytes = m->size_bytes};
}

static void model_end(struct fake_model *m)
{
    unlink(m->cache_path);
    unlink(m->temporary_path);
    unlink(m->path);
    free(m->bytes);
}

static void store_open(struct weight_store *s, const struct fake_model *m)
{
    const struct weight *weights[N_WEIGHTS];
    for (int i = 0; i < N_WEIGHTS; i++)
        weights[i] = &m->weights[i];
    CHECK_INT(weight_store_open(s, &m->checkpoint, weights, N_WEIGHTS, NULL), 0);
}

static void store_pack(struct weight_store *s, const struct fake_model *m)
{
    store_open(s, m);
    for (uint32_t i = 0; i < s->n_matrices; i++)
        CHECK_INT(matrix_fill(s->matrices[i], s->weights[i], 0, s->matrices[i]->n_panels,
                              s->matrices[i]->data, NULL),
                  0);
}

static bool stores_equal(const struct weight_store *a, const struct weight_store *b)
{
    bool same = a->n_matrices == b->n_matrices;
    for (uint32_t i = 0; same && i < a->n_matrices; i++)
        same = a->matrices[i]->bytes == b->matrices[i]->bytes &&
               memcmp(a->matrices[i]->data, b->matrices[i]->data, a->matrices[i]->bytes) == 0;
    return same;
}

/* -1 with `err`, or the state; everything is closed again. */
static int state_of(const struct weight_store *s, struct error *err)
{
    struct pack_cache *c;
    enum pack_cache_state state;
    *err = (struct error){0};
    if (pack_cache_open(&c, s, &state, err))
        return -1;
    pack_cache_close(c);
    return (int)state;
}

static int write_cache(const struct weight_store *s, bool is_stopped, struct error *err)
{
    struct pack_cache *c;
    enum pack_cache_state state;
    atomic_bool stop = is_stopped;
    *err = (struct error){0};
    CHECK_INT(pack_cache_open(&c, s, &state, err), 0);
    int rc = pack_cache_write(c, &stop, err);
    pack_cache_close(c);
    return rc;
}

/* Opens the file and reads all of it: 0, or -1 for a bad state or piece. */
static int read_cache(const struct weight_store *s, struct error *err)
{
    struct pack_cache *c;
    enum pack_cache_state state;
    *err = (struct error){0};
    CHECK_INT(pack_cache_open(&c, s, &state, err), 0);
    int rc = state == PACK_CACHE_USABLE ? 0 : -1;
    for (uint32_t i = 0; rc == 0 && i < s->n_pieces; i++)
        rc = pack_cache_read(c, i, err);
    pack_cache_close(c);
    return rc;
}

TEST(pack_cache, what_is_written_is_read)
{
    struct fake_model m;
    struct weight_store packed, read;
    struct error err;
    model_make(&m);
    store_pack(&packed, &m);
    store_open(&read, &m);
    CHECK(packed.n_pieces > packed.n_matrices);
    CHECK_INT(state_of(&read, &err), PACK_CACHE_ABSENT);
    CHECK_INT(write_cache(&packed, false, &err), 0);
    CHECK_INT(access(m.temporary_path, F_OK), -1);
    CHECK(!stores_equal(&packed, &read));
    CHECK_INT(read_cache(&read, &err), 0);
    CHECK(stores_equal(&packed, &read));
    /* Overwriting an existing file gives the same file. */
    CHECK_INT(write_cache(&read, false, &err), 0);
    CHECK_INT(read_cache(&packed, &err), 0);
    weight_store_close(&packed);
    weight_store_close(&read);
    model_end(&m);
}

/* A file that was written, its bytes, and a store that knows nothing of it. */
struct damage {
    struct fake_model model;
    struct weight_store store;
    uint8_t *bytes;
    size_t len;
};

static void damage_begin(struct damage *d)
{
    struct error err;
    model_make(&d->model);
    store_pack(&d->store, &d->model);
    CHECK_INT(write_cache(&d->store, false, &err), 0);
    d->bytes = test_file_read(d->model.cache_path, &d->len);
}

static void damage_end(struct damage *d)
{
    free(d->bytes);
    weight_store_close(&d->store);
    model_end(&d->model);
}

TEST(pack_cache, a_file_of_another_length_is_bad)
{
    struct damage d;
    struct error err;
    damage_begin(&d);
    const size_t lengths[] = {0, 1, 7, 8, 9, 63, 79, 80, 300, 4096, 5000, d.len / 2, d.len - 1};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        test_file_write(d.model.cache_path, d.bytes, lengths[i]);
        CHECK_INT(state_of(&d.store, &err), PACK_CACHE_BAD);
        CHECK(err.message[0] != 0);
    }
    d.bytes[d.len] = 0;
    test_file_write(d.model.cache_path, d.bytes, d.len + 1);
    CHECK_INT(state_of(&d.store, &err), PACK_CACHE_BAD);
    test_file_write(d.model.cache_path, d.bytes, d.len);
    CHECK_INT(state_of(&d.store, &err), PACK_CACHE_USABLE);
    damage_end(&d);
}

static void flip(const struct damage *d, size_t at, int bit)
{
    uint8_t byte = d->bytes[at] ^ (uint8_t)(1 << bit);
    int fd = open(d->model.cache_path, O_WRONLY);
    CHECK(fd >= 0 && pwrite(fd, &byte, 1, (off_t)at) == 1);
    close(fd);
}

static void unflip(const struct damage *d, size_t at)
{
    int fd = open(d->model.cache_path, O_WRONLY);
    CHECK(fd >= 0 && pwrite(fd, d->bytes + at, 1, (off_t)at) == 1);
    close(fd);
}

TEST(pack_cache, a_flipped_bit_before_the_weights_is_bad)
{
    struct damage d;
    struct error err;
    damage_begin(&d);
    size_t head_bytes = 64 + N_WEIGHTS * 40 + d.store.n_pieces * 8;
    for (size_t at = 0; at < head_bytes; at++) {
        flip(&d, at, (int)(hash_mix(at) % 8));
        if (state_of(&d.store, &err) != PACK_CACHE_BAD)
            test_fail(__FILE__, __LINE__, "byte %zu may be anything", at);
        unflip(&d, at);
    }
    /* After it, nothing counts until the first matrix. */
    for (size_t at = head_bytes; at < 4096; at++)
        CHECK_INT(d.bytes[at], 0);
    CHECK_INT(state_of(&d.store, &err), PACK_CACHE_USABLE);
    damage_end(&d);
}

TEST(pack_cache, a_flipped_bit_of_the_weights_is_bad)
{
    struct damage d;
    struct error err;
    damage_begin(&d);
    size_t begin = 4096;
    for (uint32_t i = 0; i < d.store.n_matrices; i++) {
        size_t bytes = d.store.matrices[i]->bytes;
        CHECK(memcmp(d.bytes + begin, d.store.matrices[i]->data, bytes) == 0);
        for (int k = 0; k < 12; k++) {
            size_t at = k == 0 ? 0 : k == 1 ? bytes - 1 : hash_mix(i * 100 + k) % bytes;
            flip(&d, begin + at, k % 8);
            CHECK_INT(read_cache(&d.store, &err), -1);
            CHECK(strstr(err.message, "damaged") != NULL);
            unflip(&d, begin + at);
        }
        begin = (begin + bytes + 4095) / 4096 * 4096;
    }
    CHECK_INT(read_cache(&d.store, &err), 0);
    damage_end(&d);
}

static void set_date(const char *path, struct timespec mtime)
{
    const struct timespec times[2] = {{0, UTIME_OMIT}, mtime};
    CHECK_INT(utimensat(AT_FDCWD, path, times, 0), 0);
}

/* Its date must not vouch for what was packed from the file before. */
TEST(pack_cache, a_model_that_changed_since_it_was_opened_has_none)
{
    struct damage d;
    struct error err;
    struct stat st;
    damage_begin(&d);
    CHECK_INT(stat(d.model.path, &st), 0);
    d.model.gguf.mtime_ns = st.st_mtim.tv_sec * INT64_C(1000000000) + st.st_mtim.tv_nsec;
    CHECK_INT(state_of(&d.store, &err), PACK_CACHE_USABLE);
    d.model.gguf.mtime_ns--;
    CHECK_INT(state_of(&d.store, &err), -1);
    CHECK(strstr(err.message, "it has changed since it was opened") != NULL);
    damage_end(&d);
}

TEST(pack_cache, another_model_is_bad)
{
    struct damage d;
    struct error err;
    struct stat st;
    damage_begin(&d);
    CHECK_INT(stat(d.model.path, &st), 0);
    struct timespec later = st.st_mtim;
    later.tv_nsec = (later.tv_nsec + 1) % 1000000000;
    set_date(d.model.path, later); /* by a nanosecond */
    CHECK_INT(state_of(&d.store, &err), PACK_CACHE_BAD);
    CHECK_STR(err.message, "the model has changed");
    set_date(d.model.path, st.st_mtim);
    CHECK_INT(state_of(&d.store, &err), PACK_CACHE_USABLE);

    d.model.bytes[HEADER_BYTES - 1] ^= 1; /* of the same date and size */
    CHECK_INT(state_of(&d.store, &err), PACK_CACHE_BAD);
    CHECK_STR(err.message, "the model has changed");
    d.model.bytes[HEADER_BYTES - 1] ^= 1;

    /* Other weights under the same head, date and size; or the same ones, packed differently. */
    for (int i = 0; i < N_WEIGHTS; i++) {
        uint8_t *data = (uint8_t *)(uintptr_t)d.model.weights[i].data;
        for (size_t k = 0; k < weight_size(&shapes[i]); k++)
            data[k] ^= 1;
        CHECK_INT(read_cache(&d.store, &err), -1);
        CHECK(strstr(err.message, "another model") != NULL);
        for (size_t k = 0; k < weight_size(&shapes[i]); k++)
            data[k] ^= 1;
    }
    CHECK_INT(read_cache(&d.store, &err), 0);

    CHECK_INT(truncate(d.model.path, (off_t)d.model.size_bytes - 1), 0);
    CHECK_INT(state_of(&d.store, &err), -1);
    unlink(d.model.path);
    CHECK_INT(state_of(&d.store, &err), -1);
    CHECK(strstr(err.message, d.model.path) != NULL);
    damage_end(&d);
}

TEST(pack_cache, other_shapes_are_bad)
{
    struct damage d;
    struct error err;
    struct weight_store other;
    damage_begin(&d);
    const struct weight same_size = weight_make(TENSOR_Q4_1, 20, 128, d.model.weights[0].data);
    const struct weight as_floats = weight_make(TENSOR_BF16, 3, 50, d.model.weights[4].data);
    const struct {
        int index;
        const struct weight *weight;
    } changes[] = {{0, &same_size}, {4, &as_floats}, {4, NULL}};
    for (int i = 0; i < 3; i++) {
        const struct weight *weights[N_WEIGHTS];
        for (int k = 0; k < N_WEIGHTS; k++)
            weights[k] = k == changes[i].index ? changes[i].weight : &d.model.weights[k];
        uint32_t n = changes[i].weight ? N_WEIGHTS : N_WEIGHTS - 1;
        CHECK_INT(weight_store_open(&other, &d.model.checkpoint, weights, n, NULL), 0);
        CHECK_INT(state_of(&other, &err), PACK_CACHE_BAD);
        CHECK(strstr(err.message, "another model") != NULL);
        weight_store_close(&other);
    }
    damage_end(&d);
}

TEST(pack_cache, strange_files_in_its_place)
{
    struct damage d;
    struct error err;
    damage_begin(&d);
    unlink(d.model.cache_path);
    CHECK_INT(mkdir(d.model.cache_path, 0700), 0);
    CHECK_INT(state_of(&d.store, &err), PACK_CACHE_BAD);
    CHECK_INT(write_cache(&d.store, false, &err), -1);
    CHECK_INT(access(d.model.temporary_path, F_OK), -1);
    CHECK_INT(rmdir(d.model.cache_path), 0);
    CHECK_INT(mkfifo(d.model.cache_path, 0600), 0);
    CHECK_INT(state_of(&d.store, &err), PACK_CACHE_BAD); /* and does not wait for a writer */
    unlink(d.model.cache_path);
    CHECK_INT(symlink("fake.gguf.radish-packed", d.model.cache_path), 0);
    CHECK_INT(state_of(&d.store, &err), PACK_CACHE_BAD);
    unlink(d.model.cache_path);
    if (geteuid() == 0) {
        test_file_write(d.model.cache_path, d.bytes, d.len);
        CHECK_INT(chown(d.model.cache_path, 12345, 12345), 0);
        CHECK_INT(state_of(&d.store, &err), PACK_CACHE_BAD);
        CHECK_STR(err.message, "it belongs to another user");
    }
    damage_end(&d);
}

TEST(pack_cache, strange_files_in_the_way_of_writing)
{
    struct damage d;
    struct error err;
    char other[600];
    size_t len;
    damage_begin(&d);
    snprintf(other, sizeof other, "%s/precious", test_scratch_dir());
    test_file_write(other, "gold", 4);
    CHECK_INT(symlink(other, d.model.temporary_path), 0);
    CHECK_INT(write_cache(&d.store, false, &err), -1);
    uint8_t *kept = test_file_read(other, &len);
    CHECK(len == 4 && memcmp(kept, "gold", 4) == 0);
    free(kept);
    unlink(other);
    unlink(d.model.temporary_path);
    CHECK_INT(mkdir(d.model.temporary_path, 0700), 0);
    CHECK_INT(write_cache(&d.store, false, &err), -1);
    rmdir(d.model.temporary_path);

    /* Left behind by a process that was killed, and longer than the new one. */
    uint8_t *old = calloc(1, d.len + 9999);
    test_file_write(d.model.temporary_path, old, d.len + 9999);
    free(old);
    unlink(d.model.cache_path);
    CHECK_INT(write_cache(&d.store, false, &err), 0);
    CHECK_INT(read_cache(&d.store, &err), 0);

    /* Being written by another. */
    int fd = open(d.model.temporary_path, O_CREAT | O_WRONLY, 0600);
    CHECK(fd >= 0 && flock(fd, LOCK_EX) == 0 && write(fd, "half", 4) == 4);
    CHECK_INT(write_cache(&d.store, false, &err), -1);
    CHECK_STR(err.message, "another process is writing it");
    CHECK_INT(lseek(fd, 0, SEEK_END), 4);
    close(fd);
    damage_end(&d);
}

TEST(pack_cache, a_write_that_cannot_end_leaves_nothing)
{
    struct damage d;
    struct error err;
    struct rlimit before, small = {1 << 20, 0};
    damage_begin(&d);
    unlink(d.model.cache_path);
    CHECK_INT(write_cache(&d.store, true, &err), -1);
    CHECK_INT(err.code, ERROR_CANCELED);
    CHECK_INT(access(d.model.temporary_path, F_OK), -1);
    CHECK_INT(access(d.model.cache_path, F_OK), -1);

    CHECK_INT(getrlimit(RLIMIT_FSIZE, &before), 0);
    small.rlim_max = before.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    CHECK_INT(setrlimit(RLIMIT_FSIZE, &small), 0);
    int rc = write_cache(&d.store, false, &err);
    CHECK_INT(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_DFL);
    CHECK_INT(rc, -1);
    CHECK_INT(err.code, ERROR_IO);
    CHECK_INT(access(d.model.temporary_path, F_OK), -1);
    CHECK_INT(access(d.model.cache_path, F_OK), -1);
    damage_end(&d);
}

TEST(pack_cache, is_for_the_eyes_that_may_see_the_model)
{
    struct damage d;
    struct error err;
    struct stat st;
    const mode_t modes[] = {0600, 0644, 0440};
    damage_begin(&d);
    for (int i = 0; i < 3; i++) {
        CHECK_INT(chmod(d.model.path, modes[i]), 0);
        CHECK_INT(write_cache(&d.store, false, &err), 0);
        CHECK_INT(stat(d.model.cache_path, &st), 0);
        CHECK_INT(st.st_mode & 07777, modes[i]);
    }
    damage_end(&d);
}

TEST(pack_cache, is_for_those_who_pack_slowly)
{
    const uint64_t second = 1000000000;
    const size_t gigabyte = 1000000000;
    CHECK(!pack_cache_pays(second, gigabyte, 2)); /* one second is too little */
    CHECK(pack_cache_pays(second + 1, gigabyte, 2));
    CHECK(!pack_cache_pays(0, 0, 1));
    /* Q4_0 at 1.2 GB/s a thread, Q8_0 at 3.5: on one thread, two, four and sixteen. */
    CHECK(pack_cache_pays(10 * second, 12 * gigabyte, 1));
    CHECK(!pack_cache_pays(10 * second, 35 * gigabyte, 1));
    CHECK(pack_cache_pays(10 * second, 24 * gigabyte, 2));
    CHECK(!pack_cache_pays(10 * second, 70 * gigabyte, 2));
    CHECK(pack_cache_pays(10 * second, 48 * gigabyte, 4));
    CHECK(!pack_cache_pays(10 * second, 192 * gigabyte, 16)); /* they pack as fast as they read */
}

/* One load with three threads, as the engine does it. */
static void load(struct weight_store *s, const struct fake_model *m, enum pack_cache_mode mode)
{
    struct parallel *pool;
    store_open(s, m);
    CHECK_INT(parallel_open(&pool, 3, NULL, NULL), 0);
    CHECK_INT(weight_store_load(s, pool, mode, NULL, NULL, NULL), 0);
    parallel_close(pool);
}

static void wait_for_file(const char *path)
{
    for (int i = 0; i < 2000 && access(path, F_OK) != 0; i++)
        nanosleep(&(struct timespec){0, 10 * 1000 * 1000}, NULL);
    CHECK_INT(access(path, F_OK), 0);
}

TEST(pack_cache, threads_load_and_the_file_is_renewed)
{
    struct fake_model m;
    struct weight_store packed, loaded;
    struct stat first, second;
    model_make(&m);
    store_pack(&packed, &m);
    load(&loaded, &m, PACK_CACHE_OFF);
    CHECK(stores_equal(&packed, &loaded) && !loaded.cache);
    weight_store_close(&loaded);
    load(&loaded, &m, PACK_CACHE_AUTO); /* it takes no second */
    CHECK(stores_equal(&packed, &loaded) && !loaded.is_writing);
    weight_store_close(&loaded);
    CHECK_INT(access(m.cache_path, F_OK), -1);

    load(&loaded, &m, PACK_CACHE_ON);
    CHECK(stores_equal(&packed, &loaded) && loaded.is_writing);
    wait_for_file(m.cache_path);
    weight_store_close(&loaded);
    CHECK_INT(stat(m.cache_path, &first), 0);
    load(&loaded, &m, PACK_CACHE_ON);
    CHECK(stores_equal(&packed, &loaded) && !loaded.is_writing);
    weight_store_close(&loaded);
    CHECK_INT(stat(m.cache_path, &second), 0);
    CHECK(first.st_ino == second.st_ino);

    /* Damaged at its end, so that most of it is read before the damage is noticed. */
    int fd = open(m.cache_path, O_WRONLY);
    CHECK(fd >= 0 && pwrite(fd, "\xff\xff\xff\xff", 4, first.st_size - 4) == 4);
    close(fd);
    load(&loaded, &m, PACK_CACHE_ON);
    CHECK(stores_equal(&packed, &loaded) && loaded.is_writing);
    for (int i = 0; i < 2000 && stat(m.cache_path, &second) == 0; i++) {
        if (second.st_ino != first.st_ino)
            break;
        nanosleep(&(struct timespec){0, 10 * 1000 * 1000}, NULL);
    }
    weight_store_close(&loaded);

    /* A bad file that is not worth rewriting is removed; a file that is not ours stays. */
    CHECK_INT(truncate(m.cache_path, 5000), 0);
    load(&loaded, &m, PACK_CACHE_AUTO);
    CHECK(stores_equal(&packed, &loaded));
    weight_store_close(&loaded);
    CHECK_INT(access(m.cache_path, F_OK), -1);
    test_file_write(m.cache_path, "my notes", 8);
    load(&loaded, &m, PACK_CACHE_AUTO);
    CHECK(stores_equal(&packed, &loaded));
    weight_store_close(&loaded);
    CHECK_INT(access(m.cache_path, F_OK), 0);
    weight_store_close(&packed);
    model_end(&m);
}

static struct engine *open_directory(struct model *m, const char *path)
{
    struct engine *e;
    struct error err;
    struct engine_limits limits = {.n_pages = {8}, .max_rows = 4, .max_seqs = 1, .max_length = 8};
    struct cpu_options options = {.n_threads = 2, .pack_cache = PACK_CACHE_ON};
    if (model_open(m, path, NULL, &err) || cpu_engine_open(&e, m, &limits, &options, &err))
        test_fail(__FILE__, __LINE__, "%s", err.message);
    return e;
}

/* A directory's file is inside it, is checked against all its files, and is not readable by more
 * users than they are. */
TEST(pack_cache, of_a_directory)
{
    static const char *const files[] = {"config.json", "model-00001-of-00002.safetensors",
                                        "model-00002-of-00002.safetensors",
                                        "model.safetensors.index.json", "model.radish-packed"};
    struct golden g;
    struct model m;
    char directory[512], packed[600], shard[600];
    struct stat first, second;
    snprintf(directory, sizeof directory, "%s/packed", test_scratch_dir());
    snprintf(packed, sizeof packed, "%s/model.radish-packed", directory);
    snprintf(shard, sizeof shard, "%s/%s", directory, files[2]);
    golden_open(&g, "qwen3_moe");
    golden_write(&g.plain, GOLDEN_BF16, 2, directory);
    unlink(packed);
    CHECK_INT(chmod(shard, 0640), 0);
    struct engine *e = open_directory(&m, directory);
    wait_for_file(packed);
    engine_close(e);
    model_close(&m);
    CHECK_INT(stat(packed, &first), 0);
    CHECK_INT(first.st_mode & 0777, 0640);
    engine_close(open_directory(&m, directory));
    model_close(&m);
    CHECK_INT(stat(packed, &second), 0);
    CHECK(first.st_ino == second.st_ino);

    /* One file of it is another now. */
    struct timespec times[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    CHECK_INT(utimensat(AT_FDCWD, shard, times, 0), 0);
    e = open_directory(&m, directory);
    for (int i = 0; i < 1000 && second.st_ino == first.st_ino; i++) {
        nanosleep(&(struct timespec){0, 10 * 1000 * 1000}, NULL);
        CHECK_INT(stat(packed, &second), 0);
    }
    engine_close(e);
    model_close(&m);
    CHECK(first.st_ino != second.st_ino);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(shard, sizeof shard, "%s/%s", directory, files[i]);
        unlink(shard);
    }
    rmdir(directory);
    golden_close(&g);
}
