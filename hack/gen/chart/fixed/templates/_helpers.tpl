{{/* The labels of all objects. */}}
{{- define "tocsin.labels" -}}
app.kubernetes.io/name: tocsin
app.kubernetes.io/part-of: tocsin
{{- end }}

{{/* The labels that select the pods of the manager. */}}
{{- define "tocsin.selectorLabels" -}}
app.kubernetes.io/component: manager
app.kubernetes.io/name: tocsin
{{- end }}

{{- define "tocsin.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{/* The scheme of the metrics endpoint. */}}
{{- define "tocsin.metricsScheme" -}}
{{ or .Values.metrics.secure .Values.tls.enabled | ternary "https" "http" }}
{{- end }}

{{- define "tocsin.priorityClassName" -}}
{{- if and .Values.priorityClass.enabled .Values.priorityClassName }}
{{- fail "priorityClass.enabled and priorityClassName exclude each other" }}
{{- end }}
{{- .Values.priorityClass.enabled | ternary "tocsin" .Values.priorityClassName }}
{{- end }}
