package plugin

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/controllers/fold"
	"github.com/tocsin-dev/tocsin/internal/records"
)

// stuckArchive is an S3 server with an object for each of the last three days. The second one comes slowly, so that the
// plugin shows its progress, and the third one never.
func stuckArchive(t *testing.T) (url string) {
	t.Helper()
	g := NewWithT(t)
	contents := map[string][]byte{}
	type object struct {
		Key          string
		Size         int
		LastModified time.Time
	}
	var list struct {
		XMLName  xml.Name `xml:"ListBucketResult"`
		Contents []object
	}
	var keys []string
	for age := 1; age <= 3; age++ {
		ended := v1alpha1.NewTimestamp(time.Now().AddDate(0, 0, -age))
		var content bytes.Buffer
		g.Expect(records.Encode(&content, []records.Record{{
			Namespace: "shop", Incident: fmt.Sprint("incident-", age), UID: fmt.Sprint(age),
			EndedEpisode: fold.EndedEpisode{
				Number: 1, OpenedTime: ended, ResolvedTime: ended, Alert: v1alpha1.AlertContent{Title: fmt.Sprint("Episode ", age)},
			},
		}})).To(Succeed())
		key := "v1/day=" + records.Day(ended.Time) + "/0.ndjson.gz"
		keys, contents[key] = append(keys, key), content.Bytes()
		list.Contents = append(list.Contents, object{key, content.Len(), ended.Time})
	}
	const slow = 1500 * time.Millisecond // longer than a read takes before its progress is shown
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := strings.TrimPrefix(r.URL.Path, "/incidents/")
		switch key {
		case keys[1]:
			time.Sleep(slow)
		case keys[2]:
			<-r.Context().Done()
			return
		case keys[0]:
		default:
			listed := list
			listed.Contents = slices.DeleteFunc(slices.Clone(list.Contents), func(o object) bool {
				return !strings.HasPrefix(o.Key, r.URL.Query().Get("prefix"))
			})
			_ = xml.NewEncoder(w).Encode(listed)
			return
		}
		w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
		_, _ = w.Write(contents[key])
	}))
	t.Cleanup(server.Close)
	t.Setenv("AWS_ACCESS_KEY_ID", "id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	return "s3://incidents?region=us-east-1&use_path_style=true&endpoint=" + server.URL
}

const interrupted = "Interrupted before all episodes were read."

func TestALongReadShowsItsProgressOnATerminalAndCanBeInterrupted(t *testing.T) {
	url := stuckArchive(t)
	for _, command := range []string{"history", "report"} {
		t.Run(command, func(t *testing.T) {
			g := NewWithT(t)
			term := atTerminal(t, "shop", nil, 100, 12, command, "--archive-only", "--archive", url)
			screen := func() string { return strings.Join(term.lines(), "\n") }
			g.Eventually(screen, awaitTimeout).Should(MatchRegexp(`█+░+ +\d+%: .* MiB in 2 objects$`))
			g.Expect(term.press("\x03")).To(Succeed())
			g.Expect(term.wait()).To(Equal(1))
			g.Expect(screen()).To(And(HaveSuffix(interrupted), Not(ContainSubstring("objects"))))
		})
	}
}

func TestALongReadShowsNoProgressElsewhere(t *testing.T) {
	g := NewWithT(t)
	command := exec.CommandContext(t.Context(), "kubectl-tocsin", "history", "-A", "--archive-only", "--archive", stuckArchive(t))
	output, problems := gbytes.NewBuffer(), gbytes.NewBuffer()
	command.Stdout, command.Stderr = output, problems
	g.Expect(command.Start()).To(Succeed())
	g.Eventually(output, awaitTimeout).Should(gbytes.Say("Episode 1")) // the second object was read
	g.Expect(command.Process.Signal(os.Interrupt)).To(Succeed())
	g.Expect(command.Wait()).NotTo(Succeed())
	g.Expect(string(problems.Contents())).To(Equal(interrupted + "\n"))
}

func TestAnInterruptAtTheQuestionChangesNothing(t *testing.T) {
	g := NewWithT(t)
	b := newBoard(t)
	b.open(t, "disk", "critical", time.Minute, "Disk full")
	term := atTerminal(t, b.namespace, nil, 100, 12, "ack", "--all")
	screen := func() string { return strings.Join(term.lines(), "\n") }
	g.Eventually(screen, awaitTimeout).Should(HaveSuffix("Acknowledge 1 incident? [y/N]"))
	g.Expect(term.press("\x03")).To(Succeed())
	g.Expect(term.wait()).To(Equal(1))
	g.Expect(screen()).To(HaveSuffix("Interrupted, nothing was changed."))
}
