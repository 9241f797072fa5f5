"""Signals: one raises, the next ones wait; undo is never cut short."""

from __future__ import annotations

import os
import signal

import pytest

from pgstrata.trial.interruption import Interrupted, Interruption


def test_the_first_signal_raises_and_the_second_is_only_noted() -> None:
    interruption = Interruption()
    with interruption.installed():
        with pytest.raises(Interrupted, match="SIGINT"):
            signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
        interruption.check()
        assert interruption.received == "SIGTERM"


def test_a_signal_inside_a_shield_waits_for_the_next_check() -> None:
    interruption = Interruption()
    with interruption.installed():
        done = False
        with interruption.shield():
            os.kill(os.getpid(), signal.SIGTERM)
            done = True
        assert done
        with pytest.raises(Interrupted, match="SIGTERM"):
            interruption.check()


def test_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interruption().installed():
        assert signal.getsignal(signal.SIGINT) != before
    assert signal.getsignal(signal.SIGINT) == before
