"""Turn an instruction of the table into closures: readers and writers for its operands, and its modifiers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from wheelfactory.emulator import vector
from wheelfactory.emulator.assembly import Instruction
from wheelfactory.emulator.families import Family, clears_high_half
from wheelfactory.emulator.findings import NotRunError
from wheelfactory.emulator.lanes import DPP_MODIFIERS, Permutation, integers, select_part, write_part
from wheelfactory.emulator.operands import Operand
from wheelfactory.emulator.readers import Reader, Source, scalar_reader, vector_reader
from wheelfactory.emulator.table import IMPLICIT, Semantics, flush_denormals
from wheelfactory.emulator.wave import EXEC, VCC, Wave, to_lanes, to_mask
from wheelfactory.emulator.writers import Writer, scalar_writer, vector_writer

_SDWA = ("sdwa", "dst_sel", "dst_unused", "src0_sel", "src1_sel")
_PACKED = ("op_sel", "op_sel_hi", "neg_lo", "neg_hi")
_FLOATS = {"f32": np.float32, "f16": np.float16, "f32x2": np.float32, "f16x2": np.float16}
_FACTORS = {"mul:2": 2.0, "mul:4": 4.0, "div:2": 0.5}


@dataclass(frozen=True)
class Step:
    """An instruction of the table in two halves, because dual instructions read everything before they write."""

    compute: Callable[[Wave], Any]
    store: Writer


class StepDecoder:
    """The readers and writers of one instruction of the table."""

    def __init__(
        self, instruction: Instruction, semantics: Semantics, operands: list[Operand], family: Family, *, flush: bool
    ) -> None:
        self._name, self._modifiers, self._family = instruction.name, dict(instruction.modifiers), family
        # a move keeps every bit
        self._semantics, self._flush = semantics, flush and instruction.name != "v_pk_mov_b32"
        self._is_scalar = instruction.name.startswith("s_") or instruction.name.startswith("v_s_")
        explicit = [kind for kind in semantics.results if kind not in IMPLICIT]
        if self._name.startswith("v_cmpx") and family.generation == 9:
            explicit = ["mask"]
        self._results, self._sources = operands[: len(explicit)], operands[len(explicit) :]
        wanted = [kind for kind in semantics.inputs if kind not in IMPLICIT]
        if len(self._sources) == len(wanted) - 1 and wanted[-1] == "mask":
            self._sources.append(Operand("s", VCC, 2))  # a dual instruction does not name it
        if len(self._sources) != len(wanted):
            raise NotRunError(f"{len(self._sources)} operands")
        used = {"clamp", "mul", "div", "bitop3", *_SDWA, *_PACKED, *DPP_MODIFIERS}
        if set(self._modifiers) - used:
            raise NotRunError(f"modifier {', '.join(set(self._modifiers) - used)}")
        has_dpp = any(name in self._modifiers for name in DPP_MODIFIERS)
        self._dpp = Permutation(self._modifiers, family.wave_size) if has_dpp else None

    def decode(self) -> Step:
        """Return the two halves of the instruction."""
        return Step(self._compute(self._readers()), self._store(self._writers()))

    def _selection(self, name: str, default: int) -> list[int]:
        return integers(self._modifiers[name]) if name in self._modifiers else [default] * 4

    def _readers(self) -> list[Reader]:
        explicit = enumerate(self._sources)
        return [
            self._implicit_reader(kind) if kind in IMPLICIT else self._reader(*next(explicit), kind)
            for kind in self._semantics.inputs
        ]

    def _reader(self, position: int, operand: Operand, kind: str) -> Reader:
        if self._is_scalar:
            return scalar_reader(operand, kind, flush=self._flush)
        return vector_reader(operand, kind, self._source(position, operand, kind))

    def _implicit_reader(self, kind: str) -> Reader:
        if kind == "old":
            result, form = self._results[0], self._semantics.results[0]
            if self._is_scalar:
                return scalar_reader(result, form, flush=self._flush)
            return vector_reader(result, form, Source(flush=self._flush))
        return {
            "scc": lambda w: w.scc,
            "exec": lambda w: w.scalar_mask(EXEC),
            "lanes": lambda w: w.mask,
            "vcc": lambda w: to_lanes(w.scalar_mask(VCC), w.size),
        }[kind]

    def _source(self, position: int, operand: Operand, kind: str) -> Source:
        """Return how an operand is read, by the modifiers of the instruction."""
        if not self._modifiers and not operand.signed:
            return Source(flush=self._flush)
        transform: Callable[[Wave, Any], Any] | None = None
        if self._dpp and position == 0:
            if operand.kind != "v" or kind not in ("u32", "i32", "f32", "b32"):
                raise NotRunError("DPP of this operand")
            transform = self._dpp.read
        if "sdwa" in self._modifiers and position < 2 and operand.kind == "v":
            transform = select_part(self._modifiers.get(f"src{position}_sel", "DWORD"), signed=operand.signed)
        elif operand.signed:
            raise NotRunError("sext")
        low, high = (self._selection(name, default)[position] for name, default in (("op_sel", 0), ("op_sel_hi", 1)))
        mixed = bool(high) and "op_sel_hi" in self._modifiers
        negated = tuple(self._selection(name, 0)[position] for name in ("neg_lo", "neg_hi"))
        if any(negated) and "x2" not in kind:
            raise NotRunError("neg_lo")
        if low and not (kind in ("u16", "i16", "f16", "mix") or "x2" in kind):
            raise NotRunError("op_sel")
        return Source(transform, bool(low), mixed, (low, high), (negated[0], negated[1]), self._flush)

    def _compute(self, readers: list[Reader]) -> Callable[[Wave], Any]:
        compute = self._adjusted(self._semantics.compute)
        a, b, c = (*readers, readers[0], readers[0])[:3]
        if len(readers) == 1:
            return lambda w: compute(a(w))
        if len(readers) == 2:
            return lambda w: compute(a(w), b(w))
        if len(readers) == 3:
            return lambda w: compute(a(w), b(w), c(w))
        return lambda w: compute(*(read(w) for read in readers))

    def _adjusted(self, compute: Callable[..., Any]) -> Callable[..., Any]:
        """Add what modifiers do to a result of floats: a factor, and a clamp to 0 to 1, which makes NaN 0."""
        texts = [f"{name}:{self._modifiers[name]}" for name in ("mul", "div") if name in self._modifiers]
        clamp = "clamp" in self._modifiers and self._name not in vector.SATURATING
        if not texts and not clamp:
            return compute
        form = _FLOATS.get(self._semantics.results[0])
        if form is None or len(self._semantics.results) != 1 or set(texts) - set(_FACTORS):
            raise NotRunError("a modifier of the result")
        factor = form(_FACTORS[texts[0]] if texts else 1)

        def adjusted(*values: Any) -> Any:
            result = compute(*values) * factor
            return np.fmin(np.fmax(result, form(0)), form(1)) if clamp else result

        return adjusted

    def _writers(self) -> list[Writer]:
        explicit, write = iter(self._results), scalar_writer if self._is_scalar else self._vector_writer
        return [
            self._implicit_writer(kind) if kind in IMPLICIT else self._flushing(write(next(explicit), kind), kind)
            for kind in self._semantics.results
        ]

    def _vector_writer(self, operand: Operand, kind: str) -> Writer:
        selection = self._selection("op_sel", 0)
        high = kind in ("f16", "u16", "i16") and len(selection) > len(self._sources) and selection[len(self._sources)]
        high = bool(high) or self._name == "v_fma_mixhi_f16"
        if self._modifiers.get("dst_sel", "DWORD") != "DWORD":
            return self._part_writer(operand, kind)
        clears = "sdwa" in self._modifiers or clears_high_half(self._family, self._name)
        write = vector_writer(operand, kind, high=high, zero_high=clears and not high)
        return self._dpp.writing(write) if self._dpp else write

    def _flushing(self, write: Writer, kind: str) -> Writer:
        if kind not in ("f32", "f32x2", "sf32") or not self._flush:
            return write
        return lambda w, value: write(w, value if w.denormals & 2 else flush_denormals(value))

    def _part_writer(self, operand: Operand, kind: str) -> Writer:
        merge = write_part(operand.index, self._modifiers["dst_sel"], self._modifiers["dst_unused"])
        write = vector_writer(operand, "u32")
        forms = {"f16": np.uint16, "u16": np.uint16, "i16": np.uint16, "u32": np.uint32, "b32": np.uint32}
        if kind not in forms:
            raise NotRunError("dst_sel")
        return lambda w, value: write(w, merge(w, value.view(forms[kind]).astype(np.uint32)))

    def _implicit_writer(self, kind: str) -> Writer:
        if kind == "scc":

            def write_scc(w: Wave, value: Any) -> None:
                w.scc = int(value)

            return write_scc
        if kind == "exec":
            return lambda w, value: w.set_exec(value)
        mask = vector_writer(self._results[0], "mask") if self._results else None

        def write_lanes(w: Wave, value: Any) -> None:
            lanes = value & w.mask
            if mask:
                mask(w, lanes)
            w.set_exec(to_mask(lanes))

        return write_lanes

    def _store(self, writers: list[Writer]) -> Writer:
        if len(writers) == 1:
            return writers[0]

        def store(w: Wave, values: tuple[Any, ...]) -> None:
            for write, value in zip(writers, values, strict=True):
                write(w, value)

        return store
