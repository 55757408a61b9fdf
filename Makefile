# Everything that a contributor runs. `make help` lists the targets.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-builtin-rules
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:

PYTHON ?= python3
PYTHONS ?= 3.13 3.14 3.15# for `make test-pythons`; Debian has no package of 3.12
ARGS ?=
JOBS ?= 3# more than there are cores: most tests wait for processes
BIN := .venv/bin
MCP1 := .venv/mcp1# the previous major of the MCP SDK, for one test: the two cannot be installed side by side
ENVIRONMENT := .venv/.complete
PEERS := .venv/.peers
LOWEST := .cache/lowest# an environment with the lowest versions of every extra
LOWEST_TESTS := $(addprefix tests/,stores/test_contract.py stores/test_redis.py stores/test_postgres.py web/test_app.py \
  agents/test_mcp.py formats/test_yaml_codec.py cli/queue/test_import_file.py)
unexport PYTHONDONTWRITEBYTECODE# otherwise every process of a test compiles swarm again
SHELL_FILES := .ci/run $(wildcard scripts/*.sh tests/*.sh)

.PHONY: help
help: ## list the targets
	@sed -nE 's/^([a-z][a-z-]*):.*## (.*)/  make \1\t\2/p' Makefile | expand -t 22

.PHONY: demo
demo: ## watch swarm work; needs only Python
	@$(PYTHON) -m swarm demo $(ARGS)

.PHONY: test
test: packages $(ENVIRONMENT) ## run all tests (ARGS="-k lease" for some)
	$(BIN)/python -m tests.support.programs.install
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile $(ARGS)

.PHONY: test-fast
test-fast: $(ENVIRONMENT) ## run the tests that need no server, no root and no long time, in a minute
	$(BIN)/python -m pytest --fast -n $(JOBS) --dist loadfile $(ARGS)

.PHONY: test-pythons
test-pythons: $(ENVIRONMENT) ## run the demo and the fast tests under other Pythons (PYTHONS="3.13 3.15" for some; needs root)
	@JOBS=$(JOBS) PYTHON=$(PYTHON) tests/pythons.sh test $(PYTHONS) -- $(ARGS)

.PHONY: test-lowest
test-lowest: $(LOWEST)/.complete ## run the demo and the tests of every extra with the lowest versions that pyproject.toml allows
	$(LOWEST)/bin/python -m swarm demo --json | grep '"ok": true' >/dev/null
	$(LOWEST)/bin/python -m pytest -n $(JOBS) --dist loadfile -p no:cacheprovider $(LOWEST_TESTS) -k "not previous_sdk" $(ARGS)

.PHONY: check
check: $(ENVIRONMENT) ## lint, formatting, types, layers, shell
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/shellcheck $(SHELL_FILES)

.PHONY: format
format: $(ENVIRONMENT) ## fix formatting, and what the linter can fix
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

.PHONY: prove
prove: packages $(ENVIRONMENT) ## show that no task has two holders and no record is lost (ARGS="--short interleavings" for some)
	$(BIN)/python -m proof $(ARGS)

.PHONY: bench
bench: $(PEERS) ## measure, and write the figures into docs/design/performance.md (ARGS="locks log" for some)
	@tests/install_debian_packages.sh bench
	$(BIN)/python -m bench $(ARGS)

.PHONY: lock
lock: python ## write requirements/*.txt from the *.in (ARGS=--upgrade for the newest versions)
	uv=$$(type -P uv) || { \
	  uv=.cache/uv/bin/uv; \
	  $(PYTHON) -m venv .cache/uv; \
	  .cache/uv/bin/pip install --quiet uv; \
	}; \
	compile=("$$uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header $(ARGS)); \
	for name in dev bench mcp1 pythons; do \
	  "$${compile[@]}" --output-file requirements/$$name.txt requirements/$$name.in; \
	done; \
	"$${compile[@]}" --upgrade --resolution lowest-direct --extra all \
	  --output-file requirements/lowest.txt requirements/lowest.in pyproject.toml

.PHONY: clean
clean: ## remove all files that the other targets made
	rm -rf .venv .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# $(call make-environment,DIRECTORY)
define make-environment
	rm -rf $(1)
	if type -P uv >/dev/null; then \
	  uv venv --quiet --no-python-downloads --python "$$($(PYTHON) -c 'import sys; print(sys.executable)')" $(1); \
	else \
	  PYTHON=$(PYTHON) tests/install_debian_packages.sh environment; \
	  $(PYTHON) -m venv $(1); \
	fi
endef

# $(call install,DIRECTORY,NAME,OPTIONS): what requirements/NAME.txt lists
define install
	if type -P uv >/dev/null; then \
	  uv pip install --quiet --python $(1)/bin/python $(3) --require-hashes -r requirements/$(2).txt; \
	else \
	  $(1)/bin/python -m pip install --quiet --disable-pip-version-check $(3) --require-hashes -r requirements/$(2).txt; \
	fi
endef

# Built again from nothing when the locked requirements change.
$(ENVIRONMENT): requirements/dev.txt requirements/mcp1.txt | python
	$(call make-environment,.venv)
	$(call install,.venv,dev)
	$(call install,.venv,mcp1,--target $(MCP1))
	touch $@

$(LOWEST)/.complete: requirements/lowest.txt | python
	$(call make-environment,$(LOWEST))
	$(call install,$(LOWEST),lowest)
	touch $@

# The peers of the benchmark. They share the environment, and so the versions in it.
$(PEERS): requirements/bench.txt $(ENVIRONMENT)
	$(call install,.venv,bench)
	touch $@

.PHONY: python
python:
	@type -P $(PYTHON) >/dev/null || { echo "Error: there is no $(PYTHON). Install Python 3.11 or newer, or run: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else "Error: swarm needs Python 3.11 or newer; $(PYTHON) is %d.%d. Run: make PYTHON=/path/to/a/newer/python3" % v[:2])'

.PHONY: packages
packages:
	@tests/install_debian_packages.sh tests
