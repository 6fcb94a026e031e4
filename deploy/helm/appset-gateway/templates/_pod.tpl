{{/* The gateway's pod. */}}

{{- define "appset-gateway.pod" -}}
serviceAccountName: {{ include "appset-gateway.serviceAccount" . }}
automountServiceAccountToken: {{ include "appset-gateway.asksApiServer" . | empty | not }}
enableServiceLinks: false # else Kubernetes sets APPSET_GATEWAY_… variables of its own
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
securityContext:
  {{- toYaml .Values.podSecurityContext | nindent 2 }}
terminationGracePeriodSeconds: {{ include "appset-gateway.grace" . }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if .Values.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- toYaml .Values.topologySpreadConstraints | nindent 2 }}
{{- else if include "appset-gateway.several" . }}
topologySpreadConstraints:
  {{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "appset-gateway.selector" $ | nindent 8 }}
  {{- end }}
{{- end }}
{{- with .Values.initContainers }}
initContainers:
  {{- toYaml . | nindent 2 }}
{{- end }}
containers:
  - {{- include "appset-gateway.container" . | nindent 4 }}
  {{- with .Values.extraContainers }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
volumes:
  {{- include "appset-gateway.volumes" . | nindent 2 }}
{{- end -}}

{{/* A probe of the admin port: (dict "root" $ "path" "/readyz"). */}}
{{- define "appset-gateway.probe" -}}
httpGet:
  path: {{ .path }}
  port: admin
  {{- if dig "server" "adminTls" "" .root.Values.config }}
  scheme: HTTPS
  {{- end }}
{{- end -}}

{{- define "appset-gateway.container" -}}
name: gateway
image: {{ include "appset-gateway.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
args: [serve, --config, /etc/appset-gateway/gateway.yaml]
{{- $cloudEnv := ternary (list (dict "name" "GCE_METADATA_HOST" "value" "169.254.169.254")) list (eq .Values.cloudIdentity "gke") }}
{{- with concat $cloudEnv .Values.extraEnv }}
env:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.extraEnvFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
ports:
  - name: http
    containerPort: {{ include "appset-gateway.httpPort" . }}
  - name: admin
    containerPort: {{ include "appset-gateway.adminPort" . }}
  {{- if .Values.hooks.enabled }}
  - name: hooks
    containerPort: {{ include "appset-gateway.hooksPort" . }}
  {{- end }}
{{- if include "appset-gateway.store" . }}
startupProbe: # until the first contact with the store
  {{- include "appset-gateway.probe" (dict "root" . "path" "/startupz") | nindent 2 }}
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: 150
{{- end }}
readinessProbe:
  {{- include "appset-gateway.probe" (dict "root" . "path" "/readyz") | nindent 2 }}
  periodSeconds: 5
  timeoutSeconds: 2
  failureThreshold: 2
livenessProbe:
  {{- include "appset-gateway.probe" (dict "root" . "path" "/livez") | nindent 2 }}
  initialDelaySeconds: 5
  periodSeconds: 10
  timeoutSeconds: 2
  failureThreshold: 6
resources:
  {{- toYaml .Values.resources | nindent 2 }}
securityContext:
  {{- toYaml .Values.securityContext | nindent 2 }}
# Directories, never a subPath: only directories follow a changed Secret or ConfigMap.
volumeMounts:
  - { name: config, mountPath: /etc/appset-gateway, readOnly: true }
  - { name: token, mountPath: /var/run/argo, readOnly: true }
  - { name: admin-token, mountPath: /var/run/appset-gateway, readOnly: true }
  - { name: tmp, mountPath: /tmp }
  - { name: answers, mountPath: /var/lib/appset-gateway }
  {{- if .Values.scripts }}
  - { name: scripts, mountPath: /plugins, readOnly: true }
  {{- end }}
  {{- if include "appset-gateway.hookSecrets" . }}
  - { name: hooks, mountPath: /var/run/hooks, readOnly: true }
  {{- end }}
  {{- if include "appset-gateway.store" . }}
  - { name: store, mountPath: /var/run/store, readOnly: true }
  {{- end }}
  {{- if .Values.store.caSecret }}
  - { name: store-ca, mountPath: /var/run/store-ca, readOnly: true }
  {{- end }}
  {{- range $name, $_ := .Values.secrets }}
  - { name: secret-{{ $name }}, mountPath: /secrets/{{ $name }}, readOnly: true }
  {{- end }}
  {{- with .Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{- define "appset-gateway.hookSecrets" -}}
{{- if and .Values.hooks.enabled (or .Values.hooks.secrets .Values.hooks.existingSecret) }}true{{ end -}}
{{- end -}}

{{- define "appset-gateway.volumes" -}}
- name: config
  projected:
    defaultMode: 0440
    sources:
      - configMap:
          name: {{ include "appset-gateway.fullname" . }}-config
      {{- if or .Values.registryCredentials.dockerConfigJson .Values.registryCredentials.existingSecret }}
      - secret:
          name: {{ include "appset-gateway.secret" (dict "root" $ "of" .Values.registryCredentials "name" "-registry") }}
          items:
            - { key: .dockerconfigjson, path: docker/config.json }
      {{- end }}
- name: token
  secret:
    secretName: {{ include "appset-gateway.secret" (dict "root" $ "of" .Values.token "name" "-token") }}
    defaultMode: 0440
- name: admin-token
  secret:
    secretName: {{ include "appset-gateway.secret" (dict "root" $ "of" .Values.adminToken "name" "-admin") }}
    defaultMode: 0440
- name: tmp
  emptyDir:
    sizeLimit: {{ .Values.tmpSize }}
- name: answers
  {{- if include "appset-gateway.volume" . }}
  persistentVolumeClaim: # last good answers and held answers outlive the pod
    claimName: {{ default (printf "%s-answers" (include "appset-gateway.fullname" .)) .Values.persistence.existingClaim }}
  {{- else }}
  emptyDir: # with a store: each replica's own copy of what the store holds
    sizeLimit: {{ .Values.persistence.size }}
  {{- end }}
{{- if .Values.scripts }}
- name: scripts
  configMap:
    name: {{ include "appset-gateway.fullname" . }}-scripts
    defaultMode: 0555
{{- end }}
{{- if include "appset-gateway.hookSecrets" . }}
- name: hooks
  secret:
    secretName: {{ include "appset-gateway.secret" (dict "root" $ "of" .Values.hooks "name" "-hooks") }}
    defaultMode: 0440
{{- end }}
{{- if include "appset-gateway.store" . }}
- name: store
  secret:
    secretName: {{ include "appset-gateway.secret" (dict "root" $ "of" .Values.store "name" "-store") }}
    defaultMode: 0440
    items:
      - { key: key, path: key }
      {{- if include "appset-gateway.storePassword" . }}
      - { key: password, path: password }
      {{- end }}
{{- end }}
{{- with .Values.store.caSecret }}
- name: store-ca
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end }}
{{- range $name, $secret := .Values.secrets }}
- name: secret-{{ $name }}
  secret:
    secretName: {{ $secret }}
    defaultMode: 0440
{{- end }}
{{- with .Values.extraVolumes }}
{{- toYaml . | nindent 0 }}
{{- end }}
{{- end -}}
