"""Mangled names: the qualified name, the likely library and the string ABI."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from wheelfactory.wheel.elf.mangled import find_qualified_name, find_string_abi, guess_provider

NAMES = {
    "_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE": "c10::Error::Error",
    "_ZN3c105ErrorD0Ev": "c10::Error::~Error",
    "_ZNK2at6Tensor4sizeEl": "at::Tensor::size",
    "_ZN2at4_ops19empty_memory_format4callEN3c108ArrayRefINS2_6SymIntEEE": "at::_ops::empty_memory_format::call",
    "_ZTIN3c105ErrorE": "typeinfo for c10::Error",
    "_ZTVN5torch8autograd4NodeE": "vtable for torch::autograd::Node",
    "_Z19maybe_wrap_dim_slowllb": "maybe_wrap_dim_slow",
    "_ZNSt13runtime_errorC1EPKc": "std::runtime_error::runtime_error",
    "_ZSt9terminatev": "std::terminate",
    "_ZNSs7compareEPKc": "std::string::compare",
    "_ZNKR3c106Symbol14toUnqualStringB5cxx11Ev": "c10::Symbol::toUnqualString",
    "_ZdlPv": None,
    "_Z": None,
    "_ZN": None,
    "_ZN99999999x": None,
    "hipMalloc": None,
    "": None,
}


def test_find_qualified_name() -> None:
    for symbol, name in NAMES.items():
        assert find_qualified_name(symbol) == name


def test_qualified_names_agree_with_cxxfilt() -> None:
    if shutil.which("c++filt") is None:
        pytest.skip("binutils are not installed")
    names = {symbol: name for symbol, name in NAMES.items() if name and "std::string" not in name}
    output = subprocess.run(["c++filt", *names], capture_output=True, text=True, check=True).stdout

    for demangled, name in zip(output.splitlines(), names.values(), strict=True):
        assert demangled.startswith(name)


PROVIDERS: list[tuple[str, str]] = [
    ("_ZN3c105ErrorD0Ev", "torch"),
    ("_ZTIN3c105ErrorE", "torch"),
    ("_ZN5torch3jit5ParseEv", "torch"),
    ("THPVariableClass", "torch"),
    ("hipMalloc", "HIP"),
    ("__hipRegisterFatBinary", "HIP"),
    ("PyErr_Occurred", "Python"),
    ("_Py_Dealloc", "Python"),
    ("_ZNSt13runtime_errorC1EPKc", "unknown"),
    ("_ZN4attn3runEv", "unknown"),
    ("memcpy", "unknown"),
]


def test_guess_provider() -> None:
    for symbol, where in PROVIDERS:
        assert guess_provider(symbol) == where


STRING_ABIS: list[tuple[str, str | None]] = [
    ("_ZN3c105ErrorC1ENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE", "new"),
    ("_ZNK3c106Symbol14toUnqualStringB5cxx11Ev", "new"),
    ("_ZN3c105ErrorC1ESs", "old"),
    ("_ZN3c106detail14torchCheckFailEPKcS2_jRKSs", "old"),
    ("_ZN3c106detail14torchCheckFailEPKcS2_jS2_", None),
    ("_ZN3c107ClassSsC1Ev", None),
    ("_ZN3c105ErrorC1Ei", None),
    ("mySsfunction", None),
    ("_Z999999999999999999999999", None),
]


def test_find_string_abi() -> None:
    for symbol, abi in STRING_ABIS:
        assert find_string_abi(symbol) == abi
