"""Variables of pgbench scripts (`pgbench -D NAME=VALUE`)."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pgstrata.errors import UsageError
from pgstrata.spec.checks import Refused
from pgstrata.spec.printable import LONGEST_NAME, plain_name

NAME = re.compile(r"[A-Za-z_0-9]{1,63}")
SCALE = "scale"
"""The variable that a campaign sets with another key."""


def check_variables(variables: Mapping[str, str]) -> None:
    """Raise Refused for a variable that pgbench would refuse, or that a campaign sets with another key."""
    for name, value in variables.items():
        if not NAME.fullmatch(name):
            raise Refused(
                f"{name!r} is not a variable of pgbench: letters, digits and _ alone", "for example first_day"
            )
        if name == SCALE:
            raise Refused(
                "pgbench sets the variable scale itself, to the scale of the cell",
                "for example scale: 50 below workload, or quick --scale 50",
            )
        try:
            plain_name(value or "-")
        except ValueError as error:
            raise Refused(f"variable {name}: {error}", f"one line of at most {LONGEST_NAME} characters") from None


def parse_definitions(texts: list[str]) -> dict[str, str]:
    """Return the variables of `NAME=VALUE` texts; UsageError for another form, or a name that is given twice."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--define {text!r} gives no value", hint=f"--define {name}=VALUE")
        if name in found:
            raise UsageError(f"--define gives {name} twice", hint="give each variable once")
        found[name] = value
    return found
