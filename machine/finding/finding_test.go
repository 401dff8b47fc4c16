package finding

import (
	"encoding/json"
	"slices"
	"testing"
)

func TestNotOKKeepsWhatFailedAndWhatIsUnknown(t *testing.T) {
	t.Parallel()
	all := []Finding{{ID: "a", Status: OK}, {ID: "b", Status: Failed}, {ID: "c", Status: Unknown}}
	if bad := NotOK(all); len(bad) != 2 || bad[0].ID != "b" || bad[1].ID != "c" || all[0].ID != "a" {
		t.Errorf("got %v of %v", bad, all)
	}
}

func TestTheWorstComesFirst(t *testing.T) {
	t.Parallel()
	all := []Finding{{ID: "RL002", Severity: Info}, {ID: "RL003", Severity: Error, Subject: "b"},
		{ID: "RL003", Severity: Error, Subject: "a"}, {ID: "RL001", Severity: "new"}, {ID: "RL001", Severity: Warning}}
	if got := Worst(all); got != Error {
		t.Errorf("the worst is %s", got)
	}
	Sort(all)
	var got []string
	for _, f := range all {
		got = append(got, f.ID+" "+string(f.Severity)+f.Subject)
	}
	want := []string{"RL003 errora", "RL003 errorb", "RL001 new", "RL001 warning", "RL002 info"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestJSONHasWhatIsKnown(t *testing.T) {
	t.Parallel()
	for want, f := range map[string]Finding{
		`{"id":"RL003","severity":"error","subject":"s","title":"t","evidence":"e","consequence":"c","fix":"f"}`: {
			ID: "RL003", Severity: Error, Subject: "s", Title: "t", Evidence: "e", Consequence: "c", Fix: "f"},
		`{"id":"link","code":"RL401","subject":"s","title":"t","status":"ok","have":"up"}`: {
			ID: "link", Code: "RL401", Subject: "s", Title: "t", Status: OK, Have: "up", Silent: true},
	} {
		if got, err := json.Marshal(f); err != nil || string(got) != want {
			t.Errorf("got %s, %v, want %s", got, err, want)
		}
	}
}
