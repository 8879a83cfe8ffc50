package main

import (
	"fmt"
	"strings"
	"time"
)

// beginTable prints the head of a Markdown table.
func beginTable(titles ...string) {
	fmt.Printf("\n| %s |\n|%s\n", strings.Join(titles, " | "), strings.Repeat("---|", len(titles)))
}

// printRow prints a row of a Markdown table, times in seconds.
func printRow(cells ...any) {
	for _, cell := range cells {
		if d, ok := cell.(time.Duration); ok {
			cell = d.Seconds()
		}
		switch f, ok := cell.(float64); {
		case ok && f >= 100:
			fmt.Printf("| %.0f ", f)
		case ok:
			fmt.Printf("| %.2f ", f)
		default:
			fmt.Printf("| %v ", cell)
		}
	}
	fmt.Println("|")
}

func milliseconds(d time.Duration) float64 { return d.Seconds() * 1000 }
