package render

import (
	"strings"
	"testing"

	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/topology"
)

// fakeMstconfig keeps the parameters of each card in a file "NAME VALUE".
const fakeMstconfig = `card=$2
file=$RACKLESS_ROOT/cards/$card
case $3 in
query) printf '\nDevice #1:\n----------\nConfigurations:                Next Boot\n'
    sed -n "s/^$4 \(.*\)/*        $4                   \1  /p" "$file" ;;
--yes) echo "set $card $5" >>"$RACKLESS_ROOT/log"
    name=${5%%=*} value=${5#*=}
    case $name in SRIOV_EN) value="X($value)" ;; LINK*) value="Y($value)" ;; esac
    sed -i "s/^$name .*/$name $value/" "$file" ;;
esac`

func TestNICFirmwareIsSetAndSetBack(t *testing.T) {
	t.Parallel()
	r := newFakeRoot(t)
	r.program("mstconfig", fakeMstconfig)
	script := hostScript(t, hostH20(t), "firmware/nic.sh")
	before := map[string]string{
		"cards/0000:12:00.0": "SRIOV_EN False(0)\nNUM_OF_VFS 0\nLINK_TYPE_P1 IB(1)",
		"cards/0000:91:00.0": "SRIOV_EN True(1)\nNUM_OF_VFS 16\nLINK_TYPE_P1 ETH(2)\nLINK_TYPE_P2 VPI(3)",
		"cards/0000:a1:00.0": "SRIOV_EN False(0)\nNUM_OF_VFS 0",
	}
	for name, content := range before {
		r.write(name, content)
	}
	if out := r.mustRun(script, "query"); !strings.Contains(out, "0000:12:00.0 NUM_OF_VFS: 0, to be changed to 5") ||
		!strings.Contains(out, "0000:91:00.0 NUM_OF_VFS: 16\n") {
		t.Errorf("query says\n%s", out)
	}
	for range 2 {
		r.mustRun(script, "apply")
		r.want(map[string]string{
			"cards/0000:12:00.0": "SRIOV_EN X(1)\nNUM_OF_VFS 5\nLINK_TYPE_P1 Y(2)",
			"cards/0000:91:00.0": "SRIOV_EN True(1)\nNUM_OF_VFS 16\nLINK_TYPE_P1 ETH(2)\nLINK_TYPE_P2 Y(2)",
			"cards/0000:a1:00.0": before["cards/0000:a1:00.0"],
		})
	}
	if n := strings.Count(r.read("log"), "set "); n != 4 {
		t.Errorf("%d settings in two runs; want 4 in the first:\n%s", n, r.read("log"))
	}
	r.mustRun(script, "undo")
	r.want(map[string]string{
		"cards/0000:12:00.0": "SRIOV_EN X(0)\nNUM_OF_VFS 0\nLINK_TYPE_P1 Y(1)",
		"cards/0000:91:00.0": "SRIOV_EN True(1)\nNUM_OF_VFS 16\nLINK_TYPE_P1 ETH(2)\nLINK_TYPE_P2 Y(3)",
	})
}

func TestACardWithoutSRIOVIsNamed(t *testing.T) {
	t.Parallel()
	r := newFakeRoot(t)
	r.program("mstconfig", fakeMstconfig)
	for _, card := range []string{"0000:12:00.0", "0000:91:00.0", "0000:a1:00.0"} {
		r.write("cards/"+card, "NUM_OF_VFS 0")
	}
	r.mustFail(hostScript(t, hostH20(t), "firmware/nic.sh"), "0000:12:00.0 has no parameter SRIOV_EN", "apply")
}

func TestPortsOfACardShareTheirVirtualFunctions(t *testing.T) {
	t.Parallel()
	in := hostH20(t)
	addNIC(t, in.Host, "0000:12:00.1", "ens3np1", "b8:3f:d2:00:12:01", 400_000, 0)
	in.Plan.VFs = []plan.PFCount{{PF: "0000:12:00.0", Count: 8}, {PF: "0000:12:00.1", Count: 7},
		{PF: "0000:91:00.0", Count: 4}}
	script := string(hostScript(t, in, "firmware/nic.sh"))
	if want := "firmware 0000:12:00.0 NUM_OF_VFS 16 least must\n"; strings.Count(script, "12:00.0 NUM_OF_VFS") != 1 ||
		!strings.Contains(script, want) {
		t.Errorf("no %q, or more beside it, in\n%s", want, script)
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
