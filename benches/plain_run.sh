#!/usr/bin/env bash
# What people write by hand for each run: make the filesystem, initdb, pgbench -i.
# Usage: plain_run.sh FOLDER BIN SCALE USER [cold]
# Prints what pgbench -i took, in microseconds.
# With `cold` it also does what must come between loading and measuring: drop the caches, restart the server, CHECKPOINT.
set -euo pipefail
folder=$1 bin=$2 scale=$3 user=$4 cold=${5:-}
mount=$folder/mnt socket=$folder/socket
trap 'umount "$mount" 2>/dev/null || true; losetup --detach "$loop" 2>/dev/null || true; rm -f "$folder/disk.img"' EXIT
mkdir -p "$mount" "$socket"
truncate --size=4G "$folder/disk.img"
loop=$(losetup --find --show --direct-io=on "$folder/disk.img")
mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 "$loop"
mount "$loop" "$mount"
install --directory --mode 0700 --owner "$user" "$mount/pgdata"
chown "$user" "$socket"
as() { (cd / && setpriv --reuid "$user" --regid "$user" --clear-groups env LC_ALL=C "$@"); }
as "$bin/initdb" --pgdata "$mount/pgdata" --username postgres --auth trust --encoding UTF8 --locale C >/dev/null
start() { as "$bin/pg_ctl" start --pgdata "$mount/pgdata" --silent --wait --log "$socket/log" -o "-c listen_addresses='' -c unix_socket_directories=$socket"; }
start
began=$EPOCHREALTIME
as "$bin/pgbench" --host "$socket" --username postgres --initialize --quiet --scale "$scale" postgres 2>/dev/null
ended=$EPOCHREALTIME
as "$bin/pg_ctl" stop --pgdata "$mount/pgdata" --silent --wait
if [[ $cold ]]; then
    sync
    echo 3 >/proc/sys/vm/drop_caches
    start
    as "$bin/psql" --host "$socket" --username postgres --quiet --command CHECKPOINT postgres
    as "$bin/pg_ctl" stop --pgdata "$mount/pgdata" --silent --wait
fi
echo $((${ended/./} - ${began/./}))
