package render

import (
	"strings"
	"testing"

	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
)

func TestPortsOfACardShareTheirVirtualFunctions(t *testing.T) {
	t.Parallel()
	in := hostH20(t)
	addNIC(t, in.Host, "0000:12:00.1", "ens3np1", "b8:3f:d2:00:12:01", 400_000, 0)
	in.Plan.VFs = []plan.PFCount{{PF: "0000:12:00.0", Count: 8}, {PF: "0000:12:00.1", Count: 7},
		{PF: "0000:91:00.0", Count: 4}}
	page := string(render(t, in)["commands.txt"].Data)
	if strings.Count(page, "mstconfig -d 0000:12:00.0 set NUM_OF_VFS=16\n") != 1 ||
		strings.Count(page, "0000:12:00.0 set NUM_OF_VFS") != 1 {
		t.Errorf("not one command for 16 virtual functions in\n%s", page)
	}
}

func TestTheBIOSPageShowsWhatIsMissing(t *testing.T) {
	t.Parallel()
	in := hostH20(t)
	off := false
	in.Host.IOMMU.Enabled = &off
	in.Host.NICs[0].SRIOV.Total = nil
	in.Host.IOMMU.Groups = []topology.IOMMUGroup{{ID: 7, Devices: []topology.PCIAddr{addr(t, "0000:08:00.0"),
		addr(t, "0000:91:00.0")}}}
	v, err := newView(in)
	if err != nil {
		t.Fatal(err)
	}
	page := v.page("bios.md", v.plan)
	for _, want := range []string{"**off**", "0000:12:00.0 **offers none**",
		"groups 7 also have devices that the plan does not give away", "the largest BAR has 128 GiB",
		"2 NUMA nodes in 2 sockets"} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in\n%s", want, page)
		}
	}
}
