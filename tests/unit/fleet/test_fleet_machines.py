"""From workers to hosts: a machine is one, and what differs is told by name."""

from __future__ import annotations

import pytest

from pgstrata.errors import PreflightError
from pgstrata.fleet.messages import Described, describe_here
from pgstrata.fleet.opening import check_versions, machines_of, notices

HERE = Described(hostname="here", machine="0" * 16, uid=0, user="root", pgstrata="1.0", python="3.11")


def worker(hostname: str, machine: str, **other: object) -> Described:
    return HERE.model_copy(update={"hostname": hostname, "machine": machine, **other})


def test_two_names_for_one_machine_are_one_host() -> None:
    workers = {"tls://1": worker("a", "m1"), "tls://2": worker("b", "m2"), "tls://3": worker("alias", "m1")}
    found = machines_of(workers)
    assert [(m.name, m.id, m.workers) for m in found] == [
        ("a", "m1", ("tls://1", "tls://3")),
        ("b", "m2", ("tls://2",)),
    ]
    assert notices(workers, found, HERE) == [
        "a has 2 workers: one trial at a time runs there, the other workers stand by"
    ]


def test_two_machines_with_one_name_are_told_apart() -> None:
    found = machines_of({"tls://1": worker("db", "aaaaaaaa"), "tls://2": worker("db", "bbbbbbbb")})
    assert [m.name for m in found] == ["db-aaaaaa", "db-bbbbbb"]


def test_another_pgstrata_is_refused_by_name_and_another_python_is_told() -> None:
    workers = {"tls://1": worker("a", "m1", pgstrata="0.9"), "tls://2": worker("b", "m2", python="3.13")}
    with pytest.raises(PreflightError, match=r"another pgstrata than the 1\.0 here: a has 0\.9") as refused:
        check_versions(workers, HERE)
    assert "pgstrata[dask]==1.0" in refused.value.hint
    check_versions({"tls://2": workers["tls://2"]}, HERE)
    assert notices(workers, machines_of(workers), HERE) == ["b has Python 3.13, here is 3.11"]


def test_a_worker_without_root_is_told() -> None:
    workers = {"tls://1": worker("a", "m1", uid=1000, user="ann")}
    assert notices(workers, machines_of(workers), HERE) == [
        "a: its worker is ann, not root: stacks that need root cannot be built"
    ]


def test_this_process_describes_itself() -> None:
    here = describe_here()
    assert here == describe_here()
    assert (len(here.machine), here.python.count(".")) == (16, 1)
