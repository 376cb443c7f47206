"""Times as the contract spells them: RFC 3339, UTC, milliseconds."""

from __future__ import annotations

from datetime import UTC, datetime


def rfc3339(seconds: float) -> str:
    """``seconds`` since the epoch as ``2026-12-01T00:43:53.120Z``."""
    moment = datetime.fromtimestamp(seconds, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"


def parse_rfc3339(text: str) -> float:
    """The inverse of :func:`rfc3339`; raises ``ValueError`` on anything that is no time."""
    return datetime.fromisoformat(text).timestamp()
