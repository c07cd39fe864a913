# Trireme. `make help` lists the targets; tools/README.md says where the tools come from.
#
# Everything written goes to bin/ and build/. Tools and container runtimes are built from the modules
# pinned under tools/, outside the workspace, so that their dependencies never change ours.
# Works with GNU make 3.81 (macOS) and newer.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

TOOLS    := build/tools
RUNTIMES := build/runtime/bin
export PATH := $(CURDIR)/$(TOOLS):$(CURDIR)/$(RUNTIMES):$(PATH)

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unversioned)
# The folders of the workspace's modules, asked for only by the targets that walk them.
MODULES = $(shell go list -m -f '{{.Dir}}' | sed 's|^$(CURDIR)/||')

# What `make up` runs, and the program that writes the images of the examples and tests to build/images/.
EXAMPLE       ?= examples/gpu-gang.yaml
EXAMPLE_IMAGE ?= build/images/gpu-worker.tar
IMAGE_BUILDER ?= ./test/images/cmd/images
SIMULATE      ?= 4
UP_FLAGS      ?=

# $(call tool,FOLDER,PACKAGES,EXPECTATION): builds pinned packages into build/tools.
define tool
	@echo "building $(@F) from tools/$(1) ($(3)) ..."
	@mkdir -p $(TOOLS)
	@GOWORK=off CGO_ENABLED=0 go -C tools/$(1) build -trimpath -ldflags=-s -o $(CURDIR)/$(TOOLS)/ $(2)
	@touch $@
endef

##@ Run

.PHONY: up
up: need-up runtimes build $(EXAMPLE_IMAGE) ## Start a cluster of one node here, run the GPU example, stay up until Ctrl-C (Linux, root)
	@bin/trireme up --load-image $(EXAMPLE_IMAGE) --apply $(EXAMPLE) $(UP_FLAGS)

# What is missing is said before minutes of building.
.PHONY: need-up
need-up:
	@tools/need.sh linux root go cc git

.PHONY: sim
sim: build ## The same cluster with SIMULATE=4 simulated nodes of 8 GPUs: no root, any system
	@bin/trireme up --simulate $(SIMULATE) --gpus 8 --apply $(EXAMPLE) $(UP_FLAGS)

.PHONY: down
down: build ## Stop the cluster and remove what it left on this machine; DOWN_FLAGS=--purge forgets its state too
	@bin/trireme down $(DOWN_FLAGS)

##@ Build

.PHONY: build
build: ## Build bin/trireme, one static binary (go build decides what is stale)
	@CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X trireme.dev/kit/telemetry.version=$(VERSION)" -o bin/trireme ./cmd/trireme

.PHONY: runtimes
runtimes: ## Build containerd, its shim and runc into build/runtime/bin, what is missing only
	@tools/runtimes.sh

.PHONY: image
image: $(EXAMPLE_IMAGE) ## Build the example's image into build/images

.PHONY: images
images: ## Build the tests' images as well (needs Debian's busybox-static)
	@tools/need.sh busybox
	@go run $(IMAGE_BUILDER) -out build/images

# The same as deploy/compose/Dockerfile makes, for machines that reach no registry.
.PHONY: images-services
images-services: runtimes $(TOOLS)/etcd $(TOOLS)/jaeger ## Write the images of deploy/compose to build/images/compose, without docker or a registry
	@go run $(IMAGE_BUILDER) -out build/images/compose -version $(VERSION) compose

# make up needs the example's image alone: the tests' needs a static busybox.
$(EXAMPLE_IMAGE): $(wildcard examples/gpu-worker/*.go test/images/cmd/images/*.go kit/ociarchive/*.go)
	@go run $(IMAGE_BUILDER) -out build/images gpu-worker

.PHONY: grpcurl
grpcurl: $(TOOLS)/grpcurl ## Build grpcurl into build/tools

.PHONY: gen
gen: $(TOOLS)/buf $(TOOLS)/protoc-gen-go ## Regenerate proto/gen from proto/
	@buf generate

.PHONY: tidy
tidy: ## Take the workspace's versions into every go.mod and tidy it
	@go work sync
	@for m in $(MODULES); do (cd $$m && GOWORK=off go mod tidy) || exit 1; done

.PHONY: clean
clean: ## Remove bin and build: binaries, tools, runtimes, images, reports
	@rm -rf bin build

##@ Test

# Where tests find what they must not build themselves.
export TRIREME_RUNTIME_DIR ?= $(CURDIR)/$(RUNTIMES)
export TRIREME_IMAGE_DIR   ?= $(CURDIR)/build/images
export TRIREME_BINARY      ?= $(CURDIR)/bin/trireme

RACE     ?=
# Tests of whole clusters have the build tag e2e, those of real containers and networks realruntime; make test-quick
# sets neither, and -short.
TAGS     := e2e,realruntime
TESTFLAGS = -tags $(TAGS) $(if $(RACE),-race) $(GOTESTFLAGS)
REPORT   := $(TOOLS)/testreport
# Packages side by side, except those of test/: each of these starts a cluster and wants the machine for itself.
UNITS     = $(shell go list -tags $(TAGS) -f '{{.ImportPath}}' work | grep -v '^trireme.dev/test\(/\|$$\)')
CLUSTERS  = trireme.dev/test/...

.PHONY: test-quick
test-quick: $(REPORT) ## Unit tests of all modules: no root, any system, minutes
	@set -o pipefail; go test -json -short $(GOTESTFLAGS) work | $(REPORT)

# Each fuzz test for FUZZTIME, one after another; what fails is kept under testdata/fuzz and then fails in every test run.
FUZZTIME ?= 30s

.PHONY: fuzz
fuzz: ## Run every fuzz test for FUZZTIME (30s)
	@grep -rlE '^func Fuzz' --include='*_test.go' client kit services test | while read -r file; do \
		for name in $$(sed -nE 's/^func (Fuzz[A-Za-z0-9_]*).*/\1/p' $$file); do \
			echo "$$file: $$name"; \
			go test "./$$(dirname $$file)" -run '^$$' -fuzz "^$$name$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x || exit 1; \
		done; \
	done

.PHONY: test-race
test-race: $(REPORT) ## The same under the race detector (needs a C compiler)
	@tools/need.sh cc
	@set -o pipefail; go test -json -short -race $(GOTESTFLAGS) work | $(REPORT)

.PHONY: test
test: need-test runtimes build images $(REPORT) $(TOOLS)/grpcurl $(TOOLS)/etcd ## Every test, on real etcd and real containerd (Linux, root); RACE=1 with the race detector
	@set -o pipefail; mkdir -p build/test; { failed=0; \
	  GOWORK=off go -C tools/testreport test -json . || failed=1; \
	  go test -json -count=1 $(TESTFLAGS) $(UNITS) || failed=1; \
	  go test -json -count=1 -p 1 -timeout 20m $(TESTFLAGS) $(CLUSTERS) || failed=1; \
	  exit $$failed; } | $(REPORT) -summary build/test/summary

# How long each part of the soak goes on: four of them, one after the other.
SOAK ?= 5m

.PHONY: soak
soak: $(TOOLS)/etcd ## Random histories of lists, watches and writes under the race detector, etcd killed meanwhile; SOAK=5m each (see docs/testing.md)
	@tools/need.sh cc
	@go test -race -count=1 -timeout 24h -v -run 'TestStreamsAreWhatHappened|TestObjectsAreLinearizable' \
	  ./services/apiserver/internal/server -duration=$(SOAK)

.PHONY: need-test
need-test:
	@tools/need.sh linux root go cc busybox

# Tests of deploy/compose, which start a docker daemon of their own, have the build tag compose.
TAGS_COMPOSE := compose
.PHONY: test-compose
test-compose: need-compose images images-services build $(REPORT) $(TOOLS)/grpcurl $(TOOLS)/docker-compose ## Test deploy/compose as users run it (Linux, root, docker)
	@set -o pipefail; mkdir -p build/test; \
	  go test -json -count=1 -timeout 20m -tags $(TAGS_COMPOSE) $(GOTESTFLAGS) ./test/compose | $(REPORT) -summary build/test/summary-compose

.PHONY: need-compose
need-compose:
	@tools/need.sh linux root go cc docker

.PHONY: bench
bench: need-test runtimes build images ## Measure a real cluster; prints ratios, appends to build/bench/*.jsonl (Linux, root)
	@mkdir -p build/bench
	@go run ./test/bench -out build/bench

# Arguments of the load driver: BENCH_FLAGS="-address host:port -cert ... -key ... -ca ..." drives a gateway elsewhere.
BENCH_FLAGS ?=

.PHONY: bench-api
bench-api: $(TOOLS)/etcd ## Measure the gateway under load beside raw etcd and raw gRPC; appends to build/bench/api.jsonl (Linux)
	@mkdir -p build/bench
	@CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o build/bench/apiserver ./services/apiserver/cmd/apiserver
	@go run ./test/bench/api -out build/bench $(BENCH_FLAGS)

.PHONY: bench-scheduler
bench-scheduler: $(TOOLS)/etcd ## Measure the scheduler, end to end and in memory; appends to build/bench/scheduler.jsonl (BENCH_FLAGS="-run e2e" for one; Linux)
	@mkdir -p build/bench
	@CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o build/bench/ ./services/apiserver/cmd/apiserver ./services/scheduler/cmd/scheduler
	@go run ./test/bench/scheduler -out build/bench $(BENCH_FLAGS)

.PHONY: bench-trace
bench-trace: build ## Measure what tracing costs: pods per second with tracing off, 1 % and 100 %; appends to build/bench/trace.jsonl
	@go run ./test/bench/trace -out build/bench

.PHONY: recordings
recordings: build ## Record up and trace as SVG pictures in docs/img, from the commands themselves (no root)
	@go run ./test/recordings -out docs/img

$(REPORT): $(wildcard tools/testreport/*.go)
	@mkdir -p $(TOOLS)
	@GOWORK=off go -C tools/testreport build -o $(CURDIR)/$@ .

##@ Check

.PHONY: ci
ci: ## All of the checks below and every test; ends with what each took
	@tools/ci.sh gen-check tidy-check lint vet-standalone cross "test RACE=1" test-compose

.PHONY: gen-check
gen-check: $(TOOLS)/buf $(TOOLS)/protoc-gen-go ## proto/gen is what proto/ generates
	@rm -rf build/gen && buf generate --output build/gen
	@diff -r build/gen/proto/gen proto/gen >build/gen/diff || \
	  { head -40 build/gen/diff; echo "proto/gen is not what proto/ generates: run make gen and commit" >&2; exit 1; }

.PHONY: tidy-check
tidy-check: ## Every go.mod is tidy
	@bad=; for m in $(MODULES); do (cd $$m && GOWORK=off go mod tidy -diff) || bad="$$bad $$m"; done; \
	  [ -z "$$bad" ] || { echo "not tidy:$$bad: run make tidy and commit" >&2; exit 1; }

.PHONY: lint
lint: $(TOOLS)/golangci-lint $(TOOLS)/buf ## Linters over Go and proto; breaking changes of the proto since the last tag
	@buf lint
	@tag=$$(git describe --tags --abbrev=0 2>/dev/null) || { echo "no tag yet: nothing for buf breaking to compare with"; exit 0; }; \
	  buf breaking --against ".git#tag=$$tag"
	@files=$$(grep -rlF 'time.Sleep(' --include='*_test.go' client cmd examples kit services | xargs -r grep -LF testing/synctest) || true; \
	  [ -z "$$files" ] || { echo "time.Sleep in a test without testing/synctest:" $$files >&2; exit 1; }
	@golangci-lint run $(addsuffix /...,$(addprefix ./,$(MODULES)))

.PHONY: vet-standalone
vet-standalone: ## Every module builds outside the workspace, with the versions the workspace has
	@tools/standalone.sh $(MODULES)

.PHONY: cross
cross: ## Everything compiles for linux/arm64 and darwin/arm64
	@for os in linux darwin; do \
	  echo "$$os/arm64"; CGO_ENABLED=0 GOOS=$$os GOARCH=arm64 go build -o /dev/null ./cmd/trireme && \
	  CGO_ENABLED=0 GOOS=$$os GOARCH=arm64 go build work || exit 1; done

$(TOOLS)/buf: tools/buf/go.mod
	$(call tool,buf,github.com/bufbuild/buf/cmd/buf,about 2.5 minutes on two cores)

# One build writes all plugins.
$(TOOLS)/protoc-gen-go: tools/protoc/go.mod
	$(call tool,protoc,google.golang.org/protobuf/cmd/protoc-gen-go google.golang.org/grpc/cmd/protoc-gen-go-grpc github.com/planetscale/vtprotobuf/cmd/protoc-gen-go-vtproto,half a minute)

$(TOOLS)/grpcurl: tools/grpcurl/go.mod
	$(call tool,grpcurl,github.com/fullstorydev/grpcurl/cmd/grpcurl,about a minute)

$(TOOLS)/docker-compose: tools/compose/go.mod
	@echo "building docker-compose from tools/compose (about 2.5 minutes on two cores) ..."
	@mkdir -p $(TOOLS)
	@GOWORK=off CGO_ENABLED=0 go -C tools/compose build -trimpath \
	  -ldflags "-s -w -X github.com/docker/compose/v2/internal.Version=$$(awk '$$1 == "github.com/docker/compose/v2" { print $$2 }' tools/compose/go.mod)" \
	  -o $(CURDIR)/$@ github.com/docker/compose/v2/cmd

# One build for both. etcd's package is called server.
$(TOOLS)/etcd: tools/etcd/go.mod
	@echo "building etcd and etcdctl from tools/etcd (about a minute) ..."
	@mkdir -p $(TOOLS)
	@GOWORK=off CGO_ENABLED=0 go -C tools/etcd build -trimpath -ldflags=-s -o $(CURDIR)/$(TOOLS)/ go.etcd.io/etcd/etcdctl/v3
	@GOWORK=off CGO_ENABLED=0 go -C tools/etcd build -trimpath -ldflags=-s -o $(CURDIR)/$@ go.etcd.io/etcd/server/v3

$(TOOLS)/jaeger: tools/jaeger/go.mod
	$(call tool,jaeger,github.com/jaegertracing/jaeger/cmd/jaeger,about 5.5 minutes on two cores)

$(TOOLS)/golangci-lint: tools/golangci-lint/go.mod
	$(call tool,golangci-lint,github.com/golangci/golangci-lint/v2/cmd/golangci-lint,about 4 minutes on two cores)

.PHONY: help
help: ## This list
	@awk 'BEGIN { FS = ":.*## " } \
	  /^##@ / { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
