"""Kernels once, by command: shards, archives, cells, and what goes wrong; with a release in small (`small_release`)."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest
import yaml

from kernel_archive_factory import proof_of
from refresh_kernel_sources import Digests, edit_digests
from rocm_machine import ARCHS, Machine, count_targets, make_machine, ordinary, pack_kernels, read_compiles
from small_release import DEVICE_KERNELS, KERNELS, SMALL_KERNELS, SMALL_SETS, make_small_release
from small_release import SMALL_SET as SET
from wheel_factory import read_zip, tamper
from wheelfactory.core.errors import BUILD_FAILED, RUN_AGAIN
from wheelfactory.kernels.archive import find_archives, read_archive_manifest
from wheelfactory.kernels.kernel_set import proof_path
from wheelfactory.kernels.source_list import SourceList, write_source_list
from wheelfactory.matrix.load import load_matrix
from wheelfactory.wheel.inspection import inspect
from wheelfactory.wheel.read import Wheel, read_build_record

pytestmark = pytest.mark.slow

DIGEST = "1a2b3c4d" + 56 * "0"
"""Of kernel sources that two releases share."""

SHARED_SETS = tuple(name.replace("fa2.8.3", f"ck-{DIGEST[:8]}") for name in SMALL_SETS)
"""The sets of the same cells and those of another release, if both have the same kernel sources."""

SLOW = next(name for name in SMALL_KERNELS if "_d256_" in name)
"""The kernel that costs most for an arch, so it is in the first shard."""

KINDS = 2
"""Kinds of kernels; of each, one is also compiled the ordinary way."""

WHOLE_CELL = {**dict.fromkeys(ARCHS, DEVICE_KERNELS), "host": KERNELS, ordinary(*ARCHS): KINDS, "": 1}
"""How often a cell without kernels starts the compiler for each list of targets."""

CELL = f"fa2.8.3-rocm7.2-torch2.13.0-cp3{sys.version_info[1]}-ck"

AMDS = CELL.replace("-cp", "amd-cp")
"""The same for AMD's own build of torch."""

Done = subprocess.CompletedProcess[str]


class Site:
    """Several machines that build the same small release, and a folder of archives that they share."""

    def __init__(self, folder: Path, cache: Path, rocm: Mapping[str, str]) -> None:
        self.folder, self.cache, self.rocm = folder, cache, rocm
        self.archives = folder / "archives"

    def machine(self, name: str) -> Machine:
        """A machine that has compiled nothing."""
        made = make_machine(self.folder / name, self.cache, self.rocm)
        for shared in ("sources", "source-lists"):
            (made.cache / shared).unlink()  # the small release must not get into the shared cache
        self.matrix = make_small_release(made.cache, self.folder)
        made.compiled()
        return made

    def share(self, machine: Machine, available: str) -> None:
        """Say in the matrix that 2.8.3.post2 has the kernel sources of 2.8.3; `machine` can fetch one of the two."""
        text = self.matrix.read_text()
        small = load_matrix(self.matrix).flash_attn["2.8.3"].sdist
        other = load_matrix(self.matrix).flash_attn["2.8.3.post2"].sdist
        assert small and other
        text = edit_digests(text, dict.fromkeys(("2.8.3", "2.8.3.post2"), Digests(DIGEST)))
        self.matrix.write_text(text.replace(other.sha256, small.sha256))
        (sdist,) = machine.cache.glob(f"sources/*/{small.file}")
        sdist.rename(sdist.with_name(f"flash_attn-{available}.tar.gz"))

    def kernels(self, machine: Machine, *arguments: str, kernel_set: str = SET, **settings: str) -> Done:
        """Run the command `kernels`."""
        options = ("--dest", self.archives, "--matrix", self.matrix)
        return machine.run("kernels", kernel_set, *options, *arguments, **settings)

    def receive(self, archives: Path, *, without: str = "") -> None:
        """Copy archives of other machines into the shared folder, all but those of one set."""
        self.archives.mkdir(exist_ok=True)
        for path in archives.iterdir():
            if path.name.rpartition("-")[0] != without:
                shutil.copy(path, self.archives)

    def slow_down(self, machine: Machine) -> None:
        """Make `machine` remember that `SLOW` takes hours for another arch."""
        done = machine.run("kernels", SMALL_SETS[0], "--dest", self.folder / "other", "--matrix", self.matrix)
        path_of(done)
        ledger = machine.cache / "ledger.jsonl"
        lines = [json.loads(line) for line in ledger.read_text().splitlines()]
        slow = [{**line, "cpu_s": 10_000.0} if line["source"] == SLOW else line for line in lines]
        ledger.write_text("".join(json.dumps(line) + "\n" for line in slow))
        machine.compiled()

    def build(
        self, machine: Machine, *arguments: str | Path, cell: str = CELL, dest: str = "wheels", **settings: str
    ) -> Done:
        """Run the command `build`."""
        options = ("--dest", self.folder / dest, "--matrix", self.matrix)
        return machine.run("build", cell, *options, *arguments, **settings)

    def add_amds_image(self) -> None:
        """Say in the matrix that an image of rocm/pytorch has the torch and the Python of `CELL`."""
        matrix = yaml.safe_load(self.matrix.read_text())
        images, own = matrix["rocm"]["7.2"]["images"], {"python": f"3.{sys.version_info[1]}", "torch": "2.13.0"}
        tag = re.sub(r"py[\d.]+(_.*_)[\d.]+$", rf"py{own['python']}\g<1>{own['torch']}", images[0]["tag"])
        images.append({**images[0], **own, "tag": tag})
        self.matrix.write_text(yaml.safe_dump(matrix, sort_keys=False))

    def path_with_amds_torch(self, machine: Machine) -> str:
        """PATH with a Python whose torch calls itself AMD's, as in an image of rocm/pytorch."""
        folder, _, path = machine.environ["PATH"].partition(":")
        made = shutil.copytree(Path(folder).parent, self.folder / "python-amd", symlinks=True)
        (version,) = made.glob("lib/python3*/site-packages/torch/version.py")
        version.write_text(version.read_text().replace("2.13.0+rocm7.2", "2.13.0+rocm7.2.4.git0123abc"))
        return f"{made}/bin:{path}"

    def build_local(self, machine: Machine, archs: str, *arguments: str) -> Done:
        """Build a wheel of this machine's torch for these archs alone."""
        versions = ("2.8.3", f"3.{sys.version_info[1]}", "2.13.0", "auto")
        options = ("--dest", self.folder / "wheels", "--matrix", self.matrix)
        return machine.run("build", *versions, *options, *arguments, PYTORCH_ROCM_ARCH=archs)


@dataclass(frozen=True)
class Built:
    """What a machine has made that compiled the whole cell."""

    site: Site
    machine: Machine
    compiled: Sequence[str]
    wheel: Path
    archives: Path
    """Of all sets of the cell."""


@pytest.fixture(scope="module")
def first(cache: Path, small_rocm: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory) -> Built:
    site = Site(tmp_path_factory.mktemp("first"), cache, small_rocm)
    machine = site.machine("machine")
    wheel = path_of(site.build(machine))
    compiled = machine.compiled()
    pack_kernels(machine, site.archives, SMALL_SETS)
    return Built(site, machine, compiled, wheel, site.archives)


@pytest.fixture(scope="module")
def amds_wheel(first: Built) -> Path:
    """The wheel for AMD's torch that the same machine links."""
    first.site.add_amds_image()
    path = first.site.path_with_amds_torch(first.machine)
    return path_of(first.site.build(first.machine, cell=AMDS, PATH=path))


@pytest.fixture(scope="module")
def half(cache: Path, small_rocm: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the archive of the first shard of two of `SET`."""
    site = Site(tmp_path_factory.mktemp("half"), cache, small_rocm)
    path_of(site.kernels(site.machine("machine"), "--shard", "1/2"))
    return site.archives


@pytest.fixture
def site(tmp_path: Path, cache: Path, small_rocm: Mapping[str, str]) -> Site:
    return Site(tmp_path, cache, small_rocm)


def path_of(done: Done) -> Path:
    """The only line on stdout of a command that did what it was asked."""
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    return Path(line)


def refused(done: Done, code: int, *messages: str) -> None:
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr.partition("\nerror: ")[2]
    assert "hint: " in done.stderr
    for text in messages:
        assert text in done.stderr


def parts(machine: Machine) -> list[str]:
    """The kernels that hipcc has compiled for the arch of `SET` since this was asked last."""
    named = (name.partition(" for ") for name in machine.compiled())
    return [name for name, _, targets in named if targets == "gfx942"]


# once


def test_unplanned_kernels_are_refused_before_compiling(site: Site) -> None:
    machine = site.machine("one")
    listed = SourceList((*SMALL_KERNELS[1:], "fmha_bwd_d256_bf16_7"), 1000, "")
    release = load_matrix(site.matrix).flash_attn["2.8.3"]
    write_source_list(listed, release.source_pin, machine.cache, release.trim)
    what = "error: this build and `wheelfactory plan` list different kernels: "
    which = f"1 missing: fmha_bwd_d256_bf16_7; 1 unplanned: {SMALL_KERNELS[0]}\n"
    refused(site.kernels(machine), BUILD_FAILED, what + which, "OPT_DIM")
    assert machine.compiled() == []


def test_a_second_cell_reuses_the_kernels_of_the_first(first: Built) -> None:
    assert count_targets(first.compiled) == WHOLE_CELL
    wheel = path_of(first.site.build(first.machine))
    assert first.machine.compiled() == ["flash_api"]

    found = inspect(wheel, first.site.rocm)
    assert found.distribution
    assert found.distribution.record
    assert found.distribution.record.kernels
    assert len(list(first.machine.cache.glob("kernels/*/journal.jsonl"))) == len(SMALL_SETS)
    (extension,) = found.elf_files
    assert {code.objects for code in extension.device_code.values()} == {DEVICE_KERNELS + 1}


def test_a_cell_for_amds_torch_links_the_kernels_of_pytorchs(first: Built, amds_wheel: Path) -> None:
    assert first.machine.compiled() == ["flash_api"]
    refused(first.site.build(first.machine, cell=AMDS), BUILD_FAILED, "on PATH has AMD's torch 2.13.0")
    assert "+rocm72torch2.13amd-" in amds_wheel.name
    record = read_build_record(Wheel.open(amds_wheel))
    assert record
    assert (record.cell, record.toolchain.torch) == (AMDS, "2.13.0+rocm7.2.4.git0123abc")


def test_amds_torch_on_a_newer_system_links_whole_archives_of_the_same_compiler(
    site: Site, first: Built, half: Path, amds_wheel: Path
) -> None:
    """As in AMD's images for Ubuntu 24.04, whose compiler is another file of the same release."""
    site.receive(first.archives, without=SET)
    site.receive(half)
    machine = site.machine("newer")
    site.add_amds_image()
    rocm = shutil.copytree(machine.environ["ROCM_PATH"], site.folder / "rocm", symlinks=True)
    with (rocm / "bin/hipcc").open("a") as file:
        file.write("# as another distribution has it\n")
    settings = {"ROCM_PATH": str(rocm), "ROCM_HOME": str(rocm), "PATH": site.path_with_amds_torch(machine)}

    def build(cell: str, **changes: str) -> Done:
        return site.build(machine, "--kernels", site.archives, cell=cell, **{**settings, **changes})

    refused(build(AMDS), BUILD_FAILED, "the kernel archives are incomplete: ")
    site.receive(first.archives)
    wheel = path_of(build(AMDS))
    assert read_compiles((rocm / "hipcc.log").read_text()) == ["flash_api"]
    pytorchs = build(CELL, PATH=machine.environ["PATH"])
    refused(pytorchs, BUILD_FAILED, "the kernel archive was compiled differently: compiler.content")
    assert read_zip(wheel) == read_zip(amds_wheel)


def test_a_limit_removes_the_kernels_that_the_build_does_not_link(site: Site) -> None:
    machine = site.machine("one")
    path_of(site.build_local(machine, "gfx942;gfx950"))
    sets = {*machine.cache.glob("kernels/*")}
    path_of(site.build_local(machine, "gfx942", "--cache-size", "0.0001MB"))
    assert len(sets - {*machine.cache.glob("kernels/*")}) == 1
    machine.compiled()

    path_of(site.build_local(machine, "gfx942;gfx950"))
    assert count_targets(machine.compiled()) == {"gfx950": DEVICE_KERNELS, ordinary("gfx950"): 1, "": 1}


def test_kernels_of_one_release_are_linked_by_another_with_equal_sources(site: Site) -> None:
    machine = site.machine("one")
    site.share(machine, "2.8.3.post2")
    archive = path_of(site.kernels(machine, kernel_set=SHARED_SETS[0]))
    assert archive.name.rpartition("-")[0] == SHARED_SETS[0]
    machine.compiled()

    (sdist,) = machine.cache.glob("sources/*/flash_attn-2.8.3.post2.tar.gz")
    sdist.rename(sdist.with_name("flash_attn-2.8.3.tar.gz"))
    path_of(site.build(machine))
    others = ARCHS[1:]
    assert count_targets(machine.compiled()) == {
        **dict.fromkeys(others, DEVICE_KERNELS), "host": KERNELS, ordinary(*others): KINDS, "": 1
    }  # fmt: skip


def test_a_release_that_cannot_be_fetched_is_replaced_by_one_with_equal_sources(site: Site) -> None:
    machine = site.machine("one")
    site.share(machine, "2.8.3")
    done = site.kernels(machine, kernel_set=SHARED_SETS[0], PIP_INDEX_URL="http://127.0.0.1:9/simple")
    assert path_of(done).name.startswith(SHARED_SETS[0])
    assert "compiling the same kernels from flash-attn 2.8.3\n" in done.stderr


def test_another_machine_links_the_archives_of_the_sets_to_the_same_wheel(site: Site, first: Built) -> None:
    site.receive(first.archives)
    other = site.machine("two")
    linked = read_zip(path_of(site.build(other, "--kernels", site.archives)))
    assert other.compiled() == ["flash_api"]
    compiled = read_zip(first.wheel)
    assert [name for name in compiled if compiled[name] != linked.get(name)] == []


def test_a_wheel_whose_host_code_was_changed_is_not_what_its_sources_make(site: Site, first: Built) -> None:
    """Gates that need a torch for ROCm do not run here."""
    site.receive(first.archives)
    verifier, rows = site.machine("two"), site.folder / "rows"
    wheel = Path(shutil.copy(first.wheel, site.folder))
    command = ("ci", "batch", "verify", CELL, "--wheels", wheel.parent, "--rows", rows, "--matrix", site.matrix)
    more = ("--kernels", site.archives, "--executor", "local")

    done = verifier.run(*command, *more)
    assert verifier.compiled() == ["flash_api"], done.stderr
    assert "it differs in" not in done.stderr

    members = read_zip(wheel)
    extension = next(name for name in members if name.endswith(".so"))
    tamper(wheel, {extension: members[extension][:-1] + b"!"})
    done = verifier.run(*command, *more)
    assert f"rebuild: {wheel.name}: expected the bytes of a build on this machine" in done.stderr
    assert f"it differs in {extension} (" in done.stderr


def test_shards_of_two_machines_are_linked_and_merged(site: Site, first: Built, half: Path) -> None:
    site.receive(first.archives, without=SET)
    site.receive(half)
    path_of(site.kernels(site.machine("two"), "--shard", "2/2"))
    builder = site.machine("three")
    path_of(site.build(builder, "--kernels", site.archives))
    assert builder.compiled() == ["flash_api"]

    merged = read_archive_manifest(path_of(site.kernels(builder, "--merge")))
    assert sorted(merged.objects) == sorted(merged.set_key.sources)
    assert len(merged.objects) == DEVICE_KERNELS


# time that is up


def test_a_short_budget_leaves_a_partial_archive_that_another_machine_resumes(site: Site) -> None:
    one = site.machine("one")
    site.slow_down(one)
    done = site.kernels(one, "--shard", "1/2", "--budget", "1")
    (part,) = site.archives.iterdir()
    refused(done, RUN_AGAIN, "time limit reached", "kernels are compiled", str(part), "run the same command again")
    assert done.stdout == ""
    before = list(read_archive_manifest(part).objects)
    assert sorted(parts(one)) == before
    assert {*read_archive_manifest(part).expected} - {*before} == {SLOW}

    refused(site.kernels(one, "--merge"), RUN_AGAIN, f"shard 1/2: {len(before)} of ", "shard 2/2: no kernel")

    other = site.machine("two")
    archive = path_of(site.kernels(other, "--shard", "1/2"))
    assert parts(other) == [SLOW]
    assert sorted([*before, SLOW]) == sorted(read_archive_manifest(archive).objects)
    assert list(site.archives.iterdir()) == [archive]


def test_an_existing_shard_is_reused_without_running_setup_py(site: Site, half: Path) -> None:
    site.receive(half)
    (shard,) = site.archives.iterdir()
    other = site.machine("two")
    assert path_of(site.kernels(other, "--shard", "1/2")) == shard
    assert not (other.cache / "logs").exists()

    shard.write_bytes(shard.read_bytes()[:-20])
    again = site.kernels(other, "--shard", "1/2")
    assert path_of(again) == shard
    assert "damaged kernel archive" in again.stderr
    assert not read_archive_manifest(shard).is_partial


def test_setup_py_tells_which_of_two_archives_is_of_this_compiler(site: Site, half: Path) -> None:
    flags = {"HIPCC_COMPILE_FLAGS_APPEND": "--offload-compress"}
    path_of(site.kernels(site.machine("one"), "--shard", "1/2", **flags))
    (other,) = site.archives.iterdir()
    site.receive(half)

    machine = site.machine("three")
    done = site.kernels(machine, "--shard", "1/2")
    assert path_of(done).name == next(half.iterdir()).name
    assert machine.compiled() == []
    assert "2 archives of different keys" in done.stderr
    assert f"ignored {other.name}, its key differs: flags: " in done.stderr


def test_a_stored_set_is_downloaded_and_linked_without_compiling(site: Site, first: Built) -> None:
    release = site.folder / "release"
    site.receive(first.archives)
    (archive,) = find_archives(site.archives, SET)
    key = read_archive_manifest(archive).set_key
    proof = proof_of(SET, key, archs=tuple(key.parts["targets"]))
    proof_path(site.archives, SET, key.digest).write_text(json.dumps(asdict(proof)))
    merged = path_of(site.kernels(site.machine("gather"), "--merge", "--upload", str(release)))
    shutil.rmtree(site.archives)
    site.receive(first.archives, without=SET)

    builder = site.machine("builder")
    downloaded = path_of(site.kernels(builder, "--download", str(release)))
    assert downloaded == site.archives / merged.name
    path_of(site.build(builder, "--kernels", site.archives))
    assert builder.compiled() == ["flash_api"]
