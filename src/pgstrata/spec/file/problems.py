"""Validation errors as sentences: where, what is wrong, what was probably meant."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from pgstrata.spec.file.nearest import render_nearest
from pgstrata.spec.layers.kind import Kind
from pgstrata.spec.notation.options import explain_unknown

Location = tuple[str | int, ...]


@dataclass(frozen=True)
class Problem:
    """One thing wrong with what was asked; `location` leads to it in the user's mapping."""

    location: Location
    text: str
    hint: str = ""

    @property
    def path(self) -> str:
        """`stacks.ext4.fs.noatime`, as a reader would say it."""
        return ".".join(str(part) for part in self.location)


def explain(error: ValidationError, model: type[BaseModel], data: Any) -> list[Problem]:
    """Every problem of a pydantic error, in our words, located in `data` (union tags left out)."""
    found = error.errors(include_url=False)
    # A list with a wrong item is also told to be too short, as if the item were not there.
    deeper = {details["loc"][:end] for details in found for end in range(len(details["loc"]))}
    return [
        _explain_one(details, model, data)
        for details in found
        if details["type"] != "too_short" or details["loc"] not in deeper
    ]


def _explain_one(details: ErrorDetails, model: type[BaseModel], data: Any) -> Problem:
    location = locate(details["loc"], data)
    kind, given, context = details["type"], details.get("input"), details.get("ctx", {})
    key = str(details["loc"][-1]) if details["loc"] else ""
    if kind == "extra_forbidden":
        return _unknown_key(location, key, model, details["loc"][:-1])
    if kind == "missing":
        return Problem(location, f"{key!r} is missing")
    if kind == "value_error":
        raised = context.get("error", details["msg"])
        text, example = _split_example(str(raised))
        return Problem(location, text, getattr(raised, "hint", "") or example)
    if kind == "union_tag_not_found":
        return Problem(location, "'kind' is missing", f"one of: {', '.join(_kinds(model, details['loc']))}")
    if kind == "union_tag_invalid":
        tags = [t.strip(" '") for t in str(context.get("expected_tags", "")).split(",") if t.strip()]
        return Problem(location, f"unknown kind {context.get('tag')!r}", render_nearest(str(context.get("tag")), tags))
    if kind == "literal_error":
        options = [o.strip(" '") for o in str(context.get("expected", "")).replace(" or ", ", ").split(",")]
        return Problem(location, f"{given!r} is not valid here", render_nearest(str(given), options))
    hint = _described(model, details["loc"]) if kind == "string_pattern_mismatch" else _EXAMPLES.get(key, "")
    return Problem(location, _plain(kind, given, context, details["msg"]), hint)


def _unknown_key(location: Location, key: str, model: type[BaseModel], above: Location) -> Problem:
    """A documented option is refused with its reason; another name of a key gives that key."""
    kinds = [m for m in _models_at(model, above) if issubclass(m, Kind)]
    if len(kinds) == 1:
        if key in kinds[0].refused:
            return Problem(location, *explain_unknown(kinds[0], key))
        named = kinds[0].aliases.get(key) or kinds[0].also.get(key)
        if named is not None:
            return Problem(location, f"unknown key {key!r}", f"write {named}")
        positive = kinds[0].opposites.get(key) or key.removeprefix("no")
        if positive in kinds[0].model_fields:
            return Problem(location, f"unknown key {key!r}", f"write {positive}: off")
    return Problem(location, f"unknown key {key!r}", render_nearest(key, known_keys(model, above)))


_EXAMPLES = {"margin": "a share between 0 and 100 %, for example 2%"}
_EXAMPLE = re.compile(r"(?P<text>.*) \((?P<example>for example [^()]*)\)", re.DOTALL)


def _split_example(text: str) -> tuple[str, str]:
    """A sentence and the example in brackets at its end, which is a hint."""
    match = _EXAMPLE.fullmatch(text)
    return (match["text"], match["example"]) if match is not None else (text, "")


def _described(model: type[BaseModel], location: Location) -> str:
    """Return the description of the field at a pydantic location; empty if it has none."""
    key = str(location[-1])
    fields = [m.model_fields[key] for m in _models_at(model, location[:-1]) if key in m.model_fields]
    return next((f"valid here: {field.description}" for field in fields if field.description), "")


_EXPECTED = {
    "int_parsing": "a whole number", "int_type": "a whole number", "int_from_float": "a whole number",
    "float_parsing": "a number", "float_type": "a number", "bool_parsing": "true or false (on, off)",
    "bool_type": "true or false (on, off)", "string_type": "text", "dict_type": "a mapping (key: value)",
    "model_type": "a mapping (key: value)", "model_attributes_type": "a mapping (key: value)",
    "tuple_type": "a list", "list_type": "a list",
}  # fmt: skip


def _plain(kind: str, given: Any, context: dict[str, Any], message: str) -> str:
    if kind in _EXPECTED:
        return f"{_show(given)} is not {_EXPECTED[kind]}"
    bounds = {
        "greater_than_equal": ("at least", "ge"), "greater_than": ("more than", "gt"),
        "less_than_equal": ("at most", "le"), "less_than": ("less than", "lt"),
    }  # fmt: skip
    if kind in bounds:
        words, key = bounds[kind]
        return f"{_show(given)} must be {words} {context[key]}"
    if kind == "string_pattern_mismatch":
        return f"{_show(given)} is not valid here"
    if kind == "too_short":
        return "must not be empty"
    return f"{_show(given)}: {message[:1].lower()}{message[1:]}"


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def locate(location: Iterable[str | int], data: Any) -> Location:
    """The part of a pydantic location that exists in `data`: union tags and missing keys are left out."""
    found: list[str | int] = []
    for part in location:
        in_mapping = isinstance(data, dict) and part in data
        in_list = isinstance(data, list | tuple) and isinstance(part, int) and part < len(data)
        if in_mapping or in_list:
            data = data[part]
            found.append(part)
    return tuple(found)


def _kinds(model: type[BaseModel], location: Iterable[str | int]) -> list[str]:
    """Kinds that can stand at a pydantic location."""
    found = _models_at(model, location)
    return [c.name() for c in found if issubclass(c, Kind) and c.offered]


def known_keys(model: type[BaseModel], location: Iterable[str | int]) -> list[str]:
    """Keys that are valid at a pydantic location."""
    candidates = _models_at(model, location)
    return sorted({name for c in candidates for name in c.model_fields if name != "name" or c is not model})


def _models_at(model: type[BaseModel], location: Iterable[str | int]) -> list[type[BaseModel]]:
    """The models that may describe what stands at a pydantic location."""
    candidates: list[type[BaseModel]] = [model]
    for part in location:
        if isinstance(part, int):
            continue
        deeper = [m for c in candidates if part in c.model_fields for m in _models(c.model_fields[part].annotation)]
        tagged = [c for c in candidates if "kind" in c.model_fields and c.model_fields["kind"].default == part]
        # A key of an open mapping (a tablespace's name) names no field and leads to the same models.
        candidates = deeper or tagged or candidates
    return candidates


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return list(vars(annotation).get("kinds", {}).values()) or [annotation]
    return [m for argument in get_args(annotation) for m in _models(argument)]
