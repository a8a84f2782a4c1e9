"""The module whose functions flash-attn calls, and which of them a program reaches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any


def find_backend(interface: Any) -> Any:
    """Return the backend of the module flash_attn.flash_attn_interface. Its name is flash_attn_cuda up to 2.6.3."""
    return getattr(interface, "flash_attn_gpu", None) or interface.flash_attn_cuda


@contextmanager
def counting_calls(module: Any, functions: Iterable[str]) -> Iterator[Counter[str]]:
    """Count the calls of functions of a module during the block, by the defining module: `flash_attn_2_cuda.fwd`."""
    calls: Counter[str] = Counter()
    originals = {name: getattr(module, name) for name in functions}
    for name, function in originals.items():

        def counted(*arguments: Any, _function: Any = function, _name: str = name, **options: Any) -> Any:
            calls[f"{_function.__module__}.{_name}"] += 1
            return _function(*arguments, **options)

        setattr(module, name, counted)
    try:
        yield calls
    finally:
        for name, function in originals.items():
            setattr(module, name, function)
