"""Execute the Python lines of a page with tiny models, and print the attention of each model as JSON.

    python -B page_lines.py PAGE FOLDER

The folder gets a Llama, and in it a Flux transformer. In the lines it replaces MODEL.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent))

from frameworks import make_flux  # type: ignore[import-not-found]
from tiny_models import MODELS, claim_a_gpu, make_model  # type: ignore[import-not-found]


def main(page: str, folder: str) -> None:
    """Execute each block of Python as a program of its own."""
    claim_a_gpu()
    make_model(MODELS["llama"], "eager", "float32", "cpu").save_pretrained(folder)
    make_flux().save_pretrained(f"{folder}/transformer")
    found = []
    for block in re.findall(
        r"^```python\n(.*?)^```$", Path(page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    ):
        names: dict[str, Any] = {}
        exec(block.replace('"MODEL"', repr(folder)), names)  # noqa: S102
        model = names["model"]
        backends = {module.processor._attention_backend for module in model.modules() if hasattr(module, "processor")}
        found.append(backends.pop().value if backends else model.config._attn_implementation)
    sys.stdout.write(f"\n{json.dumps(found)}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
