{{/* The pod's identity at a cloud (`cloudIdentity`). */}}

{{/* What the service account needs. */}}
{{- define "appset-gateway.cloudAnnotations" -}}
{{- $keys := dict "eks" "eks.amazonaws.com/role-arn" "gke" "iam.gke.io/gcp-service-account" "aks" "azure.workload.identity/client-id" -}}
{{- with .Values.cloudIdentityName -}}
{{ get $keys $.Values.cloudIdentity }}: {{ . | quote }}
{{- end -}}
{{- end -}}

{{/* Where a metadata server or an agent serves credentials, as networks: IRSA and Azure's workload identity need none. The agent of EKS has an
address of each kind, and clusters with IPv6 use the second. */}}
{{- define "appset-gateway.cloudAddresses" -}}
{{- get (dict "eksPodIdentity" "169.254.170.23/32 fd00:ec2::23/128" "gke" "169.254.169.254/32") .Values.cloudIdentity -}}
{{- end -}}

{{- define "appset-gateway.checkCloud" -}}
{{- $cloud := .Values.cloudIdentity -}}
{{- if and .Values.cloudIdentityName (not (has $cloud (list "eks" "gke" "aks"))) -}}
{{- fail "cloudIdentityName needs cloudIdentity `eks`, `gke` or `aks`: an association of EKS Pod Identity names the role itself" -}}
{{- end -}}
{{- if and (has $cloud (list "eks" "aks")) .Values.serviceAccount.create (not .Values.cloudIdentityName) -}}
{{- fail (printf "cloudIdentity is %s: set cloudIdentityName, the role's ARN (eks) or the client id (aks)" $cloud) -}}
{{- end -}}
{{- if and $cloud (not .Values.serviceAccount.create) .Values.cloudIdentityName -}}
{{- fail "the service account is not the chart's: annotate it yourself, and leave cloudIdentityName out" -}}
{{- end -}}
{{- if and $cloud (eq (include "appset-gateway.serviceAccount" .) "default") -}}
{{- fail "cloudIdentity gives rights to a service account, and every pod of the namespace may be `default`: set serviceAccount.create, or serviceAccount.name" -}}
{{- end -}}
{{- end -}}
