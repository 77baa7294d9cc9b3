# Every target sets up the virtual environment that it needs; `make help` lists them.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV ?= .venv
export VENV
CC ?= cc
PYTEST_ARGS ?=
BENCH_ARGS ?=
QUICKSTART ?= configs/quickstart.yaml

# What was compiled to bytecode once is read by every process that starts: where images of
# containers forbid it, each would compile all modules that it imports, for half a second.
export PYTHONDONTWRITEBYTECODE :=

BIN := $(VENV)/bin
INSTALLED := $(VENV)/.chakram-installed
TOOLS := $(VENV)/.chakram-tools
PIP_INSTALL := $(BIN)/python -m pip install -q --disable-pip-version-check
UV_INSTALL := $(BIN)/uv pip install -q --python $(BIN)/python

# The client of the Open Traffic Generator, in an environment of its own: it holds protobuf
# and grpcio back. Tests use it as users do.
SNAPPI := $(VENV)/snappi
SNAPPI_VERSION := snappi==1.62.0

# $(call install,WHAT): uv takes seconds where pip takes a minute. Where it does not come
# to what pip is configured for, pip does it, and says what is wrong if it cannot either.
install = $(UV_INSTALL) --no-build-isolation $(1) 2>/dev/null || \
	PYTHONWARNINGS=ignore $(PIP_INSTALL) --no-build-isolation $(1)

# Succeeds if the virtual environment is whole; one may have been left half made.
HAS_PIP = $(BIN)/python -m pip --version >/dev/null 2>&1

# Tests of pure code share the cores. So do those that touch the system where this user may
# give each worker namespaces of its own; elsewhere they come one after the other. Workers
# begin at both ends (tests/conftest.py): runs in labs go on beside what is simulated.
PURE_TESTS := tests/unit tests/property tests/golden
SYSTEM_TESTS := tests/interop tests/e2e tests/netns tests/integration
IN_PARALLEL := -n auto --dist worksteal
APART = $(shell tests/isolated-python --may && echo --dist loadfile \
	--tx '4*popen//python=$(CURDIR)/tests/isolated-python')

# The tests that say something about hot modules run a second time, uncompiled, except for
# slow ones.
HOT_TESTS = $(shell $(BIN)/python tools/hot_tests.py)

# Each benchmark once, with small sizes and without limits: it has to run.
BRIEF_BENCHMARKS = CHAKRAM_BENCH=brief $(BIN)/python -m pytest $(APART) \
	--dist worksteal $(PYTEST_ARGS) -m bench tests/bench

# Succeeds if extensions can be built here: a compiler, and Python's headers.
CAN_COMPILE = echo '\#include <Python.h>' | $(CC) -x c -fsyntax-only -I"$$( \
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("include"))')" \
	- 2>/dev/null

# $(call try_installed,HOT MODULES,WHAT TO INSTALL): into an environment of its own.
define try_installed
	rm -rf build/$@ && $(BIN)/uv venv -q --python $(BIN)/python build/$@
	$(BIN)/uv pip install -q --python build/$@/bin/python $(2)
	CHAKRAM_COMPILED=$(1) build/$@/bin/python tools/try_installed.py $@
	$(BIN)/mypy --config-file= --strict --python-executable build/$@/bin/python \
		--cache-dir build/$@/mypy docs/examples/compare_windows.py
endef

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: quickstart
quickstart: build ## Replay a small job on this machine, and print how the network did
	$(BIN)/chakram run $(QUICKSTART) --report

.PHONY: build
build: $(INSTALLED) ## Compile the hot modules in place (only what changed)
	@$(BIN)/python setup.py -q build_ext --inplace
	@$(BIN)/python -m compileall -q emulator agents

.PHONY: test
test: packages $(TOOLS) build ## Run all tests compiled, then those of hot modules uncompiled
	@if $(CAN_COMPILE); then set -x; \
		export CHAKRAM_COMPILED=require; \
		$(BIN)/python -m pytest $(IN_PARALLEL) $(PYTEST_ARGS) $(PURE_TESTS); \
		$(BIN)/python -m pytest $(APART) $(PYTEST_ARGS) $(SYSTEM_TESTS); \
		$(BRIEF_BENCHMARKS); \
		export CHAKRAM_COMPILED=off; \
		$(BIN)/python -m pytest $(IN_PARALLEL) $(PYTEST_ARGS) \
			-m 'not slow' $(HOT_TESTS); \
	else \
		echo "no C compiler, or no Python headers: testing the plain modules only"; \
		export CHAKRAM_COMPILED=auto; \
		$(BIN)/python -m pytest $(IN_PARALLEL) $(PYTEST_ARGS) $(PURE_TESTS); \
		$(BIN)/python -m pytest $(APART) $(PYTEST_ARGS) $(SYSTEM_TESTS); \
		$(BRIEF_BENCHMARKS); \
	fi

.PHONY: lint
lint: $(TOOLS) ## Check style, types, the direction of imports, and prose
	@failed=; for check in "ruff check" "ruff format --check" mypy lint-imports \
			"python tools/lint_prose.py"; do \
		echo "== $$check"; $(BIN)/$$check || failed=yes; done; [ -z "$$failed" ]

.PHONY: docs
docs: $(TOOLS) ## Build the documentation site in build/site; warnings are errors
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs build/site
	@echo "build/site/index.html"

.PHONY: dashboards
dashboards: $(TOOLS) ## Find mistakes in dashboards and rules; LIVE=URL asks a Prometheus, too
	$(BIN)/python -m dashboards.lint $(if $(LIVE),--live $(LIVE))

.PHONY: bench
bench: $(TOOLS) build ## Measure the speed of the hot paths
	$(BIN)/python -m tests.bench $(BENCH_ARGS)

.PHONY: soak
soak: $(TOOLS) build ## Run the tests that take long
	@deploy/install-packages.sh --soak
	$(BIN)/python -m pytest -m soak $(PYTEST_ARGS)
	CHAKRAM_COMPILED=off $(BIN)/python -m pytest -m soak $(PYTEST_ARGS) \
		tests/soak/test_roce_fuzz.py

.PHONY: dist
dist: $(TOOLS) build ## Build the source distribution, the compiled and the pure wheel
	rm -rf dist build/lib build/lib.*
	$(BIN)/uv build -q --sdist --out-dir dist
	CHAKRAM_COMPILED=off $(BIN)/uv build -q --wheel --out-dir dist dist/chakram-*.tar.gz
	CHAKRAM_COMPILED=require $(PIP_INSTALL:install=wheel) --no-build-isolation --no-deps \
		--wheel-dir dist .
	rm -rf build/lib build/lib.*

.PHONY: installed
installed: dist ## Install each wheel elsewhere, one with the lowest versions; try all verbs
	@$(MAKE) -j2 --output-sync=target --no-print-directory installed-hot installed-pure

.PHONY: installed-hot installed-pure
installed-hot:
	$(call try_installed,require,dist/chakram-*-cp3*.whl)

installed-pure:
	$(call try_installed,off,--resolution lowest-direct -r pyproject.toml \
		dist/chakram-*-py3-none-any.whl)

.PHONY: coverage
coverage: $(TOOLS) ## Say which lines and branches the quick tests miss
	CHAKRAM_COMPILED=off $(BIN)/coverage run -m pytest -q $(wildcard tests/unit \
		tests/property tests/golden)
	$(BIN)/coverage report

.PHONY: proto
proto: $(TOOLS) ## Generate the code for protobuf messages and services anew
	$(BIN)/python tools/generate_proto.py

.PHONY: reference
reference: $(INSTALLED) ## Generate the reference of the experiment file, and the schemas of files
	$(BIN)/python tools/generate_reference.py

.PHONY: packages
packages:
	@deploy/install-packages.sh

.PHONY: clean
clean: ## Remove what was built, and caches; the virtual environment stays
	rm -rf build dist emulator/*.egg-info agents/*.egg-info *.egg-info
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	rm -rf .coverage .coverage.* htmlcov
	find emulator agents tests tools -name __pycache__ -type d -prune -exec rm -rf {} +
	find emulator agents \( -name '*.so' -o -name '_compiled.*.json' \) -delete

$(INSTALLED): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed; set PYTHON=..." >&2; exit 1; }
	@$(HAS_PIP) || $(PYTHON) -c 'import ensurepip' 2>/dev/null || \
		deploy/install-packages.sh
	@$(HAS_PIP) || $(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
		echo "no virtual environment: on Debian, apt-get install python3-venv" >&2; \
		exit 1; }
	@echo "step 1 of 3: installing build tools into $(VENV) (10 s)"
	@$(PIP_INSTALL) 'setuptools>=77' 'cython>=3.3' wheel
	@$(PIP_INSTALL) 'uv>=0.7' 2>/dev/null || true
	@echo "step 2 of 3: installing chakram's dependencies (30 s)"
	@export CHAKRAM_COMPILED=off UV_COMPILE_BYTECODE=1; $(call install,-e .)
	@echo "step 3 of 3: compiling the hot modules (1 to 2 minutes)"
	@touch $@

$(TOOLS): $(INSTALLED)
	@echo "installing the tools of development into $(VENV)"
	@export CHAKRAM_COMPILED=off; $(call install,-e '.[dev]')
	@$(BIN)/python -m venv $(SNAPPI)
	@$(BIN)/uv pip install -q --python $(SNAPPI)/bin/python $(SNAPPI_VERSION) 2>/dev/null || \
		$(PIP_INSTALL:$(BIN)%=$(SNAPPI)/bin%) $(SNAPPI_VERSION)
	@touch $@
