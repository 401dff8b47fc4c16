package check

import "testing"

func TestEveryCheckHasAGroup(t *testing.T) {
	prefix := map[Group]string{HostGroup: "RL2", DomainGroup: "RL3", LabGroup: "RL4", GuestGroup: "RL4"}
	count := map[Group]int{}
	for _, id := range IDs() {
		g := GroupOf(id)
		count[g]++
		if want, code := prefix[g], Code(id); want == "" || code[:3] != want {
			t.Errorf("%s %s is in group %q", code, id, g)
		}
	}
	if len(count) != len(prefix) || count[LabGroup] != len(LabIDs()) {
		t.Errorf("checks by group: %v", count)
	}
	if g := GroupOf("no-such-check"); g != "" {
		t.Errorf("a check that does not exist is in group %q", g)
	}
}

func TestNotOKKeepsWhatFailedAndWhatIsUnknown(t *testing.T) {
	all := []Finding{{ID: "a", Status: OK}, {ID: "b", Status: Failed}, {ID: "c", Status: Unknown}}
	if bad := NotOK(all); len(bad) != 2 || bad[0].ID != "b" || bad[1].ID != "c" || all[0].ID != "a" {
		t.Errorf("got %v of %v", bad, all)
	}
}
