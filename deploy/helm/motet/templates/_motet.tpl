{{- define "motet.secret" -}}
- name: {{ .name }}
  valueFrom: {secretKeyRef: {name: {{ .root.Values.secretName }}, key: {{ .key }}}}
{{- end }}

{{/* Of now, and of before while it is rotated. */}}
{{- define "motet.rotated" -}}
{{ include "motet.secret" . }}
- name: {{ .name }}_PREVIOUS
  valueFrom: {secretKeyRef: {name: {{ .root.Values.secretName }}, key: {{ .key }}-previous, optional: true}}
{{- end }}

{{- define "motet.base" -}}
- {name: MOTET_HOME, value: /var/lib/motet}
- {name: MOTET_BASE_MODEL, value: /model}
- {name: MOTET_BASE_NAME, value: {{ .Values.baseName | quote }}}
- {name: MOTET_STORE_URL, value: {{ .Values.storeUrl | quote }}}
- {name: MOTET_JOURNAL_DIR, value: /var/lib/motet/journal}
{{ include "motet.rotated" (dict "root" . "name" "MOTET_ENGINE_TOKEN" "key" "engine-token") }}
{{- end }}

{{- define "motet.gateway" -}}
{{ include "motet.base" . }}
- {name: MOTET_PUBLIC_URL, value: {{ .Values.publicUrl | quote }}}
- {name: MOTET_TRUSTED_PROXIES, value: {{ .Values.trustedProxies | quote }}}
- name: MOTET_OIDC_PROVIDERS
  valueFrom: {secretKeyRef: {name: {{ .Values.secretName }}, key: oidc-providers, optional: true}}
- name: MOTET_REPLICAS
  value: "{{ range $i := until (int .Values.engine.replicas) }}{{ if $i }},{{ end }}http://{{ $.Release.Name }}-engine-{{ $i }}.{{ $.Release.Name }}-engine:8090{{ end }}"
{{ include "motet.secret" (dict "root" . "name" "MOTET_DATABASE_URL" "key" "database-url") }}
{{ include "motet.secret" (dict "root" . "name" "MOTET_DATABASE_SYSTEM_URL" "key" "database-system-url") }}
{{ include "motet.secret" (dict "root" . "name" "MOTET_REDIS_URL" "key" "redis-url") }}
{{ include "motet.rotated" (dict "root" . "name" "MOTET_PEPPER" "key" "pepper") }}
{{ include "motet.rotated" (dict "root" . "name" "MOTET_DATA_KEY" "key" "data-key") }}
{{ include "motet.rotated" (dict "root" . "name" "MOTET_RECEIPT_KEY" "key" "receipt-key") }}
{{- end }}
