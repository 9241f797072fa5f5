"""The PostgreSQL server of a trial: binaries, cluster, settings. Imports `errors`, `spec`, `host`."""
