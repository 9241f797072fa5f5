"""Modelled media: disks with the timing of real ones, made by strata-disk; its models, and those in the user's files.

strata-disk itself checks the parameters of a model and their ranges before the first run.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, ValidationError, ValidationInfo, WithJsonSchema, field_validator, model_validator

from pgstrata.spec.file.nearest import render_nearest
from pgstrata.spec.layers.kind import Device, Look
from pgstrata.spec.model import Model, Refused, SizeBytes
from pgstrata.spec.notation.options import render_call
from pgstrata.spec.units import render_size_exact

MODELS = ("hdd-7200", "hdd-5400", "sata-ssd", "sata-ssd-plp", "nvme", "nvme-consumer", "cloud-volume")
KEEP_CACHE = frozenset({"sata-ssd-plp", "nvme", "cloud-volume"})
"""Models whose `volatile_cache` is false."""
MODEL_SCHEMA = WithJsonSchema({"anyOf": [{"enum": list(MODELS)}, {"type": "string", "pattern": r"/|\.toml$"}]})
"""A model's name or file, for editors."""
CHOICE = f"{', '.join(MODELS)}, or a file with one of your own (./mine.toml)"
DEFINED = "its own text, in TOML: what a file's name becomes when the file is read"
MOST_CHARACTERS = 100_000
NAME = r"[A-Za-z][A-Za-z0-9._-]{0,39}"


class Parameter(Model):
    """A number and its source."""

    value: float = Field(strict=True)
    source: str = Field(min_length=1)


class MediaModel(Model):
    """The content of a model file."""

    name: str = Field(pattern=f"^{NAME}$")
    kind: Literal["hdd", "flash", "volume"]
    about: str
    volatile_cache: bool = Field(strict=True)
    block_bytes: Literal[512, 4096] = 512
    unit_bytes: int | None = Field(None, strict=True, ge=512, le=65536)
    """Aligned unit that a power cut does not tear; None: the block."""
    parameters: dict[str, Parameter]


def is_model_file(text: str) -> bool:
    """True for a file's name rather than a model's, by strata-disk's own rule."""
    return "/" in text or text.endswith(".toml")


def parse_media_model(text: str) -> MediaModel:
    """The model of a file; ValueError describes an invalid one."""
    try:
        found = MediaModel.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"is no TOML: {error}") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ValueError(f"is no model: {place}: {first['msg'][:1].lower()}{first['msg'][1:]}") from None
    if found.name in (*MODELS, "none") or is_model_file(found.name):
        raise ValueError(f"has the name {found.name}, which means something else: give it another one")
    return found


def check_model(model: str, definition: str | None, others: tuple[str, ...] = ()) -> None:
    """Raise ValueError unless the model is one of strata-disk, one of `others`, a file, or valid in
    `definition`."""
    if definition is not None:
        found = parse_media_model(definition)
        if found.name != model:
            raise ValueError(f"the definition of model {model!r} is of one called {found.name!r}")
    elif model not in (*MODELS, *others) and not is_model_file(model):
        near = render_nearest(model, (*MODELS, *others))
        raise Refused(f"unknown model {model!r}", f"{near}, or a file: ./mine.toml")


def keeps_cache(model: str, definition: str | None) -> bool:
    """True if a power cut leaves what the disk's cache holds; a file that was not read yet promises nothing."""
    return model in KEEP_CACHE if definition is None else not parse_media_model(definition).volatile_cache


def defined_parameters(definition: str | None) -> dict[str, float] | None:
    """The parameters of a user's own model; None for a model of strata-disk."""
    if definition is None:
        return None
    return {name: parameter.value for name, parameter in parse_media_model(definition).parameters.items()}


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
