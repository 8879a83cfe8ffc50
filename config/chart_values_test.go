package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"
)

const (
	theDeployment = "Deployment tocsin"
	theArchiver   = "Deployment tocsin-archiver"
	thePage       = "Deployment tocsin-page"
	theAlive      = "CronJob tocsin-alive"
	theTest       = "Pod tocsin-test" // of "helm test"
	digest        = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	certManager   = "tls.enabled=true"
	archiveURL    = "archive.url=s3://tocsin-archive?region=eu-central-1"
)

// chartValues has a case for each value of the chart: with which other values it matters, the objects that it changes, and
// what these then have and otherwise lack; an empty text for objects that appear or disappear.
var chartValues = map[string]struct {
	value, with string
	objects     map[string]string
}{
	"image.repository":   {`"example.com:5000/t"`, archiveURL, map[string]string{theDeployment: "image: example.com:5000/t:dev", theArchiver: "image: example.com:5000/t-archiver:dev"}},
	"image.tag":          {`"v9"`, archiveURL, map[string]string{theDeployment: "image: tocsin:v9", theArchiver: "image: tocsin-archiver:v9"}},
	"image.digest":       {`"` + digest + `"`, "image.tag=v9," + archiveURL, map[string]string{theDeployment: "image: tocsin@" + digest}},
	"image.pullPolicy":   {`"Always"`, archiveURL, map[string]string{theDeployment: "imagePullPolicy: Always", theArchiver: "imagePullPolicy: Always"}},
	"imagePullSecrets":   {`[{"name":"pull"}]`, archiveURL, map[string]string{theDeployment: "imagePullSecrets:\n      - name: pull", theArchiver: "imagePullSecrets:\n      - name: pull", theTest: "imagePullSecrets:\n  - name: pull"}},
	"crds.enabled":       {`false`, "", map[string]string{"CustomResourceDefinition alertevents.tocsin.dev": "", "CustomResourceDefinition heartbeats.tocsin.dev": "", "CustomResourceDefinition incidents.tocsin.dev": "", "CustomResourceDefinition incidentsummaries.tocsin.dev": "", "CustomResourceDefinition maintenancewindows.tocsin.dev": "", "CustomResourceDefinition requestcaptures.tocsin.dev": "", "CustomResourceDefinition webhookintegrations.tocsin.dev": ""}},
	"replicas":           {`3`, "", map[string]string{theDeployment: "replicas: 3"}},
	"extraArgs":          {`["--tracing"]`, "", map[string]string{theDeployment: "- --tracing"}},
	"extraEnv":           {`[{"name":"A","value":"B"}]`, "", map[string]string{theDeployment: "- name: A\n          value: B"}},
	"extraVolumes":       {`[{"name":"ca","secret":{"secretName":"ca"}}]`, "", map[string]string{theDeployment: "volumes:\n      - name: ca\n        secret:\n          secretName: ca"}},
	"extraVolumeMounts":  {`[{"name":"ca","mountPath":"/ca"}]`, "", map[string]string{theDeployment: "volumeMounts:\n        - mountPath: /ca\n          name: ca"}},
	"resources":          {`{"limits":{"memory":"7Gi"}}`, "", map[string]string{theDeployment: "memory: 7Gi"}},
	"podAnnotations":     {`{"a/b":"c"}`, "", map[string]string{theDeployment: "a/b: c"}},
	"podLabels":          {`{"a":"b"}`, "", map[string]string{theDeployment: "labels:\n        a: b\n"}},
	"podSecurityContext": {`{"fsGroup":7}`, archiveURL, map[string]string{theDeployment: "fsGroup: 7", theArchiver: "fsGroup: 7", theTest: "fsGroup: 7"}},
	"nodeSelector":       {`{"disk":"fast"}`, archiveURL, map[string]string{theDeployment: "nodeSelector:\n        disk: fast", theArchiver: "nodeSelector:\n        disk: fast", theTest: "nodeSelector:\n    disk: fast"}},
	"tolerations":        {`[{"operator":"Exists"}]`, archiveURL, map[string]string{theDeployment: "tolerations:\n      - operator: Exists", theArchiver: "tolerations:\n      - operator: Exists", theTest: "tolerations:\n  - operator: Exists"}},
	"affinity":           {`{"podAntiAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":3,"podAffinityTerm":{"topologyKey":"rack"}}]}}`, "", map[string]string{theDeployment: "weight: 3"}},
	"topologySpreadConstraints": {`[{"maxSkew":2,"topologyKey":"rack","whenUnsatisfiable":"DoNotSchedule"}]`, "", map[string]string{
		theDeployment: "- labelSelector:\n          matchLabels:\n            app.kubernetes.io/component: manager\n            app.kubernetes.io/name: tocsin\n        maxSkew: 2\n        topologyKey: rack\n        whenUnsatisfiable: DoNotSchedule\n"}},
	"watchNamespaces": {`["a","b"]`, archiveURL, map[string]string{
		theDeployment: "--watch-namespaces=a,b", theArchiver: "--watch-namespaces=a,b",
		"ClusterRole tocsin-archiver": "", "ClusterRoleBinding tocsin-archiver": "",
		"Role a/tocsin-archiver": "", "RoleBinding a/tocsin-archiver": "", "Role b/tocsin-archiver": "", "RoleBinding b/tocsin-archiver": "",
		"ClusterRole tocsin-viewer": "", "ClusterRole tocsin-editor": "", "ClusterRole tocsin-manager": "", "ClusterRoleBinding tocsin-manager": "",
		"Role a/tocsin-viewer": "", "Role a/tocsin-editor": "", "Role a/tocsin-manager": "", "RoleBinding a/tocsin-manager": "",
		"Role b/tocsin-viewer": "", "Role b/tocsin-editor": "", "Role b/tocsin-manager": "", "RoleBinding b/tocsin-manager": "",
	}},
	"priorityClass.enabled":      {`true`, archiveURL, map[string]string{theDeployment: "priorityClassName: tocsin", theArchiver: "priorityClassName: tocsin", "PriorityClass tocsin": ""}},
	"priorityClassName":          {`"high"`, archiveURL, map[string]string{theDeployment: "priorityClassName: high", theArchiver: "priorityClassName: high"}},
	"serviceAccount.annotations": {`{"a/b":"c"}`, "", map[string]string{"ServiceAccount tocsin": "a/b: c"}},
	"service.type":               {`"LoadBalancer"`, "", map[string]string{"Service tocsin-webhook": "type: LoadBalancer"}},
	"service.annotations":        {`{"a/b":"c"}`, "", map[string]string{"Service tocsin-webhook": "a/b: c"}},
	"metrics.secure": {`false`, "serviceMonitor.enabled=true," + archiveURL, map[string]string{
		theDeployment: "--metrics-secure=false", theArchiver: "--metrics-secure=false", "Service tocsin-archiver-metrics": "appProtocol: http\n", "Service tocsin-metrics": "appProtocol: http\n", "ServiceMonitor tocsin": "scheme: http\n",
		"ClusterRole tocsin-metrics-auth": "", "ClusterRole tocsin-metrics-reader": "", "ClusterRoleBinding tocsin-metrics-auth": "",
	}},
	"tls.enabled": {`true`, "ingress.enabled=true,serviceMonitor.enabled=true," + archiveURL, map[string]string{
		theDeployment: "--webhook-tls-cert-path=/etc/tocsin/tls", theArchiver: "--metrics-cert-path=/etc/tocsin/tls", "Service tocsin-webhook": "appProtocol: https", "Ingress tocsin": "HTTPS",
		"Certificate tocsin": "", "Issuer tocsin": "", "ServiceMonitor tocsin": "serverName: tocsin-metrics", theTest: "value: https://",
	}},
	"tls.secretName":            {`"mine"`, "serviceMonitor.enabled=true," + certManager + "," + archiveURL, map[string]string{theDeployment: "secretName: mine", theArchiver: "secretName: mine", "Certificate tocsin": "secretName: mine", "ServiceMonitor tocsin": "name: mine"}},
	"tls.certManager.enabled":   {`false`, certManager, map[string]string{"Certificate tocsin": "", "Issuer tocsin": ""}},
	"tls.certManager.issuerRef": {`{"name":"ours","kind":"ClusterIssuer"}`, certManager, map[string]string{"Certificate tocsin": "group: cert-manager.io\n    kind: ClusterIssuer\n    name: ours", "Issuer tocsin": ""}},
	"tls.certManager.dnsNames":  {`["alerts.example.org"]`, certManager, map[string]string{"Certificate tocsin": "- alerts.example.org"}},
	"ingress.enabled":           {`true`, "", map[string]string{"Ingress tocsin": ""}},
	"ingress.className":         {`"traefik"`, "ingress.enabled=true", map[string]string{"Ingress tocsin": "ingressClassName: traefik"}},
	"ingress.host":              {`"a.example.org"`, "ingress.enabled=true", map[string]string{"Ingress tocsin": "- host: a.example.org"}},
	"ingress.tlsSecretName":     {`"mine"`, "ingress.enabled=true", map[string]string{"Ingress tocsin": "secretName: mine"}},
	"ingress.annotations":       {`{"nginx.ingress.kubernetes.io/proxy-body-size":"9m"}`, "ingress.enabled=true", map[string]string{"Ingress tocsin": "proxy-body-size: 9m"}},
	"gateway.enabled":           {`true`, "", map[string]string{"Gateway tocsin": "", "HTTPRoute tocsin": ""}},
	"gateway.className":         {`"istio"`, "gateway.enabled=true", map[string]string{"Gateway tocsin": "gatewayClassName: istio"}},
	"gateway.host":              {`"a.example.org"`, "gateway.enabled=true", map[string]string{"Gateway tocsin": "hostname: a.example.org", "HTTPRoute tocsin": "- a.example.org"}},
	"gateway.tlsSecretName":     {`"mine"`, "gateway.enabled=true", map[string]string{"Gateway tocsin": "name: mine"}},
	"gateway.parentRefs":        {`[{"name":"shared","namespace":"infra"}]`, "gateway.enabled=true", map[string]string{"Gateway tocsin": "", "HTTPRoute tocsin": "- name: shared\n    namespace: infra"}},
	"gateway.envoyProxy":        {`true`, "gateway.enabled=true", map[string]string{"Gateway tocsin": "parametersRef:", "EnvoyProxy tocsin": ""}},
	"networkPolicy.enabled":     {`true`, archiveURL, map[string]string{"NetworkPolicy tocsin": "", "NetworkPolicy tocsin-archiver": ""}},
	"networkPolicy.apiServer":   {`[{"ipBlock":{"cidr":"10.0.0.1/32"}}]`, "networkPolicy.enabled=true," + archiveURL, map[string]string{"NetworkPolicy tocsin": "port: 8443\n      protocol: TCP\n    to:\n    - ipBlock:\n        cidr: 10.0.0.1/32", "NetworkPolicy tocsin-archiver": "cidr: 10.0.0.1/32"}},
	"networkPolicy.extraEgress": {`[{"ports":[{"port":9000}]}]`, "networkPolicy.enabled=true," + archiveURL, map[string]string{"NetworkPolicy tocsin": "port: 9000"}},
	"flowControl.enabled":       {`true`, "", map[string]string{"FlowSchema tocsin-fold": "", "FlowSchema tocsin-ingest": "", "FlowSchema tocsin-leader-election": "", "FlowSchema tocsin-summary": "", "PriorityLevelConfiguration tocsin-fold": "", "PriorityLevelConfiguration tocsin-ingest": ""}},
	"admissionPolicy.enabled":   {`true`, "", map[string]string{"ValidatingAdmissionPolicy tocsin-alertevents": "", "ValidatingAdmissionPolicyBinding tocsin-alertevents": ""}},
	"serviceMonitor.enabled":    {`true`, "", map[string]string{"ServiceMonitor tocsin": ""}},
	"serviceMonitor.labels":     {`{"release":"p"}`, "serviceMonitor.enabled=true", map[string]string{"ServiceMonitor tocsin": "release: p"}},
	"serviceMonitor.interval":   {`"7s"`, "serviceMonitor.enabled=true", map[string]string{"ServiceMonitor tocsin": "interval: 7s"}},
	"prometheusRule.enabled":    {`true`, "", map[string]string{"PrometheusRule tocsin": ""}},
	"prometheusRule.labels":     {`{"release":"p"}`, "prometheusRule.enabled=true", map[string]string{"PrometheusRule tocsin": "release: p"}},
	"dashboard.enabled":         {`true`, "", map[string]string{"ConfigMap tocsin-dashboard": ""}},
	"dashboard.labels":          {`{"a":"b"}`, "dashboard.enabled=true", map[string]string{"ConfigMap tocsin-dashboard": "a: b"}},
	"dashboard.annotations":     {`{"grafana_folder":"Alerts"}`, "dashboard.enabled=true", map[string]string{"ConfigMap tocsin-dashboard": "grafana_folder: Alerts"}},
	"alertmanagerConfig":        {`{"alertmanagers":[{"url":"http://a:9093"}]}`, "", map[string]string{theDeployment: "- --alertmanager-config=/etc/tocsin/alertmanager/alertmanager.yaml", "ConfigMap tocsin-alertmanager": ""}},
	"archive.url": {`"gs://b"`, "networkPolicy.enabled=true", map[string]string{
		theDeployment: "--archive-required", theArchiver: "", "ServiceAccount tocsin-archiver": "", "Service tocsin-archiver-metrics": "",
		"ClusterRole tocsin-archiver": "", "ClusterRoleBinding tocsin-archiver": "", "NetworkPolicy tocsin-archiver": "",
		"Role tocsin-archiver-leader-election": "", "RoleBinding tocsin-archiver-leader-election": "",
		"ClusterRoleBinding tocsin-metrics-auth": "name: tocsin-archiver",
	}},
	"archive.image.repository":           {`"example.com/a"`, "image.repository=example.com/t," + archiveURL, map[string]string{theArchiver: "image: example.com/a:dev"}},
	"archive.image.tag":                  {`"v9"`, "image.tag=v8," + archiveURL, map[string]string{theArchiver: "image: tocsin-archiver:v9"}},
	"archive.image.digest":               {`"` + digest + `"`, "archive.image.tag=v9," + archiveURL, map[string]string{theArchiver: "image: tocsin-archiver@" + digest}},
	"archive.serviceAccount.annotations": {`{"a/b":"c"}`, archiveURL, map[string]string{"ServiceAccount tocsin-archiver": "a/b: c"}},
	"archive.podAnnotations":             {`{"a/b":"c"}`, archiveURL, map[string]string{theArchiver: "a/b: c"}},
	"archive.podLabels":                  {`{"a":"b"}`, archiveURL, map[string]string{theArchiver: "labels:\n        a: b\n"}},
	"archive.extraArgs":                  {`["--zap-log-level=debug"]`, archiveURL, map[string]string{theArchiver: "- --zap-log-level=debug"}},
	"archive.extraEnv":                   {`[{"name":"A","value":"B"}]`, archiveURL, map[string]string{theArchiver: "- name: A\n          value: B"}},
	"archive.extraVolumes":               {`[{"name":"ca","secret":{"secretName":"ca"}}]`, archiveURL, map[string]string{theArchiver: "volumes:\n      - name: ca\n        secret:\n          secretName: ca"}},
	"archive.extraVolumeMounts":          {`[{"name":"ca","mountPath":"/ca"}]`, archiveURL, map[string]string{theArchiver: "volumeMounts:\n        - mountPath: /ca\n          name: ca"}},
	"archive.extraEgress":                {`[{"ports":[{"port":9000}]}]`, "networkPolicy.enabled=true," + archiveURL, map[string]string{"NetworkPolicy tocsin-archiver": "port: 9000"}},
	"page.enabled": {`true`, "", map[string]string{
		thePage: "image: tocsin-page:dev", "ServiceAccount tocsin-page": "automountServiceAccountToken: false", "Service tocsin-page": "", "NetworkPolicy tocsin-page": "",
	}},
	"page.clusterName":      {`"prod-1"`, "page.enabled=true", map[string]string{thePage: "- --cluster-name=prod-1"}},
	"page.image.repository": {`"example.com/p"`, "page.enabled=true", map[string]string{thePage: "image: example.com/p:dev"}},
	"page.image.tag":        {`"v9"`, "page.enabled=true,image.tag=v8", map[string]string{thePage: "image: tocsin-page:v9"}},
	"page.image.digest":     {`"` + digest + `"`, "page.enabled=true", map[string]string{thePage: "image: tocsin-page@" + digest}},
	"page.resources":        {`{"limits":{"memory":"7Gi"}}`, "page.enabled=true", map[string]string{thePage: "memory: 7Gi"}},
	"archive.resources":     {`{"limits":{"memory":"7Gi"}}`, archiveURL, map[string]string{theArchiver: "memory: 7Gi"}},

	"alive.enabled":          {`true`, "tls.enabled=true", map[string]string{theAlive: "image: tocsin-plugin:dev"}},
	"alive.image.repository": {`"example.com/p"`, "alive.enabled=true", map[string]string{theAlive: "image: example.com/p:dev"}},
	"alive.image.tag":        {`"v9"`, "alive.enabled=true,image.tag=v8", map[string]string{theAlive: "image: tocsin-plugin:v9"}},
	"alive.image.digest":     {`"` + digest + `"`, "alive.enabled=true", map[string]string{theAlive: "image: tocsin-plugin@" + digest}},

	"test.image": {`"example.com/busybox"`, "", map[string]string{theTest: "image: example.com/busybox"}},
}

// TestChartValues sets each value of the chart alone: it changes the objects that it should, and no others. So there is no
// value that does nothing.
func TestChartValues(t *testing.T) {
	t.Run("each has a case", func(t *testing.T) {
		names := slices.Collect(maps.Keys(chartValues))
		NewWithT(t).Expect(slices.Collect(maps.Keys(leaves(t)))).To(ConsistOf(names))
	})
	render := func(t *testing.T, with string, args ...string) map[string]any {
		t.Helper()
		output, err := tryHelm(t, append([]string{"template", "tocsin", chart(), "--namespace", systemNamespace, "--set", with}, args...)...)
		NewWithT(t).Expect(err).NotTo(HaveOccurred(), output)
		return objectsOf(t, output, systemNamespace)
	}
	before := map[string]map[string]any{} // by the other values
	for name, test := range chartValues {
		was, known := before[test.with]
		if !known {
			was = render(t, test.with)
			before[test.with] = was
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			is := render(t, test.with, "--set-json", name+"="+test.value)
			for object := range test.objects {
				g.Expect(was[object] == nil && is[object] == nil).To(BeFalse(), "there is no "+object)
			}
			both := maps.Clone(was)
			maps.Copy(both, is)
			for object := range both {
				expected, changes := test.objects[object]
				g.Expect(reflect.DeepEqual(was[object], is[object])).To(Equal(!changes), object)
				switch {
				case !changes:
				case expected == "":
					g.Expect(was[object] == nil).NotTo(Equal(is[object] == nil), object)
				default:
					g.Expect(asYAML(t, is[object])).To(ContainSubstring(expected), object)
					g.Expect(asYAML(t, was[object])).NotTo(ContainSubstring(expected), object)
				}
			}
		})
	}
}

func asYAML(t *testing.T, object any) string {
	t.Helper()
	text, err := yaml.Marshal(object)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return string(text)
}

// TestChartRefusesValues renders the chart with values that are all wrong: the message names each.
func TestChartRefusesValues(t *testing.T) {
	t.Run("of another type", func(t *testing.T) {
		values := map[string]any{}
		for path, fallback := range leaves(t) {
			var wrong any = "text"
			if _, is := fallback.(string); is {
				wrong = 3
			}
			set(values, path, wrong)
		}
		message := refused(t, values)
		for path := range leaves(t) {
			NewWithT(t).Expect(message).To(MatchRegexp("at '/%s': got (string|number), want ", strings.ReplaceAll(path, ".", "/")))
		}
	})
	t.Run("that do not exist at any level", func(t *testing.T) {
		values, levels := map[string]any{"notAValue": 1}, map[string]bool{}
		for path := range leaves(t) {
			for dot := strings.LastIndex(path, "."); dot > 0; dot = strings.LastIndex(path[:dot], ".") {
				set(values, path[:dot]+".notAValue", 1)
				levels[strings.ReplaceAll(path[:dot], ".", "/")] = true
			}
		}
		message := refused(t, values)
		NewWithT(t).Expect(message).To(ContainSubstring("additional properties 'notAValue' not allowed"))
		NewWithT(t).Expect(len(levels)).To(BeNumerically(">", 10))
		for level := range levels {
			NewWithT(t).Expect(message).To(ContainSubstring("at '/%s': additional properties 'notAValue' not allowed", level))
		}
	})
	t.Run("that cannot work", func(t *testing.T) {
		message := refused(t, map[string]any{
			"image":             map[string]any{"repository": "a b", "tag": ":v1", "digest": "sha256:1", "pullPolicy": "Sometimes"},
			"replicas":          -1,
			"watchNamespaces":   []any{"a", "a", "Not_A_Name"},
			"extraArgs":         []any{"tracing"},
			"extraEnv":          []any{map[string]any{"nme": "A"}},
			"extraVolumeMounts": []any{map[string]any{"name": "A"}},
			"tolerations":       []any{map[string]any{"opreator": "Exists"}},
			"affinity":          map[string]any{"nodeAfinity": 1},
			"podLabels":         map[string]any{"a": 1},
			"service":           map[string]any{"type": "ExternalName"},
			"gateway":           map[string]any{"parentRefs": []any{map[string]any{"sectionName": "https"}}},
			"tls":               map[string]any{"certManager": map[string]any{"issuerRef": map[string]any{"nme": "ours"}}},
			"serviceMonitor":    map[string]any{"interval": "30"},
			"archive":           map[string]any{"url": "ftp://b", "image": map[string]any{"repository": "a b"}},
		})
		for _, text := range []string{
			"at '/image/repository': 'a b' does not match pattern", "at '/image/tag': ':v1' does not match pattern",
			"at '/image/digest': 'sha256:1' does not match pattern",
			"at '/image/pullPolicy': value must be one of '', 'Always', 'IfNotPresent', 'Never'",
			"at '/replicas': minimum: got -1, want 0",
			"at '/watchNamespaces': items at 0 and 1 are equal", "at '/watchNamespaces/2': 'Not_A_Name' does not match pattern",
			"at '/extraArgs/0': 'tracing' does not match pattern",
			"at '/extraEnv/0': missing property 'name'", "at '/extraEnv/0': additional properties 'nme' not allowed",
			"at '/extraVolumeMounts/0': missing property 'mountPath'",
			"at '/tolerations/0': additional properties 'opreator' not allowed",
			"at '/affinity': additional properties 'nodeAfinity' not allowed",
			"at '/podLabels/a': got number, want string",
			"at '/service/type': value must be one of 'ClusterIP', 'NodePort', 'LoadBalancer'",
			"at '/gateway/parentRefs/0': missing property 'name'",
			"at '/tls/certManager/issuerRef': additional properties 'nme' not allowed",
			"at '/serviceMonitor/interval': '30' does not match pattern",
			"at '/archive/url': 'ftp://b' does not match pattern", "at '/archive/image/repository': 'a b' does not match pattern",
		} {
			NewWithT(t).Expect(message).To(ContainSubstring(text))
		}
	})
	for set, message := range map[string]string{
		"priorityClass.enabled=true,priorityClassName=high":                         "priorityClass.enabled and priorityClassName exclude each other",
		"gateway.enabled=true,gateway.envoyProxy=true,gateway.parentRefs[0].name=x": "gateway.envoyProxy configures the Gateway of this chart",
	} {
		t.Run(set, func(t *testing.T) {
			output, err := tryHelm(t, "template", "tocsin", chart(), "--set", set)
			NewWithT(t).Expect(err).To(HaveOccurred())
			NewWithT(t).Expect(output).To(ContainSubstring(message))
		})
	}
}

// refused renders the chart with values that are refused, and returns the message.
func refused(t *testing.T, values map[string]any) string {
	t.Helper()
	g := NewWithT(t)
	file := filepath.Join(t.TempDir(), "values.yaml")
	g.Expect(os.WriteFile(file, []byte(asYAML(t, values)), 0o600)).To(Succeed())
	output, err := tryHelm(t, "template", "tocsin", chart(), "--values", file)
	g.Expect(err).To(HaveOccurred())
	return output
}

// leaves returns the defaults of the chart's values, by their paths: those that the schema describes.
func leaves(t *testing.T) map[string]any {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(chart(), "values.schema.json"))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	var schema map[string]any
	NewWithT(t).Expect(json.Unmarshal(text, &schema)).To(Succeed())
	found := map[string]any{}
	var walk func(path string, schema any)
	walk = func(path string, schema any) {
		for name, property := range field(schema, "properties").(map[string]any) {
			if fallback, is := property.(map[string]any)["default"]; is {
				found[path+name] = fallback
			} else if field(property, "properties") != nil {
				walk(path+name+".", property)
			}
		}
	}
	walk("", schema)
	return found
}

// set sets a value by its path.
func set(values map[string]any, path string, value any) {
	names := strings.Split(path, ".")
	for _, name := range names[:len(names)-1] {
		inner, is := values[name].(map[string]any)
		if !is {
			inner = map[string]any{}
			values[name] = inner
		}
		values = inner
	}
	values[names[len(names)-1]] = value
}

// TestChartIsWellFormed runs Helm's own checks, and compares the README with the values.
func TestChartIsWellFormed(t *testing.T) {
	g := NewWithT(t)
	output, err := tryHelm(t, "lint", "--strict", chart())
	g.Expect(err).NotTo(HaveOccurred(), output)
	for _, word := range []string{"[WARNING]", "[INFO]"} {
		g.Expect(output).NotTo(ContainSubstring(word))
	}
	readme, err := os.ReadFile(filepath.Join(chart(), "README.md"))
	g.Expect(err).NotTo(HaveOccurred())
	var written map[string]any
	text, err := os.ReadFile(filepath.Join(chart(), "values.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(yaml.Unmarshal(text, &written)).To(Succeed())
	for path, fallback := range leaves(t) {
		g.Expect(string(readme)).To(ContainSubstring(fmt.Sprintf("| `%s` |", path)))
		g.Expect(asYAML(t, field(written, strings.Split(path, ".")...))).To(Equal(asYAML(t, fallback)), path)
	}
}
