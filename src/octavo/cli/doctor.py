"""octavo doctor: what this installation and this machine have, and which build of the kernels runs."""

from __future__ import annotations

from importlib.metadata import version

from octavo.cli.failure import exit_on


def doctor() -> None:
    """Say which kernels run here and why, and what the machine allows. Exits with 1 if nothing can run."""
    from octavo.backends.native.isa import ISAS, load_extension, runnable_isas
    from octavo.engine import host

    print(f"octavo               {version('octavo')}")
    print(f"memory limit         {host.memory_limit_bytes() / 2**20:.0f} MiB (of the machine and its control groups)")
    print(f"usable CPUs          {host.num_usable_cpus()}: as many kernel threads, unless --num-threads says otherwise")
    with exit_on(ImportError, ValueError):
        runnable, chosen = runnable_isas(), load_extension().isa
    for isa in ISAS:
        print(f"{isa + ' kernels':<21}{_verdict(isa, runnable, chosen)}")


def _verdict(isa: str, runnable: list[str], chosen: str) -> str:
    if isa == chosen:
        return "run here; OCTAVO_ISA chooses others"
    return "would run here" if isa in runnable else "do not run here: not built, or the CPU or its system refuse"
