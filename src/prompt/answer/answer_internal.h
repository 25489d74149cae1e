#ifndef RADISH_PROMPT_ANSWER_ANSWER_INTERNAL_H
#define RADISH_PROMPT_ANSWER_ANSWER_INTERNAL_H

#include <stdint.h>
#include <string.h>

#include "base/ascii.h"
#include "base/strbuf.h"
#include "prompt/answer/answer_cursor.h"
#include "prompt/answer/answer_parser.h"
#include "prompt/answer/json_scan.h"

/* Shared by the files of the answer parser. An answer_cursor reads the text outside calls, and the
 * reader of the format reads each call. A reader that cannot decide yet is called again with more
 * text, so it does not matter how the text is split. */
enum call_result {
    CALL_MORE, /* undecided: more text is needed */
    CALL_ON,   /* a part is read; continue */
    CALL_BAD,  /* this is not a call */
    CALL_DONE, /* the call, or the last of several, is complete */
    CALL_TEXT, /* only a mark, which is dropped: content follows */
};

enum marker_place {
    MARKER_ANYWHERE,       /* starts a call */
    MARKER_AT_START,       /* starts one after only white space or another call */
    MARKER_FIRST,          /* without a text: the answer itself may start like a call */
    MARKER_AFTER_CALL,     /* dropped after a call; text elsewhere */
    MARKER_INSIDE,         /* used only by readers */
    MARKER_DROPPED,        /* has no meaning: dropped outside calls */
    MARKER_ENDS_MESSAGE,   /* gpt-oss */
    MARKER_BEGINS_MESSAGE, /* ... and ends the previous one */
    MARKER_IN_HEADER,      /* ... starts a call if it is in a header */
};

struct answer_parser;
typedef enum call_result call_reader(struct answer_parser *p);

struct call_marker {
    const char *text;
    enum marker_place place;
    call_reader *reader;
    int state;        /* the reader's first state */
    const void *form; /* the spelling, if the reader supports several */
};

/* The markers of a format, ended by a marker without text. */
const struct call_marker *format_markers(enum tool_format format);

/* What is open inside a value of MiniMax-M3's calls. */
struct open_tags {
    uint32_t same;  /* tags with the value's own name */
    uint32_t calls; /* <tool_call> as the name of a member */
};

/* A call being read. Offsets are into the held text:
 *
 *   held   \n <tool_call> {"name": "f", "arguments": {"a": 1}} ...
 *             ▲start                                  ▲pos
 */
struct open_call {
    call_reader *reader;
    const void *form;
    size_t start;      /* its first marker */
    size_t marker_end; /* of its first marker, which stays text if this is not a call */
    size_t pos;        /* read up to here */
    size_t token;      /* start of the part being read */
    size_t token_len;  /* calls_xml.c: of a parameter's name */
    size_t scanned;    /* how much of the part was searched without success */
    int state, value;  /* the reader's */
    const struct tool *tool;
    const struct json *schema; /* the parameter's, or NULL */
    struct json_scan scan;
    size_t arguments, arguments_end; /* if they came before the name */
    size_t id, id_len;               /* the model's own id for the call */
    bool begun;                      /* CALL_BEGIN was reported and cannot be undone */
    bool complete;                   /* all arguments were reported */
    bool has_arguments;
    bool strict;   /* only its own keys mark it as a call */
    bool in_list;  /* between [ and ] */
    bool nested;   /* in {"function": {...}} */
    bool wrapped;  /* in print( ), or in one parameter that contains all others */
    uint8_t quote; /* calls_python.c, calls_xml.c: the open string */
    bool is_inner; /* calls_python.c: inside quotes of its own */
    uint32_t depth;
    struct open_tags tags; /* calls_xml.c: in a value that nests */
    uint32_t n_arguments;
};

struct answer_parser {
    struct answer_parser_options options;
    struct answer_cursor cursor;
    size_t n_read;     /* bytes of the held text that the cursor has read */
    size_t n_space;    /* white space at the start of the held text, already examined */
    bool drops_space;  /* white space before the content belongs to a mark */
    bool has_content;  /* content was reported */
    bool after_call;   /* only white space and marks since a call */
    struct strbuf gap; /* white space before the last calls, reported if content follows */
    bool in_call;      /* a reader of the format is active */
    bool ended, failed;
    unsigned n_cut_off; /* calls without an end, at the end of the answer: MOST_CUT_OFF */
    struct strbuf held; /* undecided text, from `head` on */
    size_t head;
    struct strbuf scratch;
    struct open_call call;
};

static inline bool answer_is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* Whether a text starts with a literal: YES, or MORE if it is a prefix of the literal. */
enum match { MATCH_NO, MATCH_MORE, MATCH_YES };

static inline enum match literal_match(const char *text, size_t len, const char *literal)
{
    size_t want = strlen(literal), n = len < want ? len : want;
    if (memcmp(text, literal, n) != 0)
        return MATCH_NO;
    return n == want ? MATCH_YES : MATCH_MORE;
}

enum { CALL_MAX_NAME = 256 }; /* maximum bytes of a function's or parameter's name */

/* answer_parser.c: used by readers. */
void answer_emit(struct answer_parser *p, enum answer_piece piece, const char *text, size_t len);
/* The call's text from `pos` on; `left` is its length. */
const char *call_rest(const struct answer_parser *p, size_t *left);
const char *call_at(const struct answer_parser *p, size_t offset);
/* Skips white space; false if nothing follows it yet. */
bool call_skip_space(struct answer_parser *p);
/* Reads a literal if it is at `pos`. At the answer's end MORE becomes NO. */
enum match call_match(struct answer_parser *p, const char *literal);
/* Finds the first of `stops` (ended by NULL) within a name's length: its distance in `len`, its
 * index in `which`. NO: not there, however the text continues. */
enum match call_find(struct answer_parser *p, const char *const *stops, size_t *len, size_t *which);
/* Sets the function's name; false if there is no such function. */
bool call_set_name(struct answer_parser *p, const char *name, size_t len);
void call_add_arguments(struct answer_parser *p, const char *text, size_t len);
/* ... those in `scratch`. */
void call_add_scratch(struct answer_parser *p);
/* The arguments are complete. */
void call_finish(struct answer_parser *p);
/* Another call of the same list may follow, starting at `pos`. */
void call_next(struct answer_parser *p, int state);
/* A call starts in the held text, after `space` bytes of white space. */
void call_start(struct answer_parser *p, size_t space, size_t marker_len,
                const struct call_marker *marker);

/* calls_json.c */
enum call_result read_json_calls(struct answer_parser *p);  /* {..}, several of them, [{..}, ..] */
enum call_result read_keyed_calls(struct answer_parser *p); /* [{"name": {..}}, ..] */
enum call_result read_tagged_call(struct answer_parser *p); /* <tool_call>, then any of these */
enum call_result read_list(struct answer_parser *p);        /* [ with objects or Python inside */
enum call_result read_python_tag(struct answer_parser *p);  /* any of these, or a Python call */
enum call_result read_mistral_calls(struct answer_parser *p);
enum call_result read_deepseek_call(struct answer_parser *p);
enum call_result read_kimi_call(struct answer_parser *p);
enum call_result read_solar_call(struct answer_parser *p);
enum call_result read_function_json(struct answer_parser *p); /* <function=name>{..}</function> */
/* Reads the object at `pos` as the call's arguments. DONE: all of it was reported. */
enum call_result read_arguments(struct answer_parser *p);

/* calls_xml.c */
struct xml_form;
extern const struct xml_form xml_qwen, xml_glm, xml_minimax, xml_minimax3, xml_dsml, xml_step,
    xml_minicpm, xml_hunyuan, xml_hunyuan_open, xml_kimi3;
enum { XML_OUTER, XML_NAME, XML_NEXT, XML_KEY, XML_VALUE_BEGIN, XML_VALUE, XML_JSON };
enum call_result read_xml_call(struct answer_parser *p);

/* calls_python.c */
enum call_result read_python_calls(struct answer_parser *p);
enum call_result read_gemma_call(struct answer_parser *p);

/* calls_harmony.c */
#define HARMONY_MESSAGE "<|message|>"
#define HARMONY_ROLE    "<|start|>assistant"
#define HARMONY_FINAL   "<|channel|>final" HARMONY_MESSAGE /* the answer itself follows */
struct harmony_header {
    const char *to; /* the recipient; NULL: the user */
    size_t to_len;
    bool thinks; /* it is reasoning */
};
/* `header` is everything before HARMONY_MESSAGE. */
void harmony_header_read(struct harmony_header *out, const char *header, size_t len);
/* A message whose header, with its mark, is `whole` bytes of `text`: starts its call, or returns
 * how much of the text is processed. */
size_t harmony_message(struct answer_parser *p, const char *text, size_t whole);

/* calls_functionary.c */
#define FUNCTIONARY_MARK ">>>"
#define FUNCTIONARY_TEXT "all\n" /* content follows */
enum call_result read_functionary_part(struct answer_parser *p);

/* call_values.c: converts values in other notations to JSON, spelled like Python's json.dumps. */
enum { VALUE_ANY = (1 << (JSON_OBJECT + 1)) - 1 };
/* The types (bits of enum json_type) that a schema allows. */
unsigned value_types(const struct json *schema);
void value_write_string(struct strbuf *out, const char *text, size_t len);
/* Writes a parameter's raw text according to its schema. */
void value_write_text(struct strbuf *out, const struct json *schema, const char *text, size_t len);
void value_write_json(struct strbuf *out, const struct json *value);
/* MiniMax-M3: precedes each of its tags, which nest: lists of <item>, objects of <name>. */
#define M3_MARK "]<]minimax[>["
void value_write_nested(struct strbuf *out, const struct json *schema, const char *text,
                        size_t len);
/* The end of a value that started with <key>, which may contain tags of the same name: YES, and its
 * distance in `len`. MORE: `len` is how much was examined, with `open` tags inside. NO: the calls
 * end inside the value. */
enum match nested_end(const char *text, size_t left, const char *key, size_t key_len, size_t *len,
                      struct open_tags *open);
/* Models forget to escape quotes in strings: 'sed -n '1,9p' x'. No string of Python ends directly
 * before a word or a backslash: there, the quote and the next one belong to the string. */
static inline bool quote_opens_inside(char next)
{
    return ascii_is_alpha(next) || ascii_is_digit(next) || next == '_' || next == '\\' ||
           (unsigned char)next >= 0x80;
}
/* Writes a text that is one literal of Python or of Gemma's notation; false: it is not. */
bool value_write_python(struct strbuf *out, const char *text, size_t len);
bool value_write_gemma(struct strbuf *out, const struct json *schema, const char *text, size_t len);

#endif
