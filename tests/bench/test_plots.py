"""Plots: well-formed, every value where it belongs, labels that cannot break the page."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ElementTree

import pytest

from shoal.bench.plots import Axis, Bar, Series, bar_chart, cdf_chart, line_chart, number

SVG = "{http://www.w3.org/2000/svg}"


def shapes(svg: str, kind: str) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(svg).iter(SVG + kind))  # noqa: S314


def texts(svg: str) -> list[str]:
    return [shape.text or "" for shape in shapes(svg, "text")]


def test_a_line_rises_with_its_values_and_axes_have_units() -> None:
    series = [Series("pull", [(1, 10), (2, 20), (4, 40)]), Series("push", [(1, 10), (2, math.inf)])]
    svg = line_chart(series, title="p99 <by rate>", x=Axis("rate", "1/s"), y=Axis("p99", "ms"), limit=30)
    pull, push = (shape.attrib["points"].split() for shape in shapes(svg, "polyline"))
    (x0, y0), (x1, y1), (x2, y2) = (tuple(map(float, place.split(","))) for place in pull)
    assert (x2 - x0) == pytest.approx(3 * (x1 - x0), abs=0.2)
    assert (y0 - y2) == pytest.approx(3 * (y0 - y1), abs=0.2)
    assert len(push) == 1  # what is not finite is left out
    assert {"p99 <by rate>", "rate (1/s)", "p99 (ms)", "pull", "push"} <= set(texts(svg))


def test_a_log_axis_makes_equal_ratios_equal_distances() -> None:
    svg = line_chart(
        [Series("", [(1, 1), (10, 2), (100, 3)])], title="", x=Axis("n", is_log=True), y=Axis("t", starts_at_zero=False)
    )
    xs = [float(place.split(",")[0]) for place in shapes(svg, "polyline")[0].attrib["points"].split()]
    assert xs[1] - xs[0] == pytest.approx(xs[2] - xs[1], abs=0.2)


def test_bars_are_as_high_as_their_values_and_whiskers_span_the_range() -> None:
    groups = {"16": {"a": Bar(10, 8, 12), "b": 5.0}, "128": {"b": 20.0}}
    svg = bar_chart(groups, title="texts/s", y=Axis("texts", "1/s"))
    bars = [shape for shape in shapes(svg, "rect") if "rx" in shape.attrib and shape.attrib["width"] != "12"]
    heights = [float(shape.attrib["height"]) for shape in bars]
    assert heights == pytest.approx([heights[0], heights[0] / 2, heights[0] * 2], abs=0.2)
    whisker = next(shape for shape in shapes(svg, "line") if shape.attrib["class"] == "range")
    span = abs(float(whisker.attrib["y1"]) - float(whisker.attrib["y2"]))
    assert span == pytest.approx(heights[0] * 4 / 10, abs=0.3)


def test_a_distribution_ends_at_100_percent() -> None:
    svg = cdf_chart([Series("a", [(1, 0.0), (2, 0.5), (8, 1.0)])], title="", x=Axis("latency", "ms", is_log=True))
    ys = [float(place.split(",")[1]) for place in shapes(svg, "polyline")[0].attrib["points"].split()]
    ticks = {shape.text: float(shape.attrib["y"]) for shape in shapes(svg, "text")}
    assert ys[0] == pytest.approx(ticks["0"] - 4, abs=0.2)
    assert ys[-1] == pytest.approx(ticks["100"] - 4, abs=0.2)


@pytest.mark.parametrize("points", [[], [(0.0, 0.0)], [(3.0, 3.0)], [(1.0, -2.0), (2.0, 1e9)]])
def test_odd_values_still_draw(points: list[tuple[float, float]]) -> None:
    for is_log in (False, True):
        axis = Axis("x", is_log=is_log)
        kept = [point for point in points if not is_log or min(point) > 0]
        assert line_chart([Series("a", kept)], title="", x=axis, y=axis).startswith("<svg")


def test_numbers_are_short() -> None:
    values = (0, 0.00123, 12.5, 1234.4, 1_200_000, 100)
    assert [number(value) for value in values] == ["0", "0.00123", "12.5", "1,234", "1,200,000", "100"]
