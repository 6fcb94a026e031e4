{{/* The pod. */}}

{{- define "cmp-plugin.pod" -}}
serviceAccountName: {{ include "cmp-plugin.serviceAccount" . }}
automountServiceAccountToken: false
enableServiceLinks: false # runs get all variables
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- toYaml .Values.podSecurityContext | nindent 2 }}
terminationGracePeriodSeconds: {{ include "cmp-plugin.grace" . }}
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
{{- if include "cmp-plugin.several" . }}
topologySpreadConstraints:
  {{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "cmp-plugin.selector" $ | nindent 8 }}
  {{- end }}
{{- end }}
containers:
  - {{- include "cmp-plugin.container" . | nindent 4 }}
volumes:
  {{- include "cmp-plugin.volumes" . | nindent 2 }}
{{- end -}}

{{- define "cmp-plugin.container" -}}
name: plugin
image: {{ include "cmp-plugin.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
command: [{{ .Values.program }}, serve, -c, /etc/cmp/cmp.yaml]
env:
  - { name: TMPDIR, value: /work } # runs get folders of their own in it
  {{- with .Values.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .Values.extraEnvFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
ports:
  - name: cmp
    containerPort: 8443
  - name: admin
    containerPort: 8090
readinessProbe:
  httpGet:
    path: /readyz
    port: admin
  periodSeconds: 5
  timeoutSeconds: 2
  failureThreshold: 2
livenessProbe:
  httpGet:
    path: /livez
    port: admin
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
  - { name: config, mountPath: /etc/cmp, readOnly: true }
  - { name: certs, mountPath: /certs, readOnly: true }
  {{- if include "cmp-plugin.tokensSecret" . }}
  - { name: tokens, mountPath: /tokens, readOnly: true }
  {{- end }}
  {{- if .Values.scripts }}
  - { name: scripts, mountPath: /plugin, readOnly: true }
  {{- end }}
  - { name: work, mountPath: /work }
  {{- with .Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{- define "cmp-plugin.volumes" -}}
- name: config
  configMap:
    name: {{ include "cmp-plugin.fullname" . }}
- name: certs
  secret:
    secretName: {{ include "cmp-plugin.tlsSecret" . }}
    defaultMode: 0440
{{- with include "cmp-plugin.tokensSecret" . }}
- name: tokens
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end }}
{{- if .Values.scripts }}
- name: scripts
  configMap:
    name: {{ include "cmp-plugin.fullname" . }}-plugin
    defaultMode: 0555
{{- end }}
- name: work
  emptyDir:
    sizeLimit: {{ .Values.workSize }}
{{- with .Values.extraVolumes }}
{{- toYaml . | nindent 0 }}
{{- end }}
{{- end -}}
