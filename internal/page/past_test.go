package page

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

func TestHistoryHasTheNewestEpisodesAndOfThemWhatThePageShows(t *testing.T) {
	g := NewWithT(t)
	begin := time.Now().Add(-2 * time.Hour)
	var objects []client.Object
	for i := range maxEpisodes + 5 {
		opened, at := v1alpha1.NewTimestamp(begin), v1alpha1.NewTimestamp(begin.Add(time.Duration(i)*time.Second))
		incident := incidentNamed("shop", fmt.Sprint("i", i))
		incident.Status.State, incident.Status.ResolvedTime = v1alpha1.IncidentResolved, &at
		incident.Status.Episode = &v1alpha1.Episode{Number: 1, StartTime: opened, AlertCount: 1}
		incident.Status.Alert.Description = strings.Repeat("d", maxDescription+1)
		objects = append(objects, incident)
	}
	s, _ := start(t, "", objects...)
	decoder, found, last := json.NewDecoder(s.get(t, "api/history?days=1", nil).Body), 0, pastMessage{}
	for !last.Done {
		last = pastMessage{}
		g.Expect(decoder.Decode(&last)).To(Succeed())
		for _, episode := range last.Episodes {
			g.Expect(episode.Incident).To(Equal(fmt.Sprint("i", maxEpisodes+4-found)), "the newest first")
			g.Expect(episode.Alert).To(Equal(v1alpha1.AlertContent{
				Title: "Title of " + episode.Incident, Description: strings.Repeat("d", maxDescription),
			}))
			found++
		}
	}
	g.Expect(found).To(Equal(maxEpisodes))
	g.Expect(last.More).To(BeTrue())
}
