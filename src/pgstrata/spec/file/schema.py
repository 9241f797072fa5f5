"""JSON Schema of campaign files as users write them: the models' schema, opened for the short forms.

An editor that completes and marks keys needs no more than shape, names and values; what only makes sense together
(device counts, inheritance) is left to the loader.
"""

from __future__ import annotations

from typing import Any

from pgstrata.spec.campaign import Campaign
from pgstrata.spec.dask_cluster import DaskCluster
from pgstrata.spec.drivers import Driver
from pgstrata.spec.hosts.inventory import InventoryHosts
from pgstrata.spec.layers.kind import BlockLayer, Device, Filesystem, Kind

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_SWITCH = {"enum": [True, False, "on", "off", "yes", "no"]}
_SCALAR = {"type": ["string", "number", "boolean", "null"]}


def campaign_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of a campaign file."""
    schema = Campaign.model_json_schema(mode="validation")
    hidden = {m.__name__ for m in Filesystem.kinds.values() if not m.offered}
    definitions: dict[str, Any] = {k: _open(v, hidden) for k, v in schema.pop("$defs").items() if k not in hidden}
    places = [*_offered(Filesystem), *_offered(BlockLayer)]
    for name in (*(m.__name__ for m in (*_offered(Device), *places)), "Volume", "Stack"):
        definitions[name].pop("required", None)
    for model in places:
        own = definitions[model.__name__]["properties"]
        own["kind"] = {"const": own["kind"]["const"]}
    _open_devices(definitions)
    for model in places:
        _open_fields(model, definitions[model.__name__]["properties"])
    layers = definitions["Volume"]["properties"]["layers"]
    layers["items"] = _text_or(layers["items"])
    definitions["Equivalent"] = {"anyOf": [definitions["Equivalent"], {"type": "array", "minItems": 3, "maxItems": 3}]}
    definitions["Volume"]["properties"] |= {
        "device": {"$ref": "#/$defs/Device"},
        "layers": _text_or(definitions["Volume"]["properties"]["layers"]),
        "fs": _text_or(definitions["Volume"]["properties"]["fs"]),
    }
    _open_stack(definitions)
    _open_workload(definitions["Workload"]["properties"])
    for driver in _offered(Driver):
        definitions[driver.__name__]["required"] = ["kind"]
    definitions["Goal"] = _text_or(definitions["Goal"])
    properties = _open(schema["properties"], hidden) | _file_sections()
    inventory = InventoryHosts.model_json_schema(mode="validation")
    cluster = DaskCluster.model_json_schema(mode="validation")
    definitions["DaskCluster"] = _text_or(cluster)
    dask = {
        "type": "object",
        "properties": {"dask": {"$ref": "#/$defs/DaskCluster"}},
        "required": ["dask"],
        "additionalProperties": False,
    }
    properties["hosts"] = {"anyOf": [properties["hosts"], _open(inventory, hidden), dask]}
    return {
        "$schema": DIALECT,
        "title": "pgstrata campaign",
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        "anyOf": [{"required": ["stacks"]}, {"required": ["matrix"]}],
        "$defs": definitions | {"Matrix": _MATRIX},
    }


def _offered(sort: type[Kind]) -> list[type[Kind]]:
    return [sort.kinds[name] for name in sort.offered_names()]


def _open(node: Any, hidden: set[str]) -> Any:
    """The same schema where switches are also on/off, open mappings take any scalar, unions are not exclusive."""
    if isinstance(node, list):
        return [_open(item, hidden) for item in node if item not in [{"$ref": f"#/$defs/{name}"} for name in hidden]]
    if not isinstance(node, dict):
        return node
    if node.get("type") == "boolean":
        return {**{k: v for k, v in node.items() if k != "type"}, **_SWITCH}
    opened = {k: _open(v, hidden) for k, v in node.items() if k not in ("discriminator", "oneOf", "title")}
    if "oneOf" in node:
        opened["anyOf"] = _open(node["oneOf"], hidden)
    if node.get("additionalProperties") == {"type": "string"}:
        opened["additionalProperties"] = _SCALAR
    digits = [word for word in node.get("enum", ()) if isinstance(word, str) and word.replace(".", "").isdigit()]
    numbers = [int(word) if word.isdigit() else float(word) for word in digits]
    if numbers:  # what reads as a number need not stand in quotes
        opened.pop("type", None)
        opened["enum"] = [*node["enum"], *numbers]
    return opened


def _text_or(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [{"type": "string"}, schema]}


def _open_devices(definitions: dict[str, Any]) -> None:
    """`device: /dev/...`, `device: [ID, ID]`, `device: {loop: 4}`, `device: {disk: ID}` besides `kind:`."""
    ids = {"type": "array", "items": {"type": "string"}, "minItems": 1}
    short, whole = [], []
    for model in Device.kinds.values():
        own = definitions[model.__name__]["properties"]
        rest = {k: v for k, v in own.items() if k not in ("kind", model.short_field)}
        properties = {model.name(): model.short_schema(own), **rest, "count": {"type": "integer"}}
        required = [model.name()]
        short.append({"type": "object", "properties": properties, "required": required, "additionalProperties": False})
        whole.append({"$ref": f"#/$defs/{model.__name__}"})
    definitions["Device"] = {"anyOf": [{"type": ["string", "boolean", "null"]}, ids, *short, *whole]}


def _open_fields(model: type[Kind], properties: dict[str, Any]) -> None:
    """Devices and filesystems inside a kind can be written as short as elsewhere."""
    for name in model.fields_holding(Device):
        properties[name] = {"anyOf": [{"$ref": "#/$defs/Device"}, {"type": "null"}]}
    for name in model.fields_holding(Filesystem):
        properties[name] = _text_or(properties[name])


def _open_stack(definitions: dict[str, Any]) -> None:
    volume = {"anyOf": [{"type": ["string", "null"]}, {"$ref": "#/$defs/Volume"}]}
    own = definitions["Stack"]["properties"]
    own.pop("name")
    own |= {
        "data": volume,
        "wal": {**volume, "description": own["wal"].get("description", "")},
        "tablespaces": {"type": "object", "additionalProperties": volume},
        "inherits": {"type": "string", "description": "take over another stack and change something"},
        "stack": {"type": "string", "description": "short notation to start from"},
        "server": {"type": "string", "description": "postgresql://..., a running server that is only measured"},
        **{k: definitions["Volume"]["properties"][k] for k in ("device", "layers", "fs")},
    }
    topology, standby = definitions["Topology"]["properties"], definitions["Standby"]["properties"]
    topology["archive"] = {**volume, "description": topology["archive"]["description"]}
    standbys = {**topology["standbys"], "items": {"anyOf": [volume, topology["standbys"]["items"]]}}
    topology["standbys"] = {"anyOf": [{"type": ["integer", "string"]}, standbys]}
    standby |= {role: {**volume, "description": standby[role]["description"]} for role in ("data", "wal")}
    standby |= {k: definitions["Volume"]["properties"][k] for k in ("device", "layers", "fs")}
    definitions["StackOrText"] = {"anyOf": [{"type": ["string", "null"]}, {"$ref": "#/$defs/Stack"}]}


def _open_workload(properties: dict[str, Any]) -> None:
    properties["driver"] = {"anyOf": [{"enum": [*Driver.offered_names()]}, properties["driver"]]}
    properties["client"]["anyOf"].append({"type": "string"})
    for key in ("script", "scale", "clients"):
        items = properties[key]["items"]
        properties[key] = {"anyOf": [items, properties[key]], "description": properties[key].get("description", "")}


def _file_sections() -> dict[str, Any]:
    named = {"type": "object", "additionalProperties": {"$ref": "#/$defs/StackOrText"}}
    matrix = {"$ref": "#/$defs/Matrix"}
    return {
        "defaults": {"$ref": "#/$defs/StackOrText", "description": "laid under every stack"},
        "templates": {**named, "description": "stacks to inherit from that are not run themselves"},
        "stacks": {"anyOf": [named, {"type": "array", "items": {"type": "string"}, "minItems": 1}]},
        "matrix": {"anyOf": [matrix, {"type": "array", "items": matrix}]},
    }


_LEVELS = {
    "anyOf": [
        {"type": "array", "items": {"type": "string"}, "minItems": 1},
        {"type": "object", "additionalProperties": {"$ref": "#/$defs/StackOrText"}, "minProperties": 1},
    ]
}
_MATRIX: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "description": "name of each stack; {FACTOR} stands for its level"},
        "base": {"$ref": "#/$defs/StackOrText"},
        "factors": {"type": "object", "additionalProperties": _LEVELS, "minProperties": 1},
        "exclude": {"type": "array", "items": {"type": "object", "additionalProperties": {"type": "string"}}},
    },
    "required": ["factors"],
    "additionalProperties": False,
}
