"""Values that become part of a path or of a program's arguments: what could mean something else is refused at load."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from pgstrata.spec.layers.devices import DiskDevice
from pgstrata.spec.layers.nfs import Nfs
from pgstrata.spec.layers.not_built import Existing
from pgstrata.spec.layers.zfs import Zfs
from pgstrata.spec.stack import Queue


@pytest.mark.parametrize("name", ["../../../etc/x", "zfs/arc", "/etc/passwd", "", "a b", "-x", "."])
def test_a_module_parameter_is_a_name(name: str) -> None:
    with pytest.raises(ValidationError, match="no parameter of the zfs module"):
        Zfs(module={name: 1})


@pytest.mark.parametrize(
    "server",
    [
        "-oro:/x",
        "--bind:/x",
        "nas",
        "nas:x",
        "a b:/x",
        "nas:/a b",
        "[::1:/x",
        "nas/y:/x",
        ":/x",
    ],
)
def test_an_export_begins_with_a_name_or_an_address(server: str) -> None:
    with pytest.raises(ValidationError, match="no export of a server"):
        Nfs(server=server)


@pytest.mark.parametrize("server", ["nas:/", "db2.example.org:/srv/postgres-16", "10.0.0.1:/x", "[fe80::1%eth0]:/x"])
def test_names_and_addresses_are_taken(server: str) -> None:
    assert Nfs(server=server).server == server


@pytest.mark.parametrize(
    ("name", "value"),
    [("mountpoint", "/etc"), ("sharenfs", "on"), ("keylocation", "file:///x"), ("user:mine", "1"), ("-o", "x")],
)
def test_properties_of_the_wal_dataset_are_about_storage(name: str, value: str) -> None:
    with pytest.raises(ValidationError, match="cannot be set for wal_dataset"):
        Zfs(wal_dataset={name: value})


@pytest.mark.parametrize("value", ["", "128k -o mountpoint=/", "a\nb", "-x", "a/b"])
def test_values_of_properties_are_words(value: str) -> None:
    with pytest.raises(ValidationError, match="no value of the property"):
        Zfs(wal_dataset={"recordsize": value})


@pytest.mark.parametrize("id_", ["--all", "-", "", "/srv/x\n/srv/y", "/dev/disk/by-id/a\0b"])
def test_an_id_of_a_device_is_no_option_and_one_line(id_: str) -> None:
    with pytest.raises(ValidationError, match="no stable id"):
        DiskDevice(ids=(id_,))


def test_other_values_are_words() -> None:
    with pytest.raises(ValidationError):
        Queue(scheduler="../x")
    with pytest.raises(ValidationError):
        Zfs(dnodesize="auto\n-x")
    with pytest.raises(ValidationError, match="control character"):
        Existing(path="/mnt/x\n/y")
