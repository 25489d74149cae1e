#ifndef RADISH_MODEL_CONVERT_GGUF_EXPORT_H
#define RADISH_MODEL_CONVERT_GGUF_EXPORT_H

#include "model/architecture.h"
#include "model/convert/requantize.h"
#include "model/files/gguf_write.h"

/* Writes a model from a directory as a GGUF file. Keys, names and layouts are those that
 * llama.cpp's converter uses for the architecture, so that other programs can read it, too.
 *
 *   hparams, settings ──gguf_export_keys──► head ◄── the tokenizer's keys
 *   weights by slot   ──► tensors (stacked, fused, rows of q and k in pairs) ──► requantize.h
 *
 * The file is reopened before it gets its name, and must describe the model that it was made from:
 * what GGUF cannot express is an error, not a file that computes something else. */
int gguf_export(const struct model *m, const struct gguf_writer *tokenizer, const char *to_path,
                struct parallel *pool, const struct requantize_options *options,
                struct requantize_result *result, struct error *err);

/* Adds general.* and the architecture's keys. */
int gguf_export_keys(const struct model *m, const struct architecture *a, struct gguf_writer *head,
                     struct error *err);

#endif
