"""The JSON Schema takes what the loader takes, and marks what editors should mark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from pgstrata.spec.file.campaign import load_campaign
from pgstrata.spec.file.schema import campaign_schema

CAMPAIGNS = Path(__file__).parents[3] / "campaigns"
FILES = sorted(CAMPAIGNS.rglob("*.yaml"))


@pytest.fixture(scope="module")
def validator() -> Any:
    schema = campaign_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(CAMPAIGNS)))
def test_every_campaign_loads_and_fits_the_schema(validator: Any, file: Path) -> None:
    assert load_campaign(file).stacks
    validator.validate(yaml.safe_load(file.read_text()))


GOOD = [
    "stacks: [ext4]",
    "stacks: {ext4: , a: 'xfs:noatime', b: {fs: ext4}}",
    "stacks: {a: {inherits: b, wal: null, fs: {noatime: on}}, b: ext4}",
    "stacks: {a: {fs: ext4, device: {loop: 4, size: 2G}, layers: 'md(raid10)'}}",
    "stacks: {a: {fs: ext4, device: {loop: {count: 4}}, layers: ['md(raid10)', {kind: lvm, layout: thin}]}}",
    "stacks: {a: {fs: ext4, device: /dev/disk/by-id/x}}",
    "stacks: {a: {data: {fs: ext4, device: {disk: [a, b]}}}}",
    "stacks: {a: {fs: {kind: zfs, log: {loop: 2}, cache: true, atime: off, wal_dataset: {sync: always}}}}",
    "stacks: {a: {fs: {kind: nfs, version: 4.2, export: xfs}}}",
    "stacks: {a: {fs: ext4, kernel: {sysctl: {vm.swappiness: 0}}, postgresql: {settings: {fsync: off, jit: true}}}}",
    "stacks: {a: {fs: ext4, tablespaces: {t: xfs}}}",
    "matrix: {factors: {fs: [ext4, xfs], io: {a: null, b: '@x=1'}}, exclude: [{fs: xfs}]}",
    "stacks: [ext4]\ngoal: all-pairs\nworkload: {scale: 10, script: [select-only]}\nruns: {budget: 2h}",
    "stacks: [ext4]\ngoal: {equivalent: [[a, b, 3%]], margin: 0.02}",
    "stacks: [ext4]\nhosts: [ssh://a, ssh://b]",
    "stacks: [ext4]\nhosts: {inventory: hosts.ini, group: db}",
]
BAD = [
    "name: x",
    "stacks: ext4",
    "stacks: [ext4]\nstackz: [ext4]",
    "stacks: {a: {fs: {kind: ext4, noatme: on}}}",
    "stacks: {a: {fs: {kind: zfz}}}",
    "stacks: {a: {fs: ext4, kernl: {}}}",
    "stacks: {a: {fs: ext4, device: {loops: 4}}}",
    "stacks: {a: {fs: ext4, layers: [{kind: raid}]}}",
    "stacks: [ext4]\nruns: {loads: copy}",
    "stacks: [ext4]\nworkload: {scale: many}",
    "stacks: [ext4]\ngoal: {kind: bst}",
    "matrix: {factors: {}}",
    "stacks: [ext4]\nhosts: {group: db}",
    "stacks: [ext4]\nhosts: {inventory: hosts.ini, gruop: db}",
    "stacks: {a: {fs: imported}, b: {fs: {kind: imported}}}",
]


@pytest.mark.parametrize("text", GOOD)
def test_good(validator: Any, text: str) -> None:
    assert not list(validator.iter_errors(yaml.safe_load(text)))


@pytest.mark.parametrize("text", BAD)
def test_bad(validator: Any, text: str) -> None:
    assert not validator.is_valid(yaml.safe_load(text))
