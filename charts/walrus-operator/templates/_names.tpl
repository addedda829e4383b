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

{{- /* Pods that put a profile on nodes are not those of the operator: no Service, budget or Deployment selects them. */ -}}
{{- define "walrus-operator.seccompSelector" -}}
app.kubernetes.io/name: {{ printf "%s-seccomp" (include "walrus-operator.name" . | trunc 55 | trimSuffix "-") }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "walrus-operator.seccompLabels" -}}
{{ include "walrus-operator.seccompSelector" . }}
app.kubernetes.io/component: seccomp
app.kubernetes.io/part-of: walrus
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "walrus-operator.monitoringLabels" -}}
{{ include "walrus-operator.labels" . }}
{{- with .Values.monitoring.labels }}
{{ toYaml . }}
{{- end }}
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

{{- /* With a digest, that of the tag: a cluster of another `version` gets that tag without it. */ -}}
{{- define "walrus-operator.nodeImage" -}}
{{- $image := printf "%s:%s" .Values.nodeImage.repository (.Values.nodeImage.tag | default .Chart.AppVersion) -}}
{{- .Values.nodeImage.digest | default "" | empty | ternary $image (printf "%s@%s" $image .Values.nodeImage.digest) -}}
{{- end -}}

{{- /* The namespaces that are watched one by one, the release's own first; as a YAML list. */ -}}
{{- define "walrus-operator.namespaces" -}}
{{- prepend .Values.watch.namespaces .Release.Namespace | uniq | toYaml -}}
{{- end -}}

{{- /* What the schema cannot say, or says as a bare pattern. Every template that needs more than names begins with it. */ -}}
{{- define "walrus-operator.check" -}}
{{- range $name := list "image" "nodeImage" "watch" "crds" "serviceAccount" "rbac" "metrics" "monitoring" "resources" -}}
{{- if not (kindIs "map" (get $.Values $name)) -}}
{{- fail (printf "the value %s is null: leave it out to have its defaults, or give the fields below it that you want" $name) -}}
{{- end -}}
{{- end -}}
{{- if kindIs "invalid" .Values.watch.namespaces -}}
{{- fail "the value watch.namespaces is null: write watch.namespaces=[] to watch the release's own namespace only" -}}
{{- end -}}
{{- $full := include "walrus-operator.fullname" . -}}
{{- range $name := list $full (include "walrus-operator.name" .) -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $name) -}}
{{- fail (printf "the name %s, made from the release's name, nameOverride and fullnameOverride, is none that a Service can bear: use small letters, digits and '-', beginning with a letter, for example walrus-operator" $name) -}}
{{- end -}}
{{- end -}}
{{- /* Who may make a ClusterRole may ask for namespaces; where kube-system is not seen, no cluster is asked. The release's own namespace may be about to be made (--create-namespace). */ -}}
{{- if and (not .Values.watch.all) .Values.rbac.create .Values.rbac.clusterRole (lookup "v1" "Namespace" "" "kube-system") -}}
{{- range without .Values.watch.namespaces .Release.Namespace -}}
{{- if not (lookup "v1" "Namespace" "" .) -}}
{{- fail (printf "watch.namespaces names %s, which is no namespace here: kubectl create namespace %s, or take it out" . .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
