"""Names that become paths: refused where two things would share one, or where one would leave its folder."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from pgstrata.spec.layers.ext4 import Ext4
from pgstrata.spec.layers.not_built import Existing
from pgstrata.spec.layers.tmpfs import Tmpfs
from pgstrata.spec.stack import Stack, Volume
from pgstrata.spec.workload import Cell, Workload


@pytest.mark.parametrize(
    "grid",
    [
        {"script": ("a/x.sql", "b/x.sql")},
        {"script": ("a b.sql", "a_b.sql")},
        {"script": ("tpcb-like", "mine/tpcb-like.sql")},
        {"clients": (8, 8)},
        {"scale": (10, 10)},
    ],
)
def test_two_cells_of_one_name_are_refused(grid: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match="both called"):
        Workload.model_validate(grid)


@pytest.mark.parametrize("name", ["x/../../../etc", "", "Bench", "pg_fast", "a b"])
def test_tablespaces_have_plain_names(name: str) -> None:
    with pytest.raises(ValidationError, match="no name of a tablespace"):
        Stack(name="x", data=Volume(fs=Ext4()), tablespaces={name: Volume(fs=Tmpfs())})


def test_a_directory_does_not_go_up() -> None:
    with pytest.raises(ValidationError, match="goes up"):
        Existing(path="/mnt/x/../../etc")


def test_a_script_of_ones_own_is_called_by_its_short_name() -> None:
    names = {"tpcb-like": "tpcb-like", "/srv/load/orders.v2.sql": "orders.v2", "x.sql": "x", ".sql": ".sql"}
    assert {s: Cell(script=s, scale=1, clients=1).script_name for s in names} == names


def test_a_database_of_ones_own_has_no_scale() -> None:
    assert Workload().scaled
    assert not Workload(sql="/srv/dump.sql").scaled
    assert not Workload(pg_restore="/srv/dump").scaled
