"""TPC-C as scripts of pgbench: SQL that makes the data, the five transactions, and the conditions that must hold."""
