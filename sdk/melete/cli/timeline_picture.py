"""A timeline as a picture. Needs matplotlib, so it is imported only when something is drawn.

A picture depends on the timeline, its captions and the local time zone alone: no time of drawing, no random ids, no
settings of the user's. Every text in it is ours or hex, and is drawn as outlines.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from itertools import pairwise
from typing import Any, Final

import matplotlib
import matplotlib.dates
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.legend_handler import HandlerTuple
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from melete.cli.layers import NAMES
from melete.cli.times import show_distance, show_time
from melete.errors import InvalidInput
from melete.meditation.status import LayerStatus, Signal
from melete.meditation.timeline import (
    Cause,
    DemandSpan,
    Ending,
    LayerLane,
    SignalLane,
    SignalSpan,
    SignKind,
    StatusSpan,
    Timeline,
    Work,
)

#: The calendar of the axis ends with the year 9999.
LATEST_DRAWN: Final = 253_370_764_800
DAY: Final = 86400
WIDTH_INCHES, HEIGHT_INCHES, DOTS_PER_INCH = 15.0, 8.6, 120
_LEFT, _RIGHT, _BOTTOM, _TOP = 0.135, 0.985, 0.185, 0.835
_LANES: Final = 5
#: Marks closer together than this share of the window are drawn as one.
_NEAR: Final = 1 / 1500
#: So many marks in a row are drawn in their full size.
_MANY: Final = 120

_INK, _FAINT, _DEMAND, _POLICY, _FLOOR = "#1a1a1a", "#6b6b6b", "#8e2a77", "#12437a", "#7a4b12"


@dataclass(frozen=True)
class _Look:
    """How a span of one status looks: told apart by brightness and hatch, not by hue alone."""

    name: str
    fill: str
    hatch: str = ""
    edge: str = "#5f5f5f"
    weight: str = "normal"


#: By the names of statuses: those of layers and of signals share their numbers.
LOOKS: Final = {
    "NOT_ENROLLED": _Look("not enrolled", "#ffffff", edge="#c9c9c9"),
    "UNSUPPORTED": _Look("unsupported", "#ffffff", edge="#9a9a9a"),
    "UNSCHEDULED": _Look("unscheduled", "#e4e4e4"),
    "FRESH": _Look("FRESH", "#5fbf9f"),
    "DUE": _Look("DUE", "#f4e666", "...", "#8a7a00"),
    "OVERDUE": _Look("OVERDUE", "#d4610f", "////", "#5a2300", "bold"),
    "NOT_TRACKED": _Look("not tracked", "#e4e4e4"),
    "PRESENT": _Look("PRESENT", "#8cc6ea"),
    "SILENT": _Look("SILENT", "#5a5a5a", "xxx", "#d9d9d9", "bold"),
}
_ALL_AHEAD: Final = "all of this is after the last block; it holds if nothing else is registered"
#: What must be seen however short it was.
_NEVER_THIN: Final = ("OVERDUE", "SILENT")

#: How ticks are named: years, months, days, hours, minutes, seconds; the first of each; and what they all share.
_TICKS: Final = ["%Y", "%b %Y", "%b %d", "%H:%M", "%H:%M", "%H:%M:%S"]
_FIRST_TICKS: Final = ["", "%Y", "%b %d", "%b %d", "%H:%M", "%H:%M"]
_AROUND_TICKS: Final = ["", "", "%Y", "%Y %b %d", "%Y %b %d", "%Y %b %d"]

_SETTINGS: Final = {
    "font.family": ["DejaVu Sans"],
    "font.size": 9.5,
    "hatch.linewidth": 0.7,
    "svg.hashsalt": "melete",
    "svg.fonttype": "path",
    "svg.image_inline": True,
    "text.usetex": False,
    "text.parse_math": False,
    "path.simplify": True,
    "savefig.dpi": DOTS_PER_INCH,
}


@dataclass(frozen=True, slots=True)
class Captions:
    """What the picture says about itself: lines of ours, without text that others chose."""

    title: str
    source: str
    not_meant: str


def draw(timeline: Timeline, captions: Captions, kind: str) -> bytes:
    """Return the picture as `svg` or `png`. Errors: `InvalidInput` for a window beyond the calendar."""
    with _own_settings():
        figure = build_figure(timeline, captions)
        written = io.BytesIO()
        metadata = (
            {"Date": None, "Creator": "melete", "Title": captions.title, "Description": captions.source}
            if kind == "svg"
            else {"Software": None, "Title": captions.title, "Description": captions.source}
        )
        figure.savefig(written, format=kind, metadata=metadata, dpi=DOTS_PER_INCH)
    return written.getvalue()


def build_figure(timeline: Timeline, captions: Captions) -> Figure:
    """Return the picture as matplotlib has it. Errors: as `draw`."""
    if timeline.end > LATEST_DRAWN:
        raise InvalidInput("window", timeline.end, "a window that ends before the year 9999; give --to")
    with _own_settings():
        figure = Figure(figsize=(WIDTH_INCHES, HEIGHT_INCHES), dpi=DOTS_PER_INCH, facecolor="white")
        FigureCanvasAgg(figure)
        _Picture(figure, timeline).draw(captions)
    return figure


@contextmanager
def _own_settings() -> Iterator[None]:
    """Draw by matplotlib's defaults and ours, whatever the user has set."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        settings: Any = matplotlib.rcParams
        settings.update(_SETTINGS)
        yield


class _Picture:
    """One figure: four lanes for the layers, one for the signal, and what goes across them."""

    def __init__(self, figure: Figure, timeline: Timeline) -> None:
        self.figure, self.timeline = figure, timeline
        self.axes: Axes = figure.add_axes((_LEFT, _BOTTOM, _RIGHT - _LEFT, _TOP - _BOTTOM))
        self.length = timeline.end - timeline.start
        self.points = (_RIGHT - _LEFT) * WIDTH_INCHES * 72

    def draw(self, captions: Captions) -> None:
        self._frame(captions)
        for lane in self.timeline.layers:
            self._layer(lane, _LANES - 1 - lane.layer)
        self._signal(self.timeline.signal)
        self._versions()
        self._now()
        self._legend()

    # The frame

    def _frame(self, captions: Captions) -> None:
        axes, timeline = self.axes, self.timeline
        dates: Any = matplotlib.dates  # neither it nor dateutil says its types
        zone = import_module("dateutil.tz").tzlocal()
        axes.set_xlim(timeline.start / DAY, timeline.end / DAY)
        axes.set_ylim(0, _LANES)
        axes.set_yticks([])
        locator = dates.AutoDateLocator(tz=zone, minticks=5, maxticks=12)
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(
            dates.ConciseDateFormatter(
                locator, zone, formats=_TICKS, zero_formats=_FIRST_TICKS, offset_formats=_AROUND_TICKS
            )
        )
        axes.tick_params(axis="x", labelsize=9.5)
        axes.grid(axis="x", color="#e2e2e2", linewidth=0.8, zorder=0)
        axes.set_axisbelow(True)
        for edge in range(1, _LANES):
            axes.axhline(edge, color="#bdbdbd", linewidth=0.8, zorder=1)
        axes.set_xlabel(f"local time, {_zone_names(timeline)}", fontsize=9.5, color=_INK, labelpad=5, loc="left")
        axes.text(
            -0.008, 1.012, "at the last block:", transform=axes.transAxes, ha="right", fontsize=8.5, color=_FAINT,
            fontstyle="italic",
        )  # fmt: skip
        self.figure.text(0.012, 0.965, captions.title, fontsize=14, fontweight="bold", va="top", color=_INK)
        self.figure.text(0.012, 0.925, captions.source, fontsize=10, va="top", color=_FAINT)
        self.figure.text(0.012, 0.012, captions.not_meant, fontsize=10, fontstyle="italic", va="bottom", color=_INK)

    def _label(self, bottom: float, name: str, lines: Sequence[str]) -> None:
        """The words left of a lane: its name, and how it stands at the last block."""
        place = self.axes.get_yaxis_transform()
        self.axes.text(-0.008, bottom + 0.68, name, transform=place, ha="right", fontsize=10.5, fontweight="bold")
        for number, line in enumerate(lines):
            height = bottom + 0.47 - 0.17 * number
            self.axes.text(-0.008, height, line, transform=place, ha="right", fontsize=8.5, color=_FAINT)

    # Lanes

    def _layer(self, lane: LayerLane, bottom: float) -> None:
        now = self.timeline.now
        self._label(bottom, f"{int(lane.layer)} {NAMES[lane.layer]}", _standing(lane.now, now))
        self._bar(lane.spans, bottom)
        self._work(lane.work, bottom + 0.82)
        self._deadlines(lane, bottom + 0.27)
        for demand in lane.demands:
            self._demand(demand, bottom + 0.11)

    def _bar(self, spans: Iterable[StatusSpan] | Iterable[SignalSpan], bottom: float) -> None:
        for start, end, status in _joined(spans):
            look = LOOKS[status.name]
            width = max(end - start, self.length / 600) if status.name in _NEVER_THIN else end - start
            self.axes.add_patch(
                Rectangle(
                    (start / DAY, bottom + 0.40), width / DAY, 0.28,
                    facecolor=look.fill, edgecolor=look.edge, hatch=look.hatch, linewidth=0.6,
                    zorder=4 if status.name in _NEVER_THIN else 3,
                )
            )  # fmt: skip
            if self._points(end - start) > 6.6 * len(look.name) + 10:
                self.axes.text(
                    (start + end) / 2 / DAY, bottom + 0.535, look.name,
                    ha="center", va="center", fontsize=8.5, fontweight=look.weight, color=_INK, zorder=6,
                    bbox={"boxstyle": "round,pad=0.22", "facecolor": "white", "alpha": 0.82, "edgecolor": "none"}
                    if look.hatch else None,
                )  # fmt: skip

    def _work(self, work: Sequence[Work], height: float) -> None:
        """Where cycles ended by their own word, with a line to where they were recorded."""
        for one in work:
            if one.recorded_at - one.reported_ended_at > self.length / 150:
                ends = [one.reported_ended_at / DAY, one.recorded_at / DAY]
                self.axes.plot(ends, [height] * 2, color=_FAINT, linewidth=1.0, zorder=5)
                self.axes.plot(ends[1:], [height], zorder=5, **_STYLES["recorded"])
        for mark, chosen in _MARKS.items():
            times = [one.reported_ended_at for one in work if chosen(one)]
            self._marks(self._thinned(times), height, mark)

    def _deadlines(self, lane: LayerLane, height: float) -> None:
        """Every deadline that was in force: reached, ahead, or moved before it was reached."""
        spans = lane.deadlines
        moved = [before.deadline for before, after in pairwise(spans) if before.deadline > after.start]
        reached = [span.deadline for span in spans if span.start <= span.deadline < span.end]
        ahead = [span.deadline for span in spans[-1:] if span.deadline >= span.end]
        self._marks(self._thinned(moved), height, "moved")
        self._marks(self._thinned([*reached, *ahead]), height, "deadline")
        for before, after in pairwise(spans):
            causes = [cause for cause in (Cause.POLICY, Cause.FLOOR) if cause in after.causes]
            if causes and before.deadline > after.start:
                self._move(before.deadline, after.deadline, height, " and ".join(causes))
        if ahead and ahead[0] > self.timeline.end:
            text = f"deadline {show_time(ahead[0])} \N{BLACK RIGHT-POINTING TRIANGLE}"
            self._at_edge(text, height)

    def _move(self, old: int, new: int, height: float, cause: str) -> None:
        """An arrow from a deadline to the one that took its place."""
        ends = [min(max(time, self.timeline.start), self.timeline.end) / DAY for time in (old, new)]
        if self._points(abs(ends[1] - ends[0]) * DAY) < 14:
            return
        style = {"arrowstyle": "->", "color": _FAINT, "linewidth": 0.9, "shrinkA": 4, "shrinkB": 5}
        self.axes.annotate("", (ends[1], height), (ends[0], height), arrowprops=style, zorder=4)
        if self._points(abs(ends[1] - ends[0]) * DAY) > 6 * len(cause) + 20:
            middle = sum(ends) / 2
            self.axes.text(
                middle, height, cause, ha="center", va="center", fontsize=7.5, color=_FAINT, zorder=5,
                bbox={"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none"},
            )  # fmt: skip

    def _at_edge(self, text: str, height: float) -> None:
        self.axes.text(
            0.996, height, text, transform=self.axes.get_yaxis_transform(), ha="right", va="center", fontsize=8,
            color=_INK, zorder=9, bbox={"boxstyle": "square,pad=0.15", "facecolor": "white", "edgecolor": "none"},
        )  # fmt: skip

    def _demand(self, demand: DemandSpan, height: float) -> None:
        """An arrow from when it was made to when it is due; dashed from where it ended."""
        start, end = self.timeline.start, self.timeline.end
        first, due = max(demand.demanded_at, start), min(demand.due_by, end)
        over = min(demand.ended_at or due, due)
        if first < over:
            self.axes.plot([first / DAY, over / DAY], [height] * 2, color=_DEMAND, linewidth=1.6, zorder=5)
        if over < due:
            self.axes.plot(
                [max(over, first) / DAY, due / DAY], [height] * 2, color=_DEMAND, linewidth=1, ls=":", zorder=5
            )
        if demand.demanded_at >= start:
            self.axes.plot([first / DAY], [height], marker="o", markersize=4, color=_DEMAND, zorder=6)
        if demand.due_by <= end:
            self.axes.plot([due / DAY], [height], marker=9, markersize=6, color=_DEMAND, zorder=6)
        if demand.ending is not None and start <= demand.ended_at <= end:
            self._marks([demand.ended_at], height, demand.ending)

    def _signal(self, lane: SignalLane) -> None:
        self._label(0, "signal", _signal_standing(lane.now, self.timeline.now))
        self._bar(lane.spans, 0)
        for kind in SignKind:
            self._marks(self._thinned([sign.at for sign in lane.signs if sign.kind is kind]), 0.82, kind)

    # Across the lanes

    def _versions(self) -> None:
        """A line for every policy and floor version that took effect in the window, named above."""
        timeline = self.timeline
        versions = [(kept.effective_from, "policy", kept.version) for kept in timeline.policies]
        versions += [(kept.effective_from, "floor", kept.version) for kept in timeline.floors]
        shown = sorted(version for version in versions if timeline.start <= version[0] <= timeline.end)
        for at, kind, _ in shown:
            color, style = (_POLICY, "--") if kind == "policy" else (_FLOOR, ":")
            self.axes.axvline(at / DAY, color=color, linestyle=style, linewidth=1.2, zorder=4.7)
        ends = [float("-inf")] * 2
        for at, kind, text in _grouped(shown, self.length * 6 / self.points):
            level = 0 if kind == "policy" else 1
            width = (6.0 * len(text) + 6) * self.length / self.points
            left = min(at + 3 * self.length / self.points, timeline.end - width)
            left = max(left, ends[level])
            ends[level] = left + width
            self.axes.text(
                left / DAY, 1.012 + 0.03 * level, text, transform=self.axes.get_xaxis_transform(),
                fontsize=8.5, color=_POLICY if kind == "policy" else _FLOOR, ha="left", va="bottom",
            )  # fmt: skip

    def _now(self) -> None:
        timeline = self.timeline
        if timeline.now >= timeline.end:
            return
        first = max(timeline.now, timeline.start)
        veil = Rectangle((first / DAY, 0), (timeline.end - first) / DAY, _LANES)
        veil.set(facecolor="white", alpha=0.5, edgecolor="none", zorder=4.5)
        self.axes.add_patch(veil)
        if timeline.now < timeline.start:
            self.axes.text(
                0, 1.075, _ALL_AHEAD, transform=self.axes.transAxes, ha="left", va="bottom", fontsize=8.5, color=_INK
            )
            return
        self.axes.axvline(timeline.now / DAY, color=_INK, linewidth=1.8, zorder=8)
        words = "last block; what follows holds if nothing else is registered \N{BLACK RIGHT-POINTING TRIANGLE}"
        room = self._points(timeline.end - timeline.now) > 5.2 * len(words)
        self.axes.text(
            timeline.now / DAY, 1.075, words, transform=self.axes.get_xaxis_transform(),
            ha="left" if room else "right", va="bottom", fontsize=8.5, color=_INK,
        )  # fmt: skip
        ends = [1.0, 1.07]
        self.axes.plot(
            [timeline.now / DAY] * 2, ends, transform=self.axes.get_xaxis_transform(), color=_INK, lw=1.8, clip_on=False
        )

    def _legend(self) -> None:
        looks = [LOOKS[name] for name in ("FRESH", "DUE", "OVERDUE", "PRESENT", "SILENT", "UNSCHEDULED")]
        handles: list[Any] = [
            Patch(facecolor=look.fill, edgecolor=look.edge, hatch=look.hatch, linewidth=0.6) for look in looks
        ]
        names = [look.name for look in looks]
        for mark, text in _LEGEND.items():
            marks = mark if isinstance(mark, tuple) else (mark,)
            handles.append(tuple(Line2D([], [], linestyle="none", **_STYLES[one]) for one in marks))
            names.append(text)
        self.figure.legend(
            handles, names, loc="lower left", bbox_to_anchor=(0.008, 0.036), ncols=6, fontsize=8.5, frameon=False,
            handler_map={tuple: HandlerTuple(ndivide=None, pad=0.4)}, columnspacing=1.6, handletextpad=0.6,
            handlelength=2.2, handleheight=1.1, labelspacing=0.45, borderaxespad=0,
        )  # fmt: skip

    # Helpers

    def _marks(self, times: Sequence[int], height: float, mark: str) -> None:
        """Draw one mark at each time; smaller ones where they are many."""
        if times:
            style = dict(_STYLES[mark])
            style["markersize"] *= min(1.0, max(0.35, _MANY / len(times)))
            days = [time / DAY for time in times]
            self.axes.plot(days, [height] * len(days), linestyle="none", zorder=6, clip_on=False, **style)

    def _points(self, seconds: float) -> float:
        """How wide a span is on paper, in points."""
        return seconds / self.length * self.points

    def _thinned(self, times: Iterable[int]) -> list[int]:
        """Times in the window, without those that would be drawn over each other."""
        kept: dict[int, int] = {}
        for time in times:
            if self.timeline.start <= time <= self.timeline.end:
                kept.setdefault(int((time - self.timeline.start) / (self.length * _NEAR)), time)
        return sorted(kept.values())


#: Which cycles each mark stands for.
_MARKS: Final[dict[str, Any]] = {
    "incomplete": lambda work: not work.completed,
    "unchanged": lambda work: work.completed and not work.changed,
    "changed": lambda work: work.completed and work.changed,
}

_STYLES: Final[dict[str, dict[str, Any]]] = {
    "changed": {"marker": "D", "markersize": 6, "color": _INK},
    "unchanged": {"marker": "D", "markersize": 6, "markerfacecolor": "white", "markeredgecolor": _INK},
    "incomplete": {"marker": "x", "markersize": 6.5, "color": _INK, "markeredgewidth": 1.6},
    "recorded": {"marker": "|", "markersize": 8, "color": _FAINT},
    "deadline": {"marker": "^", "markersize": 6.5, "color": _INK},
    "moved": {"marker": "^", "markersize": 6, "markerfacecolor": "white", "markeredgecolor": "#8a8a8a"},
    "demand": {"marker": "o", "markersize": 4, "color": _DEMAND},
    "due": {"marker": 9, "markersize": 6, "color": _DEMAND},
    Ending.MET: {"marker": "P", "markersize": 7, "color": _DEMAND},
    Ending.WITHDRAWN: {"marker": "X", "markersize": 7, "color": _DEMAND},
    Ending.REPLACED: {"marker": "d", "markersize": 7, "markerfacecolor": "white", "markeredgecolor": _DEMAND},
    SignKind.PULSE: {"marker": "|", "markersize": 9, "color": "#1565a0", "markeredgewidth": 1.2},
    SignKind.CYCLE: {"marker": "D", "markersize": 4.5, "color": _INK},
    SignKind.ENROLLMENT: {"marker": "*", "markersize": 9, "color": _INK},
}  # fmt: skip

_LEGEND: Final[dict[Any, str]] = {
    "changed": "completed, state changed",
    "unchanged": "completed, nothing to change",
    "incomplete": "in scope, not completed",
    "recorded": "recorded later than it ended",
    "deadline": "deadline",
    "moved": "deadline, moved before it came",
    ("demand", "due"): "demand, from made to due",
    Ending.MET: "demand met",
    (Ending.WITHDRAWN, Ending.REPLACED): "withdrawn, replaced",
    SignKind.PULSE: "pulse",
    SignKind.CYCLE: "record of a cycle, a signal too",
    SignKind.ENROLLMENT: "enrollment",
}


def _joined(spans: Iterable[StatusSpan] | Iterable[SignalSpan]) -> Iterator[tuple[int, int, Any]]:
    """Spans of equal status as one: start, end, status."""
    current: tuple[int, int, Any] | None = None
    for span in spans:
        if current is not None and current[2] == span.status:
            current = (current[0], span.end, span.status)
            continue
        if current is not None:
            yield current
        current = (span.start, span.end, span.status)
    if current is not None:
        yield current


def _grouped(versions: Sequence[tuple[int, str, int]], near: float) -> Iterator[tuple[int, str, str]]:
    """Versions of one kind that stand too close to be named apart, as one name."""
    for kind in ("policy", "floor"):
        group: list[tuple[int, int]] = []
        for at, _, version in [one for one in versions if one[1] == kind] + [(-1, kind, 0)]:
            if group and (at < 0 or at - group[-1][0] > near * (len(kind) + 6)):
                first, last = group[0][1], group[-1][1]
                yield group[0][0], kind, f"{kind} {first}" if first == last else f"{kind} {first} to {last}"
                group = []
            group.append((at, version))


def _standing(now: LayerStatus, clock: int) -> list[str]:
    """How a layer stands at the last block, in short lines."""
    look = LOOKS[now.status.name]
    if not now.deadline:
        return [look.name]
    distance = show_distance(now.deadline - clock)
    passed = now.deadline <= clock
    lines = [look.name, f"since {distance.removesuffix(' ago')}" if passed and distance != "now" else f"due {distance}"]
    return [*lines, "never completed"] if now.never_completed else lines


def _signal_standing(now: Signal, clock: int) -> list[str]:
    look = LOOKS[now.status.name]
    if not now.last_signal_at:
        return [look.name]
    return [look.name, f"last {show_distance(now.last_signal_at - clock)}"]


def _zone_names(timeline: Timeline) -> str:
    """The names of the local zone in the window: two where a summer time begins or ends."""
    names = [
        datetime.fromtimestamp(time).astimezone().strftime("%Z (UTC%z)") for time in (timeline.start, timeline.end)
    ]
    return " and ".join(dict.fromkeys(names))
