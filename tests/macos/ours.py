# SPDX-License-Identifier: MIT
"""What our headers declare of Metal and Foundation, from clang's syntax tree."""

import re
from typing import Any

from api import Api, Signature, plain_type


def declared(tree: dict[str, Any], prefixes: str = "MTL|NS") -> Api:
    """What a translation unit declares by these names, from clang's syntax tree; NSObject is Apple's there."""
    api = Api()
    typedefs: dict[str, str] = {}
    fields: tuple[str, ...] = ()  # of the last struct, which in C may have its name from the typedef after it
    for node in tree["inner"]:
        kind, name = node["kind"], node.get("name", "")
        if kind == "RecordDecl":
            fields = tuple(f"{plain_type(f['type']['qualType'])} {f.get('name')}" for f in of_kind(node, "FieldDecl"))
        elif kind == "EnumDecl":
            api.constants |= enumerators(node, prefixes)
        elif not re.match(rf"({prefixes})(?!Object$|Integer$|UInteger$)", name):
            continue
        elif kind in ("ObjCProtocolDecl", "ObjCInterfaceDecl"):
            add_owner(api, node)
        elif kind == "FunctionDecl" and node.get("storageClass") != "static":
            result = node["type"]["qualType"].split("(")[0]
            api.functions[name] = Signature(plain_type(result), parameters(node))
        elif kind == "VarDecl":
            api.variables.add(name)
        elif kind == "TypedefDecl" and node["type"]["qualType"].startswith("struct "):
            api.structs[name] = fields
        elif kind == "TypedefDecl":
            typedefs[name] = plain_type(node["type"]["qualType"])
    api.enumerations = {name: to for name, to in typedefs.items() if to in ("NSInteger", "NSUInteger")}
    return api


def of_kind(node: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [child for child in node.get("inner", []) if child["kind"] == kind]


def parameters(node: dict[str, Any]) -> tuple[str, ...]:
    return tuple(plain_type(parameter_type(p["type"])) for p in of_kind(node, "ParmVarDecl"))


def parameter_type(type_: dict[str, str]) -> str:
    """Its name; of a block, what it stands for."""
    full = type_.get("desugaredQualType", "")
    return full if "(^" in full else type_["qualType"]


def enumerators(node: dict[str, Any], prefixes: str) -> dict[str, int]:
    """Those with such names; all of ours have a value."""
    ours = [child for child in of_kind(node, "EnumConstantDecl") if re.match(prefixes, child["name"])]
    return {child["name"]: constant(child) for child in ours}


def constant(node: dict[str, Any]) -> int:
    """The value that clang found for an enumerator, or for the expression in it."""
    return int(node["value"]) if node["kind"] == "ConstantExpr" else constant(node["inner"][0])


def add_owner(api: Api, node: dict[str, Any]) -> None:
    """Adds a class or protocol, if more than its name is declared."""
    bases = [base["name"] for base in [*node.get("protocols", []), node.get("super", {})] if "name" in base]
    if not bases and "inner" not in node:
        return
    name = node["name"]
    api.bases.setdefault(name, []).extend(bases)
    if node["kind"] == "ObjCProtocolDecl":
        api.protocols.add(name)
    for method in of_kind(node, "ObjCMethodDecl"):
        selector = "-+"[not method["instance"]] + method["name"]
        api.add_method(name, selector, Signature(plain_type(method["returnType"]["qualType"]), parameters(method)))
