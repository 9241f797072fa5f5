"""A small server of a test, started."""

from __future__ import annotations

from pgstrata.postgres.server import Server

SMALL = {"shared_buffers": "16MB", "max_connections": "20", "fsync": "off"}
NO_SYNC = ("--no-sync",)  # nothing here outlives the test


def ready(server: Server, **settings: str) -> Server:
    server.init(options=NO_SYNC)
    server.configure({**SMALL, **settings})
    server.start()
    return server
