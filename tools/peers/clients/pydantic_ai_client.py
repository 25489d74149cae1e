"""pydantic-ai: agents with tools, structured results, streams and message history."""
import asyncio
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, Field
from pydantic_ai import Agent, ModelSettings, NativeOutput, PromptedOutput, RunContext, ToolOutput
from pydantic_ai.exceptions import ModelHTTPError, UnexpectedModelBehavior, UsageLimitExceeded
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import UsageLimits

from checks import (ASK_WEATHER, CAPITAL, KEYED_URL, LONG, MODEL, UNICODE, URL, check, each, main,
                    raises, unique_system)

model = OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=URL + "/v1", api_key="none"))


def agent(**options):
    settings = ModelSettings(temperature=0, max_tokens=400, timeout=120,
                             **options.pop("settings", {}))
    return Agent(options.pop("model", model), model_settings=settings, retries=0, **options)


class City(BaseModel):
    name: str = Field(max_length=40)
    kind: Literal["town", "city"]
    inhabitants: int = Field(ge=1, le=40000000)


class River(BaseModel):
    name: str = Field(max_length=40)
    length_km: int = Field(ge=1, le=10000)


@check
def answer_and_usage():
    result = agent().run_sync(CAPITAL)
    assert "Paris" in result.output and result.response.finish_reason == "stop"
    usage = result.usage() if callable(result.usage) else result.usage
    assert 3 < usage.output_tokens < 40 and usage.input_tokens > 20 and usage.requests == 1


@check
def history_is_cached():
    first = agent(system_prompt=unique_system()).run_sync("Who wrote Faust?")
    second = agent().run_sync("And who else?", message_history=first.all_messages())
    usage = second.usage() if callable(second.usage) else second.usage
    assert usage.cache_read_tokens > 200, usage


@check
async def stream_is_the_whole_answer():
    a = agent(settings={"seed": 1})
    async with a.run_stream(LONG) as result:
        parts = [part async for part in result.stream_text(delta=True, debounce_by=None)]
    assert len(parts) > 30 and "".join(parts) == (await a.run(LONG)).output


@each(ToolOutput, NativeOutput, PromptedOutput)
def structured_result(form):
    settings = {"extra_body": {"response_format": {"type": "json_object", "schema": City.model_json_schema()}}}
    result = agent(output_type=form(City), settings=settings if form is PromptedOutput else {}
                   ).run_sync("Describe Rome.")
    assert isinstance(result.output, City)


@each(ToolOutput, NativeOutput)
def one_of_two_results(form):
    output = [form(City), form(River)] if form is ToolOutput else form([City, River])
    assert isinstance(agent(output_type=output).run_sync("Describe the Tiber.").output, (City, River))


@check
async def structured_stream():
    a = agent(output_type=NativeOutput(City))
    async with a.run_stream("Describe Rome.") as result:
        seen = [city async for city in result.stream_output(debounce_by=None)]
    assert isinstance(seen[-1], City) and seen[-1] == (await a.run("Describe Rome.")).output


def weather_agent(choice, calls):
    a = agent(settings={"extra_body": {"tool_choice": choice}})

    @a.tool_plain
    def get_weather(city: str, unit: Literal["celsius", "fahrenheit"]) -> str:
        """The weather in a city."""
        calls.append((city, unit))
        return "Sunny, 21 degrees."

    return a


@check
def forced_call_runs_the_tool():
    calls = []
    a = weather_agent("required", calls)
    raises(UsageLimitExceeded,
           lambda: a.run_sync(ASK_WEATHER, usage_limits=UsageLimits(request_limit=1)))
    assert calls and all(city and unit in ("celsius", "fahrenheit") for city, unit in calls)


@check
def tool_choice_none_gives_text():
    calls = []
    result = weather_agent("none", calls).run_sync(ASK_WEATHER)
    assert not calls and result.output


@dataclass
class Library:
    name: str


@check
def dependencies_and_result_tool():
    a = Agent(model, deps_type=Library, output_type=City, retries=0,
              model_settings=ModelSettings(temperature=0, max_tokens=400))

    @a.system_prompt
    def prompt(context: RunContext[Library]) -> str:
        return f"You work in the library {context.deps.name}."

    result = a.run_sync("Describe Rome.", deps=Library("Zoë 東京"))
    assert isinstance(result.output, City)
    assert "Zoë 東京" in result.all_messages_json().decode()


@check
def seeds():
    def ask(seed):
        settings = ModelSettings(temperature=1, max_tokens=30, seed=seed)
        return agent().run_sync(LONG, model_settings=settings).output
    assert ask(7) == ask(7) != ask(8)


@check
def stop_sequence():
    settings = ModelSettings(temperature=0, max_tokens=40)
    whole = agent().run_sync(LONG, model_settings=settings).output
    word = whole.split()[5]
    stopped = agent().run_sync(LONG, model_settings={**settings, "stop_sequences": [word]}).output
    assert stopped == whole[:whole.index(word)]


@check
def unicode_is_kept():
    result = agent().run_sync(UNICODE, model_settings=ModelSettings(
        extra_body={"guided_choice": ["Grüße 東京 👩‍👩‍👧"]}))
    assert result.output == "Grüße 東京 👩‍👩‍👧"


@check
async def together_as_alone():
    questions = [f"Name {i} animals." for i in range(2, 6)]
    alone = [(await agent().run(q)).output for q in questions]
    results = await asyncio.gather(*(agent().run(q) for q in questions))
    assert [result.output for result in results] == alone


@check
def errors():
    error = raises(ModelHTTPError, lambda: agent().run_sync(
        "Hi", model_settings=ModelSettings(temperature=7)))
    assert error.status_code == 400 and "temperature" in str(error.body)
    error = raises(ModelHTTPError, lambda: agent().run_sync("word " * 20000))
    assert error.status_code == 400 and error.body["code"] == "context_length_exceeded"
    wrong = OpenAIChatModel("mock", provider=OpenAIProvider(base_url=KEYED_URL + "/v1", api_key="x"))
    assert raises(ModelHTTPError, lambda: agent(model=wrong).run_sync("Hi")).status_code == 401


@check
def cut_result_is_an_error_of_its_own():
    raises(UnexpectedModelBehavior, lambda: agent(output_type=ToolOutput(City)).run_sync(
        "Describe Rome.", model_settings=ModelSettings(max_tokens=4)))


if __name__ == "__main__":
    main()
