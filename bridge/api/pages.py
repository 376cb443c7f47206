"""The page one lands on. It works offline, loads nothing and runs no script, so the strictest
content policy fits it; the contract for people is made by :mod:`bridge.api.reference`.
"""

from __future__ import annotations

INDEX = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>cursor-acp-bridge</title>
<meta name="viewport" content="width=device-width, initial-scale=1"></head>
<body>
<main>
<h1>cursor-acp-bridge</h1>
<p>The bridge is running. There is nothing to click through here: it is an HTTP interface for
programs, and this page is a signpost.</p>
<h2>The token</h2>
<p>What stands after <code>#token=</code> in the address you opened is a token. This page does
nothing with it, and no browser sends that part of an address anywhere. Copy it, keep it like a
password, and hand it to programs, which send it with every request:</p>
<pre>curl -H "Authorization: Bearer TOKEN" THIS-ADDRESS/v1/me
curl -H "Authorization: Bearer TOKEN" THIS-ADDRESS/v1/sessions</pre>
<p>It is shown once. Where it is lost, <code>cursor-bridge token create --name NAME</code> on the
bridge's own machine makes another.</p>
<h2>What needs no token</h2>
<ul>
<li><a href="/docs">The HTTP contract</a>, enough to write a client from</li>
<li><a href="/openapi.json">The same as an OpenAPI document</a>, to generate one from</li>
<li><a href="/healthz">Whether the bridge is alive</a>, <a href="/readyz">and can take a
session</a></li>
</ul>
</main>
</body>
</html>
"""
