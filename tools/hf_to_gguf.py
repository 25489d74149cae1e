#!/usr/bin/env python3
"""Converts a small Hugging Face Llama (or Qwen2) directory to a GGUF v3 file of float32 tensors.

    python3 tools/hf_to_gguf.py DIRECTORY OUT.gguf [--pre NAME]

It reads config.json, model.safetensors, tokenizer.json and tokenizer_config.json if it is there,
and needs numpy only. Two things are not copied as they stand:

- Llama's q and k rows. Transformers rotates the halves of a head (i, i + d/2), Llama in GGUF
  rotates neighbours (2i, 2i + 1), so the rows of every head are interleaved.
- SentencePiece-like BPE. GGUF's "llama" tokenizer merges by a score per token; tokenizer.json has
  a list of merges instead. A token's score is minus the rank of the merge that makes it.
"""

import argparse
import json
import math
import struct
import sys
from pathlib import Path

import numpy as np

ALIGNMENT = 32
U32, F32, BOOL, STRING, ARRAY, I32 = 4, 6, 7, 8, 9, 5
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

LAYER_NAMES = {
    "input_layernorm.weight": "attn_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.q_proj.bias": "attn_q.bias",
    "self_attn.k_proj.bias": "attn_k.bias",
    "self_attn.v_proj.bias": "attn_v.bias",
    "self_attn.o_proj.weight": "attn_output.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
}
TOP_NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}

# Pre-tokenisers that GGUF knows by name, by a part of the regular expression they use.
PRE_BY_PATTERN = {
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*": "llama-bpe",
    r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*": "qwen2",
}


class Refused(Exception):
    """The directory holds something that this converter cannot turn into a GGUF file."""


class Writer:
    """Gathers key-value pairs and tensors, and writes the file."""

    def __init__(self):
        self.pairs, self.tensors = [], []

    @staticmethod
    def text(string):
        raw = string.encode("utf-8")
        return struct.pack("<Q", len(raw)) + raw

    def scalar(self, kind, value):
        if kind == STRING:
            return self.text(value)
        return struct.pack({U32: "<I", I32: "<i", F32: "<f", BOOL: "<?"}[kind], value)

    def add(self, key, kind, value):
        self.pairs.append(self.text(key) + struct.pack("<I", kind) + self.scalar(kind, value))

    def add_array(self, key, kind, values):
        items = b"".join(self.scalar(kind, value) for value in values)
        head = struct.pack("<IIQ", ARRAY, kind, len(values))
        self.pairs.append(self.text(key) + head + items)

    def add_tensor(self, name, array):
        self.tensors.append((name, np.ascontiguousarray(array, dtype="<f4")))

    def write(self, path):
        infos, offset = [], 0
        for name, array in self.tensors:
            dims = array.shape[::-1]
            infos.append(self.text(name) + struct.pack("<I", len(dims)))
            infos.append(struct.pack(f"<{len(dims)}QIQ", *dims, 0, offset))
            offset += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
        with open(path, "wb") as out:
            out.write(struct.pack("<4sIQQ", b"GGUF", 3, len(self.tensors), len(self.pairs)))
            out.write(b"".join(self.pairs + infos))
            for _, array in self.tensors:
                out.write(bytes(-out.tell() % ALIGNMENT))
                out.write(array.tobytes())


def read_safetensors(path):
    """Yields (name, float32 array)."""
    raw = np.memmap(path, dtype=np.uint8, mode="r")
    header_len = int(raw[:8].view("<u8")[0])
    header = json.loads(bytes(raw[8 : 8 + header_len]))
    for name, info in header.items():
        if name == "__metadata__":
            continue
        begin, end = (8 + header_len + offset for offset in info["data_offsets"])
        data = raw[begin:end].tobytes()
        if info["dtype"] == "BF16":
            array = (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4")
        elif info["dtype"] in ("F32", "F16", "F64"):
            array = np.frombuffer(data, "<f" + str(int(info["dtype"][1:]) // 8)).astype("<f4")
        else:
            raise Refused(f"{path}: tensor {name} is of type {info['dtype']}")
        yield name, array.reshape(info["shape"])


def interleave_halves(rows, n_heads):
    """Rows (h, i) and (h, i + d/2) of each head become neighbours: (h, 2i) and (h, 2i + 1)."""
    halves = rows.reshape(n_heads, 2, -1, *rows.shape[1:])
    return halves.swapaxes(1, 2).reshape(rows.shape)


def rope_freqs(scaling, rope_dim, base):
    """Llama 3's divisors of the rotation's frequencies, one for each pair."""
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    window, factor = scaling["original_max_position_embeddings"], scaling["factor"]
    out = []
    for i in range(rope_dim // 2):
        wavelength = 2 * math.pi * base ** (2 * i / rope_dim)
        if wavelength < window / high:
            out.append(1.0)
        elif wavelength > window / low:
            out.append(factor)
        else:
            smooth = (window / wavelength - low) / (high - low)
            out.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(out, dtype=np.float32)


def add_rope(writer, config, arch, head_dim):
    # Transformers 5 moved the base and the scaling into rope_parameters.
    parameters = config.get("rope_parameters") or {}
    base = config.get("rope_theta", parameters.get("rope_theta", 10000.0))
    scaling = config.get("rope_scaling") or parameters
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    writer.add(f"{arch}.rope.dimension_count", U32, head_dim)
    writer.add(f"{arch}.rope.freq_base", F32, base)
    if kind == "linear":
        writer.add(f"{arch}.rope.scaling.type", STRING, "linear")
        writer.add(f"{arch}.rope.scaling.factor", F32, scaling["factor"])
    elif kind == "llama3":
        writer.add_tensor("rope_freqs.weight", rope_freqs(scaling, head_dim, base))
    elif kind != "default":
        raise Refused(f"config.json: rope scaling of type {kind}")


def add_model(writer, directory, config, name):
    arch = config.get("model_type")
    if arch not in ("llama", "qwen2"):
        raise Refused(f"{directory}/config.json: the model type {arch} is not llama or qwen2")
    if config.get("hidden_act", "silu") != "silu" or config.get("mlp_bias"):
        raise Refused(f"{directory}/config.json: an activation or bias that GGUF has no key for")
    n_heads = config["num_attention_heads"]
    n_kv_heads = config.get("num_key_value_heads") or n_heads
    head_dim = config.get("head_dim") or config["hidden_size"] // n_heads
    writer.add("general.architecture", STRING, arch)
    writer.add("general.name", STRING, name)
    writer.add("general.file_type", U32, 0)
    writer.add(f"{arch}.block_count", U32, config["num_hidden_layers"])
    writer.add(f"{arch}.context_length", U32, config["max_position_embeddings"])
    writer.add(f"{arch}.embedding_length", U32, config["hidden_size"])
    writer.add(f"{arch}.feed_forward_length", U32, config["intermediate_size"])
    writer.add(f"{arch}.attention.head_count", U32, n_heads)
    writer.add(f"{arch}.attention.head_count_kv", U32, n_kv_heads)
    writer.add(f"{arch}.attention.key_length", U32, head_dim)
    writer.add(f"{arch}.attention.value_length", U32, head_dim)
    writer.add(f"{arch}.attention.layer_norm_rms_epsilon", F32, config["rms_norm_eps"])
    writer.add(f"{arch}.vocab_size", U32, config["vocab_size"])
    add_rope(writer, config, arch, head_dim)
    tensors = dict(read_safetensors(directory / "model.safetensors"))
    if config.get("tie_word_embeddings"):
        # A tied head is stored once, under either name.
        head = tensors.pop("lm_head.weight", None)
        tensors.setdefault("model.embed_tokens.weight", head)
    for tensor, array in tensors.items():
        if tensor.endswith("rotary_emb.inv_freq"):
            continue
        if arch == "llama" and ".q_proj." in tensor:
            array = interleave_halves(array, n_heads)
        if arch == "llama" and ".k_proj." in tensor:
            array = interleave_halves(array, n_kv_heads)
        writer.add_tensor(tensor_name(tensor), array)


def tensor_name(name):
    if name in TOP_NAMES:
        return TOP_NAMES[name]
    parts = name.split(".", 3)
    if parts[:2] == ["model", "layers"] and len(parts) == 4 and parts[3] in LAYER_NAMES:
        return f"blk.{parts[2]}.{LAYER_NAMES[parts[3]]}"
    raise Refused(f"model.safetensors: the tensor {name} has no name in GGUF")


def components(part):
    """Each normaliser, pre-tokeniser or decoder in a part of tokenizer.json, sequences opened."""
    if not part:
        return []
    for key in ("normalizers", "pretokenizers", "decoders"):
        if key in part:
            return [inner for item in part[key] for inner in components(item)]
    return [part]


def guess_pre(tokenizer):
    parts = components(tokenizer.get("pre_tokenizer"))
    kinds = [part["type"] for part in parts]
    for part in parts:
        pattern = part.get("pattern", {}).get("Regex", "")
        for piece, name in PRE_BY_PATTERN.items():
            if piece in pattern:
                return name
    if kinds == ["Digits", "ByteLevel"]:
        return "smollm"
    if kinds == ["ByteLevel"]:
        return "gpt-2"
    raise Refused("tokenizer.json: a pre-tokeniser that this tool does not know; give --pre NAME")


def token_types(tokens, added, is_bytes, unknown):
    types = []
    for token in tokens:
        if token is None:
            types.append(UNUSED)
        elif token == unknown and not is_bytes:
            types.append(UNKNOWN)
        elif token in added:
            types.append(CONTROL if added[token]["special"] else USER_DEFINED)
        elif not is_bytes and len(token) == 6 and token.startswith("<0x") and token[5] == ">":
            types.append(BYTE)
        else:
            types.append(NORMAL)
    return types


def token_content(entry):
    return entry["content"] if isinstance(entry, dict) else entry


def add_special_ids(writer, config, ids):
    """The ids that tokenizer_config.json names by content, else those of config.json."""
    for ours, theirs in [("bos", "bos"), ("eos", "eos"), ("unknown", "unk"), ("padding", "pad")]:
        content = token_content(config["tokenizer"].get(f"{theirs}_token"))
        value = ids.get(content, config["model"].get(f"{theirs}_token_id"))
        if isinstance(value, list):
            value = value[0]
        if value is not None:
            writer.add(f"tokenizer.ggml.{ours}_token_id", U32, value)


def adds_bos(tokenizer, config, ids):
    if "add_bos_token" in config["tokenizer"]:
        return bool(config["tokenizer"]["add_bos_token"])
    bos = token_content(config["tokenizer"].get("bos_token"))
    template = json.dumps((tokenizer.get("post_processor") or {}), ensure_ascii=False)
    return bos in ids and json.dumps(bos, ensure_ascii=False) in template


def add_tokenizer(writer, tokenizer, config, pre):
    model = tokenizer["model"]
    if model.get("type", "BPE") != "BPE":
        raise Refused(f"tokenizer.json: a model of type {model['type']}, not BPE")
    added = {entry["content"]: entry for entry in tokenizer.get("added_tokens", [])}
    ids = dict(model["vocab"], **{content: entry["id"] for content, entry in added.items()})
    tokens = [None] * max(config["model"]["vocab_size"], max(ids.values()) + 1)
    for token, number in ids.items():
        tokens[number] = token
    merges = [tuple(m.split(" ", 1)) if isinstance(m, str) else tuple(m) for m in model["merges"]]
    parts = [part for key in ("pre_tokenizer", "decoder") for part in components(tokenizer.get(key))]
    is_bytes = any(part["type"] == "ByteLevel" for part in parts)
    spelled = [f"[PAD{i}]" if token is None else token for i, token in enumerate(tokens)]
    writer.add("tokenizer.ggml.model", STRING, "gpt2" if is_bytes else "llama")
    writer.add("tokenizer.ggml.pre", STRING, pre or (guess_pre(tokenizer) if is_bytes else "default"))
    writer.add_array("tokenizer.ggml.tokens", STRING, spelled)
    types = token_types(tokens, added, is_bytes, model.get("unk_token"))
    writer.add_array("tokenizer.ggml.token_type", I32, types)
    if is_bytes:
        writer.add_array("tokenizer.ggml.merges", STRING, [f"{a} {b}" for a, b in merges])
    else:
        rank = {}
        for i, (left, right) in enumerate(merges):
            rank.setdefault(left + right, i)
        scores = [-float(rank.get(token, len(merges))) for token in spelled]
        writer.add_array("tokenizer.ggml.scores", F32, scores)
    normalizers = components(tokenizer.get("normalizer")) + parts
    prefix = any(
        part["type"] == "Prepend" or part.get("prepend_scheme") in ("always", "first")
        for part in normalizers
    )
    writer.add("tokenizer.ggml.add_space_prefix", BOOL, prefix)
    writer.add("tokenizer.ggml.add_bos_token", BOOL, adds_bos(tokenizer, config, ids))
    writer.add("tokenizer.ggml.add_eos_token", BOOL, bool(config["tokenizer"].get("add_eos_token")))
    add_special_ids(writer, config, ids)
    if isinstance(config["tokenizer"].get("chat_template"), str):
        writer.add("tokenizer.chat_template", STRING, config["tokenizer"]["chat_template"])


def read_json(path, default=None):
    if default is not None and not path.exists():
        return default
    return json.loads(path.read_text(encoding="utf-8"))


def convert(directory, out, pre=None):
    directory = Path(directory)
    config = {
        "model": read_json(directory / "config.json"),
        "tokenizer": read_json(directory / "tokenizer_config.json", {}),
    }
    writer = Writer()
    add_model(writer, directory, config["model"], directory.resolve().name)
    add_tokenizer(writer, read_json(directory / "tokenizer.json"), config, pre)
    writer.write(out)


def main():
    parser = argparse.ArgumentParser(description="A Hugging Face Llama directory to GGUF.")
    parser.add_argument("directory")
    parser.add_argument("out")
    parser.add_argument("--pre", help="name of the pre-tokeniser, where it is not recognised")
    args = parser.parse_args()
    try:
        convert(args.directory, args.out, args.pre)
    except (Refused, OSError, KeyError) as problem:
        kind = "missing key " if isinstance(problem, KeyError) else ""
        sys.exit(f"hf_to_gguf: {kind}{problem}")


if __name__ == "__main__":
    main()
