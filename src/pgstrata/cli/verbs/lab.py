"""`pgstrata lab`: QEMU machines whose kernel has everything."""

from __future__ import annotations

from typing import Annotated

import typer

from pgstrata.cli.output import Group, JsonFlag, print_json, print_notice, print_text

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
        str | None,
        typer.Option(
            "--mirror", metavar="URL", help="Debian mirror; default: the one configured for apt.", show_default=False
        ),
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Build the image, unless the cache has it; takes minutes and network access to a Debian mirror."""
    from pgstrata.host.base import LocalHost
    from pgstrata.lab.image import build_image
    from pgstrata.lab.recipe import Recipe

    image = build_image(LocalHost(), Recipe(), say=print_notice, mirror_url=mirror)
    if json:
        print_json({"directory": image.directory, "key": image.key, "release": image.release})
    else:
        print_text(f"lab image {image.key} in {image.directory}")


@group.command(epilog="Example: pgstrata lab up --disks 4 --disk-size 2G")
def up(
    name: Annotated[str, typer.Option("--name", help="Name of the machine; several are numbered.")] = "lab",
    count: Annotated[int, typer.Option("--count", min=1, help="Machines, on a private network.")] = 1,
    disks: Annotated[int, typer.Option("--disks", min=0, help="Data disks of each, as virtio-disk1 ...")] = 4,
    disk_size: Annotated[str, typer.Option("--disk-size", help="Size of each data disk; sparse.")] = "4G",
    iops: Annotated[
        int | None,
        typer.Option("--iops", min=1, help="Limit of requests per second of each data disk.", show_default=False),
    ] = None,
    bandwidth: Annotated[
        str | None, typer.Option("--bandwidth", help="Limit of bytes per second of each data disk.", show_default=False)
    ] = None,
    cpus: Annotated[int, typer.Option("--cpus", min=1, help="Processors of each.")] = 2,
    memory: Annotated[str, typer.Option("--memory", help="Memory of each.")] = "4G",
    json: JsonFlag = False,
) -> None:
    """Start machines, and wait until they answer."""
    from pgstrata.host.base import LocalHost
    from pgstrata.lab.image import build_image
    from pgstrata.lab.machines import names
    from pgstrata.lab.machines import up as start
    from pgstrata.lab.qemu import DataDisk, MachineSpec
    from pgstrata.lab.recipe import Recipe

    limit = None if bandwidth is None else _size("--bandwidth", bandwidth)
    drives = tuple(
        DataDisk(serial=f"disk{i}", size_bytes=_size("--disk-size", disk_size), iops=iops, bytes_per_s=limit)
        for i in range(1, disks + 1)
    )
    specs = [
        MachineSpec(name=n, cpus=cpus, memory_bytes=_size("--memory", memory), disks=drives) for n in names(name, count)
    ]
    here = LocalHost()
    image = build_image(here, Recipe(), say=print_notice)
    started = start(here, image, specs, say=print_notice)
    if json:
        print_json([{"name": m.name, "ssh_port": m.ssh_port, "kind": m.kind} for m in started])
    else:
        print_text("\n".join(f"{m.name} is up: --host lab/{m.name}, or pgstrata lab ssh {m.name}" for m in started))


def _size(option: str, text: str) -> int:
    from pgstrata.errors import UsageError
    from pgstrata.spec.units import parse_size_bytes

    try:
        return parse_size_bytes(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}", hint=f"for example {option} 4G") from None


@group.command(epilog="Example: pgstrata lab down lab")
def down(
    name: Annotated[str | None, typer.Argument(help="One machine; all without it.", show_default=False)] = None,
    json: JsonFlag = False,
) -> None:
    """End machines, and remove their disks."""
    from pgstrata.host.base import LocalHost
    from pgstrata.lab.machines import down as end_machines

    ended = end_machines(LocalHost(), name)
    if json:
        print_json({"ended": list(ended)})
    else:
        print_text("\n".join(f"{n} is gone" for n in ended) or "no machine was there")


@group.command(epilog="Example: pgstrata lab ssh lab -- zpool status -v")
def ssh(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A running machine.")] = "lab",
    words: Annotated[list[str] | None, typer.Argument(metavar="COMMAND", show_default=False)] = None,
) -> None:
    """Open a shell or run one command on a running machine."""
    from pgstrata.host.base import LocalHost, become
    from pgstrata.lab.machine import render_ssh
    from pgstrata.lab.machines import find

    become(render_ssh(find(LocalHost(), name), tuple(words or ())))


@group.command(epilog="Example: pgstrata lab status --json")
def status(json: JsonFlag = False) -> None:
    """List the machines."""
    from pgstrata.host.base import LocalHost
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
