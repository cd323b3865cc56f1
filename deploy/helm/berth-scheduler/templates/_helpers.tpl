{{/* The labels of all objects. */}}
{{- define "berth.labels" -}}
app.kubernetes.io/name: {{ .Values.name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* The labels by which pods are selected. */}}
{{- define "berth.selector" -}}
app.kubernetes.io/name: {{ .Values.name }}
{{- end }}

{{/* The configuration of the mode, and what the values say beside it. */}}
{{- define "berth.config" -}}
{{- $lease := ternary "kube-scheduler" .Values.name (eq .Values.mode "replacement") }}
{{- $profile := ternary "default-scheduler" .Values.name (eq .Values.mode "replacement") }}
{{- $election := dict "leaderElect" true "resourceNamespace" "kube-system" "resourceName" $lease }}
{{- $config := dict "apiVersion" "kubescheduler.config.k8s.io/v1" "kind" "KubeSchedulerConfiguration" }}
{{- if .Values.packing }}
{{- $config = .Files.Get "files/packing.yaml" | fromYaml }}
{{- $_ := set (first $config.profiles) "schedulerName" $profile }}
{{- else }}
{{- $_ := set $config "profiles" (list (dict "schedulerName" $profile)) }}
{{- end }}
{{- $_ := set $config "leaderElection" $election }}
{{- toYaml (mergeOverwrite $config (deepCopy .Values.config)) }}
{{- end }}

{{/* The Lease of the configuration. */}}
{{- define "berth.lease" -}}
{{- (include "berth.config" . | fromYaml).leaderElection.resourceName }}
{{- end }}

{{/* The namespace of the Lease. */}}
{{- define "berth.leaseNamespace" -}}
{{- (include "berth.config" . | fromYaml).leaderElection.resourceNamespace }}
{{- end }}
