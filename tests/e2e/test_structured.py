"""Structured answers: JSON, schemas, grammars, regular expressions and choices, each enforced."""
import json
import re
import time
from typing import Annotated, List, Literal, Optional

import jsonschema
import openai
import pytest
from pydantic import BaseModel, Field

ASK = [{"role": "user", "content": "Tell me about a person, as JSON."}]
PERSON = {"type": "object", "properties": {
    "name": {"type": "string", "maxLength": 30},
    "age": {"type": "integer", "minimum": 0, "maximum": 150},
    "tags": {"type": "array", "items": {"enum": ["tall", "kind", "old"]}, "maxItems": 3},
    "address": {"anyOf": [{"type": "null"}, {"type": "object", "properties": {
        "zip": {"type": "string", "pattern": "^[0-9]{5}$"}}, "required": ["zip"],
        "additionalProperties": False}]}},
    "required": ["name", "age", "tags", "address"], "additionalProperties": False}


def schema_format(schema):
    return {"type": "json_schema", "json_schema": {"name": "thing", "strict": True,
                                                   "schema": schema}}


def ask(server, messages=ASK, **options):
    options = {"max_tokens": 300, "seed": 1, "temperature": 0.8, **options}
    return server.client().chat.completions.create(model="any", messages=messages, **options)


def text_of(server, **options):
    """The answer is always complete; "length" means it was ended sooner than the model would
    have."""
    choice = ask(server, **options).choices[0]
    assert choice.finish_reason in ("stop", "length")
    return choice.message.content


def test_json_object(server):
    for seed in range(3):
        text = text_of(server, response_format={"type": "json_object"}, seed=seed)
        assert isinstance(json.loads(text), dict)


def test_json_schema(server):
    for seed in range(4):
        text = text_of(server, response_format=schema_format(PERSON), seed=seed)
        jsonschema.validate(json.loads(text), PERSON)


def test_streamed(server):
    options = {"response_format": schema_format(PERSON), "seed": 3}
    chunks = list(ask(server, stream=True, **options))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text == text_of(server, **options)
    assert chunks[-1].choices[0].finish_reason in ("stop", "length")


Short = Annotated[str, Field(max_length=12)]


class Step(BaseModel):
    title: Short
    done: bool


class Plan(BaseModel):
    goal: Literal["win", "draw"]
    steps: Annotated[List[Step], Field(max_length=3)]
    note: Optional[Short]


def test_typed_parsing(server):
    completion = server.client().chat.completions.parse(
        model="any", messages=ASK, response_format=Plan, max_tokens=400, seed=2)
    plan = completion.choices[0].message.parsed
    assert isinstance(plan, Plan) and plan.goal in ("win", "draw")


def test_typed_stream(server):
    with server.client().chat.completions.stream(
            model="any", messages=ASK, response_format=Plan, max_tokens=400, seed=2) as stream:
        kinds = {event.type for event in stream}
        plan = stream.get_final_completion().choices[0].message.parsed
    assert isinstance(plan, Plan)
    assert "content.delta" in kinds and "content.done" in kinds


def test_a_recursive_schema(server):
    schema = {"$ref": "#/$defs/node", "$defs": {"node": {
        "type": "object", "properties": {
            "value": {"type": "integer", "minimum": 0, "maximum": 99},
            "children": {"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 2}},
        "required": ["value", "children"], "additionalProperties": False}}}
    for seed in range(3):
        text = text_of(server, response_format=schema_format(schema), seed=seed)
        jsonschema.validate(json.loads(text), schema)


@pytest.mark.parametrize("field", ["regex", "guided_regex"])
def test_a_regular_expression(server, field):
    text = text_of(server, extra_body={field: r"(yes|no), [0-9]{3}-[a-f]+\."})
    assert re.fullmatch(r"(yes|no), [0-9]{3}-[a-f]+\.", text)


def test_a_grammar(server):
    grammar = 'root ::= "<" item ("," item)* ">"\nitem ::= [a-z]{1,8}'
    text = text_of(server, extra_body={"grammar": grammar})
    assert re.fullmatch(r"<[a-z]{1,8}(,[a-z]{1,8})*>", text)


def test_choices(server):
    choices = ["positive", "negative", "neutral"]
    assert text_of(server, extra_body={"guided_choice": choices}) in choices
    assert text_of(server, extra_body={"structured_outputs": {"choice": choices}}) in choices


def test_an_answer_is_complete_whatever_its_budget(server):
    """Near max_tokens the answer takes the shortest way to a valid end, with reason "length"."""
    schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    for limit in (30, 50, 90):
        choice = ask(server, max_tokens=limit, response_format=schema_format(schema),
                     messages=[{"role": "user", "content": "Write a very long story."}]).choices[0]
        jsonschema.validate(json.loads(choice.message.content), schema)
        assert choice.finish_reason == "length" or limit > 30
    done = ask(server, max_tokens=30, extra_body={"guided_choice": ["yes", "no"]}).choices[0]
    assert done.finish_reason == "stop"


def test_a_begun_answer_goes_on_in_its_form(server):
    begun = ASK + [{"role": "assistant", "content": '{"name": "Al'}]
    text = text_of(server, messages=begun, response_format=schema_format(PERSON))
    jsonschema.validate(json.loads('{"name": "Al' + text), PERSON)
    with pytest.raises(openai.BadRequestError, match="does not match"):
        ask(server, messages=ASK + [{"role": "assistant", "content": "Sure!"}],
            response_format=schema_format(PERSON))


@pytest.mark.parametrize("form", [
    {"type": "json_object", "schema": None}, {"type": "text", "schema": None}])
def test_null_is_absent(mock, form):
    text = text_of(mock, response_format=form)
    if form["type"] == "json_object":
        assert isinstance(json.loads(text), dict)
    with pytest.raises(openai.BadRequestError):
        ask(mock, response_format={"type": "json_schema", "json_schema": {"name": "x",
                                                                          "schema": None}})


def test_text_completions_too(server):
    answer = server.client().completions.create(
        model="any", prompt="The capital of France is", max_tokens=20, seed=1,
        extra_body={"guided_choice": ["Paris", "Rome"]})
    assert answer.choices[0].text in ("Paris", "Rome")


def test_with_several_choices_and_stops(server):
    answer = ask(server, n=3, temperature=1, response_format=schema_format(PERSON))
    for choice in answer.choices:
        jsonschema.validate(json.loads(choice.message.content), PERSON)
    cut = ask(server, response_format=schema_format(PERSON), stop=['"age"'])
    assert '"age"' not in cut.choices[0].message.content


def test_a_form_or_a_call(server):
    tool = {"type": "function", "function": {"name": "f", "parameters": {
        "type": "object", "properties": {"x": {"type": "boolean"}}, "required": ["x"]}}}
    for seed in range(4):
        message = ask(server, tools=[tool], response_format=schema_format(PERSON), seed=seed,
                      temperature=1.5).choices[0].message
        if message.tool_calls:
            json.loads(message.tool_calls[0].function.arguments)
        else:
            jsonschema.validate(json.loads(message.content), PERSON)


@pytest.mark.parametrize("options, words", [
    ({"response_format": schema_format({"not": {"format": "date"}})}, "'not'"),
    ({"response_format": schema_format({"type": "wizard"})}, "#/type"),
    ({"response_format": schema_format({"$ref": "#/nowhere"})}, "nowhere"),
    ({"response_format": schema_format({"type": "string", "pattern": "(?=a)"})}, "look"),
    ({"response_format": schema_format(False)}, "no"),
    ({"extra_body": {"grammar": "root ::= other"}}, "other"),
    ({"extra_body": {"grammar": 'root ::= root "a" | "b"'}}, "left"),
    ({"extra_body": {"regex": "(a"}}, r"\)|parenthes|group"),
    ({"extra_body": {"regex": "a", "grammar": "b"}}, "send only one"),
])
def test_what_cannot_be_held_to_is_refused_by_name(mock, options, words):
    with pytest.raises(openai.BadRequestError, match=words):
        ask(mock, **options)


def test_a_schema_is_compiled_once(mock):
    schema = {"type": "object", "properties": {
        f"property_{i}": {"enum": [f"value {i} {k}" for k in range(40)]} for i in range(60)},
        "required": [f"property_{i}" for i in range(60)]}
    times = []
    for _ in range(10):
        began = time.monotonic()
        assert mock.post({"messages": ASK, "max_tokens": 1, "json_schema": schema})[0] == 200
        times.append(time.monotonic() - began)
    assert min(times[1:]) < times[0] / 4  # about 3 ms instead of 160 in the debug build
