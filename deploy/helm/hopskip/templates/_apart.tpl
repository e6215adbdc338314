{{/* Keeps nodes apart: by machine, by zone, and evenly over zones. */}}
{{- define "hopskip.apart" -}}
{{- $own := dict "matchLabels" (merge (dict "app.kubernetes.io/component" "node") (include "hopskip.selector" . | fromYaml)) -}}
{{- $required := list -}}
{{- $preferred := list -}}
{{- range $key, $how := dict "kubernetes.io/hostname" .Values.podAntiAffinity.host "topology.kubernetes.io/zone" .Values.podAntiAffinity.zone -}}
{{- $term := dict "labelSelector" $own "topologyKey" $key -}}
{{- if eq $how "required" }}{{ $required = append $required $term }}{{ end -}}
{{- if eq $how "preferred" }}{{ $preferred = append $preferred (dict "weight" 100 "podAffinityTerm" $term) }}{{ end -}}
{{- end -}}
{{- $anti := dict -}}
{{- if $required }}{{ $_ := set $anti "requiredDuringSchedulingIgnoredDuringExecution" $required }}{{ end -}}
{{- if $preferred }}{{ $_ := set $anti "preferredDuringSchedulingIgnoredDuringExecution" $preferred }}{{ end -}}
{{- $out := dict -}}
{{- if $anti }}{{ $_ := set $out "affinity" (dict "podAntiAffinity" $anti) }}{{ end -}}
{{- if .Values.topologySpread.enabled -}}
{{- $spread := dict "maxSkew" 1 "topologyKey" "topology.kubernetes.io/zone" "whenUnsatisfiable" "ScheduleAnyway" "labelSelector" $own -}}
{{- $_ := set $out "topologySpreadConstraints" (list $spread) -}}
{{- end -}}
{{- if $out }}{{ toYaml $out }}{{ end -}}
{{- end }}
