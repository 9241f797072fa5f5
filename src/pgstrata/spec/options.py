"""Options of layers and filesystems as short notation spells them, told from the models' own fields.

A switch is written by its name (`noatime`), its opposite with `no` before it (`nobarrier`); everything else is
`key=value`. Short names that the tools use are accepted too (`commit=30`, `stride=16`).
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any, Literal, Union, get_args, get_origin

from pgstrata.errors import UsageError
from pgstrata.spec.model import Model
from pgstrata.spec.nearest import render_nearest
from pgstrata.spec.units import render_size_exact
from pgstrata.spec.words import quote, split_top, unquote

ALIASES: dict[str, dict[str, str]] = {
    "ext4": {
        "commit": "commit_s",
        "stride": "stride_blocks",
        "stripe_width": "stripe_width_blocks",
        "bigalloc": "bigalloc_cluster",
        "journal": "has_journal",
    },
    "btrfs": {"commit": "commit_s", "datacow": "nodatacow", "datasum": "nodatasum"},
    "nfs": {"vers": "version", "sync": "export_sync"},
}
_FALSE_SPELLINGS: dict[str, dict[str, str]] = {"nfs": {"async": "export_sync", "soft": "hard"}}
_PRESENTED = {
    kind: {field: short for short, field in table.items() if not field.startswith("no")}
    for kind, table in ALIASES.items()
}
_HIDDEN = {"kind", "vdev", "log", "log_mirror", "cache", "special", "export", "layout", "level"}


def option_fields(model: type[Model]) -> dict[str, Any]:
    """Fields of a layer or filesystem that are written as options, with their types."""
    return {name: info.annotation for name, info in model.model_fields.items() if name not in _HIDDEN}


def is_switch(annotation: Any) -> bool:
    """True for `bool` and `bool | None`."""
    if annotation is bool:
        return True
    return _is_union(annotation) and set(get_args(annotation)) == {bool, types.NoneType}


def _is_union(annotation: Any) -> bool:
    return get_origin(annotation) in (types.UnionType, Union)


def parse_options(model: type[Model], kind: str, text: str) -> dict[str, Any]:
    """Field values of `noatime,data=writeback`; UsageError names an unknown option and the nearest valid one."""
    values: dict[str, Any] = {}
    for word in split_top(text, ","):
        key, _, value = word.partition("=")
        has_value = "=" in word
        key = key.strip()
        if not key:
            raise UsageError(f"an empty option in {kind}:{text}", hint="options are separated by single commas")
        if "." in key:
            outer, inner = key.split(".", 1)
            _set_nested(model, kind, values, outer, inner, unquote(value.strip()))
            continue
        name, parsed = _parse_one(model, kind, key, unquote(value.strip()) if has_value else None)
        if name in values:
            raise UsageError(f"{kind} option {name} is given twice in {text!r}", hint="keep one of them")
        values[name] = parsed
    return values


def _parse_one(model: type[Model], kind: str, key: str, value: str | None) -> tuple[str, Any]:
    fields = option_fields(model)
    name = ALIASES.get(kind, {}).get(key, key)
    if name in fields:
        negated = name.startswith("no") and name != key
        if value is not None:
            return name, _negate(value) if negated else value
        if is_switch(fields[name]):
            return name, not negated
        if _is_union(fields[name]) and any(get_origin(a) is dict for a in get_args(fields[name])):
            return name, {}
        raise UsageError(f"{kind} option {key} needs a value", hint=f"write {key}=VALUE")
    if value is None and key in _FALSE_SPELLINGS.get(kind, {}):
        return _FALSE_SPELLINGS[kind][key], False
    if value is None and key.startswith("no"):
        positive = ALIASES.get(kind, {}).get(key[2:], key[2:])
        if positive in fields and is_switch(fields[positive]):
            return positive, False
    raise UsageError(f"{kind} has no option {key!r}", hint=render_nearest(key, spellings(model, kind)))


def _negate(value: str) -> Any:
    if value.lower() in ("on", "yes", "true", "1"):
        return False
    return True if value.lower() in ("off", "no", "false", "0") else value


def _set_nested(model: type[Model], kind: str, values: dict[str, Any], outer: str, inner: str, value: str) -> None:
    annotation = option_fields(model).get(outer)
    candidates = [annotation, *get_args(annotation)]
    if not any(get_origin(c) is dict for c in candidates):
        raise UsageError(f"{kind} has no option {outer}.{inner}", hint=render_nearest(outer, spellings(model, kind)))
    values.setdefault(outer, {})[inner] = value


def spellings(model: type[Model], kind: str) -> list[str]:
    """Every way to spell an option of that kind, for messages and documentation."""
    names = [_PRESENTED.get(kind, {}).get(f, f) for f in option_fields(model)]
    negations = [
        f"no{_PRESENTED.get(kind, {}).get(f, f)}"
        for f, a in option_fields(model).items()
        if a is bool and model.model_fields[f].default is True
    ]
    return sorted({*names, *negations, *_FALSE_SPELLINGS.get(kind, {})})


def render_options(value: Model, kind: str) -> str:
    """`noatime,data=writeback` for every field that differs from its default."""
    words = []
    for name, annotation in option_fields(type(value)).items():
        held = getattr(value, name)
        if held == type(value).model_fields[name].get_default(call_default_factory=True):
            continue
        words += _render_one(kind, name, annotation, held)
    return ",".join(words)


def _render_one(kind: str, name: str, annotation: Any, held: Any) -> list[str]:
    shown = _PRESENTED.get(kind, {}).get(name, name)
    if isinstance(held, Mapping):
        return [f"{name}.{k}={quote(str(v))}" for k, v in held.items()] or [name]
    if annotation is bool:
        return [shown if held else {"hard": "soft", "sync": "async"}.get(shown, f"no{shown}")]
    if isinstance(held, bool):
        return [f"{shown}={'on' if held else 'off'}"]
    if isinstance(held, int) and get_origin(annotation) is not Literal and _is_size(name):
        return [f"{shown}={render_size_exact(held)}"]
    return [f"{shown}={quote(str(held))}"]


def _is_size(name: str) -> bool:
    return name.endswith("size") or name in ("su", "chunk", "bigalloc_cluster")
