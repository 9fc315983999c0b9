# Each target makes .venv and installs what it needs when that is missing; PYTHON selects the interpreter.

PYTHON ?= python3
VENV ?= .venv
OUT ?= out/quick
JOBS ?= 2
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check

# without it the newest versions of all packages are installed
CONSTRAINTS ?= --constraint constraints.txt
PLAYING := tests/test_pins.py tests/test_vectorize.py $(addprefix tests/,mdp rollout agents play environments conformance)

EXTRAS_core :=
EXTRAS_test := [slurm,test]
EXTRAS_dev := [dev]

# bytecode is kept even where the environment says otherwise: each process would compile JAX anew
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help study paper test test-slow test-newest test-all matrix slurm lint docs bench bench-check clean
.NOTPARALLEL:

help: ## say what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s%s\n", $$1, $$2 }' $(MAKEFILE_LIST)

study: $(VENV)/.has-core ## a quick comparison on the three distributions of the paper, with small budgets; a report in out/quick
	JBRL_COMPILE_CACHE=$${JBRL_COMPILE_CACHE:-auto} $(BIN)/jbrl run experiments/quick.toml --out $(OUT)
	$(BIN)/jbrl report $(OUT)

paper: $(VENV)/.has-core ## the report of the study in OUT as PDF, by way of LaTeX
	$(BIN)/jbrl report $(OUT) --latex
	@command -v latexmk > /dev/null \
	  || { echo "latexmk is not here: $(OUT)/report/latex/report.tex is written, but there is no PDF of it yet" >&2; exit 1; }
	cd $(OUT)/report/latex && latexmk -pdf -interaction=nonstopmode -halt-on-error -silent report.tex
	@echo "$(OUT)/report/latex/report.pdf"

test: $(VENV)/.has-test ## run the tests
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder

test-slow: $(VENV)/.has-test ## run the tests that take longer; CHANGED=COMMIT: of packages that differ from it, MINUTES=20: for so long
	TEST_OPTIMISED=1 $(BIN)/python -m pytest -n $(JOBS) --dist loadfile -m slow $(CHANGED:%=--changed-since %) $(MINUTES:%=--minutes %)

test-newest: ## run the tests of what plays with the newest JAX there is for PYTHON, in an environment of their own
	$(MAKE) --no-print-directory VENV=.venv-newest CONSTRAINTS= .venv-newest/.has-test
	.venv-newest/bin/python -m pytest -n $(JOBS) --dist loadfile $(PLAYING)

test-all: test test-slow ## run both

matrix: ## use the wheel in clean environments, with the oldest and the newest packages, for each Python
	@for version in 3.11 3.12 3.13 3.14; do \
	  for versions in oldest newest; do \
	    python=$$(PYENV_VERSION=$$(pyenv versions --bare 2> /dev/null | grep -m 1 "^$$version[.]") \
	      python$$version -c 'import sys; print(sys.executable)' 2> /dev/null) \
	      || { echo "Python $$version is not here"; continue 2; }; \
	    .ci/wheel "$$python" $$versions || exit 1; \
	  done; \
	done

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

bench: $(VENV)/.has-core ## time all kernels and the main job; a table in benchmarks/results
	$(BIN)/python benchmarks/all.py

bench-check: $(VENV)/.has-dev ## fail if a kernel has become slower by half, beside NumPy
	$(BIN)/python benchmarks/check.py

clean: ## remove what was built, except .venv and out
	rm -rf docs/_build build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find jbrl tests benchmarks experiments docs -name __pycache__ -prune -exec rm -rf {} +

# A stamp for each set of extras: nothing is installed twice until what is required changes. uv takes
# a fifth of the time of pip, which installs the packages where uv cannot be had or does not find them.
# Modules are compiled to bytecode when they are first imported: most never are.
$(VENV)/.has-%: pyproject.toml constraints.txt | $(BIN)/python
	@$(PIP) install uv && $(BIN)/uv pip install --quiet --python $(BIN)/python $(CONSTRAINTS) --editable '.$(EXTRAS_$*)' \
	  || $(PIP) install --no-compile $(CONSTRAINTS) --editable '.$(EXTRAS_$*)'
	@touch $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "jbrl needs Python 3.11 or newer; name one with 'make PYTHON=python3.12 …'" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
