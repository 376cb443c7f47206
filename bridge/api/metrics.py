"""What the bridge counts, read from its state when it is asked: nothing on the hot path."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from bridge.runtime.runtime import Runtime


class BridgeCollector(Collector):
    """Gauges of a runtime; ``streams`` gives the number of open event streams."""

    def __init__(self, runtime: Callable[[], Runtime | None], streams: Callable[[], int]) -> None:
        self._runtime = runtime
        self._streams = streams

    def collect(self) -> Iterator[Metric]:
        """One reading."""
        yield GaugeMetricFamily(
            "cursor_bridge_streams", "Open event streams", value=self._streams()
        )
        runtime = self._runtime()
        if runtime is None:
            return
        live = GaugeMetricFamily(
            "cursor_bridge_sessions", "Sessions in memory, by status", labels=["status"]
        )
        statuses = Counter(each.status for each in runtime.registry.live.values())
        for status, count in sorted(statuses.items()):
            live.add_metric([status], count)
        yield live
        yield GaugeMetricFamily(
            "cursor_bridge_agent_processes", "Agent processes", value=len(runtime.processes)
        )
        yield GaugeMetricFamily(
            "cursor_bridge_pending_requests",
            "Requests that wait for a person",
            value=sum(len(each.held) for each in runtime.registry.live.values()),
        )
        yield GaugeMetricFamily(
            "cursor_bridge_last_id", "Position of the latest event", value=runtime.queries.last_id
        )
        yield GaugeMetricFamily(
            "cursor_bridge_storage_full",
            "1 while the disk takes no new work",
            value=int(runtime.services.store.is_full),
        )


def registry_of(
    runtime: Callable[[], Runtime | None], streams: Callable[[], int]
) -> CollectorRegistry:
    """A registry of its own for each application, so that two in one process do not mix."""
    registry = CollectorRegistry()
    registry.register(BridgeCollector(runtime, streams))
    return registry
