"""Groups of verbs whose help has the whole first sentence of each verb."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

LONGEST_SENTENCE = 1000


class Group(TyperGroup):
    """Sentences are wrapped, where the library would cut them off in the middle."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, command.get_short_help_str(LONGEST_SENTENCE)) for name, command in commands if command]
            )
