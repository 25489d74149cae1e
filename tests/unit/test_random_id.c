/* Ids: their form, and that no two are the same. */
#include "serve/api/random_id.h"
#include "test.h"

TEST(random_id, prefix_and_letters)
{
    char id[RANDOM_ID_LETTERS + 8], other[sizeof id];
    unsigned seen = 0;
    for (int round = 0; round < 200; round++) {
        random_id(id, "a-", 32);
        CHECK_INT(strlen(id), 2 + RANDOM_ID_LETTERS);
        CHECK(strncmp(id, "a-", 2) == 0);
        CHECK_INT(strspn(id + 2, "0123456789abcdefghijklmnopqrstuv"), RANDOM_ID_LETTERS);
        seen |= strchr(id + 2, 'v') != NULL;
        random_id(other, "a-", 32);
        CHECK(strcmp(id, other) != 0);
    }
    CHECK(seen);
    for (int round = 0; round < 200 && seen; round++) {
        random_id(id, "", 62);
        seen = !strchr(id, 'Z');
    }
    CHECK(!seen);
}
