package lab

import "testing"

func TestStartersAreLabFiles(t *testing.T) {
	for _, devices := range []bool{false, true} {
		l, err := Parse("lab.yaml", Starter("try", devices))
		if err != nil {
			t.Fatal(err)
		}
		if l.Name != "try" || len(l.Nodes) != 2 {
			t.Errorf("devices %v: %+v", devices, l)
		}
	}
}
