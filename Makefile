# Trireme. `make help` lists the targets; tools/README.md says where the tools come from.
#
# Everything written goes to bin/ and build/. Tools and container runtimes are built from the modules
# pinned under tools/, outside the workspace, so that their dependencies never change ours.
# Works with GNU make 3.81 (macOS) and newer.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

TOOLS   := $(CURDIR)/build/tools
export PATH := $(TOOLS):$(PATH)

# $(call tool,FOLDER,PACKAGES,EXPECTATION): builds pinned packages into build/tools.
define tool
	@echo "building $(@F) from tools/$(1) ($(3)) ..."
	@mkdir -p $(TOOLS)
	@GOWORK=off CGO_ENABLED=0 go -C tools/$(1) build -trimpath -ldflags=-s -o $(TOOLS)/ $(2)
	@touch $@
endef

##@ Generate

.PHONY: gen
gen: $(TOOLS)/buf $(TOOLS)/protoc-gen-go ## Regenerate proto/gen from proto/
	@buf generate

$(TOOLS)/buf: tools/buf/go.mod
	$(call tool,buf,github.com/bufbuild/buf/cmd/buf,about 2.5 minutes on two cores)

# One build writes both plugins.
$(TOOLS)/protoc-gen-go: tools/protoc/go.mod
	$(call tool,protoc,google.golang.org/protobuf/cmd/protoc-gen-go google.golang.org/grpc/cmd/protoc-gen-go-grpc,half a minute)

.PHONY: help
help: ## This list
	@awk 'BEGIN { FS = ":.*## " } \
	  /^##@ / { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
