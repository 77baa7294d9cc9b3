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

# Some container images disable bytecode files. Then every process would compile all
# modules that it imports, which takes half a second.
export PYTHONDONTWRITEBYTECODE :=

BIN := $(VENV)/bin
INSTALLED := $(VENV)/.chakram-installed
TOOLS := $(VENV)/.chakram-tools
PIP_INSTALL := $(BIN)/python -m pip install -q --disable-pip-version-check
UV_INSTALL := $(BIN)/uv pip install -q --python $(BIN)/python

# The client of the Open Traffic Generator has a separate environment, because it requires
# old versions of protobuf and grpcio. Tests use it like users do.
SNAPPI := $(VENV)/snappi
SNAPPI_VERSION := snappi==1.62.0

# $(call install,WHAT): uv takes seconds, and pip takes a minute. If uv fails, for example
# because it does not read the configuration of pip, pip installs and reports errors.
install = $(UV_INSTALL) --no-build-isolation $(1) 2>/dev/null || \
	PYTHONWARNINGS=ignore $(PIP_INSTALL) --no-build-isolation $(1)

# Succeeds if the virtual environment is complete, and not left over from a failure.
HAS_PIP = $(BIN)/python -m pip --version >/dev/null 2>&1

# Tests of pure code run in parallel. System tests also do if this user may create separate
# namespaces for each worker; otherwise, they run one after another. Workers start at both
# ends of the list (tests/conftest.py), so runs in labs and simulations overlap.
PURE_TESTS := tests/unit tests/property tests/golden
SYSTEM_TESTS := tests/interop tests/e2e tests/netns tests/integration
IN_PARALLEL := -n auto --dist worksteal
APART = $(shell tests/isolated-python --may && echo --dist loadfile \
	--tx '3*popen//python=$(CURDIR)/tests/isolated-python')

# Tests that use hot modules run a second time, uncompiled, except for slow ones.
HOT_TESTS = $(shell $(BIN)/python tools/hot_tests.py)

# Each benchmark once, with small sizes and without limits, to check that it runs. Other
# tests may run beside it, as no time is compared.
BRIEF_BENCHMARKS = CHAKRAM_BENCH=brief $(BIN)/python -m pytest $(APART) \
	--dist worksteal $(PYTEST_ARGS) -m bench tests/bench

# Succeeds if there are a compiler and Python's headers to build extensions.
CAN_COMPILE = echo '\#include <Python.h>' | $(CC) -x c -fsyntax-only -I"$$( \
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("include"))')" \
	- 2>/dev/null

# $(call try_installed,HOT MODULES,WHAT TO INSTALL): in a separate environment.
define try_installed
	rm -rf build/$@ && $(BIN)/uv venv -q --python $(BIN)/python build/$@
	$(BIN)/uv pip install -q --python build/$@/bin/python $(2)
	CHAKRAM_COMPILED=$(1) build/$@/bin/python tools/try_installed.py $@
endef

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: quickstart
quickstart: build ## Replay a small job on this machine, and print its results
	$(BIN)/chakram run $(QUICKSTART) --report

.PHONY: build
build: $(INSTALLED) ## Compile the hot modules in place (only what changed)
	@$(BIN)/python setup.py -q build_ext --inplace
	@$(BIN)/python -m compileall -q emulator agents

.PHONY: test
test: packages $(TOOLS) build ## Run all tests compiled, then those of hot modules uncompiled
	@if $(CAN_COMPILE); then set -x; trap wait EXIT; \
		export CHAKRAM_COMPILED=require; \
		$(BIN)/python -m pytest $(IN_PARALLEL) $(PYTEST_ARGS) $(PURE_TESTS); \
		$(BIN)/python -m pytest $(APART) $(PYTEST_ARGS) $(SYSTEM_TESTS); \
		$(BRIEF_BENCHMARKS) >build/benchmarks.log 2>&1 & benchmarks=$$!; \
		CHAKRAM_COMPILED=off $(BIN)/python -m pytest $(IN_PARALLEL) $(PYTEST_ARGS) \
			-m 'not slow' $(HOT_TESTS); \
		wait $$benchmarks || { cat build/benchmarks.log; exit 1; }; \
		cat build/benchmarks.log; \
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
dashboards: $(TOOLS) ## Check dashboards and rules; LIVE=URL also queries that Prometheus
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
installed: dist ## Install each wheel separately, one with the lowest versions; run all verbs
	@$(MAKE) -j2 --output-sync=target --no-print-directory installed-hot installed-pure

.PHONY: installed-hot installed-pure
installed-hot:
	$(call try_installed,require,dist/chakram-*-cp3*.whl)
	$(BIN)/mypy --config-file= --strict --python-executable build/$@/bin/python \
		--cache-dir /dev/null docs/examples/compare_windows.py

installed-pure:
	$(call try_installed,off,--resolution lowest-direct -r pyproject.toml \
		dist/chakram-*-py3-none-any.whl)

.PHONY: coverage
coverage: $(TOOLS) ## Print the lines and branches that the quick tests miss
	CHAKRAM_COMPILED=off $(BIN)/coverage run -m pytest -q $(wildcard tests/unit \
		tests/property tests/golden)
	$(BIN)/coverage report

.PHONY: proto
proto: $(TOOLS) ## Generate the code for protobuf messages and services
	$(BIN)/python tools/generate_proto.py

.PHONY: reference
reference: $(INSTALLED) ## Generate the reference of the experiment file, and the schemas of files
	$(BIN)/python tools/generate_reference.py

.PHONY: packages
packages:
	@deploy/install-packages.sh

.PHONY: clean
clean: ## Remove build outputs and caches, but keep the virtual environment
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
	@echo "step 1 of 2: installing build tools into $(VENV) (10 s)"
	@$(PIP_INSTALL) 'setuptools>=77' 'cython>=3.3' wheel
	@$(PIP_INSTALL) 'uv>=0.7' 2>/dev/null || true
	@echo "step 2 of 2: installing chakram's dependencies (30 s)"
	@export CHAKRAM_COMPILED=off UV_COMPILE_BYTECODE=1; $(call install,-e .)
	@touch $@

$(TOOLS): $(INSTALLED)
	@echo "installing the tools of development into $(VENV)"
	@export CHAKRAM_COMPILED=off; $(call install,-e '.[dev]')
	@$(BIN)/python -m venv $(SNAPPI)
	@$(BIN)/uv pip install -q --python $(SNAPPI)/bin/python $(SNAPPI_VERSION) 2>/dev/null || \
		$(PIP_INSTALL:$(BIN)%=$(SNAPPI)/bin%) $(SNAPPI_VERSION)
	@touch $@
