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

{{/* The labels that select the pods of the archiver. */}}
{{- define "tocsin.archiverLabels" -}}
app.kubernetes.io/component: archiver
app.kubernetes.io/name: tocsin
{{- end }}

{{/* The labels that select the pods of the page. */}}
{{- define "tocsin.pageLabels" -}}
app.kubernetes.io/component: page
app.kubernetes.io/name: tocsin
{{- end }}

{{- define "tocsin.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{/* The image of another program than the manager: of a list of the context, the name of the program, and its values. */}}
{{- define "tocsin.programImage" -}}
{{- $manager := (index . 0).Values.image -}}
{{- with index . 2 -}}
{{ .repository | default (print $manager.repository "-" (index $ 1)) }}
{{- if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $manager.tag | default (index $ 0).Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{/* What all pods of the chart have in common. */}}
{{- define "tocsin.placement" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The security context of the pods of the manager and of the archiver. */}}
{{- define "tocsin.podSecurityContext" -}}
{{- $security := .Values.podSecurityContext }}
{{- if .Values.tls.enabled }}
{{- $security = merge (dict) $security (dict "fsGroup" 65532) }}
{{- end }}
{{- toYaml $security }}
{{- end }}

{{/* The flags that the manager and the archiver have in common. */}}
{{- define "tocsin.args" -}}
{{- with .Values.watchNamespaces }}
- --watch-namespaces={{ join "," . }}
{{- end }}
{{- if not .Values.metrics.secure }}
- --metrics-secure=false
{{- end }}
{{- if .Values.tls.enabled }}
- --metrics-cert-path=/etc/tocsin/tls
{{- end }}
{{- end }}

{{/* The volume with the certificate, and where it is mounted. */}}
{{- define "tocsin.tlsVolume" -}}
{{- if .Values.tls.enabled -}}
- name: tls
  secret:
    secretName: {{ .Values.tls.secretName }}
    defaultMode: 0440
{{- end }}
{{- end }}
{{- define "tocsin.tlsMount" -}}
{{- if .Values.tls.enabled -}}
- name: tls
  mountPath: /etc/tocsin/tls
  readOnly: true
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
