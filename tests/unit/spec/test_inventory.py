"""Ansible inventories: which hosts a group has, at which addresses, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pgstrata.errors import UsageError
from pgstrata.spec.file.campaign import load_campaign
from pgstrata.spec.hosts.inventory import MOST_NAMED, expand_hosts, group_addresses, parse_inventory

INI = """\
# every machine
bastion ansible_host=10.0.0.1 ; no comment of Ansible's
desk ansible_connection=local

[db]
db[01:03].example.com:2222 ansible_user=admin   # three
db9  ansible_host='10.0.0.9'
[fast]
db9 ansible_port=22
nvme1
[fast:vars]
ansible_user = "root"
[servers:children]
db
fast   # twice in it
[servers:vars]
ansible_user=nobody
rack={'row': 3}
[all:vars]
ansible_port=2200
"""
YAML = """\
all:
  hosts:
    bastion: {ansible_host: 10.0.0.1}
    desk: {ansible_connection: local}
  vars: {ansible_port: 2200}
  children:
    servers:
      vars: {ansible_user: nobody, rack: {row: 3}}
      children:
        db:
          hosts:
            db[01:03].example.com:2222: {ansible_user: admin}
            db9: {ansible_host: 10.0.0.9}
        fast:
fast:
  hosts: {db9: {ansible_port: 22}, nvme1: }
  vars: {ansible_user: root}
"""
DB = tuple(f"ssh://admin@db0{number}.example.com:2222" for number in (1, 2, 3))


@pytest.mark.parametrize(("name", "text"), [("hosts", INI.replace("; no comment of Ansible's", "")), ("hosts", YAML)])
@pytest.mark.parametrize(
    ("group", "addresses"),
    [
        ("db", (*DB, "ssh://root@10.0.0.9:22")),
        ("fast", ("ssh://root@10.0.0.9:22", "ssh://root@nvme1:2200")),
        ("servers", (*DB, "ssh://root@10.0.0.9:22", "ssh://root@nvme1:2200")),
        ("ungrouped", ("ssh://10.0.0.1:2200", "local")),
        ("all", ("ssh://10.0.0.1:2200", "local", *DB, "ssh://root@10.0.0.9:22", "ssh://root@nvme1:2200")),
    ],
)
def test_groups(name: str, text: str, group: str, addresses: tuple[str, ...]) -> None:
    assert group_addresses(parse_inventory(text, name), group) == addresses


LISTED = {
    "_meta": {"hostvars": {"a": {"ansible_host": "10.1.1.1", "ansible_port": 2200, "x": [1]}, "gone": {}}},
    "all": {"children": ["ungrouped", "db"]},
    "db": {"hosts": ["a", "b"], "vars": {"ansible_user": "root"}},
    "other": ["c"],
}


@pytest.mark.parametrize("name", ["hosts", "hosts.json", "hosts.yaml"])
def test_what_ansible_inventory_lists(name: str) -> None:
    inventory = parse_inventory(json.dumps(LISTED, indent=4), name)
    assert inventory.merged
    assert group_addresses(inventory, "db") == ("ssh://root@10.1.1.1:2200", "ssh://root@b")
    assert group_addresses(inventory, "all")[2:] == ("ssh://c",)


@pytest.mark.parametrize(
    ("pattern", "names", "port"),
    [
        ("db1", ["db1"], None),
        ("db1:22", ["db1"], "22"),
        ("db[8:11]", ["db8", "db9", "db10", "db11"], None),
        ("db[08:10]", ["db08", "db09", "db10"], None),
        ("db[:2]", ["db0", "db1", "db2"], None),
        ("db[1:6:2]:22", ["db1", "db3", "db5"], "22"),
        ("r[a:b]-[1:2].x", ["ra-1.x", "ra-2.x", "rb-1.x", "rb-2.x"], None),
        ("2001:db8::1", ["2001:db8::1"], None),
        ("[2001:db8::1]:22", ["2001:db8::1"], "22"),
    ],
)
def test_names_of_hosts(pattern: str, names: list[str], port: str | None) -> None:
    assert expand_hosts(pattern) == (names, port)


@pytest.mark.parametrize(
    "pattern",
    ["db[3:1]", "db[01:100]", "db[1]", "db[1:2:0]", "db[a:9]", "db[1:2:3:4]", "db[1:]", "db[0:999999999999]",
     "[a:z][a:z][a:z][a:z]x", "x" * 5000],
)  # fmt: skip
def test_names_that_are_none(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"range|more than|characters"):
        expand_hosts(pattern)


def test_the_inner_group_wins_then_priority_then_name() -> None:
    variables = "".join(f"[{name}:vars]\nansible_user={name}\n" for name in ("a", "b", "up"))
    text = f"[a]\nh\n[b]\nh\n[up:children]\na\n{variables}"
    assert group_addresses(parse_inventory(text, "i"), "b") == ("ssh://a@h",)  # a is deeper, through up
    alike = text.replace("[up:children]\na\n[a:vars]", "[up]\nx\n[a:vars]")
    assert group_addresses(parse_inventory(alike, "i"), "a") == ("ssh://b@h",)
    ranked = alike.replace("ansible_user=a", "ansible_user=a\nansible_group_priority=10")
    assert group_addresses(parse_inventory(ranked, "i"), "a") == ("ssh://a@h",)


def test_a_variable_of_a_group_is_not_of_others() -> None:
    text = "[a]\nh\n[b]\ni\n[b:vars]\nansible_ssh_private_key_file=k\n"
    assert group_addresses(parse_inventory(text, "i"), "a") == ("ssh://h",)


@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        ("[db]\na\n", "i: there is no group 'bd'", "valid here: all, db"),
        ("[bd]\n", "i: group 'bd' has no hosts", "one that has"),
        ("[bd:children]\nx\n[x]\nh\n[x:children]\nbd\n", "groups contain each other: ", "take one of them out"),
        ("[bd]\nh\n[bd:children]\nx\n", "i:4: [bd:children] names group 'x', which is not there", "valid here"),
        ("[bd]\nh\n[bc:vars]\nx=1\n", "i:3: [bc:vars] is of a group that is not there", "valid here"),
        ("[bd:host]\nh\n", "i:1: a section of 'host' is not known", "did you mean hosts?"),
        ("[bd]\n[a b]\n", "i:2: '[a b]' is no section", "a line is a host"),
        ("[bd]\nh ansible_user\n", "i:2: 'ansible_user' is no variable", "db1 ansible_user=root"),
        ("[bd]\nh x='\n", "i:2: No closing quotation", "a line is a host"),
        (f"[bd]\nh x={'y' * 20_000}\n", "i:2: a line of 20004 characters, more than 16384", "a line is a host"),
        ("[bd]\nh[3:1]\n", "i:2: [3:1] is no range of hosts", "db[01:20]"),
        ("[bd]\nh[1:1001]\n", "i: group 'bd' has 1001 hosts, more than 1000", "smaller"),
        ("[bd]\n" + "h[1:20000]\n" * 3, f"i: names more than {MOST_NAMED}", "--list"),
        ("".join(f"[g{n}]\n" for n in range(1001)), "i: more than 1000 groups", "--list"),
        ("[bd]\nh ansible_ssh_private_key_file=~/k\n", "i: h: ansible_private_key_file cannot stand", "~/.ssh/config"),
        ("[bd]\nh[1:5] ansible_ssh_pass=x\n", "i: h1, h2, h3 and 2 more: ansible_password cannot", "ssh-copy-id"),
        ("[bd]\nh ansible_ssh_common_args='-J x'\n", "ansible_ssh_common_args cannot stand", "~/.ssh/config"),
        ("[bd]\nh ansible_connection=docker\n", "i: h: ansible_connection docker is none", "ssh and local"),
        ("[bd]\nh ansible_become=yes ansible_user=me\n", "i: h: ansible_become is not done here", "ansible_user=root"),
        ("[bd]\nh ansible_host='{{ x }}'\n", "i: h: ansible_host is a template", "write its value"),
        ("[bd]\nh ansible_port=65536\n", "i: h: ansible_port is '65536'", "1 to 65535"),
        ("[bd]\nh ansible_port=x\n", "i: h: ansible_port is 'x'", "1 to 65535"),
        ("[bd]\nh ansible_host='-o x'\n", "is not an ssh address", "ansible_host"),
        ("[bd]\nh ansible_user=a@b\n", "is not an ssh address", "ansible_user"),
        ("[bd]\nh\n[bd:vars]\nansible_group_priority=high\n", "ansible_group_priority of group bd is 'high'", "whole"),
        ("#!/usr/bin/python3\nprint()\n", "i: a program is no inventory", "ansible-inventory -i"),
        ("bd:\n  hosts: {h: {ansible_host: [1]}}\n", "i: group bd: ansible_host is a list or mapping", ""),
        ("bd:\n  hostz: {h: }\n", "i: group bd: unknown key 'hostz'; did you mean hosts?", ""),
        ("bd:\n  hosts: h\n", "i: group bd: hosts is no mapping", ""),
        ("bd:\n  hosts: {h: {ansible_password: !vault x}}\n", "i:2: bd.hosts.h.ansible_password: tag !vault", "--list"),
        ('{"bd": 3}', "i: group bd: it is no mapping", ""),
        ('{"bd": ', "i: not valid JSON", "ansible-inventory"),
        ("{" + '"a":{' * 5000, "i: not valid JSON", "ansible-inventory"),
        ('{"_meta": {"hostvars": []}}', "i: _meta: hostvars is no mapping", ""),
    ],
)  # fmt: skip
def test_refusals(text: str, said: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        group_addresses(parse_inventory(text, "i"), "bd")
    assert said in caught.value.message
    assert hint in caught.value.hint


def test_what_asks_nothing_of_an_address_is_let_be() -> None:
    text = (
        "[db]\nh ansible_become=yes ansible_user=root ansible_ssh_common_args='' ansible_python_interpreter=python3\n"
    )
    assert group_addresses(parse_inventory(text, "i"), "db") == ("ssh://root@h",)
    here = "[db]\nh ansible_connection=local ansible_become=yes ansible_ssh_private_key_file=k\n"
    assert group_addresses(parse_inventory(here, "i"), "db") == ("local",)


# ---------------------------------------------------------------- in a campaign


def _campaign(folder: Path, hosts: str, rest: str = "") -> Path:
    (folder / "sub").mkdir()
    (folder / "sub" / "hosts.ini").write_text("[db]\ndb[1:2]\n[web]\nw\n")
    file = folder / "c.yaml"
    file.write_text(f"stacks: [ext4, xfs]\nhosts: {hosts}\n{rest}")
    return file


def test_a_campaign_has_the_addresses_of_the_group(tmp_path: Path) -> None:
    file = _campaign(tmp_path, "{inventory: sub/hosts.ini, group: db}")
    assert load_campaign(file).hosts == ("ssh://db1", "ssh://db2")


def test_without_a_group_it_is_all_hosts(tmp_path: Path) -> None:
    assert load_campaign(_campaign(tmp_path, "{inventory: sub/hosts.ini}")).hosts == (
        "ssh://db1",
        "ssh://db2",
        "ssh://w",
    )


@pytest.mark.parametrize(
    ("hosts", "said"),
    [
        ("{inventory: sub/hosts.ini, group: dc}", "c.yaml:2: hosts.inventory: hosts.ini: there is no group 'dc'"),
        ("{inventory: no.ini}", "c.yaml:2: hosts.inventory: file no.ini does not exist"),
        ("{inventory: sub}", "c.yaml:2: hosts.inventory: sub is not a file"),
        (
            "{inventory: sub/hosts.ini, gruop: db}",
            "c.yaml:2: hosts.gruop: unknown key 'gruop'\nHINT: did you mean group?",
        ),
        ("{group: db}", "c.yaml:2: hosts: 'inventory' is missing"),
    ],
)
def test_what_is_wrong_has_the_line_of_the_campaign(tmp_path: Path, hosts: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_campaign(_campaign(tmp_path, hosts))
    assert said in str(caught.value)


def test_two_names_of_one_address_are_refused(tmp_path: Path) -> None:
    file = _campaign(tmp_path, "{inventory: sub/hosts.ini, group: db}")
    (tmp_path / "sub" / "hosts.ini").write_text("[db]\na ansible_host=x\nb ansible_host=x\n")
    with pytest.raises(UsageError, match="hosts names ssh://x twice"):
        load_campaign(file)


def test_an_inventory_and_one_host_exclude_each_other(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="exclude each other"):
        load_campaign(_campaign(tmp_path, "{inventory: sub/hosts.ini}", "host: ssh://a\n"))


def test_variables_in_folders_beside_are_not_passed_over(tmp_path: Path) -> None:
    file = _campaign(tmp_path, "{inventory: sub/hosts.ini, group: db}")
    (tmp_path / "sub" / "group_vars").mkdir()
    with pytest.raises(UsageError, match="group_vars beside it is not read here") as caught:
        load_campaign(file)
    assert "ansible-inventory" in caught.value.hint
    (tmp_path / "sub" / "hosts.ini").rename(tmp_path / "sub" / "hosts.old")
    (tmp_path / "sub" / "hosts.ini").write_text("")
    listed = _campaign_of_json(tmp_path)
    assert load_campaign(listed).hosts == ("ssh://root@10.1.1.1:2200", "ssh://root@b")


def _campaign_of_json(folder: Path) -> Path:
    (folder / "sub" / "hosts.json").write_text(json.dumps(LISTED))
    file = folder / "listed.yaml"
    file.write_text("stacks: [ext4]\nhosts: {inventory: sub/hosts.json, group: db}\n")
    return file


@pytest.mark.parametrize("content", [b"[db]\n\xff\n", b"x" * (17 << 20)])
def test_a_file_that_is_no_text_or_too_long(tmp_path: Path, content: bytes) -> None:
    file = _campaign(tmp_path, "{inventory: sub/hosts.ini}")
    (tmp_path / "sub" / "hosts.ini").write_bytes(content)
    with pytest.raises(UsageError, match=r"is not UTF-8|has more than"):
        load_campaign(file)


# ---------------------------------------------------------------- whatever stands in it

words = st.sampled_from(
    ["[db]", "[db:vars]", "[db:children]", "[all:vars]", "db", "all:", "hosts:", "  hosts:", "    a[1:3]:",
     "ansible_user=root", "a[01:20]", "a[1:9:0]:22", "{", "}", '"db":', "[", "]", "---", "'", ":", "_meta"]
)  # fmt: skip


@given(st.lists(words | st.text(st.characters(codec="utf-8"), max_size=8), max_size=12), st.sampled_from(" \n"),
       st.sampled_from(["i", "i.ini", "i.yaml", "i.json"]), st.sampled_from(["all", "db", "ungrouped"]))  # fmt: skip
@example(["[a:children]", "a"], "\n", "i", "all")
@example(["all:", "  children: {ungrouped: , all: }"], "\n", "i", "all")
@settings(deadline=None, max_examples=300)
def test_any_text_is_read_or_refused(lines: list[str], between: str, name: str, group: str) -> None:
    message = name
    try:
        assert group_addresses(parse_inventory(between.join(lines), name), group)
    except UsageError as error:
        message = error.message
    assert message.startswith(name)
