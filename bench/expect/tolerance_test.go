package expect

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseTolerances(t *testing.T) {
	t.Parallel()
	all, own, err := ParseTolerances([]string{"5%", "latency_p99=30%", "bw_average=2%:0.05"})
	want := map[string]Tolerance{"latency_p99": {Bad: 0.3}, "bw_average": {Lower: 0.02, Upper: 0.05}}
	if diff := cmp.Diff(want, own); err != nil || all.Bad != 0.05 || diff != "" {
		t.Errorf("%v, %v (-want +got):\n%s", all, err, diff)
	}
	if all, own, err := ParseTolerances(nil); err != nil || all.Bad != DefaultTolerance || len(own) > 0 {
		t.Errorf("nothing: %v, %v, %v", all, own, err)
	}
	for word, want := range map[string]string{"x": `"x": want more than 0%`, "0%": "want more", "100%": "want more",
		"NaN": "want more", "bw_average=5%:": `bw_average: "": want more`, "-1%": "want more"} {
		if _, _, err := ParseTolerances([]string{word}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", word, err, want)
		}
	}
}
