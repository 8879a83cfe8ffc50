# Wraps the static binary that "make build" makes, for the platform that it was made for:
#
#   make build && docker build -t registry.example.com/tocsin:v0.1.0 .
ARG BASE=gcr.io/distroless/static:nonroot
FROM ${BASE}
COPY bin/manager /manager
USER 65532:65532
ENTRYPOINT ["/manager"]
