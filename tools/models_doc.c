/* Prints docs/models.md from the table of architectures and the table of weight types: `make docs`.
 * A test compares the two. */
#include <stdio.h>
#include <string.h>

#include "model/architecture.h"
#include "model/quant/quantize.h"

static void print_rows(void)
{
    printf("| models | `model_type` | GGUF | differences from Llama |\n|---|---|---|---|\n");
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
    "`radish info PATH` says what a model is and what it needs. A path is a GGUF file (any part of "
    "a split\n"
    "one) or a directory: Hugging Face's (config.json and safetensors), MLX's, or config.json "
    "with\n"
    "`bin_weights/*.bin`.\n\n"
    "## Families\n\n";

static const char refused[] =
    "\nMultimodal checkpoints of these families run as their text part. Not supported yet, and "
    "rejected by\n"
    "name: models with recurrent layers (Qwen 3.5, LFM 2, Granite 4 hybrids, Nemotron-H, Mamba). "
    "Also\n"
    "rejected: rope whose frequencies depend on the current length (dynamic NTK), because no "
    "cached prefix\n"
    "could be reused.\n\n"
    "## Weights\n\n"
    "- **GGUF**: ";

static const char directories[] =
    "- **Directories**: F32, F16, BF16; FP8 (E4M3) with a scale per block, row or tensor; MXFP4 as "
    "in\n"
    "  gpt-oss; MLX's affine 1 to 8 bits in groups of 32, 64 or 128, mxfp4, mxfp8 and nvfp4, with "
    "settings\n"
    "  per module. AWQ, GPTQ, bitsandbytes and compressed-tensors (except FP8) are rejected by "
    "name.\n";

static const char example[] =
    "\n## A new family\n\n"
    "A model that combines features the table already has is one row, and a golden that proves it. "
    "This\n"
    "made-up example has the layers of Command R7B, the attention of gpt-oss and the experts of "
    "DeepSeek V3.\n"
    "This is all it takes:\n\n"
    "```diff\n"
    "--- a/src/model/architecture_rows.c\n"
    "+++ b/src/model/architecture_rows.c\n"
    "@@ const struct architecture architecture_rows[] = {\n";

static const char golden[] =
    "```\n\n"
    "`python3 tools/make_model_goldens.py made_up` makes `tests/models/made_up.json`. transformers "
    "writes the\n"
    "model, and every parameter is drawn again at random. A feature that does not move the logits "
    "by 100\n"
    "tolerances when it is turned off proves nothing, and fails the tool. `build/unit "
    "models.made_up` then\n"
    "computes the model on every kernel path, in chunks, from the cache and in batches; each logit "
    "must be\n"
    "within 1e-4 of transformers'. The row and the golden are in the repository but not in the "
    "table, so this\n"
    "example is tested too.\n\n"
    "A family that transformers has needs no class, only a row. If released files differ from "
    "what\n"
    "transformers writes by more than older keys, add a function to `tools/model_hub.py`.\n";

/* The lines of a file as additions of a diff, from the line that starts with `first` on. */
static int print_added(const char *path, const char *first)
{
    char line[256];
    bool is_begun = false;
    FILE *f = fopen(path, "r");
    if (!f) {
        fprintf(stderr, "models_doc: cannot read %s: run it from the top of the repository\n",
                path);
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
    printf(
        "- **Quantized at load** (`--quantize`), or written as a new GGUF file (`radish quantize "
        "IN\n  OUT.gguf --type q4_k`, from a file or a directory, with its tokenizer and "
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
