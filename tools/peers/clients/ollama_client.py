"""Ollama's Python client, against the routes under /api/."""
import asyncio
import json
import time

import httpx
import ollama
from pydantic import BaseModel

from checks import (ASK_WEATHER, CAPITAL, CITY, KEY, KEYED_URL, LONG, MODEL, UNICODE, URL,
                    WEATHER_TOOL, check, check_city, each, main, messages, raises, together,
                    unique_system, wait_idle)

client = ollama.Client(host=URL, timeout=120)
slow = ollama.Client(host=KEYED_URL, headers={"Authorization": "Bearer " + KEY}, timeout=0.5)


def ask(text=CAPITAL, **options):
    wanted = {"temperature": 0, "num_predict": 40, **options.pop("options", {})}
    return client.chat(model=MODEL, messages=options.pop("messages", messages(text)),
                       options=wanted, **options)


@check
def chat():
    answer = ask()
    assert "Paris" in answer.message.content and answer.message.role == "assistant"
    assert answer.done and answer.done_reason == "stop" and answer.model == MODEL
    assert 3 < answer.eval_count < 40 and answer.prompt_eval_count > 20
    assert answer.total_duration >= answer.eval_duration > 0
    assert abs(time.time() - time.mktime(time.strptime(answer.created_at[:19], "%Y-%m-%dT%H:%M:%S"))
               + time.timezone) < 60


@check
def chat_stream_is_the_whole_answer():
    parts = list(ask(LONG, stream=True))
    assert "".join(p.message.content for p in parts) == ask(LONG).message.content
    assert len(parts) > 30 and parts[-1].done_reason == "length" and parts[-1].eval_count == 40
    assert not any(p.done for p in parts[:-1])


@check
def generate():
    options = {"temperature": 0, "num_predict": 30}
    answer = client.generate(MODEL, CAPITAL, options=options)
    assert "Paris" in answer.response and answer.done_reason == "stop"
    parts = client.generate(MODEL, LONG, options=options, stream=True, system="Be brief.")
    whole = client.generate(MODEL, LONG, options=options, system="Be brief.")
    assert "".join(p.response for p in parts) == whole.response
    raw = client.generate(MODEL, "The capital of France is", raw=True, options=options)
    assert raw.response.startswith(" Paris")


@check
def cached_prompt_is_not_computed_again():
    talk = messages("Hello!", unique_system())
    explain = [json.loads(httpx.post(URL + "/api/chat", timeout=120, json={
        "model": MODEL, "messages": talk, "stream": False, "options": {"num_predict": 2},
        "radish": {"explain": True}}).text)["radish"]["cached_tokens"] for _ in range(2)]
    assert explain[0] < 30 and explain[1] > 200, explain
    assert ask(messages=talk).prompt_eval_count > 200, "the count includes cached tokens"


@each("json", CITY)
def format_is_kept(form):
    for temperature in (0, 1.5):
        answer = ask("Which city is the capital of France? Reply in JSON.", format=form,
                     options={"num_predict": 600, "temperature": temperature, "seed": 3})
        value = json.loads(answer.message.content)
        assert isinstance(value, dict)
        if form is CITY:
            check_city(value)


@check
def pydantic_format():
    class Pet(BaseModel):
        name: str
        age: int

    Pet.model_validate_json(ask("Invent a dog.", format=Pet.model_json_schema(),
                                options={"num_predict": 300}).message.content)


@check
def tools_as_functions_and_as_schemas():
    def get_weather(city: str) -> str:
        """The weather in a city.

        Args:
            city: The city's name
        """
        return "Sunny."

    for tool in (get_weather, WEATHER_TOOL):
        message = ask(ASK_WEATHER, tools=[tool], options={"num_predict": 300}).message
        assert message.content or message.tool_calls
        for call in message.tool_calls or []:
            assert call.function.name == "get_weather" and call.function.arguments["city"]


@check
def call_and_result_go_back():
    talk = messages(ASK_WEATHER) + [
        {"role": "assistant", "content": "", "tool_calls": [
            {"function": {"name": "get_weather", "arguments": {"city": "Paris", "unit": "celsius"}}}]},
        {"role": "tool", "tool_name": "get_weather", "content": "Sunny, 21 degrees."}]
    assert ask(messages=talk, tools=[WEATHER_TOOL]).message.content


@check
def stop_and_seed():
    whole = ask(LONG).message.content
    word = whole.split()[5]
    stopped = ask(LONG, options={"stop": [word]})
    assert stopped.message.content == whole[:whole.index(word)] and stopped.done_reason == "stop"
    first, again, other = (ask(LONG, options={"temperature": 1, "seed": s}).message.content
                           for s in (7, 7, 8))
    assert first == again != other


@check
def log_probabilities():
    answer = ask(LONG, logprobs=True, top_logprobs=2, options={"num_predict": 6})
    assert len(answer.logprobs) == 6 and all(len(e.top_logprobs) == 2 for e in answer.logprobs)


@check
def unicode_is_kept():
    form = {"type": "object", "properties": {"text": {"const": "Grüße 東京 👩‍👩‍👧"}},
            "required": ["text"]}
    parts = ask(UNICODE, format=form, stream=True)
    assert json.loads("".join(p.message.content for p in parts))["text"] == "Grüße 東京 👩‍👩‍👧"


@check
def list_show_ps():
    name = client.list().models[0].model
    assert name == MODEL + ":latest" and client.list().models[0].size > 10**7
    shown = client.show(name)
    assert shown.details.family == "llama" and "completion" in shown.capabilities
    assert shown.modelinfo["llama.context_length"] == 8192 and shown.template
    running = client.ps().models[0]
    assert running.model == name and running.context_length == 8192 and running.expires_at


@check
def load_and_unload():
    assert client.generate(MODEL, "", keep_alive="5m").done_reason == "load"
    assert client.generate(MODEL, "", keep_alive=0).done_reason == "unload"
    assert client.chat(MODEL, []).done_reason == "load"


@each(("temperature", 7), ("num_predict", "many"), ("stop", 5))
def bad_option(case):
    error = raises(ollama.ResponseError, lambda: ask(options=dict([case])), case[0])
    assert error.status_code == 400


@check
def errors():
    assert raises(ollama.ResponseError, lambda: ask("word " * 20000)).status_code == 400
    assert raises(ollama.ResponseError, lambda: ask(think=True), "thinking").status_code == 400
    assert raises(ollama.ResponseError, lambda: client.embed(MODEL, "x")).status_code == 501
    assert raises(ollama.ResponseError, lambda: client.pull("other")).status_code == 501
    wrong = ollama.Client(host=KEYED_URL, headers={"Authorization": "Bearer wrong"})
    assert raises(ollama.ResponseError, wrong.list).status_code == 401
    raises(ConnectionError, lambda: ollama.Client(host="http://127.0.0.1:9").list())


@check
def timeout_and_abort():
    # Ollama's API cannot ignore the end of a text, and the mock engine ends some after a few tokens.
    long = {"format": {"type": "string", "minLength": 2000}, "options": {"num_predict": 2000}}
    raises(httpx.ReadTimeout, lambda: slow.chat("mock", messages(LONG), **long))
    wait_idle(KEYED_URL)
    stream = slow.chat("mock", messages(LONG), **long, stream=True)
    for _ in range(5):
        next(stream)
    stream.close()
    wait_idle(KEYED_URL, 5)


@check
def together_as_alone():
    questions = [f"Name {i} animals." for i in range(2, 8)]
    alone = [ask(q).message.content for q in questions]
    assert together(lambda q: ask(q).message.content, questions) == alone


@check
async def asynchronous():
    other = ollama.AsyncClient(host=URL)

    async def one(text):
        parts = await other.chat(MODEL, messages(text), stream=True,
                                 options={"temperature": 0, "num_predict": 20})
        return "".join([p.message.content async for p in parts])

    assert await asyncio.gather(one(CAPITAL), one(LONG)) == \
        [ask(q, options={"num_predict": 20}).message.content for q in (CAPITAL, LONG)]


if __name__ == "__main__":
    main()
