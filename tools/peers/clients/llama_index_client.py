"""LlamaIndex: OpenAILike, its chat engine, structured prediction and function calls."""
import gc
import json
from typing import Literal

import openai
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.chat_engine import SimpleChatEngine
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.program import LLMTextCompletionProgram
from llama_index.core.prompts import PromptTemplate
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel, Field

from checks import (ASK_WEATHER, CAPITAL, CITY, KEY, KEYED_URL, LONG, MODEL, UNICODE, URL, check,
                    check_city, check_weather_arguments, each, main, raises, together,
                    unique_system, wait_idle)


def llm(**options):
    return OpenAILike(**{"model": MODEL, "api_base": URL + "/v1", "api_key": "none",
                         "is_chat_model": True, "is_function_calling_model": True,
                         "context_window": 8192, "temperature": 0, "max_tokens": 40,
                         "max_retries": 0, "timeout": 120, **options})


def user(text):
    return [ChatMessage(role="user", content=text)]


class City(BaseModel):
    """A city."""

    name: str = Field(max_length=40)
    kind: Literal["town", "city"]
    inhabitants: int = Field(ge=1, le=40000000)


def get_weather(city: str, unit: Literal["celsius", "fahrenheit"]) -> str:
    """The weather in a city."""
    return f"Sunny, 21 degrees {unit} in {city}."


WEATHER = FunctionTool.from_defaults(get_weather)


@check
def answer_and_usage():
    answer = llm().chat(user(CAPITAL))
    assert "Paris" in answer.message.content
    assert answer.raw.choices[0].finish_reason == "stop"
    assert 3 < answer.raw.usage.completion_tokens < 40
    assert answer.additional_kwargs["completion_tokens"] == answer.raw.usage.completion_tokens


@check
def stream_is_the_whole_answer():
    parts = list(llm().stream_chat(user(LONG)))
    whole = llm().chat(user(LONG)).message.content
    assert "".join(part.delta or "" for part in parts) == whole == parts[-1].message.content
    assert len(parts) > 30


@each(True, False)
def complete(is_chat_model):
    model = llm(is_chat_model=is_chat_model, max_tokens=8)
    prompt = CAPITAL if is_chat_model else "The capital of France is"
    text = model.complete(prompt).text
    assert "Paris" in text
    assert "".join(part.delta for part in model.stream_complete(prompt)) == text


@check
def cached_tokens_grow():
    talk = [ChatMessage(role="system", content=unique_system()), *user("Who wrote Faust?")]
    cached = []
    for _ in range(3):
        answer = llm().chat(talk)
        cached.append(answer.raw.usage.prompt_tokens_details.cached_tokens)
        talk += [answer.message, *user("And who else?")]
    assert cached[0] < 30 and 200 < cached[1] < cached[2], cached


@check
def chat_engine_remembers():
    memory = ChatMemoryBuffer.from_defaults(token_limit=2000, tokenizer_fn=str.split)
    engine = SimpleChatEngine.from_defaults(llm=llm(), memory=memory)
    engine.chat("My name is Zoë.")
    engine.chat("What is my name?")
    talk = engine.chat_history
    assert [m.role for m in talk] == ["user", "assistant"] * 2 and "Zoë" in talk[0].content
    assert "".join(engine.stream_chat("Hello?").response_gen)


@each("chat", "stream")
def forced_call(way):
    options = {"user_msg": ASK_WEATHER, "tool_required": True}
    model = llm(max_tokens=400)
    if way == "chat":
        answer = model.chat_with_tools([WEATHER], **options)
    else:
        answer = list(model.stream_chat_with_tools([WEATHER], **options))[-1]
    calls = model.get_tool_calls_from_response(answer)
    assert calls
    for call in calls:
        assert call.tool_name == "get_weather"
        check_weather_arguments(call.tool_kwargs)


@check
def predict_and_call_runs_the_tool():
    result = llm(max_tokens=400).predict_and_call([WEATHER], ASK_WEATHER, tool_required=True)
    assert "Sunny" in str(result)


@check
def structured_prediction():
    prompt = PromptTemplate("Describe {name}.")
    city = llm(max_tokens=400).structured_predict(City, prompt, name="Rome")
    assert isinstance(city, City)
    again = llm(max_tokens=400).as_structured_llm(City).complete("Describe Rome.")
    assert isinstance(again.raw, City)


@check
def structured_outputs_setting():
    model = llm(max_tokens=400, should_use_structured_outputs=True)
    assert isinstance(model.structured_predict(City, PromptTemplate("Describe Rome.")), City)


@check
def text_program_with_a_schema():
    form = {"type": "json_schema", "json_schema": {"name": "city", "schema": CITY}}
    model = llm(max_tokens=400, additional_kwargs={"response_format": form})
    program = LLMTextCompletionProgram.from_defaults(
        output_cls=City, prompt_template_str="Describe Rome.", llm=model)
    assert isinstance(program(), City)
    check_city(json.loads(model.complete("Describe Rome.").text))


@check
def stop_strings():
    whole = llm().complete(LONG).text
    word = whole.split()[5]
    assert llm().complete(LONG, stop=[word]).text == whole[:whole.index(word)]


@check
def log_probabilities():
    answer = llm(max_tokens=6, logprobs=True, top_logprobs=2).chat(user(LONG))
    assert len(answer.logprobs) == 6 and all(len(top) == 2 for top in answer.logprobs)


@check
def seeds():
    first, again, other = (llm(temperature=1, additional_kwargs={"seed": s}).complete(LONG).text
                           for s in (7, 7, 8))
    assert first == again != other


@check
def unicode_is_kept():
    model = llm(additional_kwargs={"extra_body": {"guided_choice": ["Grüße 東京 👩‍👩‍👧"]}})
    assert model.complete(UNICODE).text == "Grüße 東京 👩‍👩‍👧"


@check
def together_as_alone():
    questions = [f"Name {i} animals." for i in range(2, 8)]
    alone = [llm().complete(q).text for q in questions]
    assert together(lambda q: llm().complete(q).text, questions) == alone


@check
async def asynchronous():
    text = "".join([p.delta or "" async for p in await llm().astream_chat(user(LONG))])
    assert text == (await llm().achat(user(LONG))).message.content


@check
def errors():
    raises(openai.BadRequestError, lambda: llm(temperature=1.5).chat(user("word " * 20000)),
           "context")
    raises(openai.BadRequestError, lambda: llm(additional_kwargs={"n": 0}).chat(user("Hi")))
    raises(openai.AuthenticationError,
           lambda: llm(api_base=KEYED_URL + "/v1", api_key="wrong").chat(user("Hi")))
    raises(openai.APITimeoutError, lambda: llm(
        api_base=KEYED_URL + "/v1", api_key=KEY, timeout=0.5, max_tokens=2000,
        additional_kwargs={"extra_body": {"ignore_eos": True}}).chat(user(LONG)))
    wait_idle(KEYED_URL)


@check
def abort_mid_stream():
    stream = llm(api_base=KEYED_URL + "/v1", api_key=KEY, max_tokens=2000, reuse_client=False,
                 additional_kwargs={"extra_body": {"ignore_eos": True}}).stream_chat(user(LONG))
    for _ in range(5):
        next(stream)
    stream.close()  # this leaves the connection open until the inner stream is collected
    del stream
    gc.collect()
    wait_idle(KEYED_URL, 5)


if __name__ == "__main__":
    main()
