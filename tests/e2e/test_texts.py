"""Text completions, tokens and rendered prompts; log probabilities, biases and continuations."""
import json
import math

import openai
import pytest

HELLO = [{"role": "user", "content": "Say hello."}]


def complete(server, prompt="Once upon a time", **options):
    options = {"max_tokens": 12, "seed": 1, "temperature": 0, **options}
    return server.client().completions.create(model="any", prompt=prompt, **options)


def chat(server, messages=HELLO, **options):
    options = {"max_tokens": 12, "seed": 1, "temperature": 0, **options}
    return server.client().chat.completions.create(model="any", messages=messages, **options)


def post(server, path, body):
    status, _, text = server.get(path, {"Content-Type": "application/json"}, "POST",
                                 json.dumps(body))
    return status, json.loads(text)


# ---- text completions ----

def test_a_text_is_continued(server):
    answer = complete(server)
    assert answer.object == "text_completion" and answer.id.startswith("cmpl-")
    assert answer.choices[0].text
    assert answer.usage.completion_tokens <= 12
    chunks = list(complete(server, stream=True))
    assert "".join(c.choices[0].text for c in chunks) == answer.choices[0].text
    assert chunks[-1].choices[0].finish_reason == answer.choices[0].finish_reason


def test_the_default_is_sixteen_tokens(server):
    answer = server.client().completions.create(model="any", prompt="a",
                                                extra_body={"ignore_eos": True})
    assert answer.usage.completion_tokens == 16
    assert answer.choices[0].finish_reason == "length"


def test_tokens_as_a_prompt(server):
    tokens = post(server, "/tokenize", {"content": "Once upon a time", "add_special": True})[1]
    assert complete(server, tokens["tokens"]).choices[0].text == complete(server).choices[0].text


def test_several_prompts(server):
    prompts = ["The sky is", "Radishes are", "One, two,"]
    alone = [complete(server, prompt).choices[0].text for prompt in prompts]
    together = complete(server, prompts)
    assert [choice.text for choice in together.choices] == alone
    assert [choice.index for choice in together.choices] == [0, 1, 2]
    pairs = complete(server, prompts, n=2, temperature=1)
    assert len(pairs.choices) == 6
    assert pairs.usage.prompt_tokens == together.usage.prompt_tokens
    chunks = list(complete(server, prompts, stream=True))
    for i, text in enumerate(alone):
        assert "".join(c.choices[0].text for c in chunks if c.choices[0].index == i) == text


def test_echo(server):
    plain = complete(server)
    assert complete(server, echo=True).choices[0].text == "Once upon a time" + plain.choices[0].text
    only = complete(server, echo=True, max_tokens=0)
    assert only.choices[0].text == "Once upon a time"
    assert only.usage.completion_tokens == 0


def test_log_probabilities_of_a_text(server):
    answer = complete(server, logprobs=3)
    lists = answer.choices[0].logprobs
    n = len(lists.tokens)
    assert n == len(lists.token_logprobs) == len(lists.top_logprobs) == len(lists.text_offset)
    assert "".join(lists.tokens) == answer.choices[0].text
    assert all(value <= 0 for value in lists.token_logprobs)
    for token, value, top in zip(lists.tokens, lists.token_logprobs, lists.top_logprobs):
        assert token in top and len(top) == 3 and math.isclose(max(top.values()), value, abs_tol=1e-5)  # greedy
    offset = 0
    for token, at in zip(lists.tokens, lists.text_offset):
        assert at == offset
        offset += len(token)


def test_log_probabilities_of_a_prompt(server):
    """A text has the same score whether it was given or generated."""
    answer = complete(server, logprobs=0)
    text = answer.choices[0].text
    tokens = post(server, "/tokenize", {"content": "Once upon a time", "add_special": True})[1]
    generated = [post(server, "/tokenize", {"content": token})[1]["tokens"]
                 for token in answer.choices[0].logprobs.tokens]
    ids = tokens["tokens"] + [i for part in generated for i in part]
    scored = complete(server, ids, logprobs=0, echo=True, max_tokens=0).choices[0]
    assert scored.text.endswith(text)
    values = scored.logprobs.token_logprobs
    assert values[0] is None and len(values) == len(ids)
    assert all(len(part) == 1 for part in generated), "the answer does not tokenise to the sampled tokens: choose another prompt"
    assert values[len(tokens["tokens"]):] == answer.choices[0].logprobs.token_logprobs


def test_log_probabilities_of_several_choices(server):
    one = complete(server, logprobs=2, echo=True)
    two = complete(server, logprobs=2, echo=True, n=2)
    assert len(two.choices) == 2
    for choice in two.choices:
        assert choice.text == one.choices[0].text  # greedy
        assert choice.logprobs == one.choices[0].logprobs


def test_what_a_text_cannot_have(server):
    for options, param in (({"suffix": "x"}, "suffix"), ({"best_of": 2, "n": 3}, "best_of"),
                           ({"logprobs": 21}, "logprobs"), ({"prompt": []}, "prompt"),
                           ({"prompt": [10**9]}, "prompt"), ({"prompt": "x" * 10**6}, "prompt")):
        with pytest.raises(openai.BadRequestError) as caught:
            complete(server, **options)
        assert caught.value.param == param


# ---- log probabilities and biases of chats ----

def test_log_probabilities_of_an_answer(server):
    answer = chat(server, logprobs=True, top_logprobs=4)
    content = answer.choices[0].logprobs.content
    text = answer.choices[0].message.content
    assert b"".join(bytes(item.bytes) for item in content).decode() == text
    for item in content:
        assert item.logprob <= 0 and len(item.top_logprobs) == 4
        values = [top.logprob for top in item.top_logprobs]
        assert values == sorted(values, reverse=True)
        assert item.top_logprobs[0].token == item.token  # greedy
    streamed = [item for chunk in chat(server, logprobs=True, top_logprobs=4, stream=True)
                for choice in chunk.choices if choice.logprobs
                for item in choice.logprobs.content]
    assert streamed == content
    plain = chat(server, logprobs=True).choices[0].logprobs.content
    assert [item.logprob for item in plain] == [item.logprob for item in content]
    assert all(item.top_logprobs == [] for item in plain)


def test_log_probabilities_end_where_the_text_does(server):
    text = chat(server, max_tokens=30).choices[0].message.content
    stop = text[6:9]
    choice = chat(server, max_tokens=30, stop=stop, logprobs=True).choices[0]
    spelled = b"".join(bytes(item.bytes) for item in choice.logprobs.content).decode()
    assert spelled.startswith(choice.message.content)
    assert len(spelled) - len(choice.message.content) < 12


def test_logit_bias(server):
    first = chat(server, logprobs=True).choices[0].logprobs.content[0]
    banned = post(server, "/tokenize", {"content": first.token})[1]["tokens"][0]
    other = chat(server, logprobs=True, logit_bias={str(banned): -100}).choices[0]
    assert banned not in [post(server, "/tokenize", {"content": item.token})[1]["tokens"][0]
                          for item in other.logprobs.content]
    forced = post(server, "/tokenize", {"content": "x"})[1]["tokens"][0]
    answer = chat(server, logit_bias={str(forced): 100}, max_tokens=5)
    assert answer.choices[0].message.content == "xxxxx"


def test_logit_bias_of_texts(server, mock):
    """llama-server's forms: a text as the key, or pairs; each token of the text is biased."""
    prompt = {"prompt": "a", "n_predict": 5, "temperature": 0}
    for form in ({"x": 100}, [["x", 100]]):
        assert chat(server, max_tokens=5, extra_body={"logit_bias": form}
                    ).choices[0].message.content == "xxxxx"
        assert post(server, "/completion", {**prompt, "logit_bias": form})[1]["content"] == "xxxxx"
    settings = post(server, "/completion", {**prompt, "logit_bias": [["Hello you", -1], [7, 2]]})[1]
    tokens = post(server, "/tokenize", {"content": "Hello you"})[1]["tokens"]
    biases = settings["generation_settings"]["logit_bias"]
    assert biases == [{"token": 7, "bias": 2}] + [{"token": t, "bias": -1} for t in tokens]
    for text, status in (("z" * 4095, 200), ("z" * 4096, 400)):  # the mock's tokens are bytes
        body = {**prompt, "n_predict": 1, "logit_bias": [[7, 1], [text, 1]]}
        got, answer = post(mock, "/completion", body)
        assert got == status and (status == 200 or "4096 tokens" in answer["error"]["message"])


@pytest.mark.parametrize("extra", [
    {"top_k": 5, "min_p": 0.05}, {"typical_p": 0.5}, {"xtc_probability": 1, "xtc_threshold": 0.1},
    {"dry_multiplier": 0.8}, {"repeat_penalty": 1.3, "repeat_last_n": 8}, {"top_n_sigma": 1},
    {"dry_multiplier": 2, "dry_sequence_breakers": ["e"], "dry_allowed_length": 1}])
def test_samplers_are_repeatable(server, extra):
    options = {"temperature": 1, "max_tokens": 40, "extra_body": extra}
    first = chat(server, **options).choices[0].message.content
    assert chat(server, **options).choices[0].message.content == first


def test_min_tokens(mock):
    lengths = [chat(mock, max_tokens=200, seed=seed, temperature=1,
                    extra_body={"min_tokens": 60}).usage.completion_tokens for seed in range(6)]
    assert min(lengths) >= 60


# ---- continuations ----

def test_a_begun_answer_is_continued(server):
    begun = HELLO + [{"role": "assistant", "content": "Hello, my dear"}]
    prompt = post(server, "/apply-template", {"messages": begun})[1]["prompt"]
    assert prompt.endswith("Hello, my dear")
    tokens = post(server, "/tokenize", {"content": prompt})[1]["tokens"]
    text = chat(server, begun).choices[0].message.content
    assert text == complete(server, tokens).choices[0].text
    anew = chat(server, begun, extra_body={"continue_final_message": False})
    assert anew.usage.prompt_tokens > len(tokens)
    with pytest.raises(openai.BadRequestError, match="continued"):
        chat(server, extra_body={"continue_final_message": True})
    both = {"continue_final_message": True, "add_generation_prompt": False}  # as vLLM's clients do
    assert chat(server, begun, extra_body=both).choices[0].message.content == text
    both["add_generation_prompt"] = True
    with pytest.raises(openai.BadRequestError, match="cannot both be true"):
        chat(server, begun, extra_body=both)
    assert post(server, "/apply-template", {"messages": begun, **both})[0] == 400


def test_system_messages(real):
    two = [{"role": "system", "content": "FIRST"}, {"role": "developer", "content": "SECOND"}]
    prompt = post(real, "/apply-template", {"messages": two + HELLO})[1]["prompt"]
    assert prompt.index("FIRST") < prompt.index("SECOND") < prompt.index("Say hello")


# ---- tokens and prompts ----

def test_tokens_there_and_back(server):
    text = "Grüße, 🌱 and <|im_end|>!"
    tokens = post(server, "/tokenize", {"content": text})[1]
    assert tokens["count"] == len(tokens["tokens"])
    assert post(server, "/detokenize", {"tokens": tokens["tokens"]})[1]["content"] == text
    plain = post(server, "/tokenize", {"content": text, "parse_special": False})[1]
    assert plain["count"] > tokens["count"]
    pieces = post(server, "/tokenize", {"content": text, "with_pieces": True})[1]["tokens"]
    spelled = b"".join(p["piece"].encode() if isinstance(p["piece"], str) else bytes(p["piece"])
                       for p in pieces)
    assert spelled.decode() == text
    assert [p["id"] for p in pieces] == tokens["tokens"]
    assert post(server, "/detokenize", {"tokens": [10**8]})[0] == 400
    assert post(server, "/tokenize", {})[0] == 400


def test_the_prompt_of_a_conversation(server):
    status, answer = post(server, "/apply-template", {"messages": HELLO})
    assert status == 200 and "Say hello." in answer["prompt"]
    tokens = post(server, "/tokenize", {"content": answer["prompt"]})[1]["count"]
    assert chat(server).usage.prompt_tokens == tokens
    without = post(server, "/apply-template",
                   {"messages": HELLO, "add_generation_prompt": False})[1]["prompt"]
    assert answer["prompt"].startswith(without) and len(without) < len(answer["prompt"])
