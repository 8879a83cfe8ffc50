# Wraps the static binary that "make image" has built for the platform:
#
#   make image IMG=registry.example.com/tocsin:v0.1.0
#
# With Docker: make image-files && docker buildx build --platform linux/amd64,linux/arm64 --push -t IMAGE .
ARG BASE=gcr.io/distroless/static:nonroot@sha256:d29e660cc75a5b6b1334e03c5c81ccf9bc0884a002c6000dbf0fb96034814478
FROM ${BASE}
ARG TARGETARCH
COPY bin/image/linux/${TARGETARCH}/manager /manager
USER 65532:65532
ENTRYPOINT ["/manager"]
