{{/* The template of a Pod. Takes a dict: root, role, resources. */}}
{{- define "sandkeep.pod" -}}
{{- $root := .root -}}
{{- $values := .root.Values -}}
metadata:
  labels:
    {{- include "sandkeep.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .role }}
    {{- with $values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    checksum/config: {{ toJson $values.config | sha256sum }}
    {{- with $values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "sandkeep.serviceAccount" $root }}
  automountServiceAccountToken: {{ eq $values.runtime "kubernetes" }}
  # Variables of a Service with the name of the release would be taken for options.
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ $values.terminationGracePeriodSeconds }}
  {{- with $values.podSecurityContext }}
  securityContext:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with $values.hostAliases }}
  hostAliases:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  topologySpreadConstraints:
    {{- if $values.topologySpreadConstraints }}
    {{- toYaml $values.topologySpreadConstraints | nindent 4 }}
    {{- else }}
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "sandkeep.selector" $root | nindent 10 }}
          app.kubernetes.io/component: {{ .role }}
    {{- end }}
  containers:
    - name: sandkeep
      image: {{ include "sandkeep.image" $root }}
      imagePullPolicy: {{ $values.image.pullPolicy }}
      {{- with $values.securityContext }}
      securityContext:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      env:
        {{- include "sandkeep.env" . | nindent 8 }}
        {{- with $values.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with $values.extraEnvFrom }}
      envFrom:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      ports:
        - name: http
          containerPort: {{ $values.port }}
        {{- if $values.metrics.enabled }}
        - name: metrics
          containerPort: {{ $values.metrics.port }}
        {{- end }}
      startupProbe:
        httpGet: { path: /healthz, port: http, scheme: {{ include "sandkeep.scheme" $root | upper }} }
        {{- toYaml $values.startupProbe | nindent 8 }}
      livenessProbe:
        httpGet: { path: /healthz, port: http, scheme: {{ include "sandkeep.scheme" $root | upper }} }
        {{- toYaml $values.livenessProbe | nindent 8 }}
      readinessProbe:
        httpGet: { path: /readyz, port: http, scheme: {{ include "sandkeep.scheme" $root | upper }} }
        {{- toYaml $values.readinessProbe | nindent 8 }}
      {{- with .resources }}
      resources:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      volumeMounts:
        - { name: data, mountPath: /var/lib/sandkeep }
        - { name: tmp, mountPath: /tmp }
        - { name: config, mountPath: /etc/sandkeep, readOnly: true }
        {{- if $values.tls.existingSecret }}
        - { name: tls, mountPath: /etc/sandkeep-tls, readOnly: true }
        {{- end }}
        {{- with $values.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  volumes:
    {{- if not $values.embedded.enabled }}
    - name: data
      emptyDir: {}
    {{- end }}
    - name: tmp
      emptyDir: {}
    - name: config
      configMap:
        name: {{ include "sandkeep.fullname" $root }}
    {{- with $values.tls.existingSecret }}
    - name: tls
      secret:
        secretName: {{ . }}
        # Root owns the files, and the group of the Pod reads them.
        defaultMode: 0640
    {{- end }}
    {{- with $values.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}

{{/* The options that the chart decides; the others are in the file of the ConfigMap. */}}
{{- define "sandkeep.env" -}}
{{- $root := .root -}}
{{- $values := .root.Values -}}
{{- $isV6 := eq $values.ipFamily "IPv6" -}}
- name: POD_IP
  valueFrom:
    fieldRef:
      fieldPath: status.podIP
- { name: SANDKEEP_CONFIG, value: /etc/sandkeep/sandkeep.yaml }
- { name: SANDKEEP_DATA_DIR, value: /var/lib/sandkeep }
- { name: SANDKEEP_ROLE, value: {{ .role }} }
- { name: SANDKEEP_HOST, value: {{ ternary "::" "0.0.0.0" $isV6 | quote }} }
- { name: SANDKEEP_PORT, value: {{ $values.port | quote }} }
- { name: SANDKEEP_ADVERTISE_URL, value: "{{ include "sandkeep.scheme" $root }}://{{ ternary "[$(POD_IP)]" "$(POD_IP)" $isV6 }}:{{ $values.port }}" }
{{- if $values.metrics.enabled }}
- { name: SANDKEEP_METRICS_HOST, value: {{ ternary "::" "0.0.0.0" $isV6 | quote }} }
- { name: SANDKEEP_METRICS_PORT, value: {{ $values.metrics.port | quote }} }
{{- end }}
- { name: SANDKEEP_RUNTIME, value: {{ $values.runtime }} }
{{- if include "sandkeep.onKubernetes" $root }}
- { name: SANDKEEP_KUBERNETES_NAMESPACE, value: {{ include "sandkeep.sandboxNamespace" $root }} }
- { name: SANDKEEP_KUBERNETES_NAMESPACES, value: {{ $values.sandboxes.namespaces }} }
- { name: SANDKEEP_KUBERNETES_NETWORK, value: {{ $values.sandboxes.network }} }
{{- with $values.sandboxes.runtimeClass }}
- { name: SANDKEEP_KUBERNETES_RUNTIME_CLASS, value: {{ . }} }
{{- end }}
{{- end }}
{{- if $values.tls.existingSecret }}
- { name: SANDKEEP_TLS_CERT, value: /etc/sandkeep-tls/tls.crt }
- { name: SANDKEEP_TLS_KEY, value: /etc/sandkeep-tls/tls.key }
{{- end }}
- { name: SANDKEEP_DRAIN_SECONDS, value: {{ $values.drainSeconds | quote }} }
{{- with $values.database }}
{{- if .existingSecret }}
- name: DATABASE_URL
  valueFrom:
    secretKeyRef: { name: {{ .existingSecret }}, key: {{ .existingSecretKey }} }
{{- end }}
{{- end }}
{{- with $values.keys }}
{{- if .existingSecret }}
- name: SANDKEEP_EVENT_KEYS
  valueFrom:
    secretKeyRef: { name: {{ .existingSecret }}, key: {{ .eventKeysKey }} }
- name: SANDKEEP_SECRET_KEYS
  valueFrom:
    secretKeyRef: { name: {{ .existingSecret }}, key: {{ .secretKeysKey }} }
{{- end }}
{{- end }}
{{- end -}}
