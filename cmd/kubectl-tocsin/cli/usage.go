package cli

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
)

var (
	wrongCount  = regexp.MustCompile(`^(?:accepts (\d+)|requires at least (\d+)) arg\(s\), (?:only )?received (\d+)$`)
	missingFlag = regexp.MustCompile(`^required flag\(s\) "([^"]+)" not set$`)
)

// usageError says in a sentence what cobra says of a command line in its own words.
func usageError(command *cobra.Command, err error) error {
	if match := missingFlag.FindStringSubmatch(err.Error()); match != nil {
		return fmt.Errorf("--%s is required", match[1])
	}
	match := wrongCount.FindStringSubmatch(err.Error())
	if match == nil {
		return err
	}
	return fmt.Errorf("%s takes %s, and got %s; see %s --help", command.CommandPath(),
		strings.TrimPrefix(command.Use, command.Name()+" "), match[3], command.CommandPath())
}

// oneName validates that there is exactly one name of something.
func oneName(of string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return errors.New("requires exactly one " + of + " name")
		}
		return nil
	}
}
