"""Short notation of stacks: `ext4:noatime`, `md(raid10,4)/ext4`, `zfs:compression=lz4+log@wal=xfs@fsync=off`.

Grammar (docs/stacks.md):

    stack   = volume { "@" key "=" value }
    volume  = { layer "/" } filesystem
    layer   = ( "loop" | "disk" | "lvm" | "md" ) [ "(" arguments ")" ] [ ":" options ]
    filesystem = name [ "(" arguments ")" ] [ ":" options ] { "+" vdev [ "(" arguments ")" ] }
    vdev    = "log" | "cache" | "special"

Parsing yields the same sparse mapping that a campaign file would hold, so that both go through one validation.
"""

from __future__ import annotations

import re
from typing import Any

from pgstrata.errors import UsageError
from pgstrata.spec.model import Model
from pgstrata.spec.nearest import nearest, render_nearest
from pgstrata.spec.options import parse_options, render_options
from pgstrata.spec.printable import LONGEST_NAME
from pgstrata.spec.resolve import stack_from_mapping
from pgstrata.spec.stack import (
    Btrfs,
    Device,
    DiskDevice,
    Existing,
    Ext4,
    Filesystem,
    Imported,
    Kernel,
    Layer,
    Lvm,
    Md,
    Nfs,
    Postgres,
    Stack,
    Tmpfs,
    Volume,
    Xfs,
    Zfs,
)
from pgstrata.spec.units import render_size_exact
from pgstrata.spec.words import quote, split_call, split_top, unquote

FILESYSTEMS: dict[str, type[Model]] = {
    "ext4": Ext4, "xfs": Xfs, "btrfs": Btrfs, "zfs": Zfs, "tmpfs": Tmpfs, "nfs": Nfs, "dir": Existing,
}  # fmt: skip
LAYERS: dict[str, type[Model]] = {"lvm": Lvm, "md": Md}
DEVICES = ("loop", "disk")

_POSTGRES_KEYS = ("major", "source", "data_checksums", "initdb", "postgresql_conf")
_ROLE_KEYS = ("wal", "thp", *_POSTGRES_KEYS)
_PREFIXES = ("tablespace", "queue", "kernel")
_SETTING = re.compile(r"[a-z_][a-z0-9_]*(\.[a-z_][a-z0-9_]*)?")

# ---------------------------------------------------------------- text -> mapping


def parse_stack(text: str) -> Stack:
    """The stack that short notation names; it is called by the text itself. UsageError if it is not valid."""
    return stack_from_mapping(" ".join(text.split()), parse_stack_mapping(text), origin=repr(text))


def parse_stack_mapping(text: str) -> dict[str, Any]:
    """What a campaign file would hold for that stack; only what the text mentions."""
    if len(text) > LONGEST_NAME:
        raise UsageError(f"short notation of {len(text)} characters is longer than {LONGEST_NAME}",
                         hint="write the stack as a mapping in a campaign file")  # fmt: skip
    volume, *settings = split_top(text.strip(), "@")
    if not text.strip():
        raise UsageError("the stack is empty", hint="for example xfs:noatime; docs/stacks.md has the notation")
    # `@fsync=off` alone changes a setting and leaves the place: a level of a matrix, or a child of another stack.
    stack: dict[str, Any] = {"data": parse_volume_mapping(volume)} if volume or not settings else {}
    for word in settings:
        key, equals, value = word.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"@{word} in {text!r} sets nothing", hint="write @wal=VOLUME or @SETTING=VALUE")
        _place(stack, key.strip(), value.strip(), text)
    return stack


def _place(stack: dict[str, Any], key: str, value: str, text: str) -> None:
    if not value and (key == "wal" or key.startswith("tablespace.")):
        raise UsageError(f"@{key}= in {text!r} names no filesystem", hint=f"for example @{key}=xfs:noatime")
    if key == "wal":
        stack["wal"] = parse_volume_mapping(unquote(value))
    elif key.startswith("tablespace."):
        stack.setdefault("tablespaces", {})[key.removeprefix("tablespace.")] = parse_volume_mapping(unquote(value))
    elif key == "thp":
        stack.setdefault("kernel", {})["transparent_hugepage"] = unquote(value)
    elif key.startswith("queue."):
        stack.setdefault("kernel", {}).setdefault("queue", {})[key.removeprefix("queue.")] = unquote(value)
    elif key.startswith(("vm.", "kernel.", "fs.")):
        stack.setdefault("kernel", {}).setdefault("sysctl", {})[key] = unquote(value)
    elif key == "initdb":
        stack.setdefault("postgresql", {}).setdefault("initdb", []).append(unquote(value))
    elif key in _POSTGRES_KEYS:
        stack.setdefault("postgresql", {})[key] = unquote(value)
    else:
        _check_setting(key, text)
        stack.setdefault("postgresql", {}).setdefault("settings", {})[key] = unquote(value)


def _check_setting(key: str, text: str) -> None:
    """A PostgreSQL setting's name is left to the server; what is near one of our own keys is a slip."""
    near = nearest(key, _ROLE_KEYS) if "_" not in key else None
    prefix, dot, rest = key.partition(".")  # `auto_explain.log_analyze` is a setting of an extension
    meant = nearest(prefix, _PREFIXES) if dot else None
    slip = meant is not None or (near is not None and len(key) <= len(near) + 1)
    if slip or not _SETTING.fullmatch(key):
        known = render_nearest(key, (*_ROLE_KEYS, "tablespace.NAME", "queue.NAME"))
        raise UsageError(
            f"@{key} in {text!r} is neither a place nor a PostgreSQL setting",
            hint=f"did you mean {meant}.{rest}?" if meant else known,
        )


def parse_volume_mapping(text: str) -> dict[str, Any]:
    """A volume from the device up: `loop(4)/md(raid10)/ext4:noatime`."""
    volume: dict[str, Any] = {}
    layers: list[dict[str, Any]] = []
    rest = text.strip()
    while (name := split_call(rest)[0]) in (*DEVICES, *LAYERS):
        head, *tail = split_top(rest, "/", limit=1)
        if name in DEVICES:
            if volume or layers:
                raise UsageError(
                    f"{name} in {text!r} is a device: it comes first", hint=f"for example {name}/md(raid1)/ext4"
                )
            volume["device"] = parse_device_mapping(head)
        else:
            layers.append(parse_layer_mapping(head, volume))
        if not tail:
            raise UsageError(f"{text!r} ends without a filesystem", hint=f"for example {head}/xfs")
        rest = tail[0]
    volume["fs"] = parse_fs_mapping(rest, volume, text)
    if layers:
        volume["layers"] = layers
    return volume


def parse_device_mapping(text: str) -> dict[str, Any]:
    """`loop`, `loop(4)`, `loop(4,size=2G)`, `disk(ID,ID)`."""
    name, arguments, rest = split_call(text.strip())
    if name not in DEVICES or rest:
        raise UsageError(f"{text!r} is not a device", hint="loop, loop(COUNT,SIZE) or disk(ID,...)")
    words = [w for w in split_top(arguments, ",") if w] if arguments else []
    if name == "disk":
        if not words:
            raise UsageError(f"{text!r} names no disk", hint="disk(/dev/disk/by-id/...)")
        return {"kind": "disk", "ids": [unquote(w) for w in words]}
    device: dict[str, Any] = {"kind": "loop"}
    for word in words:
        value = word.removeprefix("size=")
        device["count" if value.isdigit() and value == word else "size"] = value
    return device


def parse_layer_mapping(text: str, volume: dict[str, Any]) -> dict[str, Any]:
    """`lvm(25)`, `lvm(striped,4):stripe_size=64k`, `md(raid10,4)`; a count goes to the volume's device."""
    name, arguments, rest = split_call(text.strip())
    layer: dict[str, Any] = {"kind": name}
    field = "layout" if name == "lvm" else "level"
    for word in split_top(arguments, ",") if arguments else []:
        if word.isdigit():
            _set_count(volume, word, text)
        elif "=" in word:
            layer |= parse_options(LAYERS[name], name, word)
        else:
            layer[field] = word
    return layer | _options(LAYERS[name], name, rest, text)


def _set_count(volume: dict[str, Any], count: str, text: str) -> None:
    device = volume.setdefault("device", {})
    if device.get("count", count) != count:
        raise UsageError(
            f"{text!r} asks for {count} devices, but {device['count']} are given below it",
            hint="write the number once",
        )
    device["count"] = count


def _options(model: type[Model], kind: str, rest: str, text: str) -> dict[str, Any]:
    if rest.startswith(":"):
        return parse_options(model, kind, rest[1:])
    if rest.startswith("/"):
        raise UsageError(
            f"{rest!r} in {text!r}: nothing stands on {kind}",
            hint="layers are read from the device upwards, the filesystem last: md(raid1)/ext4",
        )
    if rest:
        several = "; several stacks are words of their own" if rest.startswith(" ") else ""
        raise UsageError(
            f"{rest.strip()!r} in {text!r} is not understood", hint=f"options follow a colon: {kind}:OPTION{several}"
        )
    return {}


def parse_fs_mapping(text: str, volume: dict[str, Any] | None = None, whole: str = "") -> dict[str, Any]:
    """A filesystem alone: `xfs:noatime`, `btrfs(raid10):compress=zstd`, `zfs:recordsize=16k+log`, `dir:/mnt/x`."""
    name, arguments, rest = split_call(text.strip())
    if name not in FILESYSTEMS:
        raise UsageError(f"unknown filesystem {name or text!r} in {(whole or text)!r}",
                         hint=render_nearest(name, (*FILESYSTEMS, *LAYERS)))  # fmt: skip
    if name == "dir":
        if not rest.startswith(":") or arguments is not None:
            raise UsageError(f"{text!r} names no directory", hint="dir:/path/to/directory")
        return {"kind": "dir", "path": unquote(rest[1:].strip())}
    # An exported filesystem brings commas of its own.
    words = [arguments] if arguments and name == "nfs" else split_top(arguments, ",") if arguments else []
    vdevs: list[str] = []
    if name == "zfs":
        rest, *vdevs = split_top(rest, "+")
    fs = {"kind": name} | _arguments(name, words, volume if volume is not None else {}, text)
    fs |= _options(FILESYSTEMS[name], name, rest, text)
    for vdev in vdevs:
        _add_vdev(fs, vdev, text)
    return fs


def _arguments(name: str, words: list[str], volume: dict[str, Any], text: str) -> dict[str, Any]:
    """What stands in a filesystem's parentheses: RAID profile or vdev, count of devices, exported filesystem."""
    fs: dict[str, Any] = {}
    profiles: list[str] = []
    for word in words:
        if word.isdigit():
            _set_count(volume, word, text)
        elif name == "nfs":
            if split_call(word)[0] == "nfs":
                raise UsageError(f"{text!r} exports nfs over nfs", hint="for example nfs(xfs)")
            fs["export"] = parse_fs_mapping(word)
        elif name == "btrfs":
            profiles.append(word)
        elif name == "zfs":
            fs["vdev"] = word
        else:
            raise UsageError(f"{name} takes no {word!r} in parentheses", hint=f"options follow a colon: {name}:{word}")
    if profiles:
        # One profile goes for data and metadata; `btrfs(raid0,raid1)` names both.
        fs |= {"data": profiles[0], "metadata": profiles[-1]}
    return fs


def _add_vdev(fs: dict[str, Any], text: str, whole: str) -> None:
    name, arguments, rest = split_call(text)
    if name not in ("log", "cache", "special") or rest:
        raise UsageError(
            f"+{text} in {whole!r} is not a vdev of zfs", hint=render_nearest(name, ("log", "cache", "special"))
        )
    device: dict[str, Any] = {"kind": "loop"}
    for word in split_top(arguments, ",") if arguments else []:
        if word == "mirror" and name == "log":
            fs["log_mirror"] = True
            device.setdefault("count", "2")
        elif word.startswith(DEVICES):
            device = parse_device_mapping(word)
        else:
            device["count" if word.isdigit() else "size"] = word.removeprefix("size=")
    fs[name] = device


# ---------------------------------------------------------------- stack -> text


def render_stack(stack: Stack) -> str:
    """Short notation of a stack; `parse_stack` reads the same stack from it, name and note apart."""
    words = [render_volume(stack.data)]
    if stack.wal is not None:
        words.append(f"wal={render_volume(stack.wal)}")
    words += [f"tablespace.{n}={render_volume(v)}" for n, v in stack.tablespaces.items()]
    words += [*_kernel_words(stack.kernel), *_postgres_words(stack.postgresql)]
    return "@".join(words)


def _kernel_words(kernel: Kernel) -> list[str]:
    words = [f"{k}={quote(v)}" for k, v in kernel.sysctl.items()]
    if kernel.transparent_hugepage:
        words.append(f"thp={kernel.transparent_hugepage}")
    queue = kernel.queue.model_dump(exclude_none=True)
    return words + [f"queue.{k}={quote(_text(v))}" for k, v in queue.items()]


def _postgres_words(postgresql: Postgres) -> list[str]:
    words = [
        f"{k}={quote(_text(v))}" for k in _POSTGRES_KEYS if k != "initdb" and (v := getattr(postgresql, k)) is not None
    ]
    words += [f"initdb={quote(v)}" for v in postgresql.initdb]
    return words + [f"{k}={quote(v)}" for k, v in postgresql.settings.items()]


def _text(value: object) -> str:
    return ("on" if value else "off") if isinstance(value, bool) else str(value)


def render_volume(volume: Volume) -> str:
    """`loop(4)/md(raid10)/ext4`; a count of loop files stands in the first layer that takes one."""
    device, parts = volume.device, []
    count = str(device.count) if volume.needs_device and device.count > 1 else ""
    if isinstance(device, DiskDevice) or device.size is not None or not (volume.layers or takes_count(volume.fs)):
        if volume.needs_device and (isinstance(device, DiskDevice) or device.size is not None or count):
            parts.append(render_device(device))
        count = ""
    for layer in volume.layers:
        parts.append(_render_layer(layer, count))
        count = ""
    parts.append(render_fs(volume.fs, count))
    return "/".join(parts)


def takes_count(fs: Filesystem) -> bool:
    """True for filesystems that themselves span devices."""
    return isinstance(fs, Btrfs | Zfs)


def render_device(device: Device) -> str:
    """`loop(4,2g)` or `disk(ID,ID)`."""
    if isinstance(device, DiskDevice):
        return f"disk({','.join(map(quote, device.ids))})"
    words = [str(device.count)] if device.count > 1 else []
    words += [f"size={render_size_exact(device.size)}"] if device.size is not None else []
    return f"loop({','.join(words)})" if words else "loop"


def _call(name: str, words: list[str], options: str) -> str:
    shown = [w for w in words if w]
    return name + (f"({','.join(shown)})" if shown else "") + (f":{options}" if options else "")


def _render_layer(layer: Layer, count: str) -> str:
    if isinstance(layer, Lvm):
        return _call("lvm", ["" if layer.layout == "linear" else layer.layout, count], render_options(layer, "lvm"))
    return _call("md", [layer.level, count], render_options(layer, "md"))


def render_fs(fs: Filesystem, count: str = "") -> str:
    """Short notation of a filesystem alone."""
    if isinstance(fs, Existing):
        return f"dir:{quote(fs.path)}"
    if isinstance(fs, Imported):
        return "imported"
    options = render_options(fs, fs.kind)
    if isinstance(fs, Btrfs):
        return _render_btrfs(fs, count, options)
    if isinstance(fs, Nfs):
        return _call("nfs", [render_fs(fs.export)] if fs.export is not None else [], options)
    if not isinstance(fs, Zfs):
        return _call(fs.kind, [count], options)
    text = _call("zfs", ["" if fs.vdev == "stripe" else fs.vdev, count], options)
    for name, device in (("log", fs.log), ("cache", fs.cache), ("special", fs.special)):
        if device is not None:
            shown = render_device(device)
            mirrored = name == "log" and fs.log_mirror
            if shown == "loop" or (mirrored and shown == "loop(2)"):
                shown = ""
            text += "+" + _call(name, ["mirror" if mirrored else "", shown], "")
    return text


def _render_btrfs(fs: Btrfs, count: str, options: str) -> str:
    """Profiles stand in parentheses where both are given, else as options."""
    if fs.data is not None and fs.metadata is not None:
        shown = {f"data={fs.data}", f"metadata={fs.metadata}"}
        options = ",".join(o for o in options.split(",") if o not in shown)
        profiles = [fs.data] if fs.data == fs.metadata else [fs.data, fs.metadata]
        return _call("btrfs", [*profiles, count], options)
    return _call("btrfs", [count], options)
