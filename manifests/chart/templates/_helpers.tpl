{{- define "unikai.image" -}}
{{- $tag := .Values.global.tag | default .Chart.AppVersion -}}
{{- if .Values.global.registry }}{{ .Values.global.registry }}/{{ end }}unikai:{{ $tag }}
{{- end }}

{{- /* Labels of a selector as KEY=VALUE,… */}}
{{- define "unikai.labels" -}}
{{- $pairs := list -}}
{{- range $key, $value := . }}{{ $pairs = append $pairs (printf "%s=%s" $key $value) }}{{ end -}}
{{- join "," $pairs -}}
{{- end }}

{{- /* The names of objects {name: …} as NAME,… */}}
{{- define "unikai.names" -}}
{{- $names := list -}}
{{- range . }}{{ $names = append $names .name }}{{ end -}}
{{- join "," $names -}}
{{- end }}

{{- /* What is set by environment variables: those that are not empty. */}}
{{- define "unikai.env" -}}
{{- $env := dict
  "UNIKAI_LOG" .Values.operator.logLevel
  "UNIKAI_SCHEDULER_NAME" .Values.global.schedulerName
  "UNIKAI_NODE_POOL_LABEL_KEY" .Values.global.nodePoolLabelKey
  "UNIKAI_QUEUE_LABEL_KEY" .Values.podgrouper.queueLabelKey
  "UNIKAI_POD_LABEL_SELECTOR" (include "unikai.labels" .Values.global.podLabelSelector)
  "UNIKAI_NAMESPACE_LABEL_SELECTOR" (include "unikai.labels" .Values.global.namespaceLabelSelector)
  "UNIKAI_GPU_SHARING" .Values.global.gpuSharing
  "UNIKAI_BLOCK_NVIDIA_VISIBLE_DEVICES" .Values.global.blockNvidiaVisibleDevices
  "UNIKAI_CLUSTER_AUTOSCALING" .Values.global.clusterAutoscaling
  "UNIKAI_IMAGE_PULL_SECRETS" (include "unikai.names" .Values.global.imagePullSecrets)
  "UNIKAI_RESERVATION_NAMESPACE" .Values.global.resourceReservation.namespace
  "UNIKAI_RESERVATION_SERVICE_ACCOUNT" .Values.global.resourceReservation.serviceAccount
  "UNIKAI_RESERVATION_APP_LABEL" .Values.global.resourceReservation.appLabel
  "UNIKAI_SCALE_ADJUST_NAMESPACE" .Values.global.scaleAdjust.namespace
  "UNIKAI_SCALE_ADJUST_SERVICE_ACCOUNT" .Values.global.scaleAdjust.serviceAccount
  "UNIKAI_CDI" .Values.binder.cdiEnabled
  "UNIKAI_CREATE_DEFAULT_QUEUES" .Values.defaultQueue.createDefaultQueue
  "UNIKAI_CONFIG_MAPS" .Values.configMaps.enabled
-}}
{{- range $name, $value := $env }}
{{- if ne (toString $value) "" }}
- name: {{ $name }}
  value: {{ toString $value | quote }}
{{- end }}
{{- end }}
- name: UNIKAI_GPU_FRACTION_RUNTIME_CLASS_NAME
  value: {{ .Values.admission.gpuFractionRuntimeClassName | default "" | quote }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "unikai.affinity" -}}
{{- if .Values.global.affinity }}
{{- toYaml .Values.global.affinity }}
{{- else -}}
podAntiAffinity:
  preferredDuringSchedulingIgnoredDuringExecution:
  - weight: 100
    podAffinityTerm:
      topologyKey: kubernetes.io/hostname
      labelSelector:
        matchLabels:
          app.kubernetes.io/name: unikai
{{- end }}
{{- end }}

{{- /* Fields of the pod that most installations leave empty. */}}
{{- define "unikai.pod" -}}
{{- with .Values.global.imagePullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
{{- with .Values.global.nodeSelector }}
nodeSelector: {{ toJson . }}
{{- end }}
{{- with .Values.global.tolerations }}
tolerations: {{ toJson . }}
{{- end }}
{{- with .Values.extraVolumes }}
volumes: {{ toJson . }}
{{- end }}
{{- end }}

{{- define "unikai.mounts" -}}
{{- with .Values.extraVolumeMounts }}
volumeMounts: {{ toJson . }}
{{- end }}
{{- end }}
