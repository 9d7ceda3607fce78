"""What a figure needs beside it: which machine, which commit, how much memory, how old the process is."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
# What decides how fast a kernel can be; the first that a CPU has is its best.
VECTOR_FLAGS = ("amx_int8", "avx512_vnni", "avx_vnni", "avx512f", "avx2", "asimddp", "asimd")


def machine() -> dict[str, Any]:
    """CPU model, CPUs that this process may use, vector instructions, and the load before the measurement."""
    cpu_info = _cpu_info()
    flags = (cpu_info.get("flags") or cpu_info.get("Features") or "").split()
    return {
        "cpu": cpu_info.get("model name", platform.machine()),
        "num_cpus": len(os.sched_getaffinity(0)),
        "vector_flags": [flag for flag in VECTOR_FLAGS if flag in flags],
        "load_average": round(os.getloadavg()[0], 2),
    }


def commit() -> str:
    """The checked-out commit, with "-dirty" where tracked files differ from it; "unknown" outside a repository."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--exclude=*"]
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def process_age_s(pid: int) -> float:
    """Seconds since process `pid` was started, to the hundredth: before its interpreter, its imports, its model."""
    start_ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - start_ticks / os.sysconf("SC_CLK_TCK")


def rss_bytes(pid: int) -> int:
    """Resident memory of process `pid` now."""
    return _status_bytes(pid, "VmRSS")


def peak_rss_bytes(pid: int) -> int:
    """The most resident memory that process `pid` ever had."""
    return _status_bytes(pid, "VmHWM")


def _status_bytes(pid: int, field: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.removesuffix("kB")) * 1024
    raise ValueError(f"/proc/{pid}/status has no {field}; is the process still running?")


def _cpu_info() -> dict[str, str]:
    """The fields of the first CPU."""
    first = Path("/proc/cpuinfo").read_text().split("\n\n")[0]
    pairs = (line.partition(":") for line in first.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}
