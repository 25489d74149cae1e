"""The small files of a model's directory: the template, the tokens it receives, the sampling defaults, and what `radish
info` reports about a model that cannot run.
"""
import json
import shutil

import pytest

from conftest import Server, check_end
from test_directories import FAILED, GGUF, OK, TINY, json_of, output_of, post, radish

FILES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")


@pytest.fixture
def model(tmp_path):
    """A directory whose JSON files a test changes: model("config.json", {"a": 1}, without=("b",))"""
    if not TINY.is_dir():
        pytest.skip(f"there is no model at {TINY}")
    path = tmp_path / "model"
    path.mkdir()
    for name in FILES:
        shutil.copyfile(TINY / name, path / name)

    def change(name=None, members=None, without=()):
        if name:
            file = path / name
            values = json.loads(file.read_text()) if file.exists() else {}
            for key in without:
                values.pop(key, None)
            file.write_text(json.dumps({**values, **(members or {})}))
        return path

    return change


def serve(path, *args):
    return Server("-m", str(path), "--cache-size", "4096t", *args)


# ---- render -----------------------------------------------------------------------------------

TURNS = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"},
         {"role": "user", "content": "Hey"}]


def test_render_gives_what_the_server_gives(model, tmp_path):
    """The model's BOS and EOS are the template's variables, and arguments come as objects."""
    path = model("tokenizer_config.json", {
        "chat_template": "{{ bos_token }}{% for t in tools %}{{ t.function.name }}|{% endfor %}"
                         "{% for m in messages %}{{ m.role }}: {{ m.content }}"
                         "{% for c in m.tool_calls %}{{ c.function.name }}("
                         "{% for k, v in c.function.arguments.items() %}{{ k }}: {{ v }}"
                         "{% endfor %}){% endfor %}{{ eos_token }}{% endfor %}"
                         "{% if add_generation_prompt %}assistant: {{ mood }}{% endif %}"})
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    call = {"id": "abcdefghi", "type": "function",
            "function": {"name": "look", "arguments": "{\"at\": \"sky\"}"}}
    called = TURNS + [{"role": "assistant", "content": "", "tool_calls": [call]},
                      {"role": "tool", "tool_call_id": "abcdefghi", "content": "blue"}]
    server = serve(path)
    for body in ({"messages": TURNS}, {"messages": TURNS[:2]}, {"messages": called, "tools": [tool]},
                 {"messages": TURNS, "add_generation_prompt": False}):
        wanted = post(server, "/apply-template",
                      {**body, "chat_template_kwargs": {"mood": "glad"}})[1]["prompt"]
        (tmp_path / "context.json").write_text(json.dumps({**body, "mood": "glad"}))
        assert output_of("render", "-m", path, "--context", tmp_path / "context.json") == wanted
        assert wanted.startswith("<|start_story|>")
    assert "look(at: sky)" in output_of("render", "-m", path, "--context", "-", stdin=json.dumps(
        {"messages": called, "tools": [tool]}))
    assert output_of("render", "-m", path, "--context", "-", stdin=json.dumps(TURNS)) == output_of(
        "render", "-m", path, "--context", "-", stdin=json.dumps({"messages": TURNS}))
    check_end(server)


def test_render_says_what_is_wrong_with_a_conversation(model):
    path = model("tokenizer_config.json", {"chat_template": "{{ messages[0].content }}"})
    for context, words in (({}, "messages"), ("Hi", 'a JSON object such as {"messages": [...]}'),
                           ({"messages": [{"role": "user"}]}, "content"),
                           ({"messages": TURNS, "bos_token": "x"}, "bos_token")):
        status, _, stderr = radish("render", "-m", path, "--context", "-",
                                   stdin=json.dumps(context))
        assert status == FAILED and words in stderr and stderr.count("\n") == 1


def test_render_takes_the_time(model):
    path = model("tokenizer_config.json", {"chat_template": "{{ strftime_now('%Y') }}"})
    assert output_of("render", "-m", path, "--now", "1999-01-02T03:04:05", "--context", "-",
                     stdin=json.dumps({"messages": TURNS})) == "1999"


# ---- templates that cannot be used ------------------------------------------------------------

def test_a_mangled_template_is_told_in_one_line(model):
    path = model("tokenizer_config.json", {"chat_template": "{% if %}"})
    for command in (("run", "hi"), ("chat",)):
        status, _, stderr = radish(*command, "-m", path)
        assert status == FAILED and stderr.count("\n") == 1, stderr
        assert "chat template cannot be used (line 1" in stderr, stderr
        assert "--chat-template-file" in stderr


# ---- JSON as Python and editors write it ------------------------------------------------------

def test_json_files_may_have_a_mark_and_pythons_constants(model):
    path = model("config.json", {"time_step_limit": [0.0, float("inf")], "x": float("nan")})
    model("generation_config.json", {"limit": float("-inf")})
    for name in ("config.json", "generation_config.json", "tokenizer_config.json"):
        text = (path / name).read_text()
        (path / name).write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert output_of("run", "--raw", "-n", "1", "-m", path, "Once")
    server = serve(path)
    assert post(server, "/v1/completions", {"prompt": "a", "temperature": float("nan")})[0] == 400
    check_end(server)


def test_a_setting_that_is_no_number_is_refused(model):
    path = model("config.json", {"rms_norm_eps": float("nan")})
    status, _, stderr = radish("run", "--raw", "-m", path, "hi")
    assert status == FAILED and "rms_norm_eps" in stderr


# ---- the model's own sampling -----------------------------------------------------------------

def story(path, *args):
    return json_of("run", "--raw", "--json", "-n", "12", "-m", path, *args, "Once upon")["text"]


def test_the_models_sampling_is_the_default_of_run(model):
    """Greedy if the file says so; an option overrides it."""
    path = model()
    greedy = story(path, "--temperature", "0")
    drawn = [story(path, "--temperature", "2", "--top-k", "-1", "--top-p", "1", "--min-p", "0",
                   "--seed", seed) for seed in range(4)]
    model("generation_config.json", {"do_sample": False})
    assert {story(path, "--seed", seed) for seed in range(4)} == {greedy}
    model("generation_config.json", {"temperature": 2, "top_k": -1, "top_p": 1, "min_p": 0},
          without=("do_sample",))
    assert [story(path, "--seed", seed) for seed in range(4)] == drawn
    assert story(path, "--top-k", "1") == greedy


def test_the_models_sampling_is_the_default_of_requests(model):
    path = model("generation_config.json", {"top_k": 1, "top_p": 0.9, "temperature": 3})
    server = serve(path)
    told = json.loads(server.get("/v1/models")[2])["data"][0]["default_sampling"]
    assert told == {"temperature": 0.8, "top_p": 0.9, "top_k": 1, "min_p": 0.05,
                    "repetition_penalty": 1, "presence_penalty": 0, "frequency_penalty": 0}
    assert 'generation_config.json: "temperature" is not a number from 0 to 2' in server.log()
    assert ("sampling defaults: temperature 0.8, top_p 0.9 (model), top_k 1 (model), min_p 0.05\n"
            in server.log())

    def text(**fields):
        return post(server, "/v1/completions", {"prompt": "Once upon", "max_tokens": 12,
                                                **fields})[1]["choices"][0]["text"]

    assert {text(seed=seed) for seed in range(4)} == {text(temperature=0)}
    assert len({text(seed=seed, top_k=0, top_p=1, temperature=2) for seed in range(4)}) > 1
    check_end(server)


def test_options_override_the_models_sampling(model):
    path = model("generation_config.json", {"top_k": 1, "temperature": 0.1})
    server = serve(path, "--temp", "2", "--top-k", "0", "--top-p", "1", "--min-p", "0", "--seed",
                   "7", "--presence-penalty", "0.5", "--frequency-penalty", "-0.5",
                   "--repeat-penalty", "1.1")
    told = json.loads(server.get("/v1/models")[2])["data"][0]["default_sampling"]
    assert told == {"temperature": 2, "top_p": 1, "top_k": 0, "min_p": 0,
                    "repetition_penalty": 1.1, "presence_penalty": 0.5, "frequency_penalty": -0.5}

    def answer(**fields):
        return post(server, "/v1/completions", {"prompt": "Once upon", **fields})[1]

    first = answer()
    assert answer()["choices"][0]["text"] == first["choices"][0]["text"]  # --seed
    assert answer(seed=8)["choices"][0]["text"] != first["choices"][0]["text"]
    check_end(server)


# ---- info -------------------------------------------------------------------------------------

CHAT = "{% for m in messages %}{{ m.content }}{% endfor %}"


def test_info_tells_of_the_tokenizer(model):
    path = model("generation_config.json", {"top_k": 20})
    text = output_of("info", path)
    assert "tokenizer      BPE of 2048 tokens, ends at <|end_story|>\n" in text, text
    assert "sampling       top_k 20\n" in text, text
    told = json_of("info", path, "--json")
    assert told["tokenizer"] and told["tokens"] == 2048 and told["end_tokens"] == ["<|end_story|>"]
    assert told["default_sampling"]["top_k"] == 20


def damage(path, name, text):
    (path / name).write_text(text)


@pytest.mark.parametrize("harm, words", [
    (lambda path: (path / "tokenizer.json").unlink(), "has no tokenizer"),
    (lambda path: damage(path, "tokenizer.json", (path / "tokenizer.json").read_text()[:5000]),
     "tokenizer.json"),
    (lambda path: damage(path, "tokenizer_config.json", "{"), "tokenizer_config.json"),
    (lambda path: damage(path, "generation_config.json", "[]"), "generation_config.json"),
])
def test_info_tells_of_a_tokenizer_that_cannot_be_used(model, harm, words):
    path = model()
    harm(path)
    status, stdout, _ = radish("info", path)
    line = next(line for line in stdout.splitlines() if line.startswith("tokenizer"))
    assert status == OK and line.startswith("tokenizer      missing: ") and words in line, line
    told = json_of("info", path, "--json")
    assert told["tokenizer"] is None and words in told["tokenizer_error"]
    assert not told["chat_template"]


@pytest.mark.parametrize("template, words", [
    (None, "the model has no chat template"),
    ("{% if %}", "the model's chat template cannot be used (line 1"),
    ("<think>{{ raise_exception('no') }}</think>", "unusable: it raises an error"),
    (CHAT, "yes"),
])
def test_info_tells_of_the_template(model, template, words):
    path = model("tokenizer_config.json", {"chat_template": template} if template else {})
    text = output_of("info", path)
    line = next(line for line in text.splitlines() if line.startswith("chat template"))
    assert line.startswith(f"chat template  {words}") and "thinking" not in line, line
    told = json_of("info", path, "--json")
    assert told["chat_template"] == (template == CHAT) and not told["thinking"]


def test_info_tells_of_windows_and_scaling(model):
    path = model("config.json", {"rope_scaling": {
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512}})
    assert "rope scaling   yarn x4\n" in output_of("info", path)
    assert json_of("info", path, "--json")["rope_scaling"] == "yarn x4"
    path = model("config.json", {"model_type": "mistral", "sliding_window": 64,
                                 "architectures": ["MistralForCausalLM"]},
                 without=("rope_scaling",))
    text = output_of("info", path)
    assert "layers see the last 64 tokens\n" in text and "rope scaling" not in text, text
    assert json_of("info", path, "--json")["window"] == 64


@pytest.mark.parametrize("command", [("info",), ("run", "--raw", "hi", "-m")])
def test_a_context_that_cannot_be_had_is_refused(model, command):
    path = model()
    status, _, stderr = radish(*command, path, "-c", "513")
    assert status != OK and "use -c 512 or less" in stderr, stderr
    if command[0] == "run":
        status, _, stderr = radish(*command, path, "-c", "1")
        assert status != OK and "-c 1 leaves no room for an answer" in stderr, stderr


# ---- templates for tools ----------------------------------------------------------------------

TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
TOOL_CHAT = ("{% for t in tools %}[{{ t.function.name }}]{% endfor %}" + CHAT +
             "{% for m in messages %}{% for c in m.tool_calls %}<tool_call>\n"
             "{\"name\": \"{{ c.function.name }}\", \"arguments\": {{ c.function.arguments }}}\n"
             "</tool_call>{% endfor %}{% endfor %}")


@pytest.mark.parametrize("place", ["list", "file"])
def test_a_template_for_tools_is_used_with_tools(model, place):
    """As transformers does; the system prompt then gets no tools."""
    path = model("tokenizer_config.json", {"chat_template": CHAT})
    body = {"messages": TURNS}
    plain, untold = CHAT, output_of("render", "-m", path, "--context", "-",
                                    stdin=json.dumps({**body, "tools": [TOOL]}))
    assert "look" in untold and "[look]" not in untold
    if place == "list":
        model("tokenizer_config.json", {"chat_template": [
            {"name": "tool_use", "template": TOOL_CHAT}, {"name": "default", "template": plain}]})
    else:
        (path / "additional_chat_templates").mkdir()
        (path / "additional_chat_templates/tool_use.jinja").write_text(TOOL_CHAT)
    assert ", tools (hermes, with a template of their own)" in output_of("info", path)
    assert json_of("info", path, "--json")["tools"]
    server = serve(path)
    for tools, wanted in (([], "HiHoHey"), ([TOOL], "[look]HiHoHey")):
        status, answer = post(server, "/apply-template", {**body, "tools": tools})
        assert status == 200 and answer["prompt"] == wanted
        assert output_of("render", "-m", path, "--context", "-",
                         stdin=json.dumps({**body, "tools": tools})) == wanted
    check_end(server)


def test_a_template_for_tools_that_shows_none_is_not_used(model):
    path = model("tokenizer_config.json", {"chat_template": [
        {"name": "default", "template": TOOL_CHAT}, {"name": "tool_use", "template": "{{ 1 }}"}]})
    status, stdout, stderr = radish("render", "-m", path, "--context", "-", stdin=json.dumps(
        {"messages": TURNS, "tools": [TOOL]}))
    assert status == OK and stdout == "[look]HiHoHey" and "is not used: it does not render them" in stderr


# ---- paths ------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json", "", "//"])
def test_a_file_of_a_model_means_its_directory(model, name):
    path = f"{model()}/{name}"
    assert json_of("info", path, "--json")["name"] == "model"
    assert output_of("tokenize", "-m", path, stdin="Once")
    assert output_of("run", "--raw", "-n", "1", "-m", path, "Once")


def test_messages_have_one_slash(model):
    path = model()
    (path / "config.json").write_text("{")
    stderr = radish("info", f"{path}//")[2]
    assert f"{path}/config.json" in stderr, stderr


@pytest.mark.parametrize("name", ["Qwen/Qwen3-4B", "llama3.2:3b", "qwen3",
                                  "https://huggingface.co/Qwen/Qwen3-4B"])
def test_a_name_of_the_web_is_told_that_nothing_is_downloaded(name):
    for command in (("info",), ("run", "hi", "-m"), ("tokenize", "-m")):
        status, _, stderr = radish(*command, name)
        assert status == FAILED and stderr.count("\n") == 1, stderr
        assert "radish does not download models" in stderr and "GGUF" in stderr, stderr


def test_a_cache_of_hugging_face(model, tmp_path):
    """For the directory or a snapshot in it, the model's name is shown, not the commit's."""
    cache = tmp_path / "models--some-one--Tiny-1"
    snapshot = cache / "snapshots" / "0123abcd"
    (cache / "refs").mkdir(parents=True)
    snapshot.parent.mkdir()
    shutil.copytree(model(), snapshot)
    (cache / "refs" / "main").write_text("0123abcd\n")
    for path in (cache, f"{cache}/", snapshot, f"{snapshot}/config.json"):
        assert json_of("info", path, "--json")["name"] == "Tiny-1"
    server = serve(cache)
    assert json.loads(server.get("/v1/models")[2])["data"][0]["id"] == "Tiny-1"
    check_end(server)
    (cache / "refs" / "main").unlink()
    status, _, stderr = radish("info", cache)
    assert status == FAILED and "refs/main" in stderr


# ---- --quantize -------------------------------------------------------------------------------

@pytest.mark.skipif(not GGUF.is_file(), reason=f"there is no model at {GGUF}")
def test_weights_that_are_quantised_already_are_told(tmp_path):
    out = tmp_path / "q8.gguf"
    assert radish("quantize", GGUF, out, "--type", "q8_0")[0] == OK
    run = ("run", "--raw", "-n", "1", "hi", "-m")
    status, _, stderr = radish(*run, out, "--quantize", "q4_0")
    assert status == OK and "are already quantized and stay as they are" in stderr, stderr
    assert "f32, f16 or bf16" in stderr and stderr.count("--quantize Q4_0") == 1
    for wanted in ("q8_0", "f16"):
        assert "already quantized" not in radish(*run, out, "--quantize", wanted)[2]
    assert json_of("info", out, "--json")["quantization"] == "Q8_0"
    assert "already quantized" not in radish(*run, GGUF, "--quantize", "q4_0")[2]
