{{- /* Names, labels and references that the templates share. */ -}}

{{- define "walrus-operator.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- /* The release's name alone where it already says what it is: `helm install walrus-operator` makes no walrus-operator-walrus-operator. */ -}}
{{- define "walrus-operator.fullname" -}}
{{- $name := include "walrus-operator.name" . -}}
{{- $full := contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) -}}
{{- .Values.fullnameOverride | default $full | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "walrus-operator.selectorLabels" -}}
app.kubernetes.io/name: {{ include "walrus-operator.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "walrus-operator.labels" -}}
{{ include "walrus-operator.selectorLabels" . }}
app.kubernetes.io/component: operator
app.kubernetes.io/part-of: walrus
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "walrus-operator.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "walrus-operator.fullname" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end -}}

{{- define "walrus-operator.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{- define "walrus-operator.nodeImage" -}}
{{- printf "%s:%s" .Values.nodeImage.repository (.Values.nodeImage.tag | default .Chart.AppVersion) -}}
{{- end -}}

{{- /* The namespaces that are watched one by one, the release's own first; as a YAML list. */ -}}
{{- define "walrus-operator.namespaces" -}}
{{- prepend .Values.watch.namespaces .Release.Namespace | uniq | toYaml -}}
{{- end -}}
