"""What a host can do, asked in one place: for every capability what it takes, and what installs what is missing.

A capability is a list of needs: something in the kernel, a program, a right. Each need answers why it is not met, and
knows the packages that bring it in each family of distributions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from pgstrata.errors import PreflightError
from pgstrata.host.facts.filesystems import driver_available, filesystem_available, module_available, raid_available
from pgstrata.host.facts.kernel import read_kernel_release
from pgstrata.host.facts.os_release import Family, read_os_release
from pgstrata.host.protocol import Host, command
from pgstrata.spec.stack import Stack, Volume

Packages = Mapping[Family, tuple[str, ...]]
"""Names by family; `{release}` stands for the running kernel's release, `{arch}` for Debian's name of the processor."""

PROGRAM_DIRECTORIES = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")

_INSTALLERS: dict[Family, str] = {
    "debian": "apt-get install",
    "ubuntu": "apt-get install",
    "fedora": "dnf install",
    "rhel": "dnf install",
    "suse": "zypper install",
}
_KERNEL: Packages = {
    "debian": ("linux-image-{arch}",),
    "ubuntu": ("linux-modules-extra-{release}",),
    "fedora": ("kernel-modules-{release}", "kernel-modules-extra-{release}"),
    "rhel": ("kernel-modules-{release}", "kernel-modules-extra-{release}"),
    "suse": ("kernel-default",),
}
_FOREIGN_KERNEL: Packages = {
    "debian": ("linux-image-{arch}",),
    "ubuntu": ("linux-image-generic",),
    "fedora": ("kernel",),
    "rhel": ("kernel",),
    "suse": ("kernel-default",),
}
"""Where the running kernel is not the distribution's, no package of modules fits it."""
_BOOT = "then boot that kernel: the running one is not of this distribution"
_LAB = "or use a machine of the lab: --host lab"


@dataclass(frozen=True)
class Need:
    """`problem` gives the reason why it is not met, or None; `advice` is what else to do, by family."""

    problem: Callable[[Host], str | None]
    packages: Packages = field(default_factory=dict)
    advice: Mapping[Family, str] = field(default_factory=dict)
    kernel: bool = False
    """Whether it is brought by another kernel or module, which a machine of the lab has."""


@dataclass(frozen=True)
class Capability:
    """`what` completes the sentence: this host can ..."""

    name: str
    what: str
    needs: tuple[Need, ...]


@dataclass(frozen=True)
class Missing:
    """A capability that a host lacks. `install` is the command that brings it, empty where none does."""

    name: str
    what: str
    reason: str
    install: str
    advice: str

    @property
    def text(self) -> str:
        return f"{self.name}: {self.reason}"

    @property
    def hint(self) -> str:
        """The command, and behind it what else to know."""
        return "; ".join(part for part in (self.install, self.advice) if part)


def program_path(host: Host, name: str) -> str | None:
    """Where a program is, without running it."""
    paths = (f"{directory}/{name}" for directory in PROGRAM_DIRECTORIES)
    return next((path for path in paths if host.status(path) is not None), None)


def _program(name: str, packages: Packages) -> Need:
    return Need(lambda host: None if program_path(host, name) else f"{name} is not installed", packages)


def _everywhere(*names: str) -> Packages:
    return dict.fromkeys(_INSTALLERS, names)


def _always(advice: str) -> dict[Family, str]:
    return dict.fromkeys((*_INSTALLERS, "unknown"), advice)


def _named(debian: str, redhat: str, suse: str) -> Packages:
    return {"debian": (debian,), "ubuntu": (debian,), "fedora": (redhat,), "rhel": (redhat,), "suse": (suse,)}


def _kernel(
    available: Callable[[Host], bool],
    what: str,
    packages: Packages = _KERNEL,
    advice: Mapping[Family, str] | None = None,
) -> Need:
    return Need(
        lambda host: None if available(host) else f"the kernel has no {what}", packages, advice or {}, kernel=True
    )


def _filesystem(name: str, packages: Packages = _KERNEL, advice: Mapping[Family, str] | None = None) -> Need:
    return _kernel(lambda host: filesystem_available(host, name), name, packages, advice)


def _raid(level: str) -> Need:
    return _kernel(lambda host: raid_available(host, level), f"md {level}")


def _not_root(host: Host) -> str | None:
    user = host.run(command("id", "-un")).stdout.strip()
    return None if host.run(command("id", "-u")).stdout.strip() == "0" else f"commands run as {user}, not as root"


def _no_pressure(host: Host) -> str | None:
    return None if host.status("/proc/pressure/io") is not None else "the kernel does not count pressure stalls"


_ROOT = Need(_not_root, advice=_always("run pgstrata as root (sudo), or name the host as ssh://root@..."))
_MDADM = _program("mdadm", _everywhere("mdadm"))
_UTIL_LINUX = tuple(
    _program(name, _everywhere("util-linux")) for name in ("lsblk", "blkid", "wipefs", "losetup", "findmnt", "blockdev")
)
_BTRFS: Packages = {family: names for family, names in _KERNEL.items() if family != "rhel"}
_NO_BTRFS: dict[Family, str] = {"rhel": "the kernel of this distribution has no btrfs"}
_ZFS_MODULE: Packages = {
    "debian": ("linux-headers-{arch}", "zfs-dkms"),
    "ubuntu": ("linux-modules-extra-{release}",),
    "fedora": ("kernel-devel-{release}", "zfs"),
    "rhel": ("kernel-devel-{release}", "zfs"),
    "suse": ("zfs",),
}
_ZFS_SOURCE: dict[Family, str] = {
    "debian": "from the component contrib",
    "fedora": "from the repository of the OpenZFS project",
    "rhel": "from the repository of the OpenZFS project",
    "suse": "from the repository filesystems",
}
_THIN = "thin-provisioning-tools"

_CAPABILITIES = (
    Capability("root", "build stacks at all (all but an existing directory)", (_ROOT,)),
    Capability("tools.block", "look at block devices", _UTIL_LINUX),
    Capability(
        "block.loop",
        "attach files as block devices",
        (_kernel(lambda host: driver_available(host, "loop", "loop"), "loop devices"), *_UTIL_LINUX),
    ),
    Capability(
        "block.lvm",
        "build LVM volumes",
        (
            _kernel(lambda host: driver_available(host, "device-mapper", "dm-mod"), "device mapper"),
            _program("lvm", _everywhere("lvm2")),
        ),
    ),
    Capability(
        "block.lvm.thin",
        "build LVM thin pools",
        (
            _kernel(lambda host: module_available(host, "dm-thin-pool"), "dm-thin-pool"),
            _program(
                "thin_check",
                _named(_THIN, "device-mapper-persistent-data", _THIN),
            ),
        ),
    ),
    *(
        Capability(f"block.md.{level}", f"build md {level}", (_raid(level), _MDADM))
        for level in ("raid0", "raid1", "raid10", "raid456")
    ),
    Capability("fs.ext4", "build ext4", (_filesystem("ext4"), _program("mkfs.ext4", _everywhere("e2fsprogs")))),
    Capability("fs.xfs", "build xfs", (_filesystem("xfs"), _program("mkfs.xfs", _everywhere("xfsprogs")))),
    Capability(
        "fs.btrfs",
        "build btrfs",
        (
            _filesystem("btrfs", _BTRFS, _NO_BTRFS),
            _program("mkfs.btrfs", _named("btrfs-progs", "btrfs-progs", "btrfsprogs")),
        ),
    ),
    Capability(
        "fs.zfs",
        "build zfs pools",
        (
            _filesystem("zfs", _ZFS_MODULE, _ZFS_SOURCE),
            _program("zpool", _named("zfsutils-linux", "zfs", "zfs")),
        ),
    ),
    Capability("fs.tmpfs", "mount tmpfs", (_filesystem("tmpfs"),)),
    Capability(
        "fs.nfs.client",
        "mount NFS",
        (_filesystem("nfs"), _program("mount.nfs", _named("nfs-common", "nfs-utils", "nfs-client"))),
    ),
    Capability(
        "fs.nfs.server",
        "export over NFS",
        (_filesystem("nfsd"), _program("exportfs", _named("nfs-kernel-server", "nfs-utils", "nfs-kernel-server"))),
    ),
    Capability(
        "psi",
        "measure pressure stalls",
        (Need(_no_pressure, advice=_always("boot with psi=1 (Linux 4.20 and later)"), kernel=True),),
    ),
    Capability("fio", "compare with fio", (_program("fio", _everywhere("fio")),)),
    Capability(
        "lab",
        "start machines of the lab",
        (
            _program("qemu-system-x86_64", _named("qemu-system-x86", "qemu-system-x86", "qemu-x86")),
            _program("qemu-img", _named("qemu-utils", "qemu-img", "qemu-tools")),
            _program("mmdebstrap", _everywhere("mmdebstrap")),
        ),
    ),
)
CAPABILITIES = {capability.name: capability for capability in _CAPABILITIES}
"""By name, in the order of a report."""


def missing(host: Host, names: Iterable[str]) -> tuple[Missing, ...]:
    """Those of the named capabilities that the host lacks, each with the reason and the command that mends it."""
    found = ((CAPABILITIES[name], _unmet(host, CAPABILITIES[name])) for name in dict.fromkeys(names))
    lacking = [(capability, unmet) for capability, unmet in found if unmet]
    if not lacking:
        return ()
    place = _read_place(host)
    return tuple(_explain(capability, unmet, place) for capability, unmet in lacking)


@dataclass(frozen=True)
class Place:
    """What decides which packages help."""

    family: Family
    release: str
    arch: str
    own_kernel: bool
    """Whether the running kernel is the distribution's."""


def _read_place(host: Host) -> Place:
    release = read_kernel_release(host) or "$(uname -r)"
    machine = host.run(command("uname", "-m")).stdout.strip()
    arch = {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)
    own = any(host.status(f"{root}/{release}") is not None for root in ("/lib/modules", "/usr/lib/modules"))
    return Place(read_os_release(host).family, release, arch, own)


def _explain(capability: Capability, unmet: list[tuple[Need, str]], place: Place) -> Missing:
    needs, reason = [need for need, _ in unmet], "; ".join(reason for _, reason in unmet)
    return Missing(capability.name, capability.what, reason, render_install(needs, place), render_advice(needs, place))


def _unmet(host: Host, capability: Capability) -> list[tuple[Need, str]]:
    return [(need, reason) for need in capability.needs if (reason := need.problem(host)) is not None]


def render_install(needs: list[Need], place: Place) -> str:
    """The command that installs what these needs lack; empty when no package does."""
    names: list[str] = []
    for need in needs:
        if need.kernel and need.packages and not place.own_kernel:
            names += _FOREIGN_KERNEL.get(place.family, ())
        names += need.packages.get(place.family, ())
    # Modules for a kernel that no package knows cannot be had from one.
    usable = [name for name in names if place.own_kernel or "{release}" not in name]
    known = [name.format(release=place.release, arch=place.arch) for name in dict.fromkeys(usable)]
    return f"{_INSTALLERS[place.family]} {' '.join(known)}" if known else ""


def render_advice(needs: list[Need], place: Place) -> str:
    """What else to do or to know."""
    kernel = any(need.kernel and need.packages for need in needs)
    parts = [need.advice[place.family] for need in needs if place.family in need.advice]
    if kernel and not place.own_kernel and place.family in _FOREIGN_KERNEL:
        parts.append(_BOOT)
    if place.family not in _INSTALLERS and any(need.packages for need in needs):
        parts.append("install it with the package manager of this distribution")
    if kernel:
        parts.append(_LAB)
    return "; ".join(dict.fromkeys(parts))


def require(host: Host, names: Iterable[str]) -> None:
    """PreflightError that tells everything that is missing at once."""
    lacking = missing(host, names)
    if lacking:
        raise PreflightError(
            f"{host.name} lacks " + "; ".join(one.text for one in lacking),
            hint="; ".join(dict.fromkeys(one.hint for one in lacking)),
        )


def required_for(stack: Stack) -> tuple[str, ...]:
    """The capabilities that building a stack takes, in the order of building. Pure."""
    names: list[str] = []
    for volume in stack.volumes.values():
        names += _volume_needs(volume)
    kernel = stack.kernel
    if kernel.sysctl or kernel.transparent_hugepage or kernel.queue != type(kernel.queue)():
        names.insert(0, "root")
    return tuple(dict.fromkeys(names))


def _volume_needs(volume: Volume) -> list[str]:
    if not volume.fs.capabilities:
        return []
    devices = [device.capability for device in volume.devices]
    layers = [name for layer in volume.layers for name in layer.capabilities]
    return ["root", *devices, *layers, *volume.fs.capabilities]
