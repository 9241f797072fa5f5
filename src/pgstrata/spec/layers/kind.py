"""Questions that are asked of every kind of device, block layer and filesystem.

A kind is a frozen model: its fields are its schema, its methods answer what follows from them without a host. The other
half, how it is built and read back, is a `stack.kind` object. Everything else asks these and knows no kind by name.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self, Union, get_args

from pydantic import Field, GetCoreSchemaHandler, TypeAdapter
from pydantic_core import CoreSchema, core_schema

from pgstrata.errors import UsageError
from pgstrata.spec.durability_class import BackingFs, Parity, Promises
from pgstrata.spec.file.nearest import render_nearest
from pgstrata.spec.notation.options import Call, Spelled, render_call, render_options
from pgstrata.spec.notation.tokens import split_call, split_top

Switch = bool | None
"""An option that is set, cleared or (None) left at the kernel's default."""

ELSEWHERE = frozenset(
    {"bcache", "bcachefs", "ceph", "cephfs", "cifs", "dm-integrity", "drbd", "exfat", "ext2",
     "ext3", "f2fs", "gfs2", "glusterfs", "jfs", "nilfs2", "ntfs", "ocfs2", "overlay", "reiserfs", "smb",
     "stratis", "vdo", "vfat", "zram"}
)  # fmt: skip
"""Layers and filesystems that people use and pgstrata does not build."""
NOT_BUILT = (
    "pgstrata does not build {name}: mount it yourself and give dir:/mnt/x, which is measured, not built or attested"
)


Look = Callable[[str, bool], str]
"""Function that says what a path of the host lies on; its flag is true when that is for loop files."""
MEMORY = "memory"


class Kind(Spelled):
    """Base of all kinds. A field of type Device, BlockLayer or Filesystem takes any kind registered for it."""

    kinds: ClassVar[dict[str, type[Any]]]
    """Registered kinds by name, in the order of documents."""
    offered: ClassVar[bool] = True
    """False for what only pgstrata itself makes."""
    assembles: ClassVar[bool] = False
    """True if naming the devices is enough to assemble their content, as crash trials do."""
    layout_field: ClassVar[str] = ""
    """The field that says how several devices are put together."""
    layout_minimum: ClassVar[Mapping[str, int]] = {}
    """Devices that a layout needs at least, where that is more than one."""
    layout_usual: ClassVar[Mapping[str, int]] = {}
    """Devices taken where nobody says how many, where that is more than the minimum."""
    known_as: ClassVar[Mapping[str, str]] = {}
    """Names that people use for it, with what is written here."""
    own_names: ClassVar[tuple[str, ...]] = ()
    """Fields with a device of its own, which short notation writes behind a plus sign."""

    @property
    def own_devices(self) -> dict[str, Device]:
        """Devices besides those it sits on, by what they are for."""
        return {name: device for name in self.own_names if (device := getattr(self, name)) is not None}

    def promises(self, where: str, ground: BackingFs | None) -> Promises:
        """Yield what it means for acknowledged commits; `ground` is what its directory or files lie on."""
        yield from ()

    @property
    def parity(self) -> tuple[Parity, ...]:
        """Parity that nothing journals."""
        return ()

    def on_recorded(self) -> Self:
        """Return it as best made on a crash trial's recorded disks, which read as zeroes and are looked at later."""
        return self

    @classmethod
    def register(cls, model: type[Self]) -> None:
        """Register `model` as a kind."""
        for sort in model.__mro__:
            if issubclass(sort, Kind) and "kinds" in vars(sort):
                sort.kinds[model.name()] = model

    @classmethod
    def offered_names(cls) -> tuple[str, ...]:
        """Kinds that a user can request."""
        return tuple(name for name, model in cls.kinds.items() if model.offered)

    @classmethod
    def fields_holding(cls, sort: type[Kind]) -> tuple[str, ...]:
        """Fields in which a device or another filesystem stands."""
        found = {name: (f.annotation, *get_args(f.annotation)) for name, f in cls.model_fields.items()}
        return tuple(n for n, types in found.items() if any(isinstance(t, type) and issubclass(t, sort) for t in types))

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        if "kinds" not in vars(cls):
            return handler(source)
        return core_schema.no_info_plain_validator_function(
            lambda value: _any_of(tuple(cls.kinds.values())).validate_python(value),
            metadata={"pydantic_js_functions": [lambda _, js: js(_any_of(tuple(cls.kinds.values())).core_schema)]},
        )

    @classmethod
    def layouts(cls) -> tuple[str, ...]:
        """The ways in which several devices can be put together."""
        field = cls.model_fields.get(cls.layout_field)
        return tuple(map(str, get_args(field.annotation))) if field else ()

    @classmethod
    def usual_count(cls, asked: Mapping[str, Any]) -> int:
        """Devices taken where neither the user nor a list of devices says how many; `asked` as written."""
        layout = str(asked.get(cls.layout_field) or "")
        return cls.layout_usual.get(layout, cls.layout_minimum.get(layout, 1))

    def layout_problem(self, layout: str, count: int) -> str | None:
        """Return why `count` devices cannot make that layout; None if they can."""
        minimum = self.layout_minimum.get(layout, 1)
        return f"{self.kind} {layout} needs at least {minimum} devices, not {count}" if count < minimum else None


def _written_here(text: str) -> str | None:
    """A hint that writes a stack with another name for its first part as it is written here; None for unknown names."""
    name, arguments, rest = split_call(text)
    for sort in (Device, BlockLayer, Filesystem):
        for kind, model in sort.kinds.items():
            names = {**{one: f"{kind}({one})" for one in model.layouts()}, **model.known_as}
            if model.offered and name in names:
                meant, inner = names[name], f"({arguments})" if arguments else ""
                if inner and meant.endswith(")"):
                    meant, inner = meant[:-1], f",{arguments})"
                if sort is not Filesystem:
                    return f"write {meant}{inner}{rest or '/ext4'}"
                return f"write {meant}{inner}{'' if rest.startswith('/') else rest}"
    disk = _DISK.fullmatch(text)
    if disk is not None:
        return f"write disk(ID){disk['above'] or '/ext4'}: pgstrata doctor lists the id of {disk['name']}"
    return f"write dir:{text} for a directory that is there" if text.startswith("/") else None


_DISK = re.compile(
    r"(?P<name>/dev/[\w.-]+|(s|v|xv)d[a-z]+[0-9]*|nvme[0-9]+n[0-9]+(p[0-9]+)?|[a-z]{2}-?[0-9]+|loop[0-9]+)(?P<above>/.+)?"
)
"""Names that the kernel gives to disks, and what stands on one."""


@cache
def _any_of(kinds: tuple[type[Kind], ...]) -> TypeAdapter[Any]:
    one_of: Any = Annotated[Union[kinds], Field(discriminator="kind")]  # noqa: UP007
    return TypeAdapter(one_of)


class Device(Kind):
    """One or several block devices below a volume."""

    kinds: ClassVar[dict[str, type[Device]]] = {}
    capability: ClassVar[str]
    """Capability that a host must have for it."""

    short_field: ClassVar[str]
    """The field that VALUE gives in `device: {KIND: VALUE}`."""

    in_memory: ClassVar[bool] = False
    """True if its content takes memory of the host."""

    @classmethod
    def short_schema(cls, own: Mapping[str, Any]) -> dict[str, Any]:
        """JSON Schema of that VALUE; `own` has those of all fields."""
        return dict(own[cls.short_field])

    if TYPE_CHECKING:

        @property
        def count(self) -> int: ...

    @property
    def stable_ids(self) -> tuple[str, ...]:
        """Ids of real disks, which two volumes cannot share."""
        return ()

    @property
    def each_bytes(self) -> int | None:
        """The size of each, where that was asked for."""
        return None

    def scratch_bytes(self, usual_bytes: int) -> int | None:
        """Return what its files can grow to in the scratch folder; `usual_bytes` each if no size was asked for."""
        return None

    @property
    def keeps_cache(self) -> bool:
        """True if a power cut is known to lose nothing that was completed, flushed or not."""
        return False

    @abstractmethod
    def lies_on(self, scratch: str, look: Look) -> str:
        """Return what it finally lies on, in the words of a table's head."""

    @property
    @abstractmethod
    def says_more(self) -> bool:
        """True if more was asked for than a count."""

    @classmethod
    def complete(cls, given: dict[str, Any], usual: int) -> dict[str, Any]:
        """Return the fields as written, with the count settled; `usual` is what the layer above takes."""
        return {**given, "count": usual} if given.get("count") is None else given

    @classmethod
    def parse(cls, text: str) -> dict[str, Any]:
        """`loop`, `loop(4,size=2G)`, `disk(ID,ID)`: what a campaign file would hold."""
        name, arguments, rest = split_call(text.strip())
        if name not in cls.kinds or rest:
            raise UsageError(f"{text!r} is not a device", hint="loop, loop(COUNT,SIZE) or disk(ID,...)")
        words = Call(text, name, arguments, rest, {}).words
        return {"kind": name, **cls.kinds[name].parse_words([word for word in words if word], text)}

    @classmethod
    @abstractmethod
    def parse_words(cls, words: Sequence[str], text: str) -> dict[str, Any]:
        """Field values of what stands in the parentheses."""

    @abstractmethod
    def render(self) -> str:
        """Short notation."""


class BlockLayer(Kind):
    """Takes the devices below and gives one of its own, or one for each."""

    kinds: ClassVar[dict[str, type[BlockLayer]]] = {}
    gives: ClassVar[str]
    """Name of the one device."""
    needs_several: ClassVar[bool] = False
    """True if it makes no sense over a single device."""
    keeps_count: ClassVar[bool] = False
    """True if it gives a device for each one below."""
    under_pool: ClassVar[str] = ""
    """Problem with it below a filesystem that pools disks itself, if any; `{fs}` is that one."""

    @property
    def asked_layout(self) -> str:
        """Layout by which the devices below are put together."""
        return str(getattr(self, self.layout_field))

    def order_problem(self, below: Sequence[BlockLayer]) -> str | None:
        """Return why it cannot stand on these layers; None if it can."""
        if any(layer.kind == self.kind for layer in below):
            return f"two layers of {self.kind} on top of each other"
        joined = [layer for layer in below if not layer.keeps_count]
        if joined and self.needs_several:
            last = joined[-1]
            one = f"{self.kind} over {last.kind}: the one {last.gives} would be the only member"
            return f"{one}; put {self.kind} below {last.kind}"
        return None

    def count_problem(self, count: int) -> str | None:
        """Return why it cannot be made of so many devices; None if it can."""
        return self.layout_problem(self.asked_layout, count)

    @property
    def capabilities(self) -> tuple[str, ...]:
        """Capabilities that a host must have to build it."""
        return (f"block.{self.kind}",)

    @abstractmethod
    def copies(self, devices: int) -> float:
        """Bytes on the devices for each byte written to it."""

    @classmethod
    def parse(cls, text: str, volume: dict[str, Any]) -> dict[str, Any]:
        """`lvm(25)`, `lvm(striped,4):stripe_size=64k`, `md(raid10,4)`; a count goes to the volume's device."""
        call = Call(text, *split_call(text.strip()), volume)
        if call.name not in cls.kinds:
            raise UsageError(f"unknown layer {text!r}", hint="lvm, lvm(striped,4), md(raid10,4)")
        model = cls.kinds[call.name]
        layer: dict[str, Any] = {"kind": call.name}
        for word in call.words:
            if word.isdigit():
                call.set_count(word)
            elif "=" in word or word in model.refused:
                layer |= call.options(model, f":{word}")
            else:
                layer[model.layout_field] = word
        return layer | model.parse_rest(call)

    @classmethod
    def parse_rest(cls, call: Call) -> dict[str, Any]:
        """Field values of what stands behind the parentheses."""
        return call.options(cls)

    def render(self, count: str) -> str:
        """Short notation; a default layout is left out."""
        default = type(self).model_fields[self.layout_field].default
        words = ["" if self.asked_layout == default else self.asked_layout, count]
        return render_call(self.kind, words, render_options(self))


class Filesystem(Kind):
    """Part that PostgreSQL sees: a filesystem, a pool, or a directory that is there."""

    kinds: ClassVar[dict[str, type[Filesystem]]] = {}
    sits_on_device: ClassVar[bool] = True
    """False for what takes no block device in any case."""
    spans_devices: ClassVar[bool] = False
    """True if it combines several devices itself."""
    pools_disks: ClassVar[bool] = False
    """True if it needs the disks themselves."""
    copy_on_write: ClassVar[bool] = False
    """True if it declines over hours, which only long runs show."""
    in_memory: ClassVar[bool] = False
    """True if a power loss erases it."""
    one_server: ClassVar[bool] = False
    """True if one server of the host serves all volumes of this kind."""
    attested: ClassVar[bool] = True
    """False for what is only measured: neither built nor compared with its specification."""

    @classmethod
    def takes_device(cls, asked: Mapping[str, Any]) -> bool:
        """True if it sits on a block device; `asked` are its fields as written."""
        return cls.sits_on_device

    @property
    def needs_device(self) -> bool:
        """True if this one sits on a block device."""
        return self.takes_device(vars(self))

    @property
    def stores(self) -> Filesystem:
        """The filesystem that the bytes end up in: itself, or the one below an export."""
        return self

    @property
    def directories(self) -> tuple[str, ...]:
        """Directories that were there before, which two volumes cannot share."""
        return ()

    def lies_on(self, look: Look) -> str | None:
        """Return what it lies on, in the words of a table's head; None if its device says that."""
        return None

    @property
    def places_wal(self) -> bool:
        """True if pg_wal gets a place of its own in it."""
        return False

    @property
    def host_settings(self) -> dict[str, str]:
        """Settings of the whole host that it changes, by name."""
        return {}

    def place_problem(self, layers: Sequence[BlockLayer], *, device_given: bool) -> str | None:
        """Return why it, which takes no device, does not stand where it was put; None if it does."""
        if layers:
            return f"{self.kind} takes no device and no block layer: it does not sit on a block device"
        return f"{self.kind} takes no device and no block layer" if device_given else None

    def layers_problem(self, layers: Sequence[BlockLayer]) -> str | None:
        """Return why it does not go with the block layers below; None if it does."""
        wrong = next((layer for layer in layers if layer.under_pool), None)
        if self.pools_disks and wrong is not None:
            return f"{self.kind} over {wrong.kind} {wrong.under_pool.format(fs=self.kind)}"
        return None

    def count_problem(self, count: int) -> str | None:
        """Return why it cannot be made of so many devices; None if it can."""
        if count > 1:
            return f"{self.kind} sits on one device, and {count} are given: put md or lvm between, or give one"
        return None

    @property
    def capabilities(self) -> tuple[str, ...]:
        """Capabilities that a host must have to build it, in the order of building; none at all needs no root."""
        return (f"fs.{self.kind}",)

    def copies(self, devices: int) -> float:
        """Bytes on the devices for each byte written to it."""
        return 1.0

    @abstractmethod
    def tears_pages(self, ground: BackingFs | None) -> bool:
        """True if a power cut can leave half of a page old and half new."""

    @classmethod
    def parse(cls, text: str, volume: dict[str, Any] | None = None, whole: str = "") -> dict[str, Any]:
        """A filesystem alone: `xfs:noatime`, `btrfs(raid10):compress=zstd`, `zfs:recordsize=16k+log`, `dir:/mnt/x`."""
        name, arguments, rest = split_call(text.strip())
        if name not in Filesystem.offered_names():
            raise UsageError(
                f"unknown filesystem {name or text!r} in {(whole or text)!r}",
                hint=(NOT_BUILT.format(name=name) if name in ELSEWHERE else _written_here(text.strip()))
                or render_nearest(name, (*Filesystem.offered_names(), *BlockLayer.offered_names())),
            )
        call = Call(text, name, arguments, rest, volume if volume is not None else {})
        return {"kind": name, **Filesystem.kinds[name].parse_call(call)}

    @classmethod
    def parse_call(cls, call: Call) -> dict[str, Any]:
        """Field values of short notation."""
        return cls.parse_words(call) | call.options(cls)

    @classmethod
    def parse_words(cls, call: Call) -> dict[str, Any]:
        """Parse the words in the parentheses: a count of devices, and layouts if there are any."""
        layouts = []
        for word in call.words:
            if word.isdigit():
                call.set_count(word)
            elif cls.spans_devices:
                layouts.append(word)
            else:
                raise UsageError(
                    f"{call.name} takes no {word!r} in parentheses", hint=f"options follow a colon: {call.name}:{word}"
                )
        return cls.parse_layouts(layouts) if layouts else {}

    @classmethod
    def parse_layouts(cls, layouts: Sequence[str]) -> dict[str, Any]:
        """Field values of the layouts in the parentheses."""
        return {cls.layout_field: layouts[-1]}

    def render(self, count: str = "") -> str:
        """Short notation."""
        return render_call(self.kind, [count], render_options(self))


class LocalFilesystem(Filesystem):
    """One that is made on block devices and mounted from them, so that it can be exported to others."""

    kinds: ClassVar[dict[str, type[Any]]] = {}

    @classmethod
    def usual(cls) -> LocalFilesystem:
        """Return what is exported if nobody says: the first of the registry."""
        model: type[LocalFilesystem] = next(iter(cls.kinds.values()))
        return model.model_validate({})


def redundancy(parity_disks: int, devices: int) -> float:
    """Bytes on `devices` for each byte, of which so many disks hold parity."""
    return devices / max(1, devices - parity_disks)


_PLAIN = "loop"
"""The kind where nothing else is said."""
LOG = "log"


def parse_own_device(words: Sequence[str], **usual: str) -> dict[str, Any]:
    """Return the field values: a count and a size of loop files, `usual` where they are not given, or a device in
    full."""
    device: dict[str, Any] = {"kind": _PLAIN, **usual}
    for word in words:
        if word.startswith(tuple(Device.kinds)):
            device = Device.parse(word)
        else:
            device["count" if word.isdigit() else "size"] = word.removeprefix("size=")
    return device


def render_own_device(device: Device, usual_count: int = 1) -> str:
    """Return short notation; empty for what is taken where nothing is said."""
    plain = device.kind == _PLAIN and not device.says_more and device.count == usual_count
    return "" if plain else device.render()


def parse_own_devices(model: type[Kind], call: Call) -> dict[str, Any]:
    """Return the field values behind the parentheses: options, then `+NAME(DEVICE)` of `model.own_names`."""
    rest, *own = split_top(call.rest, "+")
    found = call.options(model, rest)
    names = " or ".join(f"+{name}" for name in model.own_names)
    for text in own:
        name, arguments, more = split_call(text)
        if name not in model.own_names or more:
            raise UsageError(
                f"+{text} in {call.text!r} is not taken: {model.name()} has one device of its own, {names}",
                hint=f"options stand before it: {model.name()}:OPTION+{model.own_names[0]}(DEVICE)",
            )
        found[name] = parse_own_device(split_top(arguments, ",") if arguments else ())
    return found


def render_own_devices(kind: Kind) -> str:
    """Return short notation of all devices of a layer or filesystem; empty without any."""
    return "".join(f"+{render_call(name, [render_own_device(device)])}" for name, device in kind.own_devices.items())


class LoggingFilesystem(LocalFilesystem):
    """One with `log`, a device beside the one below: `xfs+log`, `ext4:noatime+log(media(nvme))`.

    What the log is called, and how it is made: mke2fs(8), `-J device`; mkfs.xfs(8), `-l logdev`.
    """

    own_names: ClassVar[tuple[str, ...]] = (LOG,)
    not_options: ClassVar[frozenset[str]] = frozenset({LOG})

    if TYPE_CHECKING:

        @property
        def log(self) -> Device | None: ...

    def count_problem(self, count: int) -> str | None:
        if self.log is not None and self.log.count != 1:
            return f"the log of {self.kind} takes one device, and {self.log.count} are given"
        return super().count_problem(count)

    @classmethod
    def parse_call(cls, call: Call) -> dict[str, Any]:
        return cls.parse_words(call) | parse_own_devices(cls, call)

    def render(self, count: str = "") -> str:
        return super().render(count) + render_own_devices(self)
