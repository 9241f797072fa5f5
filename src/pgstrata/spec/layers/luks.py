"""LUKS: each device below is encrypted by dm-crypt with a key of the trial. Options: cryptsetup-luksFormat(8),
cryptsetup-open(8)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from pgstrata.spec.layers.kind import BlockLayer
from pgstrata.spec.model import SizeBytes
from pgstrata.spec.notation.options import LEAVE_OUT, YOURSELF, Refusal, refuse, spelled

_REFUSED: Mapping[str, Refusal] = {
    **refuse("key-file --key-file -d keyfile-offset --keyfile-offset keyfile-size --keyfile-size -l key-slot "
             "--key-slot -S volume-key-file --volume-key-file master-key-file --master-key-file use-random "
             "--use-random use-urandom --use-urandom verify-passphrase --verify-passphrase -y force-password "
             "--force-password timeout --timeout -t tries --tries -T token-id --token-id token-only --token-only "
             "token-type --token-type",
             "the key is made for the trial, lies in memory, and is wiped with it", LEAVE_OUT),
    **refuse("hash --hash -h iter-time --iter-time -i pbkdf --pbkdf pbkdf-memory --pbkdf-memory pbkdf-parallel "
             "--pbkdf-parallel pbkdf-force-iterations --pbkdf-force-iterations keyslot-cipher --keyslot-cipher "
             "keyslot-key-size --keyslot-key-size",
             "it is about how the key is kept and unlocked, once, and does not change how data is written", LEAVE_OUT),
    **refuse("integrity --integrity -I integrity-no-wipe --integrity-no-wipe integrity-legacy-padding "
             "--integrity-legacy-padding integrity-no-journal --integrity-no-journal",
             "pgstrata does not build dm-integrity"),
    **refuse("header --header offset --offset -o align-payload --align-payload luks2-metadata-size "
             "--luks2-metadata-size luks2-keyslots-size --luks2-keyslots-size",
             "the header lies before the data, where cryptsetup puts it", YOURSELF),
    **refuse("type=plain type=tcrypt type=loopaes type=bitlk type=fvault2 iv-large-sectors --iv-large-sectors skip "
             "--skip -p", "it is of another format than LUKS"),
    **refuse("type --type -M", "the format stands in parentheses", "write luks(luks1)/ext4"),
    **refuse("size --size -b device-size --device-size", "the mapping takes the device as a whole",
             "give the device a size: loop(size=20G)/luks/ext4"),
    **refuse("readonly --readonly -r shared --shared refresh --refresh persistent --persistent",
             "the mapping is opened once, to be written to", LEAVE_OUT),
    **refuse("label --label subsystem --subsystem uuid --uuid batch-mode --batch-mode -q debug --debug disable-keyring "
             "--disable-keyring disable-locks --disable-locks progress-frequency --progress-frequency progress-json "
             "--progress-json test-passphrase --test-passphrase unbound --unbound serialize-memory-hard-pbkdf "
             "--serialize-memory-hard-pbkdf disable-external-tokens --disable-external-tokens help --help usage "
             "--usage version --version",
             "it is about how cryptsetup runs or what the device is called, and pgstrata decides that", LEAVE_OUT),
}  # fmt: skip

_SECTORS = (512, 1024, 2048, 4096)


class Luks(BlockLayer):
    """LUKS: a mapping of dm-crypt over each device below."""

    kind: Literal["luks"] = "luks"

    gives: ClassVar[str] = "mapping"
    keeps_count: ClassVar[bool] = True
    assembles: ClassVar[bool] = True
    known_as: ClassVar[Mapping[str, str]] = dict.fromkeys(("dm-crypt", "dmcrypt", "cryptsetup", "luks2"), "luks")
    also: ClassVar[Mapping[str, str]] = spelled(
        cipher="-c --cipher", key_size="-s key-size --key-size", sector_size="sector-size --sector-size",
        no_read_workqueue="perf-no_read_workqueue --perf-no_read_workqueue",
        no_write_workqueue="perf-no_write_workqueue --perf-no_write_workqueue",
        same_cpu_crypt="perf-same_cpu_crypt --perf-same_cpu_crypt",
        submit_from_crypt_cpus="perf-submit_from_crypt_cpus --perf-submit_from_crypt_cpus",
        discards="discard allow-discards --allow-discards",
    )  # fmt: skip
    refused: ClassVar[Mapping[str, Refusal]] = _REFUSED
    not_options: ClassVar[frozenset[str]] = frozenset({"format"})
    layout_field: ClassVar[str] = "format"

    format: Literal["luks2", "luks1"] = Field("luks2", description="version of the header")
    cipher: str | None = Field(
        None,
        pattern=r"^[a-z0-9_()]+(-[a-z0-9_():]+)*$",
        description="as dm-crypt names it; cryptsetup takes aes-xts-plain64",
    )
    key_size: int | None = Field(
        None, ge=64, le=1024, multiple_of=8, description="bits of the key of the data; cryptsetup takes 512 with xts"
    )
    sector_size: SizeBytes | None = Field(
        None, description="bytes that are encrypted as one; by default cryptsetup asks the device"
    )
    discards: bool = Field(False, description="pass discards on to the device, which shows where it is empty")
    no_read_workqueue: bool = Field(False, description="decrypt where the read completes")
    no_write_workqueue: bool = Field(False, description="encrypt where the write is submitted")
    same_cpu_crypt: bool = Field(False, description="encrypt on the processor that submitted")
    submit_from_crypt_cpus: bool = Field(False, description="write from the threads that encrypt, unsorted")
    known_key: bool = Field(
        False, description="a key that is the same everywhere and no secret: states of crash trials are opened later"
    )

    @model_validator(mode="after")
    def _coherent(self) -> Luks:
        if self.sector_size not in (None, *_SECTORS):
            raise ValueError(f"sector_size {self.sector_size} is none of {', '.join(map(str, _SECTORS))}")
        if self.format == "luks1" and self.sector_size not in (None, 512):
            raise ValueError("luks1 has sectors of 512 bytes: leave sector_size out, or take luks2")
        return self

    def on_recorded(self) -> Luks:
        """With a known key: what is recorded is a made-up ledger, and its states are opened when the trial is over."""
        return self.model_copy(update={"known_key": True})

    def copies(self, devices: int) -> float:
        return 1.0
