"""Plan, build, attest and undo stacks on a host.

`plan_` functions are pure and give steps; `build` runs them, registering every undo in the journal of the host
before the step is applied; `attest` reads back what the kernel says was built. Imports `errors`, `spec`, `host`.
"""

from pgstrata.stack.registry import register_kinds

register_kinds()
