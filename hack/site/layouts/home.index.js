{{- $all := slice }}
{{- range where site.Pages "Layout" "ne" "search" }}{{ if .File }}
  {{- $page := . }}{{ $parts := split (replaceRE `<(/?)h[34]` "<${1}h2" .Content) "<h2 id=\"" }}
  {{- $top := index (findRESubmatch `(?s)<h1[^>]*>(.*?)</h1>` .Content 1) 0 }}{{ $title := index $top 1 | plainify | htmlUnescape }}
  {{- $address := cond .IsHome "index.html" (strings.TrimPrefix "/" .RelPermalink) }}
  {{- range $i, $part := $parts }}
    {{- $name := $title }}{{ $to := $address }}{{ $text := $part }}
    {{- if $i }}
      {{- $id := index (split $part "\"") 0 }}{{ $rest := split $part "</h2>" }}
      {{- $name = printf "%s: %s" $title (index (split (index $rest 0) ">") 1 | plainify | htmlUnescape) }}
      {{- $to = printf "%s#%s" $address $id }}{{ $text = index $rest 1 }}
    {{- end }}
    {{- $all = $all | append (dict "title" $name "address" $to "text" ($text | plainify | htmlUnescape | replaceRE `\s+` " ")) }}
  {{- end }}
{{- end }}{{ end -}}
const sections = {{ $all | jsonify }}
