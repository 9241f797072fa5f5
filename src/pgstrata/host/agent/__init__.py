"""The operations of a host, on the machine they happen on.

Standard library alone (Python 3.9 and later) and nothing of ours but this package, because its source is also sent
over ssh and run there. `operations.Agent` has the operations by plain values; `program` speaks them as JSON lines
(`serve`), or stands by a background program until it ends and notes its exit code in a file (`keep`), so that the
program survives a lost connection.
"""
