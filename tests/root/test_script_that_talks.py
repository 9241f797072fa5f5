"""Scripts and schemas whose server talks: what they say is kept and counted, and the run counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from campaigning import environment, nothing_left, reachable, run_in_fork
from pgstrata.record.reader import read

SCHEMA = """CREATE TABLE acc(id int PRIMARY KEY, bal int);
INSERT INTO acc SELECT g, 0 FROM generate_series(1, 1000) g;
CREATE FUNCTION pay(w int) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
  UPDATE acc SET bal = bal + 1 WHERE id = w;
  IF random() < 0.05 THEN RAISE NOTICE E'slow path\\nfor %', w; END IF;
  IF random() < 0.05 THEN RAISE INFO 'info %', w; END IF;
  RETURN 1;
END $$;
DO $$ BEGIN RAISE NOTICE E'the schema talks,\\ntoo'; RAISE WARNING 'loudly'; END $$;
"""
SCRIPTS = {
    "talks.sql": ("\\set w :client_id + 1\nSELECT pay(:w);\n", "for 1"),
    "debug.sql": ("\\set r random(1, 100)\n\\set f debug(sqrt(:r))\nSELECT :f;\n", "debug(script=0"),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_what_server_and_script_say_fails_no_trial(tmp_path: Path, name: str) -> None:
    script, said = SCRIPTS[name]
    with reachable(tmp_path) as place:
        (place / "schema.sql").write_text(SCHEMA)
        (place / name).write_text(script)
        argv = ["quick", "ext4", "--sql", str(place / "schema.sql"), "--script", str(place / name), "--blocks", "1"]
        argv += ["--duration", "3s", "--clients", "2", "--scale", "1", "--no-crash", "--out", str(place / "out")]
        code = run_in_fork([*argv, "--scratch", str(place / "scratch")], environment(place), place / "log.txt")
        text = (place / "log.txt").read_text()
        assert code == 0, text
        nothing_left(place)
        (cell,) = read(place / "out").trials[0].cells
        assert cell.result.transactions > 0
        assert "server or script said" in text
        assert said in next((place / "out").rglob("pgbench.err")).read_text()
