/* Fuzzes a directory's tokenizer files: tokenizer.json, SentencePiece's tokenizer.model, tiktoken's
 * files, tokenizer_config.json. The first byte chooses the file, and whether the rest is the file
 * itself or a list of edits to a small valid one, because random bytes seldom get past the first
 * step. A tokenizer that opens must encode and decode any text, with ids in range. */
#include <stdlib.h>
#include <unistd.h>

#include "fuzz.h"
#include "prompt/tokenizer/tokenizer_internal.h"
#include "token_directory.h"

/* A charsmap with the rules a -> é and b -> ba, in base64 and as it is. */
#define CHARSMAP_64 "GAAAAACAAQBhFQAAYh0AAAAAAAAAAACAAwAAgMOpAGJhAA=="
#define CHARSMAP    "\x18\0\0\0\0\x80\1\0a\x15\0\0b\x1d\0\0\0\0\0\0\0\0\0\x80\3\0\0\x80é\0ba\0"

#define DOCUMENT(text)                                                                             \
    {                                                                                              \
        text, sizeof(text) - 1                                                                     \
    }

static const struct {
    const char *text;
    size_t len;
} documents[] = {
    DOCUMENT(
        "{\"added_tokens\":[{\"id\":9,\"content\":\"<s>\",\"special\":true,\"lstrip\":true},{"
        "\"id\":8,"
        "\"content\":\"A B\",\"normalized\":true,\"single_word\":true}],\"normalizer\":{\"type\":"
        "\"Sequence\",\"normalizers\":[{\"type\":\"NFKC\"},{\"type\":\"Prepend\",\"prepend\":\"▁\"}"
        ","
        "{\"type\":\"Replace\",\"pattern\":{\"String\":\" "
        "\"},\"content\":\"▁\"},{\"type\":\"Replace\","
        "\"pattern\":{\"Regex\":\"a+b\"},\"content\":\"b\"},{\"type\":\"Strip\",\"strip_left\":"
        "true}]},"
        "\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\s|\\\\p{N}{1,3}\"},"
        "\"behavior\":\"MergedWithNext\",\"invert\":false},\"decoder\":{\"type\":\"Sequence\","
        "\"decoders\""
        ":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"▁\"},\"content\":\" \"},{\"type\":"
        "\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" "
        "\",\"start\":1,\"stop\":0"
        "}]},\"model\":{\"type\":\"BPE\",\"unk_token\":\"<u>\",\"fuse_unk\":true,\"byte_fallback\":"
        "true,"
        "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"▁\":3,\"▁ab\":4,\"<u>\":5,\"<0x41>\":6,\"1\":7},"
        "\"merges\":[\"a b\",[\"▁\",\"ab\"]]}}"),
    DOCUMENT(
        "{\"normalizer\":{\"type\":\"NFC\"},\"pre_tokenizer\":{\"type\":\"Sequence\","
        "\"pretokenizers\":"
        "["
        "{\"type\":\"Digits\",\"individual_digits\":true},{\"type\":\"ByteLevel\",\"add_prefix_"
        "space\":"
        "true"
        "}]},\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{"
        "\"id\":"
        "\"<s>\",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"special_tokens\":{"
        "\"<s>"
        "\":"
        "{\"id\":\"<s>\",\"ids\":[3],\"tokens\":[\"<s>\"]}}},\"decoder\":{\"type\":\"ByteLevel\"},"
        "\"model\":{\"type\":\"BPE\",\"ignore_merges\":true,\"vocab\":{\"Ġ\":0,\"a\":1,\"Ġa\":2,\"<"
        "s>"
        "\":3},"
        "\"merges\":[\"Ġ a\"]}}"),
    DOCUMENT("{\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":"
             "\"CAAAAAAEAAABAgMEYQA=\"},"
             "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"▁\",\"prepend_scheme\":"
             "\"first\","
             "\"split\":true},\"decoder\":{\"type\":\"Metaspace\",\"replacement\":\"▁\",\"prepend_"
             "scheme\":"
             "\"always\"},\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"byte_fallback\":false,"
             "\"vocab\":"
             "[[\"<unk>\",0],[\"▁\",-2.5],[\"a\",-3],[\"▁a\",-3.125],[\"aa\",-4]]}}"),
    DOCUMENT(
        "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Precompiled\","
        "\"precompiled_charsmap\":\"" CHARSMAP_64
        "\"},{\"type\":\"NFC\"},{\"type\":\"Lowercase\"}]},\"pre_tokenizer\":{\"type\":"
        "\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[\\\\p{L}"
        "\\\\p{M}]+|\\\\b\\\\w{,3}|.+?(?=x)|[[:punct:]]\"},\"behavior\":\"Isolated\"},{\"type\":"
        "\"ByteLevel\",\"add_prefix_space\":false}]},\"decoder\":{\"type\":\"Sequence\","
        "\"decoders\":[{\"type\":\"ByteLevel\"},{\"type\":\"Fuse\"}]},\"model\":{\"type\":\"BPE\","
        "\"vocab\":{\"a\":0,\"b\":1,\"Ã\":2,\"©\":3,\"Ã©\":4,\"Ġ\":5},\"merges\":[\"Ã ©\"]}}"),
    DOCUMENT("{\"added_tokens\":[{\"id\":9,\"content\":\"ab\",\"normalized\":true}],\"normalizer\":"
             "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"" CHARSMAP_64
             "\"},\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"ByteFallback\"},{"
             "\"type\":\"Replace\",\"pattern\":{\"Regex\":\"[\\\\p{L}\\\\p{M}]+|.+?(?=x)|\\\\B\"},"
             "\"content\":\"y\"},{\"type\":\"Fuse\"}]},\"model\":{\"type\":\"BPE\",\"byte_"
             "fallback\":true,\"vocab\":{\"<0xC3>\":0,\"<0xA9>\":1,\"<0xF4>\":2,\"b\":3,\"aéx\":4},"
             "\"merges\":[]}}"),
    DOCUMENT("\x0a\x07\x0a\x05<unk>\x0a\x0a\x0a\x03▁\x15\x01\x01\x80\xbf"),
    DOCUMENT("\x0a\x0a\x0a\x01z\x15\x01\x01\x80\xbf\x18\x01\x12\x04\x18\x02\x28\x01\x1a\x04\x18\x01"
             "\x20\x01"),
    DOCUMENT("\x0a\x07\x0a\x05<unk>\x0a\x0a\x0a\x03▁\x15\x01\x01\x80\xbf"
             "\x0a\x0b\x0a\x02é\x15\x01\x01\x80\xbf\x18\x01\x12\x04\x18\x02\x28\x01\x1a\x26\x18\x01"
             "\x12\x22" CHARSMAP),
    DOCUMENT("YQ== 0\nYg== 1\nYWI= 2\nIA== 3\n"),
};

static void check_tokenizer(const struct tokenizer *t, const char *text, size_t len)
{
    struct token_list ids = {0};
    struct strbuf out = STRBUF_INIT;
    struct error err;
    for (int flags = 0; flags < 8; flags++) {
        ids.len = 0;
        if (tokenizer_encode(t, text, len, flags, &ids, &err) != 0) {
            CHECK(err.code == ERROR_LIMIT || err.code == ERROR_MEMORY);
            continue;
        }
        for (size_t i = 0; i < ids.len; i++)
            CHECK(ids.ids[i] >= 0 && (uint32_t)ids.ids[i] < tokenizer_size(t));
        strbuf_clear(&out);
        tokenizer_decode(t, ids.ids, ids.len, flags & 1, &out);
    }
    strbuf_free(&out);
    token_list_free(&ids);
}

/* An edit is three bytes: a position and the new byte; zero truncates the text there. */
static void edit(struct strbuf *text, const uint8_t *data, size_t size)
{
    for (size_t i = 0; i + 3 <= size && text->len > 0; i += 3) {
        size_t at = (data[i] | (size_t)data[i + 1] << 8) % text->len;
        if (data[i + 2] == 0)
            text->len = at;
        else
            text->data[at] = (char)data[i + 2];
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"tokenizer.json", "tokenizer.model", "x.tiktoken"};
    enum { N_DOCUMENTS = sizeof documents / sizeof *documents, N_JSON = 5 };
    static const char known[] =
        "bab a é ab12, cab<s>½ e\u0301x A B"; /* matches the rules of the documents */
    if (size < 2)
        return 0;
    struct strbuf text = STRBUF_INIT;
    struct tokenizer *t = NULL;
    struct error err = {0};
    const char *dir = token_directory();
    unsigned which = data[0] % N_DOCUMENTS;
    bool edits = data[0] & 128;
    const char *name = names[which < N_JSON ? 0 : which < N_DOCUMENTS - 1 ? 1 : 2];
    if (edits) {
        strbuf_add(&text, documents[which].text, documents[which].len);
        edit(&text, data + 2, size - 2);
        token_file(dir, name, strbuf_str(&text), text.len);
    } else {
        token_file(dir, name, data + 2, size - 2);
    }
    if (which == N_DOCUMENTS - 1)
        token_text(dir, "tokenizer_config.json", "{\"pat_str\":\"\\\\w+|\\\\s\"}");
    else if (data[1] & 1) /* a second file of the same bytes */
        token_file(dir, "tokenizer_config.json", data + 2, size - 2);
    if (tokenizer_open_directory(&t, NULL, dir, data[1] & 2 ? data[1] & 4 ? 300 : 7 : 0, &err) ==
        0) {
        check_tokenizer(t, known, sizeof known - 1);
        check_tokenizer(t, (const char *)data, size);
    } else {
        CHECK(err.code != ERROR_NONE && err.message[0]);
        CHECK(!edits || size > 2 || data[1] & 3); /* an unedited document opens */
    }
    tokenizer_close(t);
    strbuf_free(&text);
    return 0;
}
