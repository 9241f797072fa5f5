"""pgbench, fio and pg_test_fsync: builders of argv and parsers of what they print. Imports `errors`, `spec`, `host`."""
