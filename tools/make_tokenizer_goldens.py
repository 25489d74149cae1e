#!/usr/bin/env python3
"""Makes tests/unit/data/tokenizer_*.txt, the references for the tokenizer's unit tests.

    pip install tokenizers gguf sentencepiece protobuf
    tools/make_tokenizer_goldens.py --model SmolLM2-135M-Instruct.Q4_1.gguf \\
        --spm stories260K-f32.converted-v3.gguf

    tokenizer_smollm2.txt     ids of the `tokenizers` library with the default model's vocabulary
    tokenizer_gpt2.txt        tiny byte-level BPE models, trained here on a made-up text with each
    tokenizer_qwen2.txt       pre-tokeniser, and their ids from the same library
    tokenizer_llama-bpe.txt
    tokenizer_spm.txt         ids of the `sentencepiece` library with stories260K's vocabulary
    tokenizer_utf8.txt        bytes, and what Python's bytes.decode(errors="replace") makes of them

Lines of tab-separated fields; bytes that are not printable ASCII, and %, are written %XX:

    token <type> <spelling>        in order of ids; types as in GGUF
    merge <left> <right>           in order of ranks
    case <parse_special 0 or 1> <text> <ids with commas>
    utf8 <bytes> <text>
"""
import argparse
import os
import random

from parity_tokens import make_strings, read_gguf, reference

DATA = os.path.join(os.path.dirname(__file__), "..", "tests", "unit", "data")
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)

WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
PATTERNS = {"gpt2": None, "qwen2": WORDS + r"\p{N}" + REST,
            "llama-bpe": WORDS + r"\p{N}{1,3}" + REST}


def escape(data):
    return "".join(chr(b) if 32 <= b < 127 and b != 37 else f"%{b:02X}" for b in data)


def write(name, lines):
    path = os.path.join(DATA, f"tokenizer_{name}.txt")
    with open(path, "w", encoding="ascii") as file:
        file.writelines("\t".join(fields) + "\n" for fields in lines)
    print(f"{path}: {len(lines)} lines, {os.path.getsize(path)} bytes")


def cases(strings, encode):
    """For each text, its ids with special tokens parsed, and without if they differ."""
    lines = []
    for text in strings:
        parsed, plain = encode(text, True), encode(text, False)
        for flag, ids in (("1", parsed), ("0", plain)):
            if flag == "1" or ids != parsed:
                lines.append(("case", flag, escape(text.encode()), ",".join(map(str, ids))))
    return lines


def strings_of(count, longest, seed):
    texts = [text for _, text in make_strings(8 * count, seed) if len(text) <= longest]
    return texts[:count]


def made_up_text(rng):
    """A few kilobytes with a Zipf-like distribution of words, so that training finds merges."""
    words = ["".join(rng.choice("etaoinshrdlucmfwyp") for _ in range(rng.randint(1, 8)))
             for _ in range(300)] + ["don't", "it's", "we'll", "été", "日本", "привет", "123", "2024"]
    lines = []
    for _ in range(400):
        line = [words[min(int(rng.expovariate(0.02)), len(words) - 1)] for _ in range(12)]
        indent = "    " * rng.randint(0, 2)
        lines.append(indent + " ".join(line) + rng.choice([".", "!", ";\n", "  "]))
    return lines


def train(name):
    """A tiny model with the named pre-tokeniser, and one token that no merge produces."""
    from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers,
                            pre_tokenizers, trainers)
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=PATTERNS[name] is None)
    splitter = byte_level if PATTERNS[name] is None else pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(PATTERNS[name]), "isolated"), byte_level])
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = splitter
    trained.train_from_iterator(made_up_text(random.Random(name)), trainers.BpeTrainer(
        vocab_size=500, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False))
    import json
    model = json.loads(trained.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get) + ["Ġunmergeable", "HelloĠ"]
    merges = [tuple(merge) if isinstance(merge, list) else tuple(merge.split(" "))
              for merge in model["merges"]]
    types = [NORMAL] * len(tokens)
    added = [("<|im_start|>", CONTROL), ("<|im_end|>", CONTROL), ("<|im_", CONTROL),
             ("<repo_name>", USER_DEFINED), ("<|im_end|>\n", USER_DEFINED), ("  \t", USER_DEFINED)]
    tokenizer = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges,
                                     ignore_merges=name == "llama-bpe"))
    tokenizer.pre_tokenizer = splitter
    if name == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False)
                                  for t, kind in added if kind == CONTROL])
    tokenizer.add_tokens([AddedToken(t, special=False, normalized=False)
                          for t, kind in added if kind == USER_DEFINED])
    order = sorted(added, key=lambda item: tokenizer.token_to_id(item[0]))
    assert tokenizer.token_to_id(order[0][0]) == len(tokens)
    tokens += [t for t, _ in order]
    types += [kind for _, kind in order]

    def encode(text, parse_special):
        tokenizer.encode_special_tokens = not parse_special
        return tokenizer.encode(text, add_special_tokens=False).ids
    return tokens, types, merges, encode


def tiny(name):
    tokens, types, merges, encode = train(name)
    lines = [("token", str(kind), escape(token.encode())) for token, kind in zip(tokens, types)]
    lines += [("merge", escape(a.encode()), escape(b.encode())) for a, b in merges]
    extra = [" unmergeable", "Hello world", "it's IT'S it'ſ don'T we'LL", "a\u180eb \u0085\u00a0c",
             "12345678 1 22 333 4444", "  \t x   \n\n  y \r\n z",
             "<|im_end|>\n<|im_end|> <|im_<|im_start|>",
             "\U00011de0\U00031350a\U0001e030b\U00010d40", "<repo_name><|im_end|><repo_name> x"]
    write(name, lines + cases(extra + strings_of(70, 45, f"{name} strings"), encode))


def sentencepiece_model(path):
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2 as pb
    field = read_gguf(path)
    model = pb.ModelProto()
    model.trainer_spec.model_type = pb.TrainerSpec.BPE
    model.trainer_spec.byte_fallback = True
    model.normalizer_spec.add_dummy_prefix = True
    model.normalizer_spec.remove_extra_whitespaces = False
    model.normalizer_spec.escape_whitespaces = True
    for token, score, kind in zip(field("tokenizer.ggml.tokens"), field("tokenizer.ggml.scores"),
                                  field("tokenizer.ggml.token_type")):
        model.pieces.add(piece=token, score=score, type=kind)
    return sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())


def utf8_cases():
    rng = random.Random(8)
    fixed = [b"", b"abc", "é日😀".encode(), b"\xc3", b"\xc3(", b"\xe2\x82", b"\xe2\x82A",
             b"\xf0\x9f\x98", b"\xf0\x9f\x98A", b"\xf0\x9fA", b"\xf0A", b"\x80", b"\xbf\xbf",
             b"\xc0\xaf", b"\xc1\xbf", b"\xe0\x80\xaf", b"\xe0\x9f\xbf", b"\xe0\xa0\x80",
             b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xed\x9f\xbf", b"\xf0\x80\x80\x80",
             b"\xf0\x8f\xbf\xbf", b"\xf0\x90\x80\x80", b"\xf4\x8f\xbf\xbf", b"\xf4\x90\x80\x80",
             b"\xf5\x80\x80\x80", b"\xff\xfe", b"\xf8\x88\x80\x80\x80",
             b"a\xf1\x80\x80\xe1\x80\xc2b\x80c\x80\xbfd", b"\xe2\xe2\x82\xac",
             b"\xf0\x9f\xf0\x9f\x98\x80", b"\xc3\xc3\xa9", b"\xed\xa0\xbd\xed\xb8\x80",
             b"\x00\xc2\x00"]
    heads = [0x41, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc1, 0xc2, 0xdf, 0xe0, 0xe1, 0xed,
             0xef, 0xf0, 0xf1, 0xf3, 0xf4, 0xf5, 0xff]
    mixed = [bytes(rng.choice(heads) for _ in range(rng.randint(1, 12))) for _ in range(150)]
    return [("utf8", escape(data), escape(data.decode(errors="replace").encode()))
            for data in fixed + mixed]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="the default model")
    parser.add_argument("--spm", required=True, help="stories260K as GGUF")
    args = parser.parse_args()
    chat = ["<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging "
            "Face<|im_end|>\n<|im_start|>user\nWhat's 12 + 345?<|im_end|>\n<|im_start|>assistant\n",
            "a <|im_end|> b<|endoftext|><|im_start|", "!\x04! th\x04e \x06\x06",
            "<repo_name>x<file_sep>"]
    write("smollm2", cases(chat + strings_of(230, 60, "smollm2"), reference(args.model)))
    for name in PATTERNS:
        tiny(name)
    spm = sentencepiece_model(args.spm)
    write("spm", cases(strings_of(80, 45, "spm"), lambda text, _: spm.encode(text)))
    write("utf8", utf8_cases())


if __name__ == "__main__":
    main()
