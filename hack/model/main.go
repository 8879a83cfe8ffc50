// Model explores the states that the protocol of AlertEvents and Incidents can reach.
package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/tocsin-dev/tocsin/hack/lib/protocol"
)

func main() {
	most := flag.Int("states", 20_000_000, "largest number of states of a scope")
	only := flag.String("scope", "", "explore this scope only")
	broken := flag.String("break", "", "break this rule, to see how the protocol fails without it")
	long := flag.Bool("long", false, "explore the larger scopes as well, which takes minutes and gigabytes")
	flag.Parse()
	all := scopes
	if *long {
		all = append(all, longScopes...)
	}
	failed, explored := false, false
	for i := range all {
		c := &all[i]
		if *only != "" && c.name != *only {
			continue
		}
		explored = true
		var ok bool
		if c.broken, ok = ruleNamed(*broken); !ok {
			fmt.Fprintf(os.Stderr, "no rule %q\n", *broken)
			os.Exit(2)
		}
		failed = !report(c, *most) || failed
	}
	if failed || !explored {
		os.Exit(1)
	}
}

// report explores a scope, prints what it found and reports whether the invariants hold.
func report(c *scope, most int) bool {
	began := time.Now()
	found, err := c.explore(most)
	fmt.Printf("%s: %s, %s", c.name, &found, time.Since(began).Round(time.Millisecond))
	if err != nil {
		fmt.Printf(" (%v)", err)
	}
	fmt.Println()
	return err == nil && found.wrong == ""
}

// ruleNamed returns the rule of a name, none without a name.
func ruleNamed(name string) (rule protocol.Rule, ok bool) {
	if name == "" {
		return 0, true
	}
	n := slices.Index(protocol.RuleNames, name)
	return 1 << max(n, 0), n >= 0
}
