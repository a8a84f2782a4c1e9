"""Mangled C++ names -> what a person calls the thing, far enough to say where a symbol comes from.

Only the qualified name is read (Itanium C++ ABI, section 5.1), not the parameters: two symbols of one qualified name
and other parameters are one function in two versions of a library, and that is what there is to explain.
"""

from __future__ import annotations

import re

_SPECIAL = {"TI": "typeinfo for ", "TS": "typeinfo name for ", "TV": "vtable for ", "TT": "VTT for "}
_STANDARD = {"St": "std", "Sa": "std::allocator", "Sb": "std::basic_string", "Ss": "std::string"}
_STANDARD |= {"Si": "std::istream", "So": "std::ostream", "Sd": "std::iostream"}
_HEAD = re.compile(r"_Z(?P<special>T[ISTV]|GV)?(?P<nested>N[VKr]*[RO]?)?")
_SKIPPED = re.compile(r"[ST][0-9A-Z]*_|(?P<length>[1-9]\d{0,5})")
"""A back reference, which has digits too, or the length before a name."""
_PART = re.compile(r"(?P<standard>S[tabsiod])|(?P<length>[1-9]\d*)|(?P<special>[CD][0-5])|L|B(?P<tag>[1-9]\d*)")


def find_qualified_name(symbol: str) -> str | None:
    """What a mangled name names, such as ``c10::Error::Error``; None if it is not mangled or cannot be read."""
    head = _HEAD.match(symbol)
    if head is None:
        return None
    parts: list[str] = []
    at = head.end()
    while match := _PART.match(symbol, at):
        at = match.end()
        if match["standard"]:
            parts.append(_STANDARD[match["standard"]])
        elif match["special"]:
            parts.append(("~" if match["special"][0] == "D" else "") + (parts[-1] if parts else ""))
        elif match["tag"]:
            at += int(match["tag"])
        elif match["length"]:
            end = at + int(match["length"])
            parts.append(symbol[at:end])
            at = end
        if not head["nested"] and match["length"]:
            break
    if not parts or len(symbol) < at:
        return None
    return _SPECIAL.get(head["special"] or "", "") + "::".join(parts)


def format_symbol(symbol: str) -> str:
    """A symbol for a person: its qualified name before it if it has one."""
    name = find_qualified_name(symbol)
    return f"{name} ({symbol})" if name else symbol


def find_string_abi(symbol: str) -> str | None:
    """The C++ ABI of the std::string or std::list that a symbol takes or gives, ``new`` or ``old``; None without one.

    They are those of ``_GLIBCXX_USE_CXX11_ABI=1`` and ``=0``.
    """
    if "__cxx11" in symbol or "B5cxx11" in symbol:
        return "new"
    return "old" if symbol.startswith("_Z") and "Ss" in _without_names(symbol) else None


def _without_names(symbol: str) -> str:
    """The codes between the names, each of which stands behind its length."""
    kept, at = "", 0
    while match := _SKIPPED.search(symbol, at):
        kept += symbol[at : match.start()] + "."
        at = match.end() + int(match["length"] or 0)
    return kept + symbol[at:]


_TORCH_NAMESPACES = ("c10", "at", "torch", "caffe2")


def guess_provider(symbol: str) -> str:
    """Where an unversioned symbol comes from, as far as its name tells: torch, HIP, Python or unknown."""
    name = find_qualified_name(symbol)
    if name is not None:
        for prefix in _SPECIAL.values():
            name = name.removeprefix(prefix)
        return "torch" if name.split("::")[0] in _TORCH_NAMESPACES else "unknown"
    if symbol.startswith(("hip", "__hip")):
        return "HIP"
    if symbol.startswith(("Py", "_Py")):
        return "Python"
    return "torch" if symbol.startswith(("THP", "aoti_torch_")) else "unknown"
