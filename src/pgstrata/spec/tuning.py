"""The screening of a `pgstrata tune` campaign: factors with two levels, and the level of each factor in each stack."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from pgstrata.spec.model import Model, Name

LEAST_FACTORS, MOST_FACTORS = 2, 23


class Factor(Model):
    """One thing that may be set in two ways: the start, and the change that is asked about."""

    name: Name = Field(description="what tables call it")
    levels: tuple[Name, Name] = Field(description="names of the start and of the change")
    changes: tuple[dict[str, Any], dict[str, Any]] = Field(description="what each level changes of the stack")
    source: str = Field("", description="who recommends the change")
    cost: str = Field("", description="what the change may cost")


class Tuning(Model):
    """Factors and design of a screening."""

    base: dict[str, Any] = Field(description="the stack, before any level")
    factors: tuple[Factor, ...] = Field(
        min_length=LEAST_FACTORS, max_length=MOST_FACTORS, description="what may be changed"
    )
    rows: dict[str, tuple[bool, ...]] = Field(
        description="of each stack: true where a factor, in order, has its second level"
    )

    @model_validator(mode="after")
    def _coherent(self) -> Tuning:
        names = [factor.name for factor in self.factors]
        if len(set(names)) != len(names):
            raise ValueError(f"two factors have the same name: {sorted(n for n in names if names.count(n) > 1)[0]}")
        for name, row in self.rows.items():
            if len(row) != len(names):
                raise ValueError(f"row {name!r} has {len(row)} levels of {len(names)} factors")
        return self
