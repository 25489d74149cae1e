/* Feeds the input to the query parser as a C string: accepted values are within their bounds,
 * rejections are 400 with a message, and nothing is read past the end. */
#include "serve/request/query_params.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct query_param params[] = {
    {"limit", "", true, 1, 200, 50},
    {"after", "", true, 0, UINT32_MAX, 0},
    {"tenant", "", false, 0, 0, 0},
    {0},
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct query_value values[QUERY_MAX_PARAMS];
    struct api_error e = {0};
    char *query = malloc(size + 1); /* a separate block, so that reading past it is detected */
    memcpy(query, data, size);
    query[size] = '\0';
    if (query_parse(query, params, values, &e)) {
        assert(e.status == 400 && e.message[0]);
    } else {
        assert(values[0].number >= 1 && values[0].number <= 200);
        assert(memchr(values[2].text, '\0', sizeof values[2].text));
        assert(values[2].is_given == (values[2].text[0] != '\0'));
    }
    free(query);
    return 0;
}
