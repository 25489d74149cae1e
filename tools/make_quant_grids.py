#!/usr/bin/env python3
"""Makes src/model/quant/grids.h: the lattice points that the IQ1, IQ2 and IQ3 types of GGUF index,
from the reference implementation (the `gguf` package of llama.cpp).

    pip install gguf numpy
    python3 tools/make_quant_grids.py > src/model/quant/grids.h

A point is a 16-bit number: eight coordinates of 2 bits or four of 4, the first in the lowest bits.
src/model/quant/lattice.c explains the coordinates.
"""

import numpy as np
from gguf import quants

GRIDS = [
    ("iq2_xxs_grid", quants.IQ2_XXS),
    ("iq2_xs_grid", quants.IQ2_XS),
    ("iq2_s_grid", quants.IQ2_S),
    ("iq3_xxs_grid", quants.IQ3_XXS),
    ("iq3_s_grid", quants.IQ3_S),
    ("iq1_grid", quants.IQ1_S),
]


def points(kind):
    kind.init_grid()
    n, dims = kind.grid_shape
    codes = {value: code for code, value in enumerate(kind.grid_map)}
    for point in np.asarray(kind.grid).reshape(n, dims):
        yield sum(codes[value] << i * (16 // dims) for i, value in enumerate(point))


def main():
    print("/* Made by tools/make_quant_grids.py; do not edit. */")
    print("#ifndef RADISH_MODEL_QUANT_GRIDS_H\n#define RADISH_MODEL_QUANT_GRIDS_H\n")
    print("#include <stdint.h>\n")
    print("/* clang-format off */")
    for name, kind in GRIDS:
        numbers = [f"0x{p:04x}," for p in points(kind)]
        print(f"static const uint16_t {name}[{len(numbers)}] = {{")
        for i in range(0, len(numbers), 12):
            print("    " + " ".join(numbers[i : i + 12]))
        print("};\n")
    print("/* clang-format on */\n\n#endif")


if __name__ == "__main__":
    main()
