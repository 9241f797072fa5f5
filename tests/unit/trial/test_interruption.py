"""Signals: one raises, the next ones wait; undo is never cut short."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from pgstrata.trial.interruption import Interrupted, Interruption


def test_a_wait_is_ended_by_the_first_signal_and_the_second_is_only_noted() -> None:
    interruption = Interruption()
    with interruption.installed():
        with pytest.raises(Interrupted, match="SIGINT"), interruption.waiting():
            signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
        with interruption.waiting():
            signal.raise_signal(signal.SIGTERM)
        interruption.check()
        assert interruption.received == "SIGTERM"


def test_outside_a_wait_a_signal_raises_nothing_until_the_next_check_or_wait() -> None:
    for ask in (Interruption.check, lambda interruption: interruption.waiting().__enter__()):
        interruption = Interruption()
        with interruption.installed():
            os.kill(os.getpid(), signal.SIGTERM)
            with pytest.raises(Interrupted, match="SIGTERM"):
                ask(interruption)


def test_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interruption().installed():
        assert signal.getsignal(signal.SIGINT) != before
    assert signal.getsignal(signal.SIGINT) == before


HANGUP = """
import os, pty, signal, time
from pgstrata.trial.interruption import Interrupted, Interruption

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # also where the tests run under nohup
pid, terminal = pty.fork()
if pid == 0:  # its terminal is closed while it runs
    done = 1
    interruption = Interruption()
    with interruption.installed():
        try:
            with interruption.waiting():
                print("ready", flush=True)
                while True:  # a signal just before a long wait begins would not end it
                    time.sleep(0.01)
        except Interrupted:
            print("undoing", flush=True)
            done = 0
    os._exit(done)
os.read(terminal, 100)
os.close(terminal)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def test_a_closed_terminal_is_an_interruption_and_what_is_told_then_does_no_harm() -> None:
    done = subprocess.run([sys.executable, "-c", HANGUP], timeout=60, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_nohup_is_respected() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        interruption = Interruption()
        with interruption.installed():
            signal.raise_signal(signal.SIGHUP)
        assert interruption.received == ""
    finally:
        signal.signal(signal.SIGHUP, before)
