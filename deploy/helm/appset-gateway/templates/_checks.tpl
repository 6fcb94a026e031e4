{{/* What the schema of the values cannot say: each `fail` says why, and what to write instead. deployment.yaml includes this. */}}

{{- define "appset-gateway.checks" -}}
{{- include "appset-gateway.checkImage" . -}}
{{- include "appset-gateway.checkStore" . -}}
{{- include "appset-gateway.checkSecrets" . -}}
{{- include "appset-gateway.checkConfig" . -}}
{{- include "appset-gateway.checkHooks" . -}}
{{- include "appset-gateway.checkApi" . -}}
{{- include "appset-gateway.checkCloud" . -}}
{{- if and .Values.metrics.serviceMonitor.enabled .Values.metrics.podMonitor.enabled -}}
{{- fail "metrics.serviceMonitor and metrics.podMonitor would count everything twice: enable one of them" -}}
{{- end -}}
{{- end -}}

{{/* Names below `example` and `example.com` belong to nobody (RFC 2606). */}}
{{- define "appset-gateway.checkImage" -}}
{{- $image := .Values.image.repository -}}
{{- if regexMatch `^([^/]+\.)?example(\.(com|net|org))?(:[0-9]+)?/` $image -}}
{{- $build := printf "docker build -f deploy/Dockerfile -t REGISTRY/appset-gateway:%s . && docker push REGISTRY/appset-gateway:%s" .Chart.AppVersion .Chart.AppVersion -}}
{{- fail (printf "image.repository is the placeholder %s: build and push an image (%s), then set image.repository=REGISTRY/appset-gateway, or IMAGE in deploy/release.env and run `make names`" $image $build) -}}
{{- end -}}
{{- end -}}

{{- define "appset-gateway.checkStore" -}}
{{- $store := .Values.store -}}
{{- if not (include "appset-gateway.store" .) -}}
{{- $why := "gateways that do not share a memory answer differently while a source shrinks, and Argo CD deletes and recreates Applications each time" -}}
{{- $how := "set store.enabled, or store.url for a store of yours (docs/replicas.md)" -}}
{{- if gt (int .Values.replicas) 1 -}}
{{- fail (printf "replicas is %d, but there is no store: %s; %s" (int .Values.replicas) $why $how) -}}
{{- end -}}
{{- if .Values.autoscaling.enabled -}}
{{- fail (printf "autoscaling.enabled would start several gateways, but there is no store: %s; %s" $why $how) -}}
{{- end -}}
{{- end -}}
{{- if gt (len (compact (list (ternary "enabled" "" $store.enabled) $store.url (join "," $store.cluster)))) 1 -}}
{{- fail "replicas share exactly one store: set one of store.enabled, store.url and store.cluster" -}}
{{- end -}}
{{- if and $store.enabled (not $store.password) (not $store.existingSecret) -}}
{{- fail "the store needs a password: set store.password, or store.existingSecret with the keys `key`, `password` and `users.acl`" -}}
{{- end -}}
{{- if and (include "appset-gateway.store" .) (not $store.key) (not $store.existingSecret) -}}
{{- fail "whoever can write to the store could deploy and delete: set store.key (make one: openssl rand -hex 32), or store.existingSecret with the key `key`" -}}
{{- end -}}
{{- if and (or $store.password $store.key) $store.existingSecret -}}
{{- fail "store.existingSecret has the password and the key: remove store.password and store.key" -}}
{{- end -}}
{{- if and $store.enabled (not $store.username) -}}
{{- fail "store.enabled runs a store with one user: set store.username" -}}
{{- end -}}
{{- if dig "cache" "shared" "" .Values.config -}}
{{- fail "set store.url in place of config.cache.shared: the chart then also gives the pods what replicas need" -}}
{{- end -}}
{{- if and .Values.autoscaling.enabled (gt (int .Values.autoscaling.minReplicas) (int .Values.autoscaling.maxReplicas)) -}}
{{- fail "autoscaling.minReplicas is larger than autoscaling.maxReplicas" -}}
{{- end -}}
{{- if and .Values.autoscaling.enabled (not .Values.autoscaling.cpu) (not .Values.autoscaling.requestsInFlight) -}}
{{- fail "autoscaling.enabled needs something to go by: set autoscaling.cpu or autoscaling.requestsInFlight" -}}
{{- end -}}
{{- end -}}

{{- define "appset-gateway.checkSecrets" -}}
{{- $values := .Values -}}
{{- range $key, $what := dict "token" "the token that Argo CD sends" "adminToken" "the token of operators" -}}
{{- $given := get $values $key -}}
{{- if and $given.value $given.existingSecret -}}
{{- fail (printf "set one of %s.value and %s.existingSecret" $key $key) -}}
{{- end -}}
{{- if not (or $given.value $given.existingSecret) -}}
{{- fail (printf "%s is missing: set %s.existingSecret, or %s.value (make one: openssl rand -hex 32)" $what $key $key) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.token.value (eq .Values.token.value .Values.adminToken.value) -}}
{{- fail "adminToken must differ from token: whoever may ask routes must not decide which held answers are accepted" -}}
{{- end -}}
{{- if and .Values.token.existingSecret (eq .Values.token.existingSecret .Values.adminToken.existingSecret) -}}
{{- fail "adminToken.existingSecret must differ from token.existingSecret: both have the key `token`, and the tokens must differ" -}}
{{- end -}}
{{- if and .Values.registryCredentials.dockerConfigJson .Values.registryCredentials.existingSecret -}}
{{- fail "set one of registryCredentials.dockerConfigJson and registryCredentials.existingSecret" -}}
{{- end -}}
{{- if and .Values.argocd.enabled .Values.token.existingSecret (not .Values.argocd.existingSecret) -}}
{{- fail (printf "the chart cannot copy token.existingSecret to Argo CD's side: set argocd.existingSecret, a Secret in the namespace %s with the same token under the key `token`, or argocd.enabled=false" .Values.argocd.namespace) -}}
{{- end -}}
{{- end -}}

{{- define "appset-gateway.checkConfig" -}}
{{- if not (or .Values.config.routes .Values.config.plugins) -}}
{{- fail "config.routes is empty: the gateway would answer nothing (docs/configuration.md)" -}}
{{- end -}}
{{- $path := dig "cache" "path" "" .Values.config -}}
{{- if and $path (not (hasPrefix "/var/lib/appset-gateway/" $path)) -}}
{{- fail (printf "config.cache.path is %s: it must lie below /var/lib/appset-gateway/, where the volume is" $path) -}}
{{- end -}}
{{- $deadline := include "appset-gateway.deadline" . | int -}}
{{- if and .Values.argocd.enabled (le (int .Values.argocd.requestTimeout) $deadline) -}}
{{- fail (printf "argocd.requestTimeout is %d: it must exceed the longest deadline in config, %d s, else Argo CD hangs up before it gets the reason" (int .Values.argocd.requestTimeout) $deadline) -}}
{{- end -}}
{{- $config := include "appset-gateway.config" . | fromYaml -}}
{{- $needed := add (include "appset-gateway.seconds" $config.server.drain | int) $deadline 14 | int -}}
{{- if lt (include "appset-gateway.grace" . | int) $needed -}}
{{- fail (printf "terminationGracePeriodSeconds is %s: config.server.drain and the longest deadline need %d, else answers are lost at the end" (include "appset-gateway.grace" .) $needed) -}}
{{- end -}}
{{- if and (include "appset-gateway.several" .) (lt (include "appset-gateway.seconds" $config.server.drain | int) 5) -}}
{{- fail (printf "config.server.drain is %s: with several replicas it must be 5s or more, since nodes need that time to learn that a pod ends" $config.server.drain) -}}
{{- end -}}
{{- $ports := list (include "appset-gateway.httpPort" .) (include "appset-gateway.adminPort" .) -}}
{{- if .Values.hooks.enabled -}}{{- $ports = append $ports (include "appset-gateway.hooksPort" .) -}}{{- end -}}
{{- if ne (len (uniq $ports)) (len $ports) -}}
{{- fail (printf "config.server: each listener needs a port of its own, these are %s" (join ", " $ports)) -}}
{{- end -}}
{{- end -}}

{{- define "appset-gateway.checkHooks" -}}
{{- if and .Values.hooks.enabled (not .Values.config.hooks) -}}
{{- fail "hooks.enabled opens a port for webhooks, but config.hooks names none (docs/push.md)" -}}
{{- end -}}
{{- if and .Values.config.hooks (not .Values.hooks.enabled) -}}
{{- fail "config.hooks needs hooks.enabled: it opens the port, in the Service and in the NetworkPolicy" -}}
{{- end -}}
{{- if and .Values.hooks.secrets .Values.hooks.existingSecret -}}
{{- fail "set one of hooks.secrets and hooks.existingSecret" -}}
{{- end -}}
{{- if and .Values.hooks.ingress.enabled (not .Values.hooks.enabled) -}}
{{- fail "hooks.ingress.enabled needs hooks.enabled" -}}
{{- end -}}
{{- if and .Values.hooks.ingress.enabled (not .Values.hooks.ingress.host) -}}
{{- fail "hooks.ingress.host is missing: without a host, the Ingress would take /hooks/ of every host" -}}
{{- end -}}
{{- if not .Values.hooks.existingSecret -}}
{{- range .Values.config.hooks -}}
{{- $hook := . -}}
{{- range $key := list "secret" "token" "pathToken" -}}
{{- range (kindIs "slice" (get $hook $key) | ternary (get $hook $key) (list (get $hook $key))) -}}
{{- if kindIs "map" . -}}
{{- $name := trimPrefix "/var/run/hooks/" (default "" .file) -}}
{{- if and (hasPrefix "/var/run/hooks/" (default "" .file)) (not (hasKey $.Values.hooks.secrets $name)) -}}
{{- fail (printf "the hook %s reads %s, but hooks.secrets has no %s" $hook.name .file $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "appset-gateway.checkApi" -}}
{{- if and (include "appset-gateway.asksApiServer" .) (eq (include "appset-gateway.serviceAccount" .) "default") -}}
{{- fail "refresh, tokenReview and kubernetes give rights to a service account, and every pod of the namespace may be `default`: set serviceAccount.create, or serviceAccount.name" -}}
{{- end -}}
{{- if and .Values.refresh.enabled (not .Values.refresh.namespaces) -}}
{{- fail "refresh.namespaces is empty: name the namespaces of the ApplicationSets" -}}
{{- end -}}
{{- $told := dig "argocd" "refresh" "" (dict "argocd" (default dict .Values.config.argocd)) -}}
{{- if and $told .Values.refresh.enabled -}}
{{- fail "set refresh.namespaces, refresh.configMaps and refresh.after in place of config.argocd.refresh" -}}
{{- end -}}
{{- if $told -}}
{{- if not $told.api -}}
{{- fail "set refresh.enabled in place of config.argocd.refresh: the chart then also gives the gateway a token and the rights. Only another cluster's `api` needs none here" -}}
{{- end -}}
{{- end -}}
{{- if and .Values.refresh.enabled .Values.refresh.admissionPolicy.enabled (semverCompare "<1.30.0-0" .Capabilities.KubeVersion.Version) -}}
{{- fail (printf "refresh.admissionPolicy needs Kubernetes 1.30, this is %s. Without the policy, the gateway may change all of an ApplicationSet. If you accept that, set refresh.admissionPolicy.enabled=false" .Capabilities.KubeVersion.Version) -}}
{{- end -}}
{{- if and .Values.kubernetes.namespaces (not .Values.kubernetes.resources) -}}
{{- fail "kubernetes.namespaces is set and kubernetes.resources is empty: name the resources that may be listed there" -}}
{{- end -}}
{{- $review := dig "auth" "tokenReview" "" .Values.config -}}
{{- if and $review (not .Values.tokenReview.enabled) -}}
{{- if not $review.api -}}
{{- fail "config.auth.tokenReview needs tokenReview.enabled: it gives the gateway a token and the right to ask the API server" -}}
{{- end -}}
{{- end -}}
{{- end -}}
