"""Parse mangled C++ names far enough to explain which library a symbol comes from.

Only the qualified name is parsed (Itanium C++ ABI, section 5.1), not the parameters: two symbols with the same
qualified name and different parameters are usually one function in two versions of a library.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

_SPECIAL = {"TI": "typeinfo for ", "TS": "typeinfo name for ", "TV": "vtable for ", "TT": "VTT for "}
_STANDARD = {"St": "std", "Sa": "std::allocator", "Sb": "std::basic_string", "Ss": "std::string"}
_STANDARD |= {"Si": "std::istream", "So": "std::ostream", "Sd": "std::iostream"}
_HEAD = re.compile(r"_Z(?P<special>T[ISTV]|GV)?(?P<nested>N[VKr]*[RO]?)?")
# a back reference (whose digits are not a length), or the length before a name
_SKIPPED = re.compile(r"[ST][0-9A-Z]*_|(?P<length>[1-9]\d{0,5})")
_PART = re.compile(r"(?P<standard>S[tabsiod])|(?P<length>[1-9]\d*)|(?P<special>[CD][0-5])|L|B(?P<tag>[1-9]\d*)")


def find_qualified_name(symbol: str) -> str | None:
    """Return the qualified name, such as ``c10::Error::Error``; None if the symbol is unsupported or not mangled."""
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
        if not head["nested"] and match["length"]:  # an unscoped name ends here; its parameters follow
            break
    if not parts or len(symbol) < at:  # a length beyond the end: not a C++ name after all
        return None
    return _SPECIAL.get(head["special"] or "", "") + "::".join(parts)


def format_symbol(symbol: str) -> str:
    """Format a symbol for a message: ``QUALIFIED NAME (SYMBOL)``, or the symbol alone."""
    name = find_qualified_name(symbol)
    return f"{name} ({symbol})" if name else symbol


def find_missing(needed: Iterable[str], defined: Collection[str]) -> str:
    """Return the first of the `needed` symbols that is not defined, as `format_symbol` writes it; empty if all are."""
    return next((format_symbol(symbol) for symbol in needed if symbol not in defined), "")


def find_string_abi(symbol: str) -> str | None:
    """Return the ABI of std::string and std::list in the symbol's signature; None if it uses neither.

    ``new`` is ``_GLIBCXX_USE_CXX11_ABI=1``, ``old`` is ``=0``.
    """
    if "__cxx11" in symbol or "B5cxx11" in symbol:
        return "new"
    return "old" if symbol.startswith("_Z") and "Ss" in _drop_names(symbol) else None


def _drop_names(symbol: str) -> str:
    """Remove the length-prefixed names, so that only the type codes remain."""
    kept, at = "", 0
    while match := _SKIPPED.search(symbol, at):
        kept += symbol[at : match.start()] + "."
        at = match.end() + int(match["length"] or 0)
    return kept + symbol[at:]


def guess_provider(symbol: str) -> str:
    """Guess from its name where an unversioned symbol comes from: torch, HIP, Python or unknown."""
    name = find_qualified_name(symbol)
    if name is not None:
        for prefix in _SPECIAL.values():
            name = name.removeprefix(prefix)
        return "torch" if name.split("::")[0] in ("c10", "at", "torch", "caffe2") else "unknown"
    if symbol.startswith(("hip", "__hip")):
        return "HIP"
    if symbol.startswith(("Py", "_Py")):
        return "Python"
    # torch's C functions: Python bindings, and the stable C ABI of AOTInductor
    return "torch" if symbol.startswith(("THP", "aoti_torch_")) else "unknown"
