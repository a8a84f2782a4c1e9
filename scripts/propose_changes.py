"""Open or update a pull request with what a scheduled workflow wrote.

    GH_TOKEN=... .venv/bin/python scripts/propose_changes.py BRANCH BASE TITLE

The files, branches and index of the checkout stay unchanged. BRANCH is overwritten by each run; an open pull request
from it is updated. Needs git and GitHub's gh.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from wheelfactory.core.errors import DONE, FAILED, FactoryError
from wheelfactory.core.process import capture

PROPOSED = ("docs/", "matrix.yaml", "CHANGELOG.md", "README.md", "requirements/", "tests/data/cells.txt")
"""What `./factory refresh`, `./factory lock` and the list of wheels write; other changes are not proposed."""

BOT = "github-actions[bot]"
BOT_ADDRESS = "41898282+github-actions[bot]@users.noreply.github.com"
"""GitHub attributes commits with this address to the bot (README of actions/checkout)."""

CREDENTIALS = '!f() { if [ "$1" = get ]; then printf \'username=x-access-token\\npassword=%s\\n\' "$GH_TOKEN"; fi; }; f'
"""A credential helper that git runs in a shell. It reads the token from the environment, so that no file or command
line has it."""

BODY = """\
What changed:

{changes}

Read the changed lines before merging. What needs a person is in the issue with the label `refresh`.

GitHub starts no workflow for a pull request that a workflow opened with its own token. If no check is listed below,
close and reopen this pull request, or store a token of your own (docs/how-to/refresh.md). Do not push to its branch:
the next run overwrites it.
"""

_NETWORK_HINT = "check the connection to origin, and that the token can write contents and pull requests"
_CREATE_HINT = (
    f"{_NETWORK_HINT}, and that the repository's settings let Actions create pull requests; the branch is pushed"
)


@dataclass(frozen=True)
class Proposal:
    """A pull request to open or update, and the checkout with its changes."""

    branch: str
    base: str
    title: str
    tree: Path
    """The root of the work tree."""
    environ: Mapping[str, str]
    """The environment of git and gh, without the token."""
    token: str

    def git(self, *arguments: str, **variables: str) -> str:
        """Run a git command without the token and return its output. Raises `FactoryError`."""
        return _run(["git", *arguments], self.tree, {**self.environ, **variables}, "run this in the checkout")

    def remote(self, *command: str, hint: str = _NETWORK_HINT) -> str:
        """Run a command with the token and return its output. Raises `FactoryError`."""
        return _run(command, self.tree, {**self.environ, **_credentials(self.environ), "GH_TOKEN": self.token}, hint)


def _run(command: Sequence[str], tree: Path, environ: Mapping[str, str], hint: str) -> str:
    return capture(command, failure=FactoryError, cwd=tree, environ=environ, hint=hint)


def _credentials(environ: Mapping[str, str]) -> dict[str, str]:
    """Settings that make one git command use only this helper, and only for GitHub (git-config, GIT_CONFIG_COUNT)."""
    server = environ.get("GITHUB_SERVER_URL") or "https://github.com"
    # the empty value removes the configured helpers, which could store or print the token
    settings = (("credential.helper", ""), (f"credential.{server}.helper", CREDENTIALS))
    first = int(environ.get("GIT_CONFIG_COUNT") or 0)
    variables = {"GIT_CONFIG_COUNT": str(first + len(settings))}
    for number, (name, value) in enumerate(settings, first):
        variables.update({f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value})
    return variables


def parse_proposal(options: argparse.Namespace, environ: Mapping[str, str]) -> Proposal:
    """Create the proposal from arguments and environment. Raises `FactoryError` if either is invalid."""
    if options.branch == options.base:
        raise FactoryError("the branch is the base", options.branch, "name another branch: each run overwrites it")
    kept = {name: value for name, value in environ.items() if name not in ("GH_TOKEN", "GITHUB_TOKEN")}
    quiet = {"GIT_TERMINAL_PROMPT": "0", "GH_PROMPT_DISABLED": "1", "NO_COLOR": "1"}
    here = _run(["git", "rev-parse", "--show-toplevel"], Path(), kept, "run this in the checkout")
    found = Proposal(
        options.branch, options.base, options.title, Path(here.strip()), {**kept, **quiet}, environ.get("GH_TOKEN", "")
    )
    ref = ["git", "check-ref-format", f"refs/heads/{found.branch}"]
    _run(ref, found.tree, kept, "use a branch name that git allows")
    return found


def find_changes(proposal: Proposal) -> tuple[list[str], list[str]]:
    """Find the files to propose (changed, removed or new), and the other changed files that are tracked."""
    tracked = _split_names(proposal.git("diff", "--name-only", "--no-renames", "-z", "HEAD"))
    new = _split_names(proposal.git("ls-files", "--others", "--exclude-standard", "-z"))
    return [name for name in tracked + new if _is_proposed(name)], [name for name in tracked if not _is_proposed(name)]


def _split_names(listed: str) -> list[str]:
    return listed.split("\0")[:-1]


def _is_proposed(name: str) -> bool:
    return any(name == path or (path.endswith("/") and name.startswith(path)) for path in PROPOSED)


def make_commit(proposal: Proposal, names: Sequence[str]) -> str:
    """Create a commit of these files on top of HEAD, on no branch, and return its id."""
    # dated as HEAD, so that equal changes give an equal commit id, which is not pushed again
    when = proposal.git("show", "--no-patch", "--format=%cI", "HEAD").strip()
    with tempfile.TemporaryDirectory() as scratch:  # an index of its own keeps the one of the checkout
        index = f"{scratch}/index"
        proposal.git("read-tree", "HEAD", GIT_INDEX_FILE=index)
        proposal.git("add", "--all", "--", *names, GIT_INDEX_FILE=index)
        tree = proposal.git("write-tree", GIT_INDEX_FILE=index).strip()
    bot = {
        f"GIT_{role}_{key}": value
        for role in ("AUTHOR", "COMMITTER")
        for key, value in (("NAME", BOT), ("EMAIL", BOT_ADDRESS), ("DATE", when))
    }
    return proposal.git("commit-tree", tree, "-p", "HEAD", "-m", proposal.title, **bot).strip()


def push(proposal: Proposal, commit: str) -> None:
    """Set the branch on origin to the commit, unless someone else changes it meanwhile."""
    ref = f"refs/heads/{proposal.branch}"
    listed = [line.split("\t") for line in proposal.remote("git", "ls-remote", "origin", ref).splitlines()]
    current = next((known for known, name in listed if name == ref), "")  # git lists every ref with this suffix
    lease = f"--force-with-lease={ref}:{current}"  # with the id, because actions/checkout fetches no other branch
    proposal.remote("git", "push", "--quiet", "--no-verify", lease, "origin", f"{commit}:{ref}")


def find_request(proposal: Proposal) -> str:
    """Find the URL of the open pull request from the branch to the base, or "" if there is none."""
    options = (f"--head={proposal.branch}", f"--base={proposal.base}", "--state=open", "--limit=100")
    listed = proposal.remote("gh", "pr", "list", *options, "--json=url,isCrossRepository")
    try:
        # a fork can have a branch of the same name
        return next((str(found["url"]) for found in json.loads(listed) if not found["isCrossRepository"]), "")
    except (ValueError, TypeError, KeyError):
        raise FactoryError("unexpected output of gh", listed[:200], "install a newer gh") from None


def create_request(proposal: Proposal, commit: str) -> str:
    """Open a pull request and return its URL."""
    stat = proposal.git("diff", "--stat=100", f"{commit}^", commit).rstrip()
    with tempfile.TemporaryDirectory() as scratch:
        body = Path(scratch, "body.md")
        body.write_text(BODY.format(changes="\n".join(f"    {line}" for line in stat.splitlines())), encoding="utf-8")
        options = (f"--head={proposal.branch}", f"--base={proposal.base}", f"--title={proposal.title}")
        url = proposal.remote("gh", "pr", "create", *options, f"--body-file={body}", hint=_CREATE_HINT)
    return url.strip()


def propose(proposal: Proposal) -> str:
    """Propose the changes, and return a line that reports the result. Raises `FactoryError`."""
    names, others = find_changes(proposal)
    for name in others:
        print(f"not proposed: {name}", file=sys.stderr)
    if not names:
        return "no changes: nothing to propose"
    if not proposal.token:
        raise FactoryError("no token", "GH_TOKEN is not set", "set it to a token with write access")
    existing = find_request(proposal)  # before the push, so that a missing gh leaves nothing behind
    commit = make_commit(proposal, names)
    push(proposal, commit)
    return f"updated {existing}" if existing else f"opened {create_request(proposal, commit)}"


def main() -> int:
    parser = argparse.ArgumentParser(description="Open or update a pull request with what a scheduled workflow wrote.")
    parser.add_argument("branch", metavar="BRANCH", help="branch of the pull request; each run overwrites it")
    parser.add_argument("base", metavar="BASE", help="branch to merge into")
    parser.add_argument("title", metavar="TITLE", help="title of the commit and of the pull request")
    try:
        print(propose(parse_proposal(parser.parse_args(), os.environ)))
    except FactoryError as error:
        print(f"error: {error}\nhint: {error.hint}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print("error: interrupted: by Ctrl-C\nhint: run this again", file=sys.stderr)
        return FAILED
    return DONE


if __name__ == "__main__":
    raise SystemExit(main())
