{{/* The gateway's configuration, and what the objects around it read from it. Includes give text, so "true" or "" stand for a boolean. */}}

{{/* Whether several gateways may run at once. */}}
{{- define "appset-gateway.several" -}}
{{- if or .Values.autoscaling.enabled (gt (int .Values.replicas) 1) }}true{{ end -}}
{{- end -}}

{{/* Whether there is a store. */}}
{{- define "appset-gateway.store" -}}
{{- if or .Values.store.enabled .Values.store.url .Values.store.cluster }}true{{ end -}}
{{- end -}}

{{/* Whether the store has a password. */}}
{{- define "appset-gateway.storePassword" -}}
{{- if and (include "appset-gateway.store" .) (or .Values.store.enabled .Values.store.password .Values.store.existingSecret) }}true{{ end -}}
{{- end -}}

{{/* Whether a PersistentVolumeClaim holds the answers: that of one gateway only. */}}
{{- define "appset-gateway.volume" -}}
{{- if and .Values.persistence.enabled (not (include "appset-gateway.several" .)) }}true{{ end -}}
{{- end -}}

{{/* Whether the gateway asks the API server. */}}
{{- define "appset-gateway.asksApiServer" -}}
{{- if or .Values.refresh.enabled .Values.tokenReview.enabled .Values.kubernetes.resources .Values.kubernetes.clusterSecrets.enabled }}true{{ end -}}
{{- end -}}

{{/* gateway.yaml: the value `config`, with the keys that follow from other values. No template is rendered in it: it has its own. */}}
{{- define "appset-gateway.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- $server := default dict $config.server -}}
{{- if not $server.drain -}}
{{- /* One gateway has nobody who takes over, so a longer drain only delays the next one. */ -}}
{{- $_ := set $server "drain" (include "appset-gateway.several" . | empty | ternary "2s" "10s") -}}
{{- end -}}
{{- if and .Values.hooks.enabled (not $server.hooks) -}}
{{- $_ := set $server "hooks" "0.0.0.0:4357" -}}
{{- end -}}
{{- $_ := set $config "server" $server -}}
{{- $cache := default dict $config.cache -}}
{{- if not $cache.path -}}
{{- $_ := set $cache "path" "/var/lib/appset-gateway/answers.redb" -}}
{{- end -}}
{{- if include "appset-gateway.store" . -}}
{{- $_ := set $cache "shared" (include "appset-gateway.shared" . | fromYaml) -}}
{{- end -}}
{{- $_ := set $config "cache" $cache -}}
{{- if .Values.refresh.enabled -}}
{{- $configMaps := default (list (include "appset-gateway.argocdConfigMap" .)) .Values.refresh.configMaps -}}
{{- $refresh := dict "namespaces" .Values.refresh.namespaces "configMaps" $configMaps -}}
{{- with .Values.refresh.after -}}
{{- $_ := set $refresh "on" . -}}
{{- end -}}
{{- $_ := set $config "argocd" (dict "refresh" $refresh) -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{/* `cache.shared`. */}}
{{- define "appset-gateway.shared" -}}
{{- with .Values.store -}}
{{- if .cluster }}
cluster: {{ toJson .cluster }}
{{- else }}
url: {{ default (printf "redis://%s-store:6379/0" (include "appset-gateway.fullname" $)) .url | quote }}
{{- end }}
key: { file: /var/run/store/key }
{{- if include "appset-gateway.storePassword" $ }}
{{- with .username }}
username: {{ . | quote }}
{{- end }}
password: { file: /var/run/store/password }
{{- end }}
{{- if ne .prefix "appset-gateway" }}
prefix: {{ .prefix | quote }}
{{- end }}
{{- if .caSecret }}
ca: /var/run/store-ca/ca.crt
{{- end }}
{{- end -}}
{{- end -}}

{{/* The port of an address such as 0.0.0.0:4355. */}}
{{- define "appset-gateway.port" -}}
{{- regexFind "[0-9]+$" . -}}
{{- end -}}

{{- define "appset-gateway.httpPort" -}}
{{- include "appset-gateway.port" (default "0.0.0.0:4355" (dig "server" "listen" "" .Values.config)) -}}
{{- end -}}

{{- define "appset-gateway.adminPort" -}}
{{- include "appset-gateway.port" (default "0.0.0.0:4356" (dig "server" "admin" "" .Values.config)) -}}
{{- end -}}

{{- define "appset-gateway.hooksPort" -}}
{{- include "appset-gateway.port" (default "0.0.0.0:4357" (dig "server" "hooks" "" .Values.config)) -}}
{{- end -}}

{{/* The port of the collector of traces; nothing without traces. */}}
{{- define "appset-gateway.collectorPort" -}}
{{- with dig "traces" "endpoint" "" (dict "traces" (default dict .Values.config.traces)) -}}
{{- $authority := regexReplaceAll "^https?://([^/]*).*$" . "${1}" -}}
{{- $usual := hasPrefix "https:" . | ternary "443" "80" -}}
{{- default $usual (regexFind "[0-9]+$" (regexFind ":[0-9]+$" $authority)) -}}
{{- end -}}
{{- end -}}

{{/* A duration such as 1h30m in whole seconds, rounded up. */}}
{{- define "appset-gateway.seconds" -}}
{{- $milliseconds := 0 -}}
{{- $units := dict "ms" 1 "s" 1000 "m" 60000 "h" 3600000 "d" 86400000 -}}
{{- range regexFindAll "[0-9]+(ms|s|m|h|d)" . -1 -}}
{{- $milliseconds = add $milliseconds (mul (regexFind "^[0-9]+" . | int64) (get $units (regexFind "[a-z]+$" .))) -}}
{{- end -}}
{{- div (add $milliseconds 999) 1000 -}}
{{- end -}}

{{/* The longest deadline of a call, in seconds. */}}
{{- define "appset-gateway.deadline" -}}
{{- $longest := include "appset-gateway.seconds" (default "25s" (dig "server" "deadline" "" .Values.config)) | int -}}
{{- range .Values.config.routes -}}
{{- if .deadline -}}
{{- $longest = max $longest (include "appset-gateway.seconds" .deadline | int) -}}
{{- end -}}
{{- end -}}
{{- $longest -}}
{{- end -}}

{{/* The drain, calls in flight, 2 s for scripts, 5 s to write the last answers, 5 s for spans, and some slack; a quarter of a minute whole. */}}
{{- define "appset-gateway.grace" -}}
{{- if .Values.terminationGracePeriodSeconds -}}
{{- .Values.terminationGracePeriodSeconds -}}
{{- else -}}
{{- $config := include "appset-gateway.config" . | fromYaml -}}
{{- $needed := add (include "appset-gateway.seconds" $config.server.drain | int) (include "appset-gateway.deadline" . | int) 18 -}}
{{- mul 15 (div (add $needed 14) 15) -}}
{{- end -}}
{{- end -}}

{{/* The URL that Argo CD calls. */}}
{{- define "appset-gateway.baseUrl" -}}
{{- $scheme := dig "server" "tls" "" .Values.config | empty | ternary "http" "https" -}}
{{- $host := printf "%s.%s.svc.cluster.local" (include "appset-gateway.fullname" .) .Release.Namespace -}}
{{- default (printf "%s://%s:%s" $scheme $host (include "appset-gateway.httpPort" .)) .Values.argocd.baseUrl -}}
{{- end -}}

{{/* What `helm test` asks. */}}
{{- define "appset-gateway.testCases" -}}
{{- if dig "server" "tls" "" .Values.config | empty -}}
{{- $cases := .Values.test.cases -}}
{{- range .Values.config.routes -}}
{{- if and (not $cases) (eq .name "fake-appset") -}}
{{- $cases = list (dict "name" "the route fake-appset" "applicationSet" "fake-appset") -}}
{{- end -}}
{{- end -}}
{{- if $cases -}}
{{- dict "cases" $cases | toYaml -}}
{{- end -}}
{{- end -}}
{{- end -}}
