{{/* Names and labels. */}}

{{- define "cmp-plugin.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* The name of the objects. The longest suffix has 7 characters. */}}
{{- define "cmp-plugin.fullname" -}}
{{- default .Release.Name .Values.fullnameOverride | trunc 53 | trimSuffix "-" -}}
{{- end -}}

{{/* By which a Service, a NetworkPolicy … selects the pods. */}}
{{- define "cmp-plugin.selector" -}}
app.kubernetes.io/name: {{ include "cmp-plugin.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "cmp-plugin.labels" -}}
{{ include "cmp-plugin.selector" . }}
app.kubernetes.io/component: plugin
app.kubernetes.io/part-of: cmp-gateway
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* `metadata` of an object: (dict "root" $ "name" "-tokens"), with `labels` if need be. */}}
{{- define "cmp-plugin.metadata" -}}
name: {{ include "cmp-plugin.fullname" .root }}{{ .name }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "cmp-plugin.labels" .root | nindent 2 }}
  {{- with .labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{- define "cmp-plugin.serviceAccount" -}}
{{- $own := .Values.serviceAccount.create | ternary (include "cmp-plugin.fullname" .) "default" -}}
{{- default $own .Values.serviceAccount.name -}}
{{- end -}}

{{- define "cmp-plugin.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository .Values.image.tag -}}
{{- end -}}
{{- end -}}

{{- define "cmp-plugin.tlsSecret" -}}
{{- default (printf "%s-tls" (include "cmp-plugin.fullname" .)) .Values.tls.existingSecret -}}
{{- end -}}

{{/* The Secret of the tokens; empty if there are none. */}}
{{- define "cmp-plugin.tokensSecret" -}}
{{- if .Values.tokens.values -}}
{{- include "cmp-plugin.fullname" . }}-tokens
{{- else -}}
{{- .Values.tokens.existingSecret -}}
{{- end -}}
{{- end -}}

{{/* By which the relay calls the service. */}}
{{- define "cmp-plugin.host" -}}
{{- include "cmp-plugin.fullname" . }}.{{ .Release.Namespace }}.svc
{{- end -}}
