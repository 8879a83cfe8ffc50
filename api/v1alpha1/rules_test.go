package v1alpha1_test

import (
	"context"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/hack/lib/testenv"
	"github.com/tocsin-dev/tocsin/internal/tokens"
)

// admission is a spec as JSON, and what the API server says of it: "" when it accepts.
type admission struct{ spec, message string }

func checkAdmission(t *testing.T, kind string, tests map[string]admission) {
	t.Helper()
	namespace := testenv.Namespace(t, apiClient)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, err := postText(namespace, kind, test.spec)
			if test.message == "" {
				g.Expect(err).NotTo(HaveOccurred())
				return
			}
			g.Expect(err).To(MatchError(ContainSubstring(test.message)))
		})
	}
}

func TestWebhookIntegrationAdmission(t *testing.T) {
	hash := tokens.Hash("a token")
	const (
		autoResolve = "must be a duration from 1m to 87600h, such as 1h30m"
		retention   = "must be a duration from 0s to 87600h, such as 168h"
		lateFiring  = "must be a duration from 0s to 24h, such as 30s"
	)
	checkAdmission(t, "WebhookIntegration", map[string]admission{
		"the least": {`{}`, ""},
		"one token": {`{"tokens":[{"name":"a","sha256":"` + hash + `"}]}`, ""},
		"two tokens of one name": {
			`{"tokens":[{"name":"a","sha256":"` + hash + `"},{"name":"a","sha256":"` + hash + `"}]}`, "Duplicate value"},
		"a token instead of its hash": {
			`{"tokens":[{"name":"a","sha256":"` + strings.Repeat("Z", 64) + `"}]}`, "should match '^[0-9a-f]{64}$'"},
		"a hash in capitals": {
			`{"tokens":[{"name":"a","sha256":"` + strings.ToUpper(hash) + `"}]}`, "should match '^[0-9a-f]{64}$'"},
		"the hash of an empty text": {
			`{"tokens":[{"name":"a","sha256":"` + tokens.Hash("") + `"}]}`, "is the hash of an empty text"},
		"a token in the clear": {
			`{"tokens":[{"name":"a","sha256":"` + hash + `","token":"secret"}]}`, `unknown field "spec.tokens[0].token"`},
		"a field that does not exist":     {`{"suspended":true}`, `unknown field "spec.suspended"`},
		"a preset":                        {`{"preset":"alertmanager"}`, ""},
		"the preset auto":                 {`{"preset":"auto"}`, ""},
		"the preset none":                 {`{"preset":"none"}`, ""},
		"a mistyped preset":               {`{"preset":"alertmanger"}`, `Unsupported value: "alertmanger"`},
		"autoResolveAfter 1m":             {`{"autoResolveAfter":"1m"}`, ""},
		"lateFiringWindow 0s":             {`{"lateFiringWindow":"0s"}`, ""},
		"lateFiringWindow 24h":            {`{"lateFiringWindow":"24h"}`, ""},
		"lateFiringWindow over a day":     {`{"lateFiringWindow":"24h1s"}`, lateFiring},
		"autoResolveAfter 1h30m":          {`{"autoResolveAfter":"1h30m"}`, ""},
		"autoResolveAfter 87600h":         {`{"autoResolveAfter":"87600h"}`, ""},
		"autoResolveAfter below a minute": {`{"autoResolveAfter":"59.999s"}`, autoResolve},
		"autoResolveAfter over ten years": {`{"autoResolveAfter":"87600h1s"}`, autoResolve},
		"autoResolveAfter in days":        {`{"autoResolveAfter":"1d"}`, autoResolve},
		"autoResolveAfter that overflows": {`{"autoResolveAfter":"99999999999h"}`, autoResolve},
		"autoResolveAfter negative":       {`{"autoResolveAfter":"-1h"}`, autoResolve},
		"autoResolveAfter a number":       {`{"autoResolveAfter":3600}`, "must be of type string"},
		"retention 0s":                    {`{"retention":"0s"}`, ""},
		"retention negative":              {`{"retention":"-1s"}`, "spec.retention in body should match"},
		"retention in days":               {`{"retention":"7d"}`, retention},
		"retention over ten years":        {`{"retention":"87601h"}`, retention},
		"retention that overflows":        {`{"retention":"2562048h"}`, retention},
		"forwardAfter by severity":        {`{"forwardAfter":{"default":"2m","critical":"0s"}}`, ""},
		"forwardAfter of a day":           {`{"forwardAfter":{"info":"24h"}}`, ""},
		"forwardAfter over a day":         {`{"forwardAfter":{"info":"24h1s"}}`, "must be a duration from 0s to 24h, such as 2m"},
		"forwardAfter negative":           {`{"forwardAfter":{"default":"-2m"}}`, "spec.forwardAfter.default in body should match"},
		"forwardAfter of an unknown severity": {
			`{"forwardAfter":{"fatal":"0s"}}`, `unknown field "spec.forwardAfter.fatal"`},
		"forwardAfter without a time": {`{"forwardAfter":{}}`, "should have at least 1 properties"},
		"flapping": {
			`{"flapping":{"openings":20,"period":"24h","keepFiringFor":"1m"}}`, ""},
		"flapping without a number":                       {`{"flapping":{}}`, "should have at least 1 properties"},
		"flapping after no opening":                       {`{"flapping":{"openings":0}}`, "should be greater than or equal to 1"},
		"flapping after too many openings":                {`{"flapping":{"openings":21}}`, "should be less than or equal to 20"},
		"flapping after half an opening":                  {`{"flapping":{"openings":1.5}}`, "must be of type integer"},
		"flapping in a moment":                            {`{"flapping":{"period":"59s"}}`, "must be a duration from 1m to 24h, such as 1h"},
		"flapping in days":                                {`{"flapping":{"period":"24h1s"}}`, "must be a duration from 1m to 24h, such as 1h"},
		"an end that is kept back for a moment":           {`{"flapping":{"keepFiringFor":"0s"}}`, "must be a duration from 1m to 24h, such as 10m"},
		"an end that is kept back for days":               {`{"flapping":{"keepFiringFor":"25h"}}`, "must be a duration from 1m to 24h, such as 10m"},
		"an acknowledgement that expires":                 {`{"acknowledgementExpiresAfter":"4h"}`, ""},
		"an acknowledgement that expires within a minute": {`{"acknowledgementExpiresAfter":"59s"}`, "must be a duration from 1m to 720h"},
		"an acknowledgement that expires after 30 days":   {`{"acknowledgementExpiresAfter":"721h"}`, "must be a duration from 1m to 720h"},
		"requests that are captured":                      {`{"capture":{"payloads":100}}`, ""},
		"too many requests that are captured":             {`{"capture":{"payloads":101}}`, "should be less than or equal to 100"},
		"no requests that are captured":                   {`{"capture":{"payloads":0}}`, "should be greater than or equal to 1"},
		"a capture without a number":                      {`{"capture":{}}`, "spec.capture.payloads: Required value"},
		"labels of Incidents":                             {`{"objectLabels":["team","app.kubernetes.io","X_1"]}`, ""},
		"a label of Incidents twice":                      {`{"objectLabels":["a","a"]}`, "Duplicate value"},
		"a label that objects cannot have":                {`{"objectLabels":["__name__"]}`, "should match"},
		"a label with a prefix":                           {`{"objectLabels":["example.com/team"]}`, "should match"},
		"a label without a name":                          {`{"objectLabels":[""]}`, "at least 1 chars long"},
		"a label with a long name":                        {`{"objectLabels":["` + strings.Repeat("a", 64) + `"]}`, "spec.objectLabels[0]: Too long: may not be"},
		"too many labels":                                 {`{"objectLabels":["` + strings.Join(strings.Split("abcdefghijklmnopq", ""), `","`) + `"]}`, "must have at most 16 items"},
		"federate":                                        {`{"federate":true}`, ""},
		"federate with a mapping, which may lose the number of hops": {
			`{"federate":true,"mapping":{"drop":"false"}}`, "federate and mapping exclude each other"},
		"no federate, which is the default": {`{"federate":false,"mapping":{"drop":"false"}}`, ""},
		"an unknown default severity": {
			`{"defaults":{"severity":"fatal"}}`, `supported values: "critical", "error", "warning", "info"`},
		"a default label without a name": {`{"defaults":{"labels":{"":"x"}}}`, "a label's name has 1 to 128 characters"},
		"a default label with a long name": {
			`{"defaults":{"labels":{"` + strings.Repeat("a", 129) + `":"x"}}}`, "a label's name has 1 to 128 characters"},
		"a default label that is no string": {`{"defaults":{"labels":{"a":1}}}`, "must be of type string"},
		"defaults that are null":            {`{"defaults":null,"retention":null,"tokens":null}`, ""},
	})
}

func TestHeartbeatAdmission(t *testing.T) {
	beat := func(fields string) string { return `{"integrationName":"jobs",` + fields + `}` }
	every := func(fields string) string { return beat(`"every":"5m"` + fields) }
	const (
		oneForm = "a heartbeat has either every or schedule"
		match   = "match has either dedupKey or anyRequest: true"
	)
	checkAdmission(t, "Heartbeat", map[string]admission{
		"pings":                  {every(``), ""},
		"30 days":                {beat(`"every":"720h","grace":"10s","required":true`), ""},
		"a schedule":             {beat(`"schedule":{"cron":"0 3 * * Mon-Fri","timeZone":"Europe/Berlin"},"maxDuration":"2h"`), ""},
		"a descriptor":           {beat(`"schedule":{"cron":"@daily"}`), ""},
		"neither":                {beat(`"grace":"1m"`), oneForm},
		"both":                   {every(`,"schedule":{"cron":"@daily"}`), oneForm},
		"no integration":         {`{"every":"5m"}`, "spec.integrationName: Required value"},
		"an impossible one":      {`{"integrationName":"No Name","every":"5m"}`, "spec.integrationName in body should match"},
		"an alert":               {every(`,"match":{"dedupKey":"x"}`), ""},
		"an alert, no request":   {every(`,"match":{"dedupKey":"x","anyRequest":false}`), ""},
		"any request":            {every(`,"match":{"anyRequest":true}`), ""},
		"both matches":           {every(`,"match":{"dedupKey":"x","anyRequest":true}`), match},
		"an empty match":         {every(`,"match":{}`), match},
		"no match":               {every(`,"match":{"anyRequest":false}`), match},
		"less than a minute":     {beat(`"every":"59s"`), "must be a duration from 1m to 720h"},
		"over 30 days":           {beat(`"every":"721h"`), "must be a duration from 1m to 720h"},
		"no grace":               {every(`,"grace":"0s"`), "must be a duration from 10s to 720h"},
		"a duration of nothing":  {every(`,"maxDuration":"59s"`), "must be a duration from 1m to 720h"},
		"an interval":            {beat(`"schedule":{"cron":"@every 1h"}`), "should match"},
		"a zone in the schedule": {beat(`"schedule":{"cron":"TZ=UTC 2 * * *"}`), "should match"},
		"an Incident":            {every(`,"incident":{"severity":"error","title":"No backup","labels":{"a":"b"},"runbook":"https://x.example.com/"}`), ""},
		"a label without a name": {every(`,"incident":{"labels":{"":"b"}}`), "a label's name has 1 to 128 characters"},
		"a runbook of a script":  {every(`,"incident":{"runbook":"javascript:alert(1)"}`), "spec.incident.runbook in body should match"},
		"a severity of others":   {every(`,"incident":{"severity":"fatal"}`), "Unsupported value"},
		"a suspended one":        {every(`,"suspend":true`), ""},
	})
	g := NewWithT(t)
	namespace := testenv.Namespace(t, apiClient)
	created, err := postText(namespace, "Heartbeat", every(``))
	g.Expect(err).NotTo(HaveOccurred())
	h := &v1alpha1.Heartbeat{}
	g.Expect(apiClient.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: nameOf(created)}, h)).To(Succeed())
	h.Spec.IntegrationName = "other"
	g.Expect(apiClient.Update(t.Context(), h)).To(MatchError(ContainSubstring("integrationName cannot be changed")))
}

func TestMaintenanceWindowAdmission(t *testing.T) {
	const (
		once      = `"once":{"startTime":"2026-05-09T20:00:00Z","endTime":"2026-05-09T23:00:00Z"}`
		daily     = `"recurring":{"cron":"@daily","duration":"1h"}`
		oneForm   = "a window has either once or recurring"
		unknown   = "must validate one and only one schema (oneOf)"
		mostOne   = "must have at most 1 item"
		selection = "integrations has either names or a selector"
	)
	opens := func(start, end string) string {
		return `{"once":{"startTime":"` + start + `","endTime":"` + end + `"}}`
	}
	recurs := func(fields string) string { return `{"recurring":{` + fields + `}}` }
	match := func(fields string) string { return `{` + daily + `,"match":{` + fields + `}}` }
	of := func(fields string) string { return `{` + daily + `,"integrations":{` + fields + `}}` }
	checkAdmission(t, "MaintenanceWindow", map[string]admission{
		"open once":                           {`{` + once + `}`, ""},
		"in two time zones":                   {opens("2026-05-09T20:00:00Z", "2026-05-09T23:00:00+02:00"), ""},
		"31 days":                             {opens("2026-05-01T00:00:00Z", "2026-06-01T00:00:00Z"), ""},
		"more than 31 days":                   {opens("2026-05-01T00:00:00Z", "2026-06-01T00:00:01Z"), "at most 744h"},
		"the end at the start":                {opens("2026-05-09T20:00:00Z", "2026-05-09T22:00:00+02:00"), "endTime must be after startTime"},
		"no end":                              {`{"once":{"startTime":"2026-05-09T20:00:00Z"}}`, "spec.once.endTime: Required value"},
		"again and again":                     {recurs(`"cron":"30 2 1-7 JAN,feb Mon-Fri","duration":"168h","timeZone":"America/Port-au-Prince"`), ""},
		"a descriptor":                        {recurs(`"cron":"@daily","duration":"1m"`), ""},
		"neither":                             {`{"comment":"soon"}`, oneForm},
		"both":                                {`{` + once + `,` + daily + `}`, oneForm},
		"no duration":                         {recurs(`"cron":"@daily"`), "spec.recurring.duration: Required value"},
		"a skip of the only opening":          {`{"once":{"startTime":"2026-05-09T20:00:00Z","endTime":"2026-05-09T23:00:00Z","skipUntil":"2026-05-09T21:00:00Z"}}`, `unknown field "spec.once.skipUntil"`},
		"seconds":                             {recurs(`"cron":"0 0 2 * * *","duration":"1h"`), "should match"},
		"an interval":                         {recurs(`"cron":"@every 1h","duration":"1h"`), "should match"},
		"a time zone in the cron expression":  {recurs(`"cron":"TZ=UTC 2 * * *","duration":"1h"`), "should match"},
		"less than a minute":                  {recurs(`"cron":"@daily","duration":"59s"`), "must be a duration from 1m to 168h"},
		"more than a week":                    {recurs(`"cron":"@daily","duration":"168h1s"`), "must be a duration from 1m to 168h"},
		"a path as a time zone":               {recurs(`"cron":"@daily","duration":"1h","timeZone":"../UTC"`), "should match"},
		"a match":                             {match(`"severities":["info"],"labels":{"a":"b"}`), ""},
		"a match of severities":               {match(`"severities":["info"]`), ""},
		"an empty match":                      {match(``), "should have at least 1 properties"},
		"no severity":                         {match(`"severities":[]`), "should have at least 1 items"},
		"no label":                            {match(`"labels":{}`), "should have at least 1 properties"},
		"a label without a name":              {match(`"labels":{"":"b"}`), "a label's name has 1 to 128 characters"},
		"a mistyped match":                    {match(`"severity":["info"]`), unknown},
		"a mistyped match beside a right one": {match(`"severities":["info"],"label":{"a":"b"}`), unknown},
		"a match with a key more":             {match(`"severities":["info"],"labels":{"a":"b"},"titles":["x"]`), unknown},
		"a mistyped field":                    {`{` + daily + `,"mach":{"severities":["info"]}}`, `unknown field "spec.mach"`},
		"names":                               {of(`"names":["a","b"]`), ""},
		"no name":                             {of(`"names":[]`), "should have at least 1 items"},
		"a name twice":                        {of(`"names":["a","a"]`), "Duplicate value"},
		"a selector":                          {of(`"selector":{"matchLabels":{"team":"storage"}}`), ""},
		"names and a selector":                {of(`"names":["a"],"selector":{"matchLabels":{"team":"storage"}}`), mostOne},
		"no integrations":                     {of(``), selection},
		"mistyped names":                      {of(`"name":["a"]`), selection},
		"mistyped names beside right ones":    {of(`"names":["a"],"name":["b"]`), mostOne},
		"an empty selector":                   {of(`"selector":{}`), "spec.integrations.selector.matchLabels: Required value"},
		"a selector without a label":          {of(`"selector":{"matchLabels":{}}`), "should have at least 1 properties"},
		"a selector of another kind":          {of(`"selector":{"matchLabels":{"a":"b"},"matchExpressions":[]}`), mostOne},
	})
	g := NewWithT(t)
	o := with("MaintenanceWindow", parse(t, `{`+once+`}`))
	o["metadata"] = object{"name": strings.Repeat("a", 64)}
	_, err := post(testenv.Namespace(t, apiClient), o)
	g.Expect(err).To(MatchError(ContainSubstring("the name may have at most 63 characters")))
}

func TestANamespaceHasOneSummary(t *testing.T) {
	g := NewWithT(t)
	namespace := testenv.Namespace(t, apiClient)
	o := without(full(t, "incidentsummary.yaml"), "status")
	_, err := post(namespace, o)
	g.Expect(err).NotTo(HaveOccurred())
	o["metadata"] = object{"name": "other"}
	_, err = post(namespace, o)
	g.Expect(err).To(MatchError(ContainSubstring("the name must be current")))
	o["spec"] = object{}
	_, err = post(namespace, o)
	g.Expect(err).To(MatchError(ContainSubstring(`unknown field "spec"`)))
}

func TestWebhookIntegrationName(t *testing.T) {
	g := NewWithT(t)
	namespace := testenv.Namespace(t, apiClient)
	named := func(name string) error {
		o := with("WebhookIntegration", object{})
		o["metadata"] = object{"name": name}
		_, err := post(namespace, o)
		return err
	}
	g.Expect(named(strings.Repeat("a", 63))).To(Succeed())
	g.Expect(named(strings.Repeat("a", 64))).To(MatchError(ContainSubstring("the name may have at most 63 characters")))
}

func TestAlertEventAdmission(t *testing.T) {
	const needsIntegration = "integrationName is needed for alerts, and for a report that fires or has no incidentName"
	report := func(fields string) string { return `{"integrationName":"a","report":{` + fields + `}}` }
	ofIncident := func(fields string) string { return `{"report":{"incidentName":"a",` + fields + `}}` }
	checkAdmission(t, "AlertEvent", map[string]admission{
		"a report that resolves":            {ofIncident(`"status":"resolved"`), ""},
		"a report that acknowledges":        {ofIncident(`"status":"acknowledged"`), ""},
		"a note":                            {ofIncident(`"status":"noted","by":"maria","comment":"a disk is ordered"`), ""},
		"a report with dedupKey":            {report(`"status":"resolved","dedupKey":"k"`), ""},
		"a report that fires":               {report(`"status":"firing","dedupKey":"k"`), ""},
		"firing without a dedupKey":         {ofIncident(`"status":"firing"`), "a report with status firing needs dedupKey"},
		"firing without an integration":     {ofIncident(`"status":"firing","dedupKey":"k"`), needsIntegration},
		"a dedupKey without an integration": {`{"report":{"status":"resolved","dedupKey":"k"}}`, needsIntegration},
		"alerts without an integration":     {`{"alerts":"[]"}`, needsIntegration},
		"neither incidentName nor dedupKey": {report(`"status":"resolved"`), "a report needs incidentName or dedupKey"},
		"no status":                         {`{"report":{"incidentName":"a-b"}}`, "spec.report.status: Required value"},
		"a status of another tool":          {ofIncident(`"status":"ok"`), `supported values: "firing", "resolved", "acknowledged", "unacknowledged", "noted", "silenced", "assigned", "unassigned"`},
		"a silence":                         {ofIncident(`"status":"silenced","silenceFor":"1h30m"`), ""},
		"the end of a silence":              {ofIncident(`"status":"silenced","silenceFor":"0s"`), ""},
		"a silence without an end":          {ofIncident(`"status":"silenced"`), "needs silenceFor"},
		"a silence of over 30 days":         {ofIncident(`"status":"silenced","silenceFor":"721h"`), "must be a duration from 0s to 720h"},
		"a silence that overflows":          {ofIncident(`"status":"silenced","silenceFor":"99999999999h"`), "must be a duration from 0s to 720h"},
		"an acknowledgement for a while":    {ofIncident(`"status":"acknowledged","acknowledgeFor":"2h"`), ""},
		"an acknowledgement for a moment":   {ofIncident(`"status":"acknowledged","acknowledgeFor":"1s"`), "must be a duration from 1m to 720h"},
		"an acknowledgement for months":     {ofIncident(`"status":"acknowledged","acknowledgeFor":"721h"`), "must be a duration from 1m to 720h"},
		"an assignment":                     {ofIncident(`"status":"assigned","assignee":"maria"`), ""},
		"an assignment to nobody":           {ofIncident(`"status":"assigned"`), "a report with status assigned needs assignee"},
		"an assignment to an empty name":    {ofIncident(`"status":"assigned","assignee":""`), "spec.report.assignee in body should be at least 1 chars long"},
		"an assignment to a long name":      {ofIncident(`"status":"assigned","assignee":"` + strings.Repeat("a", 257) + `"`), "spec.report.assignee: Too long: may not be"},
		"the end of an assignment":          {ofIncident(`"status":"unassigned"`), ""},
		"a silence that is negative":        {ofIncident(`"status":"silenced","silenceFor":"-1h"`), "should match"},
		"a report that is null":             {`{"report":null}`, "either alerts or a report"},
		"a misspelt field":                  {ofIncident(`"status":"resolved","coment":"x"`), `unknown field "spec.report.coment"`},
		"content in a report":               {ofIncident(`"status":"noted","title":"x"`), `unknown field "spec.report.title"`},
		"an impossible Incident":            {`{"report":{"status":"resolved","incidentName":"../secrets"}}`, "spec.report.incidentName in body should match"},
		"an impossible integration":         {`{"integrationName":"No Name","alerts":"[]"}`, "spec.integrationName in body should match"},
		"alerts":                            {`{"integrationName":"a","alerts":"[{\"status\":\"firing\",\"dedupKey\":\"k\"}]"}`, ""},
		"alerts as fields, not as a text":   {`{"integrationName":"a","alerts":[{"status":"firing","dedupKey":"k"}]}`, `unknown field "spec.alerts[0].dedupKey"`},
		"a text that is no array":           {`{"integrationName":"a","alerts":"status: firing"}`, "which begins with ["},
		"an encoding that does not exist":   {`{"integrationName":"a","alerts":"[]","encoding":"zstd"}`, `supported values: "gzip"`},
		"defaults that are null":            {`{"integrationName":"a","defaults":null,"alerts":"[]"}`, ""},
		"a text of a mebibyte":              {`{"integrationName":"a","alerts":"[` + strings.Repeat(" ", 1<<20-1) + `"}`, ""},
		"a text of more than that":          {`{"integrationName":"a","alerts":"[` + strings.Repeat(" ", 1<<20) + `"}`, "spec.alerts: Too long: may not be"},
	})
}

func TestIncidentAdmission(t *testing.T) {
	checkAdmission(t, "Incident", map[string]admission{
		"the least":              {`{"integrationName":"a","dedupKey":"k"}`, ""},
		"no dedupKey":            {`{"integrationName":"a"}`, "spec.dedupKey: Required value"},
		"no integration":         {`{"dedupKey":"k"}`, "spec.integrationName: Required value"},
		"an impossible name":     {`{"integrationName":"A","dedupKey":"k"}`, "spec.integrationName in body should match"},
		"a key with any letters": {`{"integrationName":"a","dedupKey":"\u0000 \u2028 ünïcödé \"<>&"}`, ""},
	})
}

// metav1.Time reads fewer times than OpenAPI's date-time lets pass; one that it cannot read would break
// every informer.
func TestConditionTimesAreReadable(t *testing.T) {
	namespace := testenv.Namespace(t, apiClient)
	for _, file := range []string{"webhookintegration.yaml", "incident.yaml"} {
		o := full(t, file)
		kind := o["kind"].(string)
		if _, err := post(namespace, without(o, "status")); err != nil {
			t.Fatal(err)
		}
		for at, message := range map[string]string{
			"2026-05-04T10:00:00Z":      "",
			"2026-05-04T10:00:00+02:00": "",
			"2026-05-04t10:00:00z":      "lastTransitionTime must be an RFC 3339 time",
			"2026-05-04T10:00:00+99:99": "lastTransitionTime must be an RFC 3339 time",
			"2026-05-04T10:00:00Ztail":  "lastTransitionTime must be an RFC 3339 time",
			"0001-01-01T00:00:00Z":      "lastTransitionTime must be an RFC 3339 time",
			"9999-12-31T23:59:59-23:00": "lastTransitionTime must be an RFC 3339 time",
		} {
			t.Run(kind+" "+at, func(t *testing.T) {
				g := NewWithT(t)
				_, err := patchStatus(namespace, kind, nameOf(o),
					`{"conditions":[{"type":"A","status":"True","reason":"A","message":"","lastTransitionTime":"`+at+`"}]}`)
				if message == "" {
					g.Expect(err).NotTo(HaveOccurred())
				} else {
					g.Expect(err).To(MatchError(ContainSubstring(message)))
				}
			})
		}
	}
}

func TestIncidentSpecIsImmutable(t *testing.T) {
	g := NewWithT(t)
	created, err := postText(testenv.Namespace(t, apiClient), "Incident", `{"integrationName":"a","dedupKey":"k"}`)
	g.Expect(err).NotTo(HaveOccurred())
	incident := typed(t, created, &v1alpha1.Incident{})
	incident.Spec.DedupKey = "other"
	g.Expect(apiClient.Update(context.Background(), incident)).To(
		MatchError(ContainSubstring("the spec of an Incident is immutable")))
	incident.Spec.DedupKey = "k"
	incident.Labels = map[string]string{"a": "b"}
	g.Expect(apiClient.Update(context.Background(), incident)).To(Succeed())
}

func TestAlertEventIsImmutable(t *testing.T) {
	namespace := testenv.Namespace(t, apiClient)
	for name, change := range map[string]func(*v1alpha1.AlertEventSpec){
		"a field of the spec":  func(s *v1alpha1.AlertEventSpec) { s.IntegrationName = "other" },
		"the defaults":         func(s *v1alpha1.AlertEventSpec) { s.Defaults.Labels["team"] = "other" },
		"no defaults any more": func(s *v1alpha1.AlertEventSpec) { s.Defaults = nil },
		"the alerts":           func(s *v1alpha1.AlertEventSpec) { s.Alerts = "[]" },
		"the encoding":         func(s *v1alpha1.AlertEventSpec) { s.Encoding = "" },
		"the time of receipt":  func(s *v1alpha1.AlertEventSpec) { s.ReceivedTime = v1alpha1.Timestamp{} },
		"a report instead": func(s *v1alpha1.AlertEventSpec) {
			s.Alerts, s.Encoding, s.Report = "", "", &v1alpha1.Report{DedupKey: "k", Status: v1alpha1.AlertResolved}
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			o := full(t, "alertevent.yaml")
			o["metadata"] = object{"generateName": "test-"}
			created, err := post(namespace, o)
			g.Expect(err).NotTo(HaveOccurred())
			event := typed(t, created, &v1alpha1.AlertEvent{})

			changed := event.DeepCopy()
			change(&changed.Spec)
			g.Expect(apiClient.Update(context.Background(), changed)).To(
				MatchError(ContainSubstring("an AlertEvent is immutable; create a new one")))

			event.Labels = map[string]string{"looked": "at"}
			g.Expect(apiClient.Update(context.Background(), event)).To(Succeed(), "metadata alone may change")
		})
	}
}

// typed reads an object again through the typed client.
func typed[T client.Object](t *testing.T, o object, into T) T {
	t.Helper()
	key := client.ObjectKey{Namespace: o["metadata"].(object)["namespace"].(string), Name: nameOf(o)}
	if err := apiClient.Get(context.Background(), key, into); err != nil {
		t.Fatalf("reading %s: %v", key, err)
	}
	return into
}
