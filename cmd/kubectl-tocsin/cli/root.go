// Package cli implements the commands of the kubectl plugin.
//
// Each command, or group of subcommands, is a file with a struct of options, a constructor that binds them to flags, and the
// methods that run it; its help is in help.tmpl, that of the rooms ui and mcp in help_ui.tmpl and help_mcp.tmpl. Commands talk to
// the API server as the kubeconfig's user and do nothing that the user could not do with kubectl alone. They print for people
// unless -o selects another format, on a screen that remembers the first error of a write; all text that a sender may have
// written is sanitized for the terminal first (print.go).
package cli

import (
	"context"
	"embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"text/template"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/internal/buildinfo"
)

// Exit codes. For "check", 1 means that incidents are open, and for "explain --replay" that there are differences.
const (
	exitOK      = 0
	exitFailure = 1
	exitUnknown = 2 // "check" or "explain --replay" failed or was interrupted, or a namespace or an integration does not exist
)

// completer is the program name under which kubectl runs the plugin for completions.
const completer = "kubectl_complete-tocsin"

// Main runs the plugin and returns the exit code. args begins with the program name.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal terminates the process

	p := newPlugin(genericiooptions.IOStreams{In: stdin, Out: stdout, ErrOut: stderr})
	root := p.command()
	rest := args[1:]
	if strings.TrimSuffix(filepath.Base(args[0]), ".exe") == completer {
		rest = append([]string{cobra.ShellCompRequestCmd}, rest...)
	}
	root.SetArgs(rest)
	command, err := root.ExecuteContextC(ctx)
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, new(silentError)):
		return exitFailure
	case ctx.Err() == nil || !errors.Is(err, context.Canceled): // else the user has interrupted the command
		p.notef("%s", errorMessage(err))
	}
	if errors.As(err, new(missingError)) || errors.As(err, new(replayError)) || command.Name() == checkName {
		return exitUnknown
	}
	return exitFailure
}

// silentError makes the plugin exit with exitFailure and without a message.
type silentError struct{}

func (silentError) Error() string { return "exit" }

// plugin holds the state that all commands share.
type plugin struct {
	genericiooptions.IOStreams
	config *genericclioptions.ConfigFlags
	color  string
	screen *screen // set before a command runs
	now    func() time.Time
}

func newPlugin(streams genericiooptions.IOStreams) *plugin {
	return &plugin{
		IOStreams: streams,
		config:    genericclioptions.NewConfigFlags(true).WithWarningPrinter(streams),
		color:     colorAuto,
		now:       time.Now,
	}
}

// notef prints a line on stderr.
func (p *plugin) notef(format string, args ...any) {
	_, _ = fmt.Fprintf(p.ErrOut, format+"\n", args...)
}

func (p *plugin) command() *cobra.Command {
	root := &cobra.Command{
		Use:               "kubectl-tocsin",
		Short:             "View and manage incidents, and authorize senders of alerts",
		Annotations:       map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl tocsin"},
		Version:           buildinfo.Read().Version,
		SilenceErrors:     true,
		SilenceUsage:      true,
		DisableAutoGenTag: true,
		PersistentPreRun: func(command *cobra.Command, _ []string) {
			// Commands report errors themselves; the client's log is on with -v only.
			if level := command.Flags().Lookup("v"); level != nil && level.Value.String() == "0" {
				klog.SetLogger(logr.Discard())
			}
			log.SetLogger(klog.Background()) // without a logger, controller-runtime warns after 30 seconds
			p.screen = newScreen(p.Out, p.color)
		},
		PersistentPostRunE: func(*cobra.Command, []string) error { return p.screen.err },
	}
	root.SetVersionTemplate(buildinfo.Line("kubectl-tocsin") + "\n")
	root.SetIn(p.In)
	root.SetOut(p.Out)
	root.SetErr(p.ErrOut)
	root.SetUsageTemplate(usageTemplate)
	addGroup(root, "Incident Commands:", append(p.actionCommands(), p.getCommand(), p.watchCommand(), p.showCommand(),
		p.checkCommand(),
		p.historyCommand(), p.reportCommand(),
		p.uiCommand(), p.mcpCommand())...)
	addGroup(root, "Sender Commands:", p.integrationCommand(), p.tokenCommand(), p.maintenanceCommand(),
		p.sendCommand(), p.explainCommand())
	root.AddCommand(p.optionsCommand(), p.versionCommand())
	p.addGlobalFlags(root)
	adjust(root, p.flagCompletions())
	root.InitDefaultCompletionCmd()
	if completion, _, err := root.Find([]string{"completion"}); err == nil {
		parent(completion)
	}
	return root
}

func addGroup(root *cobra.Command, title string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: title, Title: title})
	for _, command := range commands {
		command.GroupID = title
	}
	root.AddCommand(commands...)
}

// addGlobalFlags adds kubectl's flags for the cluster, --color and -v.
func (p *plugin) addGlobalFlags(root *cobra.Command) {
	flags := root.PersistentFlags()
	p.config.AddFlags(flags)
	wordVar(flags, &p.color, "color", "", "auto, always or never",
		"When to use colors: auto (on a terminal, unless NO_COLOR is set), always or never.")
	verbosity := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(verbosity)
	if v := verbosity.Lookup("v"); v != nil {
		v.Usage = "Log level verbosity; 6 logs requests to the API server."
		flags.AddGoFlag(v)
	}
}

// adjust gives a command its help, rewords that of flags that cobra and cli-runtime add, and completes flags. Commands without
// completions of arguments take none, unless they set Args.
func adjust(command *cobra.Command, byName map[string]cobra.CompletionFunc) {
	var text strings.Builder
	utilruntime.Must(help.ExecuteTemplate(&text, command.CommandPath(), map[string]string{
		"serviceEndpoint": serviceEndpoint, "testKey": testKey,
	}))
	command.Long, command.Example, _ = strings.Cut(text.String(), "\n\nExamples:")
	if command.Runnable() && command.ValidArgsFunction == nil {
		command.ValidArgsFunction = cobra.NoFileCompletions
		if command.Args == nil {
			command.Args = noArguments
		}
	}
	command.InitDefaultHelpFlag()
	for name, usage := range map[string]string{
		"help":                        "Print this help.",
		"template":                    "Template or path to a template file for -o go-template and -o go-template-file.",
		"show-managed-fields":         "Print managedFields in JSON or YAML.",
		"allow-missing-template-keys": "Ignore missing fields and map keys in templates.",
	} {
		if found := command.Flags().Lookup(name); found != nil {
			found.Usage = usage
		}
	}
	command.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Value.Type() == "stringToString" {
			f.DefValue = "" // not "[]"
		}
		words := byName[f.Name]
		if value, ok := f.Value.(wordValue); ok {
			words = cobra.FixedCompletions(value.words(), cobra.ShellCompDirectiveNoFileComp)
		}
		if words != nil {
			utilruntime.Must(command.RegisterFlagCompletionFunc(f.Name, words))
		}
	})
	for _, child := range command.Commands() {
		adjust(child, byName)
	}
}

// parent returns a command that only has subcommands.
func parent(command *cobra.Command, children ...*cobra.Command) *cobra.Command {
	command.Args = cobra.NoArgs // a mistyped subcommand is an error
	command.RunE = func(command *cobra.Command, _ []string) error { return command.Help() }
	command.AddCommand(children...)
	return command
}

// optionsCommand lists the global flags, as "kubectl options" does.
func (p *plugin) optionsCommand() *cobra.Command {
	const width = 110
	return &cobra.Command{
		Use:   "options",
		Short: "Print the list of flags inherited by all commands",
		Run: func(command *cobra.Command, _ []string) {
			p.screen.printf("The following options can be passed to any command:\n\n%s", command.InheritedFlags().FlagUsagesWrapped(width))
		},
	}
}

func (p *plugin) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of the plugin",
		Run:   func(*cobra.Command, []string) { p.screen.printf("%s\n", buildinfo.Line("kubectl-tocsin")) },
	}
}

// noArguments validates that a command without subcommands has no arguments.
func noArguments(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("takes no arguments, but got %q", args[0])
	}
	return nil
}

// takes validates the number of arguments. what says which are required.
func takes(least, most int, what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return errors.New("requires " + what)
		}
		return nil
	}
}

// oneName validates that there is exactly one argument, the name of an object.
func oneName(kind string) cobra.PositionalArgs {
	return takes(1, 1, fmt.Sprintf("exactly one %s name", kind))
}

// ofIntegration returns a command whose first argument is an integration. If names is not nil, names of things in the integration
// may follow, and it completes them.
func (p *plugin) ofIntegration(
	use, short string, names func(*v1alpha1.WebhookIntegrationSpec) []string, run func(context.Context, *cluster, []string) error,
) *cobra.Command {
	command := &cobra.Command{Use: use, Short: short, RunE: p.withCluster(run)}
	if names == nil {
		command.Args, command.ValidArgsFunction = oneName("integration"), firstArgument(p.completeIntegrations())
	} else {
		command.Args, command.ValidArgsFunction = takes(1, math.MaxInt, "an integration name"), p.completeNamesIn(names)
	}
	return command
}

// helpFiles have the long help and the examples of each command, as a template with its path.
//
//go:embed help*.tmpl
var helpFiles embed.FS

var help = template.Must(template.ParseFS(helpFiles, "*.tmpl"))

// usageTemplate is cobra's without the global flags, which would bury the command's own. "kubectl tocsin options" lists
// them.
//
//go:embed usage.tmpl
var usageTemplate string
