"""Every documented option of the tools is accepted by its own name or refused with a reason of its own.

`fixtures/documented_options.txt` lists them, one a line: the layer, and the option as people write it.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from documented import ACCEPTED, ROWS, notation, parsed
from pgstrata.errors import UsageError
from pgstrata.spec.file.campaign import load_campaign
from pgstrata.spec.file.nearest import nearest
from pgstrata.spec.layers.btrfs import Btrfs
from pgstrata.spec.layers.kind import BlockLayer, Filesystem
from pgstrata.spec.layers.zfs import Zfs
from pgstrata.spec.notation.options import option_fields
from pgstrata.spec.notation.stack import parse_stack, render_stack
from pgstrata.spec.stack import Stack
from pgstrata.stack.mounts import MountCheck
from pgstrata.stack.plan import PlanContext, StackPlan, plan_stack

CONTEXT = PlanContext("b0-t1", "/scratch", 4 * 2**30, owner="postgres", mount_root="/run")
ACCEPTED_AT_LEAST = {
    "ext4": 95,
    "xfs": 60,
    "btrfs": 60,
    "zfs": 60,
    "nfs": 50,
    "tmpfs": 14,
    "md(raid10,4)": 12,
    "luks": 18,
    "zvol": 19,
}
"""So that options do not wander into refusals unnoticed."""


@pytest.mark.parametrize("layer", dict(ROWS))
def test_an_option_is_accepted_or_refused_with_a_reason(layer: str) -> None:
    for option in (option for name, option in ROWS if name == layer):
        found = parsed(layer, option)
        if isinstance(found, Stack):
            again = parse_stack(render_stack(found))
            assert again.model_copy(update={"name": found.name}) == found, option
            continue
        refused, _, reason = found.message.partition(" is not taken: ")
        assert refused.startswith(f"{layer.partition('(')[0]} option "), found.message
        assert len(reason.split()) >= 4, found.message
        assert found.hint, option
        assert "did you mean" not in found.hint


def test_most_of_what_people_use_is_accepted() -> None:
    counted = Counter(layer for layer, _ in ACCEPTED)
    assert {layer: counted[layer] >= least for layer, least in ACCEPTED_AT_LEAST.items()} == dict.fromkeys(
        ACCEPTED_AT_LEAST, True
    )


def test_no_option_is_both_taken_and_refused() -> None:
    for kind in (*Filesystem.kinds.values(), *BlockLayer.kinds.values()):
        spelled = {*kind.aliases, *kind.also, *kind.opposites, *option_fields(kind)}
        assert not spelled & set(kind.refused), kind.name()
        assert {*kind.aliases.values(), *kind.also.values()} <= set(kind.model_fields), kind.name()


OPPOSITES = [
    *(("noac", "nosync"), ("sync", "async"), ("hard", "nohard"), ("soft", "hard"), ("barriers", "nobarrier")),
    *(("atime", "noatime"), ("nodatacow", "datacow"), ("dealloc", "nodelalloc"), ("inode32", "inode64")),
]


@pytest.mark.parametrize(("typed", "opposite"), OPPOSITES)
def test_the_opposite_is_never_proposed(typed: str, opposite: str) -> None:
    assert nearest(typed, [opposite]) is None


@pytest.mark.parametrize(
    ("typed", "known"), [("noatme", "noatime"), ("nobarier", "nobarrier"), ("recordsiz", "recordsize")]
)
def test_a_slip_is_still_recognised(typed: str, known: str) -> None:
    assert nearest(typed, [known]) == known


def test_a_campaign_file_gives_the_same_reasons(tmp_path: Path) -> None:
    def problem(option: str, kind: str = "ext4") -> str:
        path = tmp_path / "campaign.yaml"
        stacks = f"a: {{data: {{fs: {{kind: {kind}, {option}}}}}}}\n  b: xfs\n"
        path.write_text(f"name: options\nstacks:\n  {stacks}")
        with pytest.raises(UsageError) as caught:
            load_campaign(path)
        return f"{caught.value.message} {caught.value.hint}"

    assert "journal_ioprio is not taken: the kernel does not show it" in problem("journal_ioprio: 3")
    assert "write commit_s" in problem("commit: 30")
    assert "write ac: off" in problem("noac: true", "nfs")
    assert "write hard: off" in problem("soft: true", "nfs")


def test_yaml_reads_off_as_a_truth_value() -> None:
    zfs = Zfs.model_validate({"compression": False, "checksum": False, "dedup": True, "xattr": "sa"})
    assert (zfs.compression, zfs.checksum, zfs.dedup, zfs.xattr) == ("off", "off", "on", "sa")
    btrfs = Btrfs.model_validate({"compress": False, "discard": False})
    assert (btrfs.compress, btrfs.discard) == ("no", "off")


# ------------------------------------------------------------- what the kernel shows of each mount option

SHOWN = {
    "barrier=0": "nobarrier", "dioread_nolock": "", "dioread_lock": "nodioread_nolock",
    "auto_da_alloc": "", "strictatime": "",
    "compress=zstd": "compress=zstd:3", "compress=zlib": "compress=zlib:3", "compress=no": "",
    "compress-force=zstd": "compress-force=zstd:3", "compress-force=zlib": "compress-force=zlib:3",
    "nodatacow": "nodatasum,nodatacow", "discard=sync": "discard", "nodiscard": "",
    "space_cache=v1": "space_cache", "nossd": "",
    "lookupcache=positive": "lookupcache=pos", "lookupcache=all": "", "write=lazy": "", "huge=never": "",
    "errors=continue": "", "data_err=ignore": "", "data=ordered": "", "retry=0": "",
}  # fmt: skip
"""Words that the kernel shows in place of an option; empty where it shows nothing."""
_BYTES = re.compile(r"^(allocsize|logbsize|size)=(\d+)")


def shown_by_kernel(words: list[str]) -> tuple[str, ...]:
    """The options of mountinfo after a mount with these words."""
    shown = ["rw", *(["relatime"] if not {"noatime", "strictatime"} & set(words) else [])]
    for word in words:
        text = SHOWN.get(word, word)
        text = _BYTES.sub(lambda m: f"{m[1]}={int(m[2]) // 1024}k", text)
        name, _, seconds = text.partition("=")
        times = ("acregmin", "acregmax", "acdirmin", "acdirmax")
        shown += [f"{t}={seconds}" for t in times] if name == "actimeo" else text.split(",") if text else []
    return tuple(shown)


def mounts(plan: StackPlan) -> list[tuple[MountCheck, list[str]]]:
    found = []
    for check in (c for c in plan.checks if isinstance(c, MountCheck)):
        for command in (c for step in plan.steps for c in step.commands):
            argv = [str(word) for word in command.argv]
            if argv[0] == "mount" and argv[-1] == check.target:
                found.append((check, [v for k, v in pairwise(argv) if k == "--options"]))
    return found


@pytest.mark.parametrize("layer", dict(ACCEPTED))
def test_what_is_accepted_is_planned_and_its_mount_option_is_checked(layer: str) -> None:
    plain = plan_stack(parse_stack(f"{layer}/ext4" if layer.partition("(")[0] in BlockLayer.kinds else layer), CONTEXT)
    usual = {word for _, words in mounts(plain) for word in words}
    for option in (option for name, option in ACCEPTED if name == layer):
        plan = plan_stack(parse_stack(notation(layer, option)), CONTEXT)
        for check, words in mounts(plan):
            assert [(e.what, e.actual(shown_by_kernel(words))) for e in check.expectations] == [
                (e.what, e.wanted) for e in check.expectations
            ], option
            for word in (w for w in words if w not in usual and SHOWN.get(w, w)):
                without = shown_by_kernel([w for w in words if w != word])
                wrong = [e.what for e in check.expectations if e.actual(without) != e.wanted]
                assert wrong or _is_a_default(check, word), f"{option}: {word} is not checked"


def _is_a_default(check: MountCheck, word: str) -> bool:
    """True if the option names the kernel's default, which is shown neither with nor without it."""
    name, _, value = word.partition("=")
    return any(e.what == name and e.wanted == e.otherwise == value for e in check.expectations)
