package process

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/buildinfo"
	"github.com/tocsin-dev/tocsin/internal/memlimit"
	"github.com/tocsin-dev/tocsin/internal/pages"
)

const exitOK, exitFailure, exitBadFlags = 0, 1, 2

// Program is a process: what its command line looks like, and what it runs.
type Program struct {
	Title string // of what --version prints
	Usage string // the first lines of the help

	Flags *flag.FlagSet // with the name of the executable. Execute adds those of logs and of the version

	// Cluster is how the API server is reached, once the flags are parsed. Default: as KUBECONFIG or the pod's service account says.
	Cluster *rest.Config

	// Validate completes the values of the flags, and returns all their errors.
	Validate func() error

	// Check does what the flags ask for instead of running, and returns what to print; empty if they ask for nothing. Optional.
	Check func() (report string, err error)

	// Run runs until ctx ends.
	Run func(ctx context.Context, config *rest.Config, log logr.Logger) error
}

// Execute runs a command line and returns the exit code.
func (p *Program) Execute(args []string, stdout, stderr io.Writer) int {
	var logs zap.Options
	bindLogs(p.Flags, &logs)
	showVersion := p.Flags.Bool("version", false, "Print the version and exit.")
	err := Parse(p.Flags, args)
	if err == nil && !*showVersion { // which needs no other flag
		err = p.Validate()
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
		p.printHelp(stdout)
		return exitOK
	case err != nil:
		_, _ = fmt.Fprintf(stderr, "%s: %v\n%[1]s: --help lists the flags\n", p.Flags.Name(), err)
		return exitBadFlags
	case *showVersion:
		_, _ = fmt.Fprintln(stdout, buildinfo.Line(p.Title))
		return exitOK
	}
	if p.Check != nil {
		switch report, err := p.Check(); {
		case err != nil:
			_, _ = fmt.Fprintln(stderr, err)
			return exitFailure
		case report != "":
			_, _ = fmt.Fprintln(stdout, report)
			return exitOK
		}
	}
	if logs.StacktraceLevel == nil && !logs.Development {
		// Errors name the operation that failed; the stacks of the libraries around it would hide that. Panics log their own.
		_ = p.Flags.Set("zap-stacktrace-level", "panic")
	}
	logger := zap.New(zap.UseFlagOptions(&logs), zap.WriteTo(stderr))
	ctrl.SetLogger(logger)
	klog.SetLogger(logger)
	limitMemory(logger)

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The first signal starts the shutdown and restores the default handlers, so that a second one ends a shutdown
	// that hangs.
	context.AfterFunc(ctx, stop)

	config := p.Cluster
	if config == nil {
		if config, err = ctrl.GetConfig(); err != nil {
			logger.Error(err, "Cannot load the kubeconfig")
			return exitFailure
		}
	}
	if err := p.Run(ctx, config, logger); err != nil {
		logger.Error(err, "Exited")
		return exitFailure
	}
	logger.Info("Stopped")
	return exitOK
}

func (p *Program) printHelp(stdout io.Writer) {
	_, _ = fmt.Fprintf(stdout, "%s\n\n", p.Usage)
	if p.Cluster == nil {
		_, _ = fmt.Fprint(stdout, "The cluster is the one that KUBECONFIG names, or else the one that the process runs in.\n\n")
	}
	_, _ = fmt.Fprintln(stdout, "Flags:")
	p.Flags.SetOutput(stdout)
	p.Flags.PrintDefaults()
}

func bindLogs(flags *flag.FlagSet, logs *zap.Options) {
	logs.BindFlags(flags)
	for name, usage := range logUsage {
		flags.Lookup(name).Usage = usage
	}
}

// logUsage replaces the help texts of controller-runtime's logging flags.
var logUsage = map[string]string{
	"zap-devel":            "Use development logging: text, debug messages, and stack traces from level warn.",
	"zap-encoder":          "Log format: json or console (text). Default: json; console with --zap-devel.",
	"zap-log-level":        "Minimum level to log: debug, info, error, panic or a number (higher is more verbose). Default: info.",
	"zap-stacktrace-level": "Minimum level to log with a stack trace: info, error or panic. Default: panic; warn with --zap-devel.",
	"zap-time-encoding":    "Time format in logs: epoch, millis, nano, iso8601, rfc3339 or rfc3339nano. Default: rfc3339.",
}

// NewFlags returns a set of flags for Parse.
func NewFlags(program string) *flag.FlagSet {
	flags := flag.NewFlagSet(program, flag.ContinueOnError)
	flags.SetOutput(io.Discard) // Execute prints errors
	return flags
}

// Parse parses a command line. It returns flag.ErrHelp for --help.
func Parse(flags *flag.FlagSet, args []string) error {
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	return nil
}

// limitMemory sets Go's soft memory limit below the container's, unless GOMEMLIMIT sets one. A fixed value would be wrong as
// soon as somebody raises the container's limit.
func limitMemory(log logr.Logger) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	if limit, ok := memlimit.OfCgroup(os.DirFS("/")); ok {
		debug.SetMemoryLimit(memlimit.SoftLimit(limit))
		log.Info("Set Go's memory limit", "bytes", memlimit.SoftLimit(limit), "containerBytes", limit)
	}
}

// ClientConfig returns the configuration of a process's clients.
func ClientConfig(environment *rest.Config, program string) *rest.Config {
	config := rest.CopyConfig(environment)
	config.UserAgent = program + "/" + buildinfo.Read().Version
	config.Wrap(pages.Bound(v1alpha1.GroupVersion.Group))
	config.DisableCompression = true // in a cluster's network it costs both ends more than it saves
	config.QPS = -1                  // the API server's priority and fairness limits requests; a limit of our own would lose alerts
	return config
}
