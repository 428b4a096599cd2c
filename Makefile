# `make help` lists the targets. Each runs in an environment of its own Python version,
# .venv/<major.minor>, which is made, filled and kept up to date as needed:
#
#     make test PYTHON=/path/to/python3.13

SHELL := /bin/sh
.DELETE_ON_ERROR:
# Two pips must not write to one environment; the tests themselves run in parallel.
.NOTPARALLEL:

# The first of these that runs: a name on the path may belong to a version manager that has
# no such version.
RUNS = $(shell $(1) -c 'print("$(1)")' 2>/dev/null)
PYTHON ?= $(firstword $(call RUNS,python3) $(call RUNS,python) python3)

# The interpreter behind a launcher, and its version.
INTERPRETER := $(shell $(PYTHON) -c 'import sys; print(sys.executable)' 2>/dev/null)
VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)

VENV := .venv/$(if $(VERSION),$(VERSION),none)
RUN := $(VENV)/bin/python
PIP_INSTALL := $(RUN) -m pip install -qq --disable-pip-version-check

# Further arguments, as in `make test PYTEST_ARGS="-k adam"`.
PYTEST_ARGS ?=
BENCH_ARGS ?=

.PHONY: help demo test quick lint format bench docs clean

help:
	@echo 'make demo    run examples/quickstart.py'
	@echo 'make test    run every test'
	@echo 'make quick   run the tests that are not marked slow'
	@echo 'make lint    ruff, the format and pyright'
	@echo 'make format  let ruff repair what it can'
	@echo 'make bench   run the benchmarks'
	@echo 'make docs    build the documentation into site/'
	@echo 'make clean   remove the environments and whatever was built'
	@echo 'PYTHON=/path/to/python3.13 chooses the interpreter'

demo: $(VENV)/installed-examples
	$(RUN) examples/quickstart.py

test: $(VENV)/installed-test
	$(RUN) -m pytest -n auto $(PYTEST_ARGS)

quick: $(VENV)/installed-test
	$(RUN) -m pytest -n auto -m "not slow" $(PYTEST_ARGS)

lint: $(VENV)/installed-lint
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m pyright --pythonpath $(RUN)

format: $(VENV)/installed-lint
	$(RUN) -m ruff check --fix .
	$(RUN) -m ruff format .

bench: $(VENV)/installed-examples
	$(RUN) -m benchmarks $(BENCH_ARGS)

docs: $(VENV)/installed-docs
	$(RUN) -m mkdocs build --strict

clean:
	rm -rf .venv build dist site .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# One stamp for each set of extras, renewed when pyproject.toml changes.
$(VENV)/installed-%: $(VENV)/created pyproject.toml
	@echo 'installing eqopt[$*] into $(VENV)'
	@$(PIP_INSTALL) -e '.[$*]'
	@touch $@

$(VENV)/created:
	@test -n '$(VERSION)' || { echo 'error: `$(PYTHON)` does not run; set PYTHON=/path/to/python' >&2; exit 1; }
	@'$(INTERPRETER)' -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo 'error: eqopt needs Python 3.11 or newer; `$(PYTHON)` is $(VERSION); set PYTHON=/path/to/python' >&2; exit 1; }
	@'$(INTERPRETER)' -m venv --clear $(VENV)
	@touch $@

.PRECIOUS: $(VENV)/installed-% $(VENV)/created
