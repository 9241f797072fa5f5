"""The same work on several hosts at once, each in a thread of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TypeVar

from pgstrata.errors import PgstrataError
from pgstrata.host.protocol import Host, HostLost
from pgstrata.trial.events import Notice, Tell
from pgstrata.trial.interruption import HostInterruption, Interruption

T = TypeVar("T")


@dataclass
class ParallelHosts:
    """Hosts that are there: one that is lost is taken out, and told."""

    hosts: dict[str, tuple[Host, HostInterruption]]
    tell: Tell
    interruption: Interruption

    @classmethod
    def of(cls, hosts: Iterable[Host], tell: Tell, interruption: Interruption) -> ParallelHosts:
        found = {}
        for host in hosts:
            own = interruption.of_host(host.end_waits)
            host.interruptible(own.waiting)
            found[host.name] = (host, own)
        return cls(found, tell, interruption)

    def each(self, work: Callable[[Host, HostInterruption], T]) -> dict[str, T]:
        """What it gives, by host, once it has ended on all of them. The first error is raised, a signal before any;
        HostLost where no host is left."""
        with ThreadPoolExecutor(len(self.hosts), "pgstrata opening") as executor:
            futures = {name: executor.submit(work, host, own) for name, (host, own) in self.hosts.items()}
            try:
                with self.interruption.waiting():
                    wait(futures.values())
            except BaseException:
                self.interruption.await_ends(futures.values())
                raise
        return self._taken(futures)

    def _taken(self, futures: dict[str, Future[T]]) -> dict[str, T]:
        lost: list[HostLost] = []
        errors: list[BaseException] = []
        for name, future in futures.items():
            error = future.exception()
            if isinstance(error, HostLost):
                lost.append(error)
                del self.hosts[name]
                self.tell(Notice(f"{name} is left out until the campaign is resumed: {error.message}"))
            elif error is not None:
                errors.append(error)
        for of_another in errors[1:]:
            if isinstance(of_another, PgstrataError):
                self.tell(Notice(of_another.message))
        if errors:
            raise errors[0]
        if not self.hosts:
            raise lost[0]
        return {name: futures[name].result() for name in self.hosts}
