"""Models of media: those of strata-disk, and those in the user's own files.

strata-disk itself checks the parameters of a model and their ranges before the first run.
"""

from __future__ import annotations

import tomllib
from typing import Literal

from pydantic import Field, ValidationError, WithJsonSchema

from pgstrata.spec.file.nearest import render_nearest
from pgstrata.spec.model import Model

MODELS = ("hdd-7200", "hdd-5400", "sata-ssd", "sata-ssd-plp", "nvme", "nvme-consumer", "cloud-volume")
KEEP_CACHE = frozenset({"sata-ssd-plp", "nvme", "cloud-volume"})
"""Models whose `volatile_cache` is false."""
MODEL_SCHEMA = WithJsonSchema({"anyOf": [{"enum": list(MODELS)}, {"type": "string", "pattern": r"/|\.toml$"}]})
"""A model's name or file, for editors."""
CHOICE = f"{', '.join(MODELS)}, or a file with one of your own (./mine.toml)"
DEFINED = "its own text, in TOML: what a file's name becomes when the file is read"
MOST_CHARACTERS = 100_000
NAME = r"[A-Za-z][A-Za-z0-9._-]{0,39}"


class UnknownModel(ValueError):
    """Neither a model's name nor a file's; `hint` lists the valid ones."""

    def __init__(self, text: str, hint: str) -> None:
        super().__init__(text)
        self.hint = hint


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
    """Raise UnknownModel or ValueError unless the model is one of strata-disk, one of `others`, a file, or valid in
    `definition`."""
    if definition is not None:
        found = parse_media_model(definition)
        if found.name != model:
            raise ValueError(f"the definition of model {model!r} is of one called {found.name!r}")
    elif model not in (*MODELS, *others) and not is_model_file(model):
        near = render_nearest(model, (*MODELS, *others))
        raise UnknownModel(f"unknown model {model!r}", f"{near}, or a file: ./mine.toml")


def keeps_cache(model: str, definition: str | None) -> bool:
    """True if a power cut leaves what the disk's cache holds; a file that was not read yet promises nothing."""
    return model in KEEP_CACHE if definition is None else not parse_media_model(definition).volatile_cache


def defined_parameters(definition: str | None) -> dict[str, float] | None:
    """The parameters of a user's own model; None for a model of strata-disk."""
    if definition is None:
        return None
    return {name: parameter.value for name, parameter in parse_media_model(definition).parameters.items()}
