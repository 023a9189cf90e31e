"""Plots as SVG text: lines, cumulative distributions, grouped bars. No script, no font, no colour from elsewhere.

A plot stands alone as a file or inside a page, and follows the light or dark scheme of its reader. It knows
nothing of what is plotted.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

__all__ = ["STYLE", "Axis", "Bar", "Series", "bar_chart", "cdf_chart", "line_chart", "number"]

WIDTH, HEIGHT = 720, 380
LEFT, RIGHT, BOTTOM = 72, 20, 58
TITLE_HEIGHT, LEGEND_HEIGHT = 34, 20
CHARACTER_PX = 6.7

_LIGHT = ("#0b6bcb", "#c9510c", "#1a7f4b", "#8a3ffc", "#b0255f", "#7a5d00", "#0e7c86", "#5c6370")
_DARK = ("#62aefc", "#f39b5e", "#5fd097", "#bf94ff", "#f080ab", "#dcbc4c", "#52cdd6", "#a9b0bc")


def _style() -> str:
    def scheme(colours: Sequence[str], ink: str, faint: str, paper: str) -> str:
        numbered = "".join(f"--plot-{index}:{colour};" for index, colour in enumerate(colours))
        return f".plot{{--plot-ink:{ink};--plot-faint:{faint};--plot-paper:{paper};{numbered}}}"

    rules = (
        ".plot{font:12px system-ui,-apple-system,'Segoe UI',sans-serif;background:var(--plot-paper)}",
        ".plot text{fill:var(--plot-ink)} .plot .title{font-size:15px;font-weight:600}",
        ".plot .grid{stroke:var(--plot-faint);stroke-width:1} .plot .axis{stroke:var(--plot-ink);stroke-width:1}",
        ".plot .line{fill:none;stroke-width:2;stroke-linejoin:round} .plot .range{stroke:var(--plot-ink);opacity:.6}",
        ".plot .limit{stroke:var(--plot-ink);stroke-dasharray:5 4}",
    )
    dark = scheme(_DARK, "#e6e9ee", "#343a44", "#14171c")
    return "".join(
        (scheme(_LIGHT, "#1d2129", "#e3e6ea", "#ffffff"), f"@media(prefers-color-scheme:dark){{{dark}}}", *rules)
    )


STYLE = _style()
"""The style sheet that every plot carries."""


class Axis(NamedTuple):
    """What an axis shows.

    Attributes:
        label: in words.
        unit: put behind the label in parentheses; empty for none.
        is_log: whether equal distances are equal ratios; every value must then be above zero.
        starts_at_zero: whether zero is on it, wherever the values lie (not if `is_log`).
    """

    label: str
    unit: str = ""
    is_log: bool = False
    starts_at_zero: bool = True

    @property
    def text(self) -> str:
        return f"{self.label} ({self.unit})" if self.unit else self.label


class Series(NamedTuple):
    """A named line through (x, y)."""

    name: str
    points: Sequence[tuple[float, float]]


class Bar(NamedTuple):
    """A bar's height, and the range that it was seen in (drawn as a whisker where both ends are given)."""

    value: float
    low: float | None = None
    high: float | None = None


class _Scale:
    """From values to pixels."""

    def __init__(self, values: Iterable[float], axis: Axis, start_px: float, end_px: float) -> None:
        known = [value for value in values if math.isfinite(value)]
        if axis.is_log:
            known = [value for value in known if value > 0] or [1.0, 10.0]
            low, high = math.log10(min(known)), math.log10(max(known))
            self._low, self._high = math.floor(low * 3) / 3, math.ceil(high * 3 + 1e-9) / 3
        else:
            known = [*known, 0.0] if axis.starts_at_zero else known
            self._low, self._high = min(known, default=0.0), max(known, default=1.0)
        if self._high <= self._low:
            self._high = self._low + 1.0
        self._is_log = axis.is_log
        self.ticks = self._log_ticks() if axis.is_log else self._linear_ticks()
        self._start_px, self._end_px = start_px, end_px

    def __call__(self, value: float) -> float:
        place = math.log10(value) if self._is_log else value
        share = (place - self._low) / (self._high - self._low)
        return self._start_px + share * (self._end_px - self._start_px)

    def _linear_ticks(self) -> list[float]:
        step = 10 ** math.floor(math.log10((self._high - self._low) / 4))
        step *= next(factor for factor in (1, 2, 2.5, 5, 10) if (self._high - self._low) / (step * factor) <= 6)
        first, last = math.floor(self._low / step + 1e-9), math.ceil(self._high / step - 1e-9)
        self._low, self._high = first * step, last * step
        return [index * step for index in range(first, last + 1)]

    def _log_ticks(self) -> list[float]:
        factors = (1, 2, 5) if self._high - self._low < 3 else (1,)
        decades = range(math.floor(self._low), math.ceil(self._high) + 1)
        ticks = [factor * 10.0**decade for decade in decades for factor in factors]
        return [tick for tick in ticks if self._low - 1e-9 <= math.log10(tick) <= self._high + 1e-9]


def number(value: float) -> str:
    """A number as people write it: at most four digits, thousands apart."""
    if value == 0:
        return "0"
    magnitude = math.floor(math.log10(abs(value)))
    text = f"{value:,.{max(0, 3 - magnitude)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def line_chart(
    series: Sequence[Series], *, title: str, x: Axis, y: Axis, limit: float | None = None, is_joined: bool = True
) -> str:
    """Lines with their points marked.

    Args:
        limit: a value of y to draw a dashed line at.
        is_joined: whether there are lines; else there are only the points.
    """
    frame = _Frame(title, [one.name for one in series])
    points = [point for one in series for point in one.points]
    across = _Scale((point[0] for point in points), x, LEFT, WIDTH - RIGHT)
    limits = [] if limit is None else [limit]
    up = _Scale([*(point[1] for point in points), *limits], y, HEIGHT - BOTTOM, frame.top)
    frame.axes(x, y, across, up)
    for index, one in enumerate(series):
        places = [(across(left), up(height)) for left, height in one.points if math.isfinite(height)]
        if is_joined:
            frame.line(places, index, is_marked=len(places) <= 40)
        else:
            frame.points(places, index)
    if limit is not None:
        frame.add(f'<line class="limit" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{up(limit):.1f}" y2="{up(limit):.1f}"/>')
    return frame.svg()


def cdf_chart(series: Sequence[Series], *, title: str, x: Axis) -> str:
    """Cumulative distributions: points are (value, share of all that is at most it, 0 to 1), ascending."""
    percent = [Series(one.name, [(value, 100 * share) for value, share in one.points]) for one in series]
    frame = _Frame(title, [one.name for one in series])
    y = Axis("at most that", "%")
    across = _Scale((value for one in percent for value, _ in one.points), x, LEFT, WIDTH - RIGHT)
    up = _Scale((0.0, 100.0), y, HEIGHT - BOTTOM, frame.top)
    frame.axes(x, y, across, up)
    for index, one in enumerate(percent):
        frame.line([(across(value), up(share)) for value, share in one.points], index, is_marked=False)
    return frame.svg()


def bar_chart(
    groups: Mapping[str, Mapping[str, Bar | float]], *, title: str, y: Axis, limit: float | None = None
) -> str:
    """Bars in groups: {group: {series: bar}}. A series may be missing in a group.

    Args:
        limit: a value of y to draw a dashed line at.
    """
    names = list(dict.fromkeys(name for bars in groups.values() for name in bars))
    frame = _Frame(title, names)
    rows = {
        group: {name: bar if isinstance(bar, Bar) else Bar(bar) for name, bar in bars.items()}
        for group, bars in groups.items()
    }
    all_bars = [bar for bars in rows.values() for bar in bars.values()]
    values = [value for bar in all_bars for value in bar if value is not None]
    up = _Scale([*values, *([] if limit is None else [limit])], y, HEIGHT - BOTTOM, frame.top)
    frame.axes(None, y, None, up)
    step = (WIDTH - RIGHT - LEFT) / max(1, len(rows))
    width = 0.8 * step / max(1, len(names))
    for place, (group, bars) in enumerate(rows.items()):
        start = LEFT + place * step + 0.1 * step
        frame.text(LEFT + (place + 0.5) * step, HEIGHT - BOTTOM + 18, group, "middle")
        for index, name in enumerate(names):
            if name in bars:
                frame.bar(start + index * width, width, bars[name], up, index)
    if limit is not None:
        frame.add(f'<line class="limit" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{up(limit):.1f}" y2="{up(limit):.1f}"/>')
    return frame.svg()


class _Frame:
    """Title, legend and the shapes of one plot."""

    def __init__(self, title: str, names: Sequence[str]) -> None:
        self._parts: list[str] = []
        self._title = title
        self.text(LEFT, 22, title, class_="title")
        self.top = float(TITLE_HEIGHT + 10 + self._legend(names))

    def _legend(self, names: Sequence[str]) -> int:
        """Names beside their colours, as many rows as they need; returns the height."""
        if len(names) < 2:
            return 0
        left, row = float(LEFT), 0
        for index, name in enumerate(names):
            width = 24 + CHARACTER_PX * len(name)
            if left + width > WIDTH and left > LEFT:
                left, row = float(LEFT), row + 1
            top = TITLE_HEIGHT + row * LEGEND_HEIGHT
            self.add(f'<rect x="{left:.1f}" y="{top}" width="12" height="12" rx="2" fill="{_colour(index)}"/>')
            self.text(left + 17, top + 10.5, name)
            left += width + 8
        return (row + 1) * LEGEND_HEIGHT

    def add(self, shape: str) -> None:
        self._parts.append(shape)

    def text(self, x: float, y: float, text: str, anchor: str = "start", class_: str = "", turn: str = "") -> None:
        attributes = (f' class="{class_}"' if class_ else "") + (f' transform="{turn}"' if turn else "")
        self.add(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{attributes}>{html.escape(text)}</text>')

    def axes(self, x: Axis | None, y: Axis, across: _Scale | None, up: _Scale) -> None:
        """Grid, ticks and labels; without x, only its line."""
        bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
        for tick in up.ticks:
            self.add(f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{up(tick):.1f}" y2="{up(tick):.1f}"/>')
            self.text(LEFT - 8, up(tick) + 4, number(tick), "end")
        middle = (self.top + bottom) / 2
        self.text(16, middle, y.text, "middle", turn=f"rotate(-90 16 {middle:.1f})")
        self.add(f'<line class="axis" x1="{LEFT}" x2="{right}" y1="{bottom}" y2="{bottom}"/>')
        if x is None or across is None:
            return
        for tick in across.ticks:
            self.add(
                f'<line class="axis" x1="{across(tick):.1f}" x2="{across(tick):.1f}" y1="{bottom}" y2="{bottom + 4}"/>'
            )
            self.text(across(tick), bottom + 18, number(tick), "middle")
        self.text((LEFT + right) / 2, HEIGHT - 14, x.text, "middle")

    def line(self, places: Sequence[tuple[float, float]], index: int, *, is_marked: bool) -> None:
        """A line through pixels, in the colour of its series."""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        self.add(f'<polyline class="line" stroke="{_colour(index)}" points="{path}"/>')
        if is_marked:
            self.points(places, index)

    def points(self, places: Sequence[tuple[float, float]], index: int) -> None:
        """Dots at pixels, in the colour of their series."""
        self._parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{_colour(index)}"/>' for x, y in places]

    def bar(self, left: float, width: float, bar: Bar, up: Callable[[float], float], index: int) -> None:
        """A bar with its value on top, and its range."""
        top, bottom = up(bar.value), HEIGHT - BOTTOM
        self.add(
            f'<rect x="{left + 0.06 * width:.1f}" y="{top:.1f}" width="{0.88 * width:.1f}" '
            f'height="{max(0.0, bottom - top):.1f}" rx="1.5" fill="{_colour(index)}"/>'
        )
        centre, label_top = left + width / 2, top
        if bar.low is not None and bar.high is not None:
            ends = f'y1="{up(bar.low):.1f}" y2="{up(bar.high):.1f}"'
            self.add(f'<line class="range" x1="{centre:.1f}" x2="{centre:.1f}" {ends}/>')
            label_top = min(top, up(bar.high))
        text = number(bar.value)
        if CHARACTER_PX * len(text) < 1.6 * width:
            self.text(centre, label_top - 4, text, "middle")

    def svg(self) -> str:
        title = html.escape(self._title)
        head = f'<svg xmlns="http://www.w3.org/2000/svg" class="plot" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"'
        paper = f'<rect width="{WIDTH}" height="{HEIGHT}" fill="var(--plot-paper)"/>'
        style = f"<style>{STYLE}</style>"
        return f'{head} aria-label="{title}">{style}{paper}{"".join(self._parts)}</svg>\n'


def _colour(index: int) -> str:
    return f"var(--plot-{index % len(_LIGHT)})"
