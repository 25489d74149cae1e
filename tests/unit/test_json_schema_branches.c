/* Schemas that can be enforced only in part: what is ignored, what is rejected, and where. */
#include "base/strbuf.h"
#include "grammar_texts.h"
#include "test.h"

#define S(...) #__VA_ARGS__ /* JSON without backslashes before its quotes */

#define LOOK    "\"(?=x)\"" /* a pattern that cannot be enforced */
#define LOOKING "{\"type\": \"string\", \"pattern\": " LOOK "}"
#define REASON  "look-around is not supported"
/* A schema around a property "a". */
#define NESTED(a) "{\"type\": \"object\", \"properties\": {\"a\": " a "}, \"required\": [\"a\"]}"

static void check(const char *schema, const char *const *taken, const char *const *refused)
{
    CHECK_TEXTS(TEXTS_SCHEMA, schema, taken, refused);
}

TEST(json_schema_branches, any_of_goes_on_without_a_branch)
{
    /* pydantic's Decimal */
    check("{\"anyOf\": [{\"type\": \"number\"}, {\"type\": \"string\", \"pattern\": "
          "\"^(?!^[-+.]*$)[+-]?0*\\\\d*\\\\.?\\\\d*$\"}]}",
          TEXTS("1.5", "-2"), TEXTS("\"1.5\"", "\"\"", "null"));
    check(NESTED("{\"anyOf\": [" LOOKING ", {\"type\": \"integer\"}, {\"type\": \"null\"}]}"),
          TEXTS("{\"a\": 1}", "{\"a\": null}"), TEXTS("{\"a\": \"x\"}", "{}"));
    /* The reason may be deep inside the branch, and the branch may be recursive. */
    check("{\"anyOf\": [" NESTED(NESTED(LOOKING)) ", {\"type\": \"boolean\"}]}", TEXTS("true"),
          TEXTS("{}", "{\"a\": {\"a\": \"x\"}}", "{\"a\": {}}"));
    check("{\"anyOf\": [{\"type\": \"object\", \"properties\": {\"a\": " LOOKING
          ", \"b\": {\"$ref\": \"#\"}}}, {\"type\": \"boolean\"}]}",
          TEXTS("true"), TEXTS("{}", "{\"b\": true}"));
    check("{\"$ref\": \"#/$defs/n\", \"$defs\": {\"n\": {\"type\": \"object\", \"properties\": "
          "{\"v\": {\"anyOf\": [" LOOKING ", {\"type\": \"integer\"}]}, \"next\": {\"anyOf\": "
          "[{\"$ref\": \"#/$defs/n\"}, {\"type\": \"null\"}]}}, \"required\": [\"v\", \"next\"]}}}",
          TEXTS("{\"v\": 1, \"next\": null}", "{\"v\": 1, \"next\": {\"v\": 2, \"next\": null}}"),
          TEXTS("{\"v\": \"x\", \"next\": null}"));
}

TEST(json_schema_branches, refused_where_nothing_useful_is_left)
{
    CHECK_ERROR(TEXTS_SCHEMA,
                "{\"anyOf\": [" LOOKING
                ", {\"type\": \"array\", \"uniqueItems\": true, \"items\": {}}]}",
                ERROR_INPUT, "#/anyOf/0/pattern: regular expression: " REASON);
    CHECK_ERROR(TEXTS_SCHEMA, "{\"anyOf\": [{\"type\": \"null\"}, " LOOKING "]}", ERROR_INPUT,
                "#/anyOf/1/pattern: regular expression: " REASON);
    /* Not a branch: a property or the items of an array. */
    CHECK_ERROR(TEXTS_SCHEMA, "{\"type\": \"object\", \"properties\": {\"a\": " LOOKING "}}",
                ERROR_INPUT, "#/properties/a/pattern: regular expression: " REASON);
    CHECK_ERROR(TEXTS_SCHEMA, "{\"type\": \"array\", \"items\": " LOOKING "}", ERROR_INPUT,
                "#/items/pattern: regular expression: " REASON);
    /* The reported reason is the one that counts, not one that was ignored. */
    CHECK_ERROR(TEXTS_SCHEMA,
                "{\"type\": \"object\", \"properties\": {\"a\": {\"anyOf\": [" LOOKING
                ", {\"type\": \"integer\"}]}, \"b\": {\"extends\": {}}}}",
                ERROR_INPUT, "#/properties/b: 'extends' is not supported");
    /* A branch that is wrong is a mistake. */
    CHECK_ERROR(TEXTS_SCHEMA, S({"anyOf" : [ {"minLength" : "x"}, {"type" : "integer"} ]}),
                ERROR_INPUT, "#/anyOf/0/minLength: must be an integer");
}

TEST(json_schema_branches, one_of_goes_on_if_the_branches_do_not_overlap)
{
    check("{\"oneOf\": [{\"type\": \"number\"}, " LOOKING "]}", TEXTS("1"), TEXTS("\"x\""));
    CHECK_ERROR(TEXTS_SCHEMA,
                "{\"oneOf\": [{\"type\": \"string\", \"maxLength\": 3}, " LOOKING "]}", ERROR_INPUT,
                REASON);
    CHECK_ERROR(TEXTS_SCHEMA, "{\"oneOf\": [{\"type\": \"string\"}, {\"extends\": {}}]}",
                ERROR_INPUT, "may both match");
}

TEST(json_schema_branches, a_one_of_without_values_names_the_overlap)
{
    CHECK_ERROR(TEXTS_SCHEMA, S({"oneOf" : [ {"type" : "number"}, {"type" : "integer"} ]}),
                ERROR_INPUT, "#/oneOf: schemas 0 and 1 may both match the same value");
    check(NESTED("{\"oneOf\": [{\"type\": \"number\"}, {\"type\": \"string\"}]}"),
          TEXTS("{\"a\": 1}"), TEXTS("{\"a\": null}"));
}

/* if, not and dependencies are alternatives too, but a branch of theirs is not a choice of the
 * schema's author. What is said about them has the place in the author's document. */
TEST(json_schema_branches, places_of_rewritten_keywords)
{
    CHECK_ERROR(TEXTS_SCHEMA,
                "{\"if\": {\"properties\": {\"a\": {\"const\": 1}}}, \"then\": {\"properties\": "
                "{\"b\": " LOOKING "}}, \"else\": {\"type\": \"object\"}}",
                ERROR_INPUT, "#/then/properties/b/pattern: regular expression: " REASON);
    CHECK_ERROR(
        TEXTS_SCHEMA,
        "{\"type\": \"object\", \"dependentSchemas\": {\"a\": {\"properties\": {\"b\": " LOOKING
        "}}}}",
        ERROR_INPUT, "#/dependentSchemas/a/properties/b/pattern: regular");
    CHECK_ERROR(TEXTS_SCHEMA, "{\"not\": {\"not\": " LOOKING "}}", ERROR_INPUT,
                "#/not/not/pattern: regular expression: " REASON);
}

TEST(json_schema_branches, negated_bounds_of_draft_4)
{
    check(S({"type" : "number", "not" : {"minimum" : 5, "exclusiveMinimum" : true}}),
          TEXTS("5", "4.5", "-1"), TEXTS("5.1", "6"));
    check(S({"type" : "number", "not" : {"exclusiveMaximum" : true, "maximum" : 5}}),
          TEXTS("5", "6"), TEXTS("4.9", "-1"));
    check(S({"type" : "number", "not" : {"minimum" : 5, "exclusiveMinimum" : false}}), TEXTS("4.9"),
          TEXTS("5", "6"));
    check(S({
              "oneOf" : [
                  {"type" : "number", "minimum" : 5, "exclusiveMinimum" : true},
                  {"type" : "number", "maximum" : 10}
              ]
          }),
          TEXTS("5", "11", "-3"), TEXTS("5.5", "10"));
    check(S({"type" : "number", "not" : {"exclusiveMinimum" : 5}}), TEXTS("5", "4"), TEXTS("6"));
    check(S({"type" : "number", "not" : {"minimum" : 5, "exclusiveMinimum" : 7}}),
          TEXTS("4", "5", "7"), TEXTS("8"));
    /* A bound that is no number is left out, or rejected if nothing else is there. */
    check(S({"type" : "number", "not" : {"minimum" : 5, "maximum" : "x"}}), TEXTS("4"),
          TEXTS("5", "6"));
    CHECK_ERROR(TEXTS_SCHEMA, S({"type" : "number", "not" : {"minimum" : "x"}}), ERROR_INPUT,
                "#: 'not' is not supported");
}

/* Ten properties, each of which is the same schema again: twelve levels of that are too many. */
TEST(json_schema_branches, a_negation_that_grows_is_rejected_by_name)
{
    static const char *const keywords[][2] = {
        {"\"not\": {\"$ref\": \"#/$defs/n\"}", "#: 'not' is not supported"},
        {"\"if\": {\"$ref\": \"#/$defs/n\"}, \"then\": {\"maxProperties\": 1}",
         "#: 'if' is not supported"},
        {"\"oneOf\": [{\"maxProperties\": 1}, {\"$ref\": \"#/$defs/n\"}]",
         "#/oneOf: schemas 0 and 1 may both match"},
    };
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++) {
        struct strbuf schema = STRBUF_INIT;
        strbuf_addf(&schema, "{%s, \"$defs\": {\"n\": {\"type\": \"object\", \"properties\": {",
                    keywords[i][0]);
        for (int name = 0; name < 10; name++)
            strbuf_addf(&schema, "%s\"p%d\": {\"$ref\": \"#/$defs/n\"}", name ? ", " : "", name);
        strbuf_adds(&schema, "}}}}");
        CHECK_ERROR(TEXTS_SCHEMA, strbuf_str(&schema), ERROR_INPUT, keywords[i][1]);
        strbuf_free(&schema);
    }
}

/* Validators ignore keywords beside $ref if $schema names an older draft. */
TEST(json_schema_branches, keywords_beside_a_ref_prove_nothing_in_old_drafts)
{
    CHECK_ERROR(
        TEXTS_SCHEMA, S({
            "$schema" : "http://json-schema.org/draft-07/schema#",
            "oneOf" : [ {"$ref" : "#/definitions/a", "type" : "string"}, {"type" : "number"} ],
            "definitions" : {"a" : {}}
        }),
        ERROR_INPUT, "#/oneOf: schemas 0 and 1 may both match");
    check(S({
              "oneOf" : [ {"$ref" : "#/definitions/a", "type" : "string"}, {"type" : "number"} ],
              "definitions" : {"a" : {}}
          }),
          TEXTS("5", "\"a\""), TEXTS("null"));
    check(S({
              "$schema" : "http://json-schema.org/draft-07/schema#",
              "oneOf" : [ {"$ref" : "#/definitions/a", "title" : "x"}, {"type" : "number"} ],
              "definitions" : {"a" : {"type" : "string"}}
          }),
          TEXTS("5", "\"a\""), TEXTS("null"));
}

/* "not" evaluates no property. The schema with unevaluatedProperties is below an unknown keyword.
 */
TEST(json_schema_branches, unevaluated_properties_below_any_keyword)
{
    CHECK_ERROR(TEXTS_SCHEMA, S({
                    "type" : "object",
                    "properties" : {"p" : {"$ref" : "#/parts/x"}},
                    "parts" : {
                        "x" : {
                            "type" : "object",
                            "unevaluatedProperties" : false,
                            "not" : {"not" : {"properties" : {"a" : {}}, "required" : ["a"]}}
                        }
                    }
                }),
                ERROR_INPUT, "#/parts/x: 'not' is not supported");
}

/* One keyword after the other, two objects deep: the rest of the schema must stay. */
TEST(json_schema_branches, lenient_passes_over_one_keyword_alone)
{
    static const char *const parts[][3] = {
        {S({"type" : "number", "multipleOf" : 1234567891}), "2.5", "\"2\""},
        {S({"type" : "number", "minimum" : 1, "multipleOf" : 1234567891}), "2.5", "0.5"},
        {S({"type" : "array", "items" : {"type" : "integer"}, "uniqueItems" : true}), "[1, 1]",
         "[\"x\"]"},
        {S({"type" : "array", "items" : {"type" : "integer"}, "contains" : {"const" : 5}}), "[1]",
         "[\"x\"]"},
        {"{\"type\": \"string\", \"maxLength\": 2, \"pattern\": " LOOK "}", "\"ab\"", "\"abc\""},
        {"{\"type\": \"object\", \"patternProperties\": {" LOOK
         ": {}}, \"additionalProperties\": {\"type\": \"string\"}}",
         "{\"q\": \"s\"}", "{\"q\": 1}"},
        {S({"type" : "object", "minProperties" : 5, "additionalProperties" : {"type" : "null"}}),
         "{\"q\": null}", "{\"q\": 1}"},
        {S({
             "allOf" : [ {"unevaluatedProperties" : false} ],
             "type" : "object",
             "properties" : {"q" : {"type" : "null"}}
         }),
         "{\"q\": null}", "{\"q\": 1}"},
        {S({"type" : "integer", "not" : {"extends" : {}}}), "1", "\"x\""},
        {S({"type" : "integer", "$dynamicRef" : "#x"}), "1", "\"x\""},
        {S({"$ref" : "http://elsewhere"}), "[1]", "x"},
        {S({"type" : "integer", "minLength" : "x"}), "1", "x"},
        {S({"type" : "text"}), "\"x\"", "x"},
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        struct strbuf schema = STRBUF_INIT, taken = STRBUF_INIT, refused = STRBUF_INIT;
        strbuf_addf(&schema,
                    "{\"type\": \"object\", \"properties\": {\"o\": {\"type\": \"object\", "
                    "\"properties\": {\"k\": %s, \"n\": {\"type\": \"integer\"}}, \"required\": "
                    "[\"k\", \"n\"]}}, \"required\": [\"o\"]}",
                    parts[i][0]);
        strbuf_addf(&taken, "{\"o\": {\"k\": %s, \"n\": 1}}", parts[i][1]);
        strbuf_addf(&refused, "{\"o\": {\"k\": %s, \"n\": 1}}", parts[i][2]);
        CHECK_TEXTS(TEXTS_LENIENT, strbuf_str(&schema), TEXTS(strbuf_str(&taken)),
                    TEXTS(strbuf_str(&refused), "{\"o\": {\"n\": 1}}", "{\"o\": 1}", "{}"));
        strbuf_free(&schema);
        strbuf_free(&taken);
        strbuf_free(&refused);
    }
}
