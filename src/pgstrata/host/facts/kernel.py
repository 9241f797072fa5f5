"""The kernel: its release, and the boot parameters that matter to speed."""

from __future__ import annotations

from pgstrata.host.facts.source import read_file
from pgstrata.host.protocol import Host


def read_kernel_release(host: Host) -> str | None:
    return read_file(host, "/proc/sys/kernel/osrelease")


SPEED_PARAMETERS = frozenset({
    "mitigations", "isolcpus", "nohz_full", "rcu_nocbs", "elevator", "transparent_hugepage", "hugepages", "idle",
    "intel_idle.max_cstate", "processor.max_cstate", "intel_pstate", "amd_pstate", "scsi_mod.use_blk_mq", "nosmt",
    "clocksource", "tsc", "preempt", "iommu", "intel_iommu", "amd_iommu", "nvme_core.default_ps_max_latency_us",
})  # fmt: skip
"""Only these are told: the rest of a command line may say where a machine boots from, and with which secrets."""


def parse_command_line(text: str) -> str:
    """The parameters that matter to speed, as they were given."""
    return " ".join(word for word in text.split() if word.partition("=")[0] in SPEED_PARAMETERS)


def read_kernel_parameters(host: Host) -> str | None:
    return parse_command_line(read_file(host, "/proc/cmdline") or "") or None
