{{- define "walrus.name" -}}
{{- $name := .Values.nameOverride | default .Release.Name -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $name) -}}
{{- fail (printf "%s cannot be the name of a WalrusCluster, as Services bear it: use small letters, digits and '-', beginning with a letter, for the release's name or for nameOverride" $name) -}}
{{- end -}}
{{- $name -}}
{{- end -}}
