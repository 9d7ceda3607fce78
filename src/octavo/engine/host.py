"""What the machine allows this process: memory and CPUs, as told by the kernel and by control groups.

Every function takes the root folder under which `proc` and `sys` lie, so that tests can bring their own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/")
BYTES_PER_KIB = 1024


def memory_limit_bytes(root: Path = ROOT) -> int:
    """The least of the machine's memory and the limits of this process's cgroups, version 1 and version 2."""
    limits = [_kib_field(root / "proc/meminfo", "MemTotal") * BYTES_PER_KIB]
    for folder in _cgroup_folders(root, "memory"):
        for name in ("memory.limit_in_bytes", "memory.max"):  # version 1, version 2
            limits += _integers(folder / name)
    return min(limits)


def num_usable_cpus(root: Path = ROOT) -> int:
    """CPUs this process may run on, at most its cgroups' CPU quota rounded up."""
    counts = [len(os.sched_getaffinity(0))]
    for folder in _cgroup_folders(root, "cpu"):
        quota = _integers(folder / "cpu.cfs_quota_us") + _integers(folder / "cpu.cfs_period_us")
        for numbers in (quota, _integers(folder / "cpu.max")):
            if len(numbers) == 2 and min(numbers) > 0:  # without a limit, version 1 says -1 and version 2 "max"
                counts.append(-(-numbers[0] // numbers[1]))
    return min(counts)


def _cgroup_folders(root: Path, controller: str) -> Iterator[Path]:
    """The existing cgroup folders that limit this process, its own first, then those above it.

    Inside a container the path that proc tells often does not exist, and the top of the mount stands for it.
    """
    mount = root / "sys/fs/cgroup"
    top_by_controller = {controller: mount / controller, "": mount}  # version 1, version 2
    path_by_controller = dict.fromkeys(top_by_controller, "")
    membership = root / "proc/self/cgroup"
    for line in membership.read_text().splitlines() if membership.exists() else ():
        _, controllers, path = line.split(":", 2)
        path_by_controller |= dict.fromkeys(controllers.split(","), path)
    for name, top in top_by_controller.items():
        folder = top / path_by_controller[name].lstrip("/")
        for candidate in (folder, *folder.parents):
            if candidate.is_dir():
                yield candidate
            if candidate == top:
                break


def _integers(path: Path) -> list[int]:
    """The integers of a file of one line; none where there is no file, or no limit ("max")."""
    words = path.read_text().split() if path.exists() else []
    return [int(word) for word in words if word.lstrip("-").isdigit()]


def _kib_field(path: Path, name: str) -> int:
    for line in path.read_text().splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return int(value.split()[0])
    raise OSError(f"{path} has no field {name}, which tells how much memory there is; octavo needs Linux")
