"""What the tools say about used space. Outputs recorded with coreutils 9.1 and btrfs-progs 6.2."""

from __future__ import annotations

import pytest

from pgstrata.errors import TrialError
from pgstrata.stack.fs.btrfs import parse_btrfs_used
from pgstrata.stack.kind import parse_df_used

DF = "    Used\n80470016\n"
BTRFS = """\
Overall:
    Device size:\t\t        2147483648
    Device allocated:\t\t         469762048
    Device unallocated:\t\t        1677721600
    Device missing:\t\t                 0
    Device slack:\t\t                 0
    Used:\t\t\t          88915968
    Free (estimated):\t\t        1743110144\t(min: 904249344)
    Free (statfs, df):\t\t        1742061568
    Data ratio:\t\t\t              1.00
    Metadata ratio:\t\t              2.00
    Global reserve:\t\t           5767168\t(used: 0)
    Multiple profiles:\t\t                no

Data,single: Size:226492416, Used:87162880 (38.48%)
   /dev/loop0\t 226492416
"""


def test_numbers() -> None:
    assert parse_df_used(DF) == 80470016
    assert parse_btrfs_used(BTRFS) == 88915968


@pytest.mark.parametrize("text", ["", "Used\n-\n", "df: /x: No such file or directory"])
def test_anything_else_is_an_error(text: str) -> None:
    with pytest.raises(TrialError):
        parse_df_used(text)
    with pytest.raises(TrialError):
        parse_btrfs_used(text)
