from __future__ import annotations

import os
from pathlib import Path

import pytest

from octavo.engine import host

GIB = 1 << 30
NO_LIMIT_V1 = 9223372036854771712


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write(tmp_path / "proc/meminfo", f"MemTotal:       {8 * GIB // 1024} kB\nMemFree:        100 kB\n")
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_without_control_groups_the_machine_is_the_limit(root):
    assert host.memory_limit_bytes(root) == 8 * GIB


def test_version_2_counts_the_own_group_and_those_above_it(root):
    write(root / "proc/self/cgroup", "0::/user/app\n")
    write(root / "sys/fs/cgroup/user/app/memory.max", "max\n")
    write(root / "sys/fs/cgroup/user/memory.max", f"{3 * GIB}\n")
    assert host.memory_limit_bytes(root) == 3 * GIB
    write(root / "sys/fs/cgroup/user/app/memory.max", f"{2 * GIB}\n")
    assert host.memory_limit_bytes(root) == 2 * GIB


def test_version_1_counts_the_own_group_and_those_above_it(root):
    write(root / "proc/self/cgroup", "9:name=systemd:/\n4:memory:/docker/abc\n1:cpu,cpuacct:/\n0::/\n")
    write(root / "sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", f"{NO_LIMIT_V1}\n")
    write(root / "sys/fs/cgroup/memory/memory.limit_in_bytes", f"{NO_LIMIT_V1}\n")
    assert host.memory_limit_bytes(root) == 8 * GIB
    write(root / "sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", f"{GIB}\n")
    assert host.memory_limit_bytes(root) == GIB


@pytest.mark.parametrize("name", ["memory.max", "memory/memory.limit_in_bytes"])
def test_in_a_container_the_top_of_the_mount_stands_for_a_path_that_is_not_there(root, name):
    write(root / "proc/self/cgroup", "4:memory:/docker/abc\n0::/docker/abc\n")
    write(root / "sys/fs/cgroup" / name, f"{GIB}\n")
    assert host.memory_limit_bytes(root) == GIB


def test_another_groups_limit_is_not_ours(root):
    write(root / "proc/self/cgroup", "0::/a\n")
    write(root / "sys/fs/cgroup/a/memory.max", "max\n")
    write(root / "sys/fs/cgroup/b/memory.max", f"{GIB}\n")
    assert host.memory_limit_bytes(root) == 8 * GIB


def test_cpus_are_those_of_the_affinity_less_the_quota_rounded_up(root, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    assert host.num_usable_cpus(root) == 8
    write(root / "proc/self/cgroup", "1:cpu,cpuacct:/a\n0::/a\n")
    write(root / "sys/fs/cgroup/a/cpu.max", "max 100000\n")
    write(root / "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "-1\n")
    write(root / "sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n")
    assert host.num_usable_cpus(root) == 8
    write(root / "sys/fs/cgroup/a/cpu.max", "350000 100000\n")
    assert host.num_usable_cpus(root) == 4
    write(root / "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "50000\n")
    assert host.num_usable_cpus(root) == 1


def test_a_kernel_that_does_not_tell_is_an_error(root):
    write(root / "proc/meminfo", "MemFree: 900 kB\n")
    with pytest.raises(OSError, match="MemTotal"):
        host.memory_limit_bytes(root)


def test_this_machine_answers():
    assert host.memory_limit_bytes() > 0
    assert 1 <= host.num_usable_cpus() <= len(os.sched_getaffinity(0))
