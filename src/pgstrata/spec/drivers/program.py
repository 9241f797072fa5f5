"""Any program as a load: its commands, and where its result stands in what it prints."""

from __future__ import annotations

import re
import shlex
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, field_validator, model_validator

from pgstrata.spec.drivers.kind import Driver
from pgstrata.spec.model import Model

PLACES = ("scale", "clients", "seconds", "seed", "host", "port", "user", "database", "folder", "passfile")
"""Names that {NAME} in a command can stand for."""
_PLACE = re.compile(r"\{(\w+)\}")


def _as_words(value: Any) -> Any:
    return tuple(shlex.split(value)) if isinstance(value, str) else value


Words = Annotated[
    tuple[str, ...],
    BeforeValidator(_as_words),
    Field(min_length=1),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}),
]
"""A command: a list, or a text that is cut as a shell would, without one."""


class Result(Model):
    """Place of a run's figure in standard output: one of `json_path`, `json_lines`, `csv` and `last_line`."""

    metric: str = Field(
        pattern="^[a-z][a-z0-9_]{0,60}$",
        description="what the figure is called; a cost is named so (`latency_ms`), anything else is better when higher",
    )
    json_path: str | None = Field(None, description="path in one JSON document: results.0.throughput")
    json_lines: str | None = Field(None, description="path in a JSON object a line, one a second: the mean counts")
    csv: str | None = Field(None, description="column of a table with a header, a row a second: the mean counts")
    last_line: bool = Field(False, description="the last number of the last line")

    @model_validator(mode="after")
    def _one_form(self) -> Result:
        if sum(map(bool, (self.json_path, self.json_lines, self.csv, self.last_line))) != 1:
            raise ValueError("a result takes one of json_path, json_lines, csv and last_line")
        return self


class Program(Driver):
    """A program on the host, run as the server's unprivileged user; commands may hold {scale}, {clients}, {seconds},
    {seed}, {host}, {port}, {user}, {database}, {passfile} and {folder}, and libpq's PG* variables are set.
    `driver: {run: ...}` without `kind` means it."""

    kind: Literal["program"] = "program"
    run: Words = Field(description="the run; it ends by itself after {seconds}")
    result: Result = Field(description="where its figure stands")
    prepare: Words | None = Field(None, description="loads the data into an empty database")
    check: Words | None = Field(None, description="checks the data after load and runs; any exit code but 0 fails")
    tcp: bool = Field(False, description="connect by 127.0.0.1 and a password file ({passfile}, PGPASSFILE)")
    bytes_per_scale: ClassVar[int] = 2**30
    usual_scales: ClassVar[tuple[int, ...]] = (1,)
    implied_by: ClassVar[str] = "run"

    @property
    def primary(self) -> str:
        """The declared metric."""
        return self.result.metric

    @property
    def over_tcp(self) -> bool:
        """True if it was declared so."""
        return self.tcp

    @property
    def data(self) -> str:
        return f"program {shlex.join(self.prepare or ())}"

    @field_validator("run", "prepare", "check")
    @classmethod
    def _known_places(cls, words: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for name in (name for word in words or () for name in _PLACE.findall(word)):
            if name not in PLACES:
                raise ValueError(f"{{{name}}} stands for nothing: {', '.join(PLACES)} are known")
        return words


def fill_places(words: tuple[str, ...], values: dict[str, str]) -> tuple[str, ...]:
    """Return a command with the values in place of {NAME}; any other brace stays."""
    return tuple(_PLACE.sub(lambda place: values.get(place[1], place[0]), word) for word in words)
