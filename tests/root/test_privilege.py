"""A workload is its server's superuser, and so the server's OS user: it never becomes root or reads what is root's."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from campaigning import STATE, run_in_fork, write_campaign
from pgstrata.host.local import LocalHost
from pgstrata.host.protocol import Command, CommandFailed
from pgstrata.postgres.binaries import choose, discover
from pgstrata.postgres.golden import place_golden, save_golden
from pgstrata.postgres.server import Server, ServerDirectories
from pgstrata.postgres.user import readable_installation, run_user
from pgstrata.spec.expand import block_trials
from pgstrata.spec.file.campaign import load_campaign
from pgstrata.spec.stack import Postgres
from pgstrata.stack.plan import PlanContext
from pgstrata.stack.undo import RemovePath
from pgstrata.stack.undoing import run_undo
from pgstrata.trial.context import trial_directory
from pgstrata.trial.survey.host_survey import site_token

FAST = {"shared_buffers": "16MB", "max_connections": "20", "fsync": "off", "max_wal_size": "64MB"}


@pytest.fixture
def secret(folder: Path) -> Path:
    """A file of root's that nobody else may read."""
    file = folder / "secret"
    file.write_text(secrets.token_hex(16))
    file.chmod(0o600)
    return file


@pytest.fixture
def own(folder: Path) -> Iterator[Server]:
    local = LocalHost()
    user = run_user(local)
    installation = readable_installation(local, choose(discover(local), Postgres()), user)
    made = Server(local, installation, user, ServerDirectories(f"{folder}/data"), marker=folder.name)
    yield made
    local.stop_marked(folder.name, 10)
    local.remove(made.run_directory)


def ready(server: Server) -> Server:
    server.init(options=("--no-sync",))
    server.configure(FAST)
    server.start()
    return server


def run_program(server: Server, script: str) -> None:
    """As a hostile workload does it; the program reads its input, or the server finds the pipe broken."""
    server.execute(f"COPY (SELECT 1) TO PROGRAM $p$cat >/dev/null; {script}$p$;")


def identity(file: Path) -> tuple[object, ...]:
    status = file.stat()
    return (file.read_text(), status.st_uid, status.st_gid, status.st_mode, status.st_ino)


@pytest.mark.parametrize("way", ["symlink", "hard link"])
@pytest.mark.parametrize("name", ["postgresql.conf", "postgresql.conf.initdb", "pg_hba.conf", "postmaster.pid"])
def test_no_file_of_roots_is_read_or_written_in_the_data_directory(
    own: Server, secret: Path, name: str, way: str
) -> None:
    ready(own)
    before, file = identity(secret), Path(own.layout.data_directory) / name
    run_program(own, f"rm --force {file}")
    if way == "symlink":
        run_program(own, f"ln --symbolic {secret} {file}")
    else:  # what the kernel forbids to others where fs.protected_hardlinks is set
        file.hardlink_to(secret)
    uses = own.stop if name == "postmaster.pid" else partial(own.configure, FAST)
    with pytest.raises((PermissionError, CommandFailed)):
        uses()
    assert identity(secret) == before
    file.unlink()


def test_the_servers_log_is_no_way_to_a_file_of_roots(own: Server, secret: Path, tmp_path: Path) -> None:
    ready(own)
    before = identity(secret)
    run_program(own, f"ln --symbolic --force {secret} {own.log_file}")
    with pytest.raises(PermissionError):
        own.read_log()
    with pytest.raises(PermissionError):
        own.host.fetch(own.log_file, str(tmp_path / "log"), owner=own.user)
    assert secret.read_text() not in (tmp_path / "log").read_text()
    # a folder on the way that leads elsewhere: the file there is root's
    run, moved = own.run_directory, f"{own.run_directory}-moved"
    run_program(own, f"mv {run} {moved}; ln --symbolic {secret.parent} {run}")
    try:
        with pytest.raises(PermissionError):
            own.host.read_text(f"{run}/{secret.name}", owner=own.user)
        with pytest.raises(PermissionError):
            own.host.make_directory(run, mode=0o700, owner=own.user)
        assert secret.parent.stat().st_uid == 0
    finally:
        own.host.stop_marked(own.marker, 10)
        own.host.remove(moved)
    assert identity(secret) == before


def test_a_golden_copy_is_placed_by_the_servers_user(own: Server, folder: Path) -> None:
    ready(own)
    own.stop()
    golden = save_golden(own.host, own.layout, f"{folder}/golden", {}, own.user)
    victim = folder / "victim"
    victim.write_text("root's")
    victim.chmod(0o644)
    before = identity(victim)
    layout = ServerDirectories(f"{folder}/second")
    own.host.make_directory(layout.data_directory, mode=0o700, owner=own.user)
    (folder / "second" / "PG_VERSION").symlink_to(victim)
    with pytest.raises(CommandFailed, match="Permission denied"):
        place_golden(own.host, golden, layout, own.user)
    assert identity(victim) == before


def test_only_the_servers_own_user_comes_in(own: Server) -> None:
    """The private folder keeps others off the socket; the server itself refuses whoever gets that far, as root does."""
    ready(own)
    client = own.installation.program("psql")
    options = ("-X", "-w", "-h", own.run_directory, "-p", str(own.port), "-U", "postgres", "-c", "SELECT 1", "postgres")
    done = own.host.run(Command((client, *options), cwd="/"), check=False)
    assert "Peer authentication failed" in done.stderr
    assert own.value("SELECT 1 AS one") == 1
    rules = own.sql("SELECT type, auth_method FROM pg_hba_file_rules")
    assert {(rule["type"], rule["auth_method"]) for rule in rules} == {("local", "peer"), ("host", "scram-sha-256")}


CAMPAIGN = """\
name: hostile
stacks: [ext4]
workload: {{scale: 1, clients: 1, jobs: 1, transactions: 3, warmup: 0, log: all, script: [{script}]}}
runs: {{blocks: 1}}
defaults:
  device: {{loop: 1, size: 2560M}}
  postgresql: {{initdb: [--no-sync], settings: {{fsync: "off", max_wal_size: 64MB}}}}
"""

ATTACK = """\
#!/bin/sh
cat >/dev/null
mkdir {open}/done || exit 0
run=$(sed -n "s/^unix_socket_directories = '\\(.*\\)'$/\\1/p" postgresql.conf)
top=${{run%/run}}
cell=$top/out/cells/hostile-s1-c1
for folder in "$top" "$top/out" "$top/out/cells" "$cell" "$cell/script" "$cell/logs" "$run" .; do
  mv "$folder" "$folder-moved" && ln --symbolic {secrets} "$folder"
  for name in sampler.py leak pgbench.out pgbench.err samples.jsonl samples.err postgres.jsonl postgres.err; do
    rm --force "$folder/$name"
    ln --symbolic {secrets}/secret "$folder/$name"
  done
  rm --force "$folder/sampler.py"
  echo 'import os; open("{open}/ran", "a").write(f"uid {{os.getuid()}}")' >"$folder/sampler.py"
done
for file in "$cell"/logs/pgbench_log.* "$cell/logs/pgbench_log.1" postgresql.log "$run/postgresql.log"; do
  ln --symbolic --force {secrets}/secret "$file"
done
for name in postgresql.conf pg_hba.conf pg_ident.conf postgresql.conf.initdb; do
  ln --symbolic --force {secrets}/secret "$name"
done
touch {open}/attacked
exit 0
"""


def test_a_hostile_script_gets_nothing_of_roots_into_the_record(folder: Path, secret: Path, tmp_path: Path) -> None:
    world = folder / "open"
    world.mkdir()
    world.chmod(0o777)
    attack = folder / "attack"
    attack.write_text(ATTACK.format(open=world, secrets=folder))
    attack.chmod(0o755)
    script = tmp_path / "hostile.sql"
    script.write_text(f"COPY (SELECT 1) TO PROGRAM '{attack}';\n")
    file, out = tmp_path / "hostile.yaml", tmp_path / "out"
    file.write_text(CAMPAIGN.format(script=script))
    before = identity(secret)
    state = {STATE: str(folder / "state")}
    code = run_in_fork(["run", str(file), "--out", str(out)], state, tmp_path / "said")
    said = (tmp_path / "said").read_text()
    assert (world / "attacked").exists(), said
    assert code == 4, said
    assert "no plain file of user" in said
    leaked = [
        path for path in out.rglob("*") if path.is_file() and secret.read_text() in path.read_text(errors="replace")
    ]
    assert leaked == []
    assert not (world / "ran").exists()
    assert identity(secret) == before
    assert run_in_fork(["clean"], state, tmp_path / "cleaned") == 0
    assert (tmp_path / "cleaned").read_text() == "nothing to clean\n"


def test_a_folder_of_the_trials_name_that_was_there_is_refused_and_stays(folder: Path, tmp_path: Path) -> None:
    file, out = write_campaign(tmp_path, "ext4"), tmp_path / "out"
    asked = load_campaign(str(file))
    (trial,) = block_trials(asked, 0, ["ext4"])
    theirs = Path(trial_directory(PlanContext(f"{trial.id}-{site_token(f'local:{out}')}", "/", 0)))
    theirs.mkdir()
    (theirs / "file").write_text("theirs")
    state = {STATE: str(folder / "state")}
    try:
        assert run_in_fork(["run", str(file), "--out", str(out)], state, tmp_path / "said") == 4
        assert f"{theirs} is there already" in (tmp_path / "said").read_text()
        assert run_in_fork(["clean"], state, tmp_path / "cleaned") == 0
        assert (theirs / "file").read_text() == "theirs"
    finally:
        (theirs / "file").unlink()
        theirs.rmdir()


def test_undo_leaves_alone_what_another_user_made_under_that_name(host: LocalHost, folder: Path) -> None:
    place = folder / "pgstrata-x"
    undo = RemovePath(path=str(place), uid=0)
    place.mkdir()
    os.chown(place, 65534, 65534)
    assert "belongs to somebody else" in run_undo(host, undo, same_boot=True)
    assert place.is_dir()
    os.chown(place, 0, 0)
    assert run_undo(host, undo, same_boot=True) == f"removed {place}"
