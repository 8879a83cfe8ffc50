{{- define "tocsin.rules.archiver-leader-election" -}}
- apiGroups:
  - coordination.k8s.io
  resourceNames:
  - archiver.tocsin.dev
  resources:
  - leases
  verbs:
  - get
  - update
- apiGroups:
  - coordination.k8s.io
  resources:
  - leases
  verbs:
  - create
- apiGroups:
  - ""
  resources:
  - events
  verbs:
  - create
  - patch
{{- end }}
{{- define "tocsin.rules.leader-election" -}}
- apiGroups:
  - coordination.k8s.io
  resourceNames:
  - manager.tocsin.dev
  resources:
  - leases
  verbs:
  - get
  - update
  - watch
- apiGroups:
  - coordination.k8s.io
  resources:
  - leases
  verbs:
  - create
- apiGroups:
  - tocsin.dev
  resources:
  - alertevents
  verbs:
  - create
  - delete
  - list
  - watch
- apiGroups:
  - tocsin.dev
  resources:
  - incidents
  verbs:
  - get
{{- end }}
{{- define "tocsin.rules.archiver" -}}
- apiGroups:
  - tocsin.dev
  resources:
  - incidents
  verbs:
  - get
  - list
  - watch
- apiGroups:
  - tocsin.dev
  resources:
  - incidents/status
  verbs:
  - patch
{{- end }}
{{- define "tocsin.rules.editor" -}}
- apiGroups:
  - tocsin.dev
  resources:
  - heartbeats
  - maintenancewindows
  - webhookintegrations
  verbs:
  - create
  - update
  - patch
  - delete
  - deletecollection
- apiGroups:
  - tocsin.dev
  resources:
  - alertevents
  verbs:
  - create
- apiGroups:
  - tocsin.dev
  resources:
  - incidents
  verbs:
  - delete
  - deletecollection
- apiGroups:
  - tocsin.dev
  resources:
  - requestcaptures
  verbs:
  - get
  - list
  - watch
  - delete
  - deletecollection
{{- end }}
{{- define "tocsin.rules.manager" -}}
- apiGroups:
  - events.k8s.io
  resources:
  - events
  verbs:
  - create
  - patch
- apiGroups:
  - tocsin.dev
  resources:
  - alertevents
  - incidents
  verbs:
  - create
  - delete
  - get
  - list
  - patch
  - watch
- apiGroups:
  - tocsin.dev
  resources:
  - heartbeats
  - incidentsummaries
  verbs:
  - create
  - delete
  - get
  - list
  - watch
- apiGroups:
  - tocsin.dev
  resources:
  - heartbeats/status
  - incidentsummaries/status
  - maintenancewindows/status
  - webhookintegrations/status
  verbs:
  - patch
- apiGroups:
  - tocsin.dev
  resources:
  - incidents/status
  verbs:
  - update
- apiGroups:
  - tocsin.dev
  resources:
  - maintenancewindows
  - webhookintegrations
  verbs:
  - get
  - list
  - watch
- apiGroups:
  - tocsin.dev
  resources:
  - requestcaptures
  verbs:
  - create
  - delete
  - get
  - list
  - update
{{- end }}
{{- define "tocsin.rules.metrics-auth" -}}
- apiGroups:
  - authentication.k8s.io
  resources:
  - tokenreviews
  verbs:
  - create
- apiGroups:
  - authorization.k8s.io
  resources:
  - subjectaccessreviews
  verbs:
  - create
{{- end }}
{{- define "tocsin.rules.metrics-reader" -}}
- nonResourceURLs:
  - /metrics
  verbs:
  - get
{{- end }}
{{- define "tocsin.rules.viewer" -}}
- apiGroups:
  - tocsin.dev
  resources:
  - alertevents
  - heartbeats
  - incidents
  - incidentsummaries
  - maintenancewindows
  - webhookintegrations
  verbs:
  - get
  - list
  - watch
{{- end }}
