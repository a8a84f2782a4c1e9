"""Our ninja, as torch starts it: which sources it compiles, in which order, what it stores and what it refuses."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_project import BINDING, KERNELS, Project, make_project
from wheelfactory.core.strict import read_lines
from wheelfactory.kernels.compiler.compile_run import choose_samples
from wheelfactory.kernels.compiler.costs import Ledger, Measurement, seed_cost
from wheelfactory.kernels.compiler.ninja import NOT_LINKED
from wheelfactory.kernels.compiler.request import FAILED, READY_TO_LINK, SHARD_DONE, TIME_UP
from wheelfactory.kernels.compiler.store import ObjectRecord, Store

pytestmark = pytest.mark.slow


ARCH = "gfx942"
DEVICE = tuple(f"{name} for {ARCH}" for name in KERNELS if not name.endswith("_api"))
"""The compiles of device code. The sources that choose a kernel have none."""
HOST = tuple(f"{name} for host" for name in KERNELS)
SAMPLES = choose_samples([*((name, (ARCH,)) for name in KERNELS[:-1]), *((name, ("host",)) for name in KERNELS)], {})


def link_order(project: Project) -> list[str]:
    code, output = project.run()
    assert code == 0, output
    return project.compiled()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project that was built, one compile at a time. No test changes it."""
    project = make_project(tmp_path_factory.mktemp("built"))
    code, output = project.run(project.request(jobs=1))
    assert code == 0, output
    return project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path)


@pytest.fixture
def stocked(project: Project, built: Project) -> Project:
    """A project whose store has the kernels that `built` compiled."""
    shutil.copytree(built.kernels, project.kernels, dirs_exist_ok=True)
    return project


def key_of(project: Project, **environ: str) -> str:
    """Run until the first compile, which fails."""
    project.run(project.request(), HIPCC_DOES="exit 1", **environ)
    return project.report().key


# everything, once


def test_every_kernel_and_binding_is_compiled_and_torch_may_link(built: Project) -> None:
    assert sorted(built.compiled()) == sorted([*DEVICE, *HOST, BINDING])
    assert all(built.output(name).is_file() for name in (*KERNELS, BINDING))
    assert built.report().state == READY_TO_LINK
    assert (built.report().total, built.report().compiled) == (len(DEVICE + HOST), len(DEVICE + HOST))
    assert sorted(built.finished()) == sorted(KERNELS)


def test_samples_come_first_then_the_dearest_and_bindings_last(built: Project) -> None:
    compiled = built.compiled()
    samples = [item for item in (*DEVICE, *HOST) if item.partition(" for ")[0] in SAMPLES]
    assert sorted(compiled[: len(samples)]) == sorted(samples)
    rest = compiled[len(samples) : -1]
    assert rest == sorted(rest, key=lambda item: (-cost_of(item), item))
    assert compiled[-1] == BINDING


def cost_of(item: str) -> float:
    name, _, target = item.partition(" for ")
    return seed_cost(name, (target,)).cpu_s


def test_a_second_cell_compiles_its_binding_and_no_kernel(stocked: Project, built: Project, tmp_path: Path) -> None:
    second = make_project(tmp_path, "other/flash_attn-2.8.3", kernels=stocked.kernels, torch="/other/torch")
    assert link_order(second) == [BINDING]
    assert second.report().reused == len(DEVICE + HOST)
    assert all(second.output(name).read_bytes() == built.output(name).read_bytes() for name in KERNELS)


def test_only_bindings_get_the_flags_of_torch(built: Project) -> None:
    lines = [line for line in built.log.read_text().splitlines() if " -c " in line]
    (binding,) = [line for line in lines if f"{BINDING}.hip" in line]
    assert f"-I{built.torch}/include" in binding
    assert "-DTORCH_EXTENSION_NAME" in binding
    # the object is the same on another tree and with another folder of torch
    assert binding.count(f"-cuid={BINDING}") == 1
    assert "-ffile-prefix-map=/venv/=" in binding
    for line in lines:
        if line != binding:
            assert "torch" not in line.replace(str(built.root), "").lower()
            assert "-Icsrc/ck/include" in line


def test_early_inlining_is_disabled_for_kernels_of_a_compiler_that_blows_up(tmp_path: Path) -> None:
    pair = "-mllvm -amdgpu-early-inline-all=true -mllvm -amdgpu-function-calls=false"
    project = make_project(tmp_path, flags=pair)
    code, output = project.run()
    assert code == 0, output
    assert "wheelfactory: clang version 19.0.0 inlines without end with" in output
    lines = project.log.read_text().splitlines()
    inlined = {f"{BINDING}.hip" in line: "-amdgpu-early-inline-all=true" in line for line in lines}
    assert inlined == {True: True, False: False}
    assert all("-amdgpu-early-inline-all=false" in line for line in lines if f"{BINDING}.hip" not in line)


def test_costs_of_stored_objects_count_though_they_come_from_another_machine(stocked: Project, built: Project) -> None:
    folder, dear = stocked.kernels / built.store().folder.name, KERNELS[3]
    entries = [replace(entry, cpu_s=1000.0 if name == dear else 1.0) for name, entry in built.finished().items()]
    (folder / "journal.jsonl").write_text("".join(entry.to_line() for entry in entries))
    shutil.rmtree(folder / "objects")
    (stocked.kernels / "ledger.jsonl").unlink()

    code, output = stocked.run(stocked.request(jobs=1))
    assert code == 0, output
    compiled = [item for item in stocked.compiled() if item.endswith("host") and item.partition(" ")[0] not in SAMPLES]
    assert compiled[0] == f"{dear} for host"


# shards, each for one target


def test_shards_together_are_the_whole_set_and_nothing_twice(project: Project) -> None:
    for index in (1, 2, 3):
        code, output = project.run(project.request(targets=(ARCH,), shard=f"{index}/3"))
        assert code == NOT_LINKED, output
        assert project.report().state == SHARD_DONE
    assert sorted(project.compiled()) == sorted(DEVICE)
    project.log.unlink()

    assert sorted(link_order(project)) == sorted([*HOST, BINDING])


def test_more_shards_than_kernels_are_refused(project: Project) -> None:
    code, _ = project.run(project.request(targets=(ARCH,), shard=f"1/{len(DEVICE) + 1}"))
    assert code == NOT_LINKED
    assert "more shards than kernels" in (project.root / "result.json").read_text()


def test_this_machines_measurements_do_not_change_shards(project: Project, tmp_path: Path) -> None:
    project.run(project.request(targets=(ARCH,), shard="1/2"))
    other = make_project(tmp_path / "other")
    costs = (Measurement(name, (ARCH,), "c1", 9.0 if name in DEVICE[0] else 1.0, 500, 1000) for name in KERNELS)
    (other.kernels / "ledger.jsonl").write_text("".join(cost.to_line() for cost in costs))
    other.run(other.request(targets=(ARCH,), shard="1/2"))
    assert other.report().sources == project.report().sources


# parts


def test_another_arch_is_compiled_alone(stocked: Project, tmp_path: Path) -> None:
    # the driver sorts the archs, which an order as in the options would not match
    wider = make_project(tmp_path, "flash_attn-2.8.4", flags="--offload-arch=gfx90a")
    assert sorted(link_order(wider)) == sorted([*(item.replace(ARCH, "gfx90a") for item in DEVICE), BINDING])
    outputs = [wider.output(item.partition(" ")[0]).read_bytes() for item in DEVICE]
    assert all(b"--gfx942" in output and b"--gfx90a" in output for output in outputs)


def test_an_object_in_the_store_that_is_of_another_source_is_refused_before_the_link(
    stocked: Project, built: Project, tmp_path: Path
) -> None:
    """An archive or a worker can give a whole object, with a right digest, under the name of another."""
    store = Store.open(stocked.kernels, built.report().keys[0])
    one, two, *_ = store.read_records().values()
    copy = tmp_path / "copy.o"
    copy.write_bytes(store.object_path(two.source).read_bytes())
    store.save_object(copy, replace(two, source=one.source))

    code, output = stocked.run()

    assert code == NOT_LINKED, output
    assert f"kernel object of another source: {store.object_path(one.source)} for {ARCH}" in output


def test_another_abi_compiles_host_code_alone(stocked: Project, tmp_path: Path) -> None:
    older = make_project(tmp_path, "flash_attn-2.8.4", flags="-D_GLIBCXX_USE_CXX11_ABI=0")
    assert sorted(link_order(older)) == sorted([*HOST, BINDING])


def every_record(project: Project) -> list[ObjectRecord]:
    return [entry for path in project.kernels.glob("*/journal.jsonl") for entry in read_lines(ObjectRecord, path)]


@pytest.mark.parametrize("target", [ARCH, "host"])
def test_one_target_alone_is_refused_where_objects_cannot_be_put_together(project: Project, target: str) -> None:
    code, _ = project.run(project.request(targets=(target,)), HIPCC_CANNOT="make the same even plain")
    assert code == NOT_LINKED
    refused = json.loads((project.root / "result.json").read_text())
    assert refused["what"] == "this compiler's objects cannot be put together"
    assert "differs from an ordinary compile" in refused["which"]
    assert every_record(project) == []


def test_headers_are_precompiled_once_for_each_target_and_used_by_every_compile(built: Project) -> None:
    lines = built.log.read_text().splitlines()
    assert len([line for line in lines if "-emit-pch" in line]) == 2
    parts = [line for line in lines if "--cuda-" in line and " -c " in line]
    assert len(parts) == len(DEVICE + HOST)
    assert all("-include-pch" in line for line in parts)


def test_a_source_with_code_before_its_first_include_uses_no_precompiled_header(project: Project) -> None:
    name = KERNELS[0]
    source = project.root / f"build/{name}.hip"
    source.write_text(f"int first;\n{source.read_text()}")
    link_order(project)
    lines = [line for line in project.log.read_text().splitlines() if f"-c build/{name}.hip" in line]
    assert lines and not any("-include-pch" in line for line in lines)


# sources that have code for some archs only

RADEON = KERNELS[0]


def guarded_project(folder: Path, archs: str = "gfx950 gfx1201") -> Project:
    """A project for these archs and gfx942, with one kernel that has code for gfx12 alone."""
    project = make_project(folder, flags=" ".join(f"--offload-arch={arch}" for arch in archs.split()))
    source = project.root / f"build/{RADEON}.hip"
    guard = "#if !defined(__HIP_DEVICE_COMPILE__) || (defined(__gfx12__))"
    source.write_text(f"{source.read_text()}{guard}\ncode\n#endif\n")
    return project


def made_from_nothing(project: Project) -> list[str]:
    """The compiles of empty sources, by where they write: ``gfx942/NAME.o``."""
    lines = (project.root / "empty.log").read_text().splitlines()
    return sorted("/".join(Path(line).parts[-2:]) for line in lines)


LOG_EMPTY = '[ -s "$source" ] || echo "$output" >> "$(dirname "$HIPCC_LOG")/empty.log"'


@pytest.fixture(scope="module")
def ordinary(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, bytes]:
    """The objects of a guarded project that ordinary compiles make."""
    project = guarded_project(tmp_path_factory.mktemp("ordinary"))
    project.run(HIPCC_CANNOT="bundle")
    return outputs(project)


def outputs(project: Project) -> dict[str, bytes]:
    return {name: project.output(name).read_bytes() for name in KERNELS}


def test_an_arch_that_a_source_has_no_code_for_takes_an_empty_source_and_the_object_is_the_ordinary_one(
    tmp_path: Path, ordinary: Mapping[str, bytes]
) -> None:
    project = guarded_project(tmp_path)
    code, output = project.run(HIPCC_DOES=LOG_EMPTY)
    assert code == 0, output
    assert made_from_nothing(project) == [f"{arch}/{RADEON}.o" for arch in (ARCH, "gfx950")]
    assert outputs(project) == ordinary
    # and says nothing about the cost of the source
    ledger = Ledger.read(project.kernels / "ledger.jsonl")
    assert {entry.targets for entry in ledger.measurements if entry.source == RADEON} == {("gfx1201",), ("host",)}


@pytest.mark.parametrize("cannot", ["precompile", "make the same", "do empty", "make the same even plain"])
def test_whatever_the_compiler_cannot_do_guarded_objects_are_ordinary(
    tmp_path: Path, cannot: str, ordinary: Mapping[str, bytes]
) -> None:
    project = guarded_project(tmp_path)
    code, output = project.run(HIPCC_CANNOT=cannot)
    assert code == 0, output
    assert outputs(project) == ordinary
    assert "without precompiled headers" in output
    assert ("compiling without empty sources" in output) is ("empty" in cannot or "plain" in cannot)
    if "empty" in cannot:  # the sample of the guard shows it
        assert f"the device code of {RADEON} differs from an ordinary compile: compiling without empty" in output
    assert ("compiling whole objects the ordinary way" in output) is ("plain" in cannot)
    # nothing is kept of samples that differ
    kept = {len(entry.targets) for entry in every_record(project)}
    assert kept == ({4} if "plain" in cannot else {1})


def test_shards_are_cut_by_what_is_compiled(tmp_path: Path) -> None:
    """The dearest kernel for gfx1201 costs nothing for gfx942, and so is not in a shard of its own."""
    project = guarded_project(tmp_path / "project")
    costs = {**dict.fromkeys(KERNELS, 1.0), RADEON: 1000.0}
    lines = (Measurement(name, ("gfx1201",), "c1", cpu_s, 500, 1000).to_line() for name, cpu_s in costs.items())
    (tmp_path / "ledger.jsonl").write_text("".join(lines))
    shards = {}
    for arch in (ARCH, "gfx1201"):
        project.run(project.request(targets=(arch,), shard="1/2", shard_ledger=str(tmp_path / "ledger.jsonl")))
        shards[arch] = project.report().sources
    assert shards["gfx1201"] == (RADEON,)
    assert len(shards[ARCH]) == 2


# the new offload driver

NEW_DRIVER = "--offload-new-driver"


def test_with_the_new_offload_driver_objects_are_whole_and_the_reason_is_logged(project: Project) -> None:
    code, output = project.run(HIPCC_COMPILE_FLAGS_APPEND=NEW_DRIVER)
    assert code == 0, output
    assert sorted(project.compiled()) == sorted([*KERNELS, BINDING])
    (notice,) = [line for line in output.splitlines() if "compiling whole objects the ordinary way" in line]
    assert "the new offload driver" in notice
    assert "--no-offload-new-driver in HIPCC_COMPILE_FLAGS_APPEND" in notice


def test_a_binding_of_another_offload_driver_than_the_kernels_is_refused_before_the_link(project: Project) -> None:
    build = project.build / "build.ninja"
    build.write_text(build.read_text() + f"  cuda_cflags = --offload-arch={ARCH} {NEW_DRIVER}\n")
    code, output = project.run()
    refused = json.loads((project.root / "result.json").read_text())
    assert code == NOT_LINKED
    assert refused["what"] == "objects with device code in a form that cannot be linked"
    assert f"{BINDING}.o: bundles of the new offload driver" in refused["which"]
    assert "fmha_fwd_d128_fp16_batch.o: bundles of the old offload driver" in refused["which"]
    assert "--no-offload-new-driver" in refused["hint"]
    assert f"error: {refused['what']}" in output


# what changes a key


def variants(project: Project) -> dict[str, tuple[Path, str]]:
    return {
        "a kernel": (project.root / f"build/{KERNELS[0]}.hip", "// changed\n"),
        "a header": (project.root / "csrc/ck/include/ck.hpp", "// changed\n"),
        "the compiler": (project.hipcc, project.hipcc.read_text() + "# changed\n"),
    }


@pytest.mark.parametrize("what", ["a kernel", "a header", "the compiler"])
def test_a_change_gives_another_key_and_reuses_nothing(stocked: Project, built: Project, what: str) -> None:
    path, text = variants(stocked)[what]
    path.write_text(text)
    assert key_of(stocked) != built.report().key
    assert stocked.report().reused == 0


def test_what_changes_no_object_is_not_in_the_key(stocked: Project, built: Project) -> None:
    """Files that Python leaves beside the headers, and the folder of ROCm."""
    left = stocked.root / "csrc/ck/include/__pycache__/generate.cpython-311.pyc"
    left.parent.mkdir()
    left.write_bytes(b"compiled")
    rocm = str(stocked.hipcc.parents[1])
    assert key_of(stocked, ROCM_PATH=rocm, HIP_PATH=rocm) == built.report().key
    assert stocked.report().reused == len(DEVICE + HOST)


def test_a_flag_in_the_environment_reaches_the_kernels_and_the_key(stocked: Project, built: Project) -> None:
    code, output = stocked.run(HIPCC_COMPILE_FLAGS_APPEND="--fast")
    assert code == 0, output
    assert stocked.report().key != built.report().key
    assert sorted(stocked.compiled()) == sorted([*DEVICE, *HOST, BINDING])
    for line in stocked.log.read_text().splitlines():
        if f"{BINDING}.hip" in line:
            assert line.endswith("append=--fast")
        else:
            assert line.count("--fast") == 1
            assert line.endswith("append=")  # on the command line, and not twice


def test_a_variable_that_the_compiler_reads_is_in_the_key(project: Project, built: Project) -> None:
    changed = [key_of(project, **{name: "/somewhere"}) for name in ("CCC_OVERRIDE_OPTIONS", "CPATH")]
    assert len({*changed, built.report().key}) == 3


def test_a_kernel_that_uses_a_dropped_macro_is_refused(project: Project) -> None:
    (project.root / f"build/{KERNELS[0]}.hip").write_text("#ifdef TORCH_EXTENSION_NAME\n#endif\n")
    code, _ = project.run()
    assert code == NOT_LINKED
    refused = json.loads((project.root / "result.json").read_text())
    assert refused["which"] == f"TORCH_EXTENSION_NAME in {KERNELS[0]}"
    assert project.compiled() == []


# resume


def test_after_a_failure_finished_objects_are_reused(project: Project) -> None:
    code, output = project.run(
        project.request(jobs=1), HIPCC_DOES='case $source in *d128*group*) echo "boom" >&2; exit 3 ;; esac'
    )
    assert code not in (0, NOT_LINKED)
    assert "boom" in output
    assert project.report().state == FAILED
    before = {f"{entry.source} for {entry.targets[0]}" for entry in every_record(project)}
    assert before

    code, output = project.run()
    assert code == 0, output
    assert project.report().reused == len(before)
    assert {item for item in project.compiled() if project.compiled().count(item) > 1}.isdisjoint(before)


def test_after_a_kill_finished_objects_are_reused_and_no_compile_runs_on(project: Project) -> None:
    def finished() -> int:
        return sum(len(path.read_text().splitlines()) for path in project.kernels.glob("*/journal.jsonl"))

    process = project.start(project.request(), HIPCC_DOES="sleep 0.2")
    # An object is finished when the journal names it, which is after its file is there.
    while finished() < 6:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    time.sleep(1.0)  # what was started ends
    started = project.compiled()
    time.sleep(0.5)
    assert project.compiled() == started
    project.log.unlink()

    assert project.report().state == FAILED
    kept = {f"{entry.source} for {entry.targets[0]}" for entry in every_record(project)}
    code, output = project.run()
    assert code == 0, output
    assert project.report().reused == len(kept)
    again = {item.partition(" ")[0] for item in kept & {*project.compiled()}}
    assert len(again) <= len(SAMPLES)  # one of each kind is compared, all its parts


def test_a_damaged_object_is_compiled_again_and_never_linked(stocked: Project, built: Project) -> None:
    store = Store.open(stocked.kernels, built.report().keys[-1])
    missing, changed = (store.object_path(name) for name in KERNELS[:2])
    content = changed.read_bytes()
    missing.unlink()
    changed.unlink()
    changed.write_bytes(b"X" + content[1:])

    code, output = stocked.run(stocked.request(archive_keys=(store.key.parts,)))
    assert code == 0, output
    assert sorted(stocked.compiled()) == sorted([*(f"{name} for host" for name in KERNELS[:2]), BINDING])
    assert outputs(stocked) == outputs(built)
    assert "wheelfactory: 2 stored objects are missing or damaged" in output
    assert "no given archive" not in output


def test_two_builds_of_one_set_at_once_compile_it_once(project: Project, tmp_path: Path) -> None:
    other = make_project(tmp_path, "second/flash_attn-2.8.3", kernels=project.kernels)
    go = tmp_path / "go"
    first = project.start(project.request(), HIPCC_DOES=f"while [ ! -e {go} ]; do sleep 0.05; done")
    while not project.log.exists():
        time.sleep(0.01)
    with other.start(other.request()) as second:
        assert second.stdout
        waiting = "waiting for another build that compiles these kernels"
        assert any(waiting in line for line in second.stdout)
        go.touch()
        second.communicate()
    first.communicate()
    assert second.returncode == 0
    assert sorted([*project.compiled(), *other.compiled()]) == sorted([*DEVICE, *HOST, BINDING, BINDING])


def test_shards_of_one_set_do_not_wait_for_each_other(project: Project, tmp_path: Path) -> None:
    other = make_project(tmp_path, "second/flash_attn-2.8.3", kernels=project.kernels)
    go = tmp_path / "go"
    first = project.start(
        project.request(targets=(ARCH,), shard="1/2"), HIPCC_DOES=f"while [ ! -e {go} ]; do sleep 0.05; done"
    )
    while not project.log.exists():
        time.sleep(0.01)
    code, output = other.run(other.request(targets=(ARCH,), shard="2/2"))
    go.touch()
    first.communicate()
    assert code == NOT_LINKED, output
    assert "waiting" not in output
    assert sorted([*project.compiled(), *other.compiled()]) == sorted(DEVICE)


# time that is up


def test_at_the_deadline_it_stops_cleanly_and_the_next_run_resumes(stocked: Project, built: Project) -> None:
    project = stocked
    ledger, dear = project.kernels / "ledger.jsonl", f"{KERNELS[3]} for host"
    (measured, *_) = [entry for entry in Ledger.read(ledger).measurements if entry.source == KERNELS[3]]
    ledger.write_text(replace(measured, targets=("host",), cpu_s=1000.0).to_line())
    shutil.rmtree(project.kernels / built.store().folder.name)

    code, _ = project.run(project.request(deadline=time.time() + 900))
    assert code not in (0, NOT_LINKED)
    assert project.report().state == TIME_UP
    assert sorted(project.compiled()) == sorted({*HOST} - {dear})

    code, output = project.run(project.request(deadline=time.time() + 3600))
    assert code == 0, output
    assert sorted(project.compiled()) == sorted([*HOST, BINDING])


def test_a_deadline_too_short_for_one_compile_is_an_error(project: Project) -> None:
    code, _ = project.run(project.request(deadline=time.time() + 5))
    assert code == NOT_LINKED
    assert "too little time to compile one kernel" in (project.root / "result.json").read_text()


def test_a_compile_error_counts_more_than_the_deadline(project: Project) -> None:
    project.run(project.request(deadline=time.time() + 80), HIPCC_DOES="exit 3")
    assert project.report().state == FAILED


# archives handed over


def test_an_archive_of_another_key_is_refused_before_anything_is_compiled(project: Project) -> None:
    code, _ = project.run(project.request(archive_keys=({"compiler": "another", "targets": ["host"]},)))
    assert code == NOT_LINKED
    refused = json.loads((project.root / "result.json").read_text())
    assert refused["what"] == "the kernel archive was compiled differently"
    assert "compiler" in refused["which"]
    assert project.compiled() == []


def test_kernels_missing_in_all_archives_are_logged_before_they_are_compiled(project: Project) -> None:
    project.run(project.request(targets=("host",), shard="1/2"))
    key = project.store().key
    code, output = project.run(project.request(archive_keys=(key.parts,)))
    assert code == 0
    assert f"of {len(KERNELS)} kernels that no given archive contains" in output
    assert output.index("no given archive") < output.index("/min, ")


# what is not ours


def test_queries_go_to_the_real_ninja(project: Project) -> None:
    code, output = project.run(None, "--version")
    assert code == 0
    assert output.startswith("1.")


def test_a_build_without_kernels_goes_to_the_real_ninja(project: Project) -> None:
    (project.build / "build.ninja").write_text("rule touch\n  command = touch $out\nbuild other.o: touch\n")
    code, output = project.run(None, "-v")
    assert code == 0, output
    assert (project.build / "other.o").exists()


def test_kernels_with_different_flags_are_refused_and_two_of_them_named(project: Project) -> None:
    path = project.build / "build.ninja"
    path.write_text(
        path.read_text().replace(
            f"{KERNELS[2]}.hip\n", f"{KERNELS[2]}.hip\n  cuda_cflags = --offload-arch=gfx942 -O1\n"
        )
    )
    code, _ = project.run()
    assert code == NOT_LINKED
    refused = json.loads((project.root / "result.json").read_text())
    assert refused["what"] == "kernels of one set are compiled with different flags"
    assert refused["which"] == f"{KERNELS[0]} and {KERNELS[2]}"
    assert "wheelfactory.kernels.compiler.key" in refused["hint"]
    assert project.compiled() == []


def test_a_program_before_the_compiler_is_refused(project: Project) -> None:
    path = project.build / "build.ninja"
    path.write_text(path.read_text().replace("nvcc = ", "nvcc = ccache "))
    code, output = project.run()
    assert code == NOT_LINKED
    assert "hipcc is not started directly: ccache" in output
