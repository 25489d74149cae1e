#!/usr/bin/env python3
"""Makes tests/models/*.json: tiny random models of every architecture and their logits.

    pip install torch transformers numpy accelerate
    python3 tools/make_model_goldens.py [--out tests/models] [--keep DIRECTORY] [ROW ...]

Made with transformers 5.22.2 and torch 2.13 on the CPU, float32, eager attention and experts. The
rows are in tools/model_rows.py, the generator of the weights in tools/model_draw.py, and the form
in which hubs have the same weights in tools/model_hub.py. For each row:

1. transformers saves a model of the real configuration class, so names and layouts are its own.
   Every tensor of the file is drawn again and loaded, with no missing or unexpected keys.
2. One prompt gives the logits of every position. Double precision shows how accurate they are
   ("float64"). The entropy of attention, as a share of the maximum, shows that it is peaked.
3. Each feature of the row is turned off in transformers: the logits must move by 1e-2 (100 times
   the tolerance of the tests), or the row would not notice a reader that ignores the feature.
4. If transformers can load the hub form, that must give the same logits.

With --keep both forms stay as directories under DIRECTORY/ROW and DIRECTORY/ROW.hub.
"""

import argparse
import copy
import json
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers

import model_draw
import model_hub
import model_rows

TOLERANCE = 1e-4
LEAST_MOVE = 100 * TOLERANCE
N_TOKENS = 40

transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
torch.set_num_threads(1)


class Refused(Exception):
    """The row proves nothing in its present form."""


def config_make(row, changes=None):
    values = copy.deepcopy(row.config)
    for key, value in (changes or {}).items():
        if isinstance(value, dict) and isinstance(values.get(key), dict) and key != "layer_types":
            values[key] = {**values[key], **value}
        else:
            values[key] = value
    return transformers.AutoConfig.for_model(row.model_type, **values)


def class_named(name):
    return getattr(transformers, name, None) or getattr(model_rows, name)


def model_load(path, **options):
    config = json.loads((Path(path) / "config.json").read_text())
    model, info = class_named(config["architectures"][0]).from_pretrained(
        path, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager",
        output_loading_info=True, **options)
    return model.eval(), info


def logits_of(model, tokens):
    with torch.no_grad():
        return model(torch.tensor([tokens]), use_cache=False).logits[0].numpy()


def tensors_spec(row, directory):
    header = model_draw.read_safetensors_header(Path(directory) / "model.safetensors")
    specs = []
    for name, entry in sorted(header.items()):
        if entry["dtype"] != "F32":
            raise Refused(f"{name} is saved as {entry['dtype']}")
        spec = {"name": name, "shape": entry["shape"]}
        spec.update(row.rule(name, entry["shape"]))
        spec["sum"] = model_draw.checksum(model_draw.draw(spec))
        specs.append(spec)
    return specs


def attention_entropy(model, tokens):
    """The mean entropy of attention, relative to that of uniform attention."""
    weights, shares = [], []
    hooks = [module.register_forward_hook(lambda module, given, out: weights.append(out[1]))
             for module in model_rows.each_module(model, r"self_attn$")]
    logits_of(model, tokens)
    for hook in hooks:
        hook.remove()
    for layer in weights:
        p = layer[0].double().numpy()[:, 8:]
        seen = (p > 0).sum(-1)
        entropy = -(p * np.log(np.maximum(p, 1e-300))).sum(-1)
        shares.append((entropy / np.log(np.maximum(seen, 2))).mean())
    if not shares:
        raise Refused("no attentions to look at")
    return float(np.mean(shares))


def feature_logits(row, feature, directory, tokens):
    """The logits with the feature turned off."""
    with tempfile.TemporaryDirectory() as temporary:
        path = directory
        if feature.config is not None:
            path = Path(temporary)
            config = config_make(row, feature.config)
            config.architectures = [row.architecture]
            config.save_pretrained(path)
            shutil.copy(directory / "model.safetensors", path)
        options = {"ignore_mismatched_sizes": True} if feature.config is not None else {}
        model, _ = model_load(path, **options)
        if feature.fill:
            pattern, value = feature.fill
            state = [*model.named_parameters(), *model.named_buffers()]
            found = [tensor for name, tensor in state if pattern.search(name)]
            if not found:
                raise Refused(f"{feature.name}: nothing is called {pattern.pattern}")
            for tensor in found:
                tensor.data.fill_(value)
        undo = feature.patch(model) if feature.patch else None
        try:
            return logits_of(model, tokens)
        finally:
            if undo:
                undo()


def row_make(row, keep):
    tokens = [int(h % row.config["vocab_size"])
              for h in model_draw.hashes(f"tokens of {row.name}", N_TOKENS)]
    directory = keep / row.name
    config = config_make(row)
    cls = transformers.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(
        row.model_type, row.architecture)
    row.architecture = cls
    class_named(cls)(config).save_pretrained(directory)
    written = json.loads((directory / "config.json").read_text())
    written.pop("transformers_version", None)
    golden = {"name": row.name, "config": written, "tokens": tokens,
              "tensors": tensors_spec(row, directory)}
    if row.context:
        golden["context"] = row.context
    tensors = model_draw.draw_all(golden)
    model_draw.write_directory(directory, written, tensors)
    model, info = model_load(directory)
    if any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")):
        raise Refused(f"does not load cleanly: {info}")
    logits = logits_of(model, tokens)
    if not np.isfinite(logits).all():
        raise Refused("logits are not finite")
    entropy = attention_entropy(model, tokens)
    double = logits_of(model.double(), tokens)
    golden["float64"] = float(f"{model_draw.relative_error(logits, double):.2g}")
    golden["entropy"] = round(entropy, 3)
    golden["features"] = []
    for feature in row.features:
        off = feature_logits(row, feature, directory, tokens)
        move = model_draw.relative_error(off, logits)
        golden["features"].append({"name": feature.name, "moves": float(f"{move:.2g}")})
    golden["hub"] = model_hub.make(row, golden)
    golden["hub"]["sum"] = model_draw.checksum_all(model_draw.cut_hub(golden, tensors))
    golden["logits"] = logits
    return golden


def hub_check(golden, keep):
    """Checks the hub form with transformers: returns the error, or why it cannot be computed."""
    directory = keep / (golden["name"] + ".hub")
    tensors = model_draw.draw_all(golden)
    hub = golden["hub"]
    model_draw.write_directory(directory, hub["config"], model_draw.cut_hub(golden, tensors))
    try:
        if hub["config"].get("text_config"):
            cls = getattr(transformers, hub["config"]["architectures"][0])
            model, info = cls.from_pretrained(
                directory, dtype=torch.float32, attn_implementation="eager",
                experts_implementation="eager", output_loading_info=True,
                ignore_mismatched_sizes=True)
            missing = [key for key in info["missing_keys"]
                       if "vision" not in key and "projector" not in key]
        else:
            options = {}
            if "quantization_config" in hub["config"]:
                options["quantization_config"] = transformers.Mxfp4Config(dequantize=True)
            model, info = model_load(directory, **options)
            missing = info["missing_keys"]
    except (ImportError, ValueError, RuntimeError, KeyError, TypeError, AttributeError) as error:
        return None, f"not read: {str(error).splitlines()[0][:60]}"
    if missing:
        return None, f"missing {sorted(missing)[0]}"
    got = logits_of(model.eval().float(), golden["tokens"])
    return model_draw.relative_error(got, golden["logits"]), ""


def report(golden, hub_error, hub_note):
    weak = [f for f in golden["features"] if not f["moves"] >= LEAST_MOVE]
    hub = hub_note if hub_error is None else f"{hub_error:.1e}"
    print(f"{golden['name']:24} float64 {golden['float64']:.1e}  entropy {golden['entropy']:.2f}  "
          f"max {np.abs(golden['logits']).max():6.2f}  hub {hub}")
    for feature in golden["features"]:
        mark = "  <-- too little" if feature in weak else ""
        print(f"    {feature['name']:36} {feature['moves']:.1e}{mark}")
    bad = []
    if weak:
        bad.append("a feature moves too little")
    if golden["float64"] > TOLERANCE / 10:
        bad.append("ill determined")
    if golden["entropy"] > 0.8:
        bad.append("attention is not peaked")
    if hub_error is not None and hub_error > TOLERANCE / 10:
        bad.append("the hub form differs")
    if bad:
        print(f"    REFUSED: {', '.join(bad)}")
    sys.stdout.flush()
    return not bad


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("rows", nargs="*", help="only these rows")
    parser.add_argument("--out", type=Path, default=Path("tests/models"))
    parser.add_argument("--keep", type=Path, help="keep both forms as directories here")
    options = parser.parse_args()
    unknown = set(options.rows) - {row.name for row in model_rows.ROWS}
    if unknown:
        parser.error(f"no such row: {', '.join(sorted(unknown))}")
    failed = []
    with tempfile.TemporaryDirectory() as temporary:
        keep = options.keep or Path(temporary)
        for row in model_rows.ROWS:
            if options.rows and row.name not in options.rows:
                continue
            try:
                golden = row_make(row, keep)
                good = report(golden, *hub_check(golden, keep))
            except Refused as error:
                print(f"{row.name}: REFUSED: {error}")
                good = False
            if not good:
                failed.append(row.name)
                continue
            model_draw.write_golden(options.out / f"{row.name}.json", golden)
    print(f"refused: {', '.join(failed)}" if failed else "all rows are written")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
