"""Dask's servers without the pages that they serve over HTTP: what listens has TLS."""

from __future__ import annotations

from typing import Any

from distributed import Nanny, Scheduler, Worker


class QuietScheduler(Scheduler):  # type: ignore[misc]
    """A scheduler without a dashboard."""

    def start_http_server(self, *args: Any, **options: Any) -> None:
        """Nothing to serve."""


class QuietWorker(Worker):  # type: ignore[misc]
    """A worker without a page of its own."""

    def start_http_server(self, *args: Any, **options: Any) -> None:
        """Nothing to serve."""


class QuietNanny(Nanny):  # type: ignore[misc]
    """Starts such a worker again when it was killed."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, worker_class=QuietWorker, **options)
