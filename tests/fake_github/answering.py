"""Respond to requests by the rules of a `Repository`, unless a rate limit or a fault comes first."""

from __future__ import annotations

import hashlib
import json
from typing import Any, TypeAlias

from fake_github import faults
from fake_github.contract import example_commit
from fake_github.faults import Fault
from fake_github.github import TOKEN, Asked, FakeGitHub
from fake_github.repository import OWNER_REPO, FakeRelease, Repository, RuleError

RETRY_AFTER_S, RESET_S = 7, 1800
_HOME = f"/repos/{OWNER_REPO}/releases"
_RUNS = f"/repos/{OWNER_REPO}/actions/runs/"
_TAGS = f"/repos/{OWNER_REPO}/commits/tags/"

Answer: TypeAlias = tuple[int, object, dict[str, str]]
"""Status, JSON or bytes, and headers."""


def early_answer(github: FakeGitHub, asked: Asked, fault: Fault | None) -> Answer | None:
    """A response that replaces the normal one, because of a fault or a rate limit."""
    if fault is faults.ERROR_BEFORE:
        return 500, {"message": "Server Error"}, {}
    if fault is faults.SECONDARY:
        message = "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."
        return 403, {"message": message}, {"Retry-After": str(RETRY_AFTER_S)}
    if github.left <= 0 and github.clock.now >= github.reset:
        github.left = 5000
    if fault is faults.PRIMARY or github.left <= 0:
        github.reset = github.reset if github.left <= 0 and github.reset else github.clock.now + RESET_S
        headers = {"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(int(github.reset))}
        return (429 if fault else 403), {"message": "API rate limit exceeded"}, headers
    github.left -= 1
    github.reset = github.clock.now + RESET_S
    number = int(asked.path.split("/")[5]) if asked.is_upload else 0
    if fault is faults.STARTER:
        github.repository.upload(number, asked.query["name"], 0, None, None)
        return 502, {"message": "Bad Gateway"}, {}
    if fault is faults.DAMAGED:
        content = b"damaged"
        digest = hashlib.sha256(content).hexdigest()
        asset = github.repository.upload(number, asked.query["name"], len(content), digest, content)
        return 201, github.repository.asset_json(github.repository.release(number), asset), {}
    if fault is faults.DUPLICATE:
        github.repository.upload(number, asked.query["name"], 5, hashlib.sha256(b"other").hexdigest(), b"other")
    return None


def from_storage(github: FakeGitHub, asked: Asked, _authorization: str | None) -> Answer:
    """The content behind a download redirect."""
    try:
        _, asset = github.repository.asset(int(asked.path.rpartition("/")[2]))
    except RuleError as error:
        return error.status, error.body, {}
    return 200, asset.content or b"", {}


def answered(github: FakeGitHub, asked: Asked, authorization: str | None) -> Answer:
    try:
        if github.moved:
            moved = {"Location": f"{github.repository.api}/repositories/1/releases"}
            return 301, {"message": "Moved Permanently"}, moved
        if authorization not in (None, f"Bearer {TOKEN}"):
            raise RuleError(401, "Bad credentials")
        writes = authorization is not None and github.rights == "write"
        if asked.method != "GET" and not writes:
            raise RuleError(403 if authorization else 404, "Resource not accessible by integration")
        status, found, headers = _routed(github, asked, writes=writes)
    except RuleError as error:
        status, found, headers = error.status, error.body, {}
    limits = {"x-ratelimit-remaining": str(github.left), "x-ratelimit-reset": str(int(github.reset))}
    return status, found, {**limits, **headers}


def _routed(github: FakeGitHub, asked: Asked, *, writes: bool) -> Answer:
    if asked.method == "GET" and asked.path.startswith(_RUNS):
        number, _, below = asked.path.removeprefix(_RUNS).partition("/")
        run = github.repository.runs.get(int(number))
        if run is None or below not in ("", "jobs"):
            raise RuleError(404, "Not Found")
        jobs = github.repository.jobs.get(int(number), [])
        if asked.query.get("filter") != "all":
            jobs = [job for job in jobs if job["run_attempt"] == max(each["run_attempt"] for each in jobs)]
        return 200, {"total_count": len(jobs), "jobs": jobs} if below else run, {}
    if asked.method == "GET" and asked.path.startswith(_TAGS):
        commit = github.repository.tags.get(asked.path.removeprefix(_TAGS))
        if commit is None:
            raise RuleError(422, "No commit found for SHA")
        return 200, example_commit(commit), {}
    if not asked.path.startswith(_HOME):
        setting = asked.path.removeprefix(_HOME.removesuffix("/releases"))
        if asked.method != "GET" or setting not in github.repository.settings:
            raise RuleError(404, "Not Found")
        return 200, github.repository.settings[setting], {}
    rest = asked.path.removeprefix(_HOME).strip("/").split("/")
    answer = (_got if asked.method == "GET" else _changed)(github, asked, rest, writes)
    if asked.method != "GET":
        github.remember()
    if answer is None:
        github.violations.append(f"unknown: {asked.line}")
        raise RuleError(404, "Not Found")
    return answer


def _got(github: FakeGitHub, asked: Asked, rest: list[str], writes: bool) -> Answer | None:
    repository = github.repository
    match rest:
        case [""]:
            seen = [one for one in reversed(github.listed().values()) if writes or not one.draft]
            return _page(github, asked, [repository.release_json(one) for one in seen])
        case ["tags", tag]:
            return 200, repository.release_json(_by_tag(repository, tag)), {}
        case ["assets", number]:
            repository.asset(int(number))
            return 302, None, {"Location": f"{github.storage}/{number}?signature=secret"}
        case [number, "assets"]:
            release = repository.release(int(number))
            listed = github.listed().get(release.id)
            assets = listed.assets.values() if listed else ()
            return _page(github, asked, [repository.asset_json(release, one) for one in assets])
        case [number]:
            return 200, repository.release_json(repository.release(int(number))), {}
    return None


def _changed(github: FakeGitHub, asked: Asked, rest: list[str], _writes: bool) -> Answer | None:
    repository = github.repository
    match (asked.method, *rest):
        case ("POST", ""):
            return 201, repository.release_json(repository.create(_json(asked))), {}
        case ("POST", number, "assets"):
            asset = repository.upload(int(number), asked.query["name"], asked.size, asked.sha256, asked.body)
            return 201, repository.asset_json(repository.release(int(number)), asset), {}
        case ("PATCH", number):
            return 200, repository.release_json(repository.edit(int(number), _json(asked))), {}
        case ("DELETE", "assets", number):
            repository.remove(int(number))
            return 204, None, {}
        case ("DELETE", number):
            repository.delete(int(number))
            return 204, None, {}
    return None


def _by_tag(repository: Repository, tag: str) -> FakeRelease:
    """Drafts are not found by tag."""
    for release in repository.published():
        if release.tag == tag:
            return release
    raise RuleError(404, "Not Found")


def _page(github: FakeGitHub, asked: Asked, found: list[dict[str, Any]]) -> Answer:
    """One page of a list, with the Link header to the next."""
    size = min(int(asked.query.get("per_page", "30")), github.per_page)
    page = int(asked.query.get("page", "1"))
    more = {}
    if len(found) > page * size:
        link = f"{github.repository.api}{asked.path}?per_page={asked.query.get('per_page', '30')}&page={page + 1}"
        more = {"Link": f'<{link}>; rel="next"'}
    return 200, found[(page - 1) * size : page * size], more


def _json(asked: Asked) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(asked.body or b"{}")
    return found
