{{- define "sandkeep.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "sandkeep.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "sandkeep.name" . -}}
{{- ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "sandkeep.selector" -}}
app.kubernetes.io/name: {{ include "sandkeep.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "sandkeep.labels" -}}
{{ include "sandkeep.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: sandkeep
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "sandkeep.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ default $.Chart.AppVersion .tag }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "sandkeep.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "sandkeep.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "sandkeep.sandboxNamespace" -}}
{{- default (printf "%s-sandboxes" .Release.Namespace) .Values.sandboxes.namespace -}}
{{- end -}}

{{- define "sandkeep.organizationsApart" -}}
{{- if eq .Values.sandboxes.namespaces "each-organization" }}true{{ end -}}
{{- end -}}

{{- define "sandkeep.onKubernetes" -}}
{{- if eq .Values.runtime "kubernetes" }}true{{ end -}}
{{- end -}}

{{/* Faults of the values that a schema cannot tell. */}}
{{- define "sandkeep.validate" -}}
{{- if lt (int .Values.terminationGracePeriodSeconds) (add (int .Values.drainSeconds) 30 | int) -}}
{{- fail "a process needs 30 seconds to end: raise terminationGracePeriodSeconds to drainSeconds and 30 more" -}}
{{- end -}}
{{- if and (include "sandkeep.organizationsApart" .) (gt (len (include "sandkeep.sandboxNamespace" .)) 26) -}}
{{- fail (printf "the namespaces of organizations are named %s-<organization id>, which is too long: set sandboxes.namespace to a name of at most 26 characters" (include "sandkeep.sandboxNamespace" .)) -}}
{{- end -}}
{{- if .Values.embedded.enabled -}}
{{- if .Values.database.existingSecret -}}
{{- fail "embedded.enabled and database.existingSecret exclude each other: choose one database" -}}
{{- end -}}
{{- if or .Values.worker.separate .Values.autoscaling.enabled -}}
{{- fail "the embedded database serves one process: leave out worker.separate and autoscaling.enabled, or use an external database" -}}
{{- end -}}
{{- else -}}
{{- if not .Values.database.existingSecret -}}
{{- fail "there is no database: name a Secret with the URL of a PostgreSQL in database.existingSecret, or set embedded.enabled=true" -}}
{{- end -}}
{{- if not .Values.keys.existingSecret -}}
{{- fail (printf "there are no keys: create them once with\n  kubectl --namespace %s create secret generic sandkeep-keys --from-literal=%s=\"$(openssl rand -base64 32)\" --from-literal=%s=\"$(openssl rand -base64 32)\"\nback them up, and set keys.existingSecret=sandkeep-keys" .Release.Namespace .Values.keys.eventKeysKey .Values.keys.secretKeysKey) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "sandkeep.scheme" -}}
{{- ternary "https" "http" (not (empty .Values.tls.existingSecret)) -}}
{{- end -}}
