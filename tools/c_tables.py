"""Prints tables of characters as C, for the scripts that make them."""

CODES = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
WIDTH = 100


def print_table(declaration, items):
    """`declaration[N] = { items }`, as many items a line as fit."""
    print(f"static const struct {declaration}[{len(items)}] = {{")
    line = "   "
    for item in items:
        if len(line) + len(item) + 4 > WIDTH:
            print(line)
            line = "   "
        line += f" {{{item}}},"
    print(line)
    print("};\n")


def print_ranges(name, codes):
    """Code points, in order, as runs without a gap."""
    ranges = []
    for c in codes:
        if ranges and ranges[-1][1] == c - 1:
            ranges[-1][1] = c
        else:
            ranges.append([c, c])
    print_table(f"code_range {name}", [f"{first:#x}, {last:#x}" for first, last in ranges])
