{{- define "sartor.name" -}}
{{- printf "%s-%s" .Release.Name .Values.role | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "sartor.labels" -}}
app.kubernetes.io/name: sartor
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: {{ .Values.role }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "sartor.selector" -}}
app.kubernetes.io/name: sartor
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: {{ .Values.role }}
{{- end -}}

{{- define "sartor.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{- define "sartor.contained" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}
