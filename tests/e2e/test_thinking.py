"""Thinking: split from the answer, bounded, switched off, and combined with structured answers."""
import json
import os
import subprocess

import pytest

from conftest import BUILD

HELLO = [{"role": "user", "content": "What is 2 + 2?"}]
# The prompt ends inside the thinking (DeepSeek R1), or the model starts it (Qwen 3).
BEGUN = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content.split('</think>')[-1] }}"
         "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n"
         "{% endif %}")
SWITCH = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
          "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
          "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n"
          "{% endif %}{% endif %}")
# Thinks if the variable is true, otherwise closes the thinking at once: R1, QwQ, Command R7B.
ASKS = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
        "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n"
        "{% if not enable_thinking %}</think>{% endif %}{% endif %}")


@pytest.fixture(scope="module")
def templates(tmp_path_factory):
    folder = tmp_path_factory.mktemp("templates")
    (folder / "begun.jinja").write_text(BEGUN)
    (folder / "switch.jinja").write_text(SWITCH)
    (folder / "asks.jinja").write_text(ASKS)
    return folder


def ask(server, **options):
    extra = options.pop("extra", {})
    options = {"max_tokens": 60, "seed": 1, "temperature": 0.5, **options}
    return server.client().chat.completions.create(
        model="any", messages=HELLO, extra_body={"ignore_eos": True, **extra}, **options)


def test_all_of_it_is_thinking_until_it_ends(start, templates):
    server = start("--chat-template-file", str(templates / "begun.jinja"))
    message = ask(server).choices[0].message
    assert message.content == "" and message.reasoning_content
    usage = ask(server).usage
    assert usage.completion_tokens_details.reasoning_tokens == usage.completion_tokens == 60


def test_a_budget_ends_it(start, templates):
    server = start("--chat-template-file", str(templates / "begun.jinja"))
    for name in ("thinking_budget_tokens", "thinking_budget", "reasoning_budget"):
        answer = ask(server, max_tokens=100, extra={name: 20})
        message, usage = answer.choices[0].message, answer.usage
        assert message.reasoning_content and message.content
        assert "</think>" not in message.content + message.reasoning_content
        assert 20 <= usage.completion_tokens_details.reasoning_tokens < 40
        assert usage.completion_tokens == 100


def test_it_is_switched_off_where_the_template_cannot(start, templates):
    server = start("--chat-template-file", str(templates / "begun.jinja"))
    for extra in ({"enable_thinking": False}, {"reasoning_effort": "none"},
                  {"chat_template_kwargs": {"enable_thinking": False}}):
        message = ask(server, extra=extra).choices[0].message
        assert message.content and not getattr(message, "reasoning_content", None)


def test_it_is_switched_off_by_the_template(start, templates):
    server = start("--chat-template-file", str(templates / "switch.jinja"))
    body = {"messages": HELLO, "enable_thinking": False}
    _, _, text = server.get("/apply-template", {"Content-Type": "application/json"}, "POST",
                            json.dumps(body))
    assert json.loads(text)["prompt"].endswith("<think>\n\n</think>\n\n")
    message = ask(server, extra={"enable_thinking": False}).choices[0].message
    assert message.content and not getattr(message, "reasoning_content", None)


def rendered(server, **fields):
    _, _, text = server.get("/apply-template", {"Content-Type": "application/json"}, "POST",
                            json.dumps({"messages": HELLO, **fields}))
    return json.loads(text)["prompt"]


def test_a_model_that_cannot_think_is_named(start):
    assert "warn  --thinking on has no effect: 'mock' does not support thinking" in start("--thinking", "on").log()
    assert "--thinking" not in start("--thinking", "off").log()


@pytest.mark.parametrize("mode, thinks", [(None, True), ("auto", True), ("on", True),
                                          ("off", False)])
def test_the_server_decides_where_the_request_does_not(start, templates, mode, thinks):
    options = ["--thinking", mode] if mode else []
    server = start("--chat-template-file", str(templates / "asks.jinja"), *options)
    assert "--thinking" not in server.log()
    assert rendered(server).endswith("<think>\n" if thinks else "</think>")
    assert rendered(server, enable_thinking=False).endswith("</think>")
    assert rendered(server, reasoning_effort="none").endswith("</think>")
    assert rendered(server, enable_thinking=True).endswith("<think>\n")
    message = ask(server).choices[0].message
    assert bool(getattr(message, "reasoning_content", None)) == thinks
    message = ask(server, extra={"enable_thinking": True}).choices[0].message
    assert message.reasoning_content


def test_the_server_switches_it_off_where_the_template_cannot(start, templates):
    server = start("--chat-template-file", str(templates / "begun.jinja"), "--thinking", "off")
    message = ask(server).choices[0].message
    assert message.content and not getattr(message, "reasoning_content", None)
    message = ask(server, extra={"enable_thinking": True}).choices[0].message
    assert message.reasoning_content


def test_run_switches_it_off(templates):
    def answer(*options):
        command = [os.path.join(BUILD, "radish-debug"), "run", "--engine", "mock", "-n", "30",
                   "--seed", "1", "--chat-template-file", str(templates / "begun.jinja")]
        return subprocess.run([*command, *options, "Hi"], capture_output=True, timeout=60,
                              check=True).stdout.decode()

    assert "</think>" not in answer()
    off = answer("--thinking", "off")
    assert off.strip() and off != answer() and "think>" not in off


def test_streamed(start, templates):
    server = start("--chat-template-file", str(templates / "begun.jinja"))
    options = {"max_tokens": 100, "extra": {"thinking_budget": 20}}
    whole = ask(server, **options).choices[0].message
    reasoning, content, order = "", "", []
    for chunk in ask(server, stream=True, **options):
        for choice in chunk.choices:
            more = getattr(choice.delta, "reasoning_content", None)
            if more:
                reasoning += more
                order.append("r")
            if choice.delta.content:
                content += choice.delta.content
                order.append("c")
    assert (reasoning, content) == (whole.reasoning_content, whole.content)
    assert order == sorted(order, reverse=True)


def test_the_answer_behind_it_is_held_to_its_form(start, templates):
    server = start("--chat-template-file", str(templates / "begun.jinja"))
    answer = ask(server, max_tokens=200, extra={"thinking_budget": 10, "ignore_eos": False,
                                                "guided_choice": ["four", "five"]})
    message = answer.choices[0].message
    assert message.content in ("four", "five") and message.reasoning_content


def test_stop_strings_do_not_meet_what_the_server_wrote(start, templates):
    server = start("--chat-template-file", str(templates / "begun.jinja"))
    message = ask(server, stop=["\n\n"], extra={"enable_thinking": False}).choices[0].message
    assert message.content


def test_an_unfinished_thought_is_continued(start, templates):
    server = start("--chat-template-file", str(templates / "switch.jinja"))
    body = {"messages": HELLO + [{"role": "assistant", "content": "<think>\nLet me see, "}],
            "max_tokens": 20, "seed": 1, "ignore_eos": True}
    answer = json.loads(server.post(body)[2])["choices"][0]["message"]
    assert answer["content"] == "" and answer["reasoning_content"]
