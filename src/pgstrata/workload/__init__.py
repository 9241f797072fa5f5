"""pgbench, fio, pg_test_fsync: argv, and parsers of what they print and log. Imports `errors`, `spec`, `host`."""
