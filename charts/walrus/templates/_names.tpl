{{- define "walrus.name" -}}
{{- $name := .Values.nameOverride | default .Release.Name -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $name) -}}
{{- fail (printf "%s cannot be the name of a WalrusCluster, as Services bear it: use small letters, digits and '-', beginning with a letter, for the release's name or for nameOverride" $name) -}}
{{- end -}}
{{- $name -}}
{{- end -}}

{{- define "walrus.labels" -}}
app.kubernetes.io/name: walrus
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- /* The name of a topic's resource, from its organisation and name: a name that Kubernetes does not take gets a mark, so that no two are alike. */ -}}
{{- define "walrus.topic" -}}
{{- $org := .org | default "default" -}}
{{- $said := ternary .name (printf "%s.%s" $org .name) (eq $org "default") -}}
{{- if and (regexMatch "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$" .name) (eq $org "default") (le (len .name) 180) -}}
{{- .name -}}
{{- else -}}
{{- $plain := regexReplaceAll "[^a-z0-9]+" (lower $said) "-" | trunc 180 | trimAll "-" -}}
{{- printf "%s-%s" (default "topic" $plain) (sha256sum (printf "%s/%s" $org .name) | trunc 8) -}}
{{- end -}}
{{- end -}}
