"""GitHub's own OpenAPI description, cut to releases and single runs: every request and every answer is held to it.

Three things are exempted. An asset in state ``starter`` is only in the description's prose, not in its schema. The
bytes of uploads and downloads are not looked at. Statuses that a path does not list (limits, server errors) have no
schema.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from openapi_core import OpenAPI
from openapi_core.exceptions import OpenAPIError
from openapi_core.testing import MockRequest, MockResponse

from npm_tools import npm_package

API, UPLOADS = "https://api.github.com", "https://uploads.github.com"
"""The hosts in the description. An upload to the API host is a violation."""

_PATHS = ("/repos/{owner}/{repo}/releases", "/repos/{owner}/{repo}/actions/runs/{run_id}")
"""Each path, and those below it."""
_COMMIT = "/repos/{owner}/{repo}/commits/{ref}"
_SETTINGS = {
    f"/repos/{{owner}}/{{repo}}{below}"
    for below in (
        *("", "/environments", "/environments/{environment_name}/deployment-branch-policies", "/immutable-releases"),
        *("/actions/permissions", "/actions/permissions/workflow", "/actions/runners", "/actions/variables/{name}"),
        *("/actions/workflows", "/labels/{name}", "/pages", "/private-vulnerability-reporting"),
        *("/rules/branches/{branch}", "/rulesets"),
    )
}
_BINARY = b"bytes"


@cache
def _description() -> dict[str, Any]:
    path = npm_package("@octokit/openapi") / "generated/api.github.com.json"
    return _sliced(json.loads(Path(path).read_text()))


def _sliced(api: dict[str, Any]) -> dict[str, Any]:
    """The part of the description about `_PATHS`, with its references; the whole one takes half a minute to load."""
    kept = {_COMMIT, *_SETTINGS}
    paths = {path: item for path, item in api["paths"].items() if path.startswith(_PATHS) or path in kept}
    components: dict[str, dict[str, Any]] = {}
    left = list(_references(paths))
    while left:
        _, _, section, name = left.pop().split("/", 3)
        if name not in components.setdefault(section, {}):
            components[section][name] = api["components"][section][name]
            left.extend(_references(components[section][name]))
    kept_whole = {name: api[name] for name in ("openapi", "info", "servers")}
    return {**kept_whole, "paths": paths, "components": components}


def _references(node: object) -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "$ref" and isinstance(value, str):
                yield value
            else:
                yield from _references(value)
    elif isinstance(node, list):
        for item in node:
            yield from _references(item)


def example_run(repository: str, **changes: object) -> dict[str, Any]:
    """The workflow run that the description has as an example, with a commit of this repository and other changes."""
    example = _description()["components"]["examples"]["workflow-run"]["value"]
    head = {**example["head_repository"], "full_name": repository}
    return {**example, "head_repository": head, **changes}


def example_setting(path: str) -> Any:
    """The response that the description has as an example for a path below a repository."""
    responses = _description()["paths"][f"/repos/{{owner}}/{{repo}}{path}"]["get"]["responses"]
    (answer,) = responses["200"]["content"].values()
    name = next(iter(answer["examples"].values()))["$ref"].rpartition("/")[2]
    return _description()["components"]["examples"][name]["value"]


def example_job(name: str, *steps: str, **changes: object) -> dict[str, Any]:
    """The job that the description has as an example, with this name and steps of these names."""
    example = _description()["components"]["examples"]["job-paginated"]["value"]["jobs"][0]
    told = {"name": name, "created_at": example["started_at"], **changes}
    return {**example, **told, "steps": [{**example["steps"][0], "name": step} for step in steps]}


def example_commit(sha: str) -> dict[str, Any]:
    """The commit that the description has as an example, with another sha."""
    example = _description()["components"]["examples"]["commit"]["value"]
    kept = {name: value for name, value in example.items() if name not in ("files", "stats")}
    return {**kept, "sha": sha, "author": {}, "committer": {}}


def _one_part(path: str) -> str:
    """A path whose ref is one part, as it was sent: the server decodes paths."""
    return path.replace("/commits/tags/", "/commits/tags%2F")


class Contract:
    """Validates requests and responses against the description."""

    def __init__(self) -> None:
        self._api = OpenAPI.from_dict(_description())
        self._known: dict[tuple[object, ...], str | None] = {}
        """Cached verdicts, because the same requests recur with each fault."""

    def request(self, method: str, host: str, path: str, query: dict[str, str], body: bytes, kind: str) -> str | None:
        """The violation in a request, or None; `kind` is its content type."""
        if kind == "application/octet-stream":
            body = _BINARY
        key = (method, host, path, tuple(query.items()), body, kind)
        if key not in self._known:
            asked = MockRequest(host, method, _one_part(path), args=query, data=body or None, content_type=kind)
            self._known[key] = self._wrong(self._api.validate_request, asked)
        return self._known[key]

    def answer(self, method: str, host: str, path: str, status: int, found: object) -> str | None:
        """The violation in the JSON of a response, or None."""
        data = json.dumps(_without_starters(found)).encode()
        key = (method, host, path, status, data)
        if key not in self._known:
            path = _one_part(path)
            operation = self._operation(method, path)
            if operation is None or str(status) not in operation["responses"] or found is None:
                return None
            asked = MockRequest(host, method, path, args={"name": "a"})
            given = MockResponse(data, status_code=status, content_type="application/json")
            self._known[key] = self._wrong(self._api.validate_response, asked, given)
        return self._known[key]

    @staticmethod
    def _wrong(check: Any, *values: object) -> str | None:
        try:
            check(*values)
        except OpenAPIError as error:
            return f"{type(error).__name__}: {error} {error.__cause__ or ''}"[:2000]
        return None

    @staticmethod
    def _operation(method: str, path: str) -> dict[str, Any] | None:
        """The operation of a path; of several templates that match, the longest."""
        given = path.split("/")
        for template, item in sorted(_description()["paths"].items(), key=lambda found: found[0].count("{")):
            parts = template.split("/")
            if len(parts) == len(given) and all(a[:1] == "{" or a == b for a, b in zip(parts, given, strict=True)):
                operation: dict[str, Any] | None = item.get(method.lower())
                return operation
        return None


def _without_starters(found: object) -> object:
    if isinstance(found, list):
        return [_without_starters(entry) for entry in found]
    if isinstance(found, dict):
        changed = {key: _without_starters(value) for key, value in found.items()}
        return {**changed, "state": "uploaded"} if changed.get("state") == "starter" else changed
    return found
