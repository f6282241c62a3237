# SPDX-License-Identifier: MIT
"""What an API in Objective-C declares, and how two accounts of one differ."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

SAME_TYPE = {"instancetype": "id", "bool": "BOOL", "NSObject*": "id", "_Object*": "id", "NSErrorDomain": "NSString*"}


def plain_type(text: str) -> str:
    """A type without what only one language has: `const MTL::Buffer *` and `id<MTLBuffer>` are both MTLBuffer*."""
    text = re.sub(r"\b(const|struct|class|_Nullable|_Nonnull|__autoreleasing|__strong)\b", "", text)
    text = re.sub(r"\b(MTL|NS)::(\w+)", r"\1\2", text)
    text = re.sub(r"\bid<(\w+)>", r"\1*", text).replace(" ", "")
    return SAME_TYPE.get(text, text)


@dataclass(frozen=True)
class Signature:
    """Of a method or function: the plain types of its result and of its parameters."""

    result: str
    parameters: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.result}({', '.join(self.parameters)})"


@dataclass
class Api:
    methods: dict[tuple[str, str], set[Signature]] = field(default_factory=dict)  # by owner, and selector behind + or -
    bases: dict[str, list[str]] = field(default_factory=dict)  # of every class and protocol
    protocols: set[str] = field(default_factory=set)
    functions: dict[str, Signature] = field(default_factory=dict)
    constants: dict[str, int] = field(default_factory=dict)
    variables: set[str] = field(default_factory=set)
    enumerations: dict[str, str] = field(default_factory=dict)  # to the underlying type
    structs: dict[str, tuple[str, ...]] = field(default_factory=dict)  # to "type name" of each field

    def add_method(self, owner: str, selector: str, signature: Signature) -> None:
        self.methods.setdefault((owner, selector), set()).add(signature)

    def signatures(self, owner: str, selector: str) -> set[Signature]:
        """Of the method in the owner or what it inherits from."""
        found = set(self.methods.get((owner, selector), set()))
        for base in self.bases.get(owner, []):
            found |= self.signatures(base, selector)
        return found


def differences(ours: Api, apples: Api) -> Iterator[str]:
    """A sentence for everything of ours that Apple's has otherwise, or not at all."""
    for name in ours.bases:
        if name not in apples.bases and name not in apples.protocols:
            yield f"{name} isn't there"
        elif (name in ours.protocols) != (name in apples.protocols):
            yield f"{name} is a {'protocol' if name in apples.protocols else 'class'}"
    for (owner, selector), signatures in ours.methods.items():
        theirs = apples.signatures(owner, selector)
        for signature in signatures - theirs:
            yield f"{selector[0]}[{owner} {selector[1:]}] is {words(theirs)}, not {signature}"
    for what in ("functions", "constants", "enumerations", "structs"):
        known = getattr(apples, what)
        for name, value in getattr(ours, what).items():
            if known.get(name) != value:
                yield f"{name} is {known.get(name)}, not {value}"
    for name in ours.variables - apples.variables:
        yield f"{name} isn't there"


def words(signatures: set[Signature]) -> str:
    return " or ".join(map(str, signatures)) or "nothing"
