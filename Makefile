# Each target makes .venv and installs what it needs when that is missing; PYTHON selects the interpreter.

PYTHON ?= python3
VENV ?= .venv
OUT ?= out/quick
JOBS ?= 2
BIN := $(VENV)/bin

EXTRAS_core :=
EXTRAS_dev := [dev]

.DEFAULT_GOAL := help
.PHONY: help study test slurm lint docs bench clean
.NOTPARALLEL:

help: ## say what can be made
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s%s\n", $$1, $$2 }' $(MAKEFILE_LIST)

study: $(VENV)/.has-core ## compare the agents on the three distributions of the paper; a report in out/quick
	$(BIN)/jbrl run experiments/quick.toml --out $(OUT)
	$(BIN)/jbrl report $(OUT)

test: $(VENV)/.has-dev ## run the tests
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile

slurm: $(VENV)/.has-dev ## run the tests on a SLURM that they start themselves; needs its packages, and root
	$(BIN)/python -m pytest -m slurm tests/slurm

lint: $(VENV)/.has-dev ## check style, types and the direction of imports
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(VENV)/.has-dev ## write the documentation to docs/_build
	$(BIN)/sphinx-build --fail-on-warning --keep-going --quiet docs docs/_build
	@echo "docs/_build/index.html"

bench: $(VENV)/.has-core ## time the kernels and the main job, as JSON lines
	@for script in benchmarks/*.py; do $(BIN)/python $$script || exit 1; done

clean: ## remove what was built, except .venv and out
	rm -rf docs/_build build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find jbrl tests benchmarks experiments docs -name __pycache__ -prune -exec rm -rf {} +

# A stamp for each set of extras: nothing is installed twice until what is required changes.
$(VENV)/.has-%: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.$(EXTRAS_$*)'
	@touch $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "jbrl needs Python 3.11 or newer; name one with 'make PYTHON=python3.12 …'" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
