"""What `make bench` computes and writes; its loads are run by hand."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from deploy.bench.cases import CASES, Row
from deploy.bench.load import Answer, Ask, LoadFailed, Sample, checked, percentile
from deploy.bench.page import write_section
from deploy.bench.pairs import Ratio, alternate
from deploy.bench.prompts import asks
from deploy.bench.report import ratios, resources


async def test_who_goes_first_alternates() -> None:
    order: list[str] = []

    async def ours(pair: int) -> float:
        order.append(f"ours {pair}")
        return 6.0

    async def theirs(pair: int) -> float:
        order.append(f"theirs {pair}")
        return 2.0 + pair

    ratio = await alternate(ours, theirs, 3)
    assert order == ["ours 0", "theirs 0", "theirs 1", "ours 1", "ours 2", "theirs 2"]
    assert ratio.ratios == [1.5, 2.0, 3.0]
    assert ratio.median == 2.0


def test_the_interval_leaves_out_one_at_each_end_of_nine() -> None:
    ratio = Ratio(ours=[9, 1, 8, 2, 7, 3, 6, 4, 5], theirs=[1] * 9)
    assert (ratio.median, *ratio.interval) == (5, 2, 8)
    few = Ratio(ours=[3, 1, 2], theirs=[1, 1, 1])
    assert few.interval == (1, 3)


def test_a_measurement_with_an_error_is_none() -> None:
    ask = Ask("base", "hello", 4)
    with pytest.raises(LoadFailed, match="no such model"):
        checked([Answer(ask, completion_tokens=4), Answer(ask, error="no such model")])
    with pytest.raises(LoadFailed, match="4 tokens"):
        checked([Answer(ask, completion_tokens=3)])


def test_a_sample_tells_rates_and_waits() -> None:
    ask = Ask("base", "hello", 4)
    answers = [
        Answer(ask, [0.2, 0.3, 0.5], prompt_tokens=10, completion_tokens=3),
        Answer(Ask("other", "hello", 4), [0.1, 0.2], prompt_tokens=20, completion_tokens=2),
    ]
    sample = Sample(answers, seconds=2.0)
    assert (sample.output_rate, sample.input_rate) == (2.5, 15.0)
    assert sample.ttft_ms(0.95) == pytest.approx(200)
    assert sample.gap_ms(0.95) == pytest.approx(200)
    assert sample.without([ask]).ttft_ms(0.5) == pytest.approx(100)
    assert math.isnan(percentile([], 0.5))


def test_no_two_requests_share_a_prompt() -> None:
    drawn = asks(["a", "b"], 8, "seed")
    assert len({ask.prompt for ask in drawn}) == 8
    assert [ask.model for ask in drawn[:3]] == ["a", "b", "a"]
    assert drawn == asks(["a", "b"], 8, "seed")
    assert drawn[0].prompt != asks(["a", "b"], 8, "other seed")[0].prompt


def test_a_case_that_is_run_again_replaces_its_section(tmp_path: Path) -> None:
    page = tmp_path / "BENCHMARKS.md"
    row = Row("ours / theirs", Ratio([4.0], [2.0]), "at least 1")
    first, second = CASES[:2]
    for case, version in ((first, "one"), (second, "two"), (first, "three")):
        write_section(page, case.name, ratios(case, [row], version))
    write_section(page, "resources", resources({"memory": "1 MiB"}, "four"))
    text = page.read_text()
    assert [line for line in text.splitlines() if line.startswith("## ")] == [
        f"## {first.name}",
        f"## {second.name}",
        "## resources",
    ]
    assert "commit one" not in text
    assert all(f"commit {version}" in text for version in ("two", "three", "four"))
    assert "| ours / theirs | 2.00 | 2.00 to 2.00 | 1 | 4.0 / 2.0 | at least 1 |" in text
