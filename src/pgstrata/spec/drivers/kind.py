"""The requested half of a load: what a campaign can ask of the program that runs it.

The other half, which plans commands and reads results, is a `workload.driver.LoadDriver`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from pgstrata.spec.layers.kind import Kind

if TYPE_CHECKING:
    from pgstrata.spec.workload import Workload

COMMON_KEYS = frozenset({"driver", "client", "script", "scale", "clients", "duration", "durations", "warmup", "freeze"})
"""Keys of `workload` that mean the same to every driver."""


class Driver(Kind):
    """Base of all loads. A field of this type takes any driver that is registered."""

    kinds: ClassVar[dict[str, type[Any]]] = {}
    bytes_per_scale: ClassVar[int] = 0
    """Upper estimate of the data of one unit of scale; 0 for data without a scale."""
    takes_turns: ClassVar[bool] = False
    """True if stacks can take turns of a few seconds, whose transactions are added up."""
    implied_by: ClassVar[str] = ""
    """The key by which a mapping without `kind` is this driver."""
    scripts: ClassVar[tuple[str, ...]] = ()
    """Names of `script` that choose this driver; the first is the default."""
    figures: ClassVar[tuple[str, ...]] = ()
    """Further metrics that every run of it has, besides `primary` and those of any run."""
    usual_scales: ClassVar[tuple[int, ...]] = ()
    """Scales among which `quick` chooses, the first is the default; those of pgbench where there are none."""
    reads_scripts: ClassVar[bool] = False
    """True if a script is a file of the user's or one of pgbench's; else it is a name that the driver knows."""
    files: ClassVar[tuple[str, ...]] = ()
    """Its fields that are paths on this machine, from the folder of the campaign."""
    keys: ClassVar[frozenset[str]] = frozenset()
    """Keys of `workload` that this driver takes besides `COMMON_KEYS`."""

    @classmethod
    def complete(cls, asked: Any) -> Any:
        """Return the keys of a workload with the driver that its script means, and with this driver's first script and
        usual scale."""
        if not isinstance(asked, dict):
            return asked
        script, driver = asked.get("script"), asked.get("driver")
        single = script[0] if isinstance(script, list | tuple) and len(script) == 1 else script
        if driver is None:
            named = (kind for kind, model in cls.kinds.items() if isinstance(single, str) and single in model.scripts)
            driver = {"kind": kind} if (kind := next(named, None)) else None
        if isinstance(driver, dict) and "kind" not in driver:
            implied = (name for name, model in cls.kinds.items() if model.implied_by in driver)
            driver = {"kind": next(implied, ""), **driver}
        kind = driver.get("kind") if isinstance(driver, dict) else driver
        model = cls.kinds.get(kind) if isinstance(kind, str) else None
        usual = {"driver": driver}
        if model is not None:
            usual |= {"script": (*model.scripts, None)[0], "scale": (*model.usual_scales, None)[0]}
        return {
            **asked,
            **{key: value for key, value in usual.items() if value and (key == "driver" or asked.get(key) is None)},
        }

    @property
    def primary(self) -> str:
        """The metric that verdicts are about unless the campaign names another."""
        return "tps"

    @property
    def over_tcp(self) -> bool:
        """True if the program cannot use the server's socket: it gets an address, a port and a password file."""
        return False

    @property
    def data(self) -> str:
        """Return a text that differs wherever the data that it loads differs, apart from its scale."""
        return self.kind

    def problems(self, workload: Workload) -> Iterator[str]:
        """Yield what this driver cannot do with a workload."""
        for key in sorted(workload.model_fields_set - COMMON_KEYS - self.keys):
            if getattr(workload, key) != type(workload).model_fields[key].get_default(call_default_factory=True):
                yield f"{key} means nothing to the driver {self.kind}"
