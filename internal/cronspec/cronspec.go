// Package cronspec reads cron expressions with a time zone, as the schemas of the resources admit them.
package cronspec

import (
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // the names of time zones must not depend on the image

	"github.com/robfig/cron/v3"
	"k8s.io/utils/lru"
)

// parser reads what the schemas admit. An interval (@every) would count from whenever it is evaluated.
var parser = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)

// parsed are the latest schedules, by expression and time zone: each signal of a heartbeat asks for one, and to load a time zone
// takes longer than all else. All resources of the cluster have 16,000 at the most.
var parsed = lru.New(4096)

type outcome struct {
	schedule *cron.SpecSchedule
	err      error
}

// Parse returns a schedule in a time zone, UTC if it is empty. One that names no day that exists is an error.
func Parse(expression, zone string) (*cron.SpecSchedule, error) {
	key := [2]string{expression, zone}
	if known, ok := parsed.Get(key); ok {
		return known.(outcome).schedule, known.(outcome).err
	}
	schedule, err := parse(expression, zone)
	parsed.Add(key, outcome{schedule, err})
	return schedule, err
}

func parse(expression, zone string) (*cron.SpecSchedule, error) {
	location, err := time.LoadLocation(zone)
	if err != nil || zone == "Local" {
		return nil, fmt.Errorf("timeZone %q is not in the IANA database", zone)
	}
	if strings.Contains(expression, "=") { // of a time zone
		return nil, fmt.Errorf("%q is not a cron expression", expression)
	}
	read, err := parser.Parse(expression)
	if err != nil {
		return nil, fmt.Errorf("%q is not a cron expression: %w", expression, err)
	}
	schedule, ok := read.(*cron.SpecSchedule)
	if !ok {
		return nil, fmt.Errorf("%q is not a cron expression", expression)
	}
	schedule.Location = location
	if schedule.Next(time.Date(2024, time.January, 1, 0, 0, 0, 0, time.UTC)).IsZero() { // a leap year
		return nil, fmt.Errorf("cron expression %q names no day that exists", expression)
	}
	return schedule, nil
}
