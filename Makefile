# Every target can be run again at any time; what is done already is not done again.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
RUNS := $(VENV)/.runs
INSTALLED := $(VENV)/.installed
BENCHED := $(VENV)/.benched
FUZZED := $(VENV)/.fuzzed
# Oldest to newest; ARGS='4.2.0' of `make compat` for one. The page docs/compatibility.md names them too.
KAFKAS := 3.7.2 3.9.1 4.1.0 4.2.0 4.3.0
EXAMPLES := .cache/examples
KUBERNETES := .cache/kubernetes/cluster
# Tests run side by side, each process with a broker of its own; tests/conftest.py says how many, and in which order.
PYTEST := tests/in_memory $(BIN)/pytest --numprocesses auto --dist loadfile --no-loadscope-reorder
ENGINES := .cache/engines
S3 := .cache/s3
GATEWAY := .cache/versitygw
LOCKED_FOR_TESTS := $(wildcard tests/*/requirements*.in tests/*/*/requirements*.in)
ARGS ?=

say = printf '\n==> %s\n' $(1)
# What pip prints matters if it fails only.
install = $(BIN)/pip install --disable-pip-version-check $(1) >$(VENV)/.pip.log 2>&1 || { cat $(VENV)/.pip.log >&2; exit 1; }

.PHONY: help
help: ## show this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1 \2/p' Makefile | while read -r _ target what; do printf 'make %-11s %s\n' "$$target" "$$what"; done

.PHONY: demo
demo: broker-tools compiled ## a broker, pages with near-duplicates, and the verdicts
	@$(call say,"neardup demo: starts a Kafka broker$(comma) two workers$(comma) a judge and a dashboard; Ctrl-C ends them all")
	$(BIN)/neardup demo $(ARGS)

.PHONY: test
test: export NUMBA_BOUNDSCHECK := 1
test: broker-tools browser $(INSTALLED) compiled ## what to run before a commit: all rooms, rules and roles, on a real broker, in a quarter of an hour (ARGS='-k name' for some)
	@$(call say,"pytest$(comma) with every array access of compiled loops checked: starts a Kafka broker of its own where a test needs one")
	$(PYTEST) $(or $(ARGS),-m "not night")

.PHONY: nightly
nightly: broker-tools browser $(INSTALLED) compiled ## everything (PART=3/12 for a part of it; ARGS=--show tells what the parts have)
	@$(call say,"tests.nightly: at most twelve minutes a part of twelve$(comma) once environments are installed")
	$(BIN)/python -m tests.nightly $(if $(PART),--part $(PART)) $(ARGS)

.PHONY: fresh
fresh: export NUMBA_BOUNDSCHECK := 1
fresh: broker-tools browser $(INSTALLED) compiled ## the tests that a change added, three times in random order (ARGS=COMMIT for those since another commit than the last but one)
	@$(BIN)/python -m tests.fresh $(ARGS)

.PHONY: compat
compat: broker-tools compiled ## the demo on every version of Kafka that is supported (ARGS=4.3.0 for one)
	@for version in $(or $(ARGS),$(KAFKAS)); do
	    $(call say,"neardup demo on Apache Kafka $$version")
	    env -u NEARDUP_BOOTSTRAP_SERVERS NEARDUP_BROKER=embedded NEARDUP_KAFKA_VERSION=$$version $(BIN)/neardup demo
	done

.PHONY: chaos
chaos: broker-tools $(INSTALLED) compiled ## faults of every kind against three brokers (ARGS='--minutes 60 --seed 7'; --help for more)
	@$(call say,"tests.chaos: kills$(comma) cuts and damages a deployment of its own$(comma) and checks every verdict")
	$(BIN)/python -m tests.chaos $(ARGS)

.PHONY: fuzz
fuzz: export NUMBA_BOUNDSCHECK := 1
fuzz: $(INSTALLED) compiled $(if $(findstring --guided,$(ARGS)),$(FUZZED)) ## feed every decoder hostile input for an hour (ARGS='--minutes 5 --only html', ARGS=--guided)
	@$(call say,"fuzz: finds are kept in build/fuzz")
	$(BIN)/python -m tests.fuzz $(ARGS)

$(FUZZED): $(INSTALLED) tests/fuzz/requirements.lock
	@$(call say,"installing what tests/fuzz/requirements.lock names")
	$(BIN)/pip install --disable-pip-version-check --quiet --only-binary :all: --require-hashes -r tests/fuzz/requirements.lock
	touch $@

.PHONY: mutants
mutants: broker-tools $(INSTALLED) ## put faults into a copy, whose tests must fail (ARGS='--tier day stream/judge/')
	@$(call say,"tests.mutants: results are kept in build/mutants")
	$(BIN)/python -m tests.mutants $(ARGS)

.PHONY: images
images: COMPOSE := .cache/podman-compose
images: $(INSTALLED) broker-tools engine ## build the image, run deploy/compose.yaml with it under Podman, kill containers, audit
	@if ! cmp -s tests/images/requirements.lock $(COMPOSE)/installed; then
	    $(call say,"installing what tests/images/requirements.lock names into $(COMPOSE)")
	    $(BIN)/python -m venv --clear $(COMPOSE)
	    $(COMPOSE)/bin/pip install --disable-pip-version-check --quiet --require-hashes -r tests/images/requirements.lock
	    cp tests/images/requirements.lock $(COMPOSE)/installed
	fi
	$(call say,"tests.images: some ten minutes the first time; images stay in .cache/images")
	$(BIN)/python -m tests.images --compose $(COMPOSE)/bin/podman-compose $(ARGS)

.PHONY: engine
engine: # Podman, and Debian's own base where no registry can be reached
	@lacking=; for each in podman runc iptables catatonit debootstrap; do command -v $$each >/dev/null || lacking="$$lacking $$each"; done
	[ -n "$$lacking" ] || exit 0
	[ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null || { echo "make images needs root, and:$$lacking" >&2; exit 1; }
	$(call say,"apt-get install podman runc netavark iptables catatonit debootstrap")
	apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends \
	    podman buildah runc netavark aardvark-dns iptables catatonit debootstrap >/dev/null

.PHONY: kubernetes
kubernetes: $(INSTALLED) $(KUBERNETES) ## apply deploy/kubernetes to an API server of its own, with controllers and without a node
	@$(call say,"tests.kubernetes: a minute")
	$(BIN)/python -m tests.kubernetes --program $(KUBERNETES) $(ARGS)

$(KUBERNETES): $(wildcard tests/kubernetes/server/*)
	@export PATH=$$PATH:/usr/local/go/bin
	command -v go >/dev/null || { echo "make kubernetes needs Go 1.26 or newer" >&2; exit 1; }
	$(call say,"go build: etcd$(comma) Kubernetes' API server$(comma) controllers and kubectl; at first 11 minutes of processor time")
	mkdir -p $(@D)
	cd tests/kubernetes/server
	version=$$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
	go build -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$$version" -o $(CURDIR)/$@ .

.PHONY: engines
engines: broker-tools compiled $(ENGINES)/.installed $(S3)/.installed $(GATEWAY) ## rows on a real Spark and a real Ray, and files in S3 stores (in environments of their own)
	@$(call say,"pytest tests/engines: Spark needs Java 17")
	PYTHONPATH=$(CURDIR) $(ENGINES)/bin/python -m pytest -W default tests/engines $(ARGS)

# Without Go, its tests are left out, and say so.
$(GATEWAY): tests/engines/s3/go.mod tests/engines/s3/go.sum
	@export PATH=$$PATH:/usr/local/go/bin
	command -v go >/dev/null || exit 0
	$(call say,"go build versitygw$(comma) an S3 server: at first 3 minutes of processor time")
	mkdir -p $(@D)
	cd tests/engines/s3
	go build -ldflags "-s -w" -o $(CURDIR)/$@ github.com/versity/versitygw/cmd/versitygw

$(ENGINES)/.installed: tests/engines/requirements.lock
$(S3)/.installed: tests/engines/requirements-s3.lock
$(ENGINES)/.installed $(S3)/.installed: | $(INSTALLED)
	@$(call say,"installing what $< names into $(@D)")
	$(BIN)/python -m venv --clear $(@D)
	$(@D)/bin/pip install --disable-pip-version-check --quiet --require-hashes --no-deps -r $<
	touch $@

.PHONY: lint
lint: $(INSTALLED) docs ## ruff (rules and format), mypy (strict), the rooms and the documentation without a warning
	@$(call say,"ruff check")
	$(BIN)/ruff check
	$(call say,"ruff format --check")
	$(BIN)/ruff format --check
	$(call say,"mypy --strict")
	$(BIN)/mypy
	$(call say,"lint-imports: which room may import which")
	$(BIN)/lint-imports --no-logo --no-cache

.PHONY: examples
examples: compiled $(EXAMPLES)/.installed ## examples for datatrove and Hugging Face datasets (in an environment of its own)
	@$(call say,"pytest tests/examples")
	PYTHONPATH=$(CURDIR) $(EXAMPLES)/bin/python -m pytest -W default tests/examples $(ARGS)

$(EXAMPLES)/.installed: $(INSTALLED) tests/examples/requirements.lock
	@$(call say,"installing what tests/examples/requirements.lock names$(comma) beside $(VENV)")
	$(BIN)/python -m venv --clear $(EXAMPLES)
	$(BIN)/python -c 'import site; print(site.getsitepackages()[0])' > $$(echo $(EXAMPLES)/lib/python*/site-packages)/shared.pth
	$(EXAMPLES)/bin/pip install --disable-pip-version-check --quiet --require-hashes --no-deps -r tests/examples/requirements.lock
	touch $@

.PHONY: sbom
sbom: $(INSTALLED) ## what an image is made of, as CycloneDX, in build/sbom.cdx.json; and under which licences
	@$(BIN)/python -m deploy.supply_chain sbom
	$(BIN)/python -m deploy.supply_chain licences

.PHONY: audit
audit: PIP_AUDIT := .cache/pip-audit/bin/pip-audit
audit: $(INSTALLED) ## known faults of locked packages: asks the index, or ARGS=all.zip of OSV without a network
	@if [ -n "$(ARGS)" ]; then
	    $(BIN)/python -m deploy.supply_chain audit $(ARGS)
	else
	    test -x $(PIP_AUDIT) || { $(call say,"installing pip-audit into .cache/pip-audit"); $(BIN)/python -m venv .cache/pip-audit; .cache/pip-audit/bin/pip install --quiet pip-audit; }
	    $(call say,"pip-audit: every package of requirements.lock")
	    $(PIP_AUDIT) --strict --no-deps --disable-pip --require-hashes -r requirements.lock
	fi

.PHONY: docs
docs: $(INSTALLED) ## the documentation as a site, in build/site
	@$(call say,"mkdocs build --strict: build/site/index.html")
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict -f docs/site/mkdocs.yml

.PHONY: bench
bench: broker-tools $(BENCHED) compiled ## measure this machine, side by side with peers (ARGS=judge for one stage)
	@$(call say,"python -m tests.bench")
	$(BIN)/python -m tests.bench $(ARGS)

$(BENCHED): $(INSTALLED) tests/bench/requirements.lock $(wildcard tests/bench/quality/requirements*.lock) tests/bench/quality/environments.py
	@$(call say,"installing the peers that tests/bench/requirements.lock names")
	$(BIN)/pip install --disable-pip-version-check --quiet --require-hashes -r tests/bench/requirements.lock
	$(BIN)/python -m tests.bench.quality.environments
	touch $@

.PHONY: clean
clean: ## remove the virtual environment, caches and builds (Kafka's jars stay in your cache directory)
	@$(call say,"removing $(VENV)$(comma) caches and builds")
	rm -rf $(VENV) .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
	find stream tests -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: lock
lock: UV := .cache/uv/bin/uv
lock: ## resolve every lock file anew: what each requirements*.in beside it names (ARGS=--upgrade for newer versions)
	@$(find_python)
	test -x $(UV) || { $(call say,"installing uv into .cache/uv"); "$$python" -m venv .cache/uv; .cache/uv/bin/pip install --quiet uv; }
	resolve() { $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url --no-annotate "$$@"; }
	$(call say,"every platform$(comma) Python 3.11 and newer$(comma) with hashes: requirements.lock to develop$(comma) deploy/requirements.lock to run")
	printf 'hatchling\neditables\n' | resolve $(ARGS) --extra test --extra docker --output-file requirements.lock pyproject.toml -
	printf 'hatchling\neditables\n' | resolve --constraint requirements.lock --output-file deploy/requirements.lock pyproject.toml -
	for each in $(LOCKED_FOR_TESTS); do
	    $(call say,"$${each%.in}.lock")
	    extras=
	    [ "$$each" != tests/engines/requirements.in ] || extras="--extra spark --extra ray pyproject.toml"
	    resolve $(ARGS) --output-file "$${each%.in}.lock" $$extras "$$each"
	done

# The build needs hatchling and editables, which the lock files have too: nothing is fetched without a hash.
# To run, and so for `make demo`, fewer packages are needed than to develop.
$(RUNS): deploy/requirements.lock pyproject.toml
	@$(find_python)
	if ! $(BIN)/python -c 'import pip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
	    $(call say,"making $(VENV) with $$("$$python" --version)"); "$$python" -m venv --clear $(VENV)
	fi
	$(call say,"installing what deploy/requirements.lock names$(comma) to run: a minute or two")
	$(call install,--require-hashes -r deploy/requirements.lock)
	$(call say,"installing neardup itself$(comma) editable")
	$(call install,--no-deps --no-build-isolation -e .)
	touch $@

$(INSTALLED): $(RUNS) requirements.lock
	@$(call say,"installing what requirements.lock names$(comma) to develop: a minute or two")
	$(call install,--require-hashes -r requirements.lock)
	touch $@

.PHONY: compiled
compiled: $(RUNS) # the inner loops; says so if that takes long
	@$(BIN)/python -m stream.precompile

.PHONY: browser
browser: # Chromium for the tests of the dashboard's page; without it they are skipped, and say so
	@if command -v chromium chromium-browser google-chrome >/dev/null; then exit 0; fi
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	    $(call say,"apt-get install chromium: the browser tests need it")
	    (apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends chromium) >/dev/null 2>&1 && exit 0
	fi
	echo "NO BROWSER: the dashboard's page will not be tested; install Debian's chromium" >&2

.PHONY: broker-tools
broker-tools: # what a broker of ours needs; told before anything is installed
	@[ -z "$${NEARDUP_BOOTSTRAP_SERVERS:-}" ] || exit 0
	java=$$(java -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1) || java=
	if [ "$${NEARDUP_BROKER:-}" != docker ] && [ "$${java:-0}" -ge 17 ] && command -v mvn >/dev/null; then exit 0; fi
	if docker info >/dev/null 2>&1; then $(MAKE) --no-print-directory $(INSTALLED); exit 0; fi # testcontainers is in its lock
	echo "A Kafka broker is needed: install Java 17 or newer (found: $${java:-none}) and Maven ($$(command -v mvn || echo 'no mvn'))," >&2
	echo "or start a Docker engine, or name a cluster in NEARDUP_BOOTSTRAP_SERVERS." >&2
	exit 1

.ONESHELL:
comma := ,

define find_python
python=
for candidate in $${PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11; do
    if "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then python=$$candidate; break; fi
done
if [ -z "$$python" ]; then
    echo "Python 3.11 or newer is needed; python3 is $$(python3 --version 2>&1 || true). Set PYTHON to name another." >&2
    exit 1
fi
endef
