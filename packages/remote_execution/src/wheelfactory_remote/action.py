"""Actions of the Remote Execution API: a command, its input files and its platform, each named by digest.

Source: the comments of ``remote_execution.proto`` in bazelbuild/remote-apis. A message is serialized with its fields in
order, names are sorted, and so the same action has the same digest everywhere.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from wheelfactory_remote import messages

TIMEOUT_S = 2 * 3600
"""Seconds after which a worker kills a compile: the most that BuildGrid allows unless it is configured."""

SEARCH_PATH = "/usr/bin:/bin"
"""PATH of a compile on a worker: hipcc itself has an absolute path."""


@dataclass(frozen=True)
class Blob:
    """Bytes, and the digest that names them."""

    data: bytes = field(repr=False)

    @cached_property
    def digest(self) -> messages.Digest:
        """The name of these bytes in the protocol."""
        return messages.Digest(hash=hashlib.sha256(self.data).hexdigest(), size_bytes=len(self.data))


class _Message(Protocol):
    def SerializeToString(self, *, deterministic: bool = ...) -> bytes: ...  # noqa: N802 - protobuf's name


def to_blob(message: _Message) -> Blob:
    """Serialize a message, as the protocol stores it."""
    return Blob(message.SerializeToString(deterministic=True))


@dataclass(frozen=True)
class Folder:
    """A folder of input files. Folders share what they have in common, so that headers are hashed once."""

    files: Mapping[str, Blob] = field(default_factory=dict)
    folders: Mapping[str, Folder] = field(default_factory=dict)

    def with_file(self, path: str, content: Blob) -> Folder:
        """The same folder with one more file, at a relative path."""
        name, _, rest = path.partition("/")
        if not rest:
            return Folder({**self.files, name: content}, self.folders)
        inner = self.folders.get(name, Folder()).with_file(rest, content)
        return Folder(self.files, {**self.folders, name: inner})

    @cached_property
    def blob(self) -> Blob:
        """The message that describes this folder."""
        return to_blob(
            messages.Directory(
                files=[messages.FileNode(name=name, digest=file.digest) for name, file in sorted(self.files.items())],
                directories=[
                    messages.DirectoryNode(name=name, digest=folder.blob.digest)
                    for name, folder in sorted(self.folders.items())
                ],
            )
        )

    def blobs(self, without: Folder | None = None) -> list[Blob]:
        """All files and folders below, and this one; without those that the folder `without` has at the same place."""
        if self is without:
            return []
        known = without or Folder()
        inner = [blob for name, folder in self.folders.items() for blob in folder.blobs(known.folders.get(name))]
        return [*(file for name, file in self.files.items() if known.files.get(name) is not file), *inner, self.blob]


def make_folder(files: Mapping[str, bytes]) -> Folder:
    """Make a folder of files, by relative path."""
    folder = Folder()
    for path, data in files.items():
        folder = folder.with_file(path, Blob(data))
    return folder


@dataclass(frozen=True)
class RemoteAction:
    """One command to run on a worker, which makes one file."""

    action: Blob
    blobs: tuple[Blob, ...]
    """What the server needs beside the shared input files: the action, its command, its source and their folders."""


def make_action(
    argv: Sequence[str],
    environ: Mapping[str, str],
    platform: Mapping[str, str],
    headers: Folder,
    source: tuple[str, bytes],
    output: str,
) -> RemoteAction:
    """Make the action that compiles a source, relative path and content, with `headers` and `source` as its files."""
    inputs = headers.with_file(source[0], Blob(source[1]))
    properties = messages.Platform(properties=_properties(platform))
    command = to_blob(
        messages.Command(
            arguments=argv,
            environment_variables=_properties({"PATH": SEARCH_PATH, **environ}),
            platform=properties,  # servers of the API before 2.2 read it here
            output_paths=[output],
        )
    )
    action = messages.Action(command_digest=command.digest, input_root_digest=inputs.blob.digest, platform=properties)
    action.timeout.seconds = TIMEOUT_S
    made = to_blob(action)
    return RemoteAction(made, (*inputs.blobs(headers), command, made))


def _properties(values: Mapping[str, str]) -> list[messages.Property]:
    return [messages.Property(name=name, value=value) for name, value in sorted(values.items())]
