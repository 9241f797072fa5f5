"""Shared properties of all models of the specification: frozen, and unknown keys are errors."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, WithJsonSchema

from pgstrata.spec.printable import plain_name
from pgstrata.spec.units import parse_duration_s, parse_fraction, parse_size_bytes


class Refused(ValueError):
    """An invalid value or combination; `hint` names a valid one."""

    def __init__(self, text: str, hint: str) -> None:
        super().__init__(text)
        self.hint = hint


class Model(BaseModel):
    """Base of all frozen models of the specification."""

    model_config = ConfigDict(frozen=True, extra="forbid", str_strip_whitespace=True, allow_inf_nan=False)


SizeBytes = Annotated[int, BeforeValidator(parse_size_bytes), WithJsonSchema({"type": ["integer", "string"]})]
"""A number of bytes; written as `8k`, `4GiB`, `512 MB` or a plain integer."""

DurationS = Annotated[float, BeforeValidator(parse_duration_s), WithJsonSchema({"type": ["number", "string"]})]
"""A number of seconds; written as `90`, `90s`, `15min`, `1h`."""

Fraction = Annotated[float, BeforeValidator(parse_fraction), WithJsonSchema({"type": ["number", "string"]})]
"""A share; written as `2%` or `0.02`."""

Name = Annotated[str, AfterValidator(plain_name)]
"""A name in texts, tables and files: one line without control characters."""
