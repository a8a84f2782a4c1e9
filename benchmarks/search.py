"""What a change of a filter costs on the search page, in a real browser, with 400 to 20,000 wheels.

    python benchmarks/search.py

Each of eight changes is made five times and the fastest kept; the figure is the median of the eight, of finding,
counting, making the elements and laying them out (which reading a height forces). Load is the time from the request to
the first list. Wheels are the cells of matrix.yaml over and over, with other build tags. Needs Debian's chromium.

Measured, Chromium 156, two shared cores, November 2026: 400 wheels load in 0.36 s and change in 13 ms; 5,000 (1.3 MB of
data, 271 kB gzipped) in 0.52 s and 16 ms; 20,000 in 1.2 s and 26 ms.
"""

from __future__ import annotations

import gzip
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from playwright.sync_api import Browser

from search_page import chromium, serving, write_page
from search_rows import many_rows
from wheelfactory.matrix.load import load_matrix

RUNS = 5
CHANGES = ("rocm-6.4", "rocm-7.2", "backend-ck", "torch-2.13.0", "python-3.12", "rocm-any", "torch-any", "python-any")
CHANGE = """(ids) => ids.map((id) => {
  const before = performance.now();
  document.getElementById(id).click();
  document.body.offsetHeight;
  return performance.now() - before;
})"""
LOADED = "performance.getEntriesByName('filter')[0].startTime + performance.getEntriesByName('filter')[0].duration"


def main() -> None:
    """Print a line for each number of wheels."""
    matrix = load_matrix(Path(__file__).resolve().parents[1] / "matrix.yaml")
    print("wheels    data   gzipped    load  change")
    with chromium() as browser:
        for wheels in (400, 5_000, 20_000):
            with TemporaryDirectory() as name:
                folder = write_page(Path(name), matrix, many_rows(matrix, wheels))
                data = (folder / "search/data.js").read_bytes()
                with serving(folder) as address:
                    load, change = measure(browser, address)
            sizes = f"{len(data) / 1e3:4.0f} kB {len(gzip.compress(data)) / 1e3:6.0f} kB"
            print(f"{wheels:6} {sizes} {load:4.0f} ms {change:4.0f} ms")


def measure(browser: Browser, address: str) -> tuple[float, float]:
    """Milliseconds until the first list is there, and of a change."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(address)
    load = page.evaluate(LOADED)
    runs = [page.evaluate(CHANGE, list(CHANGES)) for _ in range(RUNS)]
    page.close()
    return load, median(map(min, zip(*runs, strict=True)))


if __name__ == "__main__":
    main()
