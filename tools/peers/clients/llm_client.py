"""Simon Willison's llm, as a command and as a library, with a model of extra-openai-models.yaml."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from checks import (ASK_WEATHER, CAPITAL, CITY, KEY, KEYED_URL, LONG, MODEL, UNICODE, URL, check,
                    check_city, main, raises, together, unique_system, wait_idle)

HOME = tempfile.TemporaryDirectory(prefix="llm-")
os.environ["LLM_USER_PATH"] = HOME.name
pathlib.Path(HOME.name, "extra-openai-models.yaml").write_text("".join(
    f"- model_id: {model_id}\n  model_name: {name}\n  api_base: {url}/v1\n"
    f"  supports_schema: true\n  supports_tools: true\n  api_key_name: radish\n"
    for model_id, name, url in (("radish", MODEL, URL), ("keyed", "mock", KEYED_URL),
                                ("text", MODEL, URL)))
    + "  completion: true\n")
pathlib.Path(HOME.name, "keys.json").write_text(json.dumps({"radish": KEY}))
import llm  # noqa: E402

model = llm.get_model("radish")


def ask(text=CAPITAL, **options):
    return model.prompt(text, **{"temperature": 0, "max_tokens": 40, **options})


def command(*arguments, text="", status=0):
    done = subprocess.run([os.path.join(os.path.dirname(sys.executable), "llm"), *arguments],
                          input=text, capture_output=True, text=True, timeout=200)
    assert done.returncode == status, done.stderr
    return done.stdout if status == 0 else done.stderr


@check
def answer_and_usage():
    answer = ask(stream=False)
    assert "Paris" in answer.text()
    usage = answer.usage()
    assert usage.input > 20 and 3 < usage.output < 40


@check
def stream_is_the_whole_answer():
    parts = list(ask(LONG))
    assert "".join(parts) == ask(LONG, stream=False).text() and len(parts) > 30


@check
def stream_has_usage():
    answer = ask(LONG)
    answer.text()
    assert answer.usage().output == 40


@check
def conversation_is_cached():
    talk = model.conversation()
    talk.prompt("Who wrote Faust?", system=unique_system(), temperature=0, max_tokens=30).text()
    second = talk.prompt("And who else?", temperature=0, max_tokens=30)
    second.text()
    details = second.usage().details or {}
    assert details["prompt_tokens_details"]["cached_tokens"] > 200, details


@check
def schema():
    for stream in (True, False):
        answer = ask("Describe Rome.", schema=CITY, max_tokens=400, stream=stream)
        check_city(json.loads(answer.text()))


@check
def seeds():
    first, again, other = (ask(LONG, temperature=1, seed=s).text() for s in (7, 7, 8))
    assert first == again != other


@check
def stop_string():
    whole = ask(LONG).text()
    word = whole.split()[5]
    assert ask(LONG, stop=word).text() == whole[:whole.index(word)]


@check
def json_object():
    answer = ask("Which city is the capital of France? Reply in JSON.", json_object=True,
                 max_tokens=400)
    assert isinstance(json.loads(answer.text()), dict)


@check
def tools_are_offered():
    def get_weather(city: str) -> str:
        """The weather in a city."""
        return "Sunny."

    answer = ask(ASK_WEATHER, tools=[get_weather], max_tokens=200)
    answer.text()
    for call in answer.tool_calls():
        assert call.name == "get_weather" and call.arguments["city"]
    assert answer.text() or answer.tool_calls()


@check
def completion_model():
    text = llm.get_model("text").prompt("The capital of France is", temperature=0, max_tokens=5)
    assert text.text().startswith(" Paris")


@check
def together_as_alone():
    questions = [f"Name {i} animals." for i in range(2, 6)]
    assert together(lambda q: ask(q).text(), questions) == [ask(q).text() for q in questions]


@check
async def asynchronous():
    answer = llm.get_async_model("radish").prompt(LONG, temperature=0, max_tokens=40)
    assert await answer.text() == ask(LONG).text()


@check
def errors():
    raises(Exception, lambda: ask("word " * 20000).text(), "context")
    raises(Exception, lambda: ask(logit_bias={"0": 1000}).text(), "logit_bias")
    keyed = llm.get_model("keyed")
    raises(Exception, lambda: keyed.prompt("Hi", key="wrong").text(), "401")


@check
def abort_mid_stream():
    stream = iter(llm.get_model("keyed").prompt(LONG, max_tokens=2000))
    for _ in range(5):
        next(stream)
    stream.close()
    wait_idle(KEYED_URL, 5)


@check
def command_answers():
    assert "Paris" in command("-m", "radish", "-o", "temperature", "0", CAPITAL)
    assert command("-m", "radish", "-o", "max_tokens", "20", "-s", "Be brief. 東京", text=UNICODE)


@check
def command_continues():
    command("-m", "radish", "-o", "max_tokens", "20", "My name is Zoë.")
    command("-c", "-o", "max_tokens", "20", "What is my name?")
    logs = json.loads(command("logs", "--json", "-n", "2"))
    assert len({entry["conversation_id"] for entry in logs}) == 1 and len(logs) == 2


@check
def command_schema_and_errors():
    text = command("-m", "radish", "-o", "temperature", "0", "--schema", "name, age int",
                   "Invent a dog named Rex.")
    assert set(json.loads(text)) == {"name", "age"}
    assert "context" in command("-m", "radish", text="word " * 20000, status=1)


if __name__ == "__main__":
    main()
