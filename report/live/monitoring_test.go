package live

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestMonitoringExamplesAskForMetricsThatExist reads examples/monitoring. /metrics must have the metrics and labels.
func TestMonitoringExamplesAskForMetricsThatExist(t *testing.T) {
	t.Parallel()
	families, err := newServer(t, typical(t)).registry(t.Context()).Gather()
	if err != nil {
		t.Fatal(err)
	}
	labels := map[string][]string{} // by metric
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				labels[f.GetName()] = append(labels[f.GetName()], l.GetName())
			}
		}
	}
	var (
		metric   = regexp.MustCompile(`rackless_\w+`)
		selector = regexp.MustCompile(`(rackless_\w+)\{([^}]*)\}`)
		label    = regexp.MustCompile(`(\w+)(?:=~|!~|!=|=)`)
		shown    = regexp.MustCompile(`\{\{ ?(?:\$labels\.)?(\w+) ?\}\}`)
	)
	all := slices.Concat(slices.Collect(maps.Values(labels))...)
	for _, file := range []string{"rules.yaml", "grafana.json"} {
		raw, err := os.ReadFile("../../examples/monitoring/" + file)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.ReplaceAll(string(raw), `\"`, `"`)
		names := metric.FindAllString(text, -1)
		if len(names) < 4 {
			t.Errorf("%s asks for %d metrics", file, len(names))
		}
		for _, name := range names {
			if labels[name] == nil {
				t.Errorf("%s: there is no metric %s", file, name)
			}
		}
		for _, s := range selector.FindAllStringSubmatch(text, -1) {
			for _, l := range label.FindAllStringSubmatch(s[2], -1) {
				if !slices.Contains(labels[s[1]], l[1]) {
					t.Errorf("%s: %s has no label %s", file, s[1], l[1])
				}
			}
		}
		for _, s := range shown.FindAllStringSubmatch(text, -1) {
			if !slices.Contains(all, s[1]) {
				t.Errorf("%s shows a label %s, which no metric has", file, s[1])
			}
		}
	}
}
