#ifndef RADISH_TEST_TOKEN_DIRECTORY_H
#define RADISH_TEST_TOKEN_DIRECTORY_H

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include "prompt/tokenizer/chat_defaults.h"
#include "prompt/tokenizer/tokenizer.h"
#include "test.h"
#include "test_files.h"

/* A directory with a tokenizer's files, which a case writes one by one. */
static inline const char *token_directory(void)
{
    static char path[4096];
    snprintf(path, sizeof path, "%s/tokens", test_scratch_dir());
    mkdir(path, 0700);
    DIR *entries = opendir(path);
    CHECK(entries != NULL);
    for (struct dirent *entry; (entry = readdir(entries));)
        unlinkat(dirfd(entries), entry->d_name, 0);
    closedir(entries);
    return path;
}

static inline void token_file(const char *dir, const char *name, const void *bytes, size_t len)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    test_file_write(path, bytes, len);
}

static inline void token_text(const char *dir, const char *name, const char *text)
{
    token_file(dir, name, text, strlen(text));
}

static inline struct tokenizer *token_directory_chat(const char *dir, uint32_t n_vocab,
                                                     struct chat_defaults *chat)
{
    struct tokenizer *t = NULL;
    struct error err = {0};
    if (tokenizer_open_directory(&t, chat, dir, n_vocab, &err) != 0)
        test_fail(__FILE__, __LINE__, "%s", err.message);
    return t;
}

static inline struct tokenizer *token_directory_open(const char *dir, uint32_t n_vocab)
{
    return token_directory_chat(dir, n_vocab, NULL);
}

/* The ids of a text, "1,2,3"; good until the next call. */
static inline const char *token_ids(const struct tokenizer *t, const char *text, int flags)
{
    static char ids[4096];
    struct token_list list = {0};
    struct error err = {0};
    if (tokenizer_encode(t, text, strlen(text), flags, &list, &err) != 0)
        test_fail(__FILE__, __LINE__, "%s", err.message);
    size_t at = 0;
    ids[0] = '\0';
    for (size_t i = 0; i < list.len && at < sizeof ids - 16; i++)
        at += (size_t)snprintf(ids + at, sizeof ids - at, "%s%d", i ? "," : "", list.ids[i]);
    token_list_free(&list);
    return ids;
}

#endif
