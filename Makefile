# `make` lists the targets.

PYTHON ?= python3
SEEDS ?= 100
STEPS ?= 200
TRIES ?= 20000
FILES ?= 100000
SEED ?= 0
SOAK_S ?= 3600
SOAK_RATE ?= 1
WERROR ?= ON

VENV := .venv
BIN := $(VENV)/bin
BUILT := $(VENV)/.built
GOLDEN := .venv-golden
SANITIZED := build/sanitize
SOURCES := src tools tests benchmarks
CXX_SOURCES := $(wildcard csrc/*.cpp csrc/*.h)

.DEFAULT_GOAL := help
.PHONY: help setup model demo test clients check bench equality ledger fuzz faults soak browser mutants arm64 sanitize golden format

help: ## List the targets
	@grep -hE '^[a-z0-9]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9]+):.*## /\1\t/' | expand -t 12

setup: $(BUILT) ## Make .venv, install octavo into it and build the extension

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# Without build isolation the build folder stays valid, and a rebuild compiles only what changed.
$(BUILT): pyproject.toml CMakeLists.txt $(CXX_SOURCES) | $(BIN)/python
	$(BIN)/python -m pip install -q scikit-build-core nanobind cmake ninja
	$(BIN)/python -m pip install -q --no-build-isolation -C cmake.define.OCTAVO_WERROR=$(WERROR) -e '.[dev]'
	touch $@

model: setup ## Fetch the demo model
	$(BIN)/python tools/fetch_model.py

demo: model ## Start a server, ask it eight different questions at once, print the answers
	$(BIN)/python tools/demo.py

test: model ## Run the tests
	$(BIN)/python -m pytest

clients: model ## Run real clients against a server, each in an environment of its own: CLIENTS= some of them
	$(BIN)/python -m tests.clients.run $(CLIENTS)

check: setup ## Lint, types, import rules, sizes, formatting
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/check_sizes.py
	$(BIN)/clang-format --dry-run --Werror $(CXX_SOURCES)

bench: setup ## Measure the scheduler
	$(BIN)/python -m benchmarks.scheduler

equality: model ## Hold the promise: the same request, the same bytes
	$(BIN)/python -m pytest -m equality

ledger: setup ## Run the scheduler against the ledger model: SEEDS= runs of STEPS= steps
	$(BIN)/python -m octavo.sim.ledger --seeds $(SEEDS) --steps $(STEPS)

fuzz: setup ## Send TRIES= broken requests to a server, open FILES= damaged checkpoints, all drawn from SEED=
	FUZZ_TRIES=$(TRIES) FUZZ_FILES=$(FILES) FUZZ_SEED=$(SEED) $(BIN)/python -m pytest -s tests/fuzz

faults: setup ## Inflict faults on every process at every moment, and see how each ends
	FAULTS=all $(BIN)/python -m pytest tests/faults

soak: model ## Put everything at once on a server for SOAK_S= seconds, SOAK_RATE= visits a second; watch its memory
	SOAK_S=$(SOAK_S) SOAK_RATE=$(SOAK_RATE) SOAK_MODEL=demo \
		$(BIN)/python -m pytest -s tests/load/test_soak.py

browser: setup ## See the dashboard in a headless Chromium, which must be installed, while the engine is under load
	$(BIN)/python -m pytest -m browser -rs tests/browser

mutants: setup ## Break the code on purpose and see that a test notices
	$(BIN)/python -m tools.mutants

arm64: setup ## Build for arm64 with a cross compiler and run the tests of the kernels in an emulator
	tools/arm64.sh

# Leaks are not looked for: Python leaves much of its memory to the system when it ends. Grammars are compiled within
# limits of memory that a sanitizer exceeds.
sanitize: ## Run the kernels and whole models in a build that stops at a wrong address or undefined behaviour
	test -x $(SANITIZED)/bin/python || $(PYTHON) -m venv $(SANITIZED)
	$(SANITIZED)/bin/python -m pip install -q scikit-build-core nanobind cmake ninja
	$(SANITIZED)/bin/python -m pip install -q --no-build-isolation -C build-dir=$(SANITIZED)/extension \
		-C install.strip=false -C cmake.define.OCTAVO_SANITIZE=ON -e '.[dev]'
	env LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libstdc++.so)" \
		ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 PYTHONMALLOC=malloc \
		$(SANITIZED)/bin/python -m pytest -m 'not model' -p no:cacheprovider --capture=sys \
		tests/backends tests/models tests/worker --ignore=tests/worker/test_grammar_rows.py

golden: ## Write the golden files anew, with torch and transformers in an environment of their own
	test -x $(GOLDEN)/bin/python || $(PYTHON) -m venv $(GOLDEN)
	$(GOLDEN)/bin/python -m pip install -q '.[golden]'
	$(GOLDEN)/bin/python -m tools.make_golden
	$(GOLDEN)/bin/python -m tools.make_golden_tokens
	$(GOLDEN)/bin/python -m tools.make_golden_chats
	$(GOLDEN)/bin/python -m tools.make_golden_quantized

format: setup ## Format the sources
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/clang-format -i $(CXX_SOURCES)
