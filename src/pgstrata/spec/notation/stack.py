"""Short notation of stacks: `ext4:noatime`, `md(raid10,4)/ext4`, `zfs:compression=lz4+log@wal=xfs@fsync=off`.

Grammar (docs/stacks.md):

    stack   = [ "cluster(" arguments ")/" ] volume { "@" key "=" value }
    volume  = { layer "/" } filesystem
    layer   = name [ "(" arguments ")" ] [ ":" options ]
    filesystem = name [ "(" arguments ")" ] [ ":" options ] { "+" vdev [ "(" arguments ")" ] }

What stands in parentheses and behind `+` is read by the kind (`spec.layers`). Parsing yields the same sparse mapping
that a campaign file would hold, so that both go through one validation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, get_args

from pydantic import ValidationError

from pgstrata.errors import UsageError
from pgstrata.spec.file.nearest import nearest, render_nearest
from pgstrata.spec.file.problems import explain
from pgstrata.spec.layers.devices import LoopDevice
from pgstrata.spec.layers.kind import BlockLayer, Device, Filesystem
from pgstrata.spec.notation.tokens import quote, split_call, split_top, unquote
from pgstrata.spec.printable import LONGEST_NAME
from pgstrata.spec.stack import MOST_STANDBYS, PRIMARY, Kernel, Network, Postgres, Stack, Topology, Volume

_NOTATION = "docs/stacks.md has the notation, docs/layers what each filesystem and layer takes"


def stack_from_mapping(name: str, mapping: dict[str, Any], *, origin: str) -> Stack:
    """The validated stack; UsageError with every problem found, `origin` saying where it was written."""
    data = {"name": name, **complete_stack(mapping)}
    try:
        return Stack.model_validate(data)
    except ValidationError as error:
        problems = explain(error, Stack, data)
        where = [f"{p.path}: {p.text}" if p.path else p.text for p in problems]
        raise UsageError(f"{origin} is not a valid stack: {'; '.join(where)}",
                         hint=next((p.hint for p in problems if p.hint), _NOTATION)) from None  # fmt: skip


def complete_stack(mapping: dict[str, Any]) -> dict[str, Any]:
    """The mapping with device counts that nobody gave set to what each layout usually takes."""
    complete = {"data": complete_volume, "wal": complete_volume, "topology": _complete_topology}
    return _completed(
        mapping, {**complete, "tablespaces": lambda spaces: _completed(spaces, dict.fromkeys(spaces, complete_volume))}
    )


def _completed(
    mapping: dict[str, Any], complete: Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]]
) -> dict[str, Any]:
    return {k: complete[k](v) if k in complete and isinstance(v, dict) else v for k, v in mapping.items()}


def _complete_topology(topology: dict[str, Any]) -> dict[str, Any]:
    done = _completed(topology, {"archive": complete_volume})
    if isinstance(done.get("standbys"), list):
        done["standbys"] = [complete_stack(one) if isinstance(one, dict) else one for one in done["standbys"]]
    return done


def complete_volume(volume: dict[str, Any]) -> dict[str, Any]:
    """One volume with its device count settled; of listed disks, the first `count` are taken."""
    device, fs = volume.get("device"), volume.get("fs")
    if not isinstance(device, dict | None) or not isinstance(fs, dict) or not takes_device(fs):
        return volume
    given = {"kind": LoopDevice.name(), **(device or {})}
    model = Device.kinds.get(str(given["kind"]))
    # a kind that is none is left for the model to complain of
    return {**volume, "device": model.complete(given, _usual(volume, fs)) if model is not None else given}


def takes_device(fs: Mapping[str, Any]) -> bool:
    """True if a filesystem as written sits on a block device."""
    model = Filesystem.kinds.get(str(fs.get("kind")))
    return model is None or model.takes_device(fs)


def _usual(volume: dict[str, Any], fs: dict[str, Any]) -> int:
    given = volume.get("layers")
    parts = [x for x in given if isinstance(x, dict)] if isinstance(given, list | tuple) else []
    for layer in parts:
        model = BlockLayer.kinds.get(str(layer.get("kind")))
        if model is None or not model.keeps_count:
            return model.usual_count(layer) if model is not None else 1
    above = Filesystem.kinds.get(str(fs.get("kind")))
    return above.usual_count(fs) if above is not None else 1


_POSTGRES_KEYS = ("major", "source", "installation", "data_checksums", "initdb", "postgresql_conf")
_ROLE_KEYS = ("wal", "thp", *_POSTGRES_KEYS)
_PREFIXES = ("tablespace", "queue", "kernel")
_STANDBY = re.compile(r"standby([1-9][0-9]*)?(?:\.(.+))?")
_STANDBY_WORDS = ("upstream", "host", "address")
_SETTING = re.compile(r"[a-z_][a-z0-9_]*(\.[a-z_][a-z0-9_]*)?")
CLUSTER = "cluster"
_EXAMPLE = "for example cluster(3,ANY 1,remote_apply)/tmpfs"
_LEVELS = get_args(get_args(Topology.model_fields["synchronous_commit"].annotation)[0])
_TOPOLOGY_KEYS = ("slots", "catch_up_s", "pooler", "stale_reads", "acknowledgements", "address")
_WORDS = (*_TOPOLOGY_KEYS, *Network.model_fields)


# ---------------------------------------------------------------- text -> mapping


def parse_stack(text: str) -> Stack:
    """The stack that short notation names; it is called by the text itself. UsageError if it is not valid."""
    return stack_from_mapping(" ".join(text.split()), parse_stack_mapping(text), origin=repr(text))


def parse_stack_mapping(text: str) -> dict[str, Any]:
    """Parse a stack into what a campaign file would hold for it; only what the text mentions."""
    if len(text) > LONGEST_NAME:
        raise UsageError(f"short notation of {len(text)} characters is longer than {LONGEST_NAME}",
                         hint="write the stack as a mapping in a campaign file")  # fmt: skip
    volume, *settings = split_top(text.strip(), "@")
    if not text.strip():
        raise UsageError("the stack is empty", hint="for example xfs:noatime; docs/stacks.md has the notation")
    # `@fsync=off` alone changes a setting and leaves the place: a level of a matrix, or a child of another stack.
    topology, volume = split_cluster(volume)
    stack: dict[str, Any] = {"data": parse_volume_mapping(volume)} if volume or not settings else {}
    if topology is not None:
        stack["topology"] = topology
    for word in settings:
        key, equals, value = word.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"@{word} in {text!r} sets nothing", hint="write @wal=VOLUME or @SETTING=VALUE")
        _place(stack, key.strip(), value.strip(), text)
    return stack


def _place(stack: dict[str, Any], key: str, value: str, text: str) -> None:
    if not value and (key in ("wal", "archive") or key.startswith("tablespace.")):
        raise UsageError(f"@{key}= in {text!r} names no filesystem", hint=f"for example @{key}=xfs:noatime")
    if key == "wal":
        stack["wal"] = parse_volume_mapping(unquote(value))
    elif key == "archive":
        _topology(stack, key, text)["archive"] = parse_volume_mapping(unquote(value))
    elif _STANDBY.fullmatch(key):
        _place_standby(_topology(stack, key, text), key, value, text)
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


def _topology(stack: dict[str, Any], key: str, text: str) -> dict[str, Any]:
    if "topology" not in stack:
        raise UsageError(f"@{key} in {text!r} is of a cluster", hint=f"for example cluster(2)/xfs@{key}=ext4")
    topology: dict[str, Any] = stack["topology"]
    return topology


def _place_standby(topology: dict[str, Any], key: str, value: str, text: str) -> None:
    """`standby=VOLUME` of all, `standby1=VOLUME` of one; behind a point pg_wal, whom it follows, its host, or a
    setting."""
    match = _STANDBY.fullmatch(key)
    assert match is not None
    number, what = match.groups()
    standbys = topology["standbys"]
    if number is not None and int(number) > len(standbys):
        raise UsageError(f"@{key} in {text!r}: the cluster has {len(standbys)} standbys", hint="cluster(N) has N - 1")
    if what is not None and what not in ("wal", *_STANDBY_WORDS):
        _check_setting(what, text)
    for standby in standbys if number is None else [standbys[int(number) - 1]]:
        if what in (None, "wal"):
            standby[what or "data"] = parse_volume_mapping(unquote(value))
        elif what in _STANDBY_WORDS:
            standby[what] = unquote(value)
        else:
            standby.setdefault("settings", {})[what] = unquote(value)


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
    while (name := split_call(rest)[0]) in (*Device.kinds, *BlockLayer.kinds):
        head, *tail = split_top(rest, "/", limit=1)
        if name in Device.kinds:
            if volume or layers:
                raise UsageError(
                    f"{name} in {text!r} is a device: it comes first", hint=f"for example {name}/md(raid1)/ext4"
                )
            volume["device"] = Device.parse(head)
        else:
            layers.append(BlockLayer.parse(head, volume))
        if not tail:
            raise UsageError(f"{text!r} ends without a filesystem", hint=f"for example {head}/xfs")
        rest = tail[0]
    volume["fs"] = Filesystem.parse(rest, volume, text)
    if layers:
        volume["layers"] = layers
    return volume


# ---------------------------------------------------------------- stack -> text


def render_stack(stack: Stack) -> str:
    """Short notation of a stack; `parse_stack` reads the same stack from it, name and note apart."""
    words = [f"{render_cluster(stack.topology) if stack.topology else ''}{render_volume(stack.data)}"]
    if stack.wal is not None:
        words.append(f"wal={render_volume(stack.wal)}")
    words += [f"tablespace.{n}={render_volume(v)}" for n, v in stack.tablespaces.items()]
    words += _standby_words(stack.topology) if stack.topology else []
    words += [*_kernel_words(stack.kernel), *_postgres_words(stack.postgresql)]
    return "@".join(words)


def _standby_words(topology: Topology) -> list[str]:
    words = [f"archive={render_volume(topology.archive)}"] if topology.archive is not None else []
    for name, standby in zip(topology.standby_names, topology.standbys, strict=True):
        places = ((name, standby.data), (f"{name}.wal", standby.wal))
        words += [f"{place}={render_volume(volume)}" for place, volume in places if volume is not None]
        words += [f"{name}.upstream={standby.upstream}"] if standby.upstream != PRIMARY else []
        places_of = {"host": standby.host, "address": standby.address}
        words += [f"{name}.{k}={quote(v)}" for k, v in places_of.items() if v is not None]
        words += [f"{name}.{k}={quote(v)}" for k, v in standby.settings.items()]
    return words


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
    if device.says_more or not (volume.layers or volume.fs.spans_devices):
        if volume.needs_device and (device.says_more or count):
            parts.append(device.render())
        count = ""
    for layer in volume.layers:
        parts.append(layer.render(count))
        count = ""
    return "/".join([*parts, volume.fs.render(count)])


def split_cluster(text: str) -> tuple[dict[str, Any] | None, str]:
    """Return what the word in front says of the topology, None if there is no such word, and the volume behind it.

    In `cluster(3,ANY 1,remote_apply)/tmpfs` the first argument counts the nodes, the primary among them. The others are
    levels of synchronous_commit, `slots=off`, `pooler=pgpool`, `stale_reads=5s`, `acknowledgements=5s`, `delay_ms=1`,
    `bandwidth_mbit=100`, `loss=1%`, `catch_up_s=60`, `address=10.0.0.1`, or else synchronous_standby_names.
    """
    name, arguments, rest = split_call(text.strip())
    if name != CLUSTER:
        return None, text
    if arguments is None or not rest.startswith("/"):
        raise UsageError(f"{text!r} does not say how many nodes sit on what", hint=_EXAMPLE)
    count, *words = split_top(arguments, ",")
    if not count.isdigit() or not 1 <= int(count) <= MOST_STANDBYS + 1:
        most = MOST_STANDBYS + 1
        raise UsageError(f"{count!r} in {text!r} is no number of nodes: a cluster has 1 to {most}", hint=_EXAMPLE)
    topology: dict[str, Any] = {"standbys": [{} for _ in range(int(count) - 1)]}
    for word in words:
        _take_cluster_word(topology, word, text)
    return topology, rest[1:]


def _take_cluster_word(topology: dict[str, Any], word: str, text: str) -> None:
    key, equals, value = word.partition("=")
    if equals:
        if key not in _WORDS:
            raise UsageError(f"{word!r} in {text!r} is nothing that a cluster has", hint=render_nearest(key, _WORDS))
        into = topology if key in _TOPOLOGY_KEYS else topology.setdefault("network", {})
        into[key] = value
    elif word in _LEVELS:
        topology["synchronous_commit"] = word
    elif "synchronous_standby_names" in topology:
        raise UsageError(f"{text!r} has synchronous_standby_names twice: {word!r}", hint=_EXAMPLE)
    else:
        topology["synchronous_standby_names"] = unquote(word)


def render_cluster(topology: Topology) -> str:
    """The word in front."""
    words = [str(len(topology.standbys) + 1)]
    quorum = topology.quorum
    if quorum is not None:
        words.append(quorum.text.removesuffix(" (*)"))
    words += [topology.synchronous_commit] if topology.synchronous_commit else []
    words += [] if topology.slots else ["slots=off"]
    words += [f"pooler={topology.pooler}"] if topology.pooler else []
    words += [f"stale_reads={topology.stale_reads:.15g}s"] if topology.stale_reads else []
    words += [f"acknowledgements={topology.acknowledgements:.15g}s"] if topology.acknowledgements else []
    words += [f"address={topology.address}"] if topology.address else []
    network = topology.network
    words += [f"{name}={value:.15g}" for name, value in network if value]
    catch_up_s = topology.catch_up_s
    words += [] if catch_up_s == Topology.model_fields["catch_up_s"].default else [f"catch_up_s={catch_up_s:.15g}"]
    return f"{CLUSTER}({','.join(words)})/"
