"""Requests that parsers disagree about have one right answer, and smuggled bytes have none."""
import pathlib
import sys

import pytest

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "tools" / "attack"))
import http_shapes  # noqa: E402


@pytest.mark.parametrize("group", http_shapes.ALL)
def test_each_shape_has_its_answer(mock, group):
    wrong = {}
    for name, (data, want) in http_shapes.ALL[group].items():
        found, body = http_shapes.answers(mock.port, data)
        if found != want or not http_shapes.is_explained(found, body):
            wrong[name] = (found, want, body[:200])
    assert not wrong
