"""A symbol that the loader did not find -> what flash-attn was built against."""

from __future__ import annotations

from wheelfactory.doctor.diagnosis import TAKE_FITTING, Diagnosis, dotted, install_torch, numbers, shown_torch
from wheelfactory.doctor.machine import Installed, Machine
from wheelfactory.doctor.origin import built_for_torch, built_with_cxx11_abi, rocm_of_its_torch, shown
from wheelfactory.wheel.elf.mangled import provider, readable, string_abi


def explain_symbol(machine: Machine, installed: Installed, symbol: str) -> Diagnosis | None:
    """Why `symbol` is undefined; None if neither it nor flash-attn tells enough.

    That flash-attn is for another torch is certain; a symbol of torch alone says only that it is not for this one.
    """
    said = f"`undefined symbol: {readable(symbol)}`"
    return (
        _another_torch(machine, installed, said)
        or _another_abi(machine, installed, symbol, said)
        or _another_library(machine, installed, symbol, said)
    )


def _another_torch(machine: Machine, installed: Installed, said: str) -> Diagnosis | None:
    built = built_for_torch(installed)
    have = numbers(machine.torch.version) if machine.torch else None
    if built is None or have is None or built[0] == have:
        return None
    wanted, source = built
    what = (
        f"{shown(installed)} was built for torch {dotted(wanted)} (as {source} says), "
        f"you have {shown_torch(machine)}: {said}"
    )
    rocm = rocm_of_its_torch(installed)
    instead = f"; or keep it and install its torch: {install_torch(machine, wanted, rocm)}" if rocm else ""
    return Diagnosis("another torch", what, TAKE_FITTING + instead)


def _another_abi(machine: Machine, installed: Installed, symbol: str, said: str) -> Diagnosis | None:
    """The C++ ABI of a wheel is that of the strings in its symbols: torch for ROCm has the new one from 2.6 on."""
    has = machine.torch.cxx11_abi if machine.torch else None
    abi = string_abi(symbol)
    wants = built_with_cxx11_abi(installed) if abi is None else abi == "new"
    if has is None or wants is None or has == wants:
        return None
    what = (
        f"{shown(installed)} was built with the {_abi(wants)} C++ ABI (_GLIBCXX_USE_CXX11_ABI={int(wants)}), "
        f"{shown_torch(machine)} has the {_abi(has)} one ({int(has)}): {said}"
    )
    return Diagnosis("another C++ ABI", what, TAKE_FITTING)


def _abi(new: bool) -> str:
    return "new" if new else "old"


def _another_library(machine: Machine, installed: Installed, symbol: str, said: str) -> Diagnosis | None:
    kind = provider(symbol)
    if kind == "torch":
        what = f"{shown(installed)} was built against another torch than {shown_torch(machine)}: {said}"
        return Diagnosis("another torch", what, TAKE_FITTING)
    if kind == "HIP":
        what = f"{shown(installed)} was built against another ROCm than the one that {shown_torch(machine)} has: {said}"
        return Diagnosis("another ROCm", what, TAKE_FITTING)
    if kind == "Python":
        what = f"{shown(installed)} was built for another Python than {machine.python.version}: {said}"
        return Diagnosis("another Python", what, TAKE_FITTING)
    return None
