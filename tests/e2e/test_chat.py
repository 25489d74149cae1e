"""Chat completions through the official SDK, on the mock engine and on the default model."""
import json
import os
import re
import threading
import time

import openai
import pytest

from conftest import MODEL, Server, check_end

HELLO = [{"role": "user", "content": "Say hello."}]


def whole(server, messages=HELLO, **options):
    options.setdefault("max_tokens", 24)
    options.setdefault("seed", 1)
    return server.client().chat.completions.create(model="any", messages=messages, **options)


def text_of(server, messages=HELLO, **options):
    return whole(server, messages, **options).choices[0].message.content


def chunks_of(server, messages=HELLO, **options):
    options.setdefault("max_tokens", 24)
    options.setdefault("seed", 1)
    return list(server.client().chat.completions.create(model="any", messages=messages,
                                                        stream=True, **options))


def joined(chunks, index=0):
    return "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices
                   if choice.index == index)


def raw_events(server, **options):
    body = {"messages": HELLO, "max_tokens": 12, "seed": 1, "stream": True, **options}
    status, headers, text = server.post(body)
    assert status == 200
    assert headers["Content-Type"].startswith("text/event-stream")
    assert headers["Cache-Control"] == "no-cache"
    assert headers["X-Accel-Buffering"] == "no"
    events = text.decode().split("\n\n")
    assert events.pop() == ""
    assert all(event.startswith("data: ") for event in events)
    return [event[len("data: "):] for event in events]


def test_whole_answer(server):
    answer = whole(server)
    assert answer.object == "chat.completion"
    assert answer.id.startswith("chatcmpl-")
    model = server.client().models.list().data[0].id
    assert re.match(re.escape(model) + r"/\w+/radish-[\d.]+(/.+)?$", answer.system_fingerprint)
    choice = answer.choices[0]
    assert choice.message.role == "assistant" and choice.message.content
    assert choice.finish_reason in ("stop", "length")
    usage = answer.usage
    assert usage.prompt_tokens > 3 and 0 < usage.completion_tokens <= 24
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


def test_stream_says_the_same_as_the_whole_answer(server):
    chunks = chunks_of(server, temperature=1)
    assert joined(chunks) == text_of(server, temperature=1)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].choices[0].finish_reason in ("stop", "length")
    assert all(chunk.choices[0].finish_reason is None for chunk in chunks[:-1])
    assert all(chunk.usage is None for chunk in chunks)
    assert len({chunk.id for chunk in chunks}) == 1
    assert len(chunks) > 5, "the text must arrive in pieces"


def test_stream_bytes_are_those_of_a_json_encoder(server):
    events = raw_events(server, stream_options={"include_usage": True}, temperature=2)
    assert events.pop() == "[DONE]"
    for event in events:
        assert json.dumps(json.loads(event), ensure_ascii=False, separators=(",", ":")) == event
    last = json.loads(events[-1])
    assert last["choices"] == [] and last["usage"]["completion_tokens"] > 0
    assert all(json.loads(event)["usage"] is None for event in events[:-1])
    assert all("usage" not in json.loads(event) for event in raw_events(server)[:-1])


def test_seed_decides(server):
    first = text_of(server, seed=7, temperature=1.5)
    assert text_of(server, seed=7, temperature=1.5) == first
    assert text_of(server, seed=7, temperature=1.5, extra_body={"cache_prompt": False}) == first
    others = {text_of(server, seed=seed, temperature=1.5) for seed in range(20, 23)}
    assert len(others) > 1
    unseeded = {text_of(server, seed=None, temperature=1.5) for _ in range(3)}
    assert len(unseeded) > 1


def test_greedy_is_greedy(server):
    assert text_of(server, temperature=0, seed=1) == text_of(server, temperature=0, seed=2)


def test_stop_strings_across_tokens(server):
    text = text_of(server, temperature=0, max_tokens=40)
    assert len(text) > 12
    for start in (5, 8):
        stop = text[start:start + 4]
        cut = text[:text.index(stop)]
        answer = whole(server, temperature=0, max_tokens=40, stop=["never this", stop])
        assert answer.choices[0].message.content == cut
        assert answer.choices[0].finish_reason == "stop"
        chunks = chunks_of(server, temperature=0, max_tokens=40, stop=stop)
        assert joined(chunks) == cut
        assert chunks[-1].choices[0].finish_reason == "stop"
    assert text_of(server, temperature=0, max_tokens=40, stop="\x00\x00") == text


def test_a_stop_string_that_only_began_is_shown(server):
    text = text_of(server, temperature=0, max_tokens=12)
    assert joined(chunks_of(server, temperature=0, max_tokens=12, stop=text[-3:] + "\x01")) == text


def test_several_choices(server):
    one = whole(server, temperature=1.5)
    three = whole(server, temperature=1.5, n=3)
    texts = [choice.message.content for choice in three.choices]
    assert [choice.index for choice in three.choices] == [0, 1, 2]
    assert texts[0] == one.choices[0].message.content
    assert len(set(texts)) > 1
    assert three.usage.prompt_tokens == one.usage.prompt_tokens
    assert three.usage.completion_tokens > one.usage.completion_tokens
    chunks = chunks_of(server, temperature=1.5, n=3)
    assert [joined(chunks, index) for index in range(3)] == texts
    finishes = [choice.index for chunk in chunks for choice in chunk.choices
                if choice.finish_reason]
    assert sorted(finishes) == [0, 1, 2]


def test_usage_in_a_stream(server):
    chunks = chunks_of(server, stream_options={"include_usage": True})
    assert chunks[-1].choices == []
    usage = chunks[-1].usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert usage.prompt_tokens_details.cached_tokens <= usage.prompt_tokens


def test_the_second_turn_comes_from_the_cache(server):
    messages = [{"role": "system", "content": "You are a botanist who knows radishes."},
                {"role": "user", "content": "Which radish is the sharpest of all?"}]
    first = whole(server, messages, temperature=0)
    again = whole(server, messages, temperature=0)
    assert again.choices[0].message.content == first.choices[0].message.content
    assert again.usage.prompt_tokens_details.cached_tokens == again.usage.prompt_tokens - 1
    messages += [{"role": "assistant", "content": first.choices[0].message.content},
                 {"role": "user", "content": "And the mildest?"}]
    second = whole(server, messages, temperature=0)
    cached = second.usage.prompt_tokens_details.cached_tokens
    assert first.usage.prompt_tokens - 1 <= cached < second.usage.prompt_tokens
    cold = whole(server, messages, temperature=0, extra_body={"cache_prompt": False})
    assert cold.usage.prompt_tokens_details.cached_tokens == 0
    assert cold.choices[0].message.content == second.choices[0].message.content


def test_streams_never_cut_a_character(server):
    messages = [{"role": "user", "content": "Repeat: 🌱 déjà vu — 漢字 👩‍👩‍👧‍👦 🇩🇪"}]
    options = {"temperature": 2, "max_tokens": 150, "extra_body": {"ignore_eos": True}}
    text = text_of(server, messages, seed=3, **options)
    chunks = chunks_of(server, messages, seed=3, **options)
    assert joined(chunks) == text
    text.encode()  # no lone surrogate


def test_content_parts_are_joined(server):
    parts = [{"type": "text", "text": "Say"}, {"type": "text", "text": "hello."}]
    joined_text = [{"role": "user", "content": "Say\nhello."}]
    assert (text_of(server, [{"role": "user", "content": parts}], temperature=0)
            == text_of(server, joined_text, temperature=0))


def test_sixteen_streams_at_once(server):
    def messages(i):
        return [{"role": "user", "content": f"Tell me about the number {i}."}]

    def options(i):
        return {"seed": i, "temperature": 1, "max_tokens": 16}

    alone = [text_of(server, messages(i), **options(i)) for i in range(16)]
    together = [None] * 16

    def run(i):
        together[i] = joined(chunks_of(server, messages(i), **options(i)))

    threads = [threading.Thread(target=run, args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == alone


def test_models(server):
    client = server.client()
    models = list(client.models.list())
    assert len(models) == 1
    assert models[0].context_window >= 128
    assert client.models.retrieve(models[0].id).id == models[0].id
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("no such/model")
    assert caught.value.code == "model_not_found"


def test_max_tokens_is_clamped_to_the_context(start):
    server = start("-c", "128")
    for given in (10**6, 10**20, -1, None):
        answer = whole(server, max_tokens=given, extra_body={"ignore_eos": True})
        assert answer.usage.total_tokens == 128
        assert answer.choices[0].finish_reason == "length"


def test_a_prompt_beyond_the_context(start):
    server = start("-c", "128")
    for length, words in ((500, r"\d+"), (10**5, r"at least \d+")):  # the second is far too long to tokenise
        with pytest.raises(openai.BadRequestError) as caught:
            whole(server, [{"role": "user", "content": "x" * length}])
        assert caught.value.code == "context_length_exceeded"
        assert caught.value.param == "messages"
        assert re.match(r"This model's maximum context length is 128 tokens\. However, your "
                        rf"messages resulted in {words} tokens\. ", caught.value.body["message"])
        assert caught.value.body["message"].endswith("a larger -c.")


def test_a_prompt_beyond_what_the_cache_holds(start):
    server = start("--cache-size", "100t")
    for length in (150, 10**6):  # tokenised, and rejected before that
        with pytest.raises(openai.BadRequestError) as caught:
            whole(server, [{"role": "user", "content": "x" * length}])
        assert caught.value.code == "context_length_exceeded"
        assert "is 100 tokens. However" in caught.value.message
        assert "a larger --cache-size, which limits the context" in caught.value.message


def test_a_full_queue(start):
    server = start("--max-seqs", "2", "--max-waiting", "2", "--mock-batch-cost-us", "20000")
    client = server.client()
    streams = [client.chat.completions.create(model="m", messages=HELLO, max_tokens=500,
                                              stream=True, extra_body={"ignore_eos": True})
               for _ in range(4)]
    for stream in streams:
        assert next(iter(stream)).choices[0].delta.role == "assistant"
    with pytest.raises(openai.RateLimitError) as caught:
        whole(server)
    assert caught.value.response.headers["retry-after"]
    assert caught.value.code == "queue_full"
    assert "--max-waiting 2" in caught.value.message
    with pytest.raises(openai.RateLimitError):  # some choices would fit, but not all
        whole(server, n=4)
    for stream in streams:
        stream.close()
    server.wait_idle()
    assert text_of(server)


def test_a_failed_computation(start):
    server = start("--mock-fail-every", "1")
    with pytest.raises(openai.InternalServerError) as caught:
        whole(server)
    assert (caught.value.status_code, caught.value.type) == (500, "server_error")
    status, _, text = server.post({"messages": HELLO, "stream": True})
    events = text.decode().split("\n\n")
    assert status == 200 and "failed" in json.loads(events[-2][6:])["error"]["message"]
    assert "[DONE]" not in text.decode()
    assert server.get("/health")[0] == 200


def test_a_failed_computation_that_works_alone_is_not_seen(start):
    healthy, server = start(), start("--mock-fail-every", "7")
    assert text_of(server, max_tokens=60) == text_of(healthy, max_tokens=60)
    assert joined(chunks_of(server, max_tokens=60)) == text_of(healthy, max_tokens=60)


def test_a_waiting_stream_is_kept_alive(start):
    server = start("--max-seqs", "1", "--mock-batch-cost-us", "200000")
    client = server.client()
    options = {"model": "m", "messages": HELLO, "stream": True, "max_tokens": 3000,
               "extra_body": {"ignore_eos": True}}
    running = client.chat.completions.create(**options)
    next(iter(running))
    waiting = client.chat.completions.with_streaming_response.create(**options)
    with waiting as response:
        lines = response.iter_lines()
        began = time.monotonic()
        assert next(line for line in lines if line).startswith("data: ")  # the role, at once
        assert time.monotonic() - began < 5
        assert next(line for line in lines if line).startswith(":")
        assert 9 < time.monotonic() - began < 20
    running.close()
    server.wait_idle()


def test_a_time_out(start):
    server = start("--timeout", "1", "--mock-batch-cost-us", "20000")
    long = {"max_tokens": 2000, "extra_body": {"ignore_eos": True}}
    late = []
    for _ in range(3):
        began = time.monotonic()
        with pytest.raises(openai.InternalServerError) as caught:
            whole(server, **long)
        late.append(time.monotonic() - began - 1)
        assert caught.value.status_code == 504
        assert "after 1 s (--timeout)" in caught.value.message
    assert min(late) >= 0 and max(late) < 20, late  # the whole answer takes 40 s
    with pytest.raises(openai.APIError, match="--timeout"):
        chunks_of(server, **long)
    server.wait_idle()


def test_a_seed_of_minus_one_is_a_new_one_each_time(mock):
    def answers(seed):
        return {text_of(mock, seed=seed, max_tokens=20) for _ in range(4)}

    assert len(answers(-1)) > 1
    assert len(answers(-2)) == 1


TEMPLATE = "{{ raise_exception('no') if messages[0].content == 'x' or bad else 'y' }}"


@pytest.mark.skipif(not os.path.exists(MODEL), reason="there is no model")
def test_a_template_that_refuses_names_the_field_where_it_is_known(tmp_path):
    template = tmp_path / "template.jinja"
    template.write_text(TEMPLATE)
    server = Server("-m", MODEL, "--chat-template-file", str(template), debug=False)
    try:
        for body, param in (({"messages": [{"role": "user", "content": "x"}]}, "messages"),
                            ({"chat_template_kwargs": {"bad": 1}}, None),
                            ({"chat_template_kwargs": {"eos_token": "z"}}, "chat_template_kwargs")):
            status, _, answer = server.post({"messages": HELLO, **body})
            assert (status, json.loads(answer)["error"]["param"]) == (400, param)
        assert server.post({"messages": HELLO, "max_tokens": 2})[0] == 200
    finally:
        check_end(server)


@pytest.mark.skipif(not os.path.exists(MODEL), reason="there is no model")
def test_a_model_without_a_chat_template(tmp_path):
    file = tmp_path / "no-template.gguf"
    with open(MODEL, "rb") as model:
        data = model.read()
    assert data.count(b"tokenizer.chat_template") == 1
    file.write_bytes(data.replace(b"tokenizer.chat_template", b"tokenizer.chat_tamplete"))
    server = Server("-m", str(file), debug=False)
    try:
        status, _, body = server.post({"messages": HELLO})
        error = json.loads(body)["error"]
        assert (status, error["type"], error["param"]) == (501, "server_error", None)
        assert "--chat-template-file" in error["message"]
        assert server.get("/health")[0] == 200
    finally:
        check_end(server)


@pytest.mark.parametrize("options, param", [
    ({"temperature": 3}, "temperature"),
    ({"top_p": -1}, "top_p"),
    ({"n": 0}, "n"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"stop": [""]}, "stop[0]"),
    ({"top_logprobs": 2}, "top_logprobs"),
    ({"response_format": {"type": "xml"}}, "response_format"),
    ({"tools": [{"type": "function", "function": {"name": ""}}]}, "tools[0].function.name"),
    ({"messages": []}, "messages"),
    ({"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role"),
])
def test_bad_requests_name_the_field(server, options, param):
    with pytest.raises(openai.BadRequestError) as caught:
        whole(server, **{"messages": HELLO, **options})
    assert caught.value.param == param
    assert caught.value.type == "invalid_request_error"


def test_images_are_refused_with_a_reason(server):
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    with pytest.raises(openai.BadRequestError, match="no vision"):
        whole(server, [{"role": "user", "content": [image]}])


def test_json_errors_say_where(server):
    status, _, body = server.post('{"messages": [}')
    assert status == 400
    error = json.loads(body)["error"]
    assert "byte 14" in error["message"] and error["type"] == "invalid_request_error"
    for text in ("", "[]", "{", "nul", '{"a":1,"a":2}', "\xff".encode("latin-1")):
        assert server.post(text)[0] == 400
