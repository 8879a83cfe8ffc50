// Package cli has the commands of the kubectl plugin.
//
// Each command is a file: what it can be told is a struct of options, filled by flags, with a run method that
// gets a context and talks to the API server as the user whom the kubeconfig names. The commands never do
// what the user could not do with kubectl alone; they do it with less to type. What they print is for a
// person unless -o asks for something else, and everything that a sender may have written is made safe for
// the terminal first (print.go).
package cli

import (
	"context"
	"errors"
	"flag"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tocsin-dev/tocsin/internal/buildinfo"
)

// Exit codes. "check" has its own meaning for 1, see there.
const (
	exitOK      = 0
	exitFailure = 1
	exitCheck   = 2 // an error of "check"
	exitMissing = 2 // a namespace or an integration does not exist
)

// completer is the name under which kubectl runs the plugin to complete a command line.
const completer = "kubectl_complete-tocsin"

// Main runs the plugin with its arguments, the program's name first, and returns the exit code.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends what hangs

	p := newPlugin(genericiooptions.IOStreams{In: stdin, Out: stdout, ErrOut: stderr})
	root := p.command()
	rest := args[1:]
	if strings.TrimSuffix(filepath.Base(args[0]), ".exe") == completer {
		rest = append([]string{cobra.ShellCompRequestCmd}, rest...)
	}
	root.SetArgs(rest)
	command, err := root.ExecuteContextC(ctx)
	var code exitError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &code):
		return int(code) // the command has said what there was to say
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		return exitFailure
	}
	_, _ = io.WriteString(stderr, explainError(usageError(command, err))+"\n")
	if missing := (missingError{}); errors.As(err, &missing) {
		return exitMissing
	}
	if command.Annotations[exitAnnotation] == exitByCheck {
		return exitCheck
	}
	return exitFailure
}

// exitError is an error that has been told to the user already, or is none.
type exitError int

func (exitError) Error() string { return "exit" }

// A command with this annotation exits with exitCheck on an error.
const (
	exitAnnotation = "exit"
	exitByCheck    = "check"
)

// plugin is what all commands share.
type plugin struct {
	genericiooptions.IOStreams
	config *genericclioptions.ConfigFlags
	color  string
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

// command makes the command tree.
func (p *plugin) command() *cobra.Command {
	root := &cobra.Command{
		Use:   "kubectl-tocsin",
		Short: "Show and handle incidents, and let senders of alerts in",
		Long: `Show and handle incidents, and let senders of alerts in.

Tocsin turns any alert webhook into an Incident, a resource of the cluster. Everything here is done through
the Kubernetes API with your own kubeconfig and your own rights.`,
		Example: example(`
# What is wrong, the worst first; -w goes on watching
kubectl tocsin get -A
kubectl tocsin get -A -w

# Let a sender in: the address is printed once
kubectl tocsin integration create monitoring --preset alertmanager

# Take an incident on, and end it
kubectl tocsin ack monitoring-qf4t --message "looking into it"
kubectl tocsin resolve monitoring-qf4t`),
		Annotations:       map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl tocsin"},
		Version:           buildinfo.Read().Version,
		SilenceErrors:     true,
		SilenceUsage:      true,
		DisableAutoGenTag: true,
		PersistentPreRun: func(command *cobra.Command, _ []string) {
			// What goes wrong is told by the commands; the client's own log is for whoever asks for it.
			if level := command.Flags().Lookup("v"); level != nil && level.Value.String() == "0" {
				klog.SetLogger(logr.Discard())
			}
			log.SetLogger(klog.Background()) // or it complains after half a minute that nobody did
		},
	}
	root.SetVersionTemplate(buildinfo.Line("kubectl-tocsin") + "\n")
	root.SetIn(p.In)
	root.SetOut(p.Out)
	root.SetErr(p.ErrOut)
	root.AddGroup(
		&cobra.Group{ID: groupIncidents, Title: "Incidents:"},
		&cobra.Group{ID: groupSenders, Title: "Senders:"},
	)
	for group, commands := range map[string][]*cobra.Command{
		groupIncidents: {
			p.getCommand(), p.watchCommand(), p.showCommand(), p.checkCommand(),
			p.ackCommand(), p.resolveCommand(), p.uiCommand(),
		},
		groupSenders: {p.integrationCommand(), p.tokenCommand(), p.sendCommand(), p.explainCommand()},
	} {
		for _, command := range commands {
			command.GroupID = group
			root.AddCommand(command)
		}
	}
	root.AddCommand(p.optionsCommand(), p.versionCommand())
	p.addGlobalFlags(root)
	tidyHelp(root)
	return root
}

const (
	groupIncidents = "incidents"
	groupSenders   = "senders"
)

// addGlobalFlags adds kubectl's flags for the cluster, and the few of our own.
func (p *plugin) addGlobalFlags(root *cobra.Command) {
	flags := root.PersistentFlags()
	p.config.AddFlags(flags)
	flags.StringVar(&p.color, "color", p.color,
		"Whether to use colours: auto (on a terminal, unless NO_COLOR is set), always or never.")
	verbosity := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(verbosity)
	if v := verbosity.Lookup("v"); v != nil {
		v.Usage = "How much to log of what goes on; 6 shows the requests to the API server."
		flags.AddGoFlag(v)
	}
	complete := func(name string, values completions) {
		// It fails only for a flag that does not exist.
		if err := root.RegisterFlagCompletionFunc(name, values); err != nil {
			panic(err)
		}
	}
	complete("namespace", p.completeNamespaces)
	complete("context", p.completeContexts)
	complete("color", cobra.FixedCompletions([]string{colorAuto, colorAlways, colorNever}, cobra.ShellCompDirectiveNoFileComp))
	root.SetUsageTemplate(usageTemplate)
}

// tidyHelp makes what cobra and cli-runtime say of their flags read like the rest.
func tidyHelp(command *cobra.Command) {
	command.InitDefaultHelpFlag()
	for name, usage := range map[string]string{
		"help":                        "Show this help.",
		"template":                    "The template, or the path of its file, for -o go-template and go-template-file.",
		"show-managed-fields":         "Print the managed fields too.",
		"allow-missing-template-keys": "A template may name what is not there.",
	} {
		if found := command.Flags().Lookup(name); found != nil {
			found.Usage = usage
		}
	}
	command.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Value.Type() == "stringToString" {
			f.DefValue = "" // not "[]"
		}
	})
	for _, child := range command.Commands() {
		tidyHelp(child)
	}
}

// parent makes a command that is there for its subcommands only.
func parent(command *cobra.Command, children ...*cobra.Command) *cobra.Command {
	command.Args = cobra.NoArgs // so that a mistyped subcommand is an error
	command.RunE = func(command *cobra.Command, _ []string) error { return command.Help() }
	command.AddCommand(children...)
	return command
}

// usageTemplate is cobra's, less the flags that every command has: those would bury the others. "kubectl
// tocsin options" lists them, as kubectl's own commands have it.
var usageTemplate = `Usage:{{if not .HasAvailableSubCommands}}
  {{.UseLine}}{{end}}{{if .HasAvailableSubCommands}}
  {{.CommandPath}} COMMAND{{end}}{{if gt (len .Aliases) 0}}

Aliases:
  {{.NameAndAliases}}{{end}}{{if .HasExample}}

Examples:
{{.Example}}{{end}}{{if .HasAvailableSubCommands}}{{$cmds := .Commands}}{{if eq (len .Groups) 0}}

Commands:{{range $cmds}}{{if .IsAvailableCommand}}
  {{rpad .Name .NamePadding }} {{.Short}}{{end}}{{end}}{{else}}{{range $group := .Groups}}

{{.Title}}{{range $cmds}}{{if (and (eq .GroupID $group.ID) .IsAvailableCommand)}}
  {{rpad .Name .NamePadding }} {{.Short}}{{end}}{{end}}{{end}}

Other commands:{{range $cmds}}{{if (and (eq .GroupID "") (or .IsAvailableCommand (eq .Name "help")))}}
  {{rpad .Name .NamePadding }} {{.Short}}{{end}}{{end}}{{end}}{{end}}{{if .HasAvailableLocalFlags}}{{if .HasParent}}

Flags:
{{.LocalNonPersistentFlags.FlagUsagesWrapped 110 | trimTrailingWhitespaces}}{{end}}{{end}}

{{if .HasAvailableSubCommands}}Use "{{.CommandPath}} COMMAND --help" for more about a command{{if not .HasParent}},
"{{.CommandPath}} options" for the flags that all commands have{{end}}.
{{else if .HasParent}}Use "{{.Root.CommandPath}} options" for the flags that all commands have.
{{end}}`

// example indents the lines of an example, as the help wants it.
func example(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for i, line := range lines {
		if line != "" {
			lines[i] = "  " + line
		}
	}
	return strings.Join(lines, "\n")
}
