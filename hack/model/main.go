// Model explores the states that the protocol of AlertEvents and Incidents can reach.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"
)

func main() {
	most := flag.Int("states", 20_000_000, "most states of a scope")
	only := flag.String("scope", "", "explore this scope only")
	broken := flag.String("break", "", "break this rule")
	flag.Parse()
	failed := false
	for _, c := range scopes() {
		if *only != "" && c.name != *only {
			continue
		}
		for _, r := range ruleNames {
			if r.name == *broken {
				c.broken = r.rule
			}
		}
		began := time.Now()
		found, err := c.explore(*most)
		fmt.Printf("%s: %s, %s", c.name, &found, time.Since(began).Round(time.Millisecond))
		if err != nil {
			fmt.Printf(" (%v)", err)
		}
		fmt.Println()
		failed = failed || found.wrong != ""
	}
	if failed {
		os.Exit(1)
	}
}
