#!/usr/bin/env python3
"""Makes tests/unit/data/tokenizer_json.jsonl: small tokenizer.json files, one for each step and flag
that radish supports, with the `tokenizers` library's results for some texts.

    pip install tokenizers
    tools/make_tokenizer_json_goldens.py

Each line: {"name", "tokenizer": the file, "cases": [[text, ids, text of the ids, the same without
special tokens], ...]}
"""
import json
import os
import struct

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers,
                        processors)

PATH = os.path.join(os.path.dirname(__file__), "..", "tests", "unit", "data", "tokenizer_json.jsonl")
TEXTS = ["", "a", " ", "ab abc", " ab  abc ", "It's 12 ab345, né!", "Ab\n\n cab\tx", "日本 ab é e\u0301",
         "<s>ab</s> ab", "a b c <t> x<t>y", "abc.ab,(c)!? «é»", "   ", "ABC Éa ﬁ ½ ①", "▁ab▁▁c",
         "x\u00a0y\u3000z", "\u0344q\u0307\u0323 가\u11a8", "ab12c34 5", "<t> <t><s>", "aaaaaaaaaaaab",
         "\U0001f469\u200d\U0001f4bb \U0001f600"]
REGEX_TEXTS = ["e\u0301tude नमस्ते สวัสดี foo_bar Ⅷx ½x ²x Ⓐⓐ\U0001f130 x\u200dy \u180ex\u00a0y\u3000.",
               "٣1Ａ１ ªʰǅЖж ₀$+<«»‿_-—#@[]{}|`^~ \x0b\x1f\x7f\ue000\u00ad\ufeff\u0378\u0345\u0363",
               "1234567 1234\u0301 १२३४ा 12²3 a½b", "xxxxxxx axb x{,3} abcdefgh XYZ", "a\r\nb\n\tc\u2028d\x85e",
               "\u1c89\u0897\U0001e4f0\U0001f775\ua7f2\u10fc \u2160\u2170\u24b6\u24d0", ""]
REGEXES = [r"\w", r"\w+", r"\W", r"[\w.]+", r"[^\w\s]+", r"[\W]", r"[^\W_]+", r"[x\W]", r"\b", r"\B", r"\bx",
           r"[\b]", r"\d{1,3}(?=(?:\d{3})*\b)", r"\d+", r"\D+", r"[^\d]", r"[\D]", r"\S+", r"[\S]+",
           r"[^\S\n]+", r"[\s\S]", r"\h+", r"\H+", r"[\H]", r"\v", r"x{,3}", r"x{,3}?", r"x{,}", r"(?m:.)+",
           r"(?i-m:X.)", r"(?im)X.", r"[[:^word:]]", r"[[:^space:]]", r"[[:^digit:]]", r"[[:^xdigit:]]",
           r"[[:^cntrl:]]", r"[[:^ascii:]]", r"[_[:alpha:]-]+", r"[^[:alpha:][:digit:]]", r"\p{Alpha}+", r"[\p{Uppercase}]", r"\P{Lower}", r"\p{Word}",
           r"[\P{Word}]", r"\P{Nd}", r"[\P{L}]"] + [
           f"[[:{name}:]]" for name in ("alpha alnum upper lower digit punct graph print blank cntrl ascii "
                                        "word space xdigit").split()]
ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())
MERGES = [("a", "b"), ("Ġ", "ab"), ("ab", "c"), ("Ġ", "Ġ"), ("a", "a"), ("aa", "aa"), ("1", "2"),
          ("Ã", "©"), ("Ġab", "c")]
CHARS = list("▁abcABCIt's12345,.!?nxyzéq() <t>/") + ["日"]
CHAR_MERGES = [("a", "b"), ("▁", "ab"), ("ab", "c"), ("▁", "▁"), ("a", "a"), ("aa", "aa"), ("1", "2"),
               ("▁ab", "c")]


def vocab_of(alphabet, merges, first=()):
    tokens = list(dict.fromkeys(list(first) + list(alphabet) + [a + b for a, b in merges]))
    return {token: i for i, token in enumerate(tokens)}


def byte_bpe(pre=None, **options):
    t = Tokenizer(models.BPE(vocab_of(ALPHABET, MERGES), MERGES, **options))
    t.pre_tokenizer = pre or pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    return t


def char_bpe(pre=None, normalizer=None, byte_tokens=False, decoder=None, **options):
    first = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)] * byte_tokens
    t = Tokenizer(models.BPE(vocab_of(CHARS, CHAR_MERGES, first), CHAR_MERGES, **options))
    if pre:
        t.pre_tokenizer = pre
    if normalizer:
        t.normalizer = normalizer
    t.decoder = decoder or decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse()])
    return t


def unigram(byte_tokens=False, **steps):
    pieces = [("<unk>", 0.0)] + [(f"<0x{b:02X}>", 0.0) for b in range(256)] * byte_tokens
    pieces += [(c, -4 - i / 8) for i, c in enumerate(CHARS)]
    pieces += [("ab", -3.0), ("▁ab", -3.5), ("abc", -3.25), ("▁a", -3.75), ("aa", -7.0), ("aaa", -9.5),
               ("bc", -2.5)]
    t = Tokenizer(models.Unigram(pieces, 0, byte_tokens))
    for name, step in steps.items():
        setattr(t, name, step)
    return t


def llama(**options):
    return char_bpe(None, normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]),
                    True, decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(),
                                             decoders.Fuse(), decoders.Strip(" ", 1, 0)]),
                    unk_token="<unk>", fuse_unk=True, byte_fallback=True, **options)


def charsmap():
    """A SentencePiece map with the rules A -> a, ﬁ -> fi: a hand-made double array."""
    units = {}

    def unit(label, offset, leaf):
        return offset << 10 | leaf << 8 | label
    # root at 0 with offset 256; its child for byte b is at 256 ^ b.
    units[0] = 256 << 10
    units[256 ^ 0x41] = unit(0x41, 512 ^ 256 ^ 0x41, 1)  # 'A'; its leaf is at 512
    units[512] = 1 << 31 | 0
    units[256 ^ 0xef] = unit(0xef, 768 ^ 256 ^ 0xef, 0)
    units[768 ^ 0xac] = unit(0xac, 1024 ^ 768 ^ 0xac, 0)
    units[1024 ^ 0x81] = unit(0x81, 1280 ^ 1024 ^ 0x81, 1)
    units[1280] = 1 << 31 | 2
    trie = b"".join(struct.pack("<I", units.get(i, 0)) for i in range(2048))
    return struct.pack("<I", len(trie)) + trie + b"a\0fi\0"


def added(t, *tokens):
    t.add_special_tokens([AddedToken("<s>", special=True), AddedToken("</s>", special=True)])
    t.add_tokens(list(tokens))
    return t


def tokenizers():
    P, N, D = pre_tokenizers, normalizers, decoders
    yield "bpe byte-level", added(byte_bpe())
    yield "bpe byte-level prefix space", byte_bpe(P.ByteLevel(add_prefix_space=True))
    yield "bpe byte-level no regex", byte_bpe(P.ByteLevel(add_prefix_space=False, use_regex=False))
    yield "bpe ignore_merges", byte_bpe(ignore_merges=True)
    yield "bpe unk", char_bpe(unk_token="<unk>")
    yield "bpe fuse_unk", char_bpe(unk_token="<unk>", fuse_unk=True)
    yield "bpe no unk", char_bpe()
    yield "bpe byte_fallback", added(llama())
    for behavior in ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"):
        for invert in (False, True):
            yield f"split {behavior} {invert}", char_bpe(P.Split(Regex("[ab]+|\\d"), behavior, invert),
                                                        unk_token="<unk>")
        yield f"split string {behavior}", char_bpe(P.Split("b", behavior), unk_token="<unk>")
        yield f"punctuation {behavior}", char_bpe(P.Punctuation(behavior), unk_token="<unk>")
    yield "split empty matches", char_bpe(P.Split(Regex("(?=[bc])|(?<=1)"), "isolated"))
    yield "split categories", byte_bpe(P.Sequence([P.Split(Regex(
        r"\p{N}{1,2}|[^\s\p{P}\p{S}]?[\p{L}\p{M}]+|\p{Lu}\p{Ll}*|[\p{Han}\p{Hiragana}]+|\s+(?!\S)|\s+"),
        "isolated"), P.ByteLevel(add_prefix_space=False, use_regex=False)]))
    yield "digits", char_bpe(P.Digits(False), unk_token="<unk>")
    yield "digits individual", char_bpe(P.Digits(True), unk_token="<unk>")
    yield "digits and byte-level", byte_bpe(P.Sequence([P.Digits(True), P.ByteLevel(False)]))
    yield "whitespace", char_bpe(P.Whitespace(), unk_token="<unk>")
    yield "whitespace split", char_bpe(P.WhitespaceSplit(), unk_token="<unk>")
    for scheme in ("always", "first", "never"):
        for split in (True, False):
            t = char_bpe(P.Metaspace("▁", scheme, split), decoder=D.Metaspace("▁", scheme, split),
                         unk_token="<unk>")
            yield f"metaspace {scheme} {split}", added(t, AddedToken("<t>", normalized=False))
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        t = byte_bpe()
        t.normalizer = getattr(N, form)()
        yield form, t
    for name, step in {"lowercase": N.Lowercase(), "strip": N.Strip(), "prepend": N.Prepend("ab"),
                       "strip left": N.Strip(True, False), "strip right": N.Strip(False, True),
                       "replace": N.Replace("ab", "c"), "replace regex": N.Replace(Regex("b+|\\s"), "12"),
                       "precompiled": N.Precompiled(charsmap()),
                       "strip and first": N.Strip()}.items():
        pre = P.Metaspace("▁", "first") if name == "strip and first" else None
        yield name, char_bpe(pre, step, unk_token="<unk>")
    for flag in ("lstrip", "rstrip", "single_word", "normalized", "special"):
        t = added(llama(), AddedToken("<t>", **{"normalized": False, flag: True}),
                  AddedToken("ab", single_word=True, normalized=False))
        yield f"added {flag}", t
    t = byte_bpe()
    t.normalizer = N.Lowercase()
    yield "added normalized", added(t, AddedToken("ABC", normalized=True, lstrip=True))
    yield "unigram", added(unigram(pre_tokenizer=P.Metaspace(), decoder=D.Metaspace()))
    yield "unigram no split", unigram(normalizer=N.Replace(" ", "▁"), decoder=D.Replace("▁", " "))
    yield "unigram bytes", unigram(True, pre_tokenizer=P.Metaspace(), decoder=D.Sequence(
        [D.ByteFallback(), D.Metaspace()]))
    t = added(byte_bpe())
    s, e = t.token_to_id("<s>"), t.token_to_id("</s>")
    t.post_processor = processors.Sequence([processors.ByteLevel(), processors.TemplateProcessing(
        single="<s> $A </s> </s>", special_tokens=[("<s>", s), ("</s>", e)])])
    yield "template", t
    for regex in REGEXES:
        t = Tokenizer(models.BPE({"?": 0, "!": 1}, [], unk_token="?"))  # shows only what matches
        t.normalizer = N.Replace(Regex(regex), "!")
        t.decoder = D.Fuse()
        yield f"regex {regex}", t
    yield "decoder strip", char_bpe(decoder=D.Sequence([D.Strip("a", 1, 0), D.Replace(Regex("b."), "-")]))


def main():
    with open(PATH, "w", encoding="utf-8") as file:
        n = 0
        for name, t in tokenizers():
            cases = []
            for text in REGEX_TEXTS if name.startswith("regex") else TEXTS:
                ids = t.encode(text, add_special_tokens=name == "template").ids
                cases.append([text, ids, t.decode(ids, skip_special_tokens=False),
                              t.decode(ids, skip_special_tokens=True)])
            line = {"name": name, "tokenizer": json.loads(t.to_str()), "cases": cases}
            file.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")
            n += 1
    print(f"{PATH}: {n} tokenizers, {os.path.getsize(PATH)} bytes")


if __name__ == "__main__":
    main()
