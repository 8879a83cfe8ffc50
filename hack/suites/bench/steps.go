package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/google/pprof/profile"
)

// step is a part of the work of a process. A sample of a profile belongs to the first step of a list that a function of its
// stack matches.
type step struct {
	name     string
	function *regexp.Regexp
}

func steps(namesAndFunctions ...string) []step {
	var list []step
	for pair := range slices.Chunk(namesAndFunctions, 2) {
		list = append(list, step{pair[0], regexp.MustCompile(pair[1])})
	}
	return list
}

// processes are those whose processor time is measured.
var processes = [2]struct {
	name  string
	steps []step
}{{"manager", managerSteps}, {"kube-apiserver", apiServerSteps}}

// managerSteps are those of the manager, in the order of the path of an alert; what serves all steps comes first and last.
var managerSteps = steps(
	"garbage collection", `^runtime\.(gcBgMarkWorker|gcAssistAlloc|bgsweep|bgscavenge|gcStart|gcMarkDone)`,
	"scheduler", `^runtime\.(mcall|park_m|schedule|findRunnable|sysmon)$`,
	"read and map the body", `/webhookserver(\.\(\*?handler\)\.decode|/mapping|/payload)|\(\*Program\)`,
	"encode the AlertEvent", `/internal/queue\.Encode$`,
	"create the AlertEvent", `/webhookserver/commit\.`,
	"answer", `/webhookserver\.|^net/http\.\(\*(conn|Server|connReader)\)`,
	"decode the alerts", `/internal/queue\.Decode$`,
	"list AlertEvents", `/incident\.(listEvents|\(\*quorumList)`,
	"create the Incident", `/incident\.\(\*reconciler\)\.create\b`,
	"write the status", `/incident\.\(\*reconciler\)\.write\b`,
	"decide", `/controllers/fold\.`,
	"fold, the rest", `/controllers/incident\.`,
	"release", `/controllers/release\.`,
	"Kubernetes Events", `client-go/tools/events`,
	"watch", `client-go/tools/cache|client-go/rest/watch|apimachinery/pkg/watch|/internal/clustercache|/internal/queue`,
	"connections to the API server", `^net/http\.|golang\.org/x/net/http2|^crypto/tls`,
	"metrics", `prometheus`,
)

// apiServerSteps are those of the API server.
var apiServerSteps = steps(
	"garbage collection", `^runtime\.(gcBgMarkWorker|gcAssistAlloc|bgsweep|bgscavenge|gcStart|gcMarkDone)`,
	"scheduler", `^runtime\.(mcall|park_m|schedule|findRunnable|sysmon)$`,
	"managed fields", `apimachinery/pkg/util/managedfields|structured-merge-diff`,
	"validate by the schema", `apiextensions-apiserver/pkg/(apiserver/(validation|schema)|registry)`,
	"admission", `apiserver/pkg/admission`,
	"watch cache", `apiserver/pkg/storage/cacher`,
	"watches from etcd", `storage/etcd3\.\(\*watch`,
	"etcd", `storage/etcd3|go\.etcd\.io|google\.golang\.org/grpc`,
	"watches to clients", `endpoints/handlers\.(\(\*WatchServer\)|serveWatch|\(\*watch)`,
	"encode responses", `endpoints/handlers/responsewriters|transformResponseObject`,
	"decode requests", `apimachinery/pkg/runtime/serializer`,
	"handlers, the rest", `apiserver/pkg/(endpoints/handlers|registry)`,
	"authenticate, authorize, be fair",
	`apiserver/pkg/(endpoints/filters|server/filters|authentication|authorization|util/flowcontrol)`,
	"connections", `^net/http\.|golang\.org/x/net/http2|^crypto/tls`,
	"metrics", `prometheus|component-base/metrics`,
)

// share is the part of a profile's processor time that a step took.
type share struct {
	step string
	part float64
}

// byStep divides the processor time of a profile by steps. What belongs to none comes last.
func byStep(encoded string, list []step) ([]share, error) {
	p, err := profile.Parse(strings.NewReader(encoded))
	if err != nil {
		return nil, fmt.Errorf("reading a profile: %w", err)
	}
	spent := make([]int64, len(list)+1)
	var all int64
	for _, sample := range p.Sample {
		nanoseconds := sample.Value[len(sample.Value)-1]
		spent[stepOf(sample, list)] += nanoseconds
		all += nanoseconds
	}
	shares := make([]share, len(spent))
	for i, nanoseconds := range spent {
		shares[i] = share{"other", float64(nanoseconds) / float64(all)}
		if i < len(list) {
			shares[i].step = list[i].name
		}
	}
	return shares, nil
}

// stepOf returns the index of the step that a sample belongs to, or the length of the list.
func stepOf(sample *profile.Sample, list []step) int {
	for i := range list {
		for _, location := range sample.Location {
			for _, line := range location.Line {
				if list[i].function.MatchString(line.Function.Name) {
					return i
				}
			}
		}
	}
	return len(list)
}
