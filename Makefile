# Tocsin's chores; "make help" lists them. They need Go and git, and what they build lies in bin/.

.DEFAULT_GOAL := help
TOOLS := bin/tools

# What --version prints.
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null)
COMMIT ?= $(shell git rev-parse HEAD 2>/dev/null)
DATE ?= $(shell git log -1 --format=%cI 2>/dev/null)
BUILDINFO := github.com/tocsin-dev/tocsin/internal/buildinfo
LDFLAGS := -s -w -X $(BUILDINFO).version=$(VERSION) -X $(BUILDINFO).commit=$(COMMIT) -X $(BUILDINFO).date=$(DATE)

# Where install-plugin puts the kubectl plugin; it has to be on the PATH.
BINDIR ?= /usr/local/bin

# The image that dist/install.yaml names and "make image" makes; of which base, for which platforms, and with
# what (buildah or podman).
IMG ?= tocsin:dev
BASE ?=
PLATFORMS ?= linux/amd64,linux/arm64
BUILDER ?= buildah
IMAGE_ENVIRONMENT = VERSION='$(VERSION)' COMMIT='$(COMMIT)' DATE='$(DATE)' LDFLAGS='$(LDFLAGS)' \
	PLATFORMS='$(PLATFORMS)' BASE='$(BASE)' BUILDER='$(BUILDER)'

# The port of "make run".
PORT ?= 8080

# Flags of "go test" for the end-to-end suite, such as -run=/metrics.
E2E_FLAGS ?=

# Flags of hack/bench (see "go run ./hack/bench -help"), and how often bench-micro repeats.
BENCH_FLAGS ?=
BENCH_COUNT ?= 6

# Flags of hack/faults, such as --run=kill or --rounds=5, and how long to soak.
FAULTS_FLAGS ?=
SOAK ?= 1h

# How long each fuzz test of test-fuzz runs.
FUZZTIME ?= 10m

# Flags of hack/devcluster for "make run", and of "go test".
RUN_FLAGS ?=
TEST_FLAGS ?=

##@ To try it

.PHONY: run
run: $(if $(KUBECONFIG),,control-plane) build ## Run Tocsin with a cluster of its own, or on the one that KUBECONFIG names
	@go build -o bin/devcluster ./hack/devcluster
	@exec bin/devcluster --port=$(PORT) $(RUN_FLAGS)

##@ To work on it

.PHONY: build
build: ## Build the manager into bin/manager
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/manager .

.PHONY: plugin
plugin: ## Build the kubectl plugin into bin/kubectl-tocsin
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/kubectl-tocsin ./cmd/kubectl-tocsin
	ln -sf kubectl-tocsin bin/kubectl_complete-tocsin

.PHONY: install-plugin
install-plugin: plugin ## Install the kubectl plugin into BINDIR (/usr/local/bin)
	install -d $(DESTDIR)$(BINDIR)
	install -m 755 bin/kubectl-tocsin $(DESTDIR)$(BINDIR)/kubectl-tocsin
	ln -sf kubectl-tocsin $(DESTDIR)$(BINDIR)/kubectl_complete-tocsin

.PHONY: image
image: ## Build the image IMG (tocsin:dev) for amd64 and arm64; the base is BASE
	@$(IMAGE_ENVIRONMENT) hack/image.sh build $(IMG)

.PHONY: image-files
image-files: ## Build what goes into the image, with a bill of materials, into bin/image
	@$(IMAGE_ENVIRONMENT) hack/image.sh files

.PHONY: test
test: control-plane $(TOOLS)/controller-gen $(TOOLS)/helm ## Run the unit, property, fuzz-seed and control-plane tests
	go test $(TEST_FLAGS) ./...

.PHONY: test-browser
test-browser: control-plane ## Test the page of "kubectl tocsin ui" in a headless Chromium, which has to be installed
	go test -tags browser $(TEST_FLAGS) ./cmd/kubectl-tocsin/ui/...

.PHONY: pictures
pictures: control-plane build plugin ## Take the pictures that the documents show, from what is really printed
	hack/termpicture/take.sh
	TOCSIN_UI_PICTURES=$(CURDIR)/docs/images go test -count=1 -tags browser -run TestPage ./cmd/kubectl-tocsin/ui

.PHONY: test-fuzz
test-fuzz: ## Fuzz for FUZZTIME (10m) a fuzz test
	hack/fuzz.sh $(FUZZTIME)

.PHONY: test-faults
test-faults: control-plane ## Break everything that can break, under load, and check that no alert is lost or counted twice
	go run ./hack/faults $(FAULTS_FLAGS)

.PHONY: test-faults-short
test-faults-short: control-plane ## The same in about four minutes
	go run ./hack/faults --short $(FAULTS_FLAGS)

.PHONY: test-faults-bugs
test-faults-bugs: control-plane ## Check that the fault suite catches every seeded bug
	go run ./hack/faults --bugs $(FAULTS_FLAGS)

.PHONY: soak
soak: control-plane ## Faults at random for SOAK (1h)
	go run ./hack/faults --soak=$(SOAK) $(FAULTS_FLAGS)

.PHONY: test-senders
test-senders: control-plane build $(TOOLS)/prometheus $(TOOLS)/alertmanager ## Let a real Prometheus and Alertmanager send alerts, about a minute
	go run ./hack/senders

.PHONY: test-monitoring
test-monitoring: control-plane build ## Test the alerting rules and the dashboard with a real Prometheus (Debian's package prometheus)
	go run ./hack/monitoring

.PHONY: e2e
e2e: ## Install Tocsin on the cluster of KUBECONFIG, from the image IMG, and break it there under load
	go test -count=1 -timeout=30m -tags=e2e -v $(E2E_FLAGS) ./hack/e2e

.PHONY: e2e-local
e2e-local: node-programs $(TOOLS)/controller-gen ## The same on a node made of this machine: Linux and root, see hack/node/node.sh
	@$(IMAGE_ENVIRONMENT) E2E_FLAGS='$(E2E_FLAGS)' hack/e2e/local.sh

.PHONY: bench
bench: control-plane build ## Measure intake and fold beside plain creates, with a control plane of its own
	go run ./hack/bench $(BENCH_FLAGS)

.PHONY: bench-micro
bench-micro: ## Run the Go benchmarks, for benchstat
	go test -run '^$$' -bench . -benchmem -count $(BENCH_COUNT) ./controllers ./webhookserver/...

.PHONY: lint
lint: $(TOOLS)/golangci-lint ## Run the linters
	$(TOOLS)/golangci-lint run

.PHONY: fmt
fmt: $(TOOLS)/golangci-lint ## Format the Go files
	$(TOOLS)/golangci-lint fmt

.PHONY: verify
verify: tools ## Check that what is generated is up to date, modules are tidy and links work; changes nothing
	hack/verify.sh

.PHONY: generate
generate: manifests dist $(TOOLS)/crd-ref-docs ## Generate everything that is generated
	$(TOOLS)/controller-gen object:headerFile=hack/boilerplate.go.txt paths=./api/...
	go run ./hack/metricsdoc >docs/metrics.md.tmp && mv docs/metrics.md.tmp docs/metrics.md
	go run ./hack/plugindoc >docs/kubectl-tocsin.md.tmp && mv docs/kubectl-tocsin.md.tmp docs/kubectl-tocsin.md
	$(TOOLS)/crd-ref-docs --log-level=ERROR --source-path=api/v1alpha1 --config=hack/crd-ref-docs.yaml --renderer=markdown \
		--output-path=docs/api.md.tmp
	@# It escapes braces for a renderer that takes them for code; here they stand in code already.
	sed -e 's/\\\([{}]\)/\1/g' docs/api.md.tmp >docs/api.md && rm docs/api.md.tmp

.PHONY: manifests
manifests: $(TOOLS)/controller-gen ## Generate the CRDs and the manager's ClusterRole
	$(TOOLS)/controller-gen crd paths=./api/... output:crd:dir=config/crd/bases
	$(TOOLS)/controller-gen rbac:roleName=tocsin-manager paths=./controllers/... paths=./webhookserver/... \
		output:rbac:dir=config/rbac

.PHONY: sender-pages
sender-pages: control-plane build ## Write what kubectl prints of every preset's samples into docs/senders
	go run ./hack/senderpages

.PHONY: dist
dist: manifests $(TOOLS)/kustomize ## Write the Helm chart, and dist/install.yaml with the image IMG
	mkdir -p dist
	$(TOOLS)/kustomize build config/default | sed 's|image: tocsin:dev$$|image: $(IMG)|' >dist/install.yaml.tmp
	mv dist/install.yaml.tmp dist/install.yaml
	go run ./hack/chart -kustomize=$(TOOLS)/kustomize -out=dist/chart

.PHONY: tidy
tidy: ## Tidy the Go modules
	for module in . hack/controlplane hack/crds hack/crds/envoygateway hack/helm hack/lint hack/node hack/prometheus hack/tools; do (cd $$module && go mod tidy) || exit; done

.PHONY: clean
clean: ## Remove what was built, the control plane included
	rm -rf bin

##@ What the others use

.PHONY: control-plane
control-plane: ## Get etcd, kube-apiserver and kubectl, see hack/control-plane.sh
	@hack/control-plane.sh

.PHONY: node-programs
node-programs: control-plane ## Build kubelet, kube-proxy and the like, see hack/node/build.sh
	@hack/node/build.sh

.PHONY: tools
tools: $(TOOLS)/controller-gen $(TOOLS)/crd-ref-docs $(TOOLS)/kustomize $(TOOLS)/setup-envtest ## Build the tools

$(TOOLS)/controller-gen: PACKAGE := sigs.k8s.io/controller-tools/cmd/controller-gen
$(TOOLS)/crd-ref-docs: PACKAGE := github.com/elastic/crd-ref-docs
$(TOOLS)/kustomize: PACKAGE := sigs.k8s.io/kustomize/kustomize/v5
$(TOOLS)/setup-envtest: PACKAGE := sigs.k8s.io/controller-runtime/tools/setup-envtest
$(TOOLS)/controller-gen $(TOOLS)/crd-ref-docs $(TOOLS)/kustomize $(TOOLS)/setup-envtest: hack/tools/go.mod hack/tools/go.sum
	CGO_ENABLED=0 go build -C hack/tools -ldflags '-s -w' -o $(CURDIR)/$@ $(PACKAGE)

$(TOOLS)/helm: hack/helm/go.mod hack/helm/go.sum
	@echo 'building helm, once; this takes a minute or two on two cores'
	CGO_ENABLED=0 go build -C hack/helm -ldflags '-s -w' -o $(CURDIR)/$@ helm.sh/helm/v4/cmd/helm

$(TOOLS)/golangci-lint: hack/lint/go.mod hack/lint/go.sum
	@echo 'building golangci-lint, once; this takes two minutes or so on two cores'
	CGO_ENABLED=0 go build -C hack/lint -ldflags '-s -w' -o $(CURDIR)/$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

# The discovery of targets in clouds is left out: it is not needed, and takes long to build.
$(TOOLS)/prometheus: PACKAGE := github.com/prometheus/prometheus/cmd/prometheus
$(TOOLS)/alertmanager: PACKAGE := github.com/prometheus/alertmanager/cmd/alertmanager
$(TOOLS)/prometheus $(TOOLS)/alertmanager: hack/prometheus/go.mod hack/prometheus/go.sum
	@echo 'building $(@F), once; this takes one to three minutes on two cores'
	CGO_ENABLED=0 go build -C hack/prometheus -tags remove_all_sd -ldflags '-s -w' -o $(CURDIR)/$@ $(PACKAGE)

.PHONY: help
help: ## List the targets
	@awk 'BEGIN { FS = ":.*## " } \
		/^##@/ { printf "\n%s\n", substr($$0, 5) } \
		/^[a-zA-Z_-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
