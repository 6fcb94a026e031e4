{{/* Names and labels. */}}

{{- define "appset-gateway.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* The name of the objects. The longest suffix, with the pod's of a StatefulSet, has 20 characters. */}}
{{- define "appset-gateway.fullname" -}}
{{- $name := include "appset-gateway.name" . -}}
{{- $full := contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) -}}
{{- default $full .Values.fullnameOverride | trunc 43 | trimSuffix "-" -}}
{{- end -}}

{{/* By which a Service, a NetworkPolicy … selects the gateway's pods. */}}
{{- define "appset-gateway.selector" -}}
app.kubernetes.io/name: {{ include "appset-gateway.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: server
{{- end -}}

{{- define "appset-gateway.storeSelector" -}}
app.kubernetes.io/name: valkey
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: store
{{- end -}}

{{/* The labels of an object: (dict "root" $ "component" "server"). */}}
{{- define "appset-gateway.labels" -}}
app.kubernetes.io/name: {{ eq .component "store" | ternary "valkey" (include "appset-gateway.name" .root) }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
app.kubernetes.io/part-of: appset-gateway
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* `metadata` of an object: (dict "root" $ "name" "-token" "component" "server"), with `namespace` and `annotations` if need be. */}}
{{- define "appset-gateway.metadata" -}}
name: {{ include "appset-gateway.fullname" .root }}{{ .name }}
{{- if not .clusterWide }}
namespace: {{ default .root.Release.Namespace .namespace }}
{{- end }}
labels:
  {{- include "appset-gateway.labels" . | nindent 2 }}
  {{- with .labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "appset-gateway.serviceAccount" -}}
{{- $own := .Values.serviceAccount.create | ternary (include "appset-gateway.fullname" .) "default" -}}
{{- default $own .Values.serviceAccount.name -}}
{{- end -}}

{{- define "appset-gateway.argocdConfigMap" -}}
{{- default (include "appset-gateway.fullname" .) .Values.argocd.configMap -}}
{{- end -}}

{{/* The Secret of a value: (dict "root" $ "of" .Values.token "name" "-token"). */}}
{{- define "appset-gateway.secret" -}}
{{- default (printf "%s%s" (include "appset-gateway.fullname" .root) .name) .of.existingSecret -}}
{{- end -}}

{{- define "appset-gateway.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}
