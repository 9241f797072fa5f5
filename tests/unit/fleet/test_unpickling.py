"""While a cluster is spoken to, pickles that name classes or functions are refused in all threads."""

from __future__ import annotations

import pickle
from threading import Thread

import pytest

from pgstrata.fleet.calls import UnpicklingRefused, own_pickle, refused_unpickling

CALL = pickle.dumps(print)


def test_a_function_is_refused_in_every_thread_until_the_last_block_ends() -> None:
    found: list[BaseException | None] = []

    def unpickle() -> None:
        try:
            pickle.loads(CALL)
        except UnpicklingRefused as error:
            found.append(error)

    with refused_unpickling():
        with refused_unpickling():
            pass
        with pytest.raises(UnpicklingRefused, match=r"builtins\.print"):
            pickle.loads(CALL)
        other = Thread(target=unpickle)
        other.start()
        other.join()
        assert len(found) == 1
        assert pickle.loads(pickle.dumps({"text": [b"bytes", 1, None]})) == {"text": [b"bytes", 1, None]}
    assert pickle.loads(CALL) is print


def test_the_tasks_that_this_process_gives_itself_are_not() -> None:
    with refused_unpickling():
        with own_pickle():
            assert pickle.loads(CALL) is print
        with pytest.raises(UnpicklingRefused):
            pickle.loads(CALL)
