"""Work on a Dask cluster over TLS: the same results as in one process, also where a worker is killed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from acceptance_table.running import run_jobs

from pgstrata.errors import UsageError
from pgstrata.fleet.work import opened_work
from pgstrata.trial.scheduler import Inline
from pieces import digest, killed_once, refused

pytest.importorskip("distributed", reason="needs Dask: make setup")

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]


def test_pieces_on_workers_of_this_machine(tmp_path: Path) -> None:
    with opened_work(None, "dask:{local: 2}") as executor:
        names, mutant = ["A/A 4 typical"], "3.0"
        assert run_jobs(names, 10, executor, mutant=mutant) == run_jobs(names, 10, Inline(), mutant=mutant)

        content = os.urandom(2 << 20)
        told = {executor.submit(digest, content).result(timeout=200) for _ in range(4)}
        assert told == {digest(content)}

        with pytest.raises(UsageError, match="not this") as raised:
            executor.submit(refused, "not this").result(timeout=200)
        assert raised.value.hint == "ask for something else"

        pieces = [executor.submit(killed_once, str(tmp_path), number) for number in range(6)]
        assert [piece.result(timeout=200) for piece in pieces] == [0, 2, 4, 6, 8, 10]
        assert {path.name.partition(".")[0] for path in tmp_path.iterdir()} == {"first", *"012345"}

        told = {executor.submit(digest, content).result(timeout=200) for _ in range(4)}
        assert told == {digest(content)}
