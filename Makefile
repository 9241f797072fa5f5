# Targets do their own set-up: on a fresh Debian machine, as root, with git, make, python3 and cargo.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
# Containers often set it: then every start of the program and of a test process compiles every module anew.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PACKAGES := $(VENV)/.packages
DISK := $(BIN)/strata-disk
LOAD := $(BIN)/strata-load
CRATES := $(DISK) $(LOAD)
CRATE_SOURCES := $(shell find crates -path '*/target' -prune -o -type f -print)
# The lock is hashed: whichever index pip is set to must serve these very files.
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# Most tests wait for other programs: more processes than a small machine has cores.
SPREAD := --numprocesses 3 --dist loadgroup
# The root tests come first, which take longest; the order would be by number.
SPREAD_WIDE := --numprocesses 6 --dist loadgroup --no-loadscope-reorder
# Tests with a real kernel share it with one another. One that fails is run once more, and the summary shows it (RERUN):
# a test that passes only then is to be mended.
AGAIN := --reruns 1 --rerun-show-tracebacks -r sR

.PHONY: help
help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

.PHONY: setup
setup: $(STAMP) $(CRATES) ## leaves .venv/bin/pgstrata, with the Debian packages it needs, and strata-disk and strata-load beside it where cargo is

$(PACKAGES): packages.txt
	@bash .ci/packages packages.txt
	@mkdir -p $(VENV) && touch $@

$(STAMP): pyproject.toml requirements.lock $(PACKAGES)
	@test -x $(BIN)/python || python3 -m venv $(VENV)
	@$(PIP) install --require-hashes -r requirements.lock
	@$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

$(CRATES): $(CRATE_SOURCES) .ci/crates | $(STAMP)
	@bash .ci/crates build $(@F) $(CURDIR)/$@

.PHONY: format
format: $(STAMP) ## rewrites the code in the house format
	@$(BIN)/ruff format src tests benches release hatch_build.py
	@$(BIN)/ruff check --fix src tests benches release hatch_build.py

.PHONY: lint
lint: lint-python lint-others ## format, lint, types, dead code; with --jobs 2 in half of the time

.PHONY: lint-python
lint-python: $(STAMP)
	@$(BIN)/ruff format --check src tests benches release hatch_build.py
	@$(BIN)/ruff check src tests benches release hatch_build.py
	@bash .ci/dead-code $(BIN)/vulture
	@bash .ci/types $(BIN)/mypy

.PHONY: lint-others
lint-others: $(STAMP)
	@$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yml
	@bash .ci/crates check
	@bash .ci/check-page

.PHONY: check
check: lint ## what lint finds, and the quick ones of the unit tests
	@$(BIN)/pytest $(SPREAD) -m "not slow" tests/unit tests/golden tests/contract

.PHONY: coverage
coverage: $(STAMP) ## which lines and branches the unit tests reach
	@mkdir -p build/coverage
	@$(BIN)/coverage erase
	@$(BIN)/coverage run -m pytest $(SPREAD) tests/unit tests/golden tests/contract
	@$(BIN)/coverage combine --quiet
	@$(BIN)/coverage report

.PHONY: test
test: $(STAMP) $(CRATES) ## the fast and the root tests
	@bash .ci/crates test
	@$(BIN)/pytest $(SPREAD_WIDE) $(AGAIN) -m "not every_stack and not slow" tests/root tests/unit tests/golden tests/contract

.PHONY: test-slow
test-slow: $(STAMP) $(DISK) ## simulated campaigns, large reports, planted damage, as root; some minutes
	@$(BIN)/pytest $(SPREAD) $(AGAIN) -m slow tests/unit tests/contract tests/root

.PHONY: test-browser
test-browser: $(STAMP) $(CRATES) ## the page and the live view in Chromium, as root
	@$(BIN)/pytest $(SPREAD) $(AGAIN) tests/e2e

.PHONY: test-benches
test-benches: $(STAMP) $(CRATES) ## every benchmark, in a tiny size, as root; some minutes
	@$(BIN)/pytest $(SPREAD) $(AGAIN) tests/benches

.PHONY: test-kill
test-kill: $(STAMP) $(DISK) ## kill -9 after every second step of every stack, as root; some minutes
	@$(BIN)/pytest $(SPREAD) $(AGAIN) -m every_stack tests/root/test_kill.py

.PHONY: test-majors
test-majors: $(STAMP) $(DISK) ## servers of every major, fetched where they are missing; some minutes
	@PGSTRATA_MAJORS=1 $(BIN)/pytest $(SPREAD) $(AGAIN) tests/majors

.PHONY: test-cluster
test-cluster: $(STAMP) $(DISK) ## clusters, whole and broken, as root; some minutes
	@$(BIN)/pytest $(SPREAD) $(AGAIN) tests/cluster

.PHONY: test-fleet
test-fleet: $(STAMP) $(DISK) ## Dask clusters that are killed, as root; three minutes
	@$(BIN)/pytest $(SPREAD) $(AGAIN) tests/fleet

# Of benches/crash_controls.py: fewer states, some controls, other majors
CONTROLS :=

.PHONY: crash
crash: $(STAMP) $(DISK) ## power cuts: stacks that must lose and stacks that must hold, as root; an hour or more
	@$(BIN)/python benches/crash_controls.py $(CONTROLS)

.PHONY: crash-lab
crash-lab: $(STAMP) $(DISK) ## power cuts of stacks over lvm, md, zfs and nfs, on a lab machine; hours where it is emulated
	@bash .ci/packages packages-lab.txt
	@$(BIN)/pgstrata lab up --name crash --disks 0
	@status=0; $(BIN)/python benches/crash_controls.py --layers --host lab/crash --lose 40 --hold 100 --nested 0 \
	  --minimise 0 --workers 1 --transactions 25 $(CONTROLS) || status=$$?; \
	$(BIN)/pgstrata lab down crash; exit $$status

.PHONY: check-dist
check-dist: $(STAMP) $(CRATES) ## what is handed out, made twice; some minutes
	@$(BIN)/pytest tests/dist

.PHONY: attack
attack: $(STAMP) $(DISK) ## hostile inputs, crowds of connections, damaged records, kills and signals; PGSTRATA_ATTACK_SCALE=0.1 for a tenth of them
	@$(BIN)/pytest $(SPREAD) $(AGAIN) tests/attack

# A selection of pytest for the tests in the lab
LAB :=

.PHONY: test-lab
test-lab: $(STAMP) $(DISK) ## lvm, md, zfs and nfs on a lab machine; builds its image when there is none
	@bash .ci/packages packages-lab.txt
	@$(BIN)/pgstrata lab build
	@$(BIN)/pytest --numprocesses 2 --dist loadgroup $(AGAIN) -m "$(LAB)" tests/lab

.PHONY: demo
demo: $(STAMP) $(DISK) ## ext4, xfs, btrfs and tmpfs with the embedded PostgreSQL, and power cuts, in about six minutes
	@$(BIN)/pgstrata run campaigns/demo.yaml --out out/demo

.PHONY: dist
dist: $(STAMP) ## sdist, wheels, deb, rpm, SBOM and checksums of the commit, in dist
	@bash .ci/dist

# bookworm, trixie: in a new root filesystem of Debian 12 or 13, as root; with 12 deb and rpm are installed and removed, too
WHERE := venv

.PHONY: check-install
check-install: $(STAMP) ## the wheel of make dist in a new environment without compilers, where two stacks are compared; WHERE=bookworm or trixie, MINUTES=3
	@unshare --mount --propagation slave bash .ci/check-install $(WHERE)

.PHONY: docs
docs: $(STAMP) $(DISK) ## the reference pages that are written from the code
	@$(BIN)/python -m pgstrata_docs.campaign > docs/reference/campaign.md
	@$(BIN)/python -m pgstrata_docs.cli > docs/reference/cli.md
	@$(BIN)/python -m pgstrata_docs.report_json > docs/reference/report-json.md
	@$(BIN)/python -m pgstrata_docs.glossary > docs/reference/glossary.md
	@$(BIN)/python -m pgstrata_docs.outcomes > docs/results/outcomes.md
	@if test -x $(DISK); then $(DISK) models --markdown > docs/reference/media-models.md; fi

.PHONY: bench
bench: $(STAMP) $(CRATES) ## the speed figures against their bounds, on an idle machine, as root; about 40 minutes
	@failed=; for file in benches/bench_*.py; do \
	  echo "== $$file"; $(BIN)/python $$file || failed="$$failed $$file"; \
	done; test -z "$$failed" || { echo "missed its bound:$$failed"; exit 1; }
