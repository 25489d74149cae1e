/* Plug-ins for tests: a good one, which has no engine however, and with -DABI=N, -DLAYOUT=N or
 * -DNO_SYMBOL bad ones. */
#include "engine/plugin.h"

#ifndef ABI
#define ABI ENGINE_ABI
#endif
#ifndef LAYOUT
#define LAYOUT PLUGIN_LAYOUT
#endif

static struct plugin_device device;

static int fail(struct error *err, enum error_code code, const char *message)
{
    *err = (struct error){.code = code, .position = ERROR_NO_POSITION};
    for (size_t i = 0; message[i] && i + 1 < sizeof err->message; i++)
        err->message[i] = message[i];
    return -1;
}

static int fake_find(struct plugin_device **out, const struct plugin_options *options,
                     struct error *err)
{
    if (options->device)
        return fail(err, ERROR_INPUT, "--device: there is only one");
    device = (struct plugin_device){.name = "Fake device"};
    *out = &device;
    return 0;
}

static int fake_measure(struct plugin_device *d, struct error *err)
{
    (void)err;
    d->total_bytes = (uint64_t)4 << 30;
    d->free_bytes = (uint64_t)3 << 30;
    return 0;
}

static int fake_needs(uint64_t *bytes, const struct model *model,
                      const struct engine_limits *limits, struct error *err)
{
    (void)err;
    *bytes = model->weight_bytes + limits->max_rows;
    return 0;
}

static int fake_open(struct engine **out, const struct model *model,
                     const struct engine_limits *limits, const struct plugin_options *options,
                     struct error *err)
{
    (void)out;
    (void)model;
    (void)limits;
    (void)options;
    return fail(err, ERROR_UNSUPPORTED, "the fake plug-in has no engine");
}

static void fake_release(struct plugin_device *d)
{
    d->name[0] = '\0';
}

#ifdef NO_SYMBOL
#define NAME another_name
#else
#define NAME radish_engine_plugin
#endif
extern const struct engine_plugin NAME;
__attribute__((visibility("default"))) const struct engine_plugin NAME = {
    ABI, LAYOUT, "fake", fake_find, fake_measure, fake_needs, fake_open, fake_release};
