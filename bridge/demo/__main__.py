"""``python -m bridge.demo``: the demo agent on stdin and stdout."""

from __future__ import annotations

from bridge.demo.agent import main

raise SystemExit(main())
