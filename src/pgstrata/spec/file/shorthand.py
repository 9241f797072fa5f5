"""The short forms that a campaign file may use, turned into the mapping that the models read.

A stack is text (short notation), or a mapping whose `fs`, `device` and `layers` stand for those of `data`. A volume,
filesystem, layer or device is text or a mapping. What short notation says replaces; what a mapping says changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, get_origin

from pgstrata.errors import UsageError
from pgstrata.spec.file.problems import Location
from pgstrata.spec.file.tree import Marked, MarkedList, mark, merge, problem_at
from pgstrata.spec.layers.kind import BlockLayer, Device, Filesystem, Kind
from pgstrata.spec.notation.stack import parse_stack_mapping, parse_volume_mapping

OF_DATA = ("device", "layers", "fs", "server")
STACK_WORDS = ("inherits", "stack", *OF_DATA)


Expand = Callable[[Any, int, Location], Any]
"""From a value as written, with its line and place, to its full form."""


def _each(value: Marked, path: Location, expand: Mapping[str, Expand]) -> Marked:
    """The mapping with the values of those keys in full form; null stays."""
    full = Marked(value.line)
    for key, item in value.items():
        at = value.lines[key]
        full.put(key, expand[key](item, at, (*path, key)) if key in expand and item is not None else item, at)
    return full


def expand_stack(value: Any, line: int, path: Location) -> Marked:
    """One stack as written, in full form; FileProblem where its text is not valid."""
    if isinstance(value, str):
        return _from_text(parse_stack_mapping, value, line, path)
    if not isinstance(value, Marked):
        raise problem_at(line, path, "a stack is short notation or a mapping (key: value)", "for example ext4:noatime")
    stack = Marked(value.line)
    if isinstance(value.get("stack"), str):
        stack = _from_text(parse_stack_mapping, value["stack"], value.lines["stack"], (*path, "stack"))
    rest, data = Marked(value.line), Marked(value.line)
    for key in value:
        if key in OF_DATA:
            data.take_from(value, key)
        elif key not in ("stack", "inherits"):
            rest.take_from(value, key)
    full = merge(stack, _each(rest, path, _OF_STACK))
    if data:
        volume = Marked(data.line)
        volume.put("data", _expand_volume(data, data.line, path), data.line)
        full = merge(full, volume)
    return full if isinstance(full, Marked) else Marked(line)


def _expand_tablespaces(value: Any, line: int, path: Location) -> Any:
    return _each(value, path, dict.fromkeys(value, _expand_volume)) if isinstance(value, Marked) else value


def _expand_topology(value: Any, line: int, path: Location) -> Any:
    """Expand what its standbys and archive sit on, which may be as short as elsewhere."""
    expand = {"archive": _expand_volume, "standbys": _expand_standbys}
    return _each(value, path, expand) if isinstance(value, Marked) else value


def _expand_standbys(value: Any, line: int, path: Location) -> Any:
    if not isinstance(value, MarkedList):
        return value
    standbys = MarkedList(value.line)
    for index, (item, at) in enumerate(zip(value, value.lines, strict=True)):
        standbys.add(_expand_standby(item, at, (*path, index)), at)
    return standbys


def _expand_standby(value: Any, line: int, path: Location) -> Any:
    """`ext4` is what it sits on; null is as the primary."""
    if value is None:
        return Marked(line)
    if isinstance(value, str):
        volume = Marked(line)
        volume.put("data", _expand_volume(value, line, path), line)
        return volume
    return expand_stack(value, line, path)


def _expand_volume(value: Any, line: int, path: Location) -> Any:
    if isinstance(value, str):
        return _from_text(parse_volume_mapping, value, line, path)
    if not isinstance(value, Marked):
        return value
    counts = Marked(value.line)
    expand: dict[str, Expand] = {
        "fs": partial(_expand_fs, volume=counts),
        "layers": partial(_expand_layers, volume=counts),
        "device": expand_device,
    }
    full = _each(value, path, expand)
    if "server" in full:
        full.put("fs", mark({"kind": "server", "uri": full.pop("server")}, full.lines["server"]), full.lines["server"])
    if counts:
        own = full.get("device")
        device = merge(counts["device"], own) if isinstance(own, Marked) else counts["device"]
        full.put("device", device, full.lines.get("device", counts.lines["device"]))
    return full


_OF_STACK: Mapping[str, Expand] = {
    "data": _expand_volume,
    "wal": _expand_volume,
    "tablespaces": _expand_tablespaces,
    "topology": _expand_topology,
}


def _expand_fs(value: Any, line: int, path: Location, volume: Marked) -> Any:
    if isinstance(value, str):
        found: dict[str, Any] = {}
        fs = _from_text(lambda text: Filesystem.parse(text, found), value, line, path)
        if "device" in found:
            volume.put("device", mark(found["device"], line), line)
        return fs
    return _expand_inside(value, path)


def _expand_inside(value: Any, path: Location) -> Any:
    """A layer or filesystem as a mapping, in which devices and filesystems may be written short."""
    if not isinstance(value, Marked):
        return value
    devices, filesystems = _holding(Device), _holding(Filesystem)
    return _each(value, path, dict.fromkeys(devices, expand_device) | dict.fromkeys(filesystems, _expand_exported))


def _expand_exported(value: Any, line: int, path: Location) -> Any:
    return _expand_fs(value, line, path, Marked(line))


def _holding(sort: type[Kind]) -> set[str]:
    """Fields of layers and filesystems that hold a device or a filesystem; what kind it is may stand elsewhere."""
    models = (*BlockLayer.kinds.values(), *Filesystem.kinds.values())
    return {name for model in models for name in model.fields_holding(sort)}


def _expand_layers(value: Any, line: int, path: Location, volume: Marked) -> Any:
    if isinstance(value, str):
        value = mark([value], line)
    if not isinstance(value, MarkedList):
        return value
    full = MarkedList(line)
    for index, (item, at) in enumerate(zip(value, value.lines, strict=True)):
        if isinstance(item, str):
            found: dict[str, Any] = {}
            item = _from_text(lambda text, f=found: BlockLayer.parse(text, f), item, at, (*path, index))
            if "device" in found:
                volume.put("device", mark(found["device"], at), at)
        full.add(_expand_inside(item, (*path, index)), at)
    return full


def expand_device(value: Any, line: int, path: Location) -> Any:
    """`loop`, `loop(4)`, `/dev/disk/by-id/...`, `{loop: 4}`, `{disk: ID}`, `{disk: [ID, ID]}`, or with `kind`."""
    if isinstance(value, str):
        if value.startswith(("/", "PARTUUID=")):
            return mark({"kind": "disk", "ids": [value]}, line)
        return _from_text(Device.parse, value, line, path)
    if value is True:
        return mark({"kind": "loop"}, line)
    if isinstance(value, MarkedList):
        full = mark({"kind": "disk"}, line)
        full.put("ids", value, line)
        return full
    if not isinstance(value, Marked) or "kind" in value:
        return value
    return _expand_device_mapping(value)


def _expand_device_mapping(value: Marked) -> Marked:
    full = Marked(value.line)
    for key in value:
        item, at = value[key], value.lines[key]
        model = Device.kinds.get(key)
        if model is None:
            full.take_from(value, key)
            continue
        full.put("kind", key, at)
        several = get_origin(model.model_fields[model.short_field].annotation) is tuple
        if several and not isinstance(item, MarkedList):
            item = mark([item], at)
        if isinstance(item, Marked):
            for name in item:
                full.take_from(item, name)
        else:
            full.put(model.short_field, item, at)
    return full


def _from_text(parse: Any, text: str, line: int, path: Location) -> Marked:
    """Short notation as a marked mapping in which filesystem and layers replace what they are laid on."""
    try:
        found = mark(parse(text), line)
    except UsageError as error:
        raise problem_at(line, path, error.message, error.hint) from None
    assert isinstance(found, Marked)
    _replace_wholly(found)
    return found


def _replace_wholly(tree: Marked) -> None:
    if "kind" in tree:
        tree.replaces = tree["kind"] != "loop"
        return
    for item in tree.values():
        if isinstance(item, Marked):
            _replace_wholly(item)
