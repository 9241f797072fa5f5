"""A live view that is served by this process, and a campaign that looks as if it were running."""

from __future__ import annotations

import http.client
import shutil
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from awaiting import wait_until
from pgstrata.record.schema import EventRecord
from pgstrata.watch.follow import Follower

TOKEN = "a-token-of-the-tests-0123456789"
BEGUN = "2026-01-01T00:00:00.000+00:00"


@dataclass(frozen=True)
class Served:
    """Where it is."""

    port: int

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def get(self, path: str, headers: Mapping[str, str] | None = None, method: str = "GET") -> tuple[int, str, str]:
        """Status, body and what `Location` or `Set-Cookie` say; with the token, unless headers are given."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, headers=headers or {"Authorization": f"Bearer {TOKEN}"})
            answer = connection.getresponse()
            told = f"{answer.headers.get('Location', '')} {answer.headers.get('Set-Cookie', '')}"
            return answer.status, answer.read().decode(), told
        finally:
            connection.close()


@contextmanager
def serving(directory: Path) -> Iterator[Served]:
    from pgstrata.watch.server import View, make_server

    follower = Follower(directory)
    with socket.create_server(("127.0.0.1", 0), backlog=512) as bound:
        port = bound.getsockname()[1]
        server = make_server(View(follower, follower.look()), TOKEN, port)
        thread = threading.Thread(target=server.run, args=([bound],))
        thread.start()
        try:
            wait_until(lambda: server.started, "the live view to listen")
            yield Served(port)
        finally:
            server.should_exit = True
            thread.join()


@dataclass
class RunningTrial:
    """The last trial of a recorded campaign, as it was while it ran."""

    whole: Path
    partial: Path
    progress: Path

    @classmethod
    def of(cls, directory: Path, aside: Path) -> RunningTrial:
        last = sorted((directory / "trials").iterdir())[-1]
        whole = Path(shutil.move(last, aside / last.name))
        partial = directory / "trials" / f".{whole.name}.partial"
        partial.mkdir()
        shutil.copy(whole / "planned.json", partial)
        return cls(whole, partial, aside / "pgbench.err")

    def tell(self, text: str) -> None:
        with (self.partial / "events.jsonl").open("a", encoding="utf-8") as file:
            file.write(text)

    def measure(self) -> None:
        """The step begins."""
        event = EventRecord(
            at=BEGUN, event="step_begun", step="measure", expected_s=60.0, host="local", progress=str(self.progress)
        )
        self.tell(event.model_dump_json(exclude_none=True) + "\n")

    def second(self, number: int, tps: float) -> None:
        with self.progress.open("a", encoding="utf-8") as file:
            file.write(f"progress: {number}.0 s, {tps:.1f} tps, lat 4.000 ms stddev 1.000, 0 failed\n")

    def finish(self) -> None:
        """Renames the folder, as a recorder does: it is never gone in between."""
        shutil.copytree(self.whole, self.partial, dirs_exist_ok=True)
        shutil.rmtree(self.whole)
        self.partial.rename(self.partial.with_name(self.whole.name))
