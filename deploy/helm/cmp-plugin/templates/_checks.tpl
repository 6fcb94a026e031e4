{{/* What the schema of the values cannot say: each `fail` says why, and what to write instead. deployment.yaml includes this. */}}

{{- define "cmp-plugin.checks" -}}
{{- include "cmp-plugin.checkPlugin" . -}}
{{- include "cmp-plugin.checkCallers" . -}}
{{- include "cmp-plugin.checkReplicas" . -}}
{{- if and .Values.metrics.serviceMonitor.enabled .Values.metrics.podMonitor.enabled -}}
{{- fail "metrics.serviceMonitor and metrics.podMonitor would count everything twice: enable one of them" -}}
{{- end -}}
{{- end -}}

{{- define "cmp-plugin.checkPlugin" -}}
{{- if not .Values.image.repository -}}
{{- fail "image.repository is missing: name the plugin's image, with cmp-gateway in it (docs/cmp/README.md)" -}}
{{- end -}}
{{- if not (or .Values.image.tag .Values.image.digest) -}}
{{- fail "set image.tag or image.digest: another version of the plugin must be another image, else no rollout happens" -}}
{{- end -}}
{{- if not .Values.plugin -}}
{{- fail "plugin is missing: the whole plugin.yaml, with apiVersion, kind, metadata and spec" -}}
{{- end -}}
{{- if not (dig "metadata" "name" "" .Values.plugin) -}}
{{- fail "plugin.metadata.name is missing: Applications and the relay know the plugin by it" -}}
{{- end -}}
{{- if not (dig "spec" "generate" "command" "" .Values.plugin) -}}
{{- fail "plugin.spec.generate.command is missing: it prints the manifests" -}}
{{- end -}}
{{- if and (dig "spec" "provideGitCreds" "" .Values.plugin) (not .Values.settings.gitCredentials) -}}
{{- fail "plugin.spec.provideGitCreds has no effect: set settings.gitCredentials, and gitCredentials of the remote in relay.yaml. Or remove it, and give the service credentials of its own, by extraVolumes or extraEnvFrom" -}}
{{- end -}}
{{- if and .Values.settings.hermetic (ne (default "host" .Values.settings.network) "none") -}}
{{- fail "settings.hermetic needs settings.network: none, since what the network says is not a part of the question" -}}
{{- end -}}
{{- end -}}

{{- define "cmp-plugin.checkCallers" -}}
{{- $tls := .Values.tls -}}
{{- if and $tls.existingSecret $tls.certManager.enabled -}}
{{- fail "set one of tls.existingSecret and tls.certManager.enabled" -}}
{{- end -}}
{{- if not (or $tls.existingSecret $tls.certManager.enabled) -}}
{{- fail "repositories never travel without TLS: set tls.existingSecret, or tls.certManager.enabled with an issuer" -}}
{{- end -}}
{{- if and $tls.certManager.enabled (not $tls.certManager.issuerRef.name) -}}
{{- fail "tls.certManager.issuerRef.name is missing: an issuer with a CA for plugins alone" -}}
{{- end -}}
{{- if and .Values.tokens.values .Values.tokens.existingSecret -}}
{{- fail "set one of tokens.values and tokens.existingSecret" -}}
{{- end -}}
{{- if not (or $tls.clientCertificates .Values.tokens.values .Values.tokens.existingSecret) -}}
{{- fail "nobody may call: set tls.clientCertificates, tokens.values or tokens.existingSecret" -}}
{{- end -}}
{{- end -}}

{{- define "cmp-plugin.checkReplicas" -}}
{{- if and .Values.autoscaling.enabled (gt (int .Values.autoscaling.minReplicas) (int .Values.autoscaling.maxReplicas)) -}}
{{- fail "autoscaling.minReplicas is larger than autoscaling.maxReplicas" -}}
{{- end -}}
{{- $needed := add (include "cmp-plugin.timeout" . | int) 10 | int -}}
{{- if lt (include "cmp-plugin.grace" . | int) $needed -}}
{{- fail (printf "terminationGracePeriodSeconds is %s: the longest run needs %d, else calls are lost at the end" (include "cmp-plugin.grace" .) $needed) -}}
{{- end -}}
{{- end -}}
