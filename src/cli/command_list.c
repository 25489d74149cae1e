/* The list of commands. */
#include "cli/command.h"

const struct command *const command_list[] = {
    &command_serve,
    &command_chat,
    &command_run,
    &command_bench,
    &command_info,
    &command_tokenize,
    &command_render,
    &command_logits,
    &command_replay,
    &command_quantize,
    NULL,
};
