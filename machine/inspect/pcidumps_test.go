package inspect

import (
	"encoding/xml"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/machine/topology"
)

type shown struct {
	XMLName  xml.Name
	Kind     string  `xml:"type,attr"`
	Address  string  `xml:"pci_busid,attr"`
	PCIType  string  `xml:"pci_type,attr"`
	Speed    float64 `xml:"pci_link_speed,attr"`
	Bridge   string  `xml:"bridge_type,attr"` // "1-1" from PCI to PCI
	Buses    string  `xml:"bridge_pci,attr"`  // "0000:[01-02]"
	Children []shown `xml:"object"`
}

func (s shown) describe(parent string, out map[string]string) {
	if s.Address != "" {
		fields := strings.Fields(s.PCIType) // newer versions add the programming interface
		out[s.Address] = fmt.Sprintf("%s, %.2f GB/s, below %q", strings.Join(fields[:min(len(fields), 4)], " "),
			s.Speed, parent)
		if s.Kind == "Bridge" {
			out[s.Address] += ", buses " + s.Buses
		}
		parent = s.Address
	} else if s.Kind == "Bridge" {
		parent = ""
	}
	for _, c := range s.Children {
		c.describe(parent, out)
	}
}

func asHwloc(d *topology.PCIDevice) string {
	var class topology.ID24
	var vendor, device, subVendor, subDevice topology.ID16
	revision := topology.ID8(0xff) // hwloc's "not known"
	if d.Class != nil {
		class = *d.Class
	}
	for from, to := range map[*topology.ID16]**topology.ID16{&vendor: &d.Vendor, &device: &d.Device,
		&subVendor: &d.SubsystemVendor, &subDevice: &d.SubsystemDevice} {
		if *to != nil {
			*from = **to
		}
	}
	if d.Revision != nil {
		revision = *d.Revision
	}
	speed := 0.0
	if l := d.Link; l != nil && l.SpeedGTs != nil && l.Width != nil {
		speed = topology.LinkGBps(*l.SpeedGTs, *l.Width)
	}
	parent := ""
	if d.Parent != nil {
		parent = d.Parent.String()
	}
	s := fmt.Sprintf("%04x [%04x:%04x] [%04x:%04x] %02x, %.2f GB/s, below %q", class.Sub(), uint16(vendor),
		uint16(device), uint16(subVendor), uint16(subDevice),
		uint8(revision), math.Round(speed*100)/100, parent)
	if d.Bridge != nil {
		s += fmt.Sprintf(", buses %04x:[%02x-%02x]", d.Address.Domain, d.Bridge.Secondary, d.Bridge.Subordinate)
	}
	return s
}

// TestDumpsWithDevices compares functions with hwloc's output for its own tests, and the disks with /proc/mounts.
func TestDumpsWithDevices(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		disks []string // name, function, node, mounts
		// unlike are functions that hwloc does not show.
		unlike map[string]string
	}{
		{
			name: "32em64t-2n8c+dax+nvme+mic+dimms",
			disks: []string{
				"nvme0n1 on 0000:00:02.0 node 0", "pmem0.1 node 0", "pmem0.2s node 0", "pmem0.3 node 0", "pmem1 node 1",
				"pmem1.1s node 1",
				"pmem1.2 node 1", "sda on 0000:00:1f.2 node 0 / /tacc /tmp /var",
			},
			// hwloc leaves out bridges without a secondary bus.
			unlike: map[string]string{
				"0000:00:11.0": `0604 [8086:1d3e] [0000:0000] 06, 0.00 GB/s, below "", buses 0000:[00-00]`},
		},
		{name: "40intel64-2g2n4c+pcilocality", disks: []string{"sda on 0000:01:00.0 / /local /tmp /var"}},
		{name: "fakepcilocalities", disks: []string{"sda on 0000:01:00.0 node 0 / /local /tmp /var"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b, err := os.ReadFile("testdata/hwloc/linux/" + tt.name + ".xml")
			if err != nil {
				t.Fatal(err)
			}
			var top struct {
				Objects []shown `xml:"object"`
			}
			if err := xml.Unmarshal(b, &top); err != nil {
				t.Fatal(err)
			}
			want := map[string]string{}
			for _, o := range top.Objects {
				o.describe("", want)
			}
			if len(want) < 30 {
				t.Fatalf("hwloc shows %d functions; the file is not complete", len(want))
			}
			for address, s := range tt.unlike {
				want[address] = s
			}
			h := readDump(t, "testdata/hwloc/linux/"+tt.name+".tar.bz2")
			got := map[string]string{}
			for i := range h.PCI {
				got[h.PCI[i].Address.String()] = asHwloc(&h.PCI[i])
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("functions (-hwloc +rackless):\n%s", diff)
			}
			if diff := cmp.Diff(tt.disks, describeDisks(h)); diff != "" {
				t.Errorf("disks (-want +got):\n%s", diff)
			}
			for _, u := range h.Unread {
				// Some dumps have only the 64 bytes that every user can read.
				if strings.Contains(u.Path, "/pci") && !strings.HasPrefix(u.Why, "that of ") {
					t.Errorf("unread: %v", u)
				}
			}
		})
	}
}

func describeDisks(h *topology.Host) []string {
	var out []string
	for _, d := range h.Storage {
		s := d.Name
		if d.PCI != nil {
			s += " on " + d.PCI.String()
		}
		if d.NUMANode != nil {
			s += fmt.Sprintf(" node %d", *d.NUMANode)
		}
		out = append(out, strings.Join(append([]string{s}, d.Mounts...), " "))
	}
	return out
}
