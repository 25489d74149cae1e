"""Shared by the tools that make and read tests/models/*.json; needs only numpy.

A golden stores no weights. Every value comes from a counter-based generator that
tests/unit/golden_model.c repeats bit for bit:

    hash    splitmix64 of (fnv1a64(tensor name) + index of the element)
    u       the top 24 bits of it / 2^23 - 1, in [-1, 1)
    value   float32(mean + scale * u), computed in double, its low 16 bits cleared, so that the
            value is the same in bfloat16

Tensors with "draw": "mxfp4" (gpt-oss experts, [experts][in][out]) are on the grid of that format:
along `in`, blocks of 32 share an exponent.

    code    the top 4 bits of the hash at the element's index in [experts][out][in]
    power   exponent + bits 8..9 of the hash of the block's first element
    value   FP4[code] * 2^power

A hub tensor is assembled from those: consecutive parts, each a strided view of one tensor of the
first form ("from", "offset", "shape", "strides", in elements). Without parts it is a copy of
"from", or drawn by its own name (tensors that a reader must ignore). The hub form also has,
unchanged, the tensors of the first form that no hub tensor uses.
"""

import base64
import json
import struct
from pathlib import Path

import numpy as np

MASK = (1 << 64) - 1
FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
TYPES = {"F32": np.float32, "BF16": np.uint16, "U8": np.uint8}


def fnv1a64(text):
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = ((value ^ byte) * 0x100000001B3) & MASK
    return value


def mix(x):
    """splitmix64 of an array of uint64."""
    with np.errstate(over="ignore"):
        x = x + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


def hashes(name, count):
    with np.errstate(over="ignore"):
        return mix(np.uint64(fnv1a64(name)) + np.arange(count, dtype=np.uint64))


def draw_uniform(spec):
    count = int(np.prod(spec["shape"]))
    u = (hashes(spec["name"], count) >> np.uint64(40)).astype(np.float64) / (1 << 23) - 1.0
    value = (spec["mean"] + spec["scale"] * u).astype(np.float32)
    return (value.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32).reshape(spec["shape"])


def mxfp4_codes(spec):
    """Codes [experts][out][in] and powers [experts][out][in / 32]."""
    experts, n_in, n_out = spec["shape"]
    h = hashes(spec["name"], experts * n_in * n_out).reshape(experts, n_out, n_in)
    codes = (h >> np.uint64(60)).astype(np.uint8)
    powers = spec["exponent"] + ((h[:, :, ::32] >> np.uint64(8)) & np.uint64(3)).astype(np.int64)
    return codes, powers


def draw(spec):
    if spec.get("draw") != "mxfp4":
        return draw_uniform(spec)
    codes, powers = mxfp4_codes(spec)
    scales = np.exp2(powers.astype(np.float32)).repeat(32, axis=2)
    return np.ascontiguousarray((FP4[codes] * scales).transpose(0, 2, 1))


def checksum(array):
    """Sum over i of splitmix64(i << 32 | bits of element i), in hexadecimal."""
    flat = np.ascontiguousarray(array).reshape(-1)
    bits = (flat if flat.dtype == np.uint8 else flat.view(np.uint32)).astype(np.uint64)
    with np.errstate(over="ignore"):
        keys = (np.arange(bits.size, dtype=np.uint64) << np.uint64(32)) | bits
        return f"{int(mix(keys).sum(dtype=np.uint64)):016x}"


def checksum_all(tensors):
    """Sum over tensors of splitmix64(fnv1a64(name) + checksum), in hexadecimal."""
    keys = [(fnv1a64(name) + int(checksum(array), 16)) & MASK for name, array in tensors.items()]
    with np.errstate(over="ignore"):
        return f"{int(mix(np.array(keys, np.uint64)).sum(dtype=np.uint64)):016x}"


def draw_all(golden):
    """The first form: name -> float32 array, checked against the golden's sums."""
    tensors = {}
    for spec in golden["tensors"]:
        tensors[spec["name"]] = draw(spec)
        if "sum" in spec and checksum(tensors[spec["name"]]) != spec["sum"]:
            raise ValueError(f"{spec['name']} is not what the golden was made of")
    return tensors


def cut_part(part, source):
    flat = source.reshape(-1)
    index = np.full(part["shape"], part["offset"], np.int64)
    for axis, (size, stride) in enumerate(zip(part["shape"], part["strides"])):
        steps = np.arange(size, dtype=np.int64) * stride
        index += steps.reshape([-1 if a == axis else 1 for a in range(len(part["shape"]))])
    return flat[index].reshape(-1)


def cut_mxfp4(spec, source_spec):
    codes, powers = mxfp4_codes(source_spec)
    if spec["mxfp4"] == "scales":
        return (powers + 127).astype(np.uint8).reshape(spec["shape"])
    pairs = codes.reshape(*codes.shape[:2], -1, 16, 2)
    return (pairs[..., 0] | pairs[..., 1] << 4).astype(np.uint8).reshape(spec["shape"])


def cut_hub(golden, tensors):
    """The hub form: name -> array, from the first form's."""
    specs = {spec["name"]: spec for spec in golden["tensors"]}
    used = {part["from"] for spec in golden["hub"]["tensors"]
            for part in spec.get("parts", [spec]) if "from" in part}
    out = {name: tensor for name, tensor in tensors.items() if name not in used}
    for spec in golden["hub"]["tensors"]:
        if "mxfp4" in spec:
            array = cut_mxfp4(spec, specs[spec["from"]])
        elif "parts" in spec:
            parts = [cut_part(part, tensors[part["from"]]) for part in spec["parts"]]
            array = np.concatenate(parts).reshape(spec["shape"])
        elif "from" in spec:
            array = tensors[spec["from"]]
        else:
            array = draw_uniform(spec)
        out[spec["name"]] = array
    return out


def write_safetensors(path, tensors):
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    names = {np.dtype(kind): name for name, kind in TYPES.items()}
    for name, array in tensors.items():
        header[name] = {"dtype": names[array.dtype], "shape": list(array.shape),
                        "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for array in tensors.values():
            file.write(np.ascontiguousarray(array).tobytes())


def read_safetensors_header(path):
    with open(path, "rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
    header.pop("__metadata__", None)
    return header


def write_directory(path, config, tensors):
    path = Path(path)
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    write_safetensors(path / "model.safetensors", tensors)


def read_golden(path):
    golden = json.loads(Path(path).read_text())
    raw = np.frombuffer(base64.b64decode(golden["logits"]), "<f4")
    golden["logits"] = raw.reshape(len(golden["tokens"]), -1)
    return golden


def write_golden(path, golden):
    """Writes one line for each tensor, so that diffs are short."""
    lines = []
    for key, value in golden.items():
        if key == "logits":
            raw = np.ascontiguousarray(value, "<f4").tobytes()
            text = json.dumps(base64.b64encode(raw).decode())
        elif key in ("tensors", "features"):
            text = "[\n" + ",\n".join("  " + json.dumps(item) for item in value) + "\n ]"
        elif key == "hub":
            specs = ",\n".join("   " + json.dumps(item) for item in value["tensors"])
            text = (f'{{\n  "config": {json.dumps(value["config"])},\n'
                    f'  "tensors": [\n{specs}\n  ],\n  "sum": {json.dumps(value["sum"])}}}')
        else:
            text = json.dumps(value)
        lines.append(f" {json.dumps(key)}: {text}")
    Path(path).write_text("{\n" + ",\n".join(lines) + "\n}\n")


def relative_error(got, want):
    """The maximum over the rows of max|a - b| / max|b|."""
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    return float((np.abs(got - want).max(axis=1) / np.abs(want).max(axis=1)).max())
