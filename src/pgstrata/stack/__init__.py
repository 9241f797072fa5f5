"""Plan, build, attest and undo stacks on a host.

Functions named `plan_` are pure and return steps. `build` runs them and registers every undo in the host's journal
before the step is applied. `attest` reads back from the kernel what was built. Imports `errors`, `spec`, `host`.
"""

from pgstrata.stack.registry import register_kinds

register_kinds()
