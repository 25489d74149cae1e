/* Formats as regular expressions that match whole strings. Each matches a subset of its format,
 * never more: a date has only the days of its month, a host name no unusual labels. Formats that
 * are not listed here are annotations, as JSON Schema specifies. The expressions are short or have
 * simple loops, so that they can be combined with maxLength. */
#include "prompt/schema/json_schema_internal.h"

#include <string.h>

#define MONTH_DAY                                                                                  \
    "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|"          \
    "02-(?:0[1-9]|1\\d|2[0-8]))"
#define LEAP_DAY "(?:[1-9]\\d(?:0[48]|[2468][048]|[13579][26])|(?:[2468][048]|[13579][26])00)-02-29"
#define DATE     "(?:[1-9]\\d{3}-" MONTH_DAY "|" LEAP_DAY ")"
#define CLOCK    "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,9})?"
#define OFFSET   "(?:Z|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)"
#define COUNT    "(?:0|[1-9]\\d{0,5})"
#define DAYS     "(?:" COUNT "Y(?:" COUNT "M(?:" COUNT "D)?)?|" COUNT "M(?:" COUNT "D)?|" COUNT "D)"
#define SECONDS  "T(?:" COUNT "H(?:" COUNT "M(?:" COUNT "S)?)?|" COUNT "M(?:" COUNT "S)?|" COUNT "S)"
#define LABEL    "[A-Za-z0-9]{1,20}(?:-[A-Za-z0-9]{1,20})?"
#define HOSTNAME LABEL "(?:\\." LABEL "){0,3}"
#define EMAIL    "[A-Za-z0-9_+-]{1,20}(?:\\.[A-Za-z0-9_+-]{1,20})?@" LABEL "(?:\\.[A-Za-z]{2,12}){1,2}"
#define OCTET    "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define GROUP    "[0-9A-Fa-f]{1,4}"
/* With "::": n groups before and up to 6 - n after it. */
#define GROUPS(n, m) "(?:" GROUP ":){" n "}(?::" GROUP "){1," m "}"
#define IPV6                                                                                       \
    "(?:(?:" GROUP ":){7}" GROUP "|:(?::" GROUP "){1,7}|::|(?:" GROUP                              \
    ":){1,7}:|" GROUPS("1", "6") "|" GROUPS("2", "5") "|" GROUPS("3", "4") "|" GROUPS(             \
        "4", "3") "|" GROUPS("5", "2") "|"                                                         \
                                       "(?:" GROUP ":){6}:" GROUP ")"
#define PATH_CHAR "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
#define PATH      "(?:/(?:" PATH_CHAR "|/)*)?"
#define QUERY     "(?:\\?(?:" PATH_CHAR "|[/?])*)?(?:#(?:" PATH_CHAR "|[/?])*)?"
#define AUTHORITY "//[A-Za-z0-9](?:[A-Za-z0-9._~-]|%[0-9A-Fa-f]{2}){0,60}(?::\\d{1,5})?"
#define SCHEME    "[A-Za-z][A-Za-z0-9+.-]{0,20}:"
#define URI       SCHEME "(?:" AUTHORITY PATH "|/?" PATH_CHAR "+" PATH ")" QUERY
#define REFERENCE                                                                                  \
    "(?:[A-Za-z0-9._~!$&'()*+,;=@-]+" PATH "|/(?:" PATH_CHAR "(?:" PATH_CHAR "|/)*)?)?" QUERY
#define POINTER  "(?:/(?:[^~]|~[01])*)?"
#define ATOM     "[A-Za-z0-9_ ,:;=@#%&!~<>\"'`/-]"
#define QUANTITY "(?:[*+?]|\\{\\d{1,3},?\\})?"
#define SIMPLE                                                                                     \
    "(?:" ATOM "|\\.|\\\\[dDwWsS\\\\.^$*+?()\\[\\]{}|/]|\\[\\^?(?:a-z|A-Z|0-9|[A-Za-z0-9_ ])+\\])"

const char *schema_format_regex(const char *name)
{
    static const struct {
        const char *name, *regex;
    } formats[] = {
        {"date", DATE},
        {"time", CLOCK OFFSET},
        {"date-time", DATE "T" CLOCK OFFSET},
        {"duration", "P(?:" COUNT "W|" DAYS "(?:" SECONDS ")?|" SECONDS ")"},
        {"email", EMAIL},
        {"idn-email", EMAIL},
        {"hostname", HOSTNAME},
        {"idn-hostname", HOSTNAME},
        {"ipv4", OCTET "(?:\\." OCTET "){3}"},
        {"ipv6", IPV6},
        {"uri", URI},
        {"iri", URI},
        {"uri-reference", "(?:" URI "|" REFERENCE ")"},
        {"iri-reference", "(?:" URI "|" REFERENCE ")"},
        {"uri-template",
         "[A-Za-z0-9._~/:?#@&=+,;-]*(?:\\{[A-Za-z0-9_]+\\}[A-Za-z0-9._~/:?#@&=-]*)*"},
        {"uuid", "[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"},
        {"json-pointer", POINTER},
        {"relative-json-pointer", COUNT "(?:#|" POINTER ")"},
        {"regex", "\\^?(?:" SIMPLE QUANTITY "|\\((?:" SIMPLE QUANTITY ")+\\)" QUANTITY ")*\\$?"},
    };
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (strcmp(name, formats[i].name) == 0)
            return formats[i].regex;
    return NULL;
}
