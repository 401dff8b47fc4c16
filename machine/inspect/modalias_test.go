package inspect

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/machine/inspect/tree"
	"github.com/rackless/rackless/machine/topology"
)

const aliases = `# Aliases extracted from modules themselves.
alias pci:v000015B3d00001015sv*sd*bc*sc*i* mlx5_core
alias pci:v000015B3d00001013sv*sd*bc*sc*i* mlx5_core
alias pci:v000010DEd*sv*sd*bc03sc02i00* nouveau
alias pci:v000010DEd*sv*sd*bc03sc00i00* nouveau
alias pci:v000010DEd*sv*sd*bc03sc00i00* nvidia
alias pci:v*d*sv*sd*bc01sc08i02* nvme
alias vfio_pci:v*d*sv*sd*bc*sc*i* vfio_pci
alias usb:v1234p* something
alias pci:broken nothing
`

func TestCandidatesAreTheModulesWhoseAliasesMatch(t *testing.T) {
	t.Parallel()
	function := func(vendor, device topology.ID16, class topology.ID24) *topology.PCIDevice {
		return &topology.PCIDevice{Vendor: &vendor, Device: &device, Class: &class}
	}
	all := map[string]bool{"000015B3": true, "000010DE": true, "0000144D": true}
	for _, tt := range []struct {
		name string
		d    *topology.PCIDevice
		want []string
	}{
		{"by vendor and device", function(0x15b3, 0x1015, 0x020000), []string{"mlx5_core"}},
		{"another device of the vendor", function(0x15b3, 0x1019, 0x020000), nil},
		{"by vendor and class, two drivers", function(0x10de, 0x2204, 0x030000), []string{"nouveau", "nvidia"}},
		{"by class alone", function(0x144d, 0xa808, 0x010802), []string{"nvme"}},
		{"the interface counts", function(0x144d, 0xa808, 0x010801), nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, a := range parseAliases([]byte(aliases), all) {
				if a.matches(modalias(tt.d)) {
					got = append(got, a.module)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestASnapshotKeepsTheAliasesThatAreUsed(t *testing.T) {
	t.Parallel()
	var b tree.Builder
	for name, content := range map[string]string{
		"proc/sys/kernel/osrelease":                    "6.8.0\n",
		"lib/modules/6.8.0/modules.alias":              aliases,
		"sys/bus/pci/devices/0000:41:00.0/class":       "0x020000\n",
		"sys/bus/pci/devices/0000:41:00.0/vendor":      "0x15b3\n",
		"sys/bus/pci/devices/0000:41:00.0/device":      "0x1015\n",
		"sys/devices/system/cpu/online":                "0\n",
		"sys/devices/system/cpu/cpu0/topology/core_id": "0\n",
	} {
		if err := b.File(name, []byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	if err := WriteSnapshot(t.Context(), &out, Source{Name: "x", FS: b.Mem()}, SnapshotOptions{}); err != nil {
		t.Fatal(err)
	}
	m, err := tree.ReadArchive(bytes.NewReader(out.Bytes()), tree.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	kept, err := m.ReadFile("lib/modules/6.8.0/modules.alias")
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(kept, []byte("nouveau")) || bytes.Contains(kept, []byte("usb:")) {
		t.Errorf("kept %q; want what is for the vendors of the machine", kept)
	}
	h, err := ReadStream(t.Context(), &out, "snapshot")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"mlx5_core"}, h.PCI[0].Candidates); diff != "" {
		t.Errorf("candidates after the snapshot (-want +got):\n%s", diff)
	}
}

func FuzzAliases(f *testing.F) {
	f.Add([]byte(aliases))
	f.Add([]byte("alias pci:v*d*sv*sd*bc*sc*i x"))
	vendor, device, class := topology.ID16(0x15b3), topology.ID16(0x1015), topology.ID24(0x020000)
	d := &topology.PCIDevice{Vendor: &vendor, Device: &device, Class: &class}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, a := range parseAliases(b, map[string]bool{"000015B3": true}) {
			a.matches(modalias(d))
		}
	})
}
