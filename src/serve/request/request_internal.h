#ifndef RADISH_SERVE_REQUEST_REQUEST_INTERNAL_H
#define RADISH_SERVE_REQUEST_REQUEST_INTERNAL_H

#include "serve/request/fields.h"

/* Shared by the readers of requests. fields.c has the table, and read.c walks a request by it. The
 * other files have the readers of single fields: options.c, samplers.c, messages.c, tools.c,
 * formats.c, llama.c, ollama.c. */

enum { MAX_PATH = 96 };

struct field_reader {
    struct request_params *params;
    struct api_error *err;
    enum request_kind kind;
    enum field_scope message_scope;
    bool strict;
    struct json *message;      /* the message being built */
    struct json *call;         /* the call of that message being built */
    struct strbuf text;        /* the content being built */
    size_t n_parts;            /* parts of `text` */
    bool chose_function;       /* the choice of a call has the form before `tool_choice` */
    unsigned n_function_calls; /* in messages so far, in the form before `tool_calls` */
    bool must_begin;           /* add_generation_prompt is given and true */
    /* For Ollama's generations. */
    const struct json *system;
    bool is_raw;
};

/* Errors: each fills in the client's error and returns -1. */
int wrong_type(struct field_reader *r, const char *path, const char *wanted,
               const struct json *value);
/* A number that is not a valid integer here; the error quotes it as the client wrote it. */
int wrong_integer(struct field_reader *r, const char *path, const char *wanted,
                  const struct json *value);
int no_memory(struct field_reader *r);

/* Checks an array of token ids. */
int check_ids(struct field_reader *r, const struct json *ids, const char *path);
/* Reads any integer; one that does not fit in 64 bits is clamped. */
int integer_of(struct field_reader *r, const struct json *value, const char *path, int64_t *out);

/* Reads every member of an object by the table. */
int read_members(struct field_reader *r, enum field_scope scope, const struct json *object,
                 const char *path);
/* Reads every element of an array, which must be objects. */
int read_objects(struct field_reader *r, const struct json *array, const char *path,
                 int (*read)(struct field_reader *r, const struct json *object, const char *path));

/* Sets the constraint on the answer's text; only one field may do so. */
int constrain(struct field_reader *r, enum constraint_kind kind, const struct json *value,
              const char *path);

/* Adds a variable for the template; if it already exists, the first value stays. On failure, the
 * arena is marked as failed. */
void add_variable(struct request_params *p, const char *name, const struct json *value);

/* The readers. */
#define FIELD_READER(name)                                                                         \
    int name(struct field_reader *r, const struct json *value, const char *path)
/* options.c */
FIELD_READER(read_model);
FIELD_READER(read_seed);
FIELD_READER(read_stop);
FIELD_READER(read_stream_options);
FIELD_READER(read_radish);
FIELD_READER(read_template_kwargs);
FIELD_READER(read_variable);
FIELD_READER(read_enable_thinking);
FIELD_READER(read_reasoning_effort);
FIELD_READER(read_thinking);
FIELD_READER(read_thinking_type);
FIELD_READER(read_reasoning_options);
FIELD_READER(read_max_tokens);
FIELD_READER(read_logit_bias);
FIELD_READER(read_text_logprobs);
FIELD_READER(read_stop_tokens);
FIELD_READER(read_response_fields);
FIELD_READER(read_dry_breakers);
FIELD_READER(read_prompt);
FIELD_READER(read_tokens);
/* samplers.c */
FIELD_READER(read_samplers);
void samplers_finish(struct request_params *p); /* switches off unlisted samplers */
/* llama.c */
FIELD_READER(read_llama_prompt);
FIELD_READER(read_infill_prompt);
FIELD_READER(read_input_prefix);
FIELD_READER(read_input_suffix);
FIELD_READER(read_input_extra);
FIELD_READER(read_suffix);
FIELD_READER(read_tokenized);
/* messages.c */
FIELD_READER(read_messages);
FIELD_READER(read_role);
FIELD_READER(read_content);
FIELD_READER(read_reasoning);
FIELD_READER(read_refusal);
FIELD_READER(read_prefix);
FIELD_READER(read_continue);
FIELD_READER(read_generation_prompt);
FIELD_READER(read_tool_call_id);
FIELD_READER(read_tool_calls);
FIELD_READER(read_call_id);
FIELD_READER(read_call_type);
FIELD_READER(read_call_function);
FIELD_READER(read_called_name);
FIELD_READER(read_called_arguments);
FIELD_READER(read_part_type);
FIELD_READER(read_part_text);
FIELD_READER(read_message_function_call);
/* tools.c */
FIELD_READER(read_tools);
FIELD_READER(read_tool_type);
FIELD_READER(read_tool_function);
FIELD_READER(read_function_name);
FIELD_READER(read_tool_choice);
FIELD_READER(read_functions);
FIELD_READER(read_function_call);
FIELD_READER(read_checked); /* only the type is checked */
int check_tool_choice(struct field_reader *r);
/* formats.c */
FIELD_READER(read_response_format);
FIELD_READER(read_format_schema);
FIELD_READER(read_schema);
FIELD_READER(read_grammar);
FIELD_READER(read_regex);
FIELD_READER(read_choices);
FIELD_READER(read_json_object);
FIELD_READER(read_structured);
/* ollama.c */
FIELD_READER(read_ollama_options);
FIELD_READER(read_num_predict);
FIELD_READER(read_ollama_format);
FIELD_READER(read_think);
FIELD_READER(read_keep_alive);
FIELD_READER(read_ollama_prompt);
FIELD_READER(read_system);
FIELD_READER(read_raw);
FIELD_READER(read_ollama_messages);
FIELD_READER(read_tool_name);
int finish_ollama(struct field_reader *r); /* after all fields are read */

#endif
