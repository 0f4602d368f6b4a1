# Every target is a line or two; what it needs it installs itself, once, and says so.

# Tests may switch single safety rules off. Release builds have no such switch (tests/tidy.rs).
TEST_BUILD := --workspace --features unsafe-guards
# Clusters mostly wait for each other, so more tests than cores run side by side.
TEST_THREADS ?= 6
# The tests that attack: the simulator's, rounds, traps, and the lab's own Patroni and Redis.
ATTACK := --test covers --test leases --test worlds --test rounds --test traps --test patroni --test redis
# Those of the shared store; the scenarios with two instances belong to them.
STORE := --test store_instances --test store_soak
TWO := with_two_instances
# The scenarios of replicas that lag.
LAG := s08_ s09_
# The cap that instances share; it has the whole machine.
CAP := quota::
# What the program says to its callers and of itself, and how it is deployed.
PROGRAM := --test store_check --test store_config --test api --test deploy --test telemetry --test telemetry_alloc
# All others but those of `failover` and `image` are `check`.
CHECKED := --lib --bins --test store_redis $(addprefix --test ,$(filter-out failover operators patroni image redis store_% \
	api deploy operations reload rounds telemetry telemetry_alloc,$(basename $(notdir $(wildcard \
	tests/*.rs src/core/tests/*.rs clients/rust/tests/*.rs tests/lab/tests/*.rs)))))
PYTHON_TOOLS := target/tools/venv
BUF := $(PYTHON_TOOLS)/bin/buf
# What `buf breaking` compares with: main, and without it the last commit.
BASE = $(shell git rev-parse -q --verify main || git rev-parse -q --verify origin/main \
	|| git rev-parse HEAD)

.DEFAULT_GOAL := help
.PHONY: program help demo up prove soak failovers bench test lint check attack failover store \
	freshness image build fmt deny tools servers

help: ## Lists the targets.
	@sed -n 's/^\([a-z]*\):[^#]*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 10

demo: ## Shows it on real servers and checks it; KEEP=1 leaves them running.
	@echo "building tidegate and its demo: minutes the first time"
	@cargo build -q -p tidegate -p tidegate-lab --bins
	@cargo run -q -p tidegate-lab --bin demo -- $(if $(KEEP),--keep) $(ARGS)

up: tools ## Starts the set of deploy/ from packages until Ctrl-C; CHECK=1 tries it and ends.
	@echo "building tidegate and its set: minutes the first time"
	@cargo build -q -p tidegate -p tidegate-lab --bins
	@target/debug/up $(if $(CHECK),--check) $(ARGS)

prove: tools ## Tries for ten minutes to break what is promised; FROM=n tries other seeds.
	@echo "building the proof: minutes the first time"
	@cargo build -q $(TEST_BUILD) --bins
	@target/debug/install
	@target/debug/prove $(if $(FROM),--from $(FROM)) $(ARGS)

soak: ## Plays what befalls servers, SUITE=failover|patroni|store|all; ROUNDS or MINUTES, ARGS='--seed n'.
	@echo "building the soak: minutes the first time"
	@cargo build -q $(TEST_BUILD) --bins
	@target/debug/install
	@target/debug/soak $(if $(SUITE),--suite $(SUITE)) $(if $(ROUNDS),--rounds $(ROUNDS)) \
		$(if $(MINUTES),--minutes $(MINUTES)) $(ARGS)

failovers: ## Shows what each kind of failover looks like from outside; ARGS='--rounds n'.
	@echo "building the failovers: minutes the first time"
	@cargo build -q -p tidegate-lab --bins
	@target/debug/install
	@target/debug/failovers $(ARGS)

bench: ## Measures what a decision costs; PAIRS and SECONDS lengthen it.
	@echo "building tidegate and its benchmark as they ship: five minutes the first time"
	@cargo build -q --release -p tidegate -p tidegate-lab --bin tidegate --bin bench --bin decision
	@target/release/bench $(if $(PAIRS),--pairs $(PAIRS)) $(if $(SECONDS),--seconds $(SECONDS)) $(ARGS)

test: ## Installs what tests need, builds, lints, runs all but `image`, prints the ledger.
	@.ci/ledger .ci/stages

lint: tools ## Formats, clippy and the API's own lints; changes nothing.
	@cargo fmt --all --check
	@cargo clippy -q $(TEST_BUILD) --all-targets -- -D warnings
	@cargo clippy -q -p tidegate -p tidegate-lab --bins -- -D warnings
	@$(BUF) format --diff --exit-code --exclude-path proto/google
	@$(BUF) lint
	@$(BUF) breaking --against '.git#ref=$(BASE)'

check: ## Runs the tests that no other target runs; what they need must be there.
	@PYTHON=$(abspath $(PYTHON_TOOLS))/bin/python RUST_TEST_THREADS=$(TEST_THREADS) \
		cargo test $(TEST_BUILD) --no-fail-fast --exclude tidegate-sim $(CHECKED) -- \
		--skip trap_ --skip $(TWO) $(addprefix --skip ,$(LAG))
	@cargo test $(TEST_BUILD) --no-fail-fast --exclude tidegate-sim --doc

failover: ## Runs every test of failovers, crashes and splits of real servers.
	@RUST_TEST_THREADS=$(TEST_THREADS) cargo test $(TEST_BUILD) --no-fail-fast \
		--test failover --test operators

store: ## Runs the tests of the token store that instances share, and their scenarios.
	@beside() { RUST_TEST_THREADS=$(TEST_THREADS) cargo test $(TEST_BUILD) --no-fail-fast "$$@"; }; \
	{ beside --test scenarios -- $(TWO) && beside --test store_conformance; } >target/two.log 2>&1 & \
	two=$$!; beside $(STORE) -- --skip $(CAP); store=$$?; wait $$two; two=$$?; cat target/two.log; \
	exit $$((store + two))

freshness: ## Runs what is answered while replicas lag: scenarios, the cap, trouble, reloads.
	@beside() { RUST_TEST_THREADS=$(TEST_THREADS) cargo test $(TEST_BUILD) --no-fail-fast "$$@"; }; \
	beside --test scenarios -- $(LAG); lag=$$?; beside --test store_instances -- $(CAP); cap=$$?; \
	beside --test operations --test reload; exit $$((lag + cap + $$?))

program: ## Runs the tests of the API, logs, spans and metrics, and of deploy/.
	@PYTHON=$(abspath $(PYTHON_TOOLS))/bin/python \
		cargo test $(TEST_BUILD) --no-fail-fast $(PROGRAM)

attack: ## Runs the simulator, guards switched off, rounds, traps, and the lab's Patroni and Redis.
	@RUST_TEST_THREADS=$(TEST_THREADS) cargo test $(TEST_BUILD) --no-fail-fast $(ATTACK)

image: ## Builds deploy/Dockerfile without a registry, and runs what comes out.
	@cargo test $(TEST_BUILD) --test image -- --nocapture

build: ## Builds the programs without the tests' switches, and the tests.
	@cargo build -q -p tidegate -p tidegate-lab --bins
	@cargo build -q $(TEST_BUILD) --bins --tests

fmt: tools ## Formats everything.
	@cargo fmt --all
	@$(BUF) format --write --exclude-path proto/google

deny: ## Checks licences, duplicates and sources of every dependency.
	@command -v cargo-deny >/dev/null || { echo "installing cargo-deny: about five minutes"; \
		cargo install -q --locked cargo-deny; }
	@cargo deny --offline check bans licenses sources

tools: $(PYTHON_TOOLS)/installed ## Installs buf, Python's gRPC and file checkers under target/tools.

$(PYTHON_TOOLS)/installed: .ci/requirements.txt
	@echo "installing $$(sed -n 's/==.*//p' $< | xargs) into $(PYTHON_TOOLS)"
	@python3 -c 'import ensurepip' 2>/dev/null || { echo "installing python3-venv with apt-get"; \
		apt-get update -q && apt-get install -q -y --no-install-recommends python3-venv; }
	@python3 -m venv $(PYTHON_TOOLS)
	@$(PYTHON_TOOLS)/bin/pip install -q --disable-pip-version-check -r $<
	@touch $@

servers: ## Installs what tests run on: PostgreSQL, Redis, Valkey, Patroni, pgbouncer.
	@target/debug/install
