"""What a scheduled workflow changed in matrix.yaml and docs/, as a pull request; nothing if nothing changed.

    GH_TOKEN=... .venv/bin/python scripts/propose_changes.py BRANCH BASE TITLE

The commit is made beside the work tree: no file, no branch and no index of the checkout changes. BRANCH is written anew
each time, and a pull request from it that is open already is left open. Needs git and GitHub's gh.
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

PROPOSED = ("docs/", "matrix.yaml")
"""What the chores write; a change elsewhere is nobody's proposal."""

BOT = "github-actions[bot]"
BOT_ADDRESS = "41898282+github-actions[bot]@users.noreply.github.com"
"""GitHub shows commits of this address as the bot's (README of actions/checkout)."""

CREDENTIALS = '!f() { if [ "$1" = get ]; then printf \'username=x-access-token\\npassword=%s\\n\' "$GH_TOKEN"; fi; }; f'
"""A credential helper of git, which its shell runs: the token goes from the environment to git and stands nowhere."""

BODY = """\
What changed:

{changes}

Read the changed lines before merging: what could not be done without a person is in the log of the workflow run.

CI does not start by itself here: GitHub starts no workflow for what a workflow does with its own token. To start it,
close this pull request and open it again. Put no commits of your own on its branch: the next run writes it anew.
"""

_NETWORK_HINT = "check that origin can be reached, and that the token may write contents and pull requests"
_CREATE_HINT = (
    f"{_NETWORK_HINT}, and that the repository's settings let Actions create pull requests; the branch is pushed"
)


@dataclass(frozen=True)
class Proposal:
    """What is asked for, and where."""

    branch: str
    base: str
    title: str
    tree: Path
    """The top folder of the work tree."""
    environ: Mapping[str, str]
    """For git and gh, without the token."""
    token: str

    def git(self, *arguments: str, **variables: str) -> str:
        """What a git command that needs no token prints. Raises `FactoryError`."""
        return _run(["git", *arguments], self.tree, {**self.environ, **variables}, "run this in the checkout")

    def remote(self, *command: str, hint: str = _NETWORK_HINT) -> str:
        """What a command that needs the token prints. Raises `FactoryError`."""
        return _run(command, self.tree, {**self.environ, **_credentials(self.environ), "GH_TOKEN": self.token}, hint)


def _run(command: Sequence[str], tree: Path, environ: Mapping[str, str], hint: str) -> str:
    return capture(command, failure=FactoryError, cwd=tree, environ=environ, hint=hint)


def _credentials(environ: Mapping[str, str]) -> dict[str, str]:
    """Settings for one git command: it asks this helper alone, and only for GitHub (git-config: GIT_CONFIG_COUNT)."""
    server = environ.get("GITHUB_SERVER_URL") or "https://github.com"
    settings = (("credential.helper", ""), (f"credential.{server}.helper", CREDENTIALS))
    first = int(environ.get("GIT_CONFIG_COUNT") or 0)
    made = {"GIT_CONFIG_COUNT": str(first + len(settings))}
    for number, (name, value) in enumerate(settings, first):
        made.update({f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value})
    return made


def proposal_of(options: argparse.Namespace, environ: Mapping[str, str]) -> Proposal:
    """The proposal that the arguments and the environment say. Raises `FactoryError` if it cannot be made."""
    if options.branch == options.base:
        raise FactoryError("the branch is the base", options.branch, "name a branch of its own: it is written anew")
    kept = {name: value for name, value in environ.items() if name not in ("GH_TOKEN", "GITHUB_TOKEN")}
    quiet = {"GIT_TERMINAL_PROMPT": "0", "GH_PROMPT_DISABLED": "1", "NO_COLOR": "1"}
    here = _run(["git", "rev-parse", "--show-toplevel"], Path(), kept, "run this in the checkout")
    found = Proposal(
        options.branch, options.base, options.title, Path(here.strip()), {**kept, **quiet}, environ.get("GH_TOKEN", "")
    )
    ref = ["git", "check-ref-format", f"refs/heads/{found.branch}"]
    _run(ref, found.tree, kept, "name a branch as git allows it")
    return found


def changes(proposal: Proposal) -> tuple[list[str], list[str]]:
    """The files that are to be proposed (changed, removed, or new), and other tracked files that changed too."""
    tracked = _names(proposal.git("diff", "--name-only", "--no-renames", "-z", "HEAD"))
    new = _names(proposal.git("ls-files", "--others", "--exclude-standard", "-z"))
    return [name for name in tracked + new if _proposed(name)], [name for name in tracked if not _proposed(name)]


def _names(listed: str) -> list[str]:
    return listed.split("\0")[:-1]


def _proposed(name: str) -> bool:
    return any(name == place or (place.endswith("/") and name.startswith(place)) for place in PROPOSED)


def make_commit(proposal: Proposal, names: Sequence[str]) -> str:
    """A commit of these files on top of HEAD, which no branch names yet; gives its id.

    It has the time of HEAD: the same changes to the same commit are the same commit, and are not pushed twice.
    """
    when = proposal.git("show", "--no-patch", "--format=%cI", "HEAD").strip()
    with tempfile.TemporaryDirectory() as scratch:
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
    """Make the branch on origin be the commit; refused if it is changed by someone else at the same time."""
    ref = f"refs/heads/{proposal.branch}"
    listed = [line.split("\t") for line in proposal.remote("git", "ls-remote", "origin", ref).splitlines()]
    there = next((known for known, name in listed if name == ref), "")  # git lists every ref that ends like it
    lease = f"--force-with-lease={ref}:{there}"  # by name and id: a checkout of Actions follows no other branch
    proposal.remote("git", "push", "--quiet", "--no-verify", lease, "origin", f"{commit}:{ref}")


def open_request(proposal: Proposal) -> str:
    """The address of the open pull request from the branch to the base, or "" if there is none.

    One from a branch of the same name in a fork is someone else's.
    """
    named = (f"--head={proposal.branch}", f"--base={proposal.base}", "--state=open", "--limit=100")
    said = proposal.remote("gh", "pr", "list", *named, "--json=url,isCrossRepository")
    try:
        return next((str(found["url"]) for found in json.loads(said) if not found["isCrossRepository"]), "")
    except (ValueError, TypeError, KeyError):
        raise FactoryError("not what gh answers", said[:200], "install a gh that knows isCrossRepository") from None


def create_request(proposal: Proposal, commit: str) -> str:
    """Open a pull request; gives its address."""
    stat = proposal.git("diff", "--stat=100", f"{commit}^", commit).rstrip()
    with tempfile.TemporaryDirectory() as scratch:
        body = Path(scratch, "body.md")
        body.write_text(BODY.format(changes="\n".join(f"    {line}" for line in stat.splitlines())), encoding="utf-8")
        named = (f"--head={proposal.branch}", f"--base={proposal.base}", f"--title={proposal.title}")
        said = proposal.remote("gh", "pr", "create", *named, f"--body-file={body}", hint=_CREATE_HINT)
    return said.strip()


def propose(proposal: Proposal) -> str:
    """Propose what changed; gives a line that says what was done. Raises `FactoryError`."""
    names, others = changes(proposal)
    for name in others:
        print(f"left out: {name}", file=sys.stderr)
    if not names:
        return "no changes: nothing to propose"
    if not proposal.token:
        raise FactoryError("no token", "GH_TOKEN is not set", "set it to a token that may write")
    there = open_request(proposal)  # first, so that nothing is pushed where gh is missing
    commit = make_commit(proposal, names)
    push(proposal, commit)
    return f"updated {there}" if there else f"opened {create_request(proposal, commit)}"


def main() -> int:
    parser = argparse.ArgumentParser(description="Propose changes of matrix.yaml and docs/ as a pull request.")
    parser.add_argument("branch", metavar="BRANCH", help="written anew each time")
    parser.add_argument("base", metavar="BASE", help="what the pull request is to be merged into")
    parser.add_argument("title", metavar="TITLE", help="of the commit and of the pull request")
    try:
        print(propose(proposal_of(parser.parse_args(), os.environ)))
    except FactoryError as error:
        print(f"error: {error}\nhint: {error.hint}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print("error: interrupted: by Ctrl-C\nhint: run this again", file=sys.stderr)
        return FAILED
    return DONE


if __name__ == "__main__":
    raise SystemExit(main())
