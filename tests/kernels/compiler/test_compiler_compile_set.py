"""Our ninja, as torch starts it: which sources it compiles, in which order, what it stores and what it refuses."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_project import BINDING, KERNELS, Project, keys_of, make_project
from wheelfactory.kernels.compiler.costs import Ledger, Measurement, seed_cost
from wheelfactory.kernels.compiler.ninja import NOT_LINKED
from wheelfactory.kernels.compiler.request import FAILED, READY_TO_LINK, SHARD_DONE, TIME_UP

pytestmark = pytest.mark.slow


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path)


def link_order(project: Project) -> list[str]:
    code, output = project.run()
    assert code == 0, output
    return project.compiled()


# everything, once


def test_every_kernel_and_binding_is_compiled_and_torch_may_link(project: Project) -> None:
    assert sorted(link_order(project)) == sorted([*KERNELS, BINDING])
    assert all(project.output(name).is_file() for name in (*KERNELS, BINDING))
    assert project.report().state == READY_TO_LINK
    assert project.report().compiled == len(KERNELS)
    assert sorted(project.finished()) == sorted(KERNELS)


def test_the_dearest_is_compiled_first_and_bindings_last(project: Project) -> None:
    code, output = project.run(project.request(jobs=1))
    assert code == 0, output
    assert project.compiled() == [*sorted(KERNELS, key=lambda name: (-seed_cost(name, 1).cpu_s, name)), BINDING]


def test_a_compiler_that_does_not_know_an_arch_is_refused_before_anything_is_compiled(project: Project) -> None:
    unknown = "echo \"error: invalid target ID 'gfx942'\" >&2; exit 1"
    project.hipcc.write_text(project.hipcc.read_text().replace('*" -### "* |', f'*" -### "*) {unknown} ;;'))
    code, _ = project.run()
    assert code == NOT_LINKED
    assert "unsupported by this compiler" in (project.root / "result.json").read_text()
    assert project.compiled() == []


def test_kernels_that_were_planned_are_compiled(project: Project) -> None:
    code, output = project.run(project.request(planned_sources=tuple(reversed(KERNELS))))
    assert code == 0, output


def test_other_kernels_than_were_planned_are_refused_with_their_names_before_anything_is_compiled(
    project: Project,
) -> None:
    planned = (*KERNELS[1:], *(f"fmha_fwd_d256_fp16_{number}" for number in range(7)))
    code, output = project.run(project.request(planned_sources=planned))
    refused = json.loads((project.root / "result.json").read_text())
    assert code == NOT_LINKED
    assert refused["what"] == "this build and `wheelfactory plan` list different kernels"
    named = ", ".join(f"fmha_fwd_d256_fp16_{number}" for number in range(5))
    assert refused["which"] == f"7 missing: {named}, ...; 1 unplanned: {KERNELS[0]}"
    assert "OPT_DIM" in refused["hint"]
    assert f"error: {refused['what']}: {refused['which']}" in output
    assert project.compiled() == []


def test_a_second_cell_compiles_its_binding_and_no_kernel(project: Project, tmp_path: Path) -> None:
    link_order(project)
    second = make_project(tmp_path, "other/flash_attn-2.8.3", kernels=project.kernels, torch="/other/torch")
    second.hipcc.write_text(project.hipcc.read_text())
    second.hipcc.chmod(0o755)

    assert link_order(second) == [BINDING]
    assert second.report().reused == len(KERNELS)
    assert all(second.output(name).read_bytes() == project.output(name).read_bytes() for name in KERNELS)


def test_only_bindings_get_the_flags_of_torch(project: Project) -> None:
    link_order(project)
    lines = {Path(line.partition(" -c ")[2].split()[0]).stem: line for line in project.log.read_text().splitlines()}
    binding = lines.pop(BINDING)
    assert f"-I{project.torch}/include" in binding
    assert "-DTORCH_EXTENSION_NAME" in binding
    assert "-cuid" not in binding
    assert len(set(lines)) == len(KERNELS)
    for line in lines.values():
        assert "torch" not in line.replace(str(project.root), "").lower()
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
    assert len([line for line in lines if "-amdgpu-early-inline-all=false" in line]) == len(KERNELS)


def test_status_lines_show_the_progress(project: Project) -> None:
    _, output = project.run()
    lines = [line for line in output.splitlines() if line.startswith("[")]
    assert len(lines) == len(KERNELS) + 1
    assert lines[-1].startswith(f"[{len(KERNELS) + 1}/{len(KERNELS) + 1}] ")
    assert "left, peak" in lines[0]


def test_every_compile_records_its_cost(project: Project) -> None:
    project.run(HIPCC_DOES="sleep 0.01; head -c 20000000 /dev/zero | sha256sum > /dev/null")
    ledger = Ledger.read(project.kernels / "ledger.jsonl")
    assert sorted(entry.source for entry in ledger.measurements) == sorted(KERNELS)
    assert all(entry.archs == ("gfx942",) and entry.peak_mib > 0 for entry in ledger.measurements)
    assert len({entry.compiler for entry in ledger.measurements}) == 1


@pytest.mark.parametrize("cached", [False, True])
def test_costs_of_stored_objects_count_unless_they_came_from_a_compiler_cache(project: Project, cached: bool) -> None:
    link_order(project)
    store, dear = project.store(), KERNELS[-2]
    entries = [
        replace(entry, cpu_s=1000.0 if name == dear else 1.0, cached=cached)
        for name, entry in project.finished().items()
    ]
    store.journal.write_text("".join(entry.to_line() for entry in entries))
    shutil.rmtree(store.folder / "objects")
    (project.kernels / "ledger.jsonl").unlink()
    project.log.unlink()

    code, output = project.run(project.request(jobs=1))
    assert code == 0, output
    assert (project.compiled()[0] == dear) is not cached


# a compiler cache


CCACHE = """\
#!/bin/sh
for output; do :; done
kept=$CCACHE_DIR/$(echo "$CCACHE_COMPILERCHECK $*" | sha256sum | cut -c 1-16).cached
if [ -e "$kept" ]; then
  cp "$kept" "$output"
  echo HIT > "$CCACHE_STATSLOG"
else
  "$@" && cp "$output" "$kept"
  echo cache_miss > "$CCACHE_STATSLOG"
fi
"""
"""A fake ccache: it gets the identity of the compiler and reports hits in the same format."""


def make_ccache(folder: Path, hit: str) -> str:
    path = folder / "ccache"
    path.write_text(CCACHE.replace("HIT", hit))
    path.chmod(0o755)
    return str(path)


def forget(project: Project) -> None:
    """Lose what the store has; what was compiled and measured is still known."""
    shutil.rmtree(project.store().folder)


def test_hits_of_the_compiler_cache_are_not_measured(project: Project, tmp_path: Path) -> None:
    request = project.request(ccache=make_ccache(tmp_path, "preprocessed_cache_hit"))
    assert project.run(request)[0] == 0
    measured = Ledger.read(project.kernels / "ledger.jsonl")
    assert not any(entry.cached for entry in project.finished().values())
    forget(project)
    project.log.unlink()

    code, output = project.run(request)
    assert code == 0, output
    assert project.compiled() == [BINDING]
    assert all(entry.cached for entry in project.finished().values())
    assert Ledger.read(project.kernels / "ledger.jsonl") == measured


@pytest.mark.parametrize("what", ["the compiler", "its environment"])
def test_cached_objects_of_another_compiler_are_not_used(project: Project, tmp_path: Path, what: str) -> None:
    request = project.request(ccache=make_ccache(tmp_path, "direct_cache_hit"))
    project.run(request)
    project.log.unlink()
    environ = {"CPATH": "/somewhere"} if what == "its environment" else {}
    if what == "the compiler":
        project.hipcc.write_text(project.hipcc.read_text() + "# changed\n")

    code, output = project.run(request, **environ)
    assert code == 0, output
    assert sorted(project.compiled()) == sorted([*KERNELS, BINDING])


# shards


@pytest.mark.parametrize("count", [1, 3, len(KERNELS)])
def test_shards_together_are_the_whole_set_and_nothing_twice(project: Project, count: int) -> None:
    for index in range(1, count + 1):
        code, output = project.run(project.request(shard=f"{index}/{count}"))
        assert code == NOT_LINKED, output
        assert project.report().state == SHARD_DONE
    assert sorted(project.compiled()) == sorted(KERNELS)
    assert sorted(project.finished()) == sorted(KERNELS)

    code, output = project.run()
    assert code == 0, output
    assert project.compiled()[len(KERNELS) :] == [BINDING]


def test_more_shards_than_kernels_are_refused(project: Project) -> None:
    code, _ = project.run(project.request(shard=f"1/{len(KERNELS) + 1}"))
    assert code == NOT_LINKED
    assert "more shards than kernels" in (project.root / "result.json").read_text()


def test_this_machines_measurements_do_not_change_shards(project: Project, tmp_path: Path) -> None:
    project.run(project.request(shard="1/2"))
    first = project.report().sources
    other = make_project(tmp_path / "other")
    other.run(HIPCC_DOES="sleep 0.05")
    other.run(other.request(shard="1/2"))
    assert other.report().sources == first


def test_the_shard_ledger_decides_how_shards_are_cut(project: Project, tmp_path: Path) -> None:
    dear, *others = KERNELS
    costs = {**dict.fromkeys(others, 1.0), dear: 1000.0}
    lines = (Measurement(name, ("gfx942",), "c1", cpu_s, 500, 1000).to_line() for name, cpu_s in costs.items())
    (tmp_path / "ledger.jsonl").write_text("".join(lines))
    request = project.request(shard="1/2", shard_ledger=str(tmp_path / "ledger.jsonl"))
    project.run(request)
    assert project.report().sources == (dear,)


# what changes a key


def variants(project: Project) -> dict[str, tuple[Path, str]]:
    return {
        "a kernel": (project.root / f"build/{KERNELS[0]}.hip", "// changed\n"),
        "a header": (project.root / "csrc/ck/include/ck.hpp", "// changed\n"),
        "the compiler": (project.hipcc, project.hipcc.read_text() + "# changed\n"),
    }


@pytest.mark.parametrize("what", ["a kernel", "a header", "the compiler"])
def test_a_change_gives_another_key_and_compiles_all(project: Project, what: str) -> None:
    link_order(project)
    before = project.report().key
    path, text = variants(project)[what]
    path.write_text(text)
    project.log.unlink()

    assert sorted(link_order(project)) == sorted([*KERNELS, BINDING])
    assert project.report().key != before


def test_pyc_files_beside_the_headers_do_not_change_the_key(project: Project) -> None:
    link_order(project)
    key = project.report().key
    left = project.root / "csrc/ck/include/__pycache__/generate.cpython-311.pyc"
    left.parent.mkdir()
    left.write_bytes(b"compiled")
    project.run()
    assert project.report().key == key


def test_the_compiler_is_its_content_and_not_its_time(project: Project) -> None:
    link_order(project)
    os.utime(project.hipcc, (1, 1))
    before = project.report().key
    project.run()
    assert project.report().key == before


def test_a_flag_in_the_environment_reaches_the_kernels_and_the_key(project: Project) -> None:
    plain = link_order(project)
    key = project.report().key
    code, output = project.run(HIPCC_COMPILE_FLAGS_APPEND="--offload-compress")
    assert code == 0, output
    assert project.report().key != key
    lines = project.log.read_text().splitlines()[len(plain) :]
    assert len(lines) == len(plain)
    for line in lines:
        if BINDING in line:
            assert line.endswith("append=--offload-compress")
        else:
            assert "--offload-compress -cuid" in line
            assert line.endswith("append=")  # on the command line, where a cache sees it, and not twice


def test_a_variable_that_the_compiler_reads_is_in_the_key(project: Project) -> None:
    keys = set()
    for environ in ({}, {"CCC_OVERRIDE_OPTIONS": "/somewhere"}, {"CPATH": "/somewhere"}):
        project.run(project.request(), **environ)
        keys.add(project.report().key)
    assert len(keys) == 3


def test_the_rocm_folder_is_not_in_the_key(tmp_path: Path) -> None:
    one, other = make_project(tmp_path / "a"), make_project(tmp_path / "b")
    for project in (one, other):
        code, output = project.run(
            ROCM_PATH=str(project.hipcc.parent.parent), HIP_PATH=str(project.hipcc.parent.parent)
        )
        assert code == 0, output
    assert one.report().key == other.report().key == keys_of([one])[0]


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
        project.request(jobs=1), HIPCC_DOES='case $source in *d64*) echo "boom" >&2; exit 3 ;; esac'
    )
    assert code not in (0, NOT_LINKED)
    assert "boom" in output
    assert project.report().state == FAILED
    before = set(project.finished())
    assert before

    code, output = project.run()
    assert code == 0, output
    assert project.report().reused == len(before)
    assert {name for name in project.compiled() if project.compiled().count(name) > 1}.isdisjoint(before)


def test_after_a_kill_finished_objects_are_reused_and_no_compile_runs_on(project: Project) -> None:
    def finished() -> int:
        return sum(len(path.read_text().splitlines()) for path in project.kernels.glob("*/journal.jsonl"))

    process = project.start(project.request(), HIPCC_DOES="sleep 0.2")
    # An object is finished when the journal names it, which is after its file is there.
    while finished() < 2:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    time.sleep(1.0)  # launchers notice that their parent is gone
    started = project.compiled()
    time.sleep(0.5)
    assert project.compiled() == started

    assert project.report().state == FAILED
    reused = finished()
    code, output = project.run()
    assert code == 0, output
    assert project.report().reused == reused
    assert len(project.compiled()) == len(started) + len(KERNELS) - reused + 1


@pytest.mark.parametrize("how", ["changed", "missing"])
def test_a_damaged_object_is_compiled_again_and_never_linked(project: Project, how: str) -> None:
    link_order(project)
    good = project.output(KERNELS[0]).read_bytes()
    kept = project.store().object_path(KERNELS[0])
    kept.unlink()
    if how != "missing":
        kept.write_bytes(b"X" + good[1:])
    project.log.unlink()

    code, output = project.run(project.request(archive_keys=(project.store().key.parts,)))
    assert code == 0, output
    assert sorted(project.compiled()) == sorted([KERNELS[0], BINDING])
    assert project.output(KERNELS[0]).read_bytes() == good
    assert "wheelfactory: 1 stored objects are missing or damaged" in output
    assert "no given archive" not in output


def test_two_builds_of_one_set_at_once_compile_it_once(project: Project, tmp_path: Path) -> None:
    other = make_project(tmp_path, "second/flash_attn-2.8.3", kernels=project.kernels)
    other.hipcc.write_text(project.hipcc.read_text())
    other.hipcc.chmod(0o755)
    go = tmp_path / "go"
    first = project.start(project.request(), HIPCC_DOES=f"while [ ! -e {go} ]; do sleep 0.05; done")
    while not project.compiled():
        time.sleep(0.01)
    with other.start(other.request()) as second:
        assert second.stdout
        waiting = "waiting for another build that compiles this kernel set"
        assert any(waiting in line for line in second.stdout)
        go.touch()
        second.communicate(timeout=60)
    first.communicate(timeout=60)
    assert second.returncode == 0
    assert sorted([*project.compiled(), *other.compiled()]) == sorted([*KERNELS, BINDING, BINDING])


# time that is up


def test_at_the_deadline_it_stops_cleanly_and_the_next_run_resumes(project: Project) -> None:
    # not enough for the 114 s of fmha_bwd_api, and enough for the 29 s of the next
    code, _ = project.run(project.request(deadline=time.time() + 80))
    assert code not in (0, NOT_LINKED)
    assert project.report().state == TIME_UP
    assert sorted(project.finished()) == sorted(set(KERNELS) - {"fmha_bwd_api"})
    assert project.compiled().count("fmha_bwd_api") == 0

    code, output = project.run(project.request(deadline=time.time() + 3600))
    assert code == 0, output
    assert sorted(project.compiled()) == sorted([*KERNELS, BINDING])


def test_a_deadline_too_short_for_one_compile_is_an_error(project: Project) -> None:
    code, _ = project.run(project.request(deadline=time.time() + 5))
    assert code == NOT_LINKED
    assert "too little time to compile one kernel" in (project.root / "result.json").read_text()


def test_a_compile_error_counts_more_than_the_deadline(project: Project) -> None:
    project.run(project.request(deadline=time.time() + 80), HIPCC_DOES="exit 3")
    assert project.report().state == FAILED


# archives handed over


def test_an_archive_of_another_key_is_refused_before_anything_is_compiled(project: Project) -> None:
    code, _ = project.run(project.request(archive_keys=({"compiler": "another"},)))
    assert code == NOT_LINKED
    refused = json.loads((project.root / "result.json").read_text())
    assert refused["what"] == "the kernel archive was compiled differently"
    assert "compiler" in refused["which"]
    assert project.compiled() == []


def test_kernels_missing_in_all_archives_are_logged_before_they_are_compiled(project: Project) -> None:
    project.run(project.request(shard="1/2"))
    key = project.store().key
    code, output = project.run(project.request(archive_keys=(key.parts,)))
    assert code == 0
    missing = len(KERNELS) - project.report().reused
    assert f"wheelfactory: compiling {missing} of {len(KERNELS)} kernels that no given archive contains" in output
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
    assert "wheelfactory.kernels.compiler.edges" in refused["hint"]
    assert project.compiled() == []


def test_a_compiler_that_is_not_behind_the_launcher_is_refused(project: Project) -> None:
    path = project.build / "build.ninja"
    path.write_text(path.read_text().replace("nvcc = ", "nvcc = ccache ").replace("launcher.py", "other.py"))
    code, output = project.run()
    assert code == NOT_LINKED
    assert "not started by the launcher" in output
