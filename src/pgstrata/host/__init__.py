"""The machine that a stack is built on: run commands, start processes, read and write files.

The only package that starts processes. `agent` holds the operations, in the standard library alone; a local
host calls them directly, a host over ssh runs the same source on the far side. Imports `errors` and `spec`.
"""
