/* UTF-8, one sequence at a time, as strict as table 3-7 of the Unicode standard. */
#include "base/utf8.h"

/* Of a sequence that begins with this byte, which must not be ASCII. */
static size_t width_of(unsigned char lead)
{
    return lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
}

size_t utf8_valid_prefix(const char *bytes, size_t len)
{
    if (len == 0)
        return 0;
    unsigned char lead = (unsigned char)bytes[0];
    if (lead < 0x80)
        return 1;
    size_t n = utf8_begun_prefix(bytes, len);
    return n == width_of(lead) ? n : 0;
}

size_t utf8_begun_prefix(const char *bytes, size_t len)
{
    unsigned char lead = (unsigned char)bytes[0];
    if (lead < 0xc2 || lead > 0xf4)
        return 0;
    size_t width = width_of(lead), n = 1;
    unsigned char low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    unsigned char high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    for (; n < width && n < len; n++) {
        unsigned char byte = (unsigned char)bytes[n];
        if (byte < low || byte > high)
            break;
        low = 0x80;
        high = 0xbf;
    }
    return n;
}

bool utf8_is_valid(const char *bytes, size_t len)
{
    while (len) {
        size_t width = utf8_valid_prefix(bytes, len);
        if (width == 0)
            return false;
        bytes += width;
        len -= width;
    }
    return true;
}

uint32_t utf8_decode(const char *bytes, size_t width)
{
    static const unsigned char lead_mask[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    uint32_t code = (unsigned char)bytes[0] & lead_mask[width];
    for (size_t i = 1; i < width; i++)
        code = code << 6 | ((unsigned char)bytes[i] & 0x3f);
    return code;
}

size_t utf8_encode(uint32_t code, char *out)
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    size_t width = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const unsigned char lead_bits[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = width - 1; i > 0; i--, code >>= 6)
        out[i] = (char)(0x80 | (code & 0x3f));
    out[0] = (char)(lead_bits[width] | code);
    return width;
}
