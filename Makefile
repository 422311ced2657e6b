# `make demo` and `make test` set up everything they need; see `make help`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all attack lint docs format clean

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-9s %s\n", $$1, $$2 }' Makefile

setup: $(READY) ## create .venv and install the pinned packages

# The build tool is installed first, so that the build itself uses the pinned versions too.
$(READY): pyproject.toml constraints.txt src/thinrnn/__init__.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "thinrnn needs Python 3.11 or newer; try: make PYTHON=python3.12" >&2; exit 1; }
	@echo "installing into $(VENV), this takes a few minutes the first time"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) hatchling
	@$(PIP) --no-build-isolation -e '.[all,dev,docs]'
	@touch $@

demo: $(READY) ## prune a small language model on real text
	@$(BIN)/thinrnn demo

test: lint ## check style, imports and types, then run the core tests
	@$(BIN)/python -m pytest -q -rs -n 2 -m 'not extended'

test-all: lint ## the same with benchmarks, kills, examples and browsers
	@$(BIN)/python -m pytest -q -rs -n 2

PART ?= *
attack: $(READY) ## try hostile files, faults, kills and interrupts; write results/trust.json
	@$(BIN)/python -m pytest -q -rs tests/attack/test_$(PART).py --long --counts results/trust.json

docs: $(READY) ## build the documentation into build/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "wrote build/site; look at it with '$(BIN)/python -m http.server --directory build/site'"

lint: $(READY) ## check style, imports and types
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/lint-imports --no-logo > $(VENV)/imports.log || { cat $(VENV)/imports.log; exit 1; }
	@$(BIN)/mypy src tools

format: $(READY) ## fix what ruff can fix
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

clean: ## remove the environment, caches and build outputs
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find $(wildcard src tests examples benchmarks) -name __pycache__ -type d -prune -exec rm -rf {} +
