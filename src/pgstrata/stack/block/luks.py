"""LUKS: a mapping of dm-crypt over each device below, opened with a key of the trial.

What is in force is read from the device mapper. Tested with cryptsetup 2.6.1.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pgstrata.errors import parser_of
from pgstrata.host.capabilities import Capability, kernel_has, named, program
from pgstrata.host.facts.tools import module_available
from pgstrata.host.protocol import CommandFailed, Host, command
from pgstrata.spec.layers.luks import Luks
from pgstrata.stack.block.dm import Target, read_target
from pgstrata.stack.kind import Below, BlockLayerKind, PlannedLayer
from pgstrata.stack.place import Place, sysfs_folder
from pgstrata.stack.secret_key import WipeKey, key_file, plan_key, wipe_key
from pgstrata.stack.step import (
    Argument,
    Attested,
    FreeName,
    PlannedCommand,
    Ref,
    Stage,
    Step,
    compare_or_record,
    planned,
    resolve,
)
from pgstrata.stack.undo import Undo
from pgstrata.stack.undoing import ask_tool, blank_member, list_members, require_ours, run_while_busy

DEFAULT_CIPHER = "aes-xts-plain64"
"""cryptsetup's default, passed explicitly so that it is known."""
XTS_BITS, OTHER_BITS = 512, 256
"""Defaults for the key of the data: xts has two."""
CHEAP_KDF = ("--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000")
"""A random key needs no protection from guessing; the least that cryptsetup takes, and no benchmark."""
FORMAT_TIMEOUT_S = 300.0
FLAGS = {
    "discards": ("--allow-discards", "allow_discards"),
    "no_read_workqueue": ("--perf-no_read_workqueue", "no_read_workqueue"),
    "no_write_workqueue": ("--perf-no_write_workqueue", "no_write_workqueue"),
    "same_cpu_crypt": ("--perf-same_cpu_crypt", "same_cpu_crypt"),
    "submit_from_crypt_cpus": ("--perf-submit_from_crypt_cpus", "submit_from_crypt_cpus"),
}
"""Switches of the model: the option of cryptsetup open, and the word in dm-crypt's table."""


def plan_luks(layer: Luks, below: Below, place: Place) -> PlannedLayer:
    """Plan the key, and a mapping over each node below; binds `ROLE.luks.0`, ..."""
    key = plan_key(place.beside("luks"), known=layer.known_key)
    nodes = tuple(Ref(f"{place.role}.luks.{index}") for index in range(len(below.nodes)))
    each = list(zip(nodes, below.nodes, strict=True))
    steps = tuple(_plan_mapping(layer, below, place, i, node, on) for i, (node, on) in enumerate(each))
    return PlannedLayer(
        (key, *steps),
        Below(nodes=nodes, media=below.media, geometry=below.geometry),
        tuple(LuksCheck(place.role, mapping_name(place, i), node, on, layer) for i, (node, on) in enumerate(each)),
        stages=tuple(_plan_again(layer, place, i, node, on, key) for i, (node, on) in enumerate(each)),
    )


def mapping_name(place: Place, index: int) -> str:
    """Return the device mapper's name of a mapping."""
    return f"{place.name}-luks{index}"


def header_uuid(place: Place, index: int) -> str:
    """Return the UUID of a header, chosen before it is made so that the undo recognises our headers."""
    return str(uuid.UUID(bytes=hashlib.sha256(mapping_name(place, index).encode()).digest()[:16]))


def cipher_of(layer: Luks) -> tuple[str, int]:
    """Return the cipher and the bits of its key."""
    cipher = layer.cipher or DEFAULT_CIPHER
    return cipher, layer.key_size or (XTS_BITS if "-xts-" in cipher else OTHER_BITS)


def _plan_mapping(layer: Luks, below: Below, place: Place, index: int, node: Ref, on: Argument) -> Step:
    cipher, bits = cipher_of(layer)
    sector = ["--sector-size", str(layer.sector_size)] if layer.sector_size and layer.format == "luks2" else []
    made = ["--type", layer.format, "--cipher", cipher, "--key-size", str(bits), *sector]
    own = ["--uuid", header_uuid(place, index), *CHEAP_KDF, "--key-file", key_file(place.beside("luks"))]
    ids = below.ids[index : index + 1]
    name = mapping_name(place, index)
    return Step(
        name=f"mapping {name}",
        commands=(
            planned("cryptsetup", "luksFormat", "--batch-mode", made, own, on, timeout_s=FORMAT_TIMEOUT_S),
            *_plan_open(layer, place, index, on),
        ),
        binds=node.name,
        undo=(CloseLuks(mapping=name, devices=ids, uuid=header_uuid(place, index)),),
        requires=(FreeName("mapping", name, ("cryptsetup", "status", name)),),
    )


def _plan_open(layer: Luks, place: Place, index: int, on: Argument) -> tuple[PlannedCommand, ...]:
    name = mapping_name(place, index)
    flags = [option for field, (option, _) in FLAGS.items() if getattr(layer, field)]
    given = ["--type", layer.format, *flags, "--key-file", key_file(place.beside("luks"))]
    return (
        planned("cryptsetup", "open", given, on, name, timeout_s=FORMAT_TIMEOUT_S),
        planned("readlink", "--canonicalize-existing", f"/dev/mapper/{name}"),
    )


def _plan_again(layer: Luks, place: Place, index: int, node: Ref, on: Argument, key: Step) -> Stage:
    name = mapping_name(place, index)
    return Stage(
        name=f"open mapping {name}",
        up=_plan_open(layer, place, index, on),
        down=(planned("cryptsetup", "close", name),),
        binds=node.name,
        alone=True,
        undo=(CloseLuks(mapping=name),),
        readies=(key,) if index == 0 else (),
    )


@parser_of("cryptsetup status")
def parse_status(text: str) -> dict[str, str]:
    """Parse the fields of `cryptsetup status`: lines `  name:  value` behind the first, which names the mapping."""
    fields = (line.partition(":") for line in text.splitlines()[1:] if line.strip())
    return {name.strip(): value.strip() for name, _, value in fields}


@dataclass(frozen=True)
class LuksCheck:
    """Checks cipher, key size, sector size and switches of a mapping, and what it lies on."""

    role: str
    mapping: str
    node: Ref
    on: Argument
    layer: Luks

    def attest(self, host: Host, bindings: Mapping[str, str]) -> tuple[Attested, ...]:
        printed = host.run(command("cryptsetup", "status", self.mapping), check=False)
        if printed.exit_code != 0:
            return (Attested(f"{self.role} luks mapping", self.mapping, "missing"),)
        table = read_target(host, "table", self.mapping)
        on = resolve(self.on, bindings)
        below = host.list_directory(f"{sysfs_folder(self.node.resolve(bindings))}/slaves")
        lies = Attested(f"{self.role} luks device", on, " ".join(f"/dev/{name}" for name in below))
        return (lies, *self.compare(parse_status(printed.stdout), table))

    def compare(self, status: Mapping[str, str], table: Target) -> tuple[Attested, ...]:
        """Compare with the table of dm-crypt: cipher, key (its size and place in the keyring, or zeroes), offset of the
        IV, device, offset, number of options, options."""
        cipher, bits = cipher_of(self.layer)
        words = table.words
        key_bits = 8 * int(words[1].split(":")[1]) if words[1].startswith(":") else 4 * len(words[1])
        options = words[6:]
        sector = next((o.partition(":")[2] for o in options if o.startswith("sector_size:")), "512")
        rows = (
            compare_or_record("format", self.layer.format.upper(), status.get("type", "missing")),
            compare_or_record("cipher", cipher, words[0]),
            compare_or_record("key_size", bits, key_bits),
            compare_or_record("sector_size", self.layer.sector_size, sector),
            *(
                compare_or_record(field, _on(getattr(self.layer, field)), _on(word in options))
                for field, (_, word) in FLAGS.items()
            ),
        )
        return tuple(Attested(f"{self.role} luks {r.what}", r.expected, r.actual) for r in rows)


def _on(value: bool) -> str:
    return "on" if value else "off"


class CloseLuks(Undo):
    """Close a mapping, and wipe the header from the real device below it, if that is ours by its UUID."""

    kind: Literal["close_luks"] = "close_luks"
    mapping: str
    devices: tuple[str, ...] = ()
    uuid: str = ""


def _close_luks(host: Host, undo: CloseLuks) -> str:
    require_ours(undo.mapping)
    done = []
    if ask_tool(host, "cryptsetup", "status", undo.mapping).exit_code == 0:
        ended = run_while_busy(host, command("cryptsetup", "close", undo.mapping))
        if ended.exit_code != 0:
            raise CommandFailed(host.name, ended, hint=f"dmsetup ls --tree; lsblk /dev/mapper/{undo.mapping}")
        done.append(f"closed mapping {undo.mapping}")
    for node, signatures in list_members(host, undo.devices, "crypto_LUKS"):
        if any(signature.uuid == undo.uuid for signature in signatures):
            blank_member(host, node)
            done.append(f"wiped the LUKS header of {node}")
        else:
            done.append(f"left {node} alone: it carries another LUKS header")
    return "; ".join(done)


KIND = BlockLayerKind(
    Luks,
    plan_luks,
    capabilities=(
        Capability(
            "block.luks",
            "build LUKS mappings",
            (
                kernel_has(lambda host: module_available(host, "dm-crypt"), "dm-crypt"),
                program("cryptsetup", named("cryptsetup-bin", "cryptsetup", "cryptsetup", "cryptsetup")),
            ),
        ),
    ),
    undos={CloseLuks: _close_luks, WipeKey: wipe_key},
)
