"""llama-server's own API, as its clients use it: /completion, /infill, /props, /slots, /tokenize."""
import json
import os
import shutil
import threading
import time
from pathlib import Path

import pytest

from conftest import Server, check_end

ROOT = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("RADISH_SHARED", ROOT.parent / "shared"))
TINY = SHARED / "data/models/TinyStories-656K"
TIMINGS = {"cache_n", "prompt_n", "prompt_ms", "prompt_per_token_ms", "prompt_per_second",
           "predicted_n", "predicted_ms", "predicted_per_token_ms", "predicted_per_second"}


def post(server, path, body, status=200):
    got, _, text = server.get(path, {"Content-Type": "application/json"}, "POST", json.dumps(body))
    assert got == status, text
    return json.loads(text)


def stream(server, path, body):
    status, headers, text = server.get(path, {"Content-Type": "application/json"}, "POST",
                                       json.dumps({**body, "stream": True}))
    assert status == 200 and headers["content-type"].startswith("text/event-stream"), text
    return [json.loads(line[6:]) for line in text.decode().split("\n\n") if line.startswith("data: {")]


ASK = {"prompt": "Once", "n_predict": 6, "seed": 7, "ignore_eos": True}


def test_a_completion_tells_all_of_itself(mock):
    answer = post(mock, "/completion", {**ASK, "return_tokens": True, "n_probs": 2, "stop": ["\0no"]})
    assert answer["stop"] is True and answer["stop_type"] == "limit"
    assert len(answer["content"].encode()) >= 6 and len(answer["tokens"]) == 6
    assert answer["tokens_predicted"] == 6 and answer["tokens_evaluated"] == 4
    assert answer["truncated"] is False and answer["stopping_word"] == ""
    assert answer["prompt"] == "Once" and set(answer["timings"]) == TIMINGS
    assert answer["timings"]["prompt_n"] + answer["timings"]["cache_n"] == 4
    assert answer["timings"]["predicted_n"] == 6
    settings = answer["generation_settings"]
    assert settings["seed"] == 7 and settings["n_predict"] == 6 and settings["stop"] == ["\0no"]
    assert settings["n_probs"] == 2 and all(bias["bias"] is None for bias in settings["logit_bias"])
    assert [p["id"] for p in answer["completion_probabilities"]] == answer["tokens"]
    assert all(len(p["top_logprobs"]) == 2 for p in answer["completion_probabilities"])
    # The reported seed gives the same text again.
    first = post(mock, "/completion", {"prompt": "Once", "n_predict": 6})
    again = post(mock, "/completion", {"prompt": "Once", "n_predict": 6,
                                       "seed": first["generation_settings"]["seed"]})
    assert again["content"] == first["content"]


def test_prompts_of_every_form(mock):
    text = post(mock, "/completion", ASK)["content"]
    ids = post(mock, "/tokenize", {"content": "Once"})["tokens"]
    for prompt in (ids, [ids[0], "nce"], ["O", *ids[1:]], {"prompt_string": "Once"}):
        assert post(mock, "/completion", {**ASK, "prompt": prompt})["content"] == text
    both = post(mock, "/completion", {**ASK, "prompt": [ids, "Once", {"prompt_string": "Twice"}]})
    assert [answer["index"] for answer in both] == [0, 1, 2]
    assert both[0]["content"] == both[1]["content"] == text and both[2]["prompt"] == "Twice"
    error = post(mock, "/completion", {**ASK, "prompt": [1, 99999]}, 400)["error"]
    assert error["param"] == "prompt" and "99999" in error["message"]


def test_streams_have_the_same_text(mock):
    whole = post(mock, "/completion", {**ASK, "return_tokens": True})
    events = stream(mock, "/completion", ASK)
    assert all(event["stop"] is False for event in events[:-1])
    assert "".join(event["content"] for event in events) == whole["content"]
    assert sum((event["tokens"] for event in events), []) == whole["tokens"]
    assert events[-1]["stop"] is True and events[-1]["generation_settings"]["stream"] is True
    assert set(events[-1]["timings"]) == TIMINGS and "timings" not in events[0]
    events = stream(mock, "/completion", {**ASK, "timings_per_token": True, "n_probs": 1})
    assert all("timings" in event for event in events)
    assert sum(len(event.get("completion_probabilities", [])) for event in events) == 6


def test_what_ends_a_text(mock):
    text = post(mock, "/completion", {**ASK, "n_predict": 40})["content"]
    assert post(mock, "/completion", {**ASK, "n_predict": 0})["content"] == ""
    answer = post(mock, "/completion", {**ASK, "n_predict": 40, "stop": [text[20:23]]})
    assert answer["stop_type"] == "word" and answer["stopping_word"] == text[20:23]
    assert text.startswith(answer["content"]) and len(answer["content"]) <= 20
    ids = post(mock, "/completion", {**ASK, "n_predict": 40, "return_tokens": True})["tokens"]
    answer = post(mock, "/completion", {**ASK, "n_predict": 40, "return_tokens": True,
                                        "stop_token_ids": [ids[9], 3]})
    n = ids.index(ids[9])
    assert answer["tokens"] == ids[:n + 1] and answer["stop_type"] == "eos"
    long = post(mock, "/completion", {**ASK, "stop": [f"stop {i}" for i in range(128)]})
    assert len(long["generation_settings"]["stop"]) == 128
    line = post(mock, "/completion", {**ASK, "n_predict": 200, "grammar": 'root ::= "a\\n    b\\nc d"',
                                      "n_indent": 4, "ignore_eos": False})
    assert line["content"] == "a\n    b\n" and line["stop_type"] == "limit"
    late = post(mock, "/completion", {**ASK, "n_predict": 200, "ignore_eos": False,
                                      "grammar": 'root ::= "a\\nb"', "t_max_predict_ms": 60000})
    assert late["content"] == "a\nb" and late["has_new_line"] is True


def test_a_time_limit_ends_at_a_line(slow):
    ask = {"prompt": "x", "grammar": 'root ::= "a\\n" "bbbbbbbbbbbbbbbbbbbb\\n" "c"', "seed": 1}
    assert post(slow, "/completion", ask)["content"].endswith("c")
    answer = post(slow, "/completion", {**ask, "t_max_predict_ms": 20})
    assert answer["content"] == "a\n" + 20 * "b" + "\n" and answer["stop_type"] == "limit"


def test_response_fields(mock):
    answer = post(mock, "/completion", {**ASK, "response_fields": [
        "content", "timings/predicted_n", "generation_settings/n_predict", "nothing", "content/x"]})
    assert set(answer) == {"content", "timings/predicted_n", "generation_settings/n_predict"}
    assert answer["timings/predicted_n"] == 6
    assert post(mock, "/completion", {**ASK, "response_fields": [""]}) == {}
    assert stream(mock, "/completion", {**ASK, "response_fields": ["stop"]})[-1] == {"stop": True}


def test_the_context_is_the_limit(start):
    server = start("-c", "64")
    answer = post(server, "/completion", {"prompt": "Once", "n_predict": -1, "ignore_eos": True})
    assert answer["truncated"] is True and answer["tokens_predicted"] == 60
    error = post(server, "/completion", {"prompt": "x" * 80}, 400)["error"]
    assert error["type"] == "exceed_context_size_error" and error["code"] == "context_length_exceeded"
    assert error["n_prompt_tokens"] == 80 and error["n_ctx"] == 64
    assert "exceeds the available context size" in error["message"]
    chat = {"messages": [{"role": "user", "content": "x" * 80}]}
    for path, kind in (("/chat/completions", "exceed_context_size_error"),
                       ("/v1/chat/completions", "invalid_request_error")):
        error = post(server, path, chat, 400)["error"]
        assert error["type"] == kind and error["code"] == "context_length_exceeded"
        assert error["n_prompt_tokens"] >= 80 and error["n_ctx"] == 64
        assert "maximum context length" in error["message"]


def test_errors_have_llama_servers_types(start):
    server = start("--api-key", "one")
    for path, kind in (("/completion", "authentication_error"), ("/props", "authentication_error"),
                       ("/v1/completions", "invalid_request_error")):
        method = "GET" if path == "/props" else "POST"
        status, _, text = server.get(path, {"Content-Type": "application/json"}, method,
                                     None if method == "GET" else "{}")
        assert status == 401 and json.loads(text)["error"]["type"] == kind
        assert json.loads(text)["error"]["code"] == "invalid_api_key"


def test_counting_tokens(start):
    server = start("-c", "64")
    chat = {"messages": [{"role": "user", "content": "Hello there"}]}
    for path in ("/chat/completions/input_tokens", "/v1/chat/completions/input_tokens"):
        n = post(server, path, chat)["input_tokens"]
        assert n == post(server, "/v1/chat/completions", {**chat, "max_tokens": 1})["usage"]["prompt_tokens"]
    prompt = post(server, "/apply-template", chat)["prompt"]
    assert n == post(server, "/tokenize", {"content": prompt})["count"]
    assert post(server, path, {**chat, "add_generation_prompt": False})["input_tokens"] < n
    # More than fits is counted, unless it is far more.
    long = [{"role": "user", "content": "x" * 100}]
    assert post(server, path, {"messages": long})["input_tokens"] > 100
    far = [{"role": "user", "content": "x" * 1_000_000}]
    assert post(server, path, {"messages": far}, 400)["error"]["code"] == "context_length_exceeded"
    assert post(server, path, {}, 400)["error"]["param"] == "messages"
    assert server.get("/health")[0] == 200


def test_dates_in_templates(start, tmp_path):
    template = tmp_path / "dates.jinja"
    template.write_text("{{ date_string }}|{{ datetime }}|{{ messages[0].content }}")
    server = start("--chat-template-file", str(template))
    chat = {"messages": [{"role": "user", "content": "x"}]}
    before = time.localtime()
    prompt = post(server, "/apply-template", chat)["prompt"]
    days = {time.strftime("%d %b %Y|%b %d %Y|x", when) for when in (before, time.localtime())}
    assert prompt in days
    chat["chat_template_kwargs"] = {"date_string": "1 Jan 1970"}
    assert post(server, "/apply-template", chat)["prompt"].startswith("1 Jan 1970|")


def test_functions_in_templates(start, tmp_path):
    """Firefunction's template takes the tools as a text, and fails without it."""
    template = tmp_path / "functions.jinja"
    template.write_text("{{ 'F' + functions + messages[0].content + datetime }}")
    server = start("--chat-template-file", str(template))
    chat = {"messages": [{"role": "user", "content": "x"}]}
    assert post(server, "/apply-template", chat)["prompt"].startswith("Fx")
    tools = [{"type": "function", "function": {"name": "f", "description": "g"}}]
    prompt = post(server, "/apply-template", {**chat, "tools": tools})["prompt"]
    assert json.loads(prompt[1 : prompt.index("]x") + 1]) == tools


def test_verbose_answers_show_the_prompt(mock):
    chat = {"messages": [{"role": "user", "content": "Hello there"}], "max_tokens": 4, "seed": 1}
    answer = post(mock, "/v1/chat/completions", {**chat, "verbose": True, "n": 2})
    more = answer["__verbose"]
    assert more["prompt"] == post(mock, "/apply-template", chat)["prompt"]
    assert more["content"] == answer["choices"][0]["message"]["content"]
    assert more["generation_settings"]["n_predict"] == 4 and more["tokens_predicted"] == 4
    more = post(mock, "/v1/chat/completions", {**chat, "verbose": True, "logprobs": True})
    assert len(more["__verbose"]["completion_probabilities"]) == 4
    assert 0 <= more["__verbose"]["generation_settings"]["seed"] < 1 << 32
    assert "__verbose" not in post(mock, "/v1/chat/completions", {**chat, "verbose": False})
    text = post(mock, "/v1/completions", {"prompt": "Once", "verbose": True, "best_of": 3,
                                          "max_tokens": 3})
    assert text["__verbose"]["content"] == text["choices"][0]["text"]


def test_probabilities_after_sampling(mock):
    ask = {**ASK, "n_probs": 5, "post_sampling_probs": True, "temperature": 1.0}
    answer = post(mock, "/completion", {**ask, "top_k": 3, "top_p": 1, "min_p": 0})
    assert answer["generation_settings"]["post_sampling_probs"] is True
    for item in answer["completion_probabilities"]:
        assert "logprob" not in item and 0 < item["prob"] <= 1
        assert len(item["top_probs"]) == 3 and item["id"] in [top["id"] for top in item["top_probs"]]
        assert sum(top["prob"] for top in item["top_probs"]) == pytest.approx(1)
    greedy = post(mock, "/completion", {**ask, "temperature": 0})
    assert all(item["prob"] == 1 and len(item["top_probs"]) == 1
               for item in greedy["completion_probabilities"])
    # XTC cuts differently for each choice, which are all drawn in the same step.
    xtc = {**ask, "n_predict": 1, "n_cmpl": 4, "xtc_probability": 0.5, "xtc_threshold": 0.05}
    for seed in range(8):
        for choice in post(mock, "/completion", {**xtc, "seed": seed}):
            (item,) = choice["completion_probabilities"]
            assert item["prob"] > 0
            assert sum(top["prob"] for top in item["top_probs"]) == pytest.approx(1) or (
                len(item["top_probs"]) == 5)
    events = stream(mock, "/completion", ask)
    assert all("top_probs" in item for event in events
               for item in event.get("completion_probabilities", []))
    error = post(mock, "/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}],
                                                  "post_sampling_probs": True}, 400)
    assert error["error"]["param"] == "post_sampling_probs"


def test_several_names(start):
    server = start("--alias", "tiny, fim ,code", "--strict-model")
    model = json.loads(server.get("/v1/models")[2])["data"][0]
    assert model["id"] == "tiny" and model["aliases"] == ["tiny", "fim", "code"]
    for name, status in (("tiny", 200), ("code", 200), ("fim:latest", 200), ("cod", 404),
                         ("fim,code", 404), ("", 404)):
        answer = post(server, "/v1/completions", {"model": name, "prompt": "a"}, status)
        assert status != 200 or answer["model"] == "tiny"
    assert "only 'tiny' (other names: fim,code)" in answer["error"]["message"]


def test_progress(start):
    server = start("--step-budget-ms", "1", "--mock-row-cost-us", "100")
    body = {"messages": [{"role": "user", "content": "x" * 600}], "max_tokens": 2,
            "return_progress": True}
    for _ in range(2):
        events = stream(server, "/v1/chat/completions", body)
        reports = [e["prompt_progress"] for e in events if "prompt_progress" in e]
        assert reports[0]["processed"] == reports[0]["cache"]
        assert reports[-1]["processed"] == reports[-1]["total"] > 600
        done = [report["processed"] for report in reports]
        assert done == sorted(set(done)) and len({r["cache"] for r in reports}) == 1
    assert reports[0]["cache"] == reports[0]["total"] - 1


def test_props_and_slots(start):
    server = start("--max-seqs", "3", "-c", "512", "--mock-batch-cost-us", "5000")
    props = json.loads(server.get("/props")[2])
    assert props["total_slots"] == 3 and props["default_generation_settings"]["n_ctx"] == 512
    assert "im_start" in props["chat_template"] and props["modalities"]["vision"] is False
    assert props["default_generation_settings"]["params"]["samplers"][0] == "penalties"
    slots = json.loads(server.get("/slots")[2])
    assert [slot["id"] for slot in slots] == [0, 1, 2]
    assert not any(slot["is_processing"] for slot in slots)
    asking = threading.Thread(target=post, args=(server, "/completion", {
        "prompt": "SECRET", "n_predict": 200, "ignore_eos": True}))
    asking.start()
    deadline = time.monotonic() + 20
    while not any(slot["is_processing"] for slot in slots) and time.monotonic() < deadline:
        text = server.get("/slots")[2]
        slots = json.loads(text)
    busy = [slot for slot in slots if slot["is_processing"]]
    assert len(busy) == 1 and busy[0]["n_prompt_tokens"] == 6 and b"SECRET" not in text
    asking.join()


@pytest.mark.parametrize("options, seed", [([], 0xffffffff), (["--seed", "42"], 42)])
def test_props_show_the_servers_seed(start, options, seed):
    props = json.loads(start(*options).get("/props")[2])
    assert props["default_generation_settings"]["params"]["seed"] == seed


def test_slots_are_the_operators(start):
    server = start("--api-key", "a:one", "--api-key", "b:two", "--admin-key", "boss")
    assert server.get("/slots", {"Authorization": "Bearer one"})[0] == 403
    assert server.get("/slots", {"Authorization": "Bearer boss"})[0] == 200
    assert server.get("/props", {"Authorization": "Bearer one"})[0] == 200
    assert server.get("/props")[0] == 401


def test_texts_and_tokens_are_mixed(mock):
    tokens = post(mock, "/tokenize", {"content": ["ab", 99, "d"]})["tokens"]
    assert tokens == [97, 98, 99, 100]
    assert post(mock, "/detokenize", {"tokens": tokens})["content"] == "abcd"
    assert post(mock, "/tokenize", {"content": [1, -1]}, 400)["error"]["param"] == "content"
    assert post(mock, "/tokenize", {"content": [99999]}, 400)["error"]["param"] == "content"


# ---- fill-in-the-middle ----

FIM = ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|repo_name|>", "<|file_sep|>"]


@pytest.fixture(scope="module")
def coder(tmp_path_factory):
    """A small model whose last five tokens are those of fill-in-the-middle."""
    if not TINY.is_dir():
        pytest.skip(f"there is no model at {TINY}")
    directory = tmp_path_factory.mktemp("coder")
    for file in TINY.iterdir():
        shutil.copy(file, directory)
    path = directory / "tokenizer.json"
    os.chmod(path, 0o644)
    data = json.loads(path.read_text(encoding="utf-8"))
    vocabulary, merges = data["model"]["vocab"], data["model"]["merges"]
    pairs = [merge.split(" ") if isinstance(merge, str) else merge for merge in merges]
    parts = {part for pair in pairs for part in pair}
    leaves = [token for token in vocabulary if token not in parts][-len(FIM):]
    data["model"]["merges"] = [m for m, pair in zip(merges, pairs) if "".join(pair) not in leaves]
    for leaf, name in zip(leaves, FIM):
        vocabulary[name] = vocabulary.pop(leaf)
        data["added_tokens"].append({"id": vocabulary[name], "content": name, "special": True,
                                     "single_word": False, "lstrip": False, "rstrip": False,
                                     "normalized": False})
    path.write_text(json.dumps(data), encoding="utf-8")
    server = Server("-m", str(directory))
    yield server
    check_end(server)


def test_infill(coder):
    body = {"input_prefix": "Tom had\n", "input_suffix": "dog.", "prompt": "a big ", "n_predict": 4,
            "input_extra": [{"filename": "f.txt", "text": "Lily ran."}, {"text": "The end"}],
            "samplers": ["top_k", "top_p", "infill"], "top_k": 40, "top_p": 0.9, "n_indent": 0,
            "cache_prompt": True, "t_max_prompt_ms": 500, "t_max_predict_ms": 1000, "id_slot": 0}
    answer = post(coder, "/infill", body)
    prompt = answer["prompt"]
    # A context of 512 tokens leaves no room for files.
    assert "Lily" not in prompt and "Tom had\n" in prompt
    assert prompt.index("<|fim_prefix|>") < prompt.index("a big") < prompt.index("<|fim_suffix|>")
    assert prompt.index("<|fim_suffix|>") < prompt.index("dog.") and prompt.endswith(FIM[2])
    assert answer["timings"]["predicted_n"] == answer["tokens_predicted"] <= 4
    # The request with which llama.vim warms the cache, and its next one.
    warm = {**body, "prompt": "One day ", "n_predict": 0, "samplers": [], "temperature": 0.0,
            "response_fields": [""], "input_prefix": "Max ran to the park. " * 9}
    assert post(coder, "/infill", warm) == {}
    got = post(coder, "/infill", {**warm, "prompt": "One day Max", "n_predict": 2,
                                  "response_fields": ["timings/cache_n", "truncated"]})
    assert got["timings/cache_n"] > 10 and got["truncated"] is False


def test_long_infills_fit(coder):
    body = {"input_prefix": "Tom had a dog. " * 300, "input_suffix": "The end. " * 300,
            "n_predict": 2, "input_extra": [{"text": "Lily ran away. " * 300}]}
    answer = post(coder, "/infill", body)
    context = json.loads(coder.get("/props")[2])["default_generation_settings"]["n_ctx"]
    assert answer["tokens_evaluated"] < context
    assert "<|fim_prefix|>" in answer["prompt"] and answer["prompt"].endswith("<|fim_middle|>")


def test_an_infill_needs_its_prefix(coder):
    for body in ({"prompt": "x", "input_suffix": "a"},
                 {"prompt": "x", "input_prefix": None, "input_suffix": "a"}):
        assert post(coder, "/infill", body, 400)["error"]["param"] == "input_prefix"
    assert post(coder, "/infill", {"input_prefix": "", "input_suffix": "", "n_predict": 1})["stop"]


def test_huge_texts_do_not_keep_a_worker_busy(coder, mock):
    """Texts that are far too long are truncated or rejected before they are tokenized."""
    huge = " " * 12_000_000
    tool = {"type": "function", "function": {"name": "f", "description": huge}}
    chat = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
    began = time.monotonic()
    answer = post(coder, "/infill", {"input_prefix": huge + "\nTom", "input_suffix": "dog" + huge,
                                     "n_predict": 1})
    assert "\nTom<|fim_suffix|> dog" in answer["prompt"]
    post(coder, "/infill", {"input_prefix": "a", "input_suffix": "b", "n_predict": 1,
                            "input_extra": [{"text": huge}]})
    error = post(coder, "/infill", {"input_prefix": "", "input_suffix": "", "prompt": huge}, 400)
    assert error["error"]["code"] == "context_length_exceeded"
    assert "at most 1048576" in post(coder, "/tokenize", {"content": huge}, 413)["error"]["message"]
    assert post(coder, "/tokenize", {"content": ["a b " * 200_000, 5]})["count"] > 200_000
    error = post(coder, "/completion", {"prompt": "a", "logit_bias": [[huge, 1]]}, 400)
    assert error["error"]["param"] == "logit_bias"
    for more in ({"tools": [tool]}, {"functions": [tool["function"]]}):
        error = post(mock, "/v1/chat/completions", {**chat, **more}, 400)["error"]
        assert error["code"] == "context_length_exceeded"
    assert time.monotonic() - began < 20


def test_ids_and_lists(mock):
    # One prompt that begins with a text, not 301 prompts.
    ids = post(mock, "/tokenize", {"content": "a" * 300})["tokens"]
    answer = post(mock, "/completion", {"prompt": ["a", *ids], "n_predict": 1})
    assert answer["tokens_evaluated"] == 301
    error = post(mock, "/completion", {**ASK, "stop_token_ids": [1, 999999]}, 400)["error"]
    assert error["param"] == "stop_token_ids" and "999999" in error["message"]
    assert post(mock, "/completion", {**ASK, "stop_token_ids": [1]})["stop"] is True


def test_suffix(coder, mock):
    answer = post(coder, "/v1/completions", {"prompt": "Tom had ", "suffix": " dog.",
                                             "max_tokens": 3, "echo": True})
    assert answer["choices"][0]["text"].startswith("Tom had ")
    plain = post(coder, "/v1/completions", {"prompt": "Tom had ", "max_tokens": 3})
    assert answer["usage"]["prompt_tokens"] > plain["usage"]["prompt_tokens"] + 2
    for server, path, body, param in (
            (mock, "/v1/completions", {"prompt": "a", "suffix": "b"}, "suffix"),
            (coder, "/v1/completions", {"prompt": [1, 2], "suffix": "b"}, "suffix")):
        error = post(server, path, body, 400)["error"]
        assert error["param"] == param
    assert "fill-in-the-middle" in post(mock, "/infill", {"input_prefix": "", "input_suffix": ""},
                                        501)["error"]["message"]
