"""OpenAI's Python SDK: chat, streams, tools, structured output, log probabilities, errors."""
import asyncio
import json
import time
from typing import List, Literal, Optional

import openai
from pydantic import BaseModel, Field

from checks import (ASK_WEATHER, CAPITAL, CITY, KEY, KEYED_URL, LONG, MODEL, TIME_TOOL, UNICODE, URL,
                    WEATHER_TOOL, check, check_city, check_weather_arguments, each, main, messages,
                    raises, together, unique_system, wait_idle)

client = openai.OpenAI(base_url=URL + "/v1", api_key="none", max_retries=0, timeout=120)
slow = openai.OpenAI(base_url=KEYED_URL + "/v1", api_key=KEY, max_retries=0, timeout=120)


def ask(text=CAPITAL, **options):
    options = {"model": MODEL, "temperature": 0, "max_tokens": 40, **options}
    return client.chat.completions.create(messages=options.pop("messages", messages(text)),
                                          **options)


def stream_text(chunks):
    return "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)


@check
def answer_and_usage():
    answer = ask()
    choice, usage = answer.choices[0], answer.usage
    assert "Paris" in choice.message.content and choice.finish_reason == "stop", choice
    assert choice.message.role == "assistant" and answer.model == MODEL
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert 3 < usage.completion_tokens < 40 < usage.prompt_tokens + 10


@check
def stream_is_the_whole_answer():
    chunks = list(ask(LONG, stream=True, stream_options={"include_usage": True}))
    whole = ask(LONG)
    assert stream_text(chunks) == whole.choices[0].message.content
    assert len(chunks) > 30 and len({c.id for c in chunks}) == 1
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == 40
    assert [c.choices[0].finish_reason for c in chunks[:-1] if c.choices][-1] == "length"
    assert all(c.usage is None for c in chunks[:-1])


@check
def cached_tokens_grow():
    talk = messages("Who wrote Faust?", unique_system())
    cached = []
    for _ in range(3):
        answer = ask(messages=talk)
        cached.append(answer.usage.prompt_tokens_details.cached_tokens)
        previous = answer.usage.total_tokens
        talk += [{"role": "assistant", "content": answer.choices[0].message.content},
                 {"role": "user", "content": "And who else?"}]
    assert cached[0] < 30 and 200 < cached[1] < cached[2], cached
    assert previous > cached[2] >= 0.9 * (cached[1] + 40), (previous, cached)


@each({"type": "function", "function": {"name": "get_weather"}}, "required")
def forced_call(choice):
    answer = ask(ASK_WEATHER, tools=[WEATHER_TOOL], tool_choice=choice, max_tokens=400)
    calls = answer.choices[0].message.tool_calls
    assert calls and all(call.function.name == "get_weather" for call in calls)
    for call in calls:
        check_weather_arguments(call.function.arguments)
    assert len({call.function.arguments for call in calls}) == len(calls), "a call is repeated"
    assert answer.choices[0].finish_reason in ("tool_calls", "stop")


@check
def streamed_call_is_the_whole_call():
    options = {"tools": [WEATHER_TOOL, TIME_TOOL], "tool_choice": "required", "max_tokens": 400}
    calls = {}
    for chunk in ask(ASK_WEATHER, stream=True, **options):
        for delta in chunk.choices[0].delta.tool_calls or []:
            call = calls.setdefault(delta.index, {"id": delta.id, "name": "", "arguments": ""})
            call["name"] += delta.function.name or ""
            call["arguments"] += delta.function.arguments or ""
    whole = ask(ASK_WEATHER, **options).choices[0].message.tool_calls
    assert [(c["name"], c["arguments"]) for c in calls.values()] == \
        [(c.function.name, c.function.arguments) for c in whole]
    assert all(c["id"] for c in calls.values()) and len({c["id"] for c in calls.values()}) == len(calls)


@check
def call_and_result_go_back():
    first = ask(ASK_WEATHER, tools=[WEATHER_TOOL], max_tokens=400,
                tool_choice={"type": "function", "function": {"name": "get_weather"}})
    message = first.choices[0].message
    talk = messages(ASK_WEATHER) + [message.model_dump(exclude_none=True)]
    talk += [{"role": "tool", "tool_call_id": call.id, "content": "Sunny, 21 degrees."}
             for call in message.tool_calls]
    answer = ask(messages=talk, tools=[WEATHER_TOOL], tool_choice="none")
    assert answer.choices[0].message.content and not answer.choices[0].message.tool_calls


@check
def tool_choice_none_gives_text():
    message = ask(ASK_WEATHER, tools=[WEATHER_TOOL], tool_choice="none").choices[0].message
    assert message.content and not message.tool_calls


class Mayor(BaseModel):
    name: str = Field(max_length=30)


class Place(BaseModel):
    name: str = Field(max_length=30)
    kind: Literal["town", "city"]
    inhabitants: int = Field(ge=1, le=10**8)
    mayor: Optional[Mayor] = None


class Trip(BaseModel):
    places: List[Place] = Field(min_length=1, max_length=3)


@each(Place, Trip)
def parse_pydantic(model):
    answer = client.chat.completions.parse(model=MODEL, messages=messages("Describe a place."),
                                           response_format=model, temperature=0, max_tokens=1500)
    assert isinstance(answer.choices[0].message.parsed, model)


@check
def json_schema_is_kept_at_any_temperature():
    schema = {"type": "json_schema", "json_schema": {"name": "city", "schema": CITY, "strict": True}}
    for seed in range(5):
        text = ask("Describe a city.", response_format=schema, temperature=1.5, seed=seed,
                   max_tokens=300).choices[0].message.content
        check_city(json.loads(text))


@check
def json_object():
    text = ask("Which city is the capital of France? Reply in JSON.", response_format={"type": "json_object"},
               max_tokens=300).choices[0].message.content
    assert isinstance(json.loads(text), dict)


@check
def stop_strings():
    whole = ask("Count from one to ten in words.").choices[0].message.content
    word = whole.split()[4]
    for stop in (word, ["nothing like this", word]):
        answer = ask("Count from one to ten in words.", stop=stop)
        assert answer.choices[0].message.content == whole[:whole.index(word)]
        assert answer.choices[0].finish_reason == "stop"
    chunks = ask("Count from one to ten in words.", stop=word, stream=True)
    assert stream_text(chunks) == whole[:whole.index(word)]


@check
def log_probabilities():
    answer = ask(LONG, logprobs=True, top_logprobs=3, max_tokens=8)
    entries = answer.choices[0].logprobs.content
    assert len(entries) == answer.usage.completion_tokens
    assert "".join(e.token for e in entries) == answer.choices[0].message.content
    for entry in entries:
        assert len(entry.top_logprobs) == 3 and entry.logprob <= 0
        assert entry.logprob == entry.top_logprobs[0].logprob, "greedy is the most likely token"
        assert bytes(entry.bytes).decode() == entry.token


@check
def several_choices():
    answer = ask(LONG, n=3, temperature=1, seed=5)
    assert [c.index for c in answer.choices] == [0, 1, 2]
    assert len({c.message.content for c in answer.choices}) == 3
    texts = ["", "", ""]
    for chunk in ask(LONG, n=3, temperature=1, seed=5, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert texts == [c.message.content for c in answer.choices]


@check
def seeds():
    first, again, other = (ask(LONG, temperature=1, seed=s).choices[0].message.content
                           for s in (7, 7, 8))
    assert first == again != other


@check
def unicode_is_kept():
    answer = ask(messages=messages(UNICODE) + [{"role": "assistant", "content": "Grüße 東京 🎉"},
                                               {"role": "user", "content": "Again."}])
    answer.choices[0].message.content.encode()
    echoed = client.chat.completions.create(
        model=MODEL, messages=messages("Say it."), temperature=0,
        extra_body={"guided_choice": ["Grüße aus 東京 👩‍👩‍👧"]}, stream=True)
    assert stream_text(echoed) == "Grüße aus 東京 👩‍👩‍👧"


@check
def legacy_completion():
    answer = client.completions.create(model=MODEL, prompt="The capital of France is", echo=True,
                                       temperature=0, max_tokens=5, logprobs=2)
    text, logprobs = answer.choices[0].text, answer.choices[0].logprobs
    assert text.startswith("The capital of France is Paris")
    assert "".join(logprobs.tokens) == text and logprobs.token_logprobs[0] is None
    two = client.completions.create(model=MODEL, prompt=["1, 2, 3,", "A, B, C,"], temperature=0,
                                    max_tokens=4)
    assert [c.index for c in two.choices] == [0, 1] and two.choices[0].text != two.choices[1].text


@check
def models():
    listed = [m.id for m in client.models.list()]
    assert listed == [MODEL] and client.models.retrieve(MODEL).id == MODEL


@each(("temperature", 7), ("messages", []), ("messages", [{"role": "nobody", "content": "x"}]),
      ("max_tokens", "many"), ("n", 0), ("logit_bias", {"0": 1000}), ("top_logprobs", 50),
      ("response_format", {"type": "json_schema"}), ("tools", [{"type": "function"}]))
def bad_request(case):
    error = raises(openai.BadRequestError, lambda: ask(**dict([case])))
    assert error.status_code == 400 and error.type == "invalid_request_error", error.body


@check
def too_long_a_prompt():
    error = raises(openai.BadRequestError, lambda: ask("word " * 20000))
    assert error.code == "context_length_exceeded"


@check
def errors_of_keys_and_paths():
    bad = openai.OpenAI(base_url=KEYED_URL + "/v1", api_key="wrong", max_retries=0)
    raises(openai.AuthenticationError, bad.models.list)
    raises(openai.InternalServerError, lambda: client.embeddings.create(model=MODEL, input="x"))
    gone = openai.OpenAI(base_url="http://127.0.0.1:9/v1", api_key="x", max_retries=0)
    raises(openai.APIConnectionError, gone.models.list)


@check
def timeout():
    raises(openai.APITimeoutError, lambda: slow.with_options(timeout=0.5).chat.completions.create(
        model="mock", messages=messages(LONG), max_tokens=2000, extra_body={"ignore_eos": True}))
    wait_idle(KEYED_URL)


@check
def abort_mid_stream():
    stream = slow.chat.completions.create(model="mock", messages=messages(LONG), stream=True,
                                          max_tokens=2000, extra_body={"ignore_eos": True})
    for _ in range(5):
        next(stream)
    started = time.monotonic()
    stream.close()
    wait_idle(KEYED_URL, 5)
    assert time.monotonic() - started < 5


@check
def together_as_alone():
    questions = [f"Name {i} animals." for i in range(2, 10)]
    alone = [ask(q).choices[0].message.content for q in questions]
    assert together(lambda q: ask(q).choices[0].message.content, questions) == alone


@check
async def async_client():
    other = openai.AsyncOpenAI(base_url=URL + "/v1", api_key="none", max_retries=0)

    async def one(question):
        text = ""
        async for chunk in await other.chat.completions.create(
                model=MODEL, messages=messages(question), temperature=0, max_tokens=20, stream=True):
            text += chunk.choices[0].delta.content or ""
        return text

    questions = [CAPITAL, LONG, "Who wrote Faust?"]
    assert await asyncio.gather(*map(one, questions)) == \
        [ask(q, max_tokens=20).choices[0].message.content for q in questions]
    await other.close()


if __name__ == "__main__":
    main()
