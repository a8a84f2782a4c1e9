"""The code owners review what runs with rights, and what decides which wheels are published."""

from __future__ import annotations

import re
from pathlib import Path

TREE = Path(__file__).parents[2]
OWNED = [line.split() for line in (TREE / ".github/CODEOWNERS").read_text().splitlines() if line[:1] not in ("", "#")]


def test_each_line_names_an_existing_path_from_the_root_and_an_owner() -> None:
    assert OWNED
    for path, *owners in OWNED:
        assert path.startswith("/")
        assert (TREE / path[1:]).is_dir() if path.endswith("/") else (TREE / path[1:]).is_file()
        assert owners
        assert all(re.fullmatch(r"@[\w/-]+", owner) for owner in owners)


def test_what_matters_has_an_owner() -> None:
    for path in (
        *(".github/workflows/build.yml", ".github/actions/setup/action.yml", ".github/CODEOWNERS", "factory"),
        *("matrix.yaml", "requirements/factory.txt", "scripts/propose_changes.py"),
        *("src/wheelfactory/release/transaction.py", "src/wheelfactory/verify/gates.py"),
    ):
        assert (TREE / path).is_file()
        assert any(f"/{path}".startswith(owned) if owned.endswith("/") else f"/{path}" == owned for owned, *_ in OWNED)
