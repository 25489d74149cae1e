"""Exact token replay: an answer sent back as text becomes the tokens that were sampled."""
import json

import pytest

# Wild answers, which the tokenizer would often split differently.
WILD = {"temperature": 1, "top_p": 1, "top_k": 0, "min_p": 0}
QUESTIONS = ["Tell me about a river.", "What lives in it?", "Who named it?", "Write it as a poem.",
             "Now shorter."]


def turn(server, messages, seed, **options):
    """(answer, headers) of one turn."""
    body = {"messages": messages, "max_tokens": 40, "seed": seed, **WILD, **options}
    status, headers, text = server.post(body)
    assert status == 200, text
    return json.loads(text), headers


def talk(server, n_turns, seed, **options):
    """A conversation whose answers are sent back as text: [(answer, headers)]."""
    messages, turns = [{"role": "system", "content": f"You are guide number {seed}."}], []
    for question in QUESTIONS[:n_turns]:
        messages.append({"role": "user", "content": question})
        answer, headers = turn(server, messages, seed, **options)
        turns.append((answer, headers))
        messages.append({"role": "assistant", "content": answer["choices"][0]["message"]["content"]})
    return turns


def shortfall(turns):
    """How many tokens of each turn's prefix were computed again."""
    lacks = []
    for (before, _), (after, _) in zip(turns, turns[1:]):
        known = before["usage"]["prompt_tokens"] + before["usage"]["completion_tokens"] - 1
        lacks.append(known - after["usage"]["prompt_tokens_details"]["cached_tokens"])
    return lacks


def is_cut(turns):
    """An answer cut inside a character cannot be sent back unchanged."""
    return any("\ufffd" in answer["choices"][0]["message"]["content"] for answer, _ in turns)


@pytest.mark.parametrize("n_turns", [2, 5])
def test_a_turn_finds_all_of_the_one_before(server, n_turns):
    whole = [turns for turns in (talk(server, n_turns, seed) for seed in range(100, 103)) if not is_cut(turns)]
    assert whole
    for turns in whole:
        assert all(lack <= 0 for lack in shortfall(turns)), shortfall(turns)


def test_without_replay_some_is_computed_again(real):
    """Proves that the test above can fail: sampled tokens are not always the tokenizer's."""
    assert any(lack > 0 for seed in range(200, 230)
               for lack in shortfall(talk(real, 3, seed, replay=False)))


def test_without_replay_the_explanation_says_that_the_text_was_the_same(real):
    for seed in range(230, 260):
        for answer, _ in talk(real, 3, seed, replay=False, radish={"explain": True}):
            miss = answer["radish"]["miss"]
            if miss and miss["role"] == "assistant" and miss["reason"] == "diverged":
                assert "the same text in different tokens, because exact token replay" in miss["detail"]
                return
    pytest.fail("every answer was tokenised as it was sampled")


def test_the_header_counts_what_was_replayed(server):
    turns = talk(server, 3, 300)
    assert "x-radish-replayed-tokens" not in turns[0][1]
    sampled = 0
    for (before, _), (after, headers) in zip(turns, turns[1:]):
        sampled += before["usage"]["completion_tokens"]
        replayed = int(headers["x-radish-replayed-tokens"])
        assert sampled - 2 * len(turns) <= replayed <= sampled
    messages = [{"role": "user", "content": "Hi"}]
    answer, _ = turn(server, messages, 301)
    messages += [{"role": "assistant", "content": answer["choices"][0]["message"]["content"]},
                 {"role": "user", "content": "Go on"}]
    body = {"messages": messages, "max_tokens": 2, "stream": True}
    assert int(server.post(body)[1]["x-radish-replayed-tokens"]) > 0
    for off in ({"replay": False}, {"radish": {"replay": False}}):
        status, headers, _ = server.post({**body, **off})
        assert status == 200 and "x-radish-replayed-tokens" not in headers


def test_the_explanation_tells_each_message(server):
    turns = talk(server, 3, 400, radish={"explain": True})
    for number, (answer, headers) in enumerate(turns):
        told = answer["radish"]
        assert told["replayed_tokens"] == int(headers.get("x-radish-replayed-tokens", 0))
        assert [r["message"] for r in told["replay"]] == [2 + 2 * i for i in range(number)]
        assert sum(r["tokens"] for r in told["replay"]) == told["replayed_tokens"]
        for entry in told["replay"]:
            assert entry["stopped"] == "complete" and entry["tokens"] > 0
            assert entry["tokens"] <= entry["sampled"] and 0 < entry["position"] < told["prompt_tokens"]
    answer, _ = turn(server, [{"role": "user", "content": "Hi"}], 401,
                     radish={"explain": True, "replay": False})
    assert answer["radish"]["replay"] is None and answer["radish"]["replayed_tokens"] == 0


def test_an_edited_answer_is_replayed_up_to_the_edit(server):
    messages = [{"role": "user", "content": "Name a city."}]
    answer, _ = turn(server, messages, 500, ignore_eos=True)
    text = answer["choices"][0]["message"]["content"]
    assert len(text) > 12
    messages += [{"role": "assistant", "content": text[:-6] + "ZZZZ"}, {"role": "user", "content": "Why?"}]
    told = turn(server, messages, 500, radish={"explain": True})[0]["radish"]
    entry = told["replay"][0]
    assert entry["stopped"] == "rewritten" and 0 < entry["tokens"] < entry["sampled"]
    unknown = [{"role": "user", "content": "Name a river."}, {"role": "assistant", "content": "The Po."},
               {"role": "user", "content": "Why?"}]
    told = turn(server, unknown, 500, radish={"explain": True})[0]["radish"]
    assert told["replay"] == [{"message": 1, "tokens": 0, "sampled": 0, "stopped": "unknown"}]


def test_what_a_user_writes_is_never_replaced(server):
    messages = [{"role": "user", "content": "Say something."}]
    answer, _ = turn(server, messages, 600)
    text = answer["choices"][0]["message"]["content"]
    for quoted in ([{"role": "user", "content": text}],
                   [{"role": "system", "content": text}, {"role": "user", "content": text}]):
        _, headers = turn(server, quoted, 600)
        assert "x-radish-replayed-tokens" not in headers


def test_the_same_text_either_way(server):
    """Replay changes tokens, never text: the prompt is the same text, so the counts are close."""
    turns = talk(server, 2, 700)
    messages = [{"role": "system", "content": "You are guide number 700."},
                {"role": "user", "content": QUESTIONS[0]},
                {"role": "assistant", "content": turns[0][0]["choices"][0]["message"]["content"]},
                {"role": "user", "content": QUESTIONS[1]}]
    plain, _ = turn(server, messages, 700, replay=False)
    replayed = turns[1][0]["usage"]["prompt_tokens"]
    assert plain["usage"]["prompt_tokens"] <= replayed <= plain["usage"]["prompt_tokens"] + 40


def test_a_stopped_stream_is_replayed_as_far_as_it_came(slow):
    messages = [{"role": "user", "content": "Tell me all about rivers."}]
    body = json.dumps({"messages": messages, "max_tokens": 2000, "seed": 3, "stream": True,
                       "ignore_eos": True})
    text, n_chunks = "", 0
    with slow.connect() as connection:
        connection.sendall((f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
                            + body).encode())
        for line in connection.makefile("rb"):
            if line.startswith(b"data: {"):
                text += json.loads(line[6:])["choices"][0]["delta"].get("content", "")
                n_chunks += 1
            if n_chunks == 20:
                break
    slow.wait_idle()
    messages += [{"role": "assistant", "content": text}, {"role": "user", "content": "Go on."}]
    told = turn(slow, messages, 3, max_tokens=2, radish={"explain": True})[0]["radish"]
    entry = told["replay"][0]
    assert entry["tokens"] == len(text) > 10
    assert entry["stopped"] == ("complete" if entry["sampled"] == len(text) else "shortened")


def test_each_choice_can_be_gone_on_with(server):
    messages = [{"role": "user", "content": "Pick a word."}]
    answer, _ = turn(server, messages, 800, n=3, max_tokens=12)
    texts = [choice["message"]["content"] for choice in answer["choices"]]
    whole = [text for text in texts if "\ufffd" not in text]
    assert len(texts) == 3 and whole
    for text in whole:
        longer = messages + [{"role": "assistant", "content": text}, {"role": "user", "content": "Why?"}]
        told = turn(server, longer, 800, max_tokens=2, radish={"explain": True})[0]["radish"]
        assert told["replay"][0]["stopped"] == "complete"


def test_tenants_do_not_replay_each_other(start):
    server = start("--api-key", "acme:k1", "--api-key", "rival:k2", "--share-cache")
    messages = [{"role": "user", "content": "Hi"}]
    body = {"messages": messages, "max_tokens": 20, "seed": 1}
    _, _, text = server.post(body, {"Authorization": "Bearer k1"})
    content = json.loads(text)["choices"][0]["message"]["content"]
    body["messages"] = messages + [{"role": "assistant", "content": content}, {"role": "user", "content": "?"}]
    assert "x-radish-replayed-tokens" in server.post(body, {"Authorization": "Bearer k1"})[1]
    assert "x-radish-replayed-tokens" not in server.post(body, {"Authorization": "Bearer k2"})[1]


def test_a_server_without_replay(start):
    server = start("--no-token-replay")
    turns = talk(server, 2, 900, radish={"explain": True})
    assert "x-radish-replayed-tokens" not in turns[1][1]
    assert turns[1][0]["radish"]["replay"] is None


def test_a_cleared_cache_forgets_the_answers_too(start):
    server = start()
    messages = [{"role": "user", "content": "Hi"}]
    answer, _ = turn(server, messages, 1)
    messages += [{"role": "assistant", "content": answer["choices"][0]["message"]["content"]},
                 {"role": "user", "content": "?"}]
    assert "x-radish-replayed-tokens" in turn(server, messages, 1)[1]
    assert server.get("/v1/cache", method="DELETE")[0] == 200
    again, headers = turn(server, messages, 1)
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert "x-radish-replayed-tokens" not in headers
