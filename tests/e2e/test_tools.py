"""Tool calls through the official SDK: the choice is enforced, arguments match their schemas, deltas add up, and a
conversation with calls is found completely in the cache."""
import json

import openai
import pytest

WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a city.",
    "parameters": {"type": "object", "properties": {
        "city": {"type": "string", "maxLength": 20},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}},
        "required": ["city", "unit"], "additionalProperties": False}}}
TIME = {"type": "function", "function": {
    "name": "get_time", "parameters": {"type": "object", "properties": {
        "zone": {"type": "integer", "minimum": -12, "maximum": 14}}, "required": ["zone"]}}}
TOOLS = [WEATHER, TIME]
QUESTION = [{"role": "user", "content": "What is the weather in Paris?"}]


def ask(server, messages=QUESTION, **options):
    options = {"tools": TOOLS, "max_tokens": 200, "seed": 1, "temperature": 0.5,
               "parallel_tool_calls": False, **options}
    return server.client().chat.completions.create(model="any", messages=messages, **options)


def check_call(call):
    assert call.type == "function" and call.id
    arguments = json.loads(call.function.arguments)
    if call.function.name == "get_weather":
        assert set(arguments) == {"city", "unit"} and len(arguments["city"]) <= 20
        assert arguments["unit"] in ("celsius", "fahrenheit")
    else:
        assert call.function.name == "get_time"
        assert -12 <= arguments["zone"] <= 14


def test_a_required_call_is_made(server):
    for seed in range(3):
        answer = ask(server, tool_choice="required", seed=seed)
        choice = answer.choices[0]
        assert choice.finish_reason == "tool_calls"
        assert choice.message.content is None
        assert choice.message.tool_calls
        for call in choice.message.tool_calls:
            check_call(call)


def test_a_named_function_is_called_once(server):
    for tool in TOOLS:
        name = tool["function"]["name"]
        answer = ask(server, tool_choice={"type": "function", "function": {"name": name}})
        calls = answer.choices[0].message.tool_calls
        assert [call.function.name for call in calls] == [name]
        check_call(calls[0])


def test_allowed_tools(server):
    choice = {"type": "allowed_tools", "allowed_tools": {
        "mode": "required", "tools": [{"type": "function", "function": {"name": "get_time"}}]}}
    calls = ask(server, tool_choice=choice).choices[0].message.tool_calls
    assert {call.function.name for call in calls} == {"get_time"}


def test_parallel_calls(server):
    for seed in range(4):
        one = ask(server, tool_choice="required", seed=seed)
        assert len(one.choices[0].message.tool_calls) == 1
    many = ask(server, tool_choice="required", parallel_tool_calls=True, max_tokens=600,
               extra_body={"ignore_eos": True}).choices[0]
    assert len(many.message.tool_calls) > 1
    for call in many.message.tool_calls[:-1]:
        check_call(call)
    # It cannot end by itself: it repeated a call, or the last call was cut off.
    assert many.finish_reason in ("tool_calls", "length")


def test_a_repeated_call_ends_the_answer(server):
    """One function with one possible value: the second call always repeats the first."""
    one = {"type": "function", "function": {"name": "ping", "parameters": {
        "type": "object", "properties": {"host": {"enum": ["here"]}}, "required": ["host"]}}}
    options = {"tools": [one], "tool_choice": "required", "parallel_tool_calls": True,
               "max_tokens": 2000, "extra_body": {"ignore_eos": True}}
    whole = ask(server, **options)
    assert whole.choices[0].finish_reason == "tool_calls"
    assert [c.function.arguments for c in whole.choices[0].message.tool_calls] == [
        '{"host": "here"}']
    assert whole.usage.completion_tokens < 400
    chunks = [c.choices[0] for c in ask(server, stream=True, **options)]
    parts = [part for c in chunks for part in c.delta.tool_calls or []]
    assert {part.index for part in parts} == {0}
    assert "".join(part.function.arguments for part in parts) == '{"host": "here"}'
    assert chunks[-1].finish_reason == "tool_calls"


def test_none_means_none(server):
    for seed in range(3):
        choice = ask(server, tool_choice="none", seed=seed, max_tokens=30).choices[0]
        assert choice.message.tool_calls is None
        assert choice.finish_reason in ("stop", "length")
        assert "<tool_call>" not in choice.message.content


def test_auto_gives_text_or_calls(server):
    for seed in range(4):
        choice = ask(server, seed=seed, max_tokens=60).choices[0]
        if choice.message.tool_calls:
            assert choice.finish_reason == "tool_calls"
            for call in choice.message.tool_calls:
                check_call(call)
        else:
            assert choice.message.content


def test_deltas_add_up_to_the_whole(server):
    whole = ask(server, tool_choice="required").choices[0].message.tool_calls
    calls, finishes = {}, []
    chunks = list(ask(server, tool_choice="required", stream=True))
    for chunk in chunks:
        choice = chunk.choices[0]
        if choice.finish_reason:
            finishes.append(choice.finish_reason)
        assert not choice.delta.content
        for part in choice.delta.tool_calls or []:
            if part.id:
                assert part.index == len(calls) and part.type == "function"
                calls[part.index] = [part.id, part.function.name, ""]
            calls[part.index][2] += part.function.arguments or ""
    assert finishes == ["tool_calls"]
    assert [(name, text) for _, name, text in calls.values()] == [
        (call.function.name, call.function.arguments) for call in whole]
    arguments = [part for chunk in chunks for part in chunk.choices[0].delta.tool_calls or []
                 if part.function.arguments]
    assert len(arguments) > 3, "arguments must arrive in pieces"


def test_the_stream_helper(server):
    with server.client().chat.completions.stream(
            model="any", messages=QUESTION, tools=TOOLS, tool_choice="required", seed=1,
            parallel_tool_calls=False, max_tokens=200) as stream:
        events = [event.type for event in stream]
        completion = stream.get_final_completion()
    assert "tool_calls.function.arguments.delta" in events
    assert "tool_calls.function.arguments.done" in events
    for call in completion.choices[0].message.tool_calls:
        check_call(call)


def test_several_choices_call(server):
    answer = ask(server, tool_choice="required", n=3, temperature=1)
    ids = [call.id for choice in answer.choices for call in choice.message.tool_calls]
    assert len(answer.choices) == 3 and len(set(ids)) == len(ids)
    for choice in answer.choices:
        for call in choice.message.tool_calls:
            check_call(call)


def test_a_call_that_is_cut_off_says_so(server):
    """The call is returned incomplete, never completed, and without its marker."""
    whole = ask(server, tool_choice="required").choices[0]
    for limit in range(1, 40, 3):
        choice = ask(server, tool_choice="required", max_tokens=limit).choices[0]
        if choice.finish_reason == "tool_calls":
            break
        assert choice.finish_reason == "length"
        assert not choice.message.content
        for call in choice.message.tool_calls or []:
            wanted = whole.message.tool_calls[0].function
            assert call.function.name == wanted.name
            assert wanted.arguments.startswith(call.function.arguments)
        chunks = list(ask(server, tool_choice="required", max_tokens=limit, stream=True))
        assert not any(chunk.choices[0].delta.content for chunk in chunks)
        assert chunks[-1].choices[0].finish_reason == "length"


def test_results_go_into_the_prompt(real):
    call = {"id": "call_1", "type": "function",
            "function": {"name": "get_weather",
                         "arguments": '{"city": "Paris", "unit": "celsius"}'}}
    messages = QUESTION + [{"role": "assistant", "content": None, "tool_calls": [call]},
                           {"role": "tool", "tool_call_id": "call_1", "content": "NEEDLE 17 C"}]
    body = json.dumps({"messages": messages, "tools": TOOLS})
    status, _, answer = real.get("/apply-template", {"Content-Type": "application/json"}, "POST",
                                 body)
    prompt = json.loads(answer)["prompt"]
    assert status == 200
    assert prompt.count("get_time") >= 1 and "NEEDLE 17 C" in prompt
    called = prompt.index('"city": "Paris", "unit": "celsius"')
    assert prompt.index("Paris?") < called < prompt.index("NEEDLE")


def test_a_conversation_of_thirty_turns_is_found_in_the_cache(server):
    """Each turn finds everything the previous one computed, up to the end of its answer."""
    messages = [{"role": "user", "content": "Look up things, one after the other."}]
    before = None
    for turn in range(30):
        choice = "required" if turn % 3 != 2 else "none"
        answer = ask(server, messages, tool_choice=choice, max_tokens=160 if choice != "none" else 40,
                     seed=turn, temperature=0.8)
        usage = answer.usage
        if before:
            # The last sampled token has no KV until another token follows.
            least = before.prompt_tokens + before.completion_tokens - 1
            assert usage.prompt_tokens_details.cached_tokens >= least, f"turn {turn}"
        before = usage
        message = answer.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        for call in message.tool_calls or []:
            check_call(call)
            messages.append({"role": "tool", "tool_call_id": call.id,
                             "content": f"result {turn}: {turn * 7}"})
        if not message.tool_calls:
            messages.append({"role": "user", "content": f"Go on with number {turn}."})


@pytest.mark.parametrize("options, words", [
    ({"tool_choice": "required", "tools": []}, "no 'tools'"),
    ({"tool_choice": {"type": "function", "function": {"name": "x"}}}, '"x"'),
    ({"tools": TOOLS + [TIME]}, "two functions"),
    ({"tool_choice": "sometimes"}, "none, auto, required"),
    ({"tools": [{"type": "retrieval"}]}, 'only "function"'),
])
def test_what_is_wrong_is_said(mock, options, words):
    with pytest.raises(openai.BadRequestError, match=words):
        ask(mock, **options)


def test_a_strict_schema_that_cannot_be_enforced_is_refused(mock):
    tool = {"type": "function", "function": {
        "name": "f", "strict": True,
        "parameters": {"type": "object", "properties": {"a": {"not": {"format": "date"}}},
                       "required": ["a"], "additionalProperties": False}}}
    with pytest.raises(openai.BadRequestError, match="'not'"):
        ask(mock, tools=[tool], tool_choice="required")
    del tool["function"]["strict"]
    tool["function"]["parameters"]["properties"]["a"] = {"enum": [1, 2], "not": {"const": 3}}
    calls = ask(mock, tools=[tool], tool_choice="required").choices[0].message.tool_calls
    assert json.loads(calls[0].function.arguments) in ({"a": 1}, {"a": 2})


# ---- formats whose content has marks, too ----

FUNCTIONARY = r"""{# >>>${recipient} #}{{ tools | tojson if tools }}{% for m in messages %}{{ '<|' + m.role + '|>' }}
{%- if m.content %}{{ ('>>>all\n' if m.role == 'assistant' else '') + m.content }}{% endif %}
{%- for call in m.tool_calls or [] %}{{ '>>>' + call.function.name + '\n' + call.function.arguments }}{% endfor %}
{%- endfor %}{% if add_generation_prompt %}{{ '<|assistant|>>>>' }}{% endif %}"""
HARMONY = """{{ tools | tojson if tools }}{% for m in messages %}<|start|>{{ m.role }}
{%- if m.role == 'assistant' %}<|channel|>final{% endif %}<|message|>{{ m.content }}
{%- if not loop.last or add_generation_prompt %}<|end|>{% endif %}{% endfor %}
{%- if add_generation_prompt %}<|start|>assistant{% endif %}"""


@pytest.fixture(params=[FUNCTIONARY, HARMONY], ids=["functionary", "harmony"])
def marked(request, start, tmp_path):
    path = tmp_path / "template.jinja"
    path.write_text(request.param)
    return start("--chat-template-file", str(path))


def test_marks_of_calls_and_content_are_enforced_and_not_shown(marked):
    for seed in range(3):
        message = ask(marked, tool_choice="required", seed=seed).choices[0].message
        assert not message.content
        check_call(message.tool_calls[0])
        message = ask(marked, tools=openai.omit, parallel_tool_calls=openai.omit, seed=seed,
                      extra_body={"guided_choice": ["four", "five"]}).choices[0].message
        assert message.content in ("four", "five")
        both = ask(marked, seed=seed, extra_body={"guided_choice": ["four", "five"]}).choices[0].message
        assert both.tool_calls or both.content in ("four", "five")


def test_a_continued_text_has_no_mark(marked):
    begun = QUESTION + [{"role": "assistant", "content": "fo"}]
    message = ask(marked, begun, tools=openai.omit, parallel_tool_calls=openai.omit,
                  extra_body={"guided_choice": ["four", "five"]}).choices[0].message
    assert message.content == "ur"


def test_calls_of_functionary_come_back(start, tmp_path):
    (tmp_path / "template.jinja").write_text(FUNCTIONARY)
    server = start("--chat-template-file", str(tmp_path / "template.jinja"))
    first = ask(server, tool_choice="required")
    message = first.choices[0].message
    results = [{"role": "tool", "tool_call_id": call.id, "content": "21"} for call in message.tool_calls]
    again = ask(server, QUESTION + [message.model_dump(exclude_none=True), *results])
    assert again.usage.prompt_tokens_details.cached_tokens >= first.usage.total_tokens - 1
