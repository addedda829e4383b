# Every target sets up what it needs first. `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DEFAULT_GOAL := help
SUITE ?= storage

ENV := . tools/env
COUNT ?= 10000
SEED ?= 0
STATES ?= 2200000
PYSPARK ?= 4.2.1
.PHONY: model bugs damage simulate fuzz miri
.PHONY: help setup run test test-rust test-python test-spark images e2e check fmt bench chaos compat proto golden charts clean

help: ## This list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 22

setup: ## Python environment, Rust extension, Java: found, installed, or a message that says how
	@tools/setup

run: setup ## The main job: a real data set through three brokers, archived by Spark, proved; PRODUCER=kafka: sent by confluent-kafka
	@$(ENV); uv run --frozen --no-sync python -m flights $(if $(PRODUCER),--producer $(PRODUCER))

test: setup test-rust test-python ## Everything that needs no Docker

test-rust:
	@$(ENV); cd storage_core && cargo test --locked --workspace --exclude walrus-python
	cargo test --locked --package walrus-trials --features schedules,seeded-bugs --test schedules

# Most Python tests wait for real processes, so several of them run at a time: a file's tests in the order of the file.
test-python:
	@$(ENV); uv run --frozen --no-sync pytest --numprocesses auto --maxprocesses 4 --dist loadfile

test-spark: setup ## Tests of the Spark side with another Spark: make test-spark PYSPARK=4.2.1
	@$(ENV); uv run --frozen --no-sync --with pyspark==$(PYSPARK) pytest pipeline/tests

images: setup ## The broker's and the operator's image, by the docker engine at hand or one built here
	@$(ENV); e2e/kind/images

e2e: setup ## The tests on a real Kubernetes: images, a kind cluster of four nodes, gone afterwards (KEEP=1 keeps it; LIFE=1: the long ones)
	@$(ENV); e2e/kind/e2e

model: ## Every order of a few events of replication, and mistakes that must be found: make model STATES=100000000
	@. tools/env; cd storage_core
	cargo run --locked --quiet -p walrus-simulator -- model $(STATES)
	cargo run --locked --quiet -p walrus-simulator --features seeded-bugs -- bugs

bugs: ## Mistakes in the storage engine that its trials must find
	@. tools/env; cd storage_core
	cargo run --locked --quiet -p walrus-trials --features seeded-bugs -- bugs

damage: ## Damaged stores of each backend: make damage COUNT=10000 SEED=7
	@. tools/env; cd storage_core
	cargo run --locked --quiet -p walrus-trials -- damage $(COUNT) $(SEED)

fuzz: ## Any bytes for the decoders of disks and sockets, with a nightly compiler: make fuzz SECONDS=600
	@tools/fuzz $(SECONDS)

miri: ## The decoders of the engine in an interpreter that sees undefined behaviour, with a nightly compiler
	@tools/miri

simulate: ## Random lives of whole clusters: make simulate COUNT=1000000, again: make simulate SEED=7 COUNT=1
	@. tools/env; cd storage_core
	cargo run --locked --quiet -p walrus-simulator -- simulate $(COUNT) $(SEED)

check: setup ## Formats, lints, types, import contracts, comments
	@$(ENV)
	for workspace in storage_core bench; do
	    cargo fmt --manifest-path $$workspace/Cargo.toml --all --check
	    cargo clippy --manifest-path $$workspace/Cargo.toml --locked --workspace --all-targets --quiet -- -D warnings
	done
	cargo clippy --manifest-path storage_core/Cargo.toml --locked --package walrus-trials --features schedules,seeded-bugs --all-targets --quiet -- -D warnings
	cargo run --manifest-path storage_core/Cargo.toml --locked --quiet --package walrus-rooms -- check
	uv run --frozen --no-sync ruff format --check --quiet .
	uv run --frozen --no-sync ruff check --quiet .
	uv run --frozen --no-sync mypy
	uv run --frozen --no-sync lint-imports
	uv run --frozen --no-sync python tools/comments.py
	echo "check: all clean"

fmt: setup ## Formats the code
	@$(ENV)
	for workspace in storage_core bench; do cargo fmt --manifest-path $$workspace/Cargo.toml --all; done
	uv run --frozen --no-sync ruff format .
	uv run --frozen --no-sync ruff check --fix-only .

bench: setup ## Figures beside the machine's limits: make bench SUITE=storage|sizes|cluster|topics|kafka|scale|spark
	@$(ENV); $(if $(findstring kafka,$(SUITE)),tools/setup compat;) uv run --frozen --no-sync python -m walrus_bench run $(SUITE)

compat: ## Clients of Kafka, unmodified, feature by feature: a table, and docs/compatibility.md (QUICK=1: what CI runs, without the page)
	@tools/setup compat
	$(ENV); uv run --frozen --no-sync python -m walrus_compat $(if $(QUICK),--quick)

chaos: ## Faults on a cluster of real nodes, as root: make chaos DURATION=60 SEED=1 (without SEED: new ones), SCENARIO=kills
	@tools/setup chaos
	$(ENV); uv run --frozen --no-sync python -m chaos $(if $(findstring command,$(origin SEED)),--seed $(SEED)) \
	    $(if $(SCENARIO),--scenario $(SCENARIO)) $(if $(DURATION),--duration $(DURATION))

proto: setup ## Python code of proto/, after a change of it
	@$(ENV); uv run --frozen --no-sync python client/tools/generate_proto.py

golden: ## Golden files of the format on disk, after a change of it: read the diff
	@$(ENV); cd storage_core && WALRUS_WRITE_GOLDEN=1 cargo test --locked -p walrus-log --test golden

charts: setup ## CRDs, copies and golden files of the charts, reference pages: after a change of models or charts
	@$(ENV)
	uv run --frozen --no-sync python -m walrus_operator crds --to crds
	uv run --frozen --no-sync python charts/tools/generate.py
	WALRUS_WRITE_GOLDEN=1 uv run --frozen --no-sync pytest --quiet charts/tests/test_golden.py

clean: ## Removes what was built and what runs left behind; caches stay
	@$(ENV)
	if [ -x .venv/bin/walrus ]; then .venv/bin/walrus dev down --purge || true; fi
	rm -rf .venv .walrus .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	echo "the cache folder is $$WALRUS_CACHE; it is safe to delete"
