#ifndef RADISH_MODEL_FILES_MODEL_PATH_H
#define RADISH_MODEL_FILES_MODEL_PATH_H

#include <stddef.h>

#include "base/error.h"
#include "base/strbuf.h"

/* Finds a model from the path that a user gives: its GGUF file or its directory, but also a file in
 * that directory, or the directory in which Hugging Face's tools store a download:
 *
 *   models--Qwen--Qwen3-4B/refs/main            "1cfa9a..."
 *                         /snapshots/1cfa9a.../config.json, model.safetensors, ...
 *
 * Writes the path of the file or directory, without trailing slashes. -1: nothing with that
 * name. */
int model_path_find(struct strbuf *out, const char *given, struct error *err);

/* The name of the model at a path: its last part without ".gguf"; of a snapshot, "Qwen3-4B". */
void model_path_name(char *name, size_t size, const char *path);

#endif
