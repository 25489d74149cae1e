/* Prints docs/models.md from the table of architectures and the table of weight types: `make docs`.
 * A test compares the two. */
#include <stdio.h>
#include <string.h>

#include "model/architecture.h"
#include "model/quant/quantize.h"

static void print_rows(void)
{
    printf("| models | `model_type` | GGUF | made of, beside what Llama is |\n|---|---|---|---|\n");
    const struct architecture *a;
    for (size_t i = 0; (a = architecture_at(i)); i++) {
        const char *features[MAX_FEATURES];
        size_t n = architecture_features(a, features);
        printf("| %s | ", a->title);
        for (size_t j = 0; j < MAX_NAMES && a->types[j]; j++)
            printf("%s`%s`", j ? ", " : "", a->types[j]);
        if (a->gguf)
            printf(" | `%s` | ", a->gguf);
        else
            printf(" | | ");
        for (size_t j = 0; j < n; j++)
            printf("%s%s", j ? ", " : "", features[j]);
        printf(" |\n");
    }
}

static void print_types(void)
{
    for (uint32_t type = 0, n = 0; type < TENSOR_F8_E4M3; type++) {
        const struct tensor_type_info *info = tensor_type_info(type);
        if (info)
            printf("%s%s", n++ ? ", " : "", info->name);
    }
    printf(".\n");
}

static const char beginning[] =
    "# Models\n\n"
    "<!-- Made by `make docs` from the tables in src/model. -->\n\n"
    "`radish info PATH` says what a model is and what it needs. A path is a GGUF file (of a split "
    "one\n"
    "any part), or a directory: of Hugging Face (config.json and safetensors), of MLX, or of\n"
    "config.json and `bin_weights/*.bin`.\n\n"
    "## Families\n\n";

static const char refused[] =
    "\nMultimodal checkpoints of these families run as their text part. Refused by name, so far: "
    "models\n"
    "with recurrent layers (Qwen 3.5, LFM 2, Granite 4 hybrids, Nemotron-H, Mamba), and rope "
    "whose\n"
    "frequencies depend on the current length (dynamic NTK), which no prefix cache can keep.\n\n"
    "## Weights\n\n"
    "- **GGUF**: ";

static const char directories[] = "- **Directories**: F32, F16, BF16; FP8 (E4M3) with a scale for "
                                  "blocks, rows or a tensor; MXFP4 as\n"
                                  "  gpt-oss has it; MLX's affine 1 to 8 bits in groups of 32, 64 "
                                  "or 128, mxfp4, mxfp8 and nvfp4, with\n"
                                  "  settings for single modules. AWQ, GPTQ, bitsandbytes and "
                                  "compressed-tensors (but FP8) are refused by name.\n";

static const char example[] =
    "\n## A new family\n\n"
    "A model that combines what the table knows is one row, and a golden that proves it. This one, "
    "which no\n"
    "one has made, has the layers of Command R7B, the attention of gpt-oss and the experts of "
    "DeepSeek V3,\n"
    "and takes no more than this:\n\n"
    "```diff\n"
    "--- a/src/model/architecture_rows.c\n"
    "+++ b/src/model/architecture_rows.c\n"
    "@@ const struct architecture architecture_rows[] = {\n";

static const char golden[] =
    "```\n\n"
    "`python3 tools/make_model_goldens.py made_up` makes `tests/models/made_up.json`: transformers "
    "writes the\n"
    "model, every parameter is redrawn, and a feature that does not move the logits by 100 "
    "tolerances when it\n"
    "is turned off proves nothing and fails the tool. `build/unit models.made_up` then computes it "
    "on every\n"
    "kernel path, in chunks, from the cache and in company; each logit must be within 1e-4 of "
    "transformers'.\n"
    "Row and golden are in the repository but not in the table, so that this example is tested, "
    "too.\n\n"
    "A family that transformers has needs no class, only a row; and where released files differ "
    "from what\n"
    "transformers writes by more than older keys, a function in `tools/model_hub.py`.\n";

/* The lines of a file as a diff adds them, from the one that begins so. */
static int print_added(const char *path, const char *first)
{
    char line[256];
    bool is_begun = false;
    FILE *f = fopen(path, "r");
    if (!f) {
        fprintf(stderr, "models_doc: %s cannot be read: run it in the repository's root\n", path);
        return -1;
    }
    while (fgets(line, sizeof line, f)) {
        is_begun |= strncmp(line, first, strlen(first)) == 0;
        if (is_begun)
            printf("+%s", line);
    }
    fclose(f);
    return is_begun ? 0 : -1;
}

int main(void)
{
    fputs(beginning, stdout);
    print_rows();
    fputs(refused, stdout);
    print_types();
    fputs(directories, stdout);
    printf("- **Quantised as they are loaded** (`--quantize`), or written again as a GGUF file "
           "(`radish "
           "quantize\n  IN OUT.gguf --type q4_k`, of a file or a directory, with its tokenizer and "
           "template): %s.\n",
           quantize_names());
    fputs(example, stdout);
    if (print_added("tests/unit/made_up_row.inc", ""))
        return 1;
    printf("--- a/tools/model_rows.py\n+++ b/tools/model_rows.py\n@@\n");
    if (print_added("tools/model_rows.py", "# A family that no one has made"))
        return 1;
    fputs(golden, stdout);
    return 0;
}
