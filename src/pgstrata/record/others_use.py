"""Processor time during a run: what was not the trial's, and what the client's host used."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class OthersUse(BaseModel):
    """Processor time of the server's host that others took during a run, or a turn of it, in seconds."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    used_s: float = Field(ge=0)
    """The time of other programs on the host."""
    stolen_s: float = Field(ge=0)
    """Withheld by the hypervisor."""
    elapsed_s: float = Field(ge=0)
    processors: int = Field(ge=0)

    def __add__(self, other: OthersUse) -> OthersUse:
        return OthersUse(
            used_s=self.used_s + other.used_s,
            stolen_s=self.stolen_s + other.stolen_s,
            elapsed_s=self.elapsed_s + other.elapsed_s,
            processors=max(self.processors, other.processors),
        )


class ClientUse(BaseModel):
    """Work of a client on a host of its own during a run, and the network between."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    host: str
    busy_s: float = Field(ge=0)
    """Processor time of everything on that host."""
    elapsed_s: float = Field(ge=0)
    processors: int = Field(ge=0)
    round_trip_ms: float | None = Field(None, ge=0)
    """Median time of an empty statement before the run."""
