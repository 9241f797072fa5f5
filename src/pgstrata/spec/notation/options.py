"""Options of layers and filesystems as short notation spells them, told from the models' own fields.

A switch is written by its name (`noatime`), its opposite with `no` before it (`nobarrier`); everything else is
`key=value`. Short names that the tools use are accepted too (`commit=30`, `stride=16`), as are their flags (`-I 512`,
`-O ^has_journal`, `-d agcount=4`). Documented options that are no field are refused with a reason.
"""

from __future__ import annotations

import re
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Union, get_args, get_origin

from pgstrata.errors import UsageError
from pgstrata.spec.file.nearest import nearest, render_nearest
from pgstrata.spec.model import Model, SizeBytes
from pgstrata.spec.notation.tokens import quote, split_top, unquote
from pgstrata.spec.units import render_size_exact

YOURSELF = "to measure it, build and mount it yourself and give dir:/mnt/x, which pgstrata does not attest"
LEAVE_OUT = "leave it out"


@dataclass(frozen=True)
class Refusal:
    """Reason why an option is not taken, and what to do."""

    reason: str
    hint: str = YOURSELF


def refuse(names: str, reason: str, hint: str = YOURSELF) -> Mapping[str, Refusal]:
    """Refuse the options in `names`, which blanks separate (`~` stands for a blank), for one reason."""
    return {name.replace("~", " "): Refusal(reason, hint) for name in names.split()}


def spelled(**names: str) -> Mapping[str, str]:
    """Further names and flags of the tools by field, which blanks separate (`~` stands for a blank)."""
    return {name.replace("~", " "): field for field, text in names.items() for name in text.split()}


MOUNT_WORDS = {
    **refuse(
        "ro remount bind move rbind shared private slave",
        "the filesystem is mounted once, on a folder of its own, to be written to", LEAVE_OUT,
    ),
    **refuse(
        "auto noauto _netdev nofail user nouser users owner group comment",
        "it is for fstab, and pgstrata mounts by itself", LEAVE_OUT,
    ),
    **refuse(
        "dev nodev exec noexec suid nosuid nosymfollow context fscontext defcontext rootcontext mand nomand acl noacl",
        "it restricts what users may do with files and does not change how PostgreSQL reads and writes",
    ),
    **refuse("loud silent", "it changes messages of the kernel alone", LEAVE_OUT),
    **refuse("iversion noiversion", "it serves NFS exports and is not read back"),
    **refuse("dirsync", "it makes changes of directories synchronous, which PostgreSQL requests by fsync"),
    **refuse("diratime nostrictatime norelatime", "it names a default of the kernel by another word",
             "write noatime, nodiratime or strictatime, or leave it out"),
}  # fmt: skip
"""Options of mount(8) for any filesystem."""
IMPLIED_MOUNT_WORDS = frozenset({"rw", "defaults", "relatime", "atime", "nolazytime"})
"""Options that are mounted and attested anyway."""
SYNCHRONOUS = refuse(
    "sync", "every write would wait for the device, where PostgreSQL waits for commits and checkpoints"
)


MOST_LISTED = 24
"""Options that a hint lists; a kind with more of them has a page."""
LISTED = "docs/reference/campaign.md lists the options of"


class Spelled(Model):
    """A model whose fields short notation writes as options."""

    kind: str

    aliases: ClassVar[Mapping[str, str]] = {}
    """Short names of fields, as the tools have them."""
    opposites: ClassVar[Mapping[str, str]] = {}
    """Words that clear a switch, where `no` before its name is not what people write."""
    also: ClassVar[Mapping[str, str]] = {}
    """Further names and flags of the tools for fields; read, never written."""
    units: ClassVar[Mapping[str, str]] = {}
    """Units of bare numbers behind flags of the tools, where they are not bytes."""
    bare: ClassVar[Mapping[str, Mapping[str, str]]] = {}
    """Words without a value that the tools take for a field and value."""
    implied: ClassVar[frozenset[str]] = frozenset()
    """Options that name what is built and attested anyway; they change nothing."""
    refused: ClassVar[Mapping[str, Refusal]] = {}
    """Documented options that are not taken."""
    not_options: ClassVar[frozenset[str]] = frozenset()
    """Fields that short notation writes elsewhere than behind the colon."""

    @classmethod
    def name(cls) -> str:
        """Return the name in short notation and campaign files."""
        return str(cls.model_fields["kind"].default)

    @classmethod
    def presented(cls, field: str) -> str:
        """Return the name by which a field is written."""
        names = {known: short for short, known in cls.aliases.items() if not known.startswith("no")}
        return names.get(field, field)


def option_fields(model: type[Spelled]) -> dict[str, Any]:
    """Fields of a layer or filesystem that are written as options, with their types."""
    hidden = {"kind", *model.not_options}
    return {name: info.annotation for name, info in model.model_fields.items() if name not in hidden}


def is_switch(annotation: Any) -> bool:
    """True for `bool` and `bool | None`."""
    if annotation is bool:
        return True
    return _is_union(annotation) and set(get_args(annotation)) == {bool, types.NoneType}


def _is_union(annotation: Any) -> bool:
    return get_origin(annotation) in (types.UnionType, Union)


def parse_options(model: type[Spelled], text: str) -> dict[str, Any]:
    """Field values of `noatime,data=writeback`; UsageError names an unknown option and the nearest valid one."""
    values: dict[str, Any] = {}
    usual: set[str] = set()
    for word in (part for several in split_top(text, ",") for part in _split_flags(several)):
        key, value = _read_word(model, word)
        if not key:
            raise UsageError(f"an empty option in {model.name()}:{text}", hint="options are separated by single commas")
        whole = key if value is None else f"{key}={value}"
        if whole in model.implied:
            continue
        if whole in model.refused:
            refused, hint = explain_unknown(model, whole)
            raise UsageError(refused, hint=hint)
        if "." in key:
            outer, inner = key.split(".", 1)
            _set_nested(model, values, outer, inner, value or "")
            continue
        name, parsed = _parse_one(model, key, value)
        if value is None and key in model.bare:  # what a value elsewhere in the text says is more
            values.setdefault(name, parsed)
            usual.add(name)
            continue
        if name in values and name not in usual:
            raise UsageError(f"{model.name()} option {name} is given twice in {text!r}", hint="keep one of them")
        values[name] = parsed
        usual.discard(name)
    return values


def _split_flags(word: str) -> list[str]:
    """The options of `-O bigalloc -C 65536`, which blanks separate as on a command line."""
    return [word] if '"' in word else re.split(r"\s+(?=--?[A-Za-z])", word)


_FLAG = re.compile(r"(--?[A-Za-z][\w-]*)(?:[\s=]+(.+))?")


def _read_word(model: type[Spelled], word: str) -> tuple[str, str | None]:
    """Name and value of one option; a flag that takes options of its own (`-O`, `-E`, `-m`) is left out."""
    match = _FLAG.fullmatch(word)
    if match is not None:
        flag, rest = match[1], (match[2] or "").strip()
        inner = f"{flag} {rest.partition('=')[0].strip()}"
        if inner in model.also or inner in model.refused:
            word = f"{flag} {rest}"
        elif flag in model.also or flag in model.refused or not rest:
            return flag, _with_unit(model, flag, unquote(rest)) or None
        else:
            word = rest
    key, equals, value = word.partition("=")
    return key.strip(), _with_unit(model, key.strip(), unquote(value.strip())) if equals else None


def _with_unit(model: type[Spelled], key: str, value: str) -> str:
    """A bare number counts in the unit of the tool where its own flag is written."""
    return f"{value}{model.units[key]}" if value.isdigit() and key in model.units else value


def _parse_one(model: type[Spelled], key: str, value: str | None) -> tuple[str, Any]:
    fields = option_fields(model)
    name = model.aliases.get(key) or model.also.get(key, key)
    if value is None and key in model.bare:
        return next(iter(model.bare[key].items()))
    if name in fields:
        negated = key in model.aliases and name.startswith("no")
        if value is not None:
            return name, _negate(value) if negated else value
        if is_switch(fields[name]):
            return name, not negated
        if _is_union(fields[name]) and any(get_origin(a) is dict for a in get_args(fields[name])):
            return name, {}
        raise UsageError(f"{model.name()} option {key} needs a value", hint=f"write {key}=VALUE")
    if value is None and key in model.opposites:
        return model.opposites[key], False
    if value is None and key.startswith(("no", "^")):
        positive = key.removeprefix("^") if key.startswith("^") else key[2:]
        positive = model.aliases.get(positive) or model.also.get(positive, positive)
        if positive in fields and is_switch(fields[positive]):
            return positive, False
    text, hint = explain_unknown(model, key)
    raise UsageError(text, hint=hint)


def explain_unknown(model: type[Spelled], key: str) -> tuple[str, str]:
    """Return why an option is not taken, and a hint: the reason of a documented one, else the nearest that there is."""
    plain = key.removeprefix("^").partition("(")[0]
    found = next((model.refused[k] for k in (key, plain, plain.removeprefix("no")) if k in model.refused), None)
    if found is not None:
        return f"{model.name()} option {key} is not taken: {found.reason}", found.hint
    if written := _value_of(model, key):
        return f"{model.name()} has no option {key!r}", f"write {written}"
    known = spellings(model)
    hint = (
        render_nearest(key, known) if len(known) <= MOST_LISTED or nearest(key, known) else f"{LISTED} {model.name()}"
    )
    other = "" if hint.startswith("did you mean") else "; for other options mount it yourself and give dir:/mnt/x"
    return f"{model.name()} has no option {key!r}", f"{hint}{other}"


def _value_of(model: type[Spelled], word: str) -> str | None:
    """A layout or a value that stands where an option belongs, as it is written; None where it is no such word."""
    layout = getattr(model, "layout_field", "")
    fields = {name: info.annotation for name, info in model.model_fields.items() if name != "kind"}
    inner = {
        name: [value for one in get_args(kind) for value in (one, *get_args(one))] for name, kind in fields.items()
    }
    taking = [name for name, values in inner.items() if word in values]
    if layout in taking:
        return f"{model.name()}({word})"
    return f"{model.name()}:{model.presented(taking[0])}={word}" if len(taking) == 1 else None


def _negate(value: str) -> Any:
    if value.lower() in ("on", "yes", "true", "1"):
        return False
    return True if value.lower() in ("off", "no", "false", "0") else value


def _set_nested(model: type[Spelled], values: dict[str, Any], outer: str, inner: str, value: str) -> None:
    annotation = option_fields(model).get(outer)
    candidates = [annotation, *get_args(annotation)]
    if not any(get_origin(c) is dict for c in candidates):
        if outer in model.refused:
            text, hint = explain_unknown(model, outer)
            raise UsageError(text, hint=hint)
        near = render_nearest(outer, spellings(model))
        raise UsageError(f"{model.name()} has no option {outer}.{inner}", hint=near)
    values.setdefault(outer, {})[inner] = value


def spellings(model: type[Spelled]) -> list[str]:
    """Every way to spell an option of that kind, for messages and documentation."""
    fields = option_fields(model)
    cleared = [f for f, a in fields.items() if a is bool and model.model_fields[f].default is True]
    negations = [f"no{model.presented(f)}" for f in cleared]
    return sorted({*map(model.presented, fields), *negations, *model.opposites})


def render_options(value: Spelled) -> str:
    """`noatime,data=writeback` for every field that differs from its default."""
    words = []
    for name, annotation in option_fields(type(value)).items():
        held = getattr(value, name)
        if held == type(value).model_fields[name].get_default(call_default_factory=True):
            continue
        words += _render_one(type(value), name, annotation, held)
    return ",".join(words)


def _render_one(model: type[Spelled], name: str, annotation: Any, held: Any) -> list[str]:
    shown = model.presented(name)
    if isinstance(held, Mapping):
        return [f"{name}.{k}={quote(str(v))}" for k, v in held.items()] or [name]
    if annotation is bool:
        opposite = next((word for word, field in model.opposites.items() if field == name), f"no{shown}")
        return [shown if held else opposite]
    if isinstance(held, bool):
        return [f"{shown}={'on' if held else 'off'}"]
    if SizeBytes in get_args(annotation):
        return [f"{shown}={render_size_exact(held)}"]
    return [f"{shown}={quote(str(held))}"]


@dataclass(frozen=True)
class Call:
    """`name(arguments)rest`; `volume` is the mapping that a count of devices goes to."""

    text: str
    name: str
    arguments: str | None
    rest: str
    volume: dict[str, Any]

    @property
    def words(self) -> list[str]:
        """Words in the parentheses, between commas."""
        return split_top(self.arguments, ",") if self.arguments else []

    def set_count(self, count: str) -> None:
        """Asks for so many devices below."""
        device = self.volume.setdefault("device", {})
        if device.get("count", count) != count:
            raise UsageError(
                f"{self.text!r} asks for {count} devices, but {device['count']} are given below it",
                hint="write the number once",
            )
        device["count"] = count

    def options(self, model: type[Spelled], rest: str | None = None) -> dict[str, Any]:
        """Field values of the options behind the colon; `rest` where something else stands behind them."""
        rest = self.rest if rest is None else rest
        if rest.startswith(":"):
            return parse_options(model, rest[1:])
        if rest.startswith("/"):
            raise UsageError(
                f"{rest!r} in {self.text!r}: nothing stands on {self.name}",
                hint="layers are read from the device upwards, the filesystem last: md(raid1)/ext4",
            )
        if rest:
            several = "; several stacks are words of their own" if rest.startswith(" ") else ""
            raise UsageError(
                f"{rest.strip()!r} in {self.text!r} is not understood",
                hint=f"options follow a colon: {self.name}:OPTION{several}",
            )
        return {}


def render_call(name: str, words: Sequence[str], options: str = "") -> str:
    """`name(words):options` without what is empty."""
    shown = [w for w in words if w]
    return name + (f"({','.join(shown)})" if shown else "") + (f":{options}" if options else "")
