"""JSON Schema of campaign files as users write them: the models' schema, opened for the short forms.

An editor that completes and marks keys needs no more than shape, names and values; what only makes sense together
(device counts, inheritance) is left to the loader.
"""

from __future__ import annotations

from typing import Any

from pgstrata.spec.campaign import Campaign

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_SWITCH = {"enum": [True, False, "on", "off", "yes", "no"]}
_SCALAR = {"type": ["string", "number", "boolean", "null"]}
_DEVICES = ("LoopDevice", "DiskDevice")
_PLACES = ("Ext4", "Xfs", "Btrfs", "Zfs", "Tmpfs", "Nfs", "Existing", "Lvm", "Md")


def campaign_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of a campaign file."""
    schema = Campaign.model_json_schema(mode="validation")
    definitions: dict[str, Any] = {k: _open(v) for k, v in schema.pop("$defs").items() if k != "Imported"}
    for name in (*_DEVICES, *_PLACES, "Volume", "Stack"):
        definitions[name].pop("required", None)
    for name in _PLACES:
        definitions[name]["properties"]["kind"] = {"const": definitions[name]["properties"]["kind"]["const"]}
    _open_devices(definitions)
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
    definitions["Goal"] = _text_or(definitions["Goal"])
    properties = _open(schema["properties"]) | _file_sections()
    return {
        "$schema": DIALECT,
        "title": "pgstrata campaign",
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        "anyOf": [{"required": ["stacks"]}, {"required": ["matrix"]}],
        "$defs": definitions | {"Matrix": _MATRIX},
    }


def _open(node: Any) -> Any:
    """The same schema where switches are also on/off, open mappings take any scalar, unions are not exclusive."""
    if isinstance(node, list):
        return [_open(item) for item in node if item != {"$ref": "#/$defs/Imported"}]
    if not isinstance(node, dict):
        return node
    if node.get("type") == "boolean":
        return {**{k: v for k, v in node.items() if k != "type"}, **_SWITCH}
    opened = {k: _open(v) for k, v in node.items() if k not in ("discriminator", "oneOf", "title")}
    if "oneOf" in node:
        opened["anyOf"] = _open(node["oneOf"])
    if node.get("additionalProperties") == {"type": "string"}:
        opened["additionalProperties"] = _SCALAR
    if "enum" in node and "4.2" in node["enum"]:
        opened.pop("type", None)
        opened["enum"] = [*node["enum"], 3, 4.2]
    return opened


def _text_or(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [{"type": "string"}, schema]}


def _open_devices(definitions: dict[str, Any]) -> None:
    """`device: /dev/...`, `device: {loop: 4}`, `device: {disk: ID}` besides `kind:`."""
    size = definitions["LoopDevice"]["properties"]["size"]
    names = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}
    loop = {
        "type": "object",
        "properties": {
            "loop": {"anyOf": [{"type": ["integer", "null"]}, {"$ref": "#/$defs/LoopDevice"}]},
            "size": size,
            "count": {"type": "integer"},
        },
        "additionalProperties": False,
    }
    disk = {
        "type": "object",
        "properties": {"disk": names, "count": {"type": "integer"}},
        "required": ["disk"],
        "additionalProperties": False,
    }
    whole = [{"$ref": f"#/$defs/{name}"} for name in _DEVICES]
    definitions["Device"] = {"anyOf": [{"type": ["string", "boolean", "null"]}, names["anyOf"][1], loop, disk, *whole]}
    for vdev in ("log", "cache", "special"):
        definitions["Zfs"]["properties"][vdev] = {"anyOf": [{"$ref": "#/$defs/Device"}, {"type": "null"}]}
    definitions["Nfs"]["properties"]["export"] = _text_or(definitions["Nfs"]["properties"]["export"])


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
        **{k: definitions["Volume"]["properties"][k] for k in ("device", "layers", "fs")},
    }
    definitions["StackOrText"] = {"anyOf": [{"type": ["string", "null"]}, {"$ref": "#/$defs/Stack"}]}


def _open_workload(properties: dict[str, Any]) -> None:
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
