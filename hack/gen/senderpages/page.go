package main

import (
	"errors"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
)

// A page has one block with what kubectl prints, between these lines.
const (
	blockBegin = "```console incidents\n"
	blockEnd   = "```\n"
)

func pagePath(name string) string {
	return filepath.Join(testenv.Root(), "docs", "senders", name+".md")
}

// cut finds the block of a page.
func cut(page string) (before, block, after string, err error) {
	before, rest, found := strings.Cut(page, blockBegin)
	if !found {
		return "", "", "", errors.New("the page has no block of the kind console incidents")
	}
	block, after, found = strings.Cut(rest, "\n"+blockEnd)
	if !found {
		return "", "", "", errors.New("the block has no end")
	}
	return before + blockBegin, block + "\n", blockEnd + after, nil
}

// passing is what differs each time: times, ages, UIDs, and which events are released already.
var passing = []*regexp.Regexp{
	regexp.MustCompile(`(?ms)^  Ledger:\n.*?^    Resource Version: .*?$`),
	regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`),
	regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`),
	regexp.MustCompile(`(?m)^ *Resource Version: .*$`),
	regexp.MustCompile(`(?m) (\d+[dhms])+( |$)`),
}

// spaces line columns up, by the longest entry of each.
var spaces = regexp.MustCompile(` +`)

// masked is a block without what differs each time.
func masked(block string) string {
	for _, differing := range passing {
		block = differing.ReplaceAllString(block, "… ")
	}
	return spaces.ReplaceAllString(block, " ")
}
