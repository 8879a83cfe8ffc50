package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/tocsin-dev/tocsin/internal/buildinfo"
)

// flushTimeout bounds how long the last spans may take to be sent at the end.
const flushTimeout = 3 * time.Second

// The environment variables that OpenTelemetry's exporters leave to the program.
const (
	protocolVariable       = "OTEL_EXPORTER_OTLP_PROTOCOL"
	tracesProtocolVariable = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
)

// startTracing makes the provider of traces, which sends them over OTLP. Where to, how many and under which name is
// said by OpenTelemetry's own environment variables (https://opentelemetry.io/docs/specs/otel/configuration/).
func startTracing(ctx context.Context, log logr.Logger) (*trace.TracerProvider, error) {
	exporter, err := newExporter(ctx)
	if err != nil {
		return nil, err
	}
	// The variables' attributes come last, so that OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win.
	attributes, err := resource.New(ctx,
		resource.WithAttributes(semconv.ServiceName("tocsin"), semconv.ServiceVersion(buildinfo.Read().Version)),
		resource.WithTelemetrySDK(), resource.WithHost(), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("finding out what traces are about: %w", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Error(err, "Traces could not be sent") }))
	return trace.NewTracerProvider(trace.WithBatcher(exporter), trace.WithResource(attributes)), nil
}

// newExporter makes the exporter of the protocol that is asked for.
func newExporter(ctx context.Context) (trace.SpanExporter, error) {
	protocol := cmp.Or(os.Getenv(tracesProtocolVariable), os.Getenv(protocolVariable), "grpc")
	switch protocol {
	case "grpc":
		return otlptracegrpc.New(ctx)
	case "http/protobuf":
		return otlptracehttp.New(ctx)
	default:
		return nil, fmt.Errorf("%s: %q is neither grpc nor http/protobuf", protocolVariable, protocol)
	}
}

// stopTracing sends the last spans.
func stopTracing(provider *trace.TracerProvider, log logr.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	if err := errors.Join(provider.ForceFlush(ctx), provider.Shutdown(ctx)); err != nil {
		log.Error(err, "The last traces could not be sent")
	}
}
