#!/bin/sh
# Without systemd, pgstrata makes both when it first runs.
set -e
if command -v systemd-sysusers > /dev/null; then systemd-sysusers pgstrata.conf; fi
if command -v systemd-tmpfiles > /dev/null; then systemd-tmpfiles --create pgstrata.conf; fi
