"""Which build of the extension runs."""

from __future__ import annotations

import platform
import sys

import pytest

from octavo.backends.native import isa


@pytest.fixture(autouse=True)
def _fresh_choice():
    isa.load_extension.cache_clear()
    yield
    isa.load_extension.cache_clear()


def cpu_flags() -> set[str]:
    """What the operating system says about this CPU: a second opinion on CPUID."""
    with open("/proc/cpuinfo") as file:
        return next(set(line.split()) for line in file if line.startswith(("flags", "Features")))


def test_the_baseline_always_runs():
    assert isa.runnable_isas()[-1] == "baseline"


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="reads the flags of an x86-64 Linux"
)
def test_what_runs_is_what_the_operating_system_says_the_cpu_has():
    flags = cpu_flags()
    has_avx2 = {"avx2", "fma", "f16c", "bmi2"} <= flags
    has_avx512 = has_avx2 and {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx512_vnni"} <= flags
    has_amx = has_avx512 and {"amx_tile", "amx_int8", "amx_bf16"} <= flags
    expected = ["amx"] * has_amx + ["avx512"] * has_avx512 + ["avx2"] * has_avx2 + ["baseline"]
    assert isa.runnable_isas() == expected


def test_the_best_build_is_taken(monkeypatch):
    monkeypatch.delenv("OCTAVO_ISA", raising=False)
    assert isa.load_extension().isa == isa.runnable_isas()[0]


@pytest.mark.parametrize("name", isa.runnable_isas())
def test_each_build_loads_by_name_and_knows_its_own(name, monkeypatch):
    monkeypatch.setenv("OCTAVO_ISA", name)
    extension = isa.load_extension()
    assert extension.isa == name
    assert extension.cpu_supports(name)


@pytest.mark.parametrize("name", isa.runnable_isas())
def test_a_name_nobody_knows_is_not_supported(name, monkeypatch):
    monkeypatch.setenv("OCTAVO_ISA", name)
    assert not isa.load_extension().cpu_supports("sse9")


def test_an_unknown_name_is_refused_with_what_exists(monkeypatch):
    monkeypatch.setenv("OCTAVO_ISA", "sse9")
    with pytest.raises(ValueError, match=r"OCTAVO_ISA='sse9'.*baseline.*unset it"):
        isa.load_extension()


def test_a_build_the_cpu_cannot_run_is_refused(monkeypatch):
    monkeypatch.setattr(isa, "runnable_isas", lambda: ["baseline"])
    monkeypatch.setenv("OCTAVO_ISA", "avx512")
    with pytest.raises(ValueError, match="cannot run here"):
        isa.load_extension()


def test_an_installation_without_the_extension_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(isa, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match="make setup"):
        isa.runnable_isas()
