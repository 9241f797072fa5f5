"""Modelled media: disks with the timing of real ones, made by strata-disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from pgstrata.spec.layers.kind import Device, Look
from pgstrata.spec.media_model import CHOICE, DEFINED, MODEL_SCHEMA, MODELS, check_model, keeps_cache
from pgstrata.spec.model import SizeBytes
from pgstrata.spec.notation.term import render_call
from pgstrata.spec.units import render_size_exact

UNTIMED = "none"
"""A disk in memory that takes no time of its own, with a cache that a power cut empties."""


Timed = Literal["always", "runs"]
"""When requests take the time of the medium: always, or in warm-ups and runs alone."""


def describe_modelled(model: str, stretch: float, timed: Timed) -> str:
    """Return the words of a table for what lies on such a disk."""
    stretched = f", times stretched {stretch:g}-fold" if stretch != 1 else ""
    return f"modelled medium {model}{stretched}" + (", timed in runs alone" if timed == "runs" else "")


class MediaDevice(Device):
    """Disks with the timing of a model, in memory, attached as loop devices with direct I/O."""

    kind: Literal["media"] = "media"

    capability: ClassVar[str] = "block.media"
    short_field: ClassVar[str] = "model"
    in_memory: ClassVar[bool] = True
    known_as: ClassVar[Mapping[str, str]] = {
        **{model: f"media({model})" for model in MODELS},
        **dict.fromkeys(("ssd", "sata"), "media(sata-ssd)"),
        **dict.fromkeys(("hdd", "sas"), "media(hdd-7200)"),
        **dict.fromkeys(("ebs", "gp2", "gp3", "io1", "io2", "st1", "sc1", "cloud"), "media(cloud-volume)"),
    }

    definition: str | None = Field(None, description=DEFINED)
    model: Annotated[str, MODEL_SCHEMA] = Field(
        description=f"the model of its timing: {CHOICE}; none: no time of its own"
    )
    count: int = Field(1, ge=1, le=64, description="how many; by default what the layout needs")
    size: SizeBytes | None = Field(None, description="size of each disk; by default enough for the scale")
    stretch: float = Field(1.0, ge=1.0, le=1000.0, description="all times of the model are multiplied by it")
    timed: Timed = Field(
        "always", description="runs: only warm-ups and runs take the time of the medium, preparing them takes none"
    )
    recorded: bool = Field(False, description="log every write and flush, as crash trials do")

    @field_validator("model")
    @classmethod
    def _known(cls, model: str, info: ValidationInfo) -> str:
        check_model(model, info.data.get("definition"), (UNTIMED,))
        return model

    @model_validator(mode="after")
    def _switched_for_runs_alone(self) -> MediaDevice:
        if self.timed == "runs" and (self.recorded or self.model == UNTIMED):
            why = "crash trials have no runs" if self.recorded else "model none has no times"
            raise ValueError(f"timed: runs does not go with this disk: {why}")
        return self

    @property
    def each_bytes(self) -> int | None:
        return self.size

    def lies_on(self, scratch: str, look: Look) -> str:
        return "disk in memory" if self.model == UNTIMED else describe_modelled(self.model, self.stretch, self.timed)

    @property
    def keeps_cache(self) -> bool:
        return keeps_cache(self.model, self.definition)

    @property
    def says_more(self) -> bool:
        return True

    @classmethod
    def parse_words(cls, words: Sequence[str], text: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for word in words:
            name, given, value = word.partition("=")
            if given and name.isidentifier():
                found[name] = value
            else:
                found["count" if word.isdigit() else "model"] = word
        return found

    def render(self) -> str:
        words = [self.model, *([str(self.count)] if self.count > 1 else [])]
        words += [f"size={render_size_exact(self.size)}"] if self.size is not None else []
        words += [f"stretch={self.stretch:g}"] if self.stretch != 1 else []
        words += [f"timed={self.timed}"] if self.timed != "always" else []
        words += ["recorded=true"] if self.recorded else []
        return render_call(self.kind, words)
