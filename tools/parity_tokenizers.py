#!/usr/bin/env python3
"""Compares radish's tokenizers with the `tokenizers` library, over directories with their files.

    tools/parity_tokenizers.py [--radish build/radish] [--count 5000] DIR...

Each directory has a tokenizer.json (compared with `tokenizers`), or a tokenizer.model (compared with
`sentencepiece`) or a *.tiktoken file (compared with `tiktoken`, with "pat_str" from
tokenizer_config.json). For each of at least 5,000 strings the ids must be equal, with special tokens
as tokens and as text; so must the text they decode to, with and without special tokens; radish
decodes one id at a time, as in a streamed answer. Every difference is shown and makes the exit code
1.

The reference treats a directory as `transformers` does: tokens of tokenizer_config.json that
tokenizer.json lacks are added.

Two differences are by design and are not counted. In radish, text never becomes special tokens
unless that was requested, whatever the vocabulary would allow (--plain counts these differences,
too). Invalid UTF-8 becomes one U+FFFD for each part that cannot be a character, as an answer
streams; the library's ByteFallback gives one for every byte.
"""
import argparse
import collections
import glob
import json
import os
import random
import subprocess
import sys
import time

from parity_tokens import make_strings

COMBINING = ["e\u0301", "a\u0300\u0323", "\u1100\u1161\u11a8", "가\u11a8", "\u0958", "\u212b", "Å", "ﬁ",
             "①", "½", "ﬀ", "\u2126", "q\u0307\u0323", "\u0b47\u0b56", "ｱｲｳ", "Ⅷ", "㌀", "\ufb2a",
             "\u00a0", "\u0344", "\u1e9b\u0323", "\u3099", "か\u3099", "\U0001d15e", "\u0f73"]
CASES = "aAbBzZ éÉ ß ẞ İıI ŸÿǄǅǆ Σσς Ωω ЖжЯя ႠꙀ"


def added_strings(rng, added, count):
    """Added tokens surrounded by spaces, words and punctuation."""
    around = ["", " ", "  ", "\n", "\t ", "a", "word", ".", "▁", "é", "1", "_", "\u3000", "<", "|"]
    made = []
    for _ in range(count):
        pieces = []
        for _ in range(rng.randint(1, 5)):
            token = rng.choice(added) if added else "<s>"
            if rng.random() < .15:
                token = token[:rng.randint(0, len(token))]
            pieces += [rng.choice(around), token, rng.choice(around)]
        made.append("".join(pieces))
    return made


def strings(count, seed, added):
    rng = random.Random(seed)
    made = [text for _, text in make_strings(count, seed)]
    made += added_strings(rng, added, count // 5)
    made += ["".join(rng.choice(COMBINING + ["a", " ", "x", "\u0301", "\u0323"])
                     for _ in range(rng.randint(1, 12))) for _ in range(count // 10)]
    made += ["".join(rng.choice(CASES) for _ in range(rng.randint(1, 20))) for _ in range(200)]
    made += [rng.choice("▁ ") * rng.randint(1, 5) + "a" + rng.choice("▁ ") * rng.randint(0, 5) + "b"
             for _ in range(100)]
    return list(dict.fromkeys(made))


def rename(document, config):
    """Replaces unused tokens of a vocabulary by tokens of tokenizer_config.json."""
    vocab = document["model"]["vocab"]
    if not isinstance(vocab, dict):
        return
    there = {a["content"] for a in document["added_tokens"]}
    by_id = {i: token for token, i in vocab.items()}
    for key, added in config.get("added_tokens_decoder", {}).items():
        if added["content"] not in there and int(key) in by_id:
            del vocab[by_id[int(key)]]
            vocab[added["content"]] = int(key)


class Json:
    """`tokenizers` on tokenizer.json, with what tokenizer_config.json adds."""
    name = "tokenizers"

    def __init__(self, path):
        from tokenizers import AddedToken, Tokenizer
        document, config = load(path, "tokenizer.json"), load(path, "tokenizer_config.json")
        rename(document, config)
        self.t = Tokenizer.from_str(json.dumps(document))
        there = {a.content for a in self.t.get_added_tokens_decoder().values()}
        more = [AddedToken(a["content"], **{k: a.get(k, False) for k in (
            "lstrip", "rstrip", "single_word", "normalized", "special")})
            for _, a in sorted(config.get("added_tokens_decoder", {}).items(), key=lambda i: int(i[0]))
            if a["content"] not in there]
        for key in ("bos_token", "eos_token", "unk_token", "pad_token"):
            token = config.get(key)
            token = token.get("content") if isinstance(token, dict) else token
            if token and token not in there and self.t.token_to_id(token) is not None:
                more.append(AddedToken(token, special=True, normalized=False))
        self.t.add_tokens(more)
        self.size = self.t.get_vocab_size()
        self.added = [a.content for a in self.t.get_added_tokens_decoder().values()]
        self.fallback = "ByteFallback" in json.dumps(document["decoder"])

    def encode(self, texts, parse):
        self.t.encode_special_tokens = not parse
        return [e.ids for e in self.t.encode_batch_fast(texts, add_special_tokens=False)]

    def decode(self, lists, skip):
        return self.t.decode_batch(lists, skip_special_tokens=skip)

    def keep(self, _):
        return True


class Sentencepiece:
    """`sentencepiece` on tokenizer.model; it has no special tokens in texts."""
    name = "sentencepiece"
    fallback = True

    def __init__(self, path):
        import sentencepiece
        self.t = sentencepiece.SentencePieceProcessor(os.path.join(path, "tokenizer.model"))
        self.size = self.t.get_piece_size()
        self.added = []

    def encode(self, texts, parse):
        return None if parse else self.t.encode(texts)

    def decode(self, lists, skip):
        return [self.t.decode(ids) for ids in lists] if skip else None

    def keep(self, ids):
        return self.t.unk_id() not in ids  # it decodes to " ⁇ "


class Tiktoken:
    """`tiktoken` on the file, with the pattern and tokens of tokenizer_config.json."""
    name = "tiktoken"
    fallback = False

    def __init__(self, path):
        import tiktoken
        from tiktoken.load import load_tiktoken_bpe
        file = (glob.glob(os.path.join(path, "*.tiktoken")) + [os.path.join(path, "tokenizer.model")])[0]
        config = load(path, "tokenizer_config.json")
        special = {a["content"]: int(i) for i, a in config.get("added_tokens_decoder", {}).items()}
        self.t = tiktoken.Encoding("it", pat_str=config["pat_str"], special_tokens=special,
                                   mergeable_ranks=load_tiktoken_bpe(file))
        self.special = set(special.values())
        self.known = self.special | set(load_tiktoken_bpe(file).values())
        self.size = self.t.n_vocab
        self.added = list(special)

    def encode(self, texts, parse):
        allowed = "all" if parse else set()
        return [self.t.encode(text, allowed_special=allowed, disallowed_special=()) for text in texts]

    def decode(self, lists, skip):
        return [self.t.decode([i for i in ids if not (skip and i in self.special)]) for ids in lists]

    def keep(self, ids):
        return self.known.issuperset(ids)


def load(path, name):
    try:
        with open(os.path.join(path, name), encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        return {}


def reference(path):
    if os.path.exists(os.path.join(path, "tokenizer.json")):
        return Json(path)
    if glob.glob(os.path.join(path, "*.tiktoken")):
        return Tiktoken(path)
    with open(os.path.join(path, "tokenizer.model"), "rb") as file:
        first = file.readline(200).split()
    return Tiktoken(path) if len(first) == 2 and first[1].isdigit() else Sentencepiece(path)


def radish(args, path, values, *flags):
    lines = "\n".join(json.dumps(value, ensure_ascii=False) for value in values)
    done = subprocess.run([args.radish, "tokenize", "-m", path, "--lines", *flags],
                          input=lines.encode(), capture_output=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{path}: {done.stderr.decode()[-500:]}")
    return [json.loads(line) for line in done.stdout.decode().split("\n")[:-1]]


def differences(what, path, inputs, got, want, shown):
    n = 0
    for text, a, b in zip(inputs, got, want, strict=True):
        if a == b:
            continue
        n += 1
        if n <= shown:
            print(f"{os.path.basename(path)}, {what}: {text[:60]!r}\n  radish    {a[:24]!r}\n"
                  f"  reference {b[:24]!r}")
    return n


def compare(args, path):
    ref = reference(path)
    rng = random.Random(args.seed)
    texts = strings(args.count, args.seed, ref.added)
    counts = collections.Counter()
    all_ids = []
    for parse in (True, False):
        want = ref.encode(texts, parse)
        if want is None:
            continue
        got = radish(args, path, texts, "--no-special", *(["--parse-special"] if parse else []))
        n = differences("ids" if parse else "plain", path, texts, got, want, args.show)
        counts["ids" if parse or ref.encode([""], True) is None else "plain"] += n
        all_ids = all_ids or want
    lists = [ids for ids in all_ids if ids]
    if not ref.fallback:
        lists += [[rng.randrange(ref.size) for _ in range(rng.randint(1, 20))] for _ in range(1000)]
    lists = [ids for ids in lists if ref.keep(ids)]
    for skip in (True, False):
        want = ref.decode(lists, skip)
        if want is None:
            continue
        got = radish(args, path, lists, *(["--no-special"] if skip else []))
        counts["skip" if skip else "decode"] = differences(
            "decoding" + " without special tokens" * skip, path, lists, got, want, args.show)
    return ref, len(texts), len(lists), counts


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directories", nargs="+", metavar="DIR")
    parser.add_argument("--radish", default="build/radish")
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=2, help="number of differences to show of each kind")
    parser.add_argument("--plain", action="store_true",
                        help="also count differences where special tokens are text")
    args = parser.parse_args()
    rows, failed = [], 0
    for path in args.directories:
        begin = time.time()
        ref, n, n_lists, counts = compare(args, path)
        failed += sum(counts[k] for k in ("ids", "skip", "decode"))
        failed += counts["plain"] if args.plain else 0
        rows.append((os.path.basename(path.rstrip("/")), ref.name, n, counts["ids"], counts["plain"],
                     n_lists, counts["skip"], counts["decode"], time.time() - begin))
    print(f"{'':20} {'reference':14} {'strings':>8} {'ids':>5} {'plain':>6} {'lists':>7} {'skip':>5} "
          f"{'decode':>6} {'seconds':>8}   (how many differ)")
    for row in rows:
        print("{:20} {:14} {:8} {:5} {:6} {:7} {:5} {:6} {:8.1f}".format(*row))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
