"""The build record: JSON in dist-info; any damage is an error."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from wheel_factory import CK, TRITON, build_record, finished_wheel, make_wheel
from wheelfactory.core.errors import InputError
from wheelfactory.wheel.build_record import read_build_record
from wheelfactory.wheel.read import BUILD_RECORD_NAME, Wheel

TRUTH = json.loads(build_record(CK).as_bytes())


def test_a_written_record_reads_back_and_other_wheels_have_none(tmp_path: Path) -> None:
    for cell in (CK, TRITON):
        assert read_build_record(Wheel.open(finished_wheel(tmp_path, cell))) == build_record(cell)
    assert read_build_record(Wheel.open(make_wheel(tmp_path))) is None


def without(*fields: str) -> str:
    return json.dumps({name: value for name, value in TRUTH.items() if name not in fields})


DAMAGED_RECORDS: list[str] = [
    "",  # empty
    "not JSON",  # not JSON
    "[]",  # not an object
    without("cell"),  # no cell
    without("label", "source"),  # no label and no source
    json.dumps({**TRUTH, "format": 2}),  # a later format
    json.dumps({**TRUTH, "gpu": "MI300X"}),  # an unknown field
    json.dumps({**TRUTH, "offload_archs": "gfx90a"}),  # archs as text
    json.dumps({**TRUTH, "toolchain": {"glibc": "new"}}),  # a glibc that is no version
    "\udcff",  # not UTF-8
]


def test_a_damaged_record_is_an_input_error_that_names_it(tmp_path: Path) -> None:
    for text in DAMAGED_RECORDS:
        path = make_wheel(tmp_path, dist_info_members={BUILD_RECORD_NAME: text.encode(errors="surrogateescape")})

        with pytest.raises(InputError, match="damaged build record") as caught:
            read_build_record(Wheel.open(path))

        assert BUILD_RECORD_NAME in caught.value.which
        assert path.name in caught.value.which
