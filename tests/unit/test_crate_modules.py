"""The modules of each crate use one another in no circle."""

import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

CRATES = Path(__file__).parents[2] / "crates"


def names(use: str) -> Iterator[str]:
    """The paths of a `use`, with its braces resolved."""
    begin, brace, rest = use.partition("{")
    if not brace:
        yield use
        return
    depth, name = 0, ""
    for letter in rest.removesuffix("}") + ",":
        if letter == "," and depth == 0:
            yield from names(begin + name)
            name = ""
        else:
            depth += (letter == "{") - (letter == "}")
            name += letter


def module_of(path: Path) -> str:
    below = path.parts[path.parts.index("src") + 1 :]
    return "::".join(Path(*below).with_suffix("").parts).removesuffix("::mod")


def uses(sources: dict[str, str], module: str) -> set[str]:
    text = re.sub(r"//.*", "", sources[module].partition("#[cfg(test)]")[0])
    written = [re.sub(r"\s", "", use) for use in re.findall(r"\buse ([^;]+);", text)]
    found = set()
    for name in [one for use in written for one in names(use)] + re.findall(r"\bcrate::[\w:]+", text):
        above = module.rpartition("::")[0]
        path = re.sub(r"^super::", f"{above}::" if above else "", name).removeprefix("crate::")
        for whole in [path] if path != name else [f"{module}::{path}"]:
            while whole and whole not in sources:
                whole = whole.rpartition("::")[0]
            found.add(whole)
    return found - {"", module}


@pytest.mark.parametrize(("crate", "least"), [("strata-disk", 20), ("strata-load", 15)])
def test_no_module_uses_one_that_uses_it(crate: str, least: int) -> None:
    source = CRATES / crate / "src"
    files = [path.relative_to(CRATES) for path in source.rglob("*.rs") if path.name not in {"lib.rs", "main.rs"}]
    sources = {module_of(path): (CRATES / path).read_text() for path in files}
    order = list(TopologicalSorter({module: uses(sources, module) for module in sources}).static_order())
    assert len(order) >= least
    assert set(order) == set(sources)
