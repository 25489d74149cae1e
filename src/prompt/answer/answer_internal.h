#ifndef RADISH_PROMPT_ANSWER_ANSWER_INTERNAL_H
#define RADISH_PROMPT_ANSWER_ANSWER_INTERNAL_H

#include <stdint.h>
#include <string.h>

#include "base/strbuf.h"
#include "prompt/answer/answer_cursor.h"
#include "prompt/answer/answer_parser.h"
#include "prompt/answer/json_scan.h"

/* What the files of the answer parser share. Outside of calls the text is read by an answer_cursor;
 * each call by the reader of its format. A reader that cannot decide yet says so and is asked again
 * with more text, so where the pieces of the text part cannot matter. */
enum call_result {
    CALL_MORE, /* undecided: more text is needed */
    CALL_ON,   /* a part is read; go on */
    CALL_BAD,  /* this is no call */
    CALL_DONE, /* the call, or the last of several, is read */
};

enum marker_place {
    MARKER_ANYWHERE,       /* begins a call */
    MARKER_AT_START,       /* begins one where nothing but white space, or another call, precedes */
    MARKER_AFTER_CALL,     /* dropped where it follows a call; text elsewhere */
    MARKER_INSIDE,         /* only readers look for it */
    MARKER_DROPPED,        /* means nothing: it is dropped outside of calls */
    MARKER_ENDS_MESSAGE,   /* gpt-oss */
    MARKER_BEGINS_MESSAGE, /* ... ends the one before, too */
    MARKER_IN_HEADER,      /* ... begins a call where it stands in a header */
};

struct answer_parser;
typedef enum call_result call_reader(struct answer_parser *p);

struct call_marker {
    const char *text;
    enum marker_place place;
    call_reader *reader;
    int state;        /* the reader's first */
    const void *form; /* which of several spellings the reader reads */
};

/* The markers of a format, ended by one without text. */
const struct call_marker *format_markers(enum tool_format format);

/* A call that is being read. Offsets are into the held text:
 *
 *   held   \n <tool_call> {"name": "f", "arguments": {"a": 1}} ...
 *             ▲start                                  ▲pos
 */
struct open_call {
    call_reader *reader;
    const void *form;
    size_t start;      /* its first marker */
    size_t marker_end; /* of its first marker: what stays text when this is no call */
    size_t pos;        /* read up to here */
    size_t token;      /* where the part that is being read began */
    size_t token_len;  /* calls_xml.c: of a parameter's name */
    size_t scanned;    /* how much of the part was looked at in vain */
    int state, value;  /* the reader's */
    const struct tool *tool;
    const struct json *schema; /* the parameter's, or NULL */
    struct json_scan scan;
    size_t arguments, arguments_end; /* those that came before the name */
    size_t id, id_len;               /* the model's own id for the call */
    bool begun;                      /* CALL_BEGIN is out: there is no way back */
    bool complete;                   /* all arguments are out */
    bool has_arguments;
    bool strict;   /* nothing marks it as a call but its own keys */
    bool in_list;  /* between [ and ] */
    bool nested;   /* in {"function": {...}} */
    bool wrapped;  /* in print( ), or in one parameter that has all others */
    uint8_t quote; /* calls_python.c, calls_xml.c: the string that is open */
    uint32_t depth;
    uint32_t n_arguments;
};

struct answer_parser {
    struct answer_parser_options options;
    struct answer_cursor cursor;
    size_t n_read;     /* of the held text, by the cursor */
    size_t n_space;    /* the held text begins with so much white space, already looked at */
    bool drops_space;  /* white space before the content belongs to a mark */
    bool has_content;  /* content has gone out */
    bool after_call;   /* nothing but white space and marks since a call */
    struct strbuf gap; /* white space before the last calls: it goes out if content follows them */
    bool in_call;      /* a reader of the format has the text */
    bool ended, failed;
    struct strbuf held; /* what is undecided, from `head` on */
    size_t head;
    struct strbuf scratch;
    struct open_call call;
};

static inline bool answer_is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* How far `text` has a literal in it: all of it (YES), nothing but a first part of it (MORE). */
enum match { MATCH_NO, MATCH_MORE, MATCH_YES };

static inline enum match literal_match(const char *text, size_t len, const char *literal)
{
    size_t want = strlen(literal), n = len < want ? len : want;
    if (memcmp(text, literal, n) != 0)
        return MATCH_NO;
    return n == want ? MATCH_YES : MATCH_MORE;
}

enum { CALL_MAX_NAME = 256 }; /* bytes up to the end of a function's or parameter's name */

/* answer_parser.c: what readers use. */
void answer_emit(struct answer_parser *p, enum answer_piece piece, const char *text, size_t len);
/* The call's text from `pos` on; `left` is how much there is. */
const char *call_rest(const struct answer_parser *p, size_t *left);
const char *call_at(const struct answer_parser *p, size_t offset);
/* Skips white space; false when nothing follows it yet. */
bool call_skip_space(struct answer_parser *p);
/* Reads a literal if it stands at `pos`. At the answer's end MORE is NO. */
enum match call_match(struct answer_parser *p, const char *literal);
/* The first of `stops` (ended by NULL) in what follows, within a name's length: its distance in
 * `len`, which one in `which`. NO: it is not there, however the text goes on. */
enum match call_find(struct answer_parser *p, const char *const *stops, size_t *len, size_t *which);
/* Takes the function's name; false when there is no such function. */
bool call_set_name(struct answer_parser *p, const char *name, size_t len);
void call_add_arguments(struct answer_parser *p, const char *text, size_t len);
/* ... those that stand in `scratch`. */
void call_add_scratch(struct answer_parser *p);
/* The arguments are complete. */
void call_finish(struct answer_parser *p);
/* Another call of the same list may follow, which begins at `pos`. */
void call_next(struct answer_parser *p, int state);
/* A call begins in the held text, behind `space` bytes of white space. */
void call_start(struct answer_parser *p, size_t space, size_t marker_len,
                const struct call_marker *marker);

/* calls_json.c */
enum call_result read_json_calls(struct answer_parser *p);  /* {..}, several of them, [{..}, ..] */
enum call_result read_keyed_calls(struct answer_parser *p); /* [{"name": {..}}, ..] */
enum call_result read_tagged_call(struct answer_parser *p); /* <tool_call>, then whatever fits */
enum call_result read_list(struct answer_parser *p);        /* [ with objects or Python in it */
enum call_result read_python_tag(struct answer_parser *p);  /* any of these, or a Python call */
enum call_result read_mistral_calls(struct answer_parser *p);
enum call_result read_deepseek_call(struct answer_parser *p);
enum call_result read_kimi_call(struct answer_parser *p);
enum call_result read_solar_call(struct answer_parser *p);
enum call_result read_function_json(struct answer_parser *p); /* <function=name>{..}</function> */
/* Reads the object at `pos` as the call's arguments. DONE: all of it is out. */
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
    const char *to; /* whom the message is for; NULL: the user */
    size_t to_len;
    bool thinks; /* it is reasoning */
};
/* `header` is all that stands before HARMONY_MESSAGE. */
void harmony_header_read(struct harmony_header *out, const char *header, size_t len);
/* A message whose header, with its mark, is `whole` bytes of `text`: begins its call, or gives how
 * much of the text is done with. */
size_t harmony_message(struct answer_parser *p, const char *text, size_t whole);

/* call_values.c: values that are not written as JSON become it, spelled as Python's json.dumps
 * does. */
enum { VALUE_ANY = (1 << (JSON_OBJECT + 1)) - 1 };
/* The types (bits of enum json_type) that a schema allows. */
unsigned value_types(const struct json *schema);
void value_write_string(struct strbuf *out, const char *text, size_t len);
/* A parameter's raw text, by what its schema says. */
void value_write_text(struct strbuf *out, const struct json *schema, const char *text, size_t len);
void value_write_json(struct strbuf *out, const struct json *value);
/* MiniMax-M3: before each of its tags, which nest: lists of <item>, objects of <name>. */
#define M3_MARK "]<]minimax[>["
void value_write_nested(struct strbuf *out, const struct json *schema, const char *text,
                        size_t len);
/* The end of a value that began with <key>, which may have others of that name in it: YES, and its
 * distance in `len`. MORE: `len` is how much was looked at, with `depth` others open. */
enum match nested_end(const char *text, size_t left, const char *key, size_t key_len, size_t *len,
                      uint32_t *depth);
/* One literal of Python, or of Gemma's notation, that takes up the text; false: it is none. */
bool value_write_python(struct strbuf *out, const char *text, size_t len);
bool value_write_gemma(struct strbuf *out, const struct json *schema, const char *text, size_t len);

#endif
