/* The table of families: how each splits text into words, and what else its name implies.
 * Expressions come from the models' own files if known, otherwise from other programs that use the
 * name. [\r\n] means the same with literal characters and with backslashes, but a family is also
 * recognised by its expressions, byte for byte. So each must be written exactly as in its model's
 * file. */
#include "prompt/tokenizer/families.h"

#include <string.h>

/* Letters of scripts that have capitals. */
#define CASED_LETTERS                                                                              \
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af"   \
    "\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1"           \
    "\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5"               \
    "\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a"               \
    "\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d"          \
    "\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3"         \
    "\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115"          \
    "\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149"    \
    "\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d"           \
    "\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06"               \
    "\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3"            \
    "\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df"         \
    "\U0001e900-\U0001e943"

#define IDEOGRAPHS   "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
#define EAST_ASIAN   "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
#define BLOOM_WORDS  " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"
#define ASCII_MARKED "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|"

static const struct pre_family families[] = {
    /* Most files without a name were split this way. */
    {{"default"},
     {"[\\p{P}\\$\\+<=>\\^~\\|]+", PATTERN_GPT2, "\\p{N}+", "[0-9][0-9][0-9]"},
     {.is_guess = true}},

    {{"gpt-2", "gpt2", "phi-2", "gigachat", "a.x-4.0", "mellum", "jais", "trillion",
      "granite-docling", "exaone4"},
     {PATTERN_GPT2},
     {0}},
    {{"olmo", "mpt"}, {PATTERN_GPT2}, {.nfc = true}},
    {{"smollm", "starcoder", "refact", "codeshell", "exaone", "minerva-7b", "mellum2"},
     {CUT_DIGITS, PATTERN_GPT2},
     {0}},
    {{"command-r"}, {CUT_DIGITS, PATTERN_GPT2}, {.nfc = true}},
    {{"falcon"}, {CUT_PUNCTUATION, PATTERN_GPT2, "[0-9]+", "[0-9][0-9][0-9]"}, {0}},
    {{"chameleon"},
     {"<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", "([\\t\\n]|    |  )", CUT_DIGITS,
      "[\\p{P}!-/:-@\\[-`{-~]", PATTERN_GPT2},
     {.add_bos = true}},
    {{"bloom", "poro-chat", "gpt3-finnish"}, {BLOOM_WORDS}, {0}},
    {{"viking"}, {BLOOM_WORDS, CUT_DIGITS}, {0}},
    {{"superbpe"}, {"\\p{N}+", "(?=(\\d{3})+(?!\\d))"}, {0}},

    {{"qwen2", "deepseek-r1-qwen", "hunyuan", "stablelm2"}, {PATTERN_QWEN2}, {.nfc = true}},
    {{"solar-open", "grok-2", "kormo", "megrez"}, {PATTERN_QWEN2}, {0}},
    {{"laguna"}, {"[^\\n]+|[\\n]+", PATTERN_QWEN2}, {0}},
    {{"qwen35"},
     {PATTERN_CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}"
                           "| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
     {.nfc = true}},
    {{"seed-coder"},
     {PATTERN_CONTRACTIONS "|[^\r\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\r\n]+"
                           "|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"},
     {0}},
    {{"bailingmoe", "bailingmoe2", "llada-moe"},
     {"'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*"
      "|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"},
     {0}},
    {{"exaone-moe"},
     {PATTERN_CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+|\\p{N}"
                           "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"},
     {0}},

    {{"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"},
     {PATTERN_LLAMA3},
     {.ignore_merges = true, .add_bos = true}},
    {{"dbrx", "smaug-bpe", "glm4", "chatglm-bpe"}, {PATTERN_LLAMA3}, {0}},
    {{"jais-2"},
     {PATTERN_CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}"
                           "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+"
                           "|\\s{512}(?!\\S)|\\s{256}(?!\\S)|\\s{128}(?!\\S)|\\s{64}(?!\\S)"
                           "|\\s{32}(?!\\S)|\\s{16}(?!\\S)|\\s{8}(?!\\S)|\\s{4}(?!\\S)"
                           "|\\s{1,2}(?!\\S)|\\s{1}"},
     {0}},
    {{"minicpm5"}, {"\\p{N}{1,3}", PATTERN_GPT4("\\p{N}+")}, {.ignore_merges = true}},

    {{"gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"}, {PATTERN_GPT4O}, {0}},
    {{"tiny_aya", "cohere2moe"}, {"\\d{1,3}(?=(?:\\d{3})*\\b)", PATTERN_GPT4O}, {.nfc = true}},
    {{"tekken"}, {PATTERN_TEKKEN}, {.ignore_merges = true, .add_bos = true}},
    {{"kimi-k2"}, {PATTERN_KIMI}, {0}},
    {{"youtu"},
     {"[\uac00-\ud7a3\u3131-\u318e]+|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c"
      "\u3001-\u303f\ufe30-\ufe4f]+|[\u3105-\u312f]+|" IDEOGRAPHS,
      PATTERN_CASED_WORDS("", PATTERN_CONTRACTIONS "?") "\\p{N}" PATTERN_CASED_REST},
     {.ignore_merges = true}},

    {{"deepseek-v3", "hunyuan-dense", "joyai-llm"},
     {"\\p{N}{1,3}", IDEOGRAPHS,
      ASCII_MARKED "[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*"
                   "|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"},
     {0}},
    {{"afmoe"},
     {"\\p{N}{1,3}(?=(?:\\p{N}{3})*(?!\\p{N}))",
      "[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf"
      "\u0e40-\u0e7f\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af"
      "\u1100-\u11ff]+",
      ASCII_MARKED "[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*"
                   "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
     {0}},
    {{"deepseek-llm"},
     {"[\r\n]", "\\s?[" CASED_LETTERS "]+",
      "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+", "\\s+$", EAST_ASIAN,
      CUT_DIGITS},
     {0}},
    {{"deepseek-coder"}, {"[\r\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", EAST_ASIAN, CUT_DIGITS}, {0}},

    /* These merge characters and do not split. */
    {{"gemma4"}, {NULL}, {.characters = true, .add_bos = true}},
    {{"sarvam-moe"}, {NULL}, {.characters = true}},
};

enum { N_FAMILIES = sizeof families / sizeof *families };

static bool is_name(const char *name, const char *bytes, size_t len)
{
    return strlen(name) == len && memcmp(name, bytes, len) == 0;
}

const struct pre_family *pre_family_find(const char *name, size_t len)
{
    for (const struct pre_family *family = families; family < families + N_FAMILIES; family++)
        for (size_t i = 0; i < MAX_FAMILY_NAMES && family->names[i]; i++)
            if (is_name(family->names[i], name, len))
                return family;
    return NULL;
}

/* ---- from cuts to a name ---- */

static bool has_cuts(const struct pre_family *family, const char *cuts)
{
    for (size_t i = 0; i < MAX_CUTS && family->cuts[i]; i++) {
        size_t len = strlen(family->cuts[i]);
        if (strncmp(cuts, family->cuts[i], len) != 0 || cuts[len] != '\n')
            return false;
        cuts += len + 1;
    }
    return !*cuts && family->cuts[0] && !family->options.is_guess;
}

const char *pre_family_name(const char *cuts, bool nfc, bool ignore_merges, bool *exact)
{
    const char *near = NULL;
    *exact = false;
    for (const struct pre_family *family = families; family < families + N_FAMILIES; family++) {
        if (!has_cuts(family, cuts))
            continue;
        if (family->options.nfc == nfc && family->options.ignore_merges == ignore_merges) {
            *exact = true;
            return family->names[0];
        }
        near = near ? near : family->names[0];
    }
    return near;
}

/* ---- from a family to steps ---- */

static int add_cut(struct tokenizer *t, const char *cut, struct error *err)
{
    if (strcmp(cut, CUT_PUNCTUATION) == 0)
        return pre_add_step(t, PRE_PUNCTUATION, SPLIT_CONTIGUOUS, err) ? 0 : -1;
    if (strcmp(cut, CUT_DIGITS) == 0)
        return pre_add_step(t, PRE_DIGITS, SPLIT_ISOLATED, err) ? 0 : -1;
    return pre_add_split(t, cut, strlen(cut), SPLIT_ISOLATED, false, err);
}

int pre_family_apply(const struct pre_family *family, struct tokenizer *t, struct error *err)
{
    for (size_t i = 0; i < MAX_CUTS && family->cuts[i]; i++)
        if (add_cut(t, family->cuts[i], err) != 0)
            return -1;
    t->ignore_merges = family->options.ignore_merges;
    if (family->options.nfc)
        t->normal[t->n_normal++].kind = NORMAL_NFC;
    return 0;
}
