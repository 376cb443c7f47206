"""A subscriber in a process of its own: reads a stream as fast as it comes and counts.

    python -m bench.subscriber HOST PORT PATH TOKEN COUNT

Prints ``ready`` once the stream has begun, and at the end a line of JSON: events, bytes and the
seconds from the first to the last of ``COUNT`` updates. Ids are checked to have no gap.
"""

from __future__ import annotations

import json
import re
import socket
import sys
import time

_IDS = re.compile(rb"\nid: (\d+)\nevent: session/update\n")


def main() -> None:
    """See the module."""
    host, port, path, token, count = sys.argv[1:6]
    wanted = int(count)
    request = (
        f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nAccept: text/event-stream\r\n"
        f"Authorization: Bearer {token}\r\n\r\n"
    )
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(request.encode())
        data = connection.recv(1 << 20)
        while b"\n\n" not in data.partition(b"\r\n\r\n")[2]:
            data += connection.recv(1 << 20)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        seen, size, kept, last = 0, 0, data, 0
        began = 0.0
        while seen < wanted:
            data = connection.recv(1 << 20)
            if not data:
                break
            began = began or time.perf_counter()
            size += len(data)
            kept += data
            cut = kept.rfind(b"\n\n") + 1
            numbers = _IDS.findall(kept[:cut])
            if numbers:
                first, end = int(numbers[0]), int(numbers[-1])
                if end - first + 1 != len(numbers) or (last and first != last + 1):
                    sys.exit(f"a gap behind {last}")
                last = end
                seen += len(numbers)
            kept = kept[cut:]
        took = time.perf_counter() - began
    sys.stdout.write(json.dumps({"events": seen, "bytes": size, "seconds": took}) + "\n")


if __name__ == "__main__":
    main()
