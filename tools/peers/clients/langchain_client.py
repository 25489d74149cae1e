"""langchain-openai: ChatOpenAI and OpenAI with a base_url."""
import json
from typing import Literal

import openai
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI
from pydantic import BaseModel, Field

from checks import (ASK_WEATHER, CAPITAL, CITY, KEY, KEYED_URL, LONG, MODEL, UNICODE, URL, check,
                    check_city, each, main, raises, unique_system, wait_idle)


def chat(**options):
    return ChatOpenAI(**{"model": MODEL, "base_url": URL + "/v1", "api_key": "none",
                         "temperature": 0, "max_tokens": 40, "max_retries": 0, "timeout": 120,
                         **options})


class City(BaseModel):
    """A city."""

    name: str = Field(max_length=40)
    kind: Literal["town", "city"]
    inhabitants: int = Field(ge=1, le=40000000)


@tool
def get_weather(city: str, unit: Literal["celsius", "fahrenheit"]) -> str:
    """The weather in a city."""
    return f"Sunny, 21 degrees {unit} in {city}."


@check
def answer_and_usage():
    answer = chat().invoke(CAPITAL)
    assert "Paris" in answer.content and answer.response_metadata["finish_reason"] == "stop"
    usage = answer.usage_metadata
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    assert 3 < usage["output_tokens"] < 40


@check
def stream_is_the_whole_answer():
    chunks = list(chat(stream_usage=True).stream(LONG))
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    assert whole.content == chat().invoke(LONG).content and len(chunks) > 30
    assert whole.usage_metadata["output_tokens"] == 40
    assert whole.response_metadata["finish_reason"] == "length"


@check
def cached_tokens_grow():
    talk = [SystemMessage(unique_system()), HumanMessage("Who wrote Faust?")]
    cached = []
    for _ in range(3):
        answer = chat().invoke(talk)
        cached.append(answer.usage_metadata["input_token_details"].get("cache_read", 0))
        talk += [answer, HumanMessage("And who else?")]
    assert cached[0] < 30 and 200 < cached[1] < cached[2], cached


@each("function_calling", "json_schema")
def structured_output(method):
    city = chat(max_tokens=400).with_structured_output(City, method=method).invoke("Describe Rome.")
    assert isinstance(city, City)


@check
def structured_output_from_a_schema():
    schema = {"title": "city", "description": "A city.", **CITY}
    check_city(chat(max_tokens=400).with_structured_output(schema).invoke("Describe Rome."))


@check
def json_mode():
    answer = chat(max_tokens=400).bind(response_format={"type": "json_object"}).invoke(
        "Which city is the capital of France? Reply in JSON.")
    assert isinstance(json.loads(answer.content), dict)


@each("any", "required", "get_weather")
def forced_call(choice):
    answer = chat(max_tokens=400).bind_tools([get_weather], tool_choice=choice).invoke(ASK_WEATHER)
    assert answer.tool_calls and not answer.invalid_tool_calls
    for call in answer.tool_calls:
        assert call["name"] == "get_weather" and call["id"]
        assert "Sunny" in get_weather.invoke(call["args"])


@check
def streamed_call_is_the_whole_call():
    model = chat(max_tokens=400).bind_tools([get_weather], tool_choice="required")
    chunks = list(model.stream(ASK_WEATHER))
    built = chunks[0]
    for chunk in chunks[1:]:
        built += chunk
    assert [c["args"] for c in built.tool_calls] == \
        [c["args"] for c in model.invoke(ASK_WEATHER).tool_calls]


@check
def result_goes_back():
    model = chat(max_tokens=400)
    call = model.bind_tools([get_weather], tool_choice="get_weather").invoke(ASK_WEATHER)
    results = [ToolMessage(get_weather.invoke(c["args"]), tool_call_id=c["id"])
               for c in call.tool_calls]
    answer = model.bind_tools([get_weather], tool_choice="none").invoke(
        [HumanMessage(ASK_WEATHER), call, *results])
    assert isinstance(answer, AIMessage) and answer.content and not answer.tool_calls


@check
def stop_strings():
    whole = chat().invoke(LONG).content
    word = whole.split()[5]
    assert chat().invoke(LONG, stop=[word]).content == whole[:whole.index(word)]
    streamed = "".join(c.content for c in chat(stop=[word]).stream(LONG))
    assert streamed == whole[:whole.index(word)]


@check
def log_probabilities():
    answer = chat(max_tokens=6, logprobs=True, top_logprobs=2).invoke(LONG)
    entries = answer.response_metadata["logprobs"]["content"]
    assert len(entries) == 6 and all(len(entry["top_logprobs"]) == 2 for entry in entries)
    assert "".join(entry["token"] for entry in entries) == answer.content


@check
def several_choices():
    texts = [g.text for g in chat(n=3, temperature=1).generate([[HumanMessage(LONG)]]).generations[0]]
    assert len(set(texts)) == 3


@check
def seeds():
    first, again, other = (chat(temperature=1, seed=s).invoke(LONG).content for s in (7, 7, 8))
    assert first == again != other


@check
def batch_as_alone():
    questions = [f"Name {i} animals." for i in range(2, 8)]
    assert [a.content for a in chat().batch(questions)] == \
        [chat().invoke(q).content for q in questions]


@check
def chain_and_unicode():
    chain = ChatPromptTemplate.from_messages([("system", "You are {who}."), ("user", "{text}")]) \
        | chat() | StrOutputParser()
    assert chain.invoke({"who": "zoë 🎉", "text": UNICODE}).encode()


@check
def completion_model():
    model = OpenAI(model=MODEL, base_url=URL + "/v1", api_key="none", temperature=0, max_tokens=5,
                   max_retries=0)
    assert model.invoke("The capital of France is").startswith(" Paris")
    assert "".join(model.stream("The capital of France is")).startswith(" Paris")


@check
def errors():
    raises(openai.BadRequestError, lambda: chat(temperature=7).invoke("Hi"))
    raises(openai.BadRequestError, lambda: chat().invoke("word " * 20000), "context")
    raises(openai.AuthenticationError,
           lambda: chat(base_url=KEYED_URL + "/v1", api_key="wrong").invoke("Hi"))


@check
def timeout():
    raises(openai.APITimeoutError, lambda: chat(
        base_url=KEYED_URL + "/v1", api_key=KEY, timeout=0.5, max_tokens=2000,
        extra_body={"ignore_eos": True}).invoke(LONG))
    wait_idle(KEYED_URL)


@check
def abort_mid_stream():
    stream = chat(base_url=KEYED_URL + "/v1", api_key=KEY, max_tokens=2000,
                  extra_body={"ignore_eos": True}).stream(LONG)
    for _ in range(5):
        next(stream)
    stream.close()
    wait_idle(KEYED_URL, 5)


@check
async def asynchronous():
    text = "".join([c.content async for c in chat().astream(LONG)])
    assert text == (await chat().ainvoke(LONG)).content


if __name__ == "__main__":
    main()
