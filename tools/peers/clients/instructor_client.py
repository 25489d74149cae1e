"""instructor: pydantic models from answers, through JSON schemas and tools.

Its mode JSON asks for any JSON object and shows the schema to the model only as text, so the result
depends on the model. It is not checked.
"""
import asyncio
from enum import Enum
from typing import Iterable, List, Literal, Optional, Union

import instructor
import openai
from pydantic import BaseModel, Field, field_validator

from checks import (KEY, KEYED_URL, LONG, MODEL, URL, check, each, main, messages, raises, together,
                    wait_idle)

MODES = {mode.name: mode for mode in (instructor.Mode.TOOLS, instructor.Mode.TOOLS_STRICT,
                                      instructor.Mode.JSON_SCHEMA)}


def ask(mode, model, text="Describe the city of Rome.", **options):
    client = instructor.from_openai(
        openai.OpenAI(base_url=URL + "/v1", api_key="none", max_retries=0, timeout=120),
        mode=MODES[mode])
    options = {"model": MODEL, "temperature": 0, "max_tokens": 600, "max_retries": 0, **options}
    return client.chat.completions.create(response_model=model, messages=messages(text), **options)


class Size(Enum):
    SMALL = "small"
    LARGE = "large"


class City(BaseModel):
    name: str = Field(max_length=40)
    size: Size
    inhabitants: int = Field(ge=1, le=40000000)
    capital: bool


class River(BaseModel):
    name: str = Field(max_length=40)
    length_km: float = Field(gt=0, lt=10000)


class Region(BaseModel):
    name: str = Field(max_length=40)
    cities: List[City] = Field(min_length=1, max_length=2)
    river: Optional[River] = None


class Label(BaseModel):
    label: Literal["spam", "ham"]


@each(*MODES)
def flat_model(mode):
    city = ask(mode, City)
    assert isinstance(city, City) and city.name


@each(*MODES)
def nested_model(mode):
    region = ask(mode, Region, "Describe a region of Italy.", max_tokens=1500)
    assert isinstance(region, Region) and 1 <= len(region.cities) <= 2


@each(*MODES)
def classification(mode):
    assert ask(mode, Label, "Is this spam? 'You won a prize!'").label in ("spam", "ham")


@each(*MODES)
def any_temperature(mode):
    cities = [ask(mode, City, temperature=1.5, seed=seed) for seed in range(3)]
    assert all(isinstance(city, City) for city in cities)


@each("TOOLS", "JSON_SCHEMA")
def union(mode):
    thing = ask(mode, Union[City, River], "Describe the river Tiber.")
    assert isinstance(thing, (City, River))


@each("TOOLS", "JSON_SCHEMA")
def simple_types(mode):
    assert isinstance(ask(mode, int, "How many days has a week?"), int)
    assert isinstance(ask(mode, bool, "Is Rome in Italy?"), bool)
    assert ask(mode, Literal["red", "blue"], "Which color has the sky?") in ("red", "blue")


@each(*MODES)
def usage_and_raw_answer(mode):
    city = ask(mode, City)
    usage = city._raw_response.usage
    assert usage.completion_tokens > 5 and usage.prompt_tokens_details.cached_tokens > 5


@check
def partial_stream():
    client = instructor.from_openai(openai.OpenAI(base_url=URL + "/v1", api_key="none"),
                                    mode=instructor.Mode.JSON_SCHEMA)
    parts = list(client.chat.completions.create_partial(
        model=MODEL, response_model=River, messages=messages("Describe the Tiber."), temperature=0,
        max_tokens=400))
    assert len(parts) > 5 and parts[0].length_km is None
    whole = ask("JSON_SCHEMA", River, "Describe the Tiber.")
    assert parts[-1].model_dump() == whole.model_dump()


@each("TOOLS", "JSON_SCHEMA")
def iterable_stream(mode):
    client = instructor.from_openai(openai.OpenAI(base_url=URL + "/v1", api_key="none"),
                                    mode=MODES[mode])
    found = list(client.chat.completions.create(
        model=MODEL, response_model=Iterable[Label], stream=True, temperature=0, max_tokens=300,
        messages=messages("Label these: 'You won!', 'See you tomorrow.'")))
    assert all(isinstance(label, Label) for label in found)


@check
def validators_ask_again():
    asked = []

    class Loud(BaseModel):
        name: str = Field(max_length=20)

        @field_validator("name")
        @classmethod
        def once_wrong(cls, name):
            asked.append(name)
            if len(asked) == 1:
                raise ValueError("once more, please")
            return name

    assert isinstance(ask("TOOLS", Loud, "Name a city.", max_retries=2), Loud) and len(asked) == 2


@check
def together_as_alone():
    def describe(name):
        return ask("JSON_SCHEMA", City, f"Describe {name}.").model_dump()

    cities = ["Rome", "Paris", "Berlin", "Madrid"]
    assert together(describe, cities) == [describe(name) for name in cities]


@check
def asynchronous():
    async def run():
        client = instructor.from_openai(openai.AsyncOpenAI(base_url=URL + "/v1", api_key="none"),
                                        mode=instructor.Mode.TOOLS)
        return await asyncio.gather(*(client.chat.completions.create(
            model=MODEL, response_model=City, temperature=0, max_tokens=600,
            messages=messages(f"Describe {name}.")) for name in ("Rome", "Paris")))
    assert all(isinstance(city, City) for city in asyncio.run(run()))


@check
def errors():
    error = raises(Exception, lambda: ask("TOOLS", City, temperature=7), "temperature")
    assert "400" in str(error)
    client = instructor.from_openai(openai.OpenAI(base_url=KEYED_URL + "/v1", api_key=KEY,
                                                  timeout=0.5, max_retries=0))
    raises(Exception, lambda: client.chat.completions.create(
        model="mock", response_model=None, messages=messages(LONG), max_tokens=2000, max_retries=0,
        extra_body={"ignore_eos": True}), "timed out")
    wait_idle(KEYED_URL)


if __name__ == "__main__":
    main()
