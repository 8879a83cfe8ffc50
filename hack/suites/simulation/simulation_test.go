// math/rand.Seed has an effect only with this setting.
//
//go:debug randseednop=0

package simulation

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	klog.SetOutput(io.Discard)
	os.Exit(m.Run())
}

// TestCalm plays a story without faults.
func TestCalm(t *testing.T) {
	g := NewWithT(t)
	story := &Story{
		Settings: Settings{Replicas: 2, Elect: true, Writes: 8},
		Operations: []operation{
			post{tenant: 0, to: 0, times: 1, alerts: []alert{{key: 1, status: "firing", severity: "error"}, {key: 2, status: "firing"}}},
			wait{time.Second},
			post{tenant: 0, to: 1, times: 1, alerts: []alert{{key: 1, status: "resolved"}}},
			burst{tenant: 1, count: 50, keys: 3, over: 5 * time.Second, salt: 7},
			wait{5 * time.Second},
		},
	}
	var said []string
	var tally Tally
	found := Run(t, 1, story, Watcher{Say: func(line string) { said = append(said, line) }, Done: func(t Tally) { tally = t }})
	fmt.Printf("%+v\n", tally)
	if len(found) > 0 || os.Getenv("VERBOSE") != "" {
		t.Log(strings.Join(said, "\n"))
	}
	g.Expect(found).To(BeEmpty())
	g.Expect(tally.Posts).To(Equal(52))
	g.Expect(tally.Acknowledged).To(Equal(52))
}

// TestSimulate plays the stories of new seeds for SIMULATE, or the one of SEED.
func TestSimulate(t *testing.T) {
	g := NewWithT(t)
	if text := os.Getenv("SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		g.Expect(err).NotTo(HaveOccurred())
		var watcher Watcher
		if os.Getenv("VERBOSE") != "" {
			watcher.Say = func(line string) { fmt.Println(line) }
		}
		if path := os.Getenv("TRACE"); path != "" {
			var mu sync.Mutex
			var calls []string
			watcher.Trace = func(call string) {
				mu.Lock()
				defer mu.Unlock()
				calls = append(calls, call)
			}
			defer func() { g.Expect(os.WriteFile(path, []byte(strings.Join(calls, "\n")), 0o600)).To(Succeed()) }()
		}
		shortest, original := explore(t, seed, os.Getenv("SHRINK") != "", watcher)
		if os.Getenv("STORY") != "" {
			fmt.Println(drawn(seed))
		}
		if original != nil {
			t.Errorf("%s\n\nshortened:\n%s", original, shortest)
		}
		return
	}
	limit, err := time.ParseDuration(cmp.Or(os.Getenv("SIMULATE"), "5s"))
	g.Expect(err).NotTo(HaveOccurred())
	began, first, runs, failed := time.Now(), uint64(time.Now().UnixNano()), 0, 0
	if text := os.Getenv("FIRST_SEED"); text != "" {
		first, err = strconv.ParseUint(text, 10, 64)
		g.Expect(err).NotTo(HaveOccurred())
	}
	var total Tally
	for seed := first; time.Since(began) < limit; seed++ {
		_, original := explore(t, seed, false, Watcher{Done: func(t Tally) {
			total.Posts += t.Posts
			total.Acknowledged += t.Acknowledged
			total.Commits += t.Commits
			total.Simulated += t.Simulated
		}})
		runs++
		if original != nil {
			failed++
			fmt.Printf("%s\n", original)
		}
	}
	fmt.Printf("%d runs, %d failed, %s, %+v\n", runs, failed, time.Since(began), total)
}
