"""Free memory of the host and of its control groups, and kills for lack of memory."""

from __future__ import annotations

from pathlib import Path

from wheelfactory.core.host import MIB, MemoryCgroup, memory_cgroups

V1, V2 = "4:memory:/job\n3:cpu,cpuacct:/\n0::/\n", "0::/user/job\n"


def made(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def v1(folder: str, limit: int, usage: int, cached: int = 0) -> dict[str, str]:
    return {
        f"{folder}/memory.limit_in_bytes": f"{limit * MIB}\n",
        f"{folder}/memory.usage_in_bytes": f"{usage * MIB}\n",
        f"{folder}/memory.stat": f"cache 5\ntotal_inactive_file {cached * MIB}\n",
        f"{folder}/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
    }


def v2(folder: str, limit: str, usage: int, cached: int = 0) -> dict[str, str]:
    return {
        f"{folder}/memory.max": f"{limit}\n",
        f"{folder}/memory.current": f"{usage * MIB}\n",
        f"{folder}/memory.stat": f"anon 5\ninactive_file {cached * MIB}\n",
        f"{folder}/memory.events": "low 0\noom 4\noom_kill 2\n",
    }


def found(text: str, root: Path) -> list[MemoryCgroup]:
    return list(memory_cgroups(text, root))


def test_the_own_group_and_those_above_it(tmp_path: Path) -> None:
    old = made(tmp_path / "v1", {**v1("memory/job", 1000, 400), **v1("memory", 8000, 500)})
    assert [(group.free_mib(), group.out_of_memory_kills()) for group in found(V1, old)] == [(600, 3), (7500, 3)]
    new = made(tmp_path / "v2", {**v2("user/job", str(1000 * MIB), 400), **v2("user", "max", 500)})
    assert [(group.free_mib(), group.out_of_memory_kills()) for group in found(V2, new)] == [(600, 2), (None, 2)]


def test_inactive_page_cache_counts_as_free(tmp_path: Path) -> None:
    root = made(
        tmp_path, {**v1("memory/job", 1000, 900, cached=300), **v2("user/job", str(1000 * MIB), 900, cached=200)}
    )
    assert found(V1, root)[0].free_mib() == 400
    assert found(V2, root)[0].free_mib() == 300


def test_in_a_container_the_own_group_is_at_the_mount(tmp_path: Path) -> None:
    root = made(tmp_path, v1("memory", 1000, 400))
    assert [group.free_mib() for group in found("4:memory:/docker/0123\n", root)] == [600]


def test_without_a_memory_cgroup_there_is_no_limit(tmp_path: Path) -> None:
    for text in ("", "nonsense", "4:cpu:/\n", "0::/gone\n"):
        assert found(text, tmp_path) == []
