"""The reference of campaign files, written from the models: docs/reference/campaign.md.

`python -m pgstrata_docs.campaign > docs/reference/campaign.md` (or `make docs`); a test keeps the two equal.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from pgstrata.spec import model as vocabulary
from pgstrata.spec.campaign import Campaign, Equivalent, Factor, Goal, Runs, Tuning
from pgstrata.spec.dask_cluster import DaskCluster
from pgstrata.spec.drivers import Driver
from pgstrata.spec.hosts.inventory import InventoryHosts
from pgstrata.spec.layers.kind import BlockLayer, Device, Filesystem, Kind
from pgstrata.spec.model import Model
from pgstrata.spec.notation.options import Spelled, spellings
from pgstrata.spec.stack import Kernel, Postgres, Queue, Stack, Volume
from pgstrata.spec.units import render_duration, render_size_exact
from pgstrata.spec.workload import Workload

INTRODUCTION = """# Campaign files: every key

Written from the models by `make docs`; do not edit. [campaign.md](../campaign.md) explains how to use them,
[stacks.md](../stacks.md) the short notation. `pgstrata schema` prints a JSON Schema for editors.

A size is `8k`, `512M`, `4GiB` or bytes, in powers of 1024; a duration is `90`, `90s`, `15min` or `1h30min`; a share is
`2%` or `0.02`; a switch is `true`, `false`, `on` or `off`. An unknown key is an error, with the line and the nearest
valid name. `null` takes back what was inherited.

## The file

| key | value | default | meaning |
| --- | --- | --- | --- |
| `name` | text | the file's name | |
| `stacks` | mapping of name to [stack](#stack) or short notation, or a list of short notation | | what is compared |
| `defaults` | [stack](#stack) | | laid under every stack |
| `templates` | like `stacks` | | stacks to inherit from that are not run themselves |
| `matrix` | [matrix](#matrix) or a list of them | | stacks from all combinations of factors |
| `hosts` | list of text, [inventory](#inventory), or `dask:` with an address, `local` or a [cluster](#dask) | | \
several hosts of a kind instead of one `host` |
"""

MATRIX = """## matrix

| key | value | meaning |
| --- | --- | --- |
| `factors` | mapping of factor to levels | a list of short notation, or a mapping of name to [stack](#stack) |
| `base` | name of a stack, short notation or [stack](#stack) | what the levels change |
| `name` | text | name of each stack, `{FACTOR}` standing for its level; by default all levels, with spaces between |
| `exclude` | list of `{FACTOR: LEVEL}` | combinations to leave out |

A level that is `null` changes nothing.
"""

STACK_WORDS = """| `inherits` | name of a stack or template | | take it over and change something |
| `stack` | short notation | | what to start from |
| `device`, `layers`, `fs` | as in [volume](#volume) | | short for those of `data` |
"""

_SORTS: tuple[tuple[str, type[Kind]], ...] = (("device", Device), ("layer", BlockLayer), ("fs", Filesystem))
_ABOVE: tuple[tuple[str, type[Model]], ...] = (("stack", Stack), ("volume", Volume))
_BELOW: tuple[tuple[str, type[Model]], ...] = (
    ("kernel", Kernel),
    ("queue", Queue),
    ("postgresql", Postgres),
    ("workload", Workload),
    ("runs", Runs),
    ("goal", Goal),
    ("equivalent", Equivalent),
    ("inventory", InventoryHosts),
    ("dask", DaskCluster),
)

_NOT_LISTED = ("name", "stacks", "hosts", "tuning")
_WRITTEN: tuple[type[Model], ...] = (Tuning, Factor)
"""Models that `pgstrata tune` writes, not people."""

_VOCABULARY = {
    repr(vocabulary.SizeBytes): "size",
    repr(vocabulary.DurationS): "duration",
    repr(vocabulary.Fraction): "share",
}
_SCALARS: dict[Any, str] = {int: "whole number", float: "number", str: "text", bool: "switch"}


def render_reference() -> str:
    """The whole page as Markdown."""
    top = [_row(n, f, Campaign) for n, f in Campaign.model_fields.items() if n not in _NOT_LISTED]
    parts = [INTRODUCTION + "\n".join(top) + "\n"]
    for title, model in _sections():
        parts.append(_section(title, model))
        if model is Stack:
            parts.append(MATRIX)
    return "\n".join(parts)


def _sections() -> tuple[tuple[str, type[Model]], ...]:
    """All models below a campaign: those with a place of their own on the page, then any other."""
    kinds = [(f"{sort}: {n}", base.kinds[n]) for sort, base in _SORTS for n in base.offered_names()]
    drivers = [(f"driver: {name}", Driver.kinds[name]) for name in Driver.offered_names()]
    placed = (*_ABOVE, *kinds, *_BELOW, *drivers)
    known = {model for _, model in placed} | set(_WRITTEN)
    below = (*_below(Campaign), *(m for _, driver in drivers for m in _below(driver)))
    rest = [m for m in below if m not in known and not issubclass(m, Kind)]
    return (*placed, *((m.__name__.lower(), m) for m in dict.fromkeys(rest)))


def _below(annotation: Any) -> list[type[Model]]:
    """Models that an annotation leads to, in order of appearance."""
    if isinstance(annotation, type) and issubclass(annotation, Model):
        deeper = [m for f in annotation.model_fields.values() for m in _below(f.annotation)]
        return ([] if annotation is Campaign else [annotation]) + deeper
    return [m for argument in get_args(annotation) for m in _below(argument)]


def _section(title: str, model: type[Model]) -> str:
    lines = [f"## {title}", "", (model.__doc__ or "").strip(), ""]
    if issubclass(model, BlockLayer | Filesystem) and (names := spellings(model)):
        lines += [f"In short notation: `{'`, `'.join(names)}`.", ""]
    lines += ["| key | value | default | meaning |", "| --- | --- | --- | --- |"]
    rows = [_row(name, field, model) for name, field in model.model_fields.items() if (model, name) != (Stack, "name")]
    refused = _refused(model) if issubclass(model, Spelled) and model.refused else []
    return "\n".join([*lines, *rows, *refused]) + "\n" + (STACK_WORDS if model is Stack else "")


def _refused(model: type[Spelled]) -> list[str]:
    """Documented options that are not taken, by reason."""
    named: dict[str, list[str]] = {}
    for name, refusal in model.refused.items():
        plain = name.lstrip("-").replace("-", "_")
        if plain != name and plain in model.refused:
            continue  # the same name as a flag
        named.setdefault(refusal.reason, []).append(f"`{name}`")
    lines = [f"- {', '.join(sorted(names))}: {reason}." for reason, names in named.items()]
    return ["", "Refused, with the reason:", "", *lines]


def _row(name: str, field: FieldInfo, model: type[Model]) -> str:
    value = _value(_annotation(name, field, model)).replace("|", "\\|")
    meaning = (field.description or "").replace("|", "\\|")
    return f"| `{name}` | {value} | {_default(field, value)} | {meaning} |".replace("|  |", "| |").replace(
        "|  |", "| |"
    )


def _annotation(name: str, field: FieldInfo, model: type[Model]) -> Any:
    """The annotation as written: pydantic keeps `Annotated` apart from the type."""
    if field.metadata and get_origin(field.annotation) is None:
        whole = model.__annotations__.get(name, "")
        for word, shown in (("SizeBytes", "size"), ("DurationS", "duration"), ("Fraction", "share")):
            if word in str(whole):
                return shown
    return field.annotation


def _value(annotation: Any) -> str:
    """A type in words."""
    if isinstance(annotation, str):
        return annotation
    if repr(annotation) in _VOCABULARY:
        return _VOCABULARY[repr(annotation)]
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation in _SCALARS:
        return _SCALARS[annotation]
    if origin is Annotated:
        return _value(arguments[0])
    if origin is Literal:
        return ", ".join(f"`{a}`" for a in arguments)
    if origin in (types.UnionType, Union):
        shown = [_value(a) for a in arguments if a is not types.NoneType]
        return " or ".join(dict.fromkeys(shown))
    if origin is tuple:
        return f"list of {_value(arguments[0])}"
    if origin in (dict, Mapping):
        return f"mapping of {_value(arguments[0])} to {_value(arguments[1])}"
    if "kinds" in vars(annotation):
        return " or ".join(_value(annotation.kinds[name]) for name in annotation.offered_names())
    title = next(title for title, model in _sections() if model is annotation)
    return f"[{title}](#{title.replace(': ', '-').replace(' ', '-')})"


def _default(field: FieldInfo, value: str) -> str:
    default = field.default
    if default is PydanticUndefined or default is None or isinstance(default, Model) or default in ((), ""):
        return "required" if field.is_required() else ""
    if isinstance(default, bool):
        return f"`{'true' if default else 'false'}`"
    if isinstance(default, tuple):
        return f"`[{', '.join(map(str, default))}]`"
    if value == "duration":
        return f"`{render_duration(default).replace('.0', '').replace(' ', '')}`"
    if value == "size":
        return f"`{render_size_exact(default)}`"
    return f"`{default}`"


if __name__ == "__main__":
    print(render_reference(), end="")
