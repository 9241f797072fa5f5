"""Whatever stands in a file, the loader answers with a campaign or a UsageError, never with a crash."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pgstrata.errors import UsageError
from pgstrata.spec.file.campaign import load_campaign

CAMPAIGNS = Path(__file__).parents[3] / "campaigns"
ORIGINALS = [yaml.safe_load(f.read_text()) for f in sorted(CAMPAIGNS.rglob("*.yaml")) if f.parent.name != "lab"]

scalars = st.sampled_from(
    [None, True, False, 0, -1, 7, 1.5, "", "x", "ext4", "zfs+log", "@a=1", "@", "2%", "4k", "{fs}", "{"]
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["kind", "fs", "device", "loop", "disk", "layers", "inherits", "factors", "name", "x"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=6,
)


def _places(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [place for key, value in items for place in [(*path, key), *_places(value, (*path, key))]]


@given(st.data())
@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_spoilt_campaign_never_crashes(tmp_path: Path, data: st.DataObject) -> None:
    tree = copy.deepcopy(data.draw(st.sampled_from(ORIGINALS)))
    for _ in range(data.draw(st.integers(1, 2))):
        *parents, key = data.draw(st.sampled_from(_places(tree)))
        node = tree
        for parent in parents:
            node = node[parent]
        node[key] = data.draw(values)
    answer = _answer(tmp_path, json.dumps(tree))
    assert answer
    assert "pydantic" not in answer


@given(st.text(st.characters(codec="utf-8"), max_size=60))
@example("&a [*a]")
@example("stacks: &a {x: *a}")
@example("? [1]\n: 2")
@example("stacks: {x: !!set {a}}")
@example("stacks: [" * 60)
@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_never_crashes(tmp_path: Path, text: str) -> None:
    answer = _answer(tmp_path, text)
    assert answer
    assert "pydantic" not in answer


def _answer(folder: Path, text: str) -> str:
    """The message of the refusal, or the name of the campaign."""
    file = folder / "c.yaml"
    file.write_text(text, encoding="utf-8")
    try:
        return load_campaign(file).name
    except UsageError as error:
        return str(error)
