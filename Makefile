# Tocsin's chores; "make help" lists them. They need Go and git, and what they build lies in bin/.

.DEFAULT_GOAL := help
TOOLS := bin/tools

# The version: a release's tag, else that of the next release under development, with the commit. What --version
# prints, and the name of everything in a release.
NEXT := v0.1.0
VERSION ?= $(shell git describe --tags --exact-match --match='v*' 2>/dev/null || \
	git describe --always --dirty --abbrev=12 --exclude='*' 2>/dev/null | sed -e 's/-dirty$$/.dirty/' -e 's/^/$(NEXT)-dev+/')
COMMIT ?= $(shell git rev-parse HEAD 2>/dev/null)
DATE ?= $(shell git log -1 --format=%cI 2>/dev/null)
BUILDINFO := github.com/tocsin-dev/tocsin/internal/buildinfo
# The client of Google Cloud Storage without gRPC's xDS, which its JSON API does not need: 17 MB of the plugin.
SMALL_TAGS := disable_grpc_modules
LDFLAGS := -s -w -X $(BUILDINFO).version=$(VERSION) -X $(BUILDINFO).commit=$(COMMIT) -X $(BUILDINFO).date=$(DATE)

# Every program and test that runs on this machine is built with the same flags, so that a package is compiled once, and without
# what only a debugger reads: a fifth of the compiler's work. A release has flags of its own.
export GOFLAGS := -gcflags=all=-dwarf=false $(GOFLAGS)
# "make lint" vets: before a test, "go test" would vet every dependency too, which takes longer than to compile the tests.
# The compiler and the linker collect garbage late, as in hack/build.sh, and tests and programs as usual.
LATE := GOGC=400 GOMEMLIMIT=1GiB
GO_BUILD := hack/build.sh build
GO_TEST := $(LATE) go test -vet=off -ldflags='-s -w' -exec 'env -u GOGC -u GOMEMLIMIT'
# Tests wait, for a control plane to start or by the clock: with one package for each processor, a quarter of the time is lost.
SIDE_BY_SIDE := -p $(shell echo $$((2 * $$(getconf _NPROCESSORS_ONLN))))
# They begin in this order: the longest ones first, which would otherwise run on alone at the end.
PACKAGES := ./internal/app ./cmd/tocsin-archiver ./config ./webhookserver/... ./...

# Where install-plugin puts the kubectl plugin; it has to be on the PATH.
BINDIR ?= /usr/local/bin

# The image that dist/install.yaml names and "make image" makes; of which program (manager, archiver, page or plugin) and base, for which
# platforms, and with what (buildah or podman).
PROGRAM ?= manager
IMG ?= tocsin$(filter-out -manager,-$(PROGRAM)):dev
BASE ?=
PLATFORMS ?= linux/amd64,linux/arm64
BUILDER ?= buildah
IMAGE_ENVIRONMENT = VERSION='$(VERSION)' COMMIT='$(COMMIT)' DATE='$(DATE)' LDFLAGS='$(LDFLAGS)' \
	PROGRAM='$(PROGRAM)' PLATFORMS='$(PLATFORMS)' BASE='$(BASE)' BUILDER='$(BUILDER)'

# Who publishes a release. The locations of the image, the chart and the plugin follow from it.
REPOSITORY ?= github.com/tocsin-dev/tocsin
# Where a release is built, and for which platforms.
RELEASE ?= bin/release
RELEASE_PLATFORMS ?= linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64,windows/arm64

# The port of "make run".
PORT ?= 8080

# Flags of "go test" for the end-to-end suite, such as -run=/metrics.
E2E_FLAGS ?=

# Flags of hack/suites/bench, such as -help, and how often bench-micro repeats.
BENCH_FLAGS ?=
BENCH_COUNT ?= 6

# Flags of hack/model, such as -break=no-marks.
MODEL_FLAGS ?=

# Flags of "go test" for test-faults, such as -run=/kill or -count=5, and how long to soak.
FAULTS_FLAGS ?=
SOAK ?= 1h

# How long test-simulation and simulate last, which seed simulate replays, and flags of "go test" for test-bugs, such as -run=/ledger.
SIMULATE ?= 2m
HOURS ?= 1
SEED ?=
TOLD ?=
BUGS_FLAGS ?=

# What mutate changes, and its flags, such as -run=merge.go or -by=./hack/suites/simulation.
PKGS ?= ./controllers/fold ./controllers/sweep ./controllers/release ./internal/queue ./internal/leader
MUTATE_FLAGS ?=

# The oldest version of Kubernetes that Tocsin supports, one in the middle and the last but one, for test-versions.
KUBERNETES_VERSIONS ?= 1.31.0 1.34.4 1.36.3

# How long each fuzz test of test-fuzz runs.
FUZZTIME ?= 10m

# A suite of hack/suites that runs programs, as a test: "$(SUITE) ./NAME", and flags of "go test".
SUITE := cd hack/suites && $(GO_TEST) -count=1 -tags slow -v

# The Alertmanager of test-alertmanager, and flags of "go test" for it, such as -run=/killed.
ALERTMANAGER ?= $(TOOLS)/alertmanager
ALERTMANAGER_FLAGS ?=

# Flags of "go test" for test-archive, such as -run=/killed.
ARCHIVE_FLAGS ?=

# Flags of "go test" for test-federation, such as -run=/loop.
FEDERATION_FLAGS ?=

# Flags of hack/devcluster for "make run", such as -alertmanager-config=FILE or -archive=FOLDER, and of "go test".
RUN_FLAGS ?=
TEST_FLAGS ?=

# The modules with Go files of ours beside the root's.
OUR_MODULES := hack/gen hack/release hack/suites

##@ To try it

.PHONY: run
run: $(if $(KUBECONFIG),,servers) build $(if $(findstring -archive=,$(RUN_FLAGS)),archiver) ## Run Tocsin with a cluster of its own, or on the one that KUBECONFIG names
	@$(GO_BUILD) -ldflags '-s -w' -o bin/devcluster ./hack/devcluster
	@exec bin/devcluster --port=$(PORT) $(RUN_FLAGS)

##@ To work on it

.PHONY: build
build: ## Build the manager into bin/manager
	@$(GO_BUILD) -ldflags '$(LDFLAGS)' -o bin/manager .

.PHONY: archiver
archiver: ## Build the archiver into bin/archiver
	@$(GO_BUILD) -ldflags '$(LDFLAGS)' -o bin/archiver ./cmd/tocsin-archiver

.PHONY: plugin
plugin: ## Build the kubectl plugin into bin/kubectl-tocsin
	CGO_ENABLED=0 go build -trimpath -tags $(SMALL_TAGS) -ldflags '$(LDFLAGS)' -o bin/kubectl-tocsin ./cmd/kubectl-tocsin
	ln -sf kubectl-tocsin bin/kubectl_complete-tocsin

.PHONY: install-plugin
install-plugin: ## Install the kubectl plugin into BINDIR (/usr/local/bin)
	@echo "Building the plugin, which takes minutes at first."
	@$(MAKE) --no-print-directory plugin
	install -d $(DESTDIR)$(BINDIR)
	install -m 755 bin/kubectl-tocsin $(DESTDIR)$(BINDIR)/kubectl-tocsin
	ln -sf kubectl-tocsin $(DESTDIR)$(BINDIR)/kubectl_complete-tocsin

.PHONY: image
image: ## Build the image IMG (tocsin:dev) for amd64 and arm64; the base is BASE
	@$(IMAGE_ENVIRONMENT) hack/image.sh build $(IMG)

.PHONY: image-archive
image-archive: ## Build the image IMG for this machine's architecture into bin/tocsin.tar, for kind, minikube and k3d
	@$(IMAGE_ENVIRONMENT) hack/image.sh archive $(IMG)

.PHONY: image-files
image-files: ## Build what goes into the image, with a bill of materials, into bin/image
	@$(IMAGE_ENVIRONMENT) hack/image.sh files

.PHONY: test
test: control-plane ## Run the unit, property, fuzz-seed and control-plane tests of the product
	$(GO_TEST) $(SIDE_BY_SIDE) $(TEST_FLAGS) $(PACKAGES)

.PHONY: test-all
test-all: $(TOOLS)/helm test test-suites ## Run them with those of the chart, the plugin, the documents' examples, the suites and the release

.PHONY: test-suites
test-suites: $(TOOLS)/helm control-plane ## Run those that test-all has beyond test
	@# What they read lies outside of their modules, so that Go would not see that it has changed: nothing is cached.
	for module in $(OUR_MODULES); do (cd $$module && $(GO_TEST) $(SIDE_BY_SIDE) -count=1 $(TEST_FLAGS) ./...) || exit; done
	@# "make test" has an API server in memory for these.
	TOCSIN_TEST_SERVER=real $(GO_TEST) $(SIDE_BY_SIDE) $(TEST_FLAGS) ./api/... ./controllers/... ./webhookserver/capture/...

.PHONY: test-browser
test-browser: control-plane hack/suites/browser/node_modules ## Test the page in a headless Chromium, which has to be installed
	go test -C hack/suites -count=1 -tags browser $(TEST_FLAGS) ./browser

.PHONY: bench-browser
bench-browser: control-plane ## Measure the page with 2,000 open incidents in a headless Chromium
	go test -C hack/suites -count=1 -tags browser -run '^$$' -bench . -benchtime 5x ./browser

# What checks the page for accessibility, from npm.
hack/suites/browser/node_modules: hack/suites/browser/package-lock.json
	npm ci --prefix $(@D) --ignore-scripts --no-audit --no-fund
	touch $@

.PHONY: walkthrough
walkthrough: control-plane ## Write docs/walkthrough.md from what the commands in it print
	TOCSIN_WRITE_WALKTHROUGH=1 go test -C hack/suites -count=1 -run TestWalkthrough ./plugin

.PHONY: pictures
pictures: control-plane build plugin ## Take the pictures that the documents show, from what is really printed
	hack/gen/termpicture/take.sh
	TOCSIN_UI_PICTURES=$(CURDIR)/docs/images go test -C hack/suites -count=1 -tags browser -run TestPage ./browser

.PHONY: test-duckdb
test-duckdb: ## Run the query of docs/history.md in DuckDB, from its npm package, and compare the answer with that of the plugin
	cd hack/suites/duckdb && npm install --no-package-lock --no-audit --no-fund && node check.mjs

.PHONY: test-fuzz
test-fuzz: ## Fuzz for FUZZTIME (10m) a fuzz test
	hack/fuzz.sh $(FUZZTIME)

.PHONY: model
model: ## Explore the larger scopes of the protocol's model, which takes minutes and gigabytes
	go run ./hack/model -long $(MODEL_FLAGS)

.PHONY: test-faults
test-faults: control-plane build ## Break everything that can break, under load, and check that no alert is lost or counted twice
	$(SUITE) -timeout=0 ./faults $(FAULTS_FLAGS)

.PHONY: test-faults-short
test-faults-short: control-plane build ## A selection of it, in about two minutes
	$(SUITE) -short ./faults $(FAULTS_FLAGS)

.PHONY: soak
soak: control-plane build ## Faults at random for SOAK (1h)
	$(SUITE) -timeout=0 ./faults -soak=$(SOAK) $(FAULTS_FLAGS)

.PHONY: test-simulation
test-simulation: bin/suites/simulation.test ## Simulate replicas, faults and users for SIMULATE (2m), with new seeds
	hack/suites/simulation/simulate.sh bin/suites/simulation.test $(SIMULATE)

.PHONY: test-simulation-versions
test-simulation-versions: ## The same with replicas of the last release, which are rolled forward and back
	$(LATE) hack/suites/simulation/versions.sh bin/suites/versions.test
	hack/suites/simulation/simulate.sh bin/suites/versions.test $(SIMULATE)

.PHONY: simulate
simulate: bin/suites/simulation.test ## The same for HOURS (1), or replay SEED, with everything that happens if TOLD is set
	SEED='$(SEED)' TOLD='$(TOLD)' hack/suites/simulation/simulate.sh bin/suites/simulation.test $(HOURS)h

.PHONY: test-bugs
test-bugs: control-plane ## Check that a test or the fault suite finds each seeded bug
	$(SUITE) -timeout=0 -run='^TestBugs$$' ./bugs $(BUGS_FLAGS)

.PHONY: test-simulation-bugs
test-simulation-bugs: ## Check that the simulation finds the seeded bugs
	$(SUITE) -timeout=0 -run='^TestBugs$$' ./bugs -stories $(BUGS_FLAGS)

.PHONY: mutate
mutate: control-plane ## Find small changes of PKGS that no test notices, in a quarter of an hour
	go run ./hack/mutate $(MUTATE_FLAGS) $(PKGS)

# Instrumented code allocates, so tests that count allocations are left out.
.PHONY: mutate-reads
mutate-reads: control-plane ## Check that a test fails for each read from the API server that goes to the cache instead
	go run ./hack/mutate -run 'live →' -arguments=-test.skip=CostsNothing $(MUTATE_FLAGS) ./controllers/incident ./controllers/heartbeat

.PHONY: test-versions
test-versions: control-plane $(TOOLS)/helm ## Test with control planes of KUBERNETES_VERSIONS, about ten minutes each
	for version in $(KUBERNETES_VERSIONS); do hack/test-version.sh $$version || exit; done

.PHONY: test-senders
test-senders: control-plane build $(TOOLS)/prometheus $(TOOLS)/alertmanager ## Let a real Prometheus and Alertmanager send alerts, about a minute
	$(SUITE) -timeout=10m ./senders

.PHONY: test-alertmanager
test-alertmanager: control-plane build $(ALERTMANAGER) ## Let real, clustered Alertmanagers notify a receiver, and break everything, about 20 minutes
	$(SUITE) -timeout=40m ./alertmanager -alertmanager=$(abspath $(ALERTMANAGER)) $(ALERTMANAGER_FLAGS)

.PHONY: test-alertmanager-short
test-alertmanager-short: control-plane build $(ALERTMANAGER) ## The life cycle of a notification, and the steps of the guide, in about a minute
	$(SUITE) -short ./alertmanager -alertmanager=$(abspath $(ALERTMANAGER))

.PHONY: test-archive
test-archive: control-plane build archiver plugin $(TOOLS)/versitygw ## Archive to a real S3 server, and break it and the managers, about 15 minutes
	$(SUITE) -timeout=40m ./archive $(ARCHIVE_FLAGS)

.PHONY: test-archive-short
test-archive-short: control-plane build archiver plugin ## Archive to a folder, without faults, in about 30 seconds
	$(SUITE) -short ./archive

.PHONY: test-federation
test-federation: control-plane build ## Let a Tocsin forward to another one, and break the link and both of them, about 20 minutes
	$(SUITE) -timeout=40m ./federation $(FEDERATION_FLAGS)

.PHONY: test-federation-short
test-federation-short: control-plane build ## The same without outages, in about 20 seconds
	$(SUITE) -short ./federation

.PHONY: test-monitoring
test-monitoring: control-plane build archiver ## Test the alerting rules and the dashboard with a real Prometheus (Debian's package prometheus)
	$(SUITE) -timeout=5m -run '^Test(Prometheus|NoRule)' ./monitoring

.PHONY: test-kube-state-metrics
test-kube-state-metrics: control-plane $(TOOLS)/kube-state-metrics ## Test config/kube-state-metrics with the real kube-state-metrics and Prometheus
	$(SUITE) -timeout=5m -run '^TestRealKubeStateMetrics$$' ./monitoring

.PHONY: e2e
e2e: $(TOOLS)/helm ## Install Tocsin on the cluster of KUBECONFIG, from the image IMG, and break it there under load
	go test -C hack/suites -count=1 -timeout=30m -tags=e2e -v $(E2E_FLAGS) ./e2e

.PHONY: e2e-local
e2e-local: node-programs $(TOOLS)/helm ## The same on a node made of this machine: Linux and root, see hack/node.sh
	@$(IMAGE_ENVIRONMENT) E2E_FLAGS='$(E2E_FLAGS)' hack/suites/e2e/local.sh

.PHONY: bench
bench: control-plane build bin/suites/bench $(TOOLS)/alertmanager ## Measure intake and fold beside plain creates and a real Alertmanager
	bin/suites/bench $(BENCH_FLAGS)

.PHONY: bench-micro
bench-micro: ## Run the Go benchmarks, for benchstat
	go test -run '^$$' -bench . -benchmem -count $(BENCH_COUNT) ./controllers/... ./internal/... ./webhookserver/...

.PHONY: lint
lint: $(TOOLS)/golangci-lint ## Run the linters
	$(TOOLS)/golangci-lint run
	for module in $(OUR_MODULES); do (cd $$module && $(CURDIR)/$(TOOLS)/golangci-lint run) || exit; done

.PHONY: fmt
fmt: $(TOOLS)/golangci-lint ## Format the Go files
	$(TOOLS)/golangci-lint fmt

.PHONY: verify
verify: tools $(TOOLS)/actionlint ## Check generated files, modules, format, links, seeded bugs and workflows; changes nothing
	hack/verify.sh

.PHONY: generate
generate: manifests dist bundle bin/gen/metricsdoc ## Generate everything that is generated
	$(TOOLS)/controller-gen object:headerFile=hack/gen/boilerplate.go.txt paths=./api/...
	bin/gen/metricsdoc >docs/metrics.md.tmp && mv docs/metrics.md.tmp docs/metrics.md

.PHONY: manifests
manifests: $(TOOLS)/controller-gen $(TOOLS)/kustomize ## Generate the CRDs and the manager's ClusterRole
	hack/gen/presets.sh
	$(TOOLS)/controller-gen crd paths=./api/... output:crd:dir=config/crd/bases
	$(TOOLS)/kustomize build --load-restrictor=LoadRestrictionsNone hack/gen/closed >config/crd/closed.tmp
	mv config/crd/closed.tmp config/crd/bases/tocsin.dev_maintenancewindows.yaml
	$(TOOLS)/controller-gen rbac:roleName=tocsin-manager paths=./controllers/... paths=./webhookserver/... \
		output:rbac:dir=config/rbac

.PHONY: dist
dist: manifests bin/gen/chart $(TOOLS)/kustomize ## Write the Helm chart, and dist/install.yaml with the image IMG
	mkdir -p dist
	$(TOOLS)/kustomize build config/default | sed 's|image: tocsin:dev$$|image: $(IMG)|' >dist/install.yaml.tmp
	mv dist/install.yaml.tmp dist/install.yaml
	$(TOOLS)/kustomize build hack/gen/chart | bin/gen/chart -image=$(IMG) -out=dist/chart

.PHONY: bundle
bundle: manifests bin/gen/bundle $(TOOLS)/kustomize ## Write the bundle for the Operator Lifecycle Manager, with the image IMG
	$(TOOLS)/kustomize build config/manifests | bin/gen/bundle -image=$(IMG)

.PHONY: tidy
tidy: ## Tidy the Go modules, and have them select the same versions of what "make run" and "make test" build
	hack/align.sh
	git ls-files '*go.mod' | while read -r module; do (cd "$$(dirname "$$module")" && go mod tidy) || exit; done
	hack/align.sh --sums

.PHONY: clean
clean: ## Remove what was built, the control plane included
	rm -rf bin

##@ To release it, see RELEASE.md

.PHONY: release-dry-run
release-dry-run: bin/release-tool control-plane $(TOOLS)/cosign $(TOOLS)/krew $(TOOLS)/validate-krew-manifest $(TOOLS)/helm ## Build a release twice, compare, sign and verify it as a user would, publish nothing
	VERSION='$(VERSION)' COMMIT='$(COMMIT)' DATE='$(DATE)' REPOSITORY='$(REPOSITORY)' RELEASE_PLATFORMS='$(RELEASE_PLATFORMS)' \
		hack/release/dry-run.sh

.PHONY: release-artifacts
release-artifacts: bin/release-tool ## Build the artifacts of a release into RELEASE (bin/release)
	bin/release-tool build -out '$(RELEASE)' -version '$(VERSION)' -commit '$(COMMIT)' -date '$(DATE)' \
		-repository '$(REPOSITORY)' -platforms '$(RELEASE_PLATFORMS)' -ldflags '$(LDFLAGS)'

.PHONY: release-verify
release-verify: bin/release-tool ## Verify the artifacts in RELEASE
	bin/release-tool verify -version '$(VERSION)' -commit '$(COMMIT)' '$(RELEASE)'

.PHONY: release-notes
release-notes: ## Print the notes of VERSION from CHANGELOG.md
	@hack/release/notes.sh '$(VERSION)'

.PHONY: publish
publish: bin/release-tool $(TOOLS)/cosign ## Publish the artifacts in RELEASE: the one step that uploads; see RELEASE.md
	VERSION='$(VERSION)' REPOSITORY='$(REPOSITORY)' RELEASE='$(RELEASE)' hack/release/publish.sh

##@ What the others use

.PHONY: control-plane
control-plane: ## Get etcd, kube-apiserver and kubectl, see hack/control-plane.sh
	@hack/control-plane.sh

.PHONY: servers
servers: ## Get etcd and kube-apiserver
	@hack/control-plane.sh servers

# The programs of the suites and generators: built in their module, and run from here.
bin/gen/%: FORCE
	@$(GO_BUILD) -C hack/gen -o $(CURDIR)/$@ ./$*
bin/release-tool: FORCE
	@$(GO_BUILD) -C hack/release -o $(CURDIR)/$@ .
bin/suites/%.test: FORCE
	@$(LATE) go test -C hack/suites -c -o $(CURDIR)/$@ ./$*
bin/suites/%: FORCE
	@$(GO_BUILD) -C hack/suites -o $(CURDIR)/$@ ./$*
FORCE:

.PHONY: node-programs
node-programs: control-plane ## Build kubelet, kube-proxy and the like, see hack/node-programs.sh
	@hack/node-programs.sh

.PHONY: tools
tools: $(TOOLS)/controller-gen $(TOOLS)/kustomize $(TOOLS)/setup-envtest ## Build the tools

$(TOOLS)/controller-gen: PACKAGE := sigs.k8s.io/controller-tools/cmd/controller-gen
$(TOOLS)/kustomize: PACKAGE := sigs.k8s.io/kustomize/kustomize/v5
$(TOOLS)/setup-envtest: PACKAGE := sigs.k8s.io/controller-runtime/tools/setup-envtest
$(TOOLS)/controller-gen $(TOOLS)/kustomize $(TOOLS)/setup-envtest: hack/modules/tools/go.mod hack/modules/tools/go.sum
	@$(GO_BUILD) -C hack/modules/tools -ldflags '-s -w' -o $(CURDIR)/$@ $(PACKAGE)

$(TOOLS)/helm: hack/modules/helm/go.mod hack/modules/helm/go.sum
	@$(GO_BUILD) -C hack/modules/helm -ldflags '-s -w' -o $(CURDIR)/$@ helm.sh/helm/v4/cmd/helm

$(TOOLS)/golangci-lint: hack/modules/lint/go.mod hack/modules/lint/go.sum
	@$(GO_BUILD) -C hack/modules/lint -ldflags '-s -w' -o $(CURDIR)/$@ sigs.k8s.io/kube-api-linter/cmd/golangci-lint-kube-api-linter

$(TOOLS)/cosign: hack/modules/cosign/go.mod hack/modules/cosign/go.sum
	@$(GO_BUILD) -C hack/modules/cosign -ldflags '-s -w' -o $(CURDIR)/$@ github.com/sigstore/cosign/v3/cmd/cosign

$(TOOLS)/actionlint: PACKAGE := github.com/rhysd/actionlint/cmd/actionlint
$(TOOLS)/krew: PACKAGE := sigs.k8s.io/krew/cmd/krew
$(TOOLS)/validate-krew-manifest: PACKAGE := sigs.k8s.io/krew/cmd/validate-krew-manifest
$(TOOLS)/actionlint $(TOOLS)/krew $(TOOLS)/validate-krew-manifest: hack/modules/release/go.mod hack/modules/release/go.sum
	@$(GO_BUILD) -C hack/modules/release -ldflags '-s -w' -o $(CURDIR)/$@ $(PACKAGE)

$(TOOLS)/versitygw: hack/modules/versitygw/go.mod hack/modules/versitygw/go.sum
	@$(GO_BUILD) -C hack/modules/versitygw -ldflags '-s -w' -o $(CURDIR)/$@ github.com/versity/versitygw/cmd/versitygw

# The discovery of targets in clouds is left out: it is not needed, and takes long to build.
$(TOOLS)/prometheus: PACKAGE := github.com/prometheus/prometheus/cmd/prometheus
$(TOOLS)/alertmanager: PACKAGE := github.com/prometheus/alertmanager/cmd/alertmanager
$(TOOLS)/prometheus $(TOOLS)/alertmanager: hack/modules/prometheus/go.mod hack/modules/prometheus/go.sum
	@$(GO_BUILD) -C hack/modules/prometheus -tags remove_all_sd -ldflags '-s -w' -o $(CURDIR)/$@ $(PACKAGE)

$(TOOLS)/kube-state-metrics: hack/modules/kube-state-metrics/go.mod hack/modules/kube-state-metrics/go.sum
	@$(GO_BUILD) -C hack/modules/kube-state-metrics -ldflags '-s -w' -o $(CURDIR)/$@ k8s.io/kube-state-metrics/v2

.PHONY: help
help: ## List the targets
	@awk 'BEGIN { FS = ":.*## " } \
		/^##@/ { printf "\n%s\n", substr($$0, 5) } \
		/^[a-zA-Z_-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
