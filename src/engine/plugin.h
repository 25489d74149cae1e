#ifndef RADISH_ENGINE_PLUGIN_H
#define RADISH_ENGINE_PLUGIN_H

#include "base/log.h"
#include "base/strbuf.h"
#include "engine/engine.h"
#include "model/model.h"

/* Engines in shared objects, so that radish itself needs no library of theirs. radish-NAME.so lies
 * beside the program, or in ../lib/radish/ from there, and exports one symbol,
 * radish_engine_plugin: a struct engine_plugin. It has its own copy of the code that it uses, so
 * nothing with a state of its own (such as the log's level) may be shared but through these
 * structs. */
#define PLUGIN_SYMBOL "radish_engine_plugin"

/* A plug-in reads models and engines as they lie in memory, and works only with a radish that was
 * built from the same headers. Sizes give away most differences that nobody thought of numbering.
 */
#define PLUGIN_LAYOUT                                                                              \
    ((uint32_t)(sizeof(struct model) * 31 + sizeof(struct hparams) * 37 +                          \
                sizeof(struct weight) * 41 + sizeof(struct engine) * 43 +                          \
                sizeof(struct engine_ops) * 47 + sizeof(struct batch_row) * 53 +                   \
                sizeof(struct batch_seq) * 59 + sizeof(struct row_output) * 61 +                   \
                sizeof(struct batch) * 67 + sizeof(struct page_io) * 71 +                          \
                sizeof(struct region) * 73 + sizeof(struct machine_limits) * 79 +                  \
                sizeof(struct error) * 83 + sizeof(struct plugin_options) * 89 +                   \
                sizeof(struct plugin_device) * 97 + sizeof(struct engine_plugin) * 101))

struct plugin_options {
    const char *driver_path; /* of the device's driver; NULL: the system's */
    const char *device;      /* number or UUID; NULL: the first */
    enum log_level log_level;
    engine_progress progress; /* or NULL */
    void *progress_context;
};

/* A device that a plug-in found. */
struct plugin_device {
    char name[128];                   /* "NVIDIA H200" */
    uint64_t total_bytes, free_bytes; /* set by measure */
};

/* Every function returns 0, or -1 and an error that says what to do. */
struct engine_plugin {
    uint32_t abi;     /* ENGINE_ABI */
    uint32_t layout;  /* PLUGIN_LAYOUT */
    const char *name; /* "cuda" */
    /* Finds the device; quick. */
    int (*find)(struct plugin_device **out, const struct plugin_options *options,
                struct error *err);
    /* Starts the device, and sees how much memory it has. */
    int (*measure)(struct plugin_device *device, struct error *err);
    /* The bytes that the engine takes for weights and buffers: all but KV. Fails if it cannot
     * compute the model. */
    int (*needs)(uint64_t *bytes, const struct model *model, const struct engine_limits *limits,
                 struct error *err);
    /* The model must stay open as long as the engine. */
    int (*open)(struct engine **out, const struct model *model, const struct engine_limits *limits,
                const struct plugin_options *options, struct error *err);
    void (*release)(struct plugin_device *device); /* engines stay open */
};

struct plugin {
    void *library;
    const struct engine_plugin *ops; /* NULL: not loaded */
};

/* Finds radish-NAME.so for the program that lies in `folder`. */
bool plugin_find(const char *folder, const char *name, struct strbuf *path);
int plugin_load(struct plugin *p, const char *path, struct error *err);
bool plugin_exists(const char *name); /* for this program */
/* Finds and loads it for this program. ERROR_UNSUPPORTED: there is no such plug-in. */
int plugin_open(struct plugin *p, const char *name, struct error *err);
void plugin_close(struct plugin *p); /* after its engines and devices; also one not loaded */

#endif
