"""LiteLLM, with its providers for OpenAI-compatible servers (openai/, hosted_vllm/) and Ollama."""
import asyncio
import json
import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # no download at import
import litellm  # noqa: E402
from pydantic import BaseModel  # noqa: E402

from checks import (ASK_WEATHER, CAPITAL, CITY, KEY, KEYED_URL, LONG, MODEL, UNICODE, URL,  # noqa: E402
                    WEATHER_TOOL, check, check_city, check_weather_arguments, each, main, messages,
                    raises, together, unique_system, wait_idle)

litellm.suppress_debug_info = True
PROVIDERS = {"openai": URL + "/v1", "hosted_vllm": URL + "/v1", "ollama_chat": URL, "ollama": URL}
OPENAI_LIKE = ("openai", "hosted_vllm")
CHAT = (*OPENAI_LIKE, "ollama_chat")


def ask(provider, text=CAPITAL, **options):
    options = {"temperature": 0, "max_tokens": 40, "timeout": 120, "num_retries": 0, **options}
    return litellm.completion(model=f"{provider}/{MODEL}", api_base=PROVIDERS[provider],
                              api_key="none", messages=options.pop("messages", messages(text)),
                              **options)


def content(answer):
    return answer.choices[0].message.content


@each(*PROVIDERS)
def answer_and_usage(provider):
    answer = ask(provider)
    assert "Paris" in content(answer) and answer.choices[0].finish_reason == "stop"
    assert 3 < answer.usage.completion_tokens < 40
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


@each(*PROVIDERS)
def stream_is_the_whole_answer(provider):
    chunks = list(ask(provider, LONG, stream=True))
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == content(ask(provider, LONG)) and len(chunks) > 30
    if provider != "ollama":  # LiteLLM says "stop" there, whatever the server said
        assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "length"


@each(*PROVIDERS)
def stop_string(provider):
    whole = content(ask(provider, LONG))
    word = whole.split()[6]
    stopped = content(ask(provider, LONG, stop=[word]))
    assert stopped.strip() == whole[:whole.index(word)].strip()


@each(*PROVIDERS)
def seed(provider):
    first, again, other = (content(ask(provider, LONG, temperature=1, seed=s)) for s in (7, 7, 8))
    assert first == again != other


@each(*OPENAI_LIKE)
def cached_tokens(provider):
    talk = messages("Hello!", unique_system())
    first, second = (ask(provider, messages=talk).usage.prompt_tokens_details for _ in range(2))
    assert (first.cached_tokens or 0) < 30 and second.cached_tokens > 200, (first, second)


@each(*OPENAI_LIKE)
def forced_call(provider):
    answer = ask(provider, ASK_WEATHER, tools=[WEATHER_TOOL], max_tokens=400,
                 tool_choice="required")
    calls = answer.choices[0].message.tool_calls
    assert calls, content(answer)
    for call in calls:
        assert call.function.name == "get_weather"
        check_weather_arguments(call.function.arguments)


@check
def tools_through_ollama():
    """Ollama's API has no tool_choice, so this model may answer with text or with calls."""
    message = ask("ollama_chat", ASK_WEATHER, tools=[WEATHER_TOOL], max_tokens=400).choices[0].message
    assert message.content or message.tool_calls
    for call in message.tool_calls or []:
        check_weather_arguments(call.function.arguments)


@each(*OPENAI_LIKE)
def streamed_call(provider):
    options = {"tools": [WEATHER_TOOL], "tool_choice": "required", "max_tokens": 400}
    chunks = list(ask(provider, ASK_WEATHER, stream=True, **options))
    built = litellm.stream_chunk_builder(chunks).choices[0].message.tool_calls
    whole = ask(provider, ASK_WEATHER, **options).choices[0].message.tool_calls
    assert [c.function.arguments for c in built] == [c.function.arguments for c in whole]


class City(BaseModel):
    name: str
    capital: bool


@each(*CHAT)
def structured_output(provider):
    schema = {"type": "json_schema", "json_schema": {"name": "city", "schema": CITY}}
    check_city(json.loads(content(ask(provider, "Describe Rome.", response_format=schema,
                                      max_tokens=300))))
    City.model_validate_json(content(ask(provider, "Describe Rome.", response_format=City,
                                         max_tokens=300)))


@each(*OPENAI_LIKE)
def log_probabilities(provider):
    answer = ask(provider, logprobs=True, top_logprobs=2, max_tokens=6)
    entries = answer.choices[0].logprobs.content
    assert len(entries) == answer.usage.completion_tokens
    assert all(len(entry.top_logprobs) == 2 for entry in entries)


@check
def several_choices():
    answer = ask("openai", LONG, n=3, temperature=1)
    assert len({choice.message.content for choice in answer.choices}) == 3


@each(*PROVIDERS)
def unicode_is_kept(provider):
    answer = ask(provider, messages=messages(UNICODE), max_tokens=20)
    assert content(answer).encode()


@each(*OPENAI_LIKE)
def errors(provider):
    raises(litellm.BadRequestError, lambda: ask(provider, temperature=7))
    raises(litellm.ContextWindowExceededError, lambda: ask(provider, "word " * 20000))
    raises(litellm.AuthenticationError, lambda: litellm.completion(
        model=f"{provider}/mock", api_base=KEYED_URL + "/v1", api_key="wrong", num_retries=0,
        messages=messages("Hi")))


@each("ollama", "ollama_chat")
def ollama_errors(provider):
    raises((litellm.BadRequestError, litellm.APIConnectionError),
           lambda: ask(provider, temperature=7), "temperature")


@check
def timeout():
    raises(litellm.Timeout, lambda: litellm.completion(
        model="openai/mock", api_base=KEYED_URL + "/v1", api_key=KEY, timeout=0.5, num_retries=0,
        max_tokens=2000, messages=messages(LONG), extra_body={"ignore_eos": True}))
    wait_idle(KEYED_URL)


@check
def together_as_alone():
    questions = [f"Name {i} animals." for i in range(2, 8)]
    alone = [content(ask("openai", q)) for q in questions]
    assert together(lambda q: content(ask("openai", q)), questions) == alone


@each("openai", "ollama_chat")
def asynchronous(provider):
    async def run():
        answers = await asyncio.gather(*(litellm.acompletion(
            model=f"{provider}/{MODEL}", api_base=PROVIDERS[provider], api_key="none",
            messages=messages(q), temperature=0, max_tokens=20) for q in (CAPITAL, LONG)))
        assert [content(a) for a in answers] == [content(ask(provider, q, max_tokens=20))
                                                 for q in (CAPITAL, LONG)]
    asyncio.run(run())


@check
def text_completion():
    answer = litellm.text_completion(model=f"text-completion-openai/{MODEL}", api_base=URL + "/v1",
                                     api_key="none", prompt="The capital of France is",
                                     temperature=0, max_tokens=5)
    assert answer.choices[0].text.startswith(" Paris")


if __name__ == "__main__":
    main()
