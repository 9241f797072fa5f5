"""Capabilities of a host: for each what it takes, and what installs what is missing.

A capability is a list of needs: something in the kernel, a program, a right. Each need answers why it is not met, and
knows the packages that bring it in each family of distributions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from pgstrata.host.facts.system import Family, read_file, read_kernel_release, read_names, read_os_release
from pgstrata.host.facts.tools import filesystem_available
from pgstrata.host.protocol import Host, command

Packages = Mapping[Family, tuple[str, ...]]
"""Names by family; `{release}` stands for the running kernel's release, `{arch}` for Debian's name of the processor."""

PROGRAM_DIRECTORIES = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")

NODES = {"/dev/fuse": "a:e5", "/dev/loop-control": "a:ed"}
"""Device nodes of the kernel, with major and minor in hexadecimal (the kernel's devices.txt)."""
CAP_SYS_ADMIN = 21
NO_FILESYSTEM = "pgstrata-none"
_MOUNT_FAILED = 32
DROP_CACHES = "/proc/sys/vm/drop_caches"

_INSTALLERS: dict[Family, str] = {
    "debian": "apt-get install",
    "ubuntu": "apt-get install",
    "fedora": "dnf install",
    "rhel": "dnf install",
    "suse": "zypper install",
    "alpine": "apk add",
    "arch": "pacman -S",
}
KERNEL: Packages = {
    "debian": ("linux-image-{arch}",),
    "ubuntu": ("linux-modules-extra-{release}",),
    "fedora": ("kernel-modules-{release}", "kernel-modules-extra-{release}"),
    "rhel": ("kernel-modules-{release}", "kernel-modules-extra-{release}"),
    "suse": ("kernel-default",),
    "alpine": ("linux-lts",),
    "arch": ("linux",),
}
_FOREIGN_KERNEL: Packages = {
    "debian": ("linux-image-{arch}",),
    "ubuntu": ("linux-image-generic",),
    "fedora": ("kernel",),
    "rhel": ("kernel",),
    "suse": ("kernel-default",),
    "alpine": ("linux-lts",),
    "arch": ("linux",),
}
"""Kernels to install where the running one is not the distribution's: no package of modules fits it."""
_BOOT = "then boot that kernel: the running one is not of this distribution"
_LAB = "or use a machine of the lab: --host lab"


@dataclass(frozen=True)
class Need:
    """`problem` gives the reason why it is not met, or None; `advice` is what else to do, by family."""

    problem: Callable[[Host], str | None]
    packages: Packages = field(default_factory=dict)
    advice: Mapping[Family, str] = field(default_factory=dict)
    kernel: bool = False
    """True if it is brought by another kernel or module, which a machine of the lab has."""


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
    further: tuple[str, ...]
    """Further things to do or to know."""

    @property
    def advice(self) -> str:
        return "; ".join(self.further)

    @property
    def text(self) -> str:
        return f"{self.name}: {self.reason}"

    @property
    def hint(self) -> str:
        """The command, and behind it what else to know."""
        return "; ".join(part for part in (self.install, self.advice) if part)


def program_path(host: Host, name: str) -> str | None:
    """Path of a program, found without running it; None if it is in no known folder."""
    paths = (f"{directory}/{name}" for directory in PROGRAM_DIRECTORIES)
    return next((path for path in paths if host.status(path) is not None), None)


def program(name: str, packages: Packages) -> Need:
    """A program that must be installed."""
    return Need(lambda host: None if program_path(host, name) else f"{name} is not installed", packages)


def everywhere(*names: str) -> Packages:
    """Packages that are called the same in all families."""
    return dict.fromkeys(_INSTALLERS, names)


def always(advice: str) -> dict[Family, str]:
    """Advice that holds in all families."""
    return dict.fromkeys((*_INSTALLERS, "unknown"), advice)


def named(debian: str, redhat: str, suse: str, other: str) -> Packages:
    """A package by its names; `other` is that of Alpine and Arch."""
    names: dict[Family, str] = {"debian": debian, "ubuntu": debian, "fedora": redhat, "rhel": redhat, "suse": suse}
    return {family: (names.get(family, other),) for family in _INSTALLERS}


def kernel_has(
    available: Callable[[Host], bool],
    what: str,
    packages: Packages = KERNEL,
    advice: Mapping[Family, str] | None = None,
) -> Need:
    """Something that the kernel, or a module of it, must have."""
    return Need(
        lambda host: None if available(host) else f"the kernel has no {what}", packages, advice or {}, kernel=True
    )


def filesystem(name: str, packages: Packages = KERNEL, advice: Mapping[Family, str] | None = None) -> Need:
    """A filesystem that the kernel must have."""
    return kernel_has(lambda host: filesystem_available(host, name), name, packages, advice)


def _not_root(host: Host) -> str | None:
    user = host.run(command("id", "-un")).stdout.strip()
    return None if host.run(command("id", "-u")).stdout.strip() == "0" else f"commands run as {user}, not as root"


def refused_write(host: Host, path: str) -> str:
    """Return why a file of the kernel cannot be opened for writing; empty if it can. Writes nothing."""
    opened = host.run(command("dd", "if=/dev/null", f"of={path}", "conv=nocreat,notrunc", "status=none"), check=False)
    return "" if opened.exit_code == 0 else opened.stderr.strip().rpartition(": ")[2] or f"exit code {opened.exit_code}"


def writable(paths: Callable[[Host], Iterable[str]], advice: str) -> Need:
    """Return the need for files of the kernel of which at least one is writable, if there are any."""
    return Need(lambda host: _all_refused(host, paths(host)), advice=always(advice))


def _all_refused(host: Host, paths: Iterable[str]) -> str | None:
    problem = None
    for path in paths:
        refused = refused_write(host, path)
        if not refused:
            return None
        problem = f"{path}: {refused}"
    return problem


def node_problem(host: Host, node: str) -> str | None:
    """Return why a device node of the kernel cannot be opened; None if it can."""
    said = host.run(command("stat", "--dereference", "--format=%t:%T", node), check=False)
    if said.exit_code != 0:
        return f"{node}: {said.stderr.strip()}"
    if said.stdout.strip() != NODES[node]:
        return f"{node} is not the kernel's device: its numbers are {said.stdout.strip()}, not {NODES[node]}"
    refused = refused_write(host, node)
    return f"{node}: {refused}" if refused else None


def openable(node: str) -> Need:
    """Return the need for a device node that exists and that no container or policy withholds."""
    return Need(partial(node_problem, node=node), advice=always(f"a container needs --device {node}"))


def _may_not_mount(host: Host) -> str | None:
    """Root of a container may lack the capability (capabilities(7)), or a seccomp filter or a security module denies
    mount(2). They are consulted before the kernel looks for the filesystem, and none has this name: nothing is mounted.
    """
    status = dict(line.partition(":")[::2] for line in (read_file(host, "/proc/self/status") or "").splitlines())
    if "CapEff" not in status or status.get("Uid", "0 0").split()[1] != "0":
        return None
    if not int(status["CapEff"], 16) >> CAP_SYS_ADMIN & 1:
        return "root has no CAP_SYS_ADMIN here, so it may not mount filesystems"
    mount = command("mount", "--internal-only", ["--types", NO_FILESYSTEM], "none", "/")
    said = host.run(replace(mount, env=(("LIBMOUNT_FORCE_MOUNT2", "always"),)), check=False)
    if said.exit_code != _MOUNT_FAILED or "unknown filesystem type" in said.stderr:
        return None
    return f"a seccomp filter or a security module denies mount(2) to root: {said.stderr.splitlines()[0]}"


def _queues(host: Host) -> list[str]:
    """Return a file of the queue of every block device: those of a stack may not exist yet."""
    return [f"/sys/block/{name}/queue/read_ahead_kb" for name in read_names(host, "/sys/block")]


def _no_pressure(host: Host) -> str | None:
    return None if host.status("/proc/pressure/io") is not None else "the kernel does not count pressure stalls"


_ROOT = Need(
    _not_root,
    advice=always(
        "run pgstrata as root (sudo), or name the host as ssh://root@..., or compare existing directories: dir:/path"
    ),
)
_MAY_MOUNT = Need(
    _may_not_mount,
    advice=always(
        "a container needs --privileged, or --cap-add SYS_ADMIN with --security-opt seccomp=unconfined and "
        "--security-opt apparmor=unconfined"
    ),
)
WRITABLE = "run pgstrata as root; a container needs --privileged, as its /sys and /proc/sys are read-only otherwise"
QUEUE_SETTINGS, KERNEL_SETTINGS = "settings.queue", "settings.sysctl"
UTIL_LINUX = tuple(
    program(name, everywhere("util-linux")) for name in ("lsblk", "blkid", "wipefs", "losetup", "findmnt", "blockdev")
)
BLOCK_TOOLS = Capability("tools.block", "look at block devices", UTIL_LINUX)
FIRST = (
    Capability("root", "build stacks at all (all but an existing directory)", (_ROOT, _MAY_MOUNT)),
    BLOCK_TOOLS,
)
"""Capabilities that every stack needs, at the head of a report; behind it come those of the layers."""
LAST = (
    Capability(
        KERNEL_SETTINGS,
        "set kernel settings (vm.*) and drop caches",
        (writable(lambda host: (DROP_CACHES,), WRITABLE),),
    ),
    Capability(QUEUE_SETTINGS, "set block queues of devices", (writable(_queues, WRITABLE),)),
    Capability(
        "psi",
        "measure pressure stalls",
        (Need(_no_pressure, advice=always("boot with psi=1 (Linux 4.20 and later)"), kernel=True),),
    ),
    Capability("fio", "compare with fio", (program("fio", everywhere("fio")),)),
    Capability(
        "lab",
        "start machines of the lab",
        (
            program(
                "qemu-system-x86_64",
                {
                    **named("qemu-system-x86", "qemu-system-x86", "qemu-x86", "qemu-system-x86"),
                    "alpine": ("qemu-system-x86_64",),
                },
            ),
            program("qemu-img", named("qemu-utils", "qemu-img", "qemu-tools", "qemu-img")),
            program("mmdebstrap", everywhere("mmdebstrap")),
        ),
    ),
)


def lacking_of(host: Host, capabilities: Iterable[Capability]) -> tuple[Missing, ...]:
    """Capabilities of these that the host lacks, each with the reason and the command that mends it."""
    found = ((capability, _unmet(host, capability)) for capability in capabilities)
    lacking = [(capability, unmet) for capability, unmet in found if unmet]
    if not lacking:
        return ()
    distribution = _read_distribution(host)
    return tuple(_explain(capability, unmet, distribution) for capability, unmet in lacking)


@dataclass(frozen=True)
class Distribution:
    """Facts that decide which packages help."""

    family: Family
    release: str
    arch: str
    own_kernel: bool
    """True if the running kernel is the distribution's."""


def _read_distribution(host: Host) -> Distribution:
    release = read_kernel_release(host) or "$(uname -r)"
    machine = host.run(command("uname", "-m")).stdout.strip()
    arch = {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)
    own = any(host.status(f"{root}/{release}") is not None for root in ("/lib/modules", "/usr/lib/modules"))
    return Distribution(read_os_release(host).family, release, arch, own)


def _explain(capability: Capability, unmet: list[tuple[Need, str]], distribution: Distribution) -> Missing:
    needs, reason = [need for need, _ in unmet], "; ".join(reason for _, reason in unmet)
    return Missing(
        capability.name,
        capability.what,
        reason,
        render_install(needs, distribution),
        advice_of(needs, distribution),
    )


def _unmet(host: Host, capability: Capability) -> list[tuple[Need, str]]:
    return [(need, reason) for need in capability.needs if (reason := need.problem(host)) is not None]


def render_install(needs: list[Need], distribution: Distribution) -> str:
    """The command that installs what these needs lack; empty when no package does."""
    names: list[str] = []
    for need in needs:
        if need.kernel and need.packages and not distribution.own_kernel:
            names += _FOREIGN_KERNEL.get(distribution.family, ())
        names += need.packages.get(distribution.family, ())
    # Modules for a kernel that no package knows cannot be had from one.
    usable = [name for name in names if distribution.own_kernel or "{release}" not in name]
    known = [name.format(release=distribution.release, arch=distribution.arch) for name in dict.fromkeys(usable)]
    return f"{_INSTALLERS[distribution.family]} {' '.join(known)}" if known else ""


def advice_of(needs: list[Need], distribution: Distribution) -> tuple[str, ...]:
    """Further things to do or to know."""
    kernel = any(need.kernel and need.packages for need in needs)
    parts = [need.advice[distribution.family] for need in needs if distribution.family in need.advice]
    if kernel and not distribution.own_kernel and distribution.family in _FOREIGN_KERNEL:
        parts.append(_BOOT)
    if distribution.family not in _INSTALLERS and any(need.packages for need in needs):
        parts.append("install it with the package manager of this distribution")
    if kernel:
        parts.append(_LAB)
    return tuple(dict.fromkeys(parts))
