package emulated

import (
	"testing"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/rdma/fabric"
)

func TestSwitchesOfALab(t *testing.T) {
	if lab.MaxLeaves != fabric.MaxLeaves || lab.MaxSpines != fabric.MaxSpines {
		t.Error("lab files and switches have different limits")
	}
	for text, want := range map[string]fabric.Topology{
		"": {},
		"fabric: {topology: leaf-spine, leaves: 2, spines: 3, rate: 200Mb/s}\n": {Leaves: 2, Spines: 3, Rate: 200e6},
		"fabric: {topology: leaf-spine, leaves: 2, spines: 3}\n":                {Leaves: 2, Spines: 3, Rate: 200e9},
	} {
		l, err := lab.Parse("x.yaml", []byte("name: x\n"+text+"nodes: {a: {nic: virtio}, b: {nic: connectx-6}}"))
		if err != nil {
			t.Fatal(err)
		}
		if got := switches(l); got != want {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
		for i, p := range ports("/run/x", l) {
			if want.Leaves > 0 && p.Leaf != i || want.Leaves == 0 && p.Leaf != 0 {
				t.Errorf("%q: node %d is at leaf %d", text, i, p.Leaf)
			}
		}
		t.Setenv(Unpaced, "1")
		if got := switches(l); want.Rate == 200e9 && got.Rate != 0 {
			t.Errorf("without rates of NICs, links have %d bit/s", got.Rate)
		}
		t.Setenv(Unpaced, "")
	}
}
