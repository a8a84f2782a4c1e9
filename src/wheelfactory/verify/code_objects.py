"""Gate: host code registers exactly the kernels whose device code the wheel has, for exactly the promised archs.

Where the kernel set of the build record is on this machine, or its archives are given, the device code must be its,
byte for byte; so the proof in an archive, of what an emulator executed, is about the wheel too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice, product
from pathlib import Path

from wheelfactory.kernels.archive import find_archives, read_archive_manifest
from wheelfactory.kernels.compiler.request import join_keys
from wheelfactory.kernels.compiler.store import ObjectRecord, SetKey, Store
from wheelfactory.kernels.compiler.targets import HOST
from wheelfactory.kernels.kernel_set import Proof, require_proof, sets_of_cell
from wheelfactory.kernels.setup_env import store_folder
from wheelfactory.kernels.source_list import find_cached_list
from wheelfactory.verify.gate import Subject
from wheelfactory.verify.result import MAX_FINDINGS, Finding, GateResult, join_names, show_difference
from wheelfactory.wheel.elf.code_object import TRIPLE
from wheelfactory.wheel.elf.offload import PLAIN_FORM, Bundle, sum_device_code
from wheelfactory.wheel.elf.read import ElfFile

# minimum device code of an arch as a share of the largest arch; kernels that were compiled away leave empty shells.
# Source: CK kernels of 2.8.3 for gfx90a, gfx942 and gfx950 differ by 10 % at most
_MIN_SHARE = 0.1

# how clang names the entries of a bundle: that of the host, and the kinds of device code. The HIP runtime knows only
# `hipv4` in compressed bundles. Source: LLVM, "Clang Offload Bundler"; bundles of clang 21. The first name of the host
# is that of older compilers of ROCm, and was not seen
_HOSTS = ("host-x86_64-unknown-linux--", "host-x86_64-unknown-linux-gnu-")
_KINDS = {True: ("hip", "hipv4"), False: ("hipv4",)}

_AGAIN = "clear the build folder and build again"


def check_code_objects(subject: Subject) -> GateResult:
    """Compare bundles with the build record's archs, and their kernels with those that host code registers."""
    if not subject.wheel.elf_files:
        return GateResult.not_run("code-objects", "no compiled file in the wheel")
    archs = subject.record.offload_archs
    listed = find_cached_list(subject.matrix.flash_attn[subject.cell.flash_attn], subject.cache, archs)
    may_lack = listed is None or bool(listed.guards)
    findings: list[Finding] = []
    bundles: list[Bundle] = []
    kernels: set[str] = set()
    for elf in subject.wheel.elf_files:
        findings += _bundle_findings(elf, frozenset(archs))
        findings += _registration_findings(elf)
        findings += _kernel_findings(elf, archs, may_lack=may_lack)
        bundles += elf.bundles
        kernels |= elf.registration.kernels
    sizes = {target: code.size for target, code in sum_device_code(bundles).items()}
    if not bundles:
        remedy = "this is a CPU build: read the build's log to see why hipcc did not compile the kernels"
        expected = f"device code for {join_names(sorted(archs))}"
        findings.append(Finding(subject.wheel.path.name, expected, "no bundle in a .hip_fatbin section", remedy))
    findings += _shells(subject, sizes)
    kernel_set = find_kernel_set(_kernel_parts(subject), subject.record.kernels or "", archs)
    if kernel_set:
        findings += find_foreign_code(subject.wheel.path.name, bundles, kernel_set)
    elif subject.archives:
        expected, found = f"the key of the kernel sets in {subject.archives}", str(subject.record.kernels)
        findings.append(Finding("build record kernels", expected, found, "link it from these archives"))
    figures = {"bundles": len(bundles), "kernels": len(kernels)}
    figures |= {f"{target} bytes": size for target, size in sizes.items()}
    for arch, part in (kernel_set or {}).items():
        if part.proof:
            figures |= {f"{arch} kernels": part.proof.kernels, f"{arch} executed": len(part.proof.executed)}
    compared = "the bytes of its kernel set" if kernel_set else "its kernel set is not on this machine"
    detail = f"{', '.join(sizes) or 'none'}; {compared}"
    return GateResult.from_findings("code-objects", findings[:MAX_FINDINGS], detail, figures=figures)


def _kernel_parts(subject: Subject) -> Iterator[SetPart]:
    if subject.archives:
        return parts_in_archives(subject.archives, sets_of_cell(subject.matrix, subject.cell))
    return parts_in_stores(store_folder(subject.cache))


def _bundle_findings(elf: ElfFile, archs: frozenset[str]) -> Iterator[Finding]:
    for bundle in elf.bundles:  # a compiler writes one bundle for each source with device code, with an entry per arch
        place = f"{elf.name}, bundle at {bundle.offset}"
        if bundle.targets != archs:
            remedy = f"one object was compiled for other GPUs than the rest: {_AGAIN}"
            yield Finding(place, *show_difference(sorted(archs), sorted(bundle.targets)), remedy)
        for found in _wrong_ids(bundle):
            expected = f"one empty entry of the host, and hipv4-{TRIPLE}--ARCH once for each arch"
            yield Finding(place, expected, found, f"no compiler names them so: {_AGAIN}")
        for entry in bundle.entries:
            if entry.target and entry.fault:
                expected = f"a whole code object for {entry.target}"
                remedy = f"the ids in the bundle are wrong, or its code is damaged: {_AGAIN}"
                yield Finding(place, expected, f"{entry.size} bytes: {entry.fault}", remedy)
    if elf.packages or elf.relocatable_kernels:  # an ordinary linker drops such code, and reports nothing
        expected = "no device code that waits for a device link"
        found = f"{len(elf.packages)} offload packages, {elf.relocatable_kernels} kernels of relocatable device code"
        remedy = "objects were compiled with -fgpu-rdc: compile all with -fno-gpu-rdc"
        yield Finding(elf.name, expected, found, remedy)


def _wrong_ids(bundle: Bundle) -> Iterator[str]:
    """Yield what is wrong with the ids of a bundle."""
    hosts = [entry for entry in bundle.entries if entry.id in _HOSTS]
    if len(hosts) != 1 or hosts[0].size:
        yield f"{len(hosts)} entries of the host, of {sum(entry.size for entry in hosts)} bytes"
    kinds = _KINDS[bundle.form == PLAIN_FORM]
    for name, count in Counter(entry.id for entry in bundle.entries if entry.id not in _HOSTS).items():
        kind, _, rest = name.partition("-")
        if count > 1 or kind not in kinds or not rest.startswith(f"{TRIPLE}--"):
            yield f"{name}, {count} times" if count > 1 else name


def _registration_findings(elf: ElfFile) -> Iterator[Finding]:
    rows = sorted(-1 if row is None else row for row in elf.registration.bundles)
    if rows != [bundle.offset for bundle in elf.bundles]:
        expected = f"a registration for each of {len(elf.bundles)} bundles, by its address"
        pointing = set(rows) & {bundle.offset for bundle in elf.bundles}
        found = f"{len(rows)} registrations, which point to {len(pointing)} of them"
        # the start-up code of an object without device code still registers one
        remedy = "objects were compiled for the host only, or not by a HIP compiler: read the build's log"
        yield Finding(elf.name, expected, found, remedy)


def _kernel_findings(elf: ElfFile, archs: tuple[str, ...], *, may_lack: bool) -> Iterator[Finding]:
    """Compare the kernels of each arch with the names in host code.

    With `may_lack`, an arch may lack all kernels of a bundle: upstream's newer generator writes sources for single GPU
    families, whose code a guard leaves out for the others. The list of sources of this release says whether any has a
    guard; without that list it may.
    """
    registered, remedy = elf.registration.kernels, f"host code and device code are not of one build: {_AGAIN}"
    present: dict[str, set[str]] = {arch: set() for arch in archs}
    for bundle in elf.bundles:
        every = {name for entry in bundle.entries for name in entry.kernels}
        for entry in bundle.entries:
            kernels = every if may_lack and entry.target and not entry.kernels else set(entry.kernels)
            present.setdefault(str(entry.target), set()).update(kernels if entry.target else ())
    for arch in archs if elf.bundles else ():
        for names, what in ((registered - present[arch], "lacks"), (present[arch] - registered, "has beside them")):
            if names:
                expected = f"the {len(registered)} kernels that host code names, for {arch}"
                found = f"it {what} {len(names)}, such as {min(names)[:200]}"
                yield Finding(elf.name, expected, found, remedy)


def _shells(subject: Subject, sizes: Mapping[str, int]) -> Iterator[Finding]:
    most = max(sizes.values(), default=0)
    for target, size in sizes.items():
        if size < _MIN_SHARE * most:
            expected = f"about as much device code for {target} as for the others"
            remedy = "the kernels of this arch were compiled away: remove the arch from matrix.yaml if unsupported"
            yield Finding(subject.wheel.path.name, expected, f"{size:,} of {most:,} bytes", remedy)


# parts of one arch and of host code; a cache has a few of each
_MAX_COMBINATIONS = 10_000


@dataclass(frozen=True)
class SetPart:
    """The objects of some kernels for one target."""

    key: SetKey
    read: Callable[[], Mapping[str, ObjectRecord]]
    """Returns the records of the objects that are there, by source."""
    proof: Proof | None = None
    """Which of its kernels were executed; None in stores."""


def parts_in_stores(kernels: Path) -> Iterator[SetPart]:
    """Yield what the folder of stores has."""
    for path in kernels.glob("*/set.json"):
        with suppress(OSError, ValueError, LookupError, TypeError):  # being written, or of another format
            key = SetKey.from_bytes(path.read_bytes())
            yield SetPart(key, Store(kernels, key).read_records)


def parts_in_archives(folder: Path, set_ids: Iterable[str]) -> Iterator[SetPart]:
    """Yield what the archives of these sets have, all shards of a set as one.

    Raises `InputError` for a damaged archive, and as `require_proof` does for one with a proof.
    """
    for set_id in set_ids:
        shards: dict[str, SetKey] = {}
        objects: dict[str, dict[str, ObjectRecord]] = {}
        proofs: dict[str, Proof] = {}
        for manifest in map(read_archive_manifest, find_archives(folder, set_id)):
            shards[manifest.key] = manifest.set_key
            objects.setdefault(manifest.key, {}).update(manifest.objects)
            if manifest.proof:
                require_proof(set_id, manifest.set_key, manifest.proof)
                proofs[manifest.key] = manifest.proof
        for key, found in objects.items():
            yield SetPart(shards[key], found.copy, proofs.get(key))


def find_kernel_set(parts: Iterable[SetPart], key: str, archs: Sequence[str]) -> Mapping[str, SetPart] | None:
    """Return the parts of the kernel set of this key (`join_keys`), by arch; None unless they have all of it.

    Objects that were compiled as a whole, not by arch, are not found.
    """
    by_targets: dict[tuple[str, ...], list[SetPart]] = {}
    for part in parts:
        with suppress(LookupError, TypeError):  # not a key of ours
            by_targets.setdefault(tuple(part.key.parts["targets"]), []).append(part)
    choices = [by_targets.get((target,), []) for target in (*archs, HOST)]
    for chosen in islice(product(*choices), _MAX_COMBINATIONS):
        if join_keys(part.key.digest for part in chosen) == key:
            by_arch = dict(zip(archs, chosen, strict=False))
            return by_arch if all(len(part.read()) == len(part.key.sources) for part in by_arch.values()) else None
    return None


def find_foreign_code(file: str, bundles: Sequence[Bundle], kernel_set: Mapping[str, SetPart]) -> Iterator[Finding]:
    """Yield a finding for each arch in whose device code a code object of the kernel set is missing or changed.

    A wheel has more code than the set: the bindings' own kernels, which are compiled anew for each wheel.
    """
    remedy = "the wheel was not linked from its kernel set, or was changed since: build it again"
    for arch, part in kernel_set.items():
        digests = {name: entry.sha256 for name, entry in part.read().items()}
        found = Counter(entry.sha256 for bundle in bundles for entry in bundle.entries if str(entry.target) == arch)
        if missing := Counter(digests.values()) - found:
            first = min(source for source, digest in digests.items() if digest in missing)
            expected = f"the code of all {len(digests)} kernel sources for {arch}, byte for byte as in the kernel set"
            what = f"{missing.total()} missing or changed, such as that of {first}"
            yield Finding(file, expected, what, remedy)
