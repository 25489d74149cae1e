#!/usr/bin/env python3
"""Compares `radish tokenize` with the `tokenizers` library, and optionally with llama.cpp.

    tools/parity_tokens.py -m MODEL.gguf [--radish build/radish] [--llama-tokenize PATH]

The reference is built from the GGUF's own vocabulary and merges, with SmolLM2's pre-tokeniser (each
digit on its own, then GPT-2's pattern), so the model must have tokenizer.ggml.pre "smollm". Every
difference from it is an error; differences from llama.cpp are counted and shown. A few are known:
`tokenizers` and radish drop a byte that is not a token (0x04 in SmolLM2) before merging, so that
its neighbours may merge; llama.cpp drops it after merging. Needs the packages `tokenizers` and
`gguf`.
"""
import argparse
import collections
import concurrent.futures
import json
import random
import subprocess
import sys

SCRIPTS = {
    "cjk": "天地玄黃宇宙洪荒日月盈昃こんにちは世界カタカナひらがな안녕하세요대한민국、。「」！？",
    "arabic": "السلام عليكم ورحمة الله وبركاته ٠١٢٣٤٥٦٧٨٩ مرحبا بالعالم ًٌٍَُِّْ",
    "hebrew": "שָׁלוֹם עוֹלָם בְּרֵאשִׁית בָּרָא אֱלֹהִים את השמים ואת הארץ",
    "thai": "สวัสดีชาวโลก ภาษาไทยไม่มีการเว้นวรรค ๑๒๓๔๕",
    "hindi": "नमस्ते दुनिया यह हिंदी है १२३ क्षत्रिय",
    "cyrillic": "Привет, мир! Съешь же ещё этих мягких французских булок",
    "greek": "Καλημέρα κόσμε αβγδεζηθ ΆΈΉΊΌΎΏ ς",
    "latin": "naïve café Ærøskøbing Straße İstanbul ŁÓDŹ ſmall ﬁne œuvre ÿ Å",
    "georgian": "გამარჯობა მსოფლიო ᲒᲐᲛᲐᲠᲯᲝᲑᲐ",
    "tamil": "வணக்கம் உலகம் ௧௨௩",
}
EMOJI = ["😀", "👩‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽", "🇩🇪🇫🇷", "❤️‍🔥", "🧑🏿‍🚀", "☃️", "©", "🫨",
         "👨‍💻", "1️⃣", "🏴󠁧󠁢󠁥󠁮󠁧󠁿"]
CODE = [
    "def f(x):\n    return x ** 2  # squared\n\n\nclass A(B):\n\tpass\n",
    "for (int i = 0; i < n; i++) {\n        a[i] += b[i] * 0x1F;\n}\n",
    "#include <stdio.h>\r\nint main(void)\r\n{\r\n\tputs(\"hi\\n\");\r\n}\r\n",
    "SELECT * FROM users WHERE name = 'O''Brien' AND id >= 42;",
    "<div class=\"a b\"><a href='x'>it's</a></div><!-- c -->",
    "{\"a\": [1, 2.5e-10, null], \"b\": {\"c\": \"\\u00e9\\n\"}}",
    "let s: &'static str = r#\"raw\"#; fn id<'a, T: 'a>(x: &'a T) -> &'a T { x }",
    "$ git log --oneline | awk '{print $1}' > /dev/null 2>&1",
    "\\begin{equation}\n  e^{i\\pi} + 1 = 0\n\\end{equation}",
    "| a | b |\n|---|---|\n| 1 | `x` |\n\n- [ ] todo\n  * **bold** _it_\n",
]
WORDS = ("the quick brown fox jumps over lazy dog Hello World tokenization internationalisation "
         "antidisestablishmentarianism HTTPServer camelCaseName snake_case_name kebab-case x y z "
         "don't can't it's we're they've I'm you'll he'd DON'T IT'S o'clock 'tis rock'n'roll "
         "Mr. e.g. i.e. U.S.A. ... -- — “quoted” ‘single’ (paren) [bracket] {brace}").split()
CONTRACTIONS = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'LL", "'Re", "'ſ", "’s", "''s",
                "'", "'x", " 's", " 'll", "'l", "'r", "'v", "'1", "' s", "'\n"]
SPACES = [" ", "  ", "\t", "\n", "\r\n", "\n\n", "\u00a0", "\u3000", "\u2028", "\u0085", "\u180e",
          "\u200b", "\u2009", "\x0b", "\x0c", "\x1c", "\x1f", "\r", "\ufeff", "\u1680", "\u205f"]
URLS = ["https://example.com/a/b?c=d&e=f%20g#h", "ftp://user:pass@host:21/x.tar.gz",
        "mailto:a.b+c@d-e.co.uk", "C:\\Windows\\System32", "/usr/lib/x86_64-linux-gnu/libc.so.6",
        "192.168.0.1:8080", "[::1]:443", "www.münchen.de/straße?q=日本"]
SPECIALS = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<repo_name>", "<file_sep>", "<|im_",
            "<|im_start|", "<|im_start|>>", "<<|im_end|>", "<empty_output>", "im_start|>",
            "<jupyter_start>", "<issue_closed>", "<|IM_END|>", "< |im_end|>", "<|im_end|>\n"]


def random_code_point(rng, low=0, high=0x110000):
    while True:
        code = rng.randrange(low, high)
        if not 0xD800 <= code < 0xE000:
            return chr(code)


def sentence(rng, n):
    return " ".join(rng.choice(WORDS) for _ in range(n))


def piece(rng):
    """Any small piece of text, for mixtures."""
    return rng.choice([
        lambda: rng.choice(WORDS), lambda: rng.choice(SPACES) * rng.randint(1, 4),
        lambda: rng.choice(EMOJI), lambda: rng.choice(CONTRACTIONS), lambda: rng.choice(SPECIALS),
        lambda: str(rng.randrange(10 ** rng.randint(1, 12))), lambda: random_code_point(rng),
        lambda: rng.choice("!\"#$%&()*+,-./:;<=>?@[\\]^_`{|}~") * rng.randint(1, 5),
        lambda: "".join(rng.choice(rng.choice(list(SCRIPTS.values()))) for _ in range(4)),
        lambda: rng.choice(URLS), lambda: rng.choice(CODE)[:rng.randint(1, 20)],
    ])()


def kinds(rng):
    """Each kind of string, as a function that makes one."""
    made = {name: lambda s=script: "".join(rng.choice(s) for _ in range(rng.randint(1, 40)))
            for name, script in SCRIPTS.items()}
    made.update({
        "words": lambda: sentence(rng, rng.randint(1, 30)),
        "code": lambda: rng.choice(CODE) + rng.choice(CODE)[:rng.randint(0, 60)],
        "emoji": lambda: "".join(rng.choice(EMOJI + [" ", "a"]) for _ in range(rng.randint(1, 12))),
        "control": lambda: "".join(
            chr(rng.randrange(32)) if rng.random() < .6 else rng.choice("ab !\x7f\x80\x9f")
            for _ in range(rng.randint(1, 30))),
        "runs": lambda: "".join(
            rng.choice([" ", "\n", "\t", "0", "7", "a", "-", "=", "é", "\r\n"]) *
            rng.randint(1, 90) for _ in range(rng.randint(1, 5))),
        "spaces": lambda: "".join(rng.choice(SPACES + ["a", "1", ".", "é"])
                                  for _ in range(rng.randint(1, 25))),
        "digits": lambda: "".join(rng.choice("0123456789 ,.-+eE٣½²ⅷ一") for _ in range(
            rng.randint(1, 40))),
        "numbers": lambda: " ".join(repr(rng.choice([rng.random(), rng.randrange(10 ** 9),
                                                     rng.gauss(0, 1e6)])) for _ in range(5)),
        "special": lambda: "".join(rng.choice(SPECIALS + WORDS + ["\n", " "])
                                   for _ in range(rng.randint(1, 12))),
        "contractions": lambda: "".join(rng.choice(CONTRACTIONS + WORDS[:9] + [" ", "1"])
                                        for _ in range(rng.randint(1, 14))),
        "unicode": lambda: "".join(random_code_point(rng) for _ in range(rng.randint(1, 30))),
        "low unicode": lambda: "".join(random_code_point(rng, 0, 0x3000)
                                       for _ in range(rng.randint(1, 40))),
        "letters and any": lambda: "".join(rng.choice(["a", " ", "1", random_code_point(rng)])
                                           for _ in range(rng.randint(1, 40))),
        "bytes": lambda: rng.randbytes(rng.randint(1, 60)).decode(
            rng.choice(["latin-1", "utf-8", "cp437"]), errors="replace"),
        "urls": lambda: rng.choice(URLS) + rng.choice(["", "?", "\n", " "]) + rng.choice(URLS),
        "long word": lambda: "".join(rng.choice(rng.choice(["ab", "abcdefghijklmnopqrstuvwxyz",
                                                           "aeiouAEIOU", "лёд", "_"]))
                                     for _ in range(rng.randint(50, 400))),
        "mixture": lambda: "".join(piece(rng) for _ in range(rng.randint(2, 15))),
    })
    return made


def make_strings(count, seed):
    """At least `count` pairs of kind and string, each string once, the same for the same seed."""
    rng = random.Random(seed)
    made = kinds(rng)
    strings = {"": "empty", "a" * 20000: "long word", " " * 5000 + "x": "spaces",
               "\n" * 3000: "runs", "1" * 3000: "digits", "abc " * 3000: "words"}
    while len(strings) < count:
        for name, make in made.items():
            strings.setdefault(make(), name)
    return [(name, text) for text, name in strings.items()]


def read_gguf(path):
    """The fields of the file by name, read on demand."""
    import gguf
    reader = gguf.GGUFReader(path)
    return lambda key: reader.fields[key].contents() if key in reader.fields else None


def reference(path):
    """The `tokenizers` library on the model's own vocabulary."""
    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
    field = read_gguf(path)
    if field("tokenizer.ggml.pre") != "smollm":
        sys.exit(f"{path}: tokenizer.ggml.pre is {field('tokenizer.ggml.pre')!r}, not 'smollm'")
    tokens = field("tokenizer.ggml.tokens")
    merges = [tuple(merge.split(" ")) for merge in field("tokenizer.ggml.merges")]
    tokenizer = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    types = field("tokenizer.ggml.token_type")
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False)
                                  for t, kind in zip(tokens, types) if kind == 3])

    def encode(text, parse_special):
        tokenizer.encode_special_tokens = not parse_special
        return tokenizer.encode(text, add_special_tokens=False).ids
    return encode


def run(command, text):
    done = subprocess.run(command, input=text.encode(), capture_output=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed on {text!r}: {done.stderr.decode()[-500:]}")
    return json.loads(done.stdout)


def compare(name, commands, cases, expected, jobs):
    """Runs commands[parse_special] on each case and counts differences by kind."""
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        results = list(pool.map(lambda case: run(commands[case[2]], case[1]), cases))
    different = collections.Counter()
    for (kind, text, parse), got, want in zip(cases, results, expected):
        if got == want:
            continue
        different[kind] += 1
        if different[kind] <= 2:
            print(f"{name} differs ({kind}, parse_special={parse}) on {text[:80]!r}\n"
                  f"  got      {got[:20]}\n  expected {want[:20]}")
    total = sum(different.values())
    print(f"{name}: {len(cases) - total} of {len(cases)} equal to tokenizers"
          + (f"; differ: {dict(different)}" if total else ""))
    return total


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("--radish", default="build/radish")
    parser.add_argument("--llama-tokenize", help="llama.cpp's llama-tokenize, to compare as well")
    parser.add_argument("--count", type=int, default=2600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()

    encode = reference(args.model)
    cases = [(kind, text, True) for kind, text in make_strings(args.count, args.seed)]
    cases += [(kind, text, False) for kind, text, _ in cases if "<" in text and "|" in text]
    expected = [encode(text, parse) for _, text, parse in cases]
    radish = [args.radish, "tokenize", "-m", args.model, "--no-special"]
    failed = compare("radish", {False: radish, True: radish + ["--parse-special"]}, cases, expected,
                     args.jobs)
    if args.llama_tokenize:
        peer = [args.llama_tokenize, "-m", args.model, "--stdin", "--ids", "--no-bos",
                "--no-escape", "--log-disable"]
        compare("llama.cpp", {True: peer, False: peer + ["--no-parse-special"]}, cases, expected,
                args.jobs)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
