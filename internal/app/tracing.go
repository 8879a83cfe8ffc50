package app

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

// flushTimeout bounds exporting the last spans at shutdown.
const flushTimeout = 3 * time.Second

// startTracing returns a provider that exports traces over OTLP. OpenTelemetry's environment variables set the endpoint,
// the sampling and the service name (https://opentelemetry.io/docs/specs/otel/configuration/).
func startTracing(ctx context.Context, log logr.Logger) (*trace.TracerProvider, error) {
	exporter, err := newExporter(ctx)
	if err != nil {
		return nil, err
	}
	// WithFromEnv comes last, so that OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win.
	attributes, err := resource.New(ctx,
		resource.WithAttributes(semconv.ServiceName("tocsin"), semconv.ServiceVersion(buildinfo.Read().Version)),
		resource.WithTelemetrySDK(), resource.WithHost(), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("detecting the tracing resource: %w", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Error(err, "Cannot export traces") }))
	return trace.NewTracerProvider(trace.WithBatcher(exporter), trace.WithResource(attributes)), nil
}

// newExporter returns an exporter for the protocol of the environment, which OpenTelemetry's exporters leave to the program.
func newExporter(ctx context.Context) (trace.SpanExporter, error) {
	protocol := cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"), os.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL"), "grpc")
	switch protocol {
	case "grpc":
		return otlptracegrpc.New(ctx)
	case "http/protobuf":
		return otlptracehttp.New(ctx)
	default:
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL: unsupported protocol %q: use grpc or http/protobuf", protocol)
	}
}

func stopTracing(provider *trace.TracerProvider, log logr.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	if err := errors.Join(provider.ForceFlush(ctx), provider.Shutdown(ctx)); err != nil {
		log.Error(err, "Cannot export the last traces")
	}
}
