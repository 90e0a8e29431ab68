# Two commands do everything: `make serve` and `make test`. Each prepares what it needs; both can be repeated.

PYTHON ?= python3
MODEL ?= smollm2
PORT ?= 8000

RUN := .venv
DEV := .venv-test
PIP_FLAGS := --quiet --disable-pip-version-check

LIBRARY := src/octavo/ops/native/liboctavo.so
NATIVE := $(shell find native -type f)
# An installation made before there was a compiler is made again once there is one.
ifeq ($(wildcard $(LIBRARY)),)
LATE := $(if $(shell command -v c++ || command -v g++ || command -v clang++),compiler)
endif

ENOUGH := $(shell $(PYTHON) -c 'import sys; print(int(sys.version_info >= (3, 11)))' 2>/dev/null)
ifneq ($(ENOUGH),1)
$(error Octavo needs Python 3.11 or newer as "$(PYTHON)"; if there is a newer one, name it: make serve PYTHON=python3.12)
endif

.PHONY: help serve test check test-fast native sanitize docs clean compiler

help:
	@echo "make serve      install into $(RUN), fetch the default model if needed, start the server on port $(PORT)"
	@echo "make test       install into $(DEV), then style, types and the whole default test suite"
	@echo "make test-fast  the same without the slow tests"
	@echo "make check      style and types only"
	@echo "make native     rebuild the native library only, quickly and with all messages"
	@echo "make sanitize   the native tests under the address, undefined-behaviour and thread sanitizers"
	@echo "make docs       write the generated parts of docs/"
	@echo "make clean      remove both environments, what was built and all caches"

serve: $(RUN)/installed
	$(RUN)/bin/octavo serve $(MODEL) --port $(PORT)

test: check
	$(DEV)/bin/pytest

test-fast: check
	$(DEV)/bin/pytest -m "not slow"

check: $(DEV)/installed
	$(DEV)/bin/ruff check .
	$(DEV)/bin/ruff format --check .
	$(DEV)/bin/mypy

# cmake and ninja: the machine's own, or those of the test environment.
native: export PATH := $(PATH):$(CURDIR)/$(DEV)/bin
native:
	cmake -S native -B build/native -G Ninja
	cmake --build build/native
	rm -f $(LIBRARY)
	cmake --install build/native

sanitize: $(DEV)/installed
	$(DEV)/bin/python tests/native/sanitized.py

docs: $(DEV)/installed
	$(DEV)/bin/python -m octavo.cli.options docs/configuration.md

# The serving environment: no torch, no test tools.
$(RUN)/installed: pyproject.toml $(NATIVE) $(LATE)
	$(PYTHON) -m venv $(RUN)
	@rm -f $(LIBRARY)
	@echo "Installing Octavo into $(RUN) (once, about a minute) ..."
	$(RUN)/bin/pip install $(PIP_FLAGS) -e .
	@touch $@

# The test environment: the oracles (transformers, torch for CPU) and the tools on top.
$(DEV)/installed: pyproject.toml constraints.txt $(NATIVE) $(LATE)
	$(PYTHON) -m venv $(DEV)
	@rm -f $(LIBRARY)
	@echo "Installing Octavo with its test oracles into $(DEV) (once, a few minutes) ..."
	$(DEV)/bin/pip install $(PIP_FLAGS) -c constraints.txt -e '.[test]'
	@touch $@

clean:
	rm -rf $(RUN) $(DEV) $(LIBRARY) build .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests -name __pycache__ -type d -exec rm -rf {} +
