"""How figures are summed up and shown: percentiles, ratios of pairs, a table of text."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which ``share`` (0 to 1) of them lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def spread(values: Sequence[float], digits: int = 2) -> dict[str, float]:
    """Least, median and greatest."""
    return {
        "min": round(min(values), digits),
        "median": round(statistics.median(values), digits),
        "max": round(max(values), digits),
    }


def in_ms(seconds: Sequence[float]) -> dict[str, float]:
    """Median, 99th percentile and worst of durations, in milliseconds."""
    return {
        "p50_ms": round(percentile(seconds, 0.5) * 1e3, 3),
        "p99_ms": round(percentile(seconds, 0.99) * 1e3, 3),
        "worst_ms": round(max(seconds) * 1e3, 3),
        "count": len(seconds),
    }


def lines(figures: dict[str, Any], indent: str = "") -> list[str]:
    """Figures as text, one a line, groups indented."""
    shown = []
    for name, value in figures.items():
        if isinstance(value, dict):
            shown += [f"{indent}{name}:", *lines(value, indent + "  ")]
        elif isinstance(value, float):
            shown.append(f"{indent}{name}: {value:,.3f}".rstrip("0").rstrip("."))
        elif isinstance(value, int) and not isinstance(value, bool):
            shown.append(f"{indent}{name}: {value:,}")
        else:
            shown.append(f"{indent}{name}: {value}")
    return shown
