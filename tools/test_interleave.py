"""Tests interleave.py: how it reads bench_tree's output and evaluates figures."""
import argparse

import pytest

import interleave

TREE = """a node: 64 bytes, and 32 to 64 in the edge table; a token: 24 bytes and 3 bits
     1000 leaves: 889 bytes resident a leaf of 16 tokens

    1000 leaves, ns a call:    warm     p99     max |    cold     max |
                      peek     118     220     311 |    5228    6280 |
            evict in order      81     121     131 |                 |

 1000000 leaves, ns a call:    warm     p99     max |    cold     max |
                      peek     659     992    1062 |    6049    7081 | warm 5.6 times the smallest tree's
"""


def test_what_bench_tree_prints_is_read():
    assert interleave.read_tree(TREE) == {
        ("a node of the tree", "bytes"): 64, ("a leaf of 1,000, resident", "bytes"): 889,
        ("peek, 1,000 leaves, warm", "ns"): 118, ("peek, 1,000 leaves, cold", "ns"): 5228,
        ("evict in order, 1,000 leaves, warm", "ns"): 81,
        ("peek, 1,000,000 leaves, warm", "ns"): 659, ("peek, 1,000,000 leaves, cold", "ns"): 6049}
    with pytest.raises(SystemExit):
        interleave.read_tree("bench_tree: no memory")


def test_the_best_of_each_side_is_compared():
    table = interleave.Table()
    for old, new in ((100, 90), (120, 99), (101, 110)):
        table.add("old", "speed", "tokens/s", old, True)
        table.add("new", "speed", "tokens/s", new, True)
        table.add("old", "time", "ms", old)
        table.add("new", "time", "ms", new)
    speed, time = table.figures["speed"], table.figures["time"]
    assert speed.ratio() == pytest.approx(110 / 120) and time.ratio() == pytest.approx(90 / 100)
    assert speed.near() == pytest.approx(1 - 101 / 120) and time.near() == pytest.approx(99 / 90 - 1)
    assert not table.is_settled()
    assert "0.917" in table.text() and "0.900" in table.text()


def test_a_part_goes_on_until_it_has_settled(monkeypatch):
    figures = {"old": [10, 20, 20, 1], "new": [30, 40, 40, 1]}
    orders = []

    def measure(table, _, order, __):
        orders.append(order)
        for side in order:
            table.add(side, "speed", "tokens/s", figures[side][len(orders) - 1], True)

    monkeypatch.setitem(interleave.MEASURES, "engine", measure)
    table = interleave.measure_part("engine", {}, argparse.Namespace(rounds=1, most=4))
    assert table.figures["speed"].values == {"old": [10, 20, 20], "new": [30, 40, 40]}
    assert orders == [("old", "new"), ("new", "old"), ("old", "new")]
    orders.clear()
    table = interleave.measure_part("engine", {}, argparse.Namespace(rounds=2, most=0))
    assert table.figures["speed"].values == {"old": [10, 20], "new": [30, 40]}
