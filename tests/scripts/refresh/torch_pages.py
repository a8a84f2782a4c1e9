"""PyTorch's indexes on loopback: pages of links as PEP 503 has them, and their faults; facts of newer releases."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote

from loopback import Handler, answering
from small_matrix import Edit

FACTS = """\
  '{}':
    python: ['3.12', '3.11']
    triton: '3.6.0'
    triton-package: triton-rocm
    cxx11-abi: true
    platform: manylinux_2_28_x86_64
    source: build matrix of torch
"""


def known(*releases: str) -> Edit:
    """Facts of torch releases newer than those of the small matrix, newest first."""
    return "torch:\n  '2.9.1'", "torch:\n" + "".join(map(FACTS.format, releases)) + "  '2.9.1'"


LINKS = "<!DOCTYPE html><html><body><h1>Links for torch</h1>{}</body></html>"


class TorchPages:
    """PEP 503 pages on loopback as PyTorch serves them: ``/whl/rocmX/torch/``."""

    def __init__(self) -> None:
        self.files: dict[str, list[str]] = {}
        """ROCm -> names of the files on its page; without any the answer is 404."""
        self.bodies: dict[str, bytes] = {}
        """ROCm -> what to answer instead of a page."""
        self.kind = "text/html"
        self.status: dict[str, int] = {}
        self.yanked: set[str] = set()
        self.asked: list[str] = []
        self.url = ""

    def have(self, rocm: str, torch: str, *pythons: str, platform: str = "manylinux_2_28_x86_64") -> None:
        """Have a torch release for a ROCm and some Pythons."""
        for python in pythons:
            tag = f"cp{python.replace('.', '')}"
            self.files.setdefault(rocm, []).append(f"torch-{torch}+rocm{rocm}-{tag}-{tag}-{platform}.whl")

    def page(self, rocm: str) -> bytes:
        links = (
            f'<a href="/whl/rocm{rocm}/{quote(name)}#sha256={"0" * 64}"'
            f"{' data-yanked' if name in self.yanked else ''}>{name}</a><br/>\n"
            for name in self.files[rocm]
        )
        return LINKS.format("".join(links)).encode()


class _Handler(Handler):
    pages: TorchPages
    protocol_version = "HTTP/1.1"

    def serve(self) -> None:
        pages = self.pages
        pages.asked.append(self.path)
        rocm = self.path.removeprefix("/whl/rocm").removesuffix("/torch/")
        if rocm in pages.status or rocm not in pages.files:
            status, body = pages.status.get(rocm, 404), b"no"
        else:
            status, body = 200, pages.bodies.get(rocm) or pages.page(rocm)
        self.answer(status, body, {"Content-Type": pages.kind})


@contextmanager
def serving_pages() -> Iterator[TorchPages]:
    """An index on loopback, empty; `url` is its address."""
    made = TorchPages()
    with answering(_Handler, pages=made) as url:
        made.url = f"{url}/whl"
        yield made
