"""A chore's changes become a pull request: real git, a bare repository as origin, and a gh that records its calls."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from scripts.git_server import serving_git
from wheelfactory.core.files import ROOT

pytestmark = pytest.mark.slow

SCRIPT = ROOT / "scripts/propose_changes.py"
TOKEN = "ghs_neverInALog"  # noqa: S105 (opens nothing: the stand-in alone knows it)
URL = "https://github.com/owner/name/pull/7"
GH = """\
#!/bin/sh
printf '%s\\n' "$@" >> "$STATE/gh"
[ "$GH_TOKEN" = "$(cat "$STATE/token")" ] || exit 4
case "$2" in
  list) cat "$STATE/open" ;;
  create)
    for argument; do case "$argument" in --body-file=*) cp "${argument#--body-file=}" "$STATE/body" ;; esac; done
    [ ! -e "$STATE/no-create" ] || { echo "pull request create failed: not permitted" >&2; exit 1; }
    echo https://github.com/owner/name/pull/7 ;;
esac
"""
GIT = """\
#!/bin/sh
echo "$*" >> "$STATE/git"
case "$*" in *"credential"*) ;; *) echo "$1 ${GH_TOKEN:+token}" >> "$STATE/git-tokens" ;; esac
if [ "$1" = push ] && [ -x "$STATE/before-push" ]; then "$STATE/before-push"; fi
exec "$REAL_GIT" "$@"
"""


class Checkout:
    """A checkout on its main branch, its origin, and programs that record."""

    def __init__(self, folder: Path, made: Path | None = None) -> None:
        """Copy the checkout and the origin of the folder `made`, or create them."""
        self.folder, self.tree, self.origin = folder, folder / "tree", folder / "srv/origin.git"
        self.state, self.bin = folder / "state", folder / "bin"
        for path in (self.state, self.bin, self.origin.parent):
            path.mkdir()
        self.environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "GH_", "GITHUB_"))},
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "HOME": str(folder),
            "GIT_CONFIG_NOSYSTEM": "1",
            "STATE": str(self.state),
            "REAL_GIT": str(shutil.which("git")),
            "GH_TOKEN": TOKEN,
        }
        (self.state / "token").write_text(TOKEN)
        self.opened()
        self.program("gh", GH)
        self.program("git", GIT)
        if made:
            shutil.copytree(made / "srv", folder / "srv", dirs_exist_ok=True)
            shutil.copytree(made / "tree", self.tree)
            config = self.tree / ".git/config"
            config.write_text(config.read_text().replace(str(made), str(folder)))
        else:
            self._create()

    def _create(self) -> None:
        folder = self.folder
        self.git("init", "--quiet", "--bare", "--initial-branch=main", str(self.origin), cwd=folder)
        self.git("clone", "--quiet", str(self.origin), str(self.tree), cwd=folder)
        for name, text in (("matrix.yaml", "a: 1\n"), ("docs/packages.md", "none\n"), ("src/code.py", "1\n")):
            self.write(name, text)
        self.git("add", "--all")
        self.git("-c", "user.name=me", "-c", "user.email=me@here", "commit", "--quiet", "-m", "first")
        self.git("push", "--quiet", "origin", "HEAD:main")

    def program(self, name: str, text: str) -> None:
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def opened(self, *requests: tuple[str, bool]) -> None:
        """The open pull requests: address, and whether it comes from a fork."""
        found = [{"url": url, "isCrossRepository": fork} for url, fork in requests]
        (self.state / "open").write_text(json.dumps(found))

    def write(self, name: str, text: str) -> None:
        (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
        (self.tree / name).write_text(text)

    def git(self, *arguments: str, cwd: Path | None = None) -> str:
        command = [self.environ["REAL_GIT"], *arguments]
        done = subprocess.run(
            command, cwd=cwd or self.tree, env=self.environ, capture_output=True, text=True, check=True
        )
        return done.stdout

    def at_origin(self, *arguments: str) -> str:
        return self.git(*arguments, cwd=self.origin)

    def branches(self) -> list[str]:
        return self.at_origin("branch", "--format=%(refname:short)").split()

    def changed(self, branch: str = "refresh") -> list[str]:
        """The files that the last commit of a branch at origin changed."""
        return self.at_origin("diff", "--name-only", "-z", f"{branch}^", branch).split("\0")[:-1]

    def propose(
        self, *arguments: str, environ: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, SCRIPT, *(arguments or ("refresh", "main", "Refresh it"))],
            cwd=cwd or self.tree,
            env={**self.environ, **(environ or {})},
            capture_output=True,
            text=True,
        )
        assert "Traceback" not in done.stderr
        assert TOKEN not in done.stdout + done.stderr
        return done

    def gh(self) -> list[str]:
        """All arguments that gh was called with."""
        called = self.state / "gh"
        return called.read_text().splitlines() if called.exists() else []


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Checkout(tmp_path_factory.mktemp("made")).folder


@pytest.fixture
def checkout(made: Path, tmp_path: Path) -> Checkout:
    return Checkout(tmp_path, made)


def test_without_changes_of_the_matrix_or_the_docs_nothing_is_pushed_or_asked(checkout: Checkout) -> None:
    checkout.write("src/code.py", "2\n")
    done = checkout.propose()
    assert (done.returncode, done.stdout) == (0, "no changes: nothing to propose\n")
    assert checkout.branches() == ["main"]
    assert checkout.gh() == []


def test_a_change_is_pushed_and_a_pull_request_opened(checkout: Checkout) -> None:
    checkout.write("matrix.yaml", "a: 2\n")
    done = checkout.propose()
    assert (done.returncode, done.stdout) == (0, f"opened {URL}\n"), done.stderr
    assert checkout.at_origin("show", "refresh:matrix.yaml") == "a: 2\n"
    assert checkout.at_origin("rev-parse", "refresh^") == checkout.at_origin("rev-parse", "main")
    created = checkout.gh()[checkout.gh().index("create") :]
    assert created[1:4] == ["--head=refresh", "--base=main", "--title=Refresh it"]
    body = (checkout.state / "body").read_text()
    assert "\n     matrix.yaml | 2 +-\n" in body
    assert "GitHub starts no workflow" in body
    assert "close and reopen this pull request" in body
    bot = "github-actions[bot] 41898282+github-actions[bot]@users.noreply.github.com"
    assert checkout.at_origin("log", "-1", "--format=%an %ae%n%cn %ce%n%B", "refresh").split("\n")[:3] == [
        bot,
        bot,
        "Refresh it",
    ]
    assert TOKEN not in (checkout.state / "git").read_text() + "\n".join(checkout.gh())
    lines = (checkout.state / "git-tokens").read_text().splitlines()
    assert {line for line in lines if line.endswith(" token")} == {"ls-remote token", "push token"}


def test_only_the_matrix_and_the_docs_are_proposed(checkout: Checkout) -> None:
    """Includes new and deleted files, and no leftovers of a run; the checkout itself stays as it is."""
    hostile = "docs/a\\b[*.md"
    for name in ("matrix.yaml", "docs/new/page.md", hostile, "src/code.py", "src/new.py", "matrix.yaml.old"):
        checkout.write(name, "changed\n")
    checkout.git("add", "matrix.yaml")
    checkout.write("docs/ignored.pyc", "")
    checkout.write(".git/info/exclude", "*.pyc\n")
    (checkout.tree / "docs/packages.md").unlink()
    looks = ("status", "--porcelain", "--branch"), ("rev-parse", "HEAD"), ("branch", "--format=%(refname:short)")
    before = [checkout.git(*look) for look in looks]
    done = checkout.propose()
    assert done.returncode == 0
    assert [checkout.git(*look) for look in looks] == before
    assert checkout.changed() == sorted([hostile, "docs/new/page.md", "docs/packages.md", "matrix.yaml"])
    assert done.stderr == "not proposed: src/code.py\n"


def test_it_works_from_a_folder_without_a_branch_and_with_settings_of_git_in_the_environment(
    checkout: Checkout,
) -> None:
    """Those settings are counted, and the ones for the token come after."""
    checkout.git("checkout", "--quiet", "--detach")
    checkout.write("matrix.yaml", "a: 2\n")
    own = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "remote.origin.url", "GIT_CONFIG_VALUE_0": str(checkout.origin)}
    checkout.git("config", "--unset", "remote.origin.url")
    assert checkout.propose(cwd=checkout.tree / "src", environ=own).returncode == 0
    assert checkout.changed() == ["matrix.yaml"]


def test_an_open_pull_request_is_updated_and_no_second_one_opened(checkout: Checkout) -> None:
    checkout.write("matrix.yaml", "a: 2\n")
    checkout.propose()
    checkout.opened((URL, False))
    first = checkout.at_origin("rev-parse", "refresh")
    assert checkout.propose().returncode == 0
    assert checkout.at_origin("rev-parse", "refresh") == first, "the same changes push nothing"
    checkout.git("update-ref", "-d", "refs/remotes/origin/refresh")  # next week's runner has never seen the branch
    checkout.write("matrix.yaml", "a: 3\n")
    done = checkout.propose()
    assert (done.returncode, done.stdout) == (0, f"updated {URL}\n")
    assert checkout.at_origin("show", "refresh:matrix.yaml") == "a: 3\n"
    assert checkout.at_origin("rev-parse", "refresh^") == checkout.at_origin("rev-parse", "main")
    assert checkout.gh().count("create") == 1


def test_a_branch_changed_by_someone_else_is_not_overwritten(checkout: Checkout) -> None:
    checkout.write("matrix.yaml", "a: 2\n")
    checkout.propose()
    mover = checkout.state / "before-push"
    mover.write_text(f'#!/bin/sh\n"$REAL_GIT" --git-dir="{checkout.origin}" branch --force refresh main\n')
    mover.chmod(0o755)
    checkout.write("matrix.yaml", "a: 3\n")
    done = checkout.propose()
    assert done.returncode == 1
    assert done.stderr.startswith("error: command failed: git push ")
    assert "stale info" in done.stderr
    assert checkout.at_origin("rev-parse", "refresh") == checkout.at_origin("rev-parse", "main")


def test_branches_with_the_same_suffix_and_pull_requests_of_forks_are_not_ours(checkout: Checkout) -> None:
    """Anyone can name a branch of a fork as ours is named."""
    checkout.git("push", "--quiet", "origin", "HEAD:refs/heads/a/refs/heads/refresh")
    checkout.opened(("https://github.com/owner/name/pull/5", True))
    checkout.write("matrix.yaml", "a: 2\n")
    assert checkout.propose().stdout == f"opened {URL}\n"
    assert checkout.changed() == ["matrix.yaml"]
    assert checkout.at_origin("rev-parse", "a/refs/heads/refresh") == checkout.at_origin("rev-parse", "main")


def test_a_push_that_is_refused_is_an_error_and_opens_nothing(checkout: Checkout) -> None:
    hook = checkout.origin / "hooks/pre-receive"
    hook.write_text("#!/bin/sh\necho protected branch\nexit 1\n")
    hook.chmod(0o755)
    checkout.write("matrix.yaml", "a: 2\n")
    done = checkout.propose()
    assert done.returncode == 1
    assert "protected branch" in done.stderr
    assert "\nhint: check the connection to origin, and that the token can write" in done.stderr
    assert "create" not in checkout.gh()


def test_a_pull_request_that_is_refused_is_an_error(checkout: Checkout) -> None:
    (checkout.state / "no-create").touch()
    checkout.write("matrix.yaml", "a: 2\n")
    done = checkout.propose()
    assert done.returncode == 1
    assert "not permitted" in done.stderr
    assert "settings let Actions create pull requests" in done.stderr


@pytest.mark.parametrize("answer", ["[{}]", "no json"])
def test_unexpected_output_of_gh_is_an_error_before_a_push(checkout: Checkout, answer: str) -> None:
    (checkout.state / "open").write_text(answer)
    checkout.write("matrix.yaml", "a: 2\n")
    done = checkout.propose()
    assert done.returncode == 1
    assert done.stderr.startswith("error: unexpected output of gh: ")
    assert checkout.branches() == ["main"]


@pytest.mark.parametrize("missing", ["gh", "git"])
def test_a_missing_program_is_named_and_nothing_is_pushed(checkout: Checkout, missing: str) -> None:
    checkout.write("matrix.yaml", "a: 2\n")
    (checkout.bin / missing).unlink()
    done = checkout.propose(environ={"PATH": str(checkout.bin)})
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: cannot run: {missing} (No such file or directory)\nhint: install it")
    assert checkout.branches() == ["main"]


def test_without_a_token_nothing_is_pushed(checkout: Checkout) -> None:
    checkout.write("matrix.yaml", "a: 2\n")
    done = checkout.propose(environ={"GH_TOKEN": ""})
    assert done.returncode == 1
    assert done.stderr.startswith("error: no token: GH_TOKEN is not set\n")
    assert checkout.branches() == ["main"]


@pytest.mark.parametrize("branch", ["main", "refs/../main"])
def test_an_invalid_branch_is_refused(checkout: Checkout, branch: str) -> None:
    checkout.write("matrix.yaml", "a: 2\n")
    assert checkout.propose(branch, "main", "Refresh it").returncode == 1
    assert checkout.gh() == []
    assert checkout.at_origin("show", "main:matrix.yaml") == "a: 1\n"
    assert checkout.branches() == ["main"]


def test_outside_of_a_checkout_it_is_an_error(checkout: Checkout) -> None:
    done = checkout.propose(cwd=checkout.folder)
    assert done.returncode == 1
    assert "not a git repository" in done.stderr


def test_only_the_github_server_gets_the_token(checkout: Checkout) -> None:
    checkout.write("matrix.yaml", "a: 2\n")
    checkout.git("config", "credential.helper", "!f() { echo username=me; echo password=mine; }; f")
    with serving_git(checkout.origin.parent, TOKEN) as server:
        checkout.git("--git-dir", str(checkout.origin), "config", "http.receivepack", "true")
        checkout.git("remote", "set-url", "origin", f"{server.url}/origin.git")
        done = checkout.propose(environ={"GITHUB_SERVER_URL": server.url})
        assert (done.returncode, checkout.changed()) == (0, ["matrix.yaml"]), done.stderr
        assert all(line.endswith(" None") for line in server.refused)
        server.refused.clear()
        done = checkout.propose(environ={"GITHUB_SERVER_URL": "http://127.0.0.2"})
        assert done.returncode == 1
        assert "terminal prompts disabled" in done.stderr
        assert all(line.endswith(" None") for line in server.refused)
