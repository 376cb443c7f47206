"""Which form of an answer a caller asks for: the Accept header (RFC 9110, 12.5.1).

The most specific media range that fits a form gives its weight. A header that is absent takes
everything; one that leaves no room for any form on offer is refused before anything is done.
"""

from __future__ import annotations

import re
from typing import Final

from starlette.requests import Request

from bridge.errors import CallerError

JSON: Final = "application/json"
STREAM: Final = "text/event-stream"

_WEIGHT: Final = re.compile(r"q=(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)")


def prefers_stream(request: Request) -> bool:
    """Whether an event stream is named, and named no less than JSON is.

    A wildcard names nothing: a stream is had only by asking for it.
    """
    ranges = _ranges(request)
    stream = ranges.get(STREAM, 0.0)
    return stream > 0 and stream >= ranges.get(JSON, 0.0)


def check_acceptable(request: Request, offered: tuple[str, ...]) -> None:
    """Raises ``not-acceptable`` where the caller takes none of the ``offered`` media types."""
    ranges = _ranges(request)
    if ranges and not any(_weight(ranges, each) for each in offered):
        raise CallerError(
            "not-acceptable",
            "The Accept header leaves out every form this answer has.",
            available=list(offered),
        )


def _ranges(request: Request) -> dict[str, float]:
    found: dict[str, float] = {}
    for part in ",".join(request.headers.getlist("accept")).split(","):
        name, *parameters = (each.strip().lower() for each in part.split(";"))
        if not name:
            continue
        weights = [match[1] for each in parameters if (match := _WEIGHT.fullmatch(each))]
        found[name] = max(found.get(name, 0.0), float(weights[0]) if weights else 1.0)
    return found


def _weight(ranges: dict[str, float], media_type: str) -> float:
    kind = media_type.split("/", 1)[0]
    for name in (media_type, f"{kind}/*", "*/*"):
        if name in ranges:
            return ranges[name]
    return 0.0
