"""Take the screenshot of the search page in README.md, from the release directory that README's command makes.

    python scripts/screenshot_site.py wheelhouse [docs/pictures/search.png]

Nothing in the picture is made up. Needs the test helpers, and Debian's chromium-headless-shell.
"""

from __future__ import annotations

import sys
from pathlib import Path
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from playwright.sync_api import Route

from search_page import chromium

PICTURE = Path(__file__).resolve().parents[1] / "docs/pictures/search.png"
SITE = "http://localhost:8000/"
QUERY = "?gpu=RX 7900 XTX&rocm=7.2"
SIZE = {"width": 1280, "height": 720}
MAX_BYTES = 150_000


def main(site: Path, path: Path) -> None:
    """Write the screenshot of the release directory `site` as PNG."""

    def answer(route: Route) -> None:
        file = site / (urlsplit(route.request.url).path.lstrip("/") or "index.html")
        if file.is_file():
            route.fulfill(path=file)
        else:
            route.fulfill(status=404)

    with chromium() as browser:
        page = browser.new_page(viewport=SIZE, color_scheme="light")
        page.route("**/*", answer)
        page.goto(SITE + QUERY)
        page.locator(".card").first.wait_for()
        path.parent.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=path)
    size = path.stat().st_size
    # README.md loads it on every visit
    assert size < MAX_BYTES, f"{path} has {size} bytes, the limit is {MAX_BYTES}"
    print(f"{path}: {size} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else PICTURE)
