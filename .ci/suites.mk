# The suites of `make check`, `make test` and `make test-long`: each is a shell command with a log in artefacts/logs,
# run by .ci/suite and counted by .ci/sum. A failed suite does not stop the others. A suite that only reads files runs
# again when one of them has changed, or when it did not pass; in CI all run.
#
# usage: make -f .ci/suites.mk check|test|test-long|native
SHELL = /bin/bash
MAKEFLAGS += --no-print-directory -k
LOGS = artefacts/logs
CPUS := $(shell nproc)
VENV = $(CURDIR)/target/python-tests

export PATH := $(PATH):/usr/sbin:/sbin:$(CURDIR)/target/tools/bin
export CARGO_TERM_COLOR ?= never
export STRAINGAUGE_CIW_PYTHON ?= $(VENV)/bin/python
ifneq ($(wildcard target/guest-kernel),)
export STRAINGAUGE_GUEST_KERNEL ?= $(CURDIR)/target/guest-kernel
endif
ifneq ($(shell command -v clippy-driver),)
export RUSTC_WORKSPACE_WRAPPER = $(CURDIR)/.ci/clippy
endif
# The checks of the standard library of what unsafe code asks of it (see Cargo.toml).
ifeq ($(GOAL),test-long)
export CARGO_PROFILE_DEV_DEBUG_ASSERTIONS = true
endif
# Python's bytecode is kept, but not next to the sources, because Ray starts dozens of interpreters.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX = $(CURDIR)/target/bytecode
# Output of the tests' commands, which is validated against the program's schemas after all have ended.
export STRAINGAUGE_OUTPUTS = $(CURDIR)/target/outputs

# Directories with C and C++ whose Makefile has `test`. A suite reads the whole tool that the directory belongs to.
ROOMS = toolkit/scalable-select $(addprefix toolkit/stingy/,runtime generate tools servers/tux servers/lighttpd bench) testbed/truth
log = $(LOGS)/$(subst /,-,$(1)).log
tool = $(if $(filter toolkit/%,$(1)),toolkit/$(word 2,$(subst /, ,$(1))) toolkit/rules.mk toolkit/parts.sh,$(1))
ROOM_LOGS = $(foreach room,$(ROOMS),$(call log,$(room)))

PARTS_check = form python-packages rust-quick python-types
PARTS_test = rust-build native-build python-packages node-packages form rust python schemas
PARTS_test-long = native-build python-packages node-packages form rust-long documentation fuzz-targets dist userlands kernels \
  bare-build reproducible python-long schemas
PARTS_native = native-build

.PHONY: check test test-long native $(PARTS_test) $(PARTS_check) $(PARTS_test-long) FORCE
check test native test-long:
	@mkdir -p $(LOGS); touch $(LOGS)/started; rm -rf target/outputs
	@$(MAKE) -f .ci/suites.mk -j$$(($(CPUS) + 1)) GOAL=$@ $(PARTS_$@) $(if $(filter check,$@),,$(ROOM_LOGS))
	@.ci/sum --all $(PARTS_$@) $(if $(filter check,$@),,$(patsubst $(LOGS)/%.log,%,$(ROOM_LOGS)))

# --- Rust
# ---------------------------------------------------------------------------------------------------------------
# Tests mostly wait for servers, so more run in parallel than there are CPUs.
nextest = rm -f target/nextest/$(1)/junit.xml; cargo nextest run --locked --workspace --no-fail-fast --profile $(1) --test-threads $$((3 * $(CPUS))) $(2) || status=$$?; \
  cp target/nextest/$(1)/junit.xml $(LOGS)/$@.junit.xml; exit $${status-0}

form:
	@.ci/suite $@ .ci/form
rust-build:
	@.ci/suite $@ cargo nextest run --locked --workspace --no-run
rust: rust-build native-build python-packages node-packages
	@.ci/suite $@ '$(call nextest,ci)'
# The tests of libraries and of single parts (modules that end in `parts`), which run no servers.
rust-quick:
	@.ci/suite $@ '$(call nextest,ci,-E "kind(lib) or test(/^[a-z_]*parts::/) or package(straingauge-record) or package(straingauge-analyze-tests) or package(straingauge-remote) or package(straingauge-report) or package(straingauge-workload)")'
rust-long: native-build python-packages node-packages
	@STRAINGAUGE_LONG=1 .ci/suite $@ '$(call nextest,long)'
# The examples in the libraries' documentation, and its links.
documentation: rust-long
	@RUSTDOC=$(CURDIR)/.ci/rustdoc .ci/suite $@ cargo test --locked --workspace --doc --no-fail-fast
schemas: $(filter rust rust-long,$(PARTS_$(GOAL)))
	@.ci/suite $@ $(VENV)/bin/python .ci/schemas target/debug/straingauge target/outputs
fuzz-targets:
	@.ci/suite $@ cargo check --locked -p straingauge-fuzz --features fuzz

# --- Distribution and other machines
# --------------------------------------------------------------------------------------
dist: rust-long
	@.ci/suite $@ 'setup/install dist; setup/dist; setup/dist --arm64; echo 1 passed, 0 failed'
userlands: dist
	@.ci/suite $@ testbed/userlands
reproducible: dist
	@.ci/suite $@ '.ci/reproducible; echo 1 passed, 0 failed'
kernels bare-build: rust-long
	@.ci/suite $@ testbed/$@

# --- Python -----------------------------------------------------------------------------------------------------------------
pytest = cd python; export MYPY_CACHE_DIR=$(VENV)/mypy; \
  $(VENV)/bin/python -m pytest -q -rs -o cache_dir=$(VENV)/cache --junit-xml=$(CURDIR)/$(LOGS)/$@.pytest.xml -m "$(1)"

python-packages:
	@.ci/suite $@ .ci/packages python
node-packages:
	@.ci/suite $@ .ci/packages node
python: python-packages rust-build
	@.ci/suite $@ '$(call pytest,not long)'
python-types: python-packages
	@.ci/suite $@ '$(call pytest,not program)'
python-long: python-packages rust-long
	@.ci/suite $@ '$(call pytest,long)'

# --- C and C++
# ----------------------------------------------------------------------------------------------------------------
# Libraries, tools and servers that the tests of other suites also run. The tools are not optimised, because they run
# briefly.
native-build:
	@.ci/suite $@ 'make -C toolkit/scalable-select library; for room in toolkit/stingy/runtime toolkit/stingy/generate testbed/truth; do make -C $$room all; done; \
	  make -C toolkit/stingy/tools -j$(CPUS) CXXFLAGS=-O0 all'

# These suites run beside the Rust tests, which leave a fifth of the CPUs idle, and give way to them.
# Commands of tools are Cargo packages, whose tests are among the Rust ones.
test_of = $(if $(filter toolkit/scalable-select,$(1)),test-library,test)

define suite_of_room
$(call log,$(1)): $(shell git ls-files $(call tool,$(1))) $(if $(CI)$(filter test-long,$(GOAL)),FORCE) | native-build \
  $(filter rust-build,$(PARTS_$(GOAL)))
	@nice -n 4 .ci/suite $$(basename $$(@F)) make -C $(1) $(call test_of,$(1))$(if $(filter test-long,$(GOAL)),-long)
endef
$(foreach room,$(ROOMS),$(eval $(call suite_of_room,$(room))))
FORCE:
