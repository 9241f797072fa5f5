"""`pgstrata lab`: QEMU machines whose kernel has everything."""

from __future__ import annotations

from typing import Annotated

import typer

from pgstrata.cli.output import (
    Group,
    JsonFlag,
    argument,
    option,
    parsed,
    print_json,
    print_notice,
    print_result,
    print_text,
)

group = typer.Typer(
    cls=Group,
    help="QEMU machines whose kernel has zfs, LVM, md and NFS, for hosts without them.",
    epilog="Example: pgstrata lab up --disks 4",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@group.command(epilog="Example: pgstrata lab build")
def build(
    mirror: Annotated[
        str | None, option("--mirror", "Debian mirror; default: the one configured for apt.", metavar="URL")
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Build the image, unless the cache has it; takes minutes and network access to a Debian mirror."""
    from pgstrata.host.local import LocalHost
    from pgstrata.lab.image import build_image
    from pgstrata.lab.recipe import Recipe

    image = build_image(LocalHost(), Recipe(), say=print_notice, mirror_url=mirror)
    print_result(
        {"directory": image.directory, "key": image.key, "release": image.release},
        lambda: f"lab image {image.key} in {image.directory}",
        json=json,
    )


@group.command(epilog="Example: pgstrata lab up --disks 4 --disk-size 2G")
def up(
    name: Annotated[str, option("--name", "Name of the machine; several are numbered.")] = "lab",
    count: Annotated[int, option("--count", "Machines, on a private network.", min=1)] = 1,
    disks: Annotated[int, option("--disks", "Data disks of each, as virtio-disk1 ...", min=0)] = 4,
    disk_size: Annotated[str, option("--disk-size", "Size of each data disk; sparse.")] = "4G",
    cpus: Annotated[int, option("--cpus", "Processors of each.", min=1)] = 2,
    memory: Annotated[str, option("--memory", "Memory of each.")] = "4G",
    json: JsonFlag = False,
) -> None:
    """Start machines, and wait until they answer."""
    from pgstrata.host.local import LocalHost
    from pgstrata.lab.image import build_image
    from pgstrata.lab.machines import names
    from pgstrata.lab.machines import up as start
    from pgstrata.lab.qemu import DataDisk, MachineSpec
    from pgstrata.lab.recipe import Recipe
    from pgstrata.spec.units import parse_size_bytes

    size_bytes = parsed("--disk-size", disk_size, parse_size_bytes, "4G")
    drives = tuple(DataDisk(serial=f"disk{i}", size_bytes=size_bytes) for i in range(1, disks + 1))
    memory_bytes = parsed("--memory", memory, parse_size_bytes, "4G")
    specs = [MachineSpec(name=n, cpus=cpus, memory_bytes=memory_bytes, disks=drives) for n in names(name, count)]
    here = LocalHost()
    image = build_image(here, Recipe(), say=print_notice)
    started = start(here, image, specs, say=print_notice)
    print_result(
        [{"name": m.name, "ssh_port": m.ssh_port, "kind": m.kind} for m in started],
        lambda: "\n".join(f"{m.name} is up: --host lab/{m.name}, or pgstrata lab ssh {m.name}" for m in started),
        json=json,
    )


@group.command(epilog="Example: pgstrata lab down lab")
def down(
    name: Annotated[str | None, typer.Argument(help="One machine; all without it.", show_default=False)] = None,
    json: JsonFlag = False,
) -> None:
    """End machines, and remove their disks."""
    from pgstrata.host.local import LocalHost
    from pgstrata.lab.machines import down as end_machines

    ended = end_machines(LocalHost(), name)
    print_result(
        {"ended": list(ended)}, lambda: "\n".join(f"{n} is gone" for n in ended) or "no machine was there", json=json
    )


@group.command(epilog="Example: pgstrata lab ssh lab -- zpool status -v")
def ssh(
    name: Annotated[str, argument("NAME", "A running machine.")] = "lab",
    words: Annotated[list[str] | None, typer.Argument(metavar="COMMAND", show_default=False)] = None,
) -> None:
    """Open a shell or run one command on a running machine."""
    from pgstrata.host.local import LocalHost, become
    from pgstrata.lab.machine import render_ssh
    from pgstrata.lab.machines import find

    become(render_ssh(find(LocalHost(), name), tuple(words or ())))


@group.command(epilog="Example: pgstrata lab status --json")
def status(json: JsonFlag = False) -> None:
    """List the machines."""
    from pgstrata.host.local import LocalHost
    from pgstrata.lab.machines import status as machines_status

    found = machines_status(LocalHost())
    if json:
        print_json(
            [
                {"name": m.machine.name, "running": m.pid is not None, "kind": m.machine.kind, "orphaned": m.orphaned}
                for m in found
            ]
        )
        return
    lines = [
        f"{m.machine.name}: {'running' if m.pid else 'not running'}, {m.machine.kind}"
        + (", its owner is gone: pgstrata clean" if m.orphaned else "")
        for m in found
    ]
    print_text("\n".join(lines) or "no machine is there")


def register(app: typer.Typer) -> None:
    app.add_typer(group, name="lab")
