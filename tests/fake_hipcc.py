"""A hipcc whose objects show what they were made of. Each build starts it many times, so it imports little: pathlib
and subprocess would take twice as long as all the rest.

Variables: HIPCC_LOG, the file to log command lines in; HIPCC_DOES, a shell command that runs first and may fail, with
`source` and `output` set; HIPCC_CANNOT, words for what this compiler does in another way (see `main`). The option for
the new offload driver gives device code other bytes. A line ``#if defined(__gfx12__)`` leaves out a source's code for
the archs of other families.
"""

from __future__ import annotations

import os
import struct
import sys

from code_object_bytes import bundle, code_object

_NEW_DRIVER = "--offload-new-driver"
_VERSION = "clang version 19.0.0"
_SECTIONS = ("", ".text", ".rodata", ".hip_fatbin", ".shstrtab")


def main(argv: list[str]) -> None:
    """Run as hipcc. It "cannot" ``know`` an arch, ``bundle`` (the driver shows no bundler), ``precompile`` (refuses
    to), or make the ``same`` object from parts, ``even plain`` ones, or from ``empty`` sources."""
    program, *words = argv
    cannot = os.environ.get("HIPCC_CANNOT", "")
    if words == ["--version"]:
        print(_VERSION)
        return
    if "-###" in words:
        if "know" in cannot:
            print(f"error: invalid target ID '{_archs(words)[0]}'", file=sys.stderr)
        elif _NEW_DRIVER in words:
            print('"clang-linker-wrapper" "--linker-path=clang-offload-bundler" "--emit-fatbin-only"', file=sys.stderr)
        elif "bundle" not in cannot:
            print(_bundler_line(os.path.dirname(program), _archs(words)), file=sys.stderr)
        return
    if "-dM" in words:
        return
    if program.endswith("/clang-offload-bundler"):
        _bundle(words)
        return
    with open(os.environ.get("HIPCC_LOG", os.devnull), "a") as log:
        log.write(f"{' '.join(words)} append={os.environ.get('HIPCC_COMPILE_FLAGS_APPEND', '')}\n")
    output = words[words.index("-o") + (2 if "-emit-pch" in words else 1)]
    source = words[-1] if "-emit-pch" in words else words[words.index("-c") + 1]
    environ, code = {**os.environ, "source": source, "output": output}, 0
    if "HIPCC_DOES" in environ:
        code = os.spawnvpe(os.P_WAIT, "sh", ["sh", "-c", environ["HIPCC_DOES"]], environ)
    if code or ("-emit-pch" in words and "precompile" in cannot):
        sys.exit(code or 1)
    _write(output, _content(words, source, cannot))


def _content(words: list[str], source: str, cannot: str) -> bytes:
    source_text, comment = _read(source), f"// {_VERSION}\n".encode()
    text = source_text + comment
    is_part = any(word.startswith("--cuda-") for word in words)
    differs = b"?" * (is_part and "same" in cannot and ("-include-pch" in words or "plain" in cannot))
    kept, remaining = [], iter(words)
    for word in remaining:
        if word in ("-Xclang", "-c", "-o"):
            next(remaining)
        elif not word.startswith(("--offload", "--cuda", "--no-gpu", "-fmacro")):
            kept.append(word)
    flags = " ".join(kept).encode() + b"\n"
    device_flags = b" ".join(word for word in flags.split(b" ") if not word.startswith(b"-D_GLIBCXX"))
    differs += b"?" * (is_part and "empty" in cannot and not source_text)
    kernel = f"_Z6kernelI{os.path.basename(source).partition('.')[0]}Evv"
    code = {
        arch: code_object(
            arch,
            kernels=(kernel,) if _has_code(text, arch) and source_text else (),
            code=b" ".join([device_flags, text if _has_code(text, arch) else comment, differs]),
        )
        for arch in _archs(words)
    }
    has_device = not (os.path.basename(source).startswith("fmha_") and source.endswith("_api.hip"))
    if "--cuda-device-only" in words:
        return next(iter(code.values()))
    if "--cuda-host-only" in words:
        return _object(flags + text + differs, kernel, b"?" if has_device else None)
    appended = os.environ.get("HIPCC_COMPILE_FLAGS_APPEND", "").split()
    is_new = _NEW_DRIVER in (*words, *appended)
    return _object(flags + text, kernel, _fat_binary(code, "hip" if is_new else "hipv4") if has_device else None)


def _has_code(text: bytes, arch: str) -> bool:
    _, found, rest = text.decode().partition("defined(__gfx")
    return not found or arch.startswith(f"gfx{rest.partition('_')[0]}")


def _archs(words: list[str]) -> list[str]:
    return sorted(word.partition("=")[2] for word in words if word.startswith("--offload-arch="))


def _fat_binary(code: dict[str, bytes], kind: str = "hipv4") -> bytes:
    return bundle([("host-x86_64", b""), *((f"{kind}-amdgcn--{arch}", content) for arch, content in code.items())])


def _bundler_line(folder: str, archs: list[str]) -> str:
    targets = ",".join(["host-x86_64", *(f"hipv4-amdgcn--{arch}" for arch in archs)])
    inputs = [f"-input={path}" for path in ("/dev/null", *(f"/nowhere/of-{arch}" for arch in archs))]
    options = ("-type=o", "-bundle-align=4096", f"-targets={targets}")
    words = (f"{folder}/clang-offload-bundler", *options, *inputs, "-output=/nowhere/x")
    return " ".join(f'"{word}"' for word in words)


def _bundle(words: list[str]) -> None:
    values = [word.partition("=")[::2] for word in words]
    by_name = dict(values)
    inputs = [value for name, value in values if name == "-input"]
    host, *others = by_name["-targets"].split(",")
    names = [f"{host}-" if host.endswith("-gnu") else host, *others]  # LLVM 21 adds that dash
    entries = zip(names, map(_read, inputs))  # noqa: B905 - Python 3.9 too
    _write(by_name["-output"], bundle(entries, int(by_name["-bundle-align"])))


def _object(text: bytes, kernel: str, fat_binary: bytes | None) -> bytes:
    """An ELF object with these sections; without a fat binary there is no section for it, nor the name of a kernel."""
    names = [name for name in _SECTIONS if fat_binary is not None or name not in (".hip_fatbin", ".rodata")]
    table = b"\0".join(name.encode() for name in names) + b"\0"
    contents = {".text": (text, 16), ".rodata": (kernel.encode() + b"\0", 1)}
    contents |= {".hip_fatbin": (fat_binary or b"", 4096), ".shstrtab": (table, 1)}
    body, headers, at = bytearray(64), [bytes(64)], 1
    for name in names[1:]:
        content, alignment = contents[name]
        body += bytes(-len(body) % alignment)
        headers.append(struct.pack("<IIQQQQIIQQ", at, 1, 0, 0, len(body), len(content), 0, 0, alignment, 0))
        body += content
        at += len(name) + 1
    body += bytes(-len(body) % 8)
    numbers = (1, 62, 1, 0, 0, len(body), 0, 64, 0, 0, 64, len(headers), len(headers) - 1)
    start = struct.pack("<6s10xHHIQQQIHHHHHH", b"\x7fELF\x02\x01", *numbers)
    return bytes(start + body[64:] + b"".join(headers))


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _write(path: str, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)
