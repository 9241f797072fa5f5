"""Every documented option that short notation takes, on a real filesystem: built, attested, taken down."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from built import differences, standing
from documented import ACCEPTED, notation
from pgstrata.errors import PgstrataError
from pgstrata.host.local import LocalHost
from pgstrata.spec.notation.stack import parse_stack
from pgstrata.stack.build import attest
from pgstrata.stack.plan import PlanContext, plan_stack

LOOP_BYTES = 16 << 30
QUOTAS = {"quota", "project"}
"""Features of ext4 that a kernel without CONFIG_QFMT_V2 does not mount."""


@pytest.fixture(scope="module")
def host() -> LocalHost:
    return LocalHost()


def no_quotas() -> bool:
    """True if the kernel says that it cannot read quota files of the format in use."""
    config = Path("/proc/config.gz")
    return config.exists() and b"CONFIG_QFMT_V2=" not in gzip.decompress(config.read_bytes())


def problem(host: LocalHost, text: str, place: Path, trial: str) -> str:
    """What prevents a stack, or does not hold of it; empty for one that stands as written."""
    context = PlanContext(trial, str(place / "scratch"), LOOP_BYTES, owner="nobody", mount_root=str(place / "mount"))
    plan = plan_stack(parse_stack(text), context)
    try:
        with standing(host, plan) as built:
            return str(differences(attest(host, plan, built)) or "")
    except PgstrataError as error:
        return error.message


@pytest.mark.parametrize("layer", ["ext4", "xfs", "btrfs", "tmpfs"])
def test_what_is_accepted_stands_as_written(host: LocalHost, tmp_path: Path, layer: str) -> None:
    options = [option for name, option in ACCEPTED if name == layer]
    found = {
        option: problem(host, notation(layer, option), tmp_path, f"{layer}-{n}") for n, option in enumerate(options)
    }
    wrong = [f"{option}: {why}" for option, why in found.items() if why and not (option in QUOTAS and no_quotas())]
    assert not wrong, "\n".join(wrong)
