#!/usr/bin/env python3
"""Compares radish's logits with the goldens of tests/models, for every model format.

    pip install numpy
    python3 tools/parity_models.py [--radish build/radish] [ROW ...]

    pip install torch transformers sentencepiece
    python3 tools/parity_models.py --llama-cpp DIRECTORY [--keep DIRECTORY] [ROW ...]

Each row is written as Hugging Face directories and given to `radish logits`:

    plain   what transformers writes
    hub     what hubs have: older keys, other names and layouts; must give the bits of `plain`
    bf16    `plain` with its tensors in bfloat16, which loses nothing
    q8_0    `plain` with its matrices rounded to that type's values: quantised as they are loaded,
    q4_0      against the same values computed as floats

and with --llama-cpp also as GGUF files that llama.cpp's convert_hf_to_gguf.py makes of the first
two (`gguf`, `gguf-hub`; float32, with a vocabulary that means nothing). With --keep all of them
stay in DIRECTORY.

Errors are max|a-b| / max|b|, the worst over the positions. The bound is 1e-4, also for GGUF files
unless the file cannot express what the model needs (GGUF_LOSES). For quantised weights (a hub form
may have them) it is 1e-2, with --activations q16. The default 8-bit activations lose more and may
route tokens to other experts, so their error, the median over the positions, is only shown. "least"
is the feature whose absence changes the golden's logits least: what a row proves. If a form is
rejected, the reason is printed. Exits with 1 if an error exceeds the bound, bits differ, or a
directory is rejected. The made-up row is not in the table; the unit tests cover it.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import model_draw

TOLERANCE = 1e-4
QUANTISED_TOLERANCE = 1e-2
QUANTISED_TYPES = ("q8_0", "q4_0")
BLOCK = 32

# What llama.cpp's converter does not write for a row (or for one form of it), so no reader can know
# it.
GGUF_LOSES = {
    "deepseek_v3 gguf": "that scores are sigmoids",
    "glm4_moe_lite gguf": "which layers are dense",
    "deepseek_v2": "mscale apart from mscale_all_dim",
    "gemma2_scale": "query_pre_attn_scalar",
    "granitehybrid_moe": "that there is no rope",
    "mistral": "the window",
    "mistral4": "llama_4_scaling_beta",
    "phi3": "whether the window counts: files of old models have one that is not used",
    "qwen2_window": "the window",
    "qwen3_moe_plain": "norm_topk_prob",
}

# Runs in its own interpreter and converts the files named by its input lines.
CONVERTER = """
import json, logging, pathlib, sys
root = sys.argv[1]
sys.path[:0] = [root, root + "/gguf-py"]
import convert_hf_to_gguf as tool
from conversion import TextModel, load_all_models

def every_class(cls):
    for child in cls.__subclasses__():
        yield child
        yield from every_class(child)

def made_up_vocabulary(self):
    count = self.find_hparam(["vocab_size"])
    self.gguf_writer.add_tokenizer_model("llama")
    first = ["<unk>", "<s>", "</s>", "<0x0A>", "<|endoftext|>"]
    tokens = first + [f"t{i}" for i in range(len(first), count)]
    self.gguf_writer.add_token_list(tokens)
    self.gguf_writer.add_token_scores([-float(i) for i in range(count)])
    self.gguf_writer.add_token_types([2, 3, 3, 6] + [1] * (count - 4))
    self.gguf_writer.add_bos_token_id(1)
    self.gguf_writer.add_eos_token_id(2)
    self.gguf_writer.add_unk_token_id(0)

load_all_models()
for cls in every_class(TextModel):
    cls.set_vocab = made_up_vocabulary
for line in sys.stdin:
    directory, out = line.rstrip().split("\\t")
    config = json.loads((pathlib.Path(directory) / "config.json").read_text())
    count = config.get("text_config", config)["vocab_size"]
    tokenizer = pathlib.Path(directory) / "tokenizer.json"
    tokenizer.write_text(json.dumps({"model": {"vocab": {f"t{i}": i for i in range(count)}},
                                     "added_tokens": []}))
    sys.argv = ["convert", directory, "--outfile", out, "--outtype", "f32"]
    try:
        tool.main()
        message = "converted"
    except SystemExit:
        message = "the converter does not know it"
    except Exception as error:
        message = str(error).splitlines()[0] if str(error) else type(error).__name__
    tokenizer.unlink()
    logging.getLogger().handlers.clear()
    print("\\t".join((out, message)), file=sys.__stdout__, flush=True)
"""


def convert_all(llama_cpp, jobs):
    """GGUF path -> None, or the reason why it was not converted."""
    lines = "".join(f"{directory}\t{out}\n" for directory, out in jobs)
    done = subprocess.run([sys.executable, "-c", CONVERTER, str(llama_cpp)], input=lines,
                          capture_output=True, text=True)
    results = {}
    for line in done.stdout.splitlines():
        out, tab, message = line.partition("\t")
        if tab:
            results[Path(out)] = None if message == "converted" else message
    if len(results) != len(jobs):
        sys.exit(f"the converter stopped early:\n{done.stderr[-2000:]}")
    return results


def radish_logits(radish, path, golden, *options):
    """The logits of every position, or None and the reason."""
    command = [radish, "logits", "-m", path, "--all", "--json", "--kv-type", "f32",
               "--tokens", ",".join(map(str, golden["tokens"])), *options]
    if "context" in golden:
        command += ["-c", str(golden["context"])]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode != 0:
        lines = (done.stderr.strip() or f"exit {done.returncode}").splitlines()
        return None, lines[0].replace(str(path), path.name)
    return np.array(json.loads(done.stdout)["logits"], np.float32), ""


def round_blocks(kind, values):
    """Rounds blocks of the last axis to values of the type, which quantising again does not change.
    Incomplete blocks are not rounded."""
    if values.shape[-1] % BLOCK:
        return values
    blocks = values.reshape(-1, BLOCK)
    if kind == "q8_0":
        scale = np.abs(blocks).max(axis=1, keepdims=True) / np.float32(127)
        least, most = -127, 127
    else:
        largest = np.abs(blocks).argmax(axis=1)[:, None]
        scale = np.take_along_axis(blocks, largest, 1) / np.float32(-8)
        least, most = -8, 7
    quants = np.rint(np.divide(blocks, scale, out=np.zeros_like(blocks), where=scale != 0))
    half = scale.astype(np.float16).astype(np.float32)
    return (np.clip(quants, least, most) * half).astype(np.float32).reshape(values.shape)


def round_latent(kind, values, config):
    """kv_b_proj: radish transposes each head's key half, [nope][rank], so that its rows are the
    columns here."""
    heads = values.reshape(config["num_attention_heads"], -1, values.shape[-1])
    nope = config["qk_nope_head_dim"]
    keys = round_blocks(kind, np.ascontiguousarray(heads[:, :nope].transpose(0, 2, 1)))
    parts = [keys.transpose(0, 2, 1), round_blocks(kind, heads[:, nope:])]
    return np.concatenate(parts, axis=1).reshape(values.shape)


def round_all(kind, golden, tensors):
    out = {}
    for spec in golden["tensors"]:
        name, values = spec["name"], tensors[spec["name"]]
        if "embed_tokens" in name or "lm_head" in name:
            values = round_blocks("q8_0", values)  # radish uses at least 6 bits for a head
        elif "kv_b_proj" in name:
            values = round_latent(kind, values, golden["config"])
        elif spec.get("draw") == "mxfp4":  # [experts][in][out]
            turned = np.ascontiguousarray(values.transpose(0, 2, 1))
            values = round_blocks(kind, turned).transpose(0, 2, 1)
        elif values.ndim > 1:
            values = round_blocks(kind, values)
        out[name] = np.ascontiguousarray(values)
    return out


def write_forms(golden, folder):
    """Form -> directory."""
    tensors = model_draw.draw_all(golden)
    halves = {name: (tensor.view(np.uint32) >> 16).astype(np.uint16)
              for name, tensor in tensors.items()}
    forms = {"plain": (golden["config"], tensors),
             "hub": (golden["hub"]["config"], model_draw.cut_hub(golden, tensors)),
             "bf16": ({**golden["config"], "dtype": "bfloat16"}, halves)}
    for kind in QUANTISED_TYPES:
        forms[kind] = golden["config"], round_all(kind, golden, tensors)
    paths = {}
    for form, (config, values) in forms.items():
        paths[form] = folder / f"{golden['name']}.{form}"
        model_draw.write_directory(paths[form], config, values)
    return paths


def form_note(golden, form, logits, plain):
    """The error as text, and the problem if any."""
    error = model_draw.relative_error(logits, golden["logits"])
    text = f"{error:.1e}"
    lost = GGUF_LOSES.get(golden["name"]) or GGUF_LOSES.get(f"{golden['name']} {form}")
    if form.startswith("gguf") and lost:
        return f"{text} (GGUF loses {lost})", ""
    if not error <= TOLERANCE:
        return text, "wrong"
    if form == "hub" and plain is not None and not np.array_equal(logits, plain):
        return text, "other bits than plain"
    return text, ""


def quantised_note(radish, golden, path, want, *options):
    """The same for quantised weights, or None and why they are rejected."""
    exact, refusal = radish_logits(radish, path, golden, "--activations", "q16", *options)
    rounded, _ = radish_logits(radish, path, golden, *options)
    if exact is None or rounded is None:
        return None, refusal
    error = model_draw.relative_error(exact, want)
    rows = [model_draw.relative_error([a], [b]) for a, b in zip(rounded, want)]
    return (f"{error:.1e} (8-bit activations: {np.median(rows):.1e})",
            "" if error <= QUANTISED_TOLERANCE else "wrong")


def note(radish, golden, form, path, plain):
    """The result of a form: its logits if they match the golden's, the error as text and the
    problem if any; or no text and why it is rejected."""
    if form in QUANTISED_TYPES:
        floats, refusal = radish_logits(radish, path, golden)
        return None, *((None, refusal) if floats is None else
                       quantised_note(radish, golden, path, floats, "--quantize", form))
    if form.endswith("hub") and "quantization_config" in golden["hub"]["config"]:
        return None, *quantised_note(radish, golden, path, golden["logits"])
    logits, refusal = radish_logits(radish, path, golden)
    return logits, *((None, refusal) if logits is None else
                     form_note(golden, form, logits, plain))


def row_report(radish, golden, paths, refusals):
    """Prints a line for each form; returns whether all are right. The converter's file for a row
    may be unusable for any reader."""
    least = min(golden["features"], key=lambda feature: feature["moves"])
    print(f"{golden['name']:22} least {least['moves']:.1e} ({least['name']} of "
          f"{len(golden['features'])})")
    good, plain = True, None
    for form, path in paths.items():
        logits, text, wrong = None, None, refusals.get(path)
        if not wrong:
            logits, text, wrong = note(radish, golden, form, path, plain)
        if text is None:
            print(f"    {form:10} refused: {wrong[:110]}")
            good &= form.startswith("gguf")
            continue
        if form == "plain":
            plain = logits
        good &= not wrong
        print(f"    {form:10} {text}{'  <-- ' + wrong if wrong else ''}")
    sys.stdout.flush()
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("rows", nargs="*", help="only these rows")
    parser.add_argument("--radish", type=Path, default=Path("build/radish"))
    parser.add_argument("--goldens", type=Path, default=Path("tests/models"))
    parser.add_argument("--llama-cpp", type=Path, help="llama.cpp's sources, for GGUF files")
    parser.add_argument("--keep", type=Path, help="keep directories and GGUF files here")
    options = parser.parse_args()
    paths = sorted(options.goldens.glob("*.json"))
    goldens = [model_draw.read_golden(path) for path in paths if path.stem != "made_up" and
               (not options.rows or path.stem in options.rows)]
    if not goldens:
        parser.error("no such row")
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        forms = {golden["name"]: write_forms(golden, folder) for golden in goldens}
        refusals = {}
        if options.llama_cpp:
            jobs = []
            for name, of in forms.items():
                for form, gguf in (("plain", "gguf"), ("hub", "gguf-hub")):
                    jobs.append((of[form], folder / f"{name}.{form}.gguf"))
                    of[gguf] = jobs[-1][1]
            refusals = convert_all(options.llama_cpp, jobs)
        good = [row_report(options.radish, golden, forms[golden["name"]], refusals)
                for golden in goldens]
    print(f"{sum(good)} of {len(good)} rows have nothing wrong")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
