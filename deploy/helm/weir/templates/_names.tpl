{{- define "weir.labels" -}}
app.kubernetes.io/name: weir
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "weir.name" -}}
{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "weir.hasVolume" -}}
{{- if and .Values.persistence.enabled (eq (int .Values.replicas) 1) }}true{{ end }}
{{- end }}
