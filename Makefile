# `make demo` and `make test` set everything up by themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TORCH := torch==2.13.0+cpu
RUNS := $(CURDIR)/runs

.PHONY: help setup demo test test-unit lint format ui clean

help:
	@echo "make demo   watch SmolLM2-135M learn additions on this machine's CPU"
	@echo "make test   lint, type check, all tests that need no GPU"
	@echo "make ui     MLflow UI over the local runs, http://127.0.0.1:5000"
	@echo "make setup  the virtual environment alone;  make lint;  make format"

setup: $(STAMP)

# PyTorch's CPU builds live on PyTorch's own index; a machine that has the wheel in its pip find-links needs no index.
$(STAMP): docker/requirements-cpu.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: Python 3.11 or newer is needed: make PYTHON=python3.12"; exit 2; }
	test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --no-deps "$(TORCH)" 2>/dev/null || \
	  $(BIN)/pip install -q --no-deps --extra-index-url https://download.pytorch.org/whl/cpu "$(TORCH)"
	$(BIN)/pip install -q --no-deps -r docker/requirements-cpu.txt
	$(BIN)/pip install -q --no-deps --no-build-isolation -e .
	@touch $(STAMP)

demo: setup
	$(BIN)/gspo-ray train --config configs/demo.yaml

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test-unit: setup
	$(BIN)/pytest -q tests/unit tests/conformance

test: lint
	$(BIN)/pytest -q tests/unit tests/conformance tests/ray tests/e2e tests/gpu

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

ui: setup
	@mkdir -p $(RUNS)
	$(BIN)/mlflow ui --backend-store-uri sqlite:///$(RUNS)/mlflow.db --host 127.0.0.1 --port 5000

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache build *.egg-info
