{{/* The store of several replicas: its rights and its network. */}}

{{/* The rights of the gateway's user: those of docs/replicas.md. */}}
{{- define "appset-gateway.storeRights" -}}
-@all +eval +evalsha +script|load +info +time +ping +select +cluster|slots +hset +hget +hmget +hgetall +hvals +hkeys +hincrby +hdel +set +get +del +exists +type +pttl +pexpire +zadd +zrangebyscore +zscore +zcard +zrem +rpush +ltrim +lrange +xadd +xread
{{- end -}}

{{/* The ports of a store that somebody else runs, as a YAML list. With Sentinel, the servers have the usual port. */}}
{{- define "appset-gateway.storePorts" -}}
{{- $ports := .Values.networkPolicy.storePorts -}}
{{- if not $ports -}}
{{- $ports = list 6379 -}}
{{- range append .Values.store.cluster .Values.store.url -}}
{{- $authorities := regexReplaceAll "^[a-z+]+://([^/]*).*$" . "${1}" -}}
{{- range regexFindAll ":[0-9]+" $authorities -1 -}}
{{- $ports = append $ports (trimPrefix ":" . | int) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- uniq $ports | toYaml -}}
{{- end -}}

{{- define "appset-gateway.storePolicies" -}}
{{- if include "appset-gateway.store" . }}
---
# The gateway may ask the store.
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  {{- include "appset-gateway.metadata" (dict "root" $ "name" "-to-store" "component" "server") | nindent 2 }}
spec:
  podSelector:
    matchLabels:
      {{- include "appset-gateway.selector" . | nindent 6 }}
  policyTypes: [Egress]
  egress:
    {{- if .Values.store.enabled }}
    - to:
        - podSelector:
            matchLabels:
              {{- include "appset-gateway.storeSelector" . | nindent 14 }}
      ports:
        - { protocol: TCP, port: 6379 }
    {{- else }}
    - ports:
        {{- range include "appset-gateway.storePorts" . | fromYamlArray }}
        - { protocol: TCP, port: {{ . }} }
        {{- end }}
    {{- end }}
{{- end }}
{{- if .Values.store.enabled }}
---
# Only the gateway may talk to the store, and the store to nobody.
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  {{- include "appset-gateway.metadata" (dict "root" $ "name" "-store" "component" "store") | nindent 2 }}
spec:
  podSelector:
    matchLabels:
      {{- include "appset-gateway.storeSelector" . | nindent 6 }}
  policyTypes: [Ingress, Egress]
  ingress:
    - from:
        - podSelector:
            matchLabels:
              {{- include "appset-gateway.selector" . | nindent 14 }}
      ports:
        - { protocol: TCP, port: 6379 }
{{- end }}
{{- end -}}
