# rackless: "make" alone lists what there is to do.

# hack/setup.sh finds a Go that can build this; GO=/path/to/go says which. An older Go fetches the one in go.mod.
GO ?= $(or $(shell hack/setup.sh go),false)
export GOTOOLCHAIN ?= auto
export CGO_ENABLED ?= 0

# A build from an archive, or by root from another user's checkout, cannot use git.
VERSION ?= $(shell git describe --always --dirty 2>/dev/null || echo unknown)
LAB     ?= examples/pair.yaml
FUZZTIME ?= 20s
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
DEADCODE := golang.org/x/tools/cmd/deadcode@v0.51.0

.DEFAULT_GOAL := help
.PHONY: help setup setup-emulate build lab gpu-demo cluster-demo study-demo studies publish-studies publish-cluster test test-fast test-e2e test-e2e-record test-long test-faults test-judges test-release release release-images install uninstall race lint fuzz bench update clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: ## install what "make lab" needs (Debian 12 or newer; says what and why first)
	@hack/setup.sh lab

setup-emulate: ## install what "rackless emulate" needs too: the tutorial begins with it
	@hack/setup.sh emulate

.PHONY: setup-cluster
setup-cluster:
	@hack/setup.sh cluster

# Without symbols and tables of a debugger, as in releases: a stack trace does not need them. "go build" has them.
build: ## compile bin/rackless, one static binary
	$(GO) build -trimpath -buildvcs=false $(NO_DWARF) -ldflags "-s -w -X main.version=$(VERSION)" -o bin/rackless ./cmd/rackless

lab: setup ## from nothing to a measured two-node lab that keeps running (LAB=file for another)
	@$(MAKE) --no-print-directory build
	bin/rackless up $(LAB)
	bin/rackless verify $(LAB)
	bin/rackless bench $(LAB)
	@echo "The lab is up. To take it down: bin/rackless down $(LAB)"
	@echo 'To type rackless without bin/, as the pages do: export PATH="$(CURDIR)/bin:$$PATH"'

study-demo: setup ## a small real study in some minutes: the effect of loss on RDMA and TCP; its page is out/demo.html
	@$(MAKE) --no-print-directory build
	@mkdir -p out
	bin/rackless study run examples/studies/demo.yaml --restart
	bin/rackless study report demo -o html --out out/demo.html
	bin/rackless study report demo
	@echo "The page is out/demo.html. The lab is up; to take it down: bin/rackless down examples/soft-roce.yaml"

# Three blocks are six runs a point: the fewest whose median has an interval of 95%. The nine of the study's file, which
# can decide, take longer.
CLUSTER_BLOCKS ?= 3
CLUSTER_TESTS := mpi_mbw_mr/n2,mpi_mbw_mr/n4,mpi_alltoall/n2,mpi_alltoall/n4,mooncake_write,mooncake_read
cluster-demo: setup-cluster ## four Debian nodes: MPI and Mooncake over RDMA with their proof, LAMMPS on 1, 2 and 4 nodes and outside of them; its page is out/cluster.html
	@$(MAKE) --no-print-directory build
	@mkdir -p out
	bin/rackless up examples/cluster.yaml
	hack/wheels.sh mooncake cluster vm00 vm01
	bin/rackless bench cluster --quick --pairs vm01:vm00 --tests $(CLUSTER_TESTS)
	bin/rackless bench show cluster -o html --out out/cluster-tests.html
	bin/rackless study run examples/studies/cluster.yaml --restart --blocks $(CLUSTER_BLOCKS)
	bin/rackless study report cluster -o html --out out/cluster.html
	bin/rackless study report cluster
	@echo "The pages are out/cluster-tests.html and out/cluster.html. The lab is up; to take it down: bin/rackless down cluster"

GPU_LAB ?= examples/h20.yaml
gpu-demo: setup ## two nodes with emulated GPUs: each GPU by each NIC with proof, a GPU that fails and is mended; its page is out/gpu.html
	@$(MAKE) --no-print-directory build
	GPU_LAB=$(GPU_LAB) hack/gpu-demo.sh

STUDIES := protected contention loss mtu loss-connectx mtu-connectx incast incast-simulated thresholds victim lag \
	gpudirect cluster aa-idle aa-load aa-loss
studies: ## run the studies of examples/studies on an idle machine, which takes long, and write docs/studies
	@hack/setup.sh test
	@$(MAKE) --no-print-directory build
	for s in $(STUDIES); do bin/rackless study run examples/studies/$$s.yaml --db out/studies.db || exit 1; done
	@$(MAKE) --no-print-directory publish-studies
	@echo "The lab is up; to take it down: bin/rackless down examples/soft-roce.yaml"

publish-studies: build ## write docs/studies from the runs in out/studies.db, and its pages into out/studies
	@test ! -s out/studies.db-wal || { echo "out/studies.db is being written, or its last writer was killed: run make studies again"; exit 1; }
	@command -v sqlite3 >/dev/null || { echo "no sqlite3: apt-get install sqlite3"; exit 1; }
	@mkdir -p docs/studies out/studies
	for s in $(STUDIES); do \
		bin/rackless study report examples/studies/$$s.yaml --db out/studies.db -o html --out out/studies/$$s.html && \
		bin/rackless study report examples/studies/$$s.yaml --db out/studies.db -o md --out docs/studies/$$s.md || exit 1; \
	done
	@# The output of the programs is most of the file, and no report reads it.
	cp out/studies.db out/studies/studies.db && sqlite3 out/studies/studies.db "DELETE FROM output; VACUUM"
	gzip -9nc out/studies/studies.db >docs/studies/studies.db.gz

publish-cluster: build ## write the tests of the last make cluster-demo, with their figures, into docs/studies
	@mkdir -p docs/studies/cluster-tests
	dir=$$(bin/rackless bench show cluster | sed -n 's,^results: *\(.*\)/samples.jsonl$$,\1,p') && \
		cp "$$dir/samples.jsonl" "$$dir/report.json" docs/studies/cluster-tests/
	bin/rackless bench show cluster -o md >docs/studies/cluster-tests.md

test: ## install what the tests need, and run those that start labs and hosts too: 15 minutes on two cores (SEED=N draws the samples of a run again)
	@hack/setup.sh test
	@$(MAKE) --no-print-directory run-tests

# What tests count, such as the faults that prepare survived: go test says nothing of a test that passes.
TALLY := $(CURDIR)/out/tally

# Some tests of "make test" draw a sample of what "make test-e2e" runs: docs/testing.md.
SEED := $(shell date +%s)

# Without the tables of a debugger, tests compile in less time. make lint runs go vet.
NO_DWARF := -gcflags=all=-dwarf=false
# Memory is collected half as often: compiling takes a seventh less CPU time, and a sixth more memory.
GO_TEST := GOGC=200 $(GO) test -vet=off $(NO_DWARF) -ldflags=-w

.PHONY: run-tests
run-tests:
	@mkdir -p $(TALLY)
	@echo "make test SEED=$(SEED) draws the samples of this run again."
	RACKLESS_SEED=$(SEED) RACKLESS_TALLY=$(TALLY) $(GO_TEST) -timeout 60m ./...
	@echo "What the tests counted:"
	@find $(TALLY) -type f | sort | xargs cat

test-e2e: ## all that make test leaves out or takes a sample of: the tutorial, every profile and kind of fault, clusters of Debian; prints a summary
	@hack/setup.sh test
	@GO_TEST="$(GO_TEST)" hack/e2e.sh run

test-e2e-record: ## the same, and note date, commit, result and minutes in docs/testing.md
	@hack/setup.sh test
	@GO_TEST="$(GO_TEST)" hack/e2e.sh record

test-fast: ## run the tests that start no machine, no lab and no browser, in about two minutes
	# Some packages wait for programs that they start: a third one at a time keeps two cores busy.
	$(GO_TEST) -short -p $$(($$(nproc) + 1)) ./...

test-long: ## the long form of tests that only compute: more simulated studies, and more plans compared with other solvers
	@hack/setup.sh test
	$(GO_TEST) -timeout 30m ./plan/planbench ./plan/build ./plan/search ./study ./study/stats -long

AXE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/rackless/judges/axe/package/axe.min.js
test-judges: build site ## check the files of rackless export with the programs that read them (KubeVirt, Nova, Ansible, Open MPI), the pages with axe-core (npm, Chromium); the first run downloads 700 MB and compiles a kube-apiserver
	@hack/setup.sh test
	hack/judges.sh
	$(GO_TEST) -count=1 -timeout 30m ./plan/render/export -judges
	$(GO_TEST) -count=1 -run Chromium ./report ./report/studyview ./report/live -axe $(AXE)
	$(GO_TEST) -count=1 -run ChromiumShowsTheSite ./internal/browsertest -site $(CURDIR)/out/site -axe $(AXE)

.PHONY: site
site: build ## write the documents as a site with a search into out/site; the first run compiles Hugo, which takes minutes
	GO="$(GO)" hack/site/build.sh

test-faults: ## kill prepare and rollback, and cut the power, at every step, in an emulated host, and studies over boots of one, of every placement and by a clock that is set: takes over an hour
	@hack/setup.sh test
	$(GO_TEST) -timeout 30m -run TestHostileGuests ./rdma/connectx ./rdma/gpu -rubbish=1m
	$(GO_TEST) -timeout 30m -run TestE2EFaultsInAMachine -v ./host/device -e2e -every-point
	$(GO_TEST) -timeout 30m -run TestE2EKilledAtAnyMoment -v ./rack/emulated -e2e -kills 60
	mkdir -p out && hack/cloud-image.sh out/cloud.qcow2
	RACKLESS_CLOUD_IMAGE=$(CURDIR)/out/cloud.qcow2 $(GO_TEST) -timeout 30m -run TestE2ELabs/cloud -v ./cmd/rackless -e2e
	$(GO_TEST) -timeout 3h -run 'TestE2EKilledAtAnyStep|TestE2ETutorial|TestE2EPowerCuts|TestAStudyGoesOnOverBoots|TestAStudyOfEveryPlacement|TestAStudyWhoseClockIsSet|TestPrepareSetsTheFirmwareOfAConnectX' -v ./cmd/rackless -e2e -every-step

race: ## run the short tests under the race detector
	@hack/setup.sh race
	CGO_ENABLED=1 $(GO) test -race -short -timeout 30m ./...

# The packages as make test compiles them.
lint: export GOFLAGS := $(strip $(GOFLAGS) $(NO_DWARF))
lint: ## gofmt, width of lines, go vet, builds for macOS and Windows, staticcheck, dead code, and shellcheck where it is installed
	@unformatted=$$($$($(GO) env GOROOT)/bin/gofmt -l $$(git ls-files -co --exclude-standard '*.go')) && \
		test -z "$$unformatted" || { echo "not formatted, run gofmt -w on: $$unformatted"; exit 1; }
	@wide=$$(git ls-files '*.go' | xargs awk '{ l = $$0; gsub(/\t/, "    ", l) } \
		length(l) > 120 && l !~ /https:/ { print FILENAME ":" FNR }') && \
		test -z "$$wide" || { echo "over 120 columns, a tab counted as four: $$wide"; exit 1; }
	$(GO) vet ./...
	for os in darwin windows; do GOOS=$$os $(GO) build -o /dev/null ./cmd/rackless || exit 1; done
	$(GO) run $(STATICCHECK) ./...
	@dead=$$($(GO) run $(DEADCODE) ./cmd/rackless) && test -z "$$dead" || { echo "rackless never calls: $$dead"; exit 1; }
	@if command -v shellcheck >/dev/null; then shellcheck hack/*.sh hack/site/*.sh .ci/run && shellcheck -s sh bench/tool/*.sh rack/*/*.sh rack/*/*/*.sh vm/*/*.sh; else echo "no shellcheck: scripts not checked"; fi

release: ## build packages and archives for users in out/release, with checksums and the list of their modules; needs no network
	cd hack/release && $(GO) run .

release-images: ## build one file with everything for labs, and one with QEMU and node images only, for amd64 and arm64, in out/release; KEY=FILE signs these
	cd hack/release && $(GO) run . -images -key "$(if $(KEY),$(abspath $(KEY)))"

PREFIX ?= /usr/local
install: ## compile rackless and put it with its manual pages and completions below PREFIX (/usr/local; DESTDIR stands for /)
	cd hack/release && $(GO) run . -install "$(PREFIX)" -destdir "$(DESTDIR)"

uninstall: ## remove the files that install put below PREFIX
	cd hack/release && $(GO) run . -uninstall "$(PREFIX)" -destdir "$(DESTDIR)"

test-release: ## make the release twice and compare, install and remove its package in a fresh Debian, and measure labs on systems that have nothing but one file of it: about 15 minutes
	cd hack/release && $(GO) vet . && $(GO) test -timeout 60m -v . -whole -deb-chroot "$$(mktemp -d)"

# By default go test minimises each interesting input for a minute, which leaves no time for others.
fuzz: ## fuzz each target for FUZZTIME (20s), starting from the committed corpus
	@set -e; grep -roH --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' . | sort | \
	while IFS=: read -r file target; do \
		target=$${target#func }; echo "$$(dirname $$file) $$target"; \
		$(GO) test -run='^$$' -fuzz="^$$target\$$" -fuzztime=$(FUZZTIME) -fuzzminimizetime=100x "$$(dirname $$file)" </dev/null; \
	done

bench: build ## measure packages and whole labs, medians of five; see docs/performance.md
	@GO="$(GO)" hack/bench.sh

update: ## rewrite the golden files; then read the diff
	$(GO) test $$(grep -rl --include='*_test.go' 'internal/golden"' . | xargs dirname | sort -u) -update

clean: ## remove the files of a build; labs, images and caches stay
	rm -rf bin out
