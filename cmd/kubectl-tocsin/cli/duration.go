package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// days is a duration flag that also accepts a number of days, such as 7d.
type days struct{ *time.Duration }

// durationVar adds a duration flag without a default.
func durationVar(flags *pflag.FlagSet, value *time.Duration, name, usage string) {
	flags.Var(days{value}, name, usage)
}

// Set implements pflag.Value.
func (d days) Set(text string) (err error) {
	if number, found := strings.CutSuffix(text, "d"); found {
		var n int
		n, err = strconv.Atoi(number)
		*d.Duration = time.Duration(n) * 24 * time.Hour
	} else {
		*d.Duration, err = time.ParseDuration(text)
	}
	if err != nil || *d.Duration < 0 {
		return fmt.Errorf("%q is not a duration such as 90m, 12h or 7d", text)
	}
	return nil
}

// String implements pflag.Value. The help shows no default.
func (d days) String() string {
	if d.Duration == nil || *d.Duration == 0 {
		return ""
	}
	return d.Duration.String()
}

// Type implements pflag.Value.
func (d days) Type() string { return "duration" }
