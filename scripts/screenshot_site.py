"""Take the screenshot of the search page in README.md, from the real matrix.yaml and example wheels.

    python scripts/screenshot_site.py [docs/pictures/search.png]

The page in the screenshot is marked as an example. Needs the test helpers for rows, and Debian's
chromium-headless-shell.
"""

from __future__ import annotations

import sys
from pathlib import Path
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from playwright.sync_api import Route

from search_page import chromium
from search_rows import example_rows
from wheelfactory.matrix.load import load_matrix
from wheelfactory.site.site import search_page_files

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs/pictures/search.png"
SITE = "https://example.org/"
QUERY = "?gpu=RX 7900 XTX&rocm=7.2"
SIZE = {"width": 1280, "height": 720}
MAX_BYTES = 150_000
MARK = """() => {
  const mark = document.createElement("p");
  mark.className = "small";
  mark.textContent = "Example: the wheels in this picture are made up.";
  document.querySelector(".top .wrap").append(mark);
}"""


def main(path: Path) -> None:
    """Write the screenshot as PNG."""
    matrix = load_matrix(ROOT / "matrix.yaml")
    files = search_page_files(matrix, example_rows(matrix), docs=True)

    def answer(route: Route) -> None:
        name = urlsplit(route.request.url).path.lstrip("/") or "index.html"
        kinds = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
        route.fulfill(body=files[name], content_type=kinds[Path(name).suffix])

    with chromium() as browser:
        page = browser.new_page(viewport=SIZE, color_scheme="light")
        page.route("**/*", answer)
        page.goto(SITE + QUERY)
        page.evaluate(MARK)
        path.parent.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=path)
    size = path.stat().st_size
    # README.md loads it on every visit
    assert size < MAX_BYTES, f"{path} has {size} bytes, the limit is {MAX_BYTES}"
    print(f"{path}: {size} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE)
