"""KVM or emulation: found out by booting, because /dev/kvm may be there and still not run a stock kernel."""

from __future__ import annotations

import json
from dataclasses import dataclass

from pgstrata.host.protocol import Command, CommandFailed, Host
from pgstrata.lab.image import Image
from pgstrata.lab.initrd import READY_LINE
from pgstrata.lab.qemu import PROGRAM, Accelerator, render_probe

PROBE_TIMEOUT_S = 12.0
"""With KVM the kernel is up within 2 seconds."""


@dataclass(frozen=True)
class Choice:
    """The accelerator that works here; `reason` says why it is not KVM."""

    accelerator: Accelerator
    reason: str = ""

    @property
    def notice(self) -> str:
        """What the user should know, empty with KVM."""
        if self.accelerator == "kvm":
            return ""
        return f"the lab runs in software emulation ({self.reason}): its results are functional only"


def choose_accelerator(host: Host, image: Image, directory: str) -> Choice:
    """Boots the image's kernel under KVM with a time limit; remembers the answer for this boot of the host."""
    if host.status("/dev/kvm") is None:
        return Choice("tcg", "there is no /dev/kvm")
    boot = host.read_text("/proc/sys/kernel/random/boot_id").strip()
    note = f"{directory}/accelerator.json"
    known = json.loads(host.read_text(note)) if host.status(note) is not None else {}
    if known.get("boot") == boot and known.get("image") == image.key:
        return Choice(known["accelerator"], known["reason"])
    choice = _probe(host, image, f"{directory}/probe-console.log")
    said = {"boot": boot, "image": image.key, "accelerator": choice.accelerator, "reason": choice.reason}
    host.write_text(note, json.dumps(said))
    return choice


def _first_reason(stderr: str) -> str:
    """The first thing that QEMU complained of, without its own name."""
    lines = [line for line in stderr.splitlines() if line.strip()]
    return lines[0].removeprefix(f"{PROGRAM}: ").removeprefix("error: ") if lines else ""


def _probe(host: Host, image: Image, console: str) -> Choice:
    probe = Command(render_probe(image.kernel, image.initrd, console), timeout_s=PROBE_TIMEOUT_S)
    said = ""
    try:
        ended = host.run(probe, check=False)
        said = _first_reason(ended.stderr)
    except CommandFailed as error:
        if not error.timed_out:
            raise
        said = f"a kernel under KVM was not up after {PROBE_TIMEOUT_S:.0f} s"
    booted = host.status(console) is not None and READY_LINE in host.read_text(console)
    host.remove(console)
    return Choice("kvm") if booted else Choice("tcg", said or "a kernel under KVM ended without a word")
