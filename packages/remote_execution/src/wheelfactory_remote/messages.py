"""The messages of the Remote Execution API that are used here: a class for each message of ``messages.proto``.

``messages.pb`` is that file in compiled form, and ``messages.pyi`` has the types. protoc writes both, for every version
of the package protobuf; the Python code that it writes needs a version as new as itself.
"""

from pathlib import Path

from google.protobuf import any_pb2, duration_pb2, timestamp_pb2  # noqa: F401 - ours consist of these
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import Default
from google.protobuf.message_factory import GetMessageClass

(_FILE,) = FileDescriptorSet.FromString(Path(__file__).with_name("messages.pb").read_bytes()).file
Default().AddSerializedFile(_FILE.SerializeToString())
_MESSAGES = Default().FindFileByName(_FILE.name).message_types_by_name
globals().update({name: GetMessageClass(message) for name, message in _MESSAGES.items()})
