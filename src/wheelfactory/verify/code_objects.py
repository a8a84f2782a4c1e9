"""Gate: there is device code for exactly the promised archs, in every bundle that has any."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from wheelfactory.elf.offload import Bundle, CodeObject
from wheelfactory.verify.gate import Subject
from wheelfactory.verify.result import Finding, GateResult

_LEAST_SHARE = 0.1
"""Of the arch with the most device code, what every other must have; kernels that were compiled away leave shells.

Source: the CK kernels of 2.8.3 compiled for three archs differ by a few per cent (docs/explanation/gates.md).
"""
_MOST = 20


def code_objects(subject: Subject) -> GateResult:
    """Compare the targets of each bundle with the archs that the build record promises.

    A bundle without any device code is of a source without kernels; it is counted, and only a wheel that has no
    other is refused for it.
    """
    if not subject.wheel.elf_files:
        return GateResult.not_run("code-objects", "there is no compiled file")
    promised = frozenset(subject.record.offload_archs)
    findings: list[Finding] = []
    device: list[Bundle] = []
    host_only = 0
    for elf in subject.wheel.elf_files:
        with_code = [bundle for bundle in elf.bundles if bundle.targets]
        host_only += len(elf.bundles) - len(with_code)
        device += with_code
        findings += _bundle_findings(elf.name, with_code, promised)
    sizes = sizes_by_target(device)
    if not device:
        findings.append(_nothing(subject, host_only))
    findings += _shells(subject, sizes)
    figures = {"bundles": len(device), "host-only bundles": host_only}
    figures |= {f"{target} bytes": size for target, size in sorted(sizes.items())}
    return GateResult.of("code-objects", findings[:_MOST], ", ".join(sorted(sizes)) or "none", figures=figures)


def sizes_by_target(bundles: Sequence[Bundle]) -> Counter[str]:
    """The bytes of device code for each target id."""
    sizes: Counter[str] = Counter()
    for bundle in bundles:
        for entry in bundle.entries:
            if entry.target and entry.size:
                sizes[str(entry.target)] += entry.size
    return sizes


def _bundle_findings(file: str, bundles: Sequence[Bundle], promised: frozenset[str]) -> Iterator[Finding]:
    for bundle in bundles:
        place = f"{file}, bundle at {bundle.offset}"
        if bundle.targets != promised:
            cure = "one object was compiled for other GPUs than the rest: clear the build folder and build again"
            yield Finding(file=place, expected=_text(promised), found=_text(bundle.targets), cure=cure)
        for entry in bundle.entries:
            if entry.target and entry.size and entry.arch != entry.target.arch:
                yield Finding(
                    file=place,
                    expected=f"a code object for {entry.target.arch} where the bundle says so",
                    found=_what(entry),
                    cure="the bundle was put together wrongly: clear the build folder and build again",
                )


def _what(entry: CodeObject) -> str:
    return f"one for {entry.arch}" if entry.arch else f"{entry.size} bytes that are no code object"


def _nothing(subject: Subject, host_only: int) -> Finding:
    return Finding(
        file=subject.wheel.path.name,
        expected=f"device code for {_text(frozenset(subject.record.offload_archs))}",
        found=f"none in {host_only} bundles" if host_only else "no .hip_fatbin section",
        cure="this is a build for the CPU: hipcc did not compile the kernels; read the build's log",
    )


def _shells(subject: Subject, sizes: Mapping[str, int]) -> Iterator[Finding]:
    most = max(sizes.values(), default=0)
    for target, size in sizes.items():
        if size < _LEAST_SHARE * most:
            yield Finding(
                file=subject.wheel.path.name,
                expected=f"about as much device code for {target} as for the others",
                found=f"{size:,} of {most:,} bytes",
                cure="the kernels of this arch were compiled away: does the release support it?",
            )


def _text(targets: frozenset[str]) -> str:
    return ", ".join(sorted(targets)) or "nothing"
