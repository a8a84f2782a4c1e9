"""What the options ``--remote...`` say, and why some of it is refused."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from command_line import Cli
from wheelfactory.commands.executor_options import REMOTE_VARIABLE
from wheelfactory.core.errors import BAD_INPUT, InputError
from wheelfactory_remote.server import parse_remote

SET = "ck-62327233-rocm6.4-gfx942"
CELL = "fa2.8.3-rocm6.4-torch2.9.1-cp311-ck"


@pytest.mark.parametrize(
    ("url", "address", "tls", "instance"),
    [
        ("grpcs://build.example.org:8980", "build.example.org:8980", True, ""),
        ("grpc://10.0.0.1:50051/", "10.0.0.1:50051", False, ""),
        ("grpcs://build.example.org:443/team/main", "build.example.org:443", True, "team/main"),
        ("grpc://[::1]:8980", "[::1]:8980", False, ""),
    ],
)
def test_an_address_has_scheme_host_port_and_maybe_an_instance(
    url: str, address: str, tls: bool, instance: str
) -> None:
    remote = parse_remote(url)
    assert (remote.address, remote.tls, remote.instance) == (address, tls, instance)


@pytest.mark.parametrize(
    "url",
    ["", "build:8980", "https://build:8980", "grpcs://build", "grpcs://build:x", "grpcs://me@build:1", "grpc://:1"],
)
def test_anything_else_is_refused_with_an_example(url: str) -> None:
    with pytest.raises(InputError, match="not an address of a Remote Execution server") as refused:
        parse_remote(url)
    assert "grpcs://HOST:PORT" in refused.value.hint


def test_a_token_is_sent_with_encryption_or_to_this_machine_only(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    for url in ("grpcs://build:1", "grpc://127.0.0.1:1", "grpc://localhost:1"):
        assert parse_remote(url, token=token).token == token
    for url in ("grpc://build:1", "grpc://10.0.0.1:1"):
        with pytest.raises(InputError, match="without encryption"):
            parse_remote(url, token=token)


@pytest.mark.parametrize("content", [b"", b"one\ntwo", b"\xff", "schl\u00fcssel".encode(), b"a\0b"])
def test_a_file_without_a_token_is_refused(content: bytes, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_bytes(content)
    with pytest.raises(InputError, match=f"not a bearer token: the content of {token}"):
        parse_remote("grpcs://build:1", token=token)


@pytest.mark.parametrize("command", [("kernels", SET), ("build", CELL), ("run", "--only", CELL)])
def test_each_command_takes_the_address_from_its_option_or_the_variable(
    command: tuple[str, ...], cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(REMOTE_VARIABLE, "variable:1")
    for options, url in (((), "variable:1"), (("--remote", "option:1"), "option:1")):
        shown = cli(*command, *options)
        assert shown.code == BAD_INPUT
        assert f"not an address of a Remote Execution server: {url}" in shown.err


def test_what_is_published_is_compiled_anew_by_a_server_that_its_certificate_names(cli: Cli) -> None:
    for url in ("grpcs://build:1", "grpc://127.0.0.1:1"):
        assert parse_remote(url, publishes=True) == parse_remote(url, ignore_cache=True)
    shown = cli("run", "--only", CELL, "--remote", "grpc://build:1")
    assert shown.code == BAD_INPUT
    assert "error: publishing needs a cluster whose certificate names the server: build:1" in shown.err


@pytest.mark.parametrize("missing", ["wheelfactory_remote", "grpc"])
def test_without_the_client_the_option_says_how_to_get_it(
    missing: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] in ("wheelfactory_remote", missing)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    shown = cli("build", CELL, "--remote", "grpcs://build:1")
    assert shown.code == BAD_INPUT
    error, hint = shown.err.splitlines()
    assert error.startswith("error: no client of the Remote Execution API: ")
    assert missing in error
    assert hint == "hint: in a checkout of wheelfactory: pip install packages/remote_execution"


def test_a_missing_file_and_certificates_without_tls_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        parse_remote("grpcs://build:1", token=tmp_path / "none")
    with pytest.raises(InputError, match="no such file"):
        parse_remote("grpcs://build:1", ca=tmp_path / "none")
    with pytest.raises(InputError, match="--remote-ca with grpc://"):
        parse_remote("grpc://build:1", ca=tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--verify-sample", "2"), "--verify-sample without --remote"),
        (("--ignore-remote-cache",), "--ignore-remote-cache without --remote"),
        (("--remote", "build:1"), "not an address of a Remote Execution server: build:1"),
        (("--remote", "grpc://build:1", "--remote-platform", "image"), "not KEY=VALUE: image"),
        (("--remote", "grpc://build:1", "--shard", "1/2"), "--shard with --remote"),
    ],
)
def test_the_command_refuses_options_that_contradict_each_other(
    cli: Cli, options: tuple[str, ...], message: str
) -> None:
    shown = cli("kernels", SET, *options)
    assert shown.code == BAD_INPUT
    assert message in shown.err
