{{- define "walrus.name" -}}
{{- .Values.nameOverride | default .Release.Name -}}
{{- end -}}
