/* Files that others change while a model is loaded from them, and afterwards: what was copied
 * stays, what was dropped is gone, a change is told, and a file that is cut short ends the process
 * with a message. */
#include "test.h"
#include "test_death.h"
#include "test_files.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/map_guard.h"
#include "base/parallel.h"
#include "checkpoint_builder.h"
#include "gguf_builder.h"
#include "model/convert/requantize.h"
#include "model/files/gguf.h"
#include "model/files/model_file.h"

#define CHECK_HAS(got, part)                                                                       \
    do {                                                                                           \
        if (!strstr(got, part))                                                                    \
            test_fail(__FILE__, __LINE__, "\"%s\" is not in \"%s\"", part, got);                   \
    } while (0)

enum { PAGE = 4096, N_PAGES = 600, LEN = N_PAGES * PAGE - 100 };

static uint8_t content(size_t at)
{
    return (uint8_t)(at / PAGE * 7 + at % 251);
}

static const char *path_of(const char *name)
{
    static char path[300];
    snprintf(path, sizeof path, "%s/%s", test_scratch_dir(), name);
    return path;
}

static void file_fill(const char *path, uint8_t change)
{
    uint8_t *bytes = malloc(LEN);
    CHECK(bytes != NULL);
    for (size_t i = 0; i < LEN; i++)
        bytes[i] = content(i) ^ change;
    test_file_write(path, bytes, LEN);
    free(bytes);
}

/* Opens a new file, which has been there for a while. */
static const char *file_make(const char *name, struct model_file *f)
{
    const struct timespec old[2] = {{1000000, 0}, {1000000, 0}};
    const char *path = path_of(name);
    file_fill(path, 0);
    CHECK_INT(utimensat(AT_FDCWD, path, old, 0), 0);
    CHECK_INT(model_file_open(f, path, NULL), 0);
    return path;
}

static struct file_part part_of(const struct model_file *f, size_t begin, size_t end)
{
    return (struct file_part){f->bytes + begin, end - begin};
}

static bool is_content(const struct model_file *f, size_t begin, size_t end)
{
    for (size_t i = begin; i < end; i++)
        if (f->bytes[i] != content(i))
            return false;
    return true;
}

/* The signal that ends a process which reads that byte; 0: none. */
static int death_of_reading(const uint8_t *at)
{
    int status = 0;
    fflush(NULL);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        signal(SIGBUS, SIG_DFL);
        _exit(*(const volatile uint8_t *)at & 0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

TEST(model_file, what_is_kept_is_kept_whatever_becomes_of_the_file)
{
    struct model_file f;
    const char *path = file_make("kept.bin", &f);
    const size_t far = 400 * PAGE + 5;
    /* Unsorted, two on one page, one inside another, and one up to the file's end. */
    struct file_part parts[] = {part_of(&f, LEN - 10, LEN), part_of(&f, far, far + 3 * PAGE),
                                part_of(&f, far + 20, far + 30),
                                part_of(&f, 401 * PAGE, far + PAGE), part_of(&f, 10, 20)};
    CHECK_INT(model_file_settle(&f, parts, 5, false, NULL), 0);
    file_fill(path, 0xff);
    CHECK(is_content(&f, 10, 20) && is_content(&f, far, far + 3 * PAGE) &&
          is_content(&f, LEN - 10, LEN));
    CHECK_INT(truncate(path, 0), 0);
    CHECK(is_content(&f, 10, 20) && is_content(&f, far, far + 3 * PAGE) &&
          is_content(&f, LEN - 10, LEN));
    CHECK_INT(death_of_reading(f.bytes + 10), 0);
    CHECK_INT(death_of_reading(f.bytes + PAGE), SIGSEGV);
    CHECK_INT(death_of_reading(f.bytes + 399 * PAGE), SIGSEGV);
    CHECK_INT(death_of_reading(f.bytes + 404 * PAGE), SIGSEGV);
    CHECK_INT(model_file_check(&f, NULL), 0);
    CHECK_INT(model_file_settle(&f, NULL, 0, false, NULL), 0);
    model_file_close(&f);
    model_file_close(&f);
}

TEST(model_file, a_copied_header_does_not_change)
{
    struct model_file f;
    const char *path = file_make("header.bin", &f);
    CHECK_INT(model_file_copy(&f, 10, NULL), 0);
    CHECK(f.n_copied >= 10 && f.n_copied < LEN / 2);
    CHECK_INT(model_file_copy(&f, 300 * PAGE + 1, NULL), 0);
    file_fill(path, 0xff);
    CHECK(is_content(&f, 0, 300 * PAGE + 1));
    CHECK_INT(f.bytes[LEN - 1], 0xff - content(LEN - 1));
    CHECK_INT(model_file_copy(&f, 20, NULL), 0);
    CHECK(is_content(&f, 0, 20));
    model_file_close(&f);
}

TEST(model_file, a_part_in_the_copied_header_is_not_read_again)
{
    struct model_file f;
    struct error err;
    const char *path = file_make("both.bin", &f);
    const struct timespec old[2] = {{1000000, 0}, {1000000, 0}};
    CHECK_INT(model_file_copy(&f, 5 * PAGE, NULL), 0);
    size_t edge = f.n_copied;
    file_fill(path, 0xff);
    CHECK_INT(utimensat(AT_FDCWD, path, old, 0), 0); /* hides the change */
    struct file_part part = part_of(&f, edge - PAGE, edge + PAGE);
    CHECK_INT(model_file_settle(&f, &part, 1, false, &err), 0);
    CHECK(is_content(&f, edge - PAGE, edge));
    CHECK_INT(f.bytes[edge], 0xff - content(edge));
    CHECK_INT(death_of_reading(f.bytes), SIGSEGV);
    model_file_close(&f);
}

/* Settles a file that `change` has changed, and one that stays mapped. */
static void check_change(void (*change)(const char *path), const char *words)
{
    for (int keeps = 0; keeps < 2; keeps++) {
        struct model_file f;
        struct error err = {0};
        const char *path = file_make("changed.bin", &f);
        struct file_part part = part_of(&f, 0, 10);
        change(path);
        int failed = model_file_settle(&f, &part, 1, keeps, &err);
        CHECK_INT(failed, words ? -1 : 0);
        if (words) {
            CHECK_INT(err.code, ERROR_IO);
            CHECK_HAS(err.message, path);
            CHECK_HAS(err.message, words);
        } else {
            CHECK(is_content(&f, 0, 10));
            CHECK_INT(death_of_reading(f.bytes + 5 * PAGE), keeps ? 0 : SIGSEGV);
        }
        model_file_close(&f);
    }
}

static void change_nothing(const char *path)
{
    (void)path;
}

static void change_delete(const char *path)
{
    CHECK_INT(unlink(path), 0);
}

static void change_replace(const char *path)
{
    char other[310];
    snprintf(other, sizeof other, "%s.new", path);
    test_file_write_text(other, "something else");
    CHECK_INT(rename(other, path), 0);
}

static void change_cut(const char *path)
{
    CHECK_INT(truncate(path, LEN / 3), 0);
}

static void change_cut_to_nothing(const char *path)
{
    CHECK_INT(truncate(path, 0), 0);
}

static void change_grow(const char *path)
{
    CHECK_INT(truncate(path, LEN + 1), 0);
}

static void change_overwrite(const char *path)
{
    file_fill(path, 0xff);
}

/* No system call tells of this, but the file's date does. */
static void change_mapped(const char *path)
{
    int fd = open(path, O_RDWR);
    CHECK(fd >= 0);
    uint8_t *map = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(map != MAP_FAILED);
    map[LEN / 2] ^= 1;
    munmap(map, LEN);
    close(fd);
}

TEST(model_file, a_change_before_it_is_settled_is_told)
{
    check_change(change_nothing, NULL);
    check_change(change_delete, NULL);
    check_change(change_replace, NULL);
    check_change(change_cut, "it was cut short while it was read");
    check_change(change_cut_to_nothing, "it was cut short while it was read");
    check_change(change_grow, "it changed while it was read");
    check_change(change_overwrite, "it changed while it was read");
    check_change(change_mapped, "it changed while it was read");
}

/* What a process leaves that reads a file after it was cut: its status, and what it says. */
static int read_cut_file(bool is_guarded, bool is_told, char *said, size_t size)
{
    struct model_file f;
    int out[2], status = 0;
    const char *path = file_make("cut.bin", &f);
    CHECK_INT(truncate(path, 0), 0);
    CHECK_INT(pipe(out), 0);
    fflush(NULL);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        dup2(out[1], STDERR_FILENO);
        signal(SIGBUS, SIG_DFL);
        if (is_guarded)
            map_guard_install();
        if (!is_told)
            map_guard_remove(f.bytes);
        _exit(((const volatile uint8_t *)f.bytes)[LEN - 1] & 0);
    }
    close(out[1]);
    ssize_t n = read(out[0], said, size - 1);
    said[n > 0 ? n : 0] = '\0';
    close(out[0]);
    CHECK(waitpid(child, &status, 0) == child);
    model_file_close(&f);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

TEST(model_file, reading_a_file_that_was_cut_ends_with_a_message)
{
    char said[1000], want[1000];
    CHECK_INT(read_cut_file(true, true, said, sizeof said), 1);
    snprintf(want, sizeof want,
             "radish: %s: it cannot be read any more: it was cut short while in use, or its disk "
             "fails\n",
             path_of("cut.bin"));
    CHECK_STR(said, want);
    CHECK_INT(read_cut_file(false, true, said, sizeof said), -SIGBUS);
    CHECK_INT(read_cut_file(true, false, said, sizeof said), -SIGBUS); /* somebody else's */
}

TEST(model_file, a_settled_gguf_file_has_no_entries)
{
    struct gguf g;
    struct gguf_builder b = {0};
    const char *path = path_of("settled.gguf");
    build_key_string(&b, "general.name", "a name");
    build_tensor(&b, "a", TENSOR_F32, 32, 1);
    gguf_builder_finish(&b);
    test_file_write(path, b.file.data, b.file.len);
    CHECK_INT(gguf_open(&g, path, NULL), 0);
    const struct gguf_tensor *t = gguf_tensor(&g, "a");
    CHECK(t && gguf_find(&g, "general.name"));
    struct file_part part = {t->data, t->size_bytes};
    CHECK_INT(gguf_check(&g, NULL), 0);
    CHECK_INT(gguf_settle(&g, &part, 1, true, NULL), 0);
    CHECK(gguf_find(&g, "general.name"));
    CHECK_INT(gguf_settle(&g, &part, 1, false, NULL), 0);
    CHECK_INT(truncate(path, 0), 0);
    CHECK(memcmp(part.bytes, b.data.data, part.len) == 0);
    CHECK(!gguf_find(&g, "general.name") && !gguf_tensor(&g, "a"));
    CHECK_STR(g.path, path);
    gguf_close(&g);
    gguf_builder_free(&b);
}

TEST(model_file, a_file_that_changes_is_not_quantized)
{
    const struct requantize_options options = {.type = TENSOR_Q8_0};
    struct requantize_result result;
    struct checkpoint *c;
    struct parallel *pool;
    struct error err = {0};
    struct gguf_builder b = {0};
    char from[300], to[300];
    snprintf(from, sizeof from, "%s", path_of("from.gguf"));
    snprintf(to, sizeof to, "%s", path_of("to.gguf"));
    build_tensor(&b, "blk.0.ffn_up.weight", TENSOR_F32, 256, 2);
    gguf_builder_finish(&b);
    test_file_write(from, b.file.data, b.file.len);
    CHECK_INT(parallel_open(&pool, 1, NULL, NULL), 0);
    CHECK_INT(checkpoint_open(&c, from, NULL), 0);
    CHECK_INT(requantize(c, to, pool, &options, &result, NULL), 0);
    CHECK_INT(unlink(to), 0);
    CHECK_INT(truncate(from, (off_t)b.file.len + 1), 0);
    CHECK_INT(requantize(c, to, pool, &options, &result, &err), -1);
    CHECK_HAS(err.message, "from.gguf: it changed while it was read");
    CHECK_INT(access(to, F_OK), -1);
    CHECK_INT(access(path_of("to.gguf.tmp"), F_OK), -1);
    checkpoint_close(c);
    parallel_close(pool);
    gguf_builder_free(&b);
}

TEST(model_file, a_directory_keeps_parts_of_any_of_its_files)
{
    struct st_builder b = {0};
    char first[512], second[512];
    dir_text("settle", "config.json", "{}");
    dir_text("settle", "model.safetensors.index.json",
             "{\"weight_map\": {\"a\": \"1.safetensors\", \"b\": \"2.safetensors\"}}");
    st_add(&b, "a", "F32", "[1024, 8]", 32768);
    dir_tensors("settle", "1.safetensors", &b);
    st_add(&b, "b", "F32", "[1024, 8]", 32768);
    dir_tensors("settle", "2.safetensors", &b);
    snprintf(first, sizeof first, "%s", dir_path("settle", "1.safetensors"));
    snprintf(second, sizeof second, "%s", dir_path("settle", "2.safetensors"));
    struct checkpoint *c = open_dir("settle");
    const struct checkpoint_tensor *t[2] = {checkpoint_find(c, "a"), checkpoint_find(c, "b")};
    CHECK(t[0] && t[1]);
    uint8_t before[2][16], elsewhere = 0;
    struct file_part parts[] = {{(const uint8_t *)t[1]->data + 20000, 16},
                                {&elsewhere, 1}, /* copied earlier */
                                {(const uint8_t *)t[0]->data + 20000, 16}};
    memcpy(before[0], parts[0].bytes, 16);
    memcpy(before[1], parts[2].bytes, 16);
    CHECK_INT(checkpoint_check(c, NULL), 0);
    CHECK_INT(checkpoint_settle(c, parts, 3, false, NULL), 0);
    CHECK_INT(truncate(first, 0), 0);
    CHECK_INT(truncate(second, 0), 0);
    CHECK(memcmp(parts[0].bytes, before[0], 16) == 0);
    CHECK(memcmp(parts[2].bytes, before[1], 16) == 0);
    CHECK_INT(death_of_reading(t[0]->data), SIGSEGV);
    CHECK_INT(checkpoint_check(c, NULL), 0);
    checkpoint_close(c);
}

TEST(model_file, a_directory_tells_which_file_changed)
{
    struct error err = {0};
    struct st_builder b = {0};
    st_add(&b, "a", "F32", "[1024, 8]", 32768);
    struct checkpoint *c = open_tensors("told", "{}", &b);
    CHECK_INT(truncate(dir_path("told", "model.safetensors"), 10), 0);
    CHECK_INT(checkpoint_check(c, &err), -1);
    CHECK_HAS(err.message, "told/model.safetensors: it was cut short while it was read");
    CHECK_INT(checkpoint_settle(c, NULL, 0, false, &err), -1);
    checkpoint_close(c);
}
