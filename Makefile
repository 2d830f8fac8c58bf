# Entry points of one word. Every target sets up its needs; the work is in setup/, .ci/ and testbed/.
.PHONY: help setup build dist site check test test-long test-native demo bench fmt clean
.DEFAULT_GOAL := help

help:
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1	\2/p' Makefile | expand -t 20

setup: ## install what building needs (root; for others it prints the line to run)
	@setup/install build

build: setup ## target/release/straingauge
	cargo build --release --locked --bin straingauge

dist: ## dist/: a static program, a Debian package, archives of toolkit/, SBOM, checksums; ten minutes
	@setup/install dist
	@setup/dist

site: ## target/site: the documentation as a site with search
	@setup/install site
	cargo build --locked --bin straingauge
	@setup/site target/debug/straingauge

check: ## before each commit: format, lints, types, the tests that need no server, no root and no guest
	@setup/install test
	@$(MAKE) --no-print-directory -f .ci/suites.mk check

test: ## install what the tests need, run every suite, sum up
	@setup/install test
	@$(MAKE) --no-print-directory -f .ci/suites.mk test

test-long: ## what takes long by nature: soaks, sanitizer builds of everything, many repeats
	@setup/install test-long
	@$(MAKE) --no-print-directory -f .ci/suites.mk test-long

test-native: ## the C and C++ rooms only
	@setup/install test
	@$(MAKE) --no-print-directory -f .ci/suites.mk native

demo: ## find nginx's yield point and draw the report: four minutes with the build
	@setup/install demo
	@testbed/demo

bench: build ## side-by-side benchmarks against named peers; minutes each
	@.ci/benches

fmt: ## format all code
	cargo fmt --all
	.ci/c-format

clean: ## remove what was built; runs/ stays
	cargo clean
	rm -rf artefacts dist report.html toolkit/*/build toolkit/stingy/*/build toolkit/stingy/servers/*/build testbed/*/build
