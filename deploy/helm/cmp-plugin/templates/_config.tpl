{{/* cmp.yaml, and what the objects around it read from it. Includes give text, so "true" or "" stand for a boolean. */}}

{{/* Whether several replicas may run at once. */}}
{{- define "cmp-plugin.several" -}}
{{- if or .Values.autoscaling.enabled (gt (int .Values.replicas) 1) }}true{{ end -}}
{{- end -}}

{{/* cmp.yaml. A change of it is a rollout: cmp-gateway reads it once. */}}
{{- define "cmp-plugin.config" -}}
{{- $tls := dict "cert" "/certs/tls.crt" "key" "/certs/tls.key" -}}
{{- if .Values.tls.clientCertificates -}}
{{- $_ := set $tls "clientCa" "/certs/ca.crt" -}}
{{- end -}}
{{- $listen := dict "address" "0.0.0.0:8443" "tls" $tls -}}
{{- $tokens := list -}}
{{- if .Values.tokens.values -}}
{{- range keys .Values.tokens.values | sortAlpha -}}
{{- $tokens = append $tokens (dict "file" (printf "/tokens/%s" .)) -}}
{{- end -}}
{{- else if .Values.tokens.existingSecret -}}
{{- range .Values.tokens.keys -}}
{{- $tokens = append $tokens (dict "file" (printf "/tokens/%s" .)) -}}
{{- end -}}
{{- end -}}
{{- with $tokens -}}
{{- $_ := set $listen "tokens" . -}}
{{- end -}}
{{- with int .Values.callsPerCaller -}}
{{- $_ := set $listen "callsPerCaller" . -}}
{{- end -}}
{{- $plugin := deepCopy .Values.settings -}}
{{- $_ := set $plugin "config" "/etc/cmp/plugin.yaml" -}}
{{- if .Values.scripts -}}
{{- $files := default dict $plugin.files -}}
{{- $_ := set $files "read" (append (default list $files.read) "/plugin") -}}
{{- $_ := set $plugin "files" $files -}}
{{- end -}}
{{- $own := dict "admin" "0.0.0.0:8090" "listen" $listen "plugins" (list $plugin) "sockets" "/work" "work" "/work" -}}
{{- toYaml (merge $own (deepCopy .Values.config)) -}}
{{- end -}}

{{/* The plugin's name and version, as Applications and relays know it. */}}
{{- define "cmp-plugin.pluginVersion" -}}
{{- dig "spec" "version" "" .Values.plugin -}}
{{- end -}}

{{/* A duration such as 1m30s in whole seconds. */}}
{{- define "cmp-plugin.seconds" -}}
{{- $milliseconds := 0 -}}
{{- $units := dict "ms" 1 "s" 1000 "m" 60000 "h" 3600000 "d" 86400000 -}}
{{- range regexFindAll "[0-9]+(ms|s|m|h|d)" . -1 -}}
{{- $milliseconds = add $milliseconds (mul (regexFind "^[0-9]+" . | int64) (get $units (regexFind "[a-z]+$" .))) -}}
{{- end -}}
{{- div (add $milliseconds 999) 1000 -}}
{{- end -}}

{{/* The longest run, in seconds. */}}
{{- define "cmp-plugin.timeout" -}}
{{- include "cmp-plugin.seconds" (default "90s" .Values.settings.timeout) -}}
{{- end -}}

{{/* Open calls wait for a place, run, and are answered; programs have 2 s to end, spans 5 s. */}}
{{- define "cmp-plugin.grace" -}}
{{- default (add (include "cmp-plugin.timeout" . | int) 60) .Values.terminationGracePeriodSeconds -}}
{{- end -}}
