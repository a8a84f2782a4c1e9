"""Device code is compared byte by byte with the kernel set of the build record, where that is on this machine."""

from __future__ import annotations

import hashlib
import random
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from code_object_bytes import code_object
from elf_factory import hip_bundle, section
from kernel_archive_factory import PARTS, fill, proof_of
from wheel_factory import CK, MATRIX, build_record, extension_name, finished_wheel, payload, small_machine
from wheelfactory.core.errors import InputError
from wheelfactory.kernels.archive import pack_archive
from wheelfactory.kernels.compiler.store import SetKey, Store
from wheelfactory.kernels.compiler.targets import HOST
from wheelfactory.kernels.kernel_set import sets_of_cell
from wheelfactory.kernels.setup_env import store_folder
from wheelfactory.kernels.source_list import SourceList, write_source_list
from wheelfactory.verify.code_objects import check_code_objects
from wheelfactory.verify.gate import Subject
from wheelfactory.verify.result import GateResult, Status
from wheelfactory.wheel.elf.image import ElfImage
from wheelfactory.wheel.elf.read import FATBIN
from wheelfactory.wheel.read import Wheel

ARCHS = MATRIX.archs(CK)
SOURCES = ("fmha_bwd_d64", "fmha_fwd_d64")
CODE = {
    arch: {name: code_object(arch, kernels=(f"_Z{len(name)}{name}v",), code=b"code") for name in SOURCES}
    for arch in ARCHS
}
BINDING = {arch: code_object(arch, kernels=("_Z7bindingv",)) for arch in ARCHS}


@pytest.fixture
def key(tmp_path: Path) -> str:
    """The key of a kernel set whose parts are in the stores of this machine."""
    parts = [SetKey({**PARTS, "targets": [target]}, SOURCES) for target in (*ARCHS, HOST)]
    for part, target in zip(parts, (*ARCHS, HOST), strict=True):
        fill(store_folder(tmp_path), CODE.get(target, dict.fromkeys(SOURCES, b"host")), part)
        fill(store_folder(tmp_path), {}, SetKey({**PARTS, "targets": [target], "flags": ["-O0"]}, SOURCES))  # another
    return hashlib.sha256("\n".join(part.digest for part in parts).encode()).hexdigest()


def bundles(*changed: tuple[str, str, bytes]) -> list[bytes]:
    """A bundle for each source, with changed code objects: source, arch, bytes."""
    code = {source: {arch: CODE[arch][source] for arch in ARCHS} for source in SOURCES}
    for source, arch, content in changed:
        code[source][arch] = content
    return [hip_bundle(objects=each) for each in code.values()]


def check(
    folder: Path, key: str | None, *more: bytes, made: list[bytes] | None = None, archives: Path | None = None
) -> GateResult:
    """Run the gate on a wheel of these bundles."""
    record, members = build_record(CK, kernels=key), payload(CK, fatbin=section(*(made or bundles()), *more))
    wheel = Wheel.open(finished_wheel(folder / "wheel", record=record, members=members))
    return check_code_objects(Subject(wheel, small_machine(folder), record=record, cell=CK, archives=archives))


@pytest.fixture
def archives(tmp_path: Path, key: str) -> Path:
    """The archives of that set, one of them in two shards, on a machine without its stores."""
    folder, sets = tmp_path / "archives", sets_of_cell(MATRIX, CK)
    for set_id, target in zip(sets, (*ARCHS, HOST), strict=True):
        store = Store(store_folder(tmp_path), SetKey({**PARTS, "targets": [target]}, SOURCES))
        if target == ARCHS[0]:
            for number, source in enumerate(SOURCES, 1):
                pack_archive(store, set_id, folder, f"{number}/2", [source])
        else:
            executed = {f"kernel of {source}": source for source in SOURCES}
            proof = proof_of(set_id, store.key, archs=(target,), executed=executed) if target != HOST else None
            pack_archive(store, set_id, folder, None, proof=proof)
    shutil.rmtree(store_folder(tmp_path))
    return folder


def test_what_an_emulator_executed_of_the_kernels_is_known_of_their_wheel(
    tmp_path: Path, key: str, archives: Path
) -> None:
    figures = check(tmp_path, key, archives=archives).figures
    assert (figures[f"{ARCHS[1]} executed"], figures[f"{ARCHS[1]} kernels"]) == (2, 3)
    assert f"{ARCHS[0]} executed" not in figures, "its shards have no proof"


def test_a_wheel_of_kernels_that_computed_something_wrong_is_refused(tmp_path: Path, key: str, archives: Path) -> None:
    store = fill(tmp_path / "stores", CODE[ARCHS[1]], SetKey({**PARTS, "targets": [ARCHS[1]]}, SOURCES))
    set_id = sets_of_cell(MATRIX, CK)[1]
    proof = proof_of(set_id, store.key, archs=(ARCHS[1],), faults=("kernel: store outside the buffers",))
    pack_archive(store, set_id, archives, None, proof=proof)
    with pytest.raises(InputError, match=r"compute something wrong: .*store outside"):
        check(tmp_path, key, archives=archives)


def test_a_wheel_that_names_other_kernels_than_the_archives_is_refused(
    tmp_path: Path, key: str, archives: Path
) -> None:
    for other in (None, "0" * 64):
        (finding,) = check(tmp_path, other, archives=archives).findings
        assert (finding.file, finding.found) == ("build record kernels", str(other))
    next(archives.glob("*.shard-2-of-2*")).unlink()
    assert check(tmp_path, key, archives=archives).status is Status.FAILED, "a set that is not complete"


def test_one_bit_of_one_kernel_names_its_source(tmp_path: Path, key: str) -> None:
    arch, source = ARCHS[0], SOURCES[1]
    damaged = CODE[arch][source].replace(b"code", b"codd")  # no name tells

    result = check(tmp_path, key, made=bundles((source, arch, damaged)))

    (finding,) = result.findings
    assert finding.expected == f"the code of all 2 kernel sources for {arch}, byte for byte as in the kernel set"
    assert finding.found == f"1 missing or changed, such as that of {source}"


def test_sources_may_be_in_another_order_beside_the_kernels_of_the_bindings_and_damaged_stores(
    tmp_path: Path, key: str
) -> None:
    """A bundle registers its own kernels, whatever object it came from; those of the bindings are in no set."""
    other_key = '{"format": 2, "key": 1, "parts": {"targets": ["gfx942"]}, "sources": []}'
    for name, text in (("empty", ""), ("other", "[]"), ("half", '{"key": 1'), ("key", other_key)):
        (store_folder(tmp_path) / name).mkdir()
        (store_folder(tmp_path) / name / "set.json").write_text(text)

    result = check(tmp_path, key, hip_bundle(objects=BINDING), made=bundles()[::-1])
    assert (result.status, result.findings) == (Status.PASSED, ())
    assert result.detail.endswith("the bytes of its kernel set")


def test_without_the_set_nothing_is_compared_and_the_result_says_so(tmp_path: Path, key: str) -> None:
    for other in (None, "0" * 64, key[::-1]):
        result = check(tmp_path, other)
        assert (result.status, result.detail.partition("; ")[2]) == (
            Status.PASSED,
            "its kernel set is not on this machine",
        )
    for journal in store_folder(tmp_path).glob("*/journal.jsonl"):
        journal.write_text("")
    assert check(tmp_path, key).detail.endswith("its kernel set is not on this machine")


@pytest.mark.parametrize(
    ("guards", "status"),
    [({}, Status.FAILED), ({SOURCES[0]: "defined(__gfx942__)"}, Status.PASSED), (None, Status.PASSED)],
)
def test_an_arch_lacks_the_kernels_of_a_source_only_if_sources_have_guards(
    tmp_path: Path, guards: Mapping[str, str] | None, status: Status
) -> None:
    """Without the list of sources, nobody knows."""
    release = MATRIX.flash_attn[CK.flash_attn]
    if guards is not None:
        listed = SourceList(sources=SOURCES, total_bytes=1, digest="0" * 64, guards=guards)
        write_source_list(listed, release.source_pin, tmp_path)
    shell = (SOURCES[0], "gfx90a", code_object("gfx90a", kernels=()))

    assert check(tmp_path, None, made=bundles(shell)).status is status


def test_any_other_bit_of_device_code_or_its_registrations_is_seen(tmp_path: Path, key: str) -> None:
    good = payload(CK, fatbin=section(*bundles()))
    image = ElfImage(good[extension_name()])
    device, rows = image.find_section(FATBIN), image.find_section(b".hipFatBinSegment")
    assert device and rows
    places = list(range(device.offset, device.offset + device.size))
    # the loader does not read what is where it writes an address
    places += [rows.offset + at for at in range(rows.size) if at % 24 not in range(8, 16)]
    draw = random.Random(43)  # noqa: S311 - the same places each time

    for place in draw.sample(places, 150):
        data = bytearray(image.data)
        data[place] ^= 1 << draw.randrange(8)
        members = {**good, extension_name(): bytes(data)}
        wheel = Wheel.open(finished_wheel(tmp_path / "wheel", record=build_record(CK, kernels=key), members=members))
        subject = Subject(wheel, small_machine(tmp_path), record=build_record(CK, kernels=key), cell=CK)
        try:
            result = check_code_objects(subject)
        except InputError:
            continue
        assert result.status is Status.FAILED, place
