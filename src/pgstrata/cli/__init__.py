"""The command line: one module for each verb, or for two that share their code; heavy imports inside the verbs.

Every module has `register(app)`, called by `main`. It may import every package; nothing imports it. At module level a
verb imports `typer`, `errors` and `cli.output` alone, so that `--help` is immediate.
"""
