# SPDX-License-Identifier: MIT
"""What Apple's headers for C++, metal-cpp, declare of Metal and Foundation.

They are regular enough for regular expressions.
"""

import ast
import operator
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from api import Api, Signature, plain_type

DEFINITION = re.compile(
    r"^_(?:MTL|NS)_INLINE (?P<result>[^\n]+?) ?\b(?P<space>MTL|NS)::(?P<class>\w+)::\w+\((?P<parameters>[^\n]*)\)"
    r"(?: const)?\n\{\n(?P<body>.*?)^\}",
    re.MULTILINE | re.DOTALL,
)
TEMPLATE_DEFINITION = re.compile(r"^template <class [^\n]*>\n(?=_NS_INLINE)", re.MULTILINE)
MESSAGE = re.compile(r"sendMessage(?:Safe)?<[^;]*?>\((?P<to>[^,]*), _(?:MTL|NS)_PRIVATE_SEL\((?P<selector>\w+)\)")
SELECTOR = re.compile(r'_(?:MTL|NS)_PRIVATE_DEF_SEL\(\s*(\w+),\s*"([^"]+)"')
PROTOCOL = re.compile(r"_(?:MTL|NS)_PRIVATE_DEF_PRO\((\w+)\)")
CLASS = re.compile(r"^(?:class|struct) (\w+) : public (?:NS::)?\w+<\w+(?:, (?:(NS)::)?(\w+))?[^\n]*>$", re.MULTILINE)
ENUM = re.compile(r"_(?:MTL|NS)_(?:ENUM|OPTIONS)\(([\w:]+), (\w+)\)\s*\{(.*?)\};", re.DOTALL)
CONST = re.compile(r"_(?:MTL|NS)_CONST\([\w:]+, (\w+)\);")
STRUCT = re.compile(r"^struct (\w+)\n\{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
FUNCTION = re.compile(r'^extern "C" (\S+) +(\w+)\((.*)\);', re.MULTILINE)


def read(folder: Path) -> Api:
    """What the folder metal_cpp of MLX's wheel declares."""
    api = Api()
    texts = {space: read_all(folder / part) for space, part in {"NS": "Foundation", "MTL": "Metal"}.items()}
    selectors = {name: text for source in texts.values() for name, text in SELECTOR.findall(source)}
    for space, text in texts.items():
        api.protocols |= set(PROTOCOL.findall(text))
        for name, base_space, base in CLASS.findall(text):
            api.bases[space + name] = [(base_space or space) + base] if base else []
        for match in DEFINITION.finditer(TEMPLATE_DEFINITION.sub("", text)):
            add_definition(api, match, selectors)
        for result, name, types in FUNCTION.findall(text):
            api.functions[name] = Signature(plain_type(result), tuple(map(plain_type, split_parameters(types))))
        api.variables |= {space + name for name in CONST.findall(text)}
        for underlying, name, body in ENUM.findall(text):
            api.enumerations[space + name] = qualified(space, underlying)
            add_enumerators(api, space, body)
        for name, body in STRUCT.findall(text):
            api.structs[space + name] = tuple(
                f"{qualified(space, type_)} {member}"
                for type_, member in re.findall(r"^ +(\S+) +(\w+);$", body, re.MULTILINE)
            )
    return api


def read_all(folder: Path) -> str:
    return "\n".join(path.read_text() for path in sorted(folder.glob("*.hpp")))


def qualified(space: str, text: str) -> str:
    """The plain type; names of Apple's own namespace may stand there without it."""
    text = re.sub(r"(?<![:\w])(MTL|NS)::", r"\1", text)
    return plain_type(re.sub(r"\b(?!(?:MTL|NS|Class|SEL|CF)\w*\b)([A-Z]\w+)", rf"{space}\1", text))


def split_parameters(text: str) -> Iterator[str]:
    """The types in a list of C++ parameters; the parameters' names go."""
    for parameter in re.split(r",\s*(?![^(]*\))", text):
        if block := re.fullmatch(r"(.*\(\^)\w*(\)\(.*\))", parameter):
            yield block[1] + block[2]
        elif parameter:
            yield re.sub(r"(?<=[\w*&>]) *\b\w+$", "", parameter) if re.search(r"[\s*&]\w+$", parameter) else parameter


def add_definition(api: Api, match: re.Match[str], selectors: dict[str, str]) -> None:
    space, owner = match["space"], match["space"] + match["class"]
    api.bases.setdefault(owner, [])
    if message := MESSAGE.search(match["body"]):
        selector = ("+" if "_PRIVATE_CLS" in message["to"] else "-") + selectors[message["selector"]]
        types = tuple(qualified(space, type_) for type_ in split_parameters(match["parameters"]))
        api.add_method(owner, selector, Signature(qualified(space, match["result"]), types))


def add_enumerators(api: Api, space: str, body: str) -> None:
    values: dict[str, int] = {}
    last = -1
    for entry in filter(None, (entry.strip() for entry in re.sub(r"//.*", "", body).split(","))):
        name, _, expression = (part.strip() for part in entry.partition("="))
        last = evaluated(expression, values) if expression else last + 1
        values[name] = last
    api.constants |= {space + name: value for name, value in values.items()}


def evaluated(expression: str, names: dict[str, int]) -> int:
    """The value of an expression of C with numbers, names, and a few operators."""
    expression = re.sub(r"\bNS::UIntegerMax\b|\bUIntegerMax\b", str(2**64 - 1), expression)
    expression = re.sub(r"\bNS::IntegerMax\b", str(2**63 - 1), expression)
    expression = re.sub(
        r"\b[A-Za-z_]\w*", lambda name: str(names[name[0]]), re.sub(r"(?<=[0-9a-fA-F])[uUlL]+\b", "", expression)
    )
    return calculated(ast.parse(expression, mode="eval").body)


OPERATORS = {ast.LShift: operator.lshift, ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.Add: operator.add}


def calculated(node: ast.expr) -> int:
    if isinstance(node, ast.Constant):
        return int(node.value)  # type: ignore[arg-type]
    if isinstance(node, ast.UnaryOp):
        return -calculated(node.operand)
    assert isinstance(node, ast.BinOp), ast.dump(node)
    operation: Callable[[int, int], int] = OPERATORS[type(node.op)]
    return operation(calculated(node.left), calculated(node.right))
