"""Content of the lab image: a Debian release, its packages, the units that start, the files that are added."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field

from pgstrata.lab import initrd

TARGET_UNIT = "pgstrata-lab.target"

_TARGET = """[Unit]
Description=A lab machine of pgstrata: reachable over ssh, nothing else
Requires=basic.target
Wants=ssh.service
After=basic.target ssh.service
AllowIsolate=yes
"""

_SSHD = """PermitRootLogin prohibit-password
PasswordAuthentication no
UsePAM no
UseDNS no
PrintMotd no
MaxSessions 64
"""

POSTGRES = "/usr/lib/postgresql/15/bin"
SERVER_USER = "pgstrata"
"""Whom `postgres.user` lets servers run as."""
GOLDEN = "/var/lib/pgstrata-golden"
"""Folder of the loaded cluster, in the layout of `postgres.golden`."""

PACKAGES = (
    "linux-image-cloud-amd64",
    *("systemd-sysv", "udev", "kmod", "procps", "iproute2", "netbase", "openssh-server", "python3"),
    *("postgresql-15", "fio", "busybox-static"),
    *("lvm2", "thin-provisioning-tools", "cryptsetup-bin", "mdadm", "nfs-kernel-server", "nfs-common"),
    *("e2fsprogs", "xfsprogs", "btrfs-progs", "zfsutils-linux"),
)

MODULE_PACKAGES = ("linux-headers-cloud-amd64", "zfs-dkms", "kmod")
"""Installed in a second tree, which holds the compiler: installing them builds the zfs modules natively."""

MASKED_UNITS = (
    # waits for the last device to be announced, 17 s in emulation, for the sake of pools that a fresh machine lacks
    "systemd-udev-settle.service",
    *(
        "zfs-import-cache.service",
        "zfs-import-scan.service",
        "zfs-mount.service",
        "zfs-share.service",
        "zfs-zed.service",
    ),
    *("zfs-load-module.service", "zfs-volume-wait.service"),
    *("mdmonitor.service", "mdmonitor-oneshot.timer", "mdcheck_start.timer", "mdcheck_continue.timer"),
    *("lvm2-monitor.service", "blk-availability.service"),
    *("systemd-binfmt.service", "systemd-pstore.service", "systemd-firstboot.service", "systemd-timesyncd.service"),
    *("systemd-journal-flush.service", "systemd-update-utmp.service", "systemd-ask-password-console.path"),
    *("systemd-machine-id-commit.service", "systemd-random-seed.service", "systemd-boot-system-token.service"),
    *("nfs-blkmap.service", "apparmor.service", "dev-hugepages.mount", "sys-kernel-tracing.mount"),
    *("sys-kernel-debug.mount", "dev-mqueue.mount", "kmod-static-nodes.service"),
    *("apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer", "fstrim.timer"),
)

FILES = (
    (f"etc/systemd/system/{TARGET_UNIT}", _TARGET),
    ("etc/ssh/sshd_config.d/pgstrata.conf", _SSHD),
    ("etc/systemd/journald.conf.d/pgstrata.conf", "[Journal]\nStorage=volatile\n"),
    # an empty file here overrides the rule of the package: both start programs for every event of every block device,
    # to activate volume groups at boot and to name disks by their slot, which a lab machine has no use for
    ("etc/udev/rules.d/69-lvm.rules", ""),
    ("etc/udev/rules.d/69-vdev.rules", ""),
    ("etc/lvm/lvmlocal.conf", "activation {\n    monitoring = 0\n}\n"),
)

KERNEL_ARGUMENTS = (
    "console=ttyS0",
    "quiet",
    "panic=-1",
    "net.ifnames=0",
    "mitigations=off",
    "nokaslr",
    "random.trust_cpu=on",
    # no watchdog over the TSC: in emulation it is the processor that stands still, not the counter
    "tsc=reliable",
    f"systemd.unit={TARGET_UNIT}",
    "systemd.show_status=false",
)

EMULATION_ARGUMENTS = ("clocksource=hpet", "norandmaps", "no5lvl")
"""An emulated machine that is starved while it boots measures its TSC wrong (202 MHz for 2445 were seen) and then lives
in a time of its own. A look at the HPET costs microseconds more, and is always right.

With programs at fixed addresses, what starts and ends (a server, mdadm, zpool) took about three quarters of the time.
Four levels of page tables are one less to go through whenever QEMU has to look an address up."""


@dataclass(frozen=True)
class Recipe:
    """Everything that decides what an image is like, apart from the state of the mirror."""

    release: str = "bookworm"
    packages: tuple[str, ...] = PACKAGES
    module_packages: tuple[str, ...] = MODULE_PACKAGES
    masked_units: tuple[str, ...] = MASKED_UNITS
    files: tuple[tuple[str, str], ...] = FILES
    modules: tuple[str, ...] = initrd.WANTED_MODULES
    init: str = field(default=initrd.INIT, repr=False)
    size_bytes: int = 64 << 30
    """Size of the root filesystem, sparse: loop files of trials go there."""
    golden_scale: int = 1
    """Scale of the loaded cluster that is kept in the image, so that nothing waits for initdb in emulation."""
    version: int = 3
    """Raised when the way of building changes in a manner that the other fields do not show."""

    @property
    def key(self) -> str:
        """Names the image in the cache: the same recipe gives the same key."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]
