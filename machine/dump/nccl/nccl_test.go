package nccl_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/internal/golden"
	"github.com/rackless/rackless/machine/dump/nccl"
	"github.com/rackless/rackless/machine/topology"
)

func readFile(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func parse(t testing.TB, text string) *topology.Host {
	t.Helper()
	h, err := nccl.Parse([]byte(text), "t.xml")
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func fixtures(t testing.TB) []string {
	t.Helper()
	var names []string
	for _, dir := range []string{".", "corpus"} {
		files, err := filepath.Glob(filepath.Join("testdata", dir, "*.xml"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no fixtures in %s: %v", dir, err)
		}
		for _, f := range files {
			names = append(names, filepath.Join(dir, filepath.Base(f)))
		}
	}
	return names
}

func summary(h *topology.Host) string {
	var b strings.Builder
	fmt.Fprintf(&b, "  %s %s %s: %d PCI, %d GPUs, %d NICs, filled %s\n", h.Provenance.Kind, h.Provenance.Tool,
		h.System.Arch,
		len(h.PCI), len(h.GPUs), len(h.NICs), strings.Join(h.Provenance.Filled, " "))
	for _, n := range h.NUMANodes {
		fmt.Fprintf(&b, "  node %d: CPUs %s\n", n.ID, n.CPUs)
	}
	optional := func(v *int) string {
		if v == nil {
			return "?"
		}
		return fmt.Sprint(*v)
	}
	for _, g := range h.GPUs {
		fmt.Fprintf(&b, "  GPU %s: index %s, node %s, %s %s, NVLinks %s\n", g.ID(), optional(g.Index),
			optional(g.NUMANode), g.Kind, g.ComputeArch, optional(g.NVLinks))
	}
	for _, n := range h.NICs {
		speed := "?"
		if n.SpeedMbps != nil {
			speed = fmt.Sprint(*n.SpeedMbps)
		}
		fmt.Fprintf(&b, "  NIC %s: node %s, RDMA %v, interfaces %v, %s Mb/s\n", n.ID(), optional(n.NUMANode), n.RDMA,
			n.Netdevs, speed)
	}
	classes := map[string]int{}
	for _, p := range topology.NewTree(h).Paths() {
		label := p.Label()
		if p.PCIe != topology.PathUnknown {
			label += "/" + p.PCIe.String()
		}
		classes[label]++
	}
	var labels []string
	for l := range classes {
		labels = append(labels, l)
	}
	slices.Sort(labels)
	b.WriteString("  paths")
	for _, l := range labels {
		fmt.Fprintf(&b, " %s=%d", l, classes[l])
	}
	b.WriteString("\n")
	for _, u := range h.Unread {
		fmt.Fprintf(&b, "  unread %s: %s\n", u.Path, u.Why)
	}
	return b.String()
}

func TestSummariesOfFixtures(t *testing.T) {
	t.Parallel()
	var got bytes.Buffer
	for _, f := range fixtures(t) {
		name := filepath.Base(f)
		h, err := nccl.Parse(readFile(t, f), name)
		if err != nil {
			fmt.Fprintf(&got, "error: %v\n", err)
			continue
		}
		fmt.Fprintf(&got, "%s\n%s", name, summary(h))
	}
	golden.Check(t, filepath.Join("testdata", "summaries.golden"), got.Bytes())
}

func matrix(h *topology.Host, ids ...string) string {
	tree := topology.NewTree(h)
	var b strings.Builder
	for _, a := range ids {
		for i, c := range ids {
			if i > 0 {
				b.WriteByte(' ')
			}
			if a == c {
				b.WriteString("X")
			} else {
				b.WriteString(tree.Path(a, c).Label())
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func TestPathsFollowNCCL(t *testing.T) {
	t.Parallel()
	h := parse(t, string(readFile(t, "hgx-nvswitch.xml")))
	got := matrix(h, "0000:19:00.0", "0000:22:00.0", "0000:97:00.0", "0000:1a:00.0", "0000:26:00.0", "0000:5e:00.0")
	want := strings.Join([]string{
		"X NV17 NV18 PIX PXB PHB",
		"NV17 X NV17 PXB PXB PHB",
		"NV18 NV17 X SYS SYS SYS",
		"PIX PXB SYS X PXB PHB",
		"PXB PXB SYS PXB X PHB",
		"PHB PHB SYS PHB PHB X",
	}, "\n") + "\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	tree := topology.NewTree(h)
	if got := tree.Path("0000:19:00.0", "0000:22:00.0").PCIe; got != topology.PathPXB {
		t.Errorf("way over PCIe %s; want PXB", got)
	}
}

func TestFactsOfAMachine(t *testing.T) {
	t.Parallel()
	h := parse(t, string(readFile(t, "hgx-nvswitch.xml")))
	gpu, nic := topology.PCIAddr{Bus: 0x19}, topology.PCIAddr{Bus: 0x1a}
	tree := topology.NewTree(h)

	wantPCI := &topology.PCIDevice{
		Address: gpu, Parent: &topology.PCIAddr{Bus: 0x17}, Root: "numa0", NUMANode: new(0),
		Class: new(topology.ID24(0x030200)), Vendor: new(topology.VendorNVIDIA), Device: new(topology.ID16(0x2330)),
		SubsystemVendor: new(topology.VendorNVIDIA), SubsystemDevice: new(topology.ID16(0x16c1)),
		Link: &topology.Link{MaxSpeedGTs: new(32.0), MaxWidth: new(16)},
	}
	if diff := cmp.Diff(wantPCI, tree.Device(gpu)); diff != "" {
		t.Errorf("PCI function (-want +got):\n%s", diff)
	}
	if b := tree.Device(topology.PCIAddr{Bus: 0x17}).Bridge; b == nil || b.Port != topology.PortSwitch {
		t.Errorf("bridge %+v; want a whole switch", b)
	}
	wantGPU := topology.GPU{
		Address: &gpu, Functions: []topology.PCIAddr{gpu}, Kind: topology.GPUDiscrete, Index: new(0), NUMANode: new(0),
		NVLinks: new(18), ComputeArch: "sm_90",
	}
	if diff := cmp.Diff(wantGPU, h.GPUs[0]); diff != "" {
		t.Errorf("GPU (-want +got):\n%s", diff)
	}
	wantNIC := topology.NIC{
		Address: &nic, RDMA: []string{"mlx5_0"}, Netdevs: []string{}, SpeedMbps: new(int64(400000)), NUMANode: new(0),
		Devices: []topology.RDMADevice{{Name: "mlx5_0", Ports: []topology.RDMAPort{{Number: 1, RateGbps: new(400.0)}}}},
	}
	if diff := cmp.Diff(wantNIC, h.NICs[0]); diff != "" {
		t.Errorf("NIC (-want +got):\n%s", diff)
	}
	// Two ports used as one are two RDMA devices, with unknown individual rates.
	if n := h.NICs[1]; fmt.Sprint(n.RDMA) != "[mlx5_1 mlx5_2]" || *n.SpeedMbps != 200000 ||
		n.Devices[0].Ports[0].RateGbps != nil {
		t.Errorf("merged NIC %+v", n)
	}
	if n := h.NICs[2]; fmt.Sprint(n.Netdevs) != "[ens3f0]" || len(n.RDMA) != 0 || *n.SpeedMbps != 25000 {
		t.Errorf("Ethernet NIC %+v", n)
	}
	if len(h.NICs) != 3 {
		t.Errorf("%d NICs; docker0 is none", len(h.NICs))
	}
	if len(h.CPUs.Online.String()) != 0 {
		t.Errorf("online CPUs %s; a topology does not tell", h.CPUs.Online)
	}
}

func one(inner string) string {
	return `<system version="1"><cpu numaid="0" affinity="ff" arch="x86_64">` + inner + `</cpu></system>`
}

func TestValuesThatAreNotKnownStayAbsent(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, attrs string }{
		{"no attributes", ``},
		{"empty ones",
			`class="" vendor="" device="" subsystem_vendor="" subsystem_device="" link_speed="" link_width=""`},
		{"stand-ins",
			`vendor="0xffff" device="0xffff" subsystem_vendor="0x0000" subsystem_device="0x0000" ` +
				`link_speed="Unknown" link_width="0"`},
		{"what sysfs has for unknown", `link_speed="Unknown speed" link_width="255"`},
		{"negative numbers", `link_speed="0 GT/s" link_width="-1"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := parse(t, one(`<pci busid="0000:01:00.0" `+c.attrs+`/>`))
			want := topology.PCIDevice{Address: topology.PCIAddr{Bus: 1}, Root: "numa0", NUMANode: new(0)}
			if diff := cmp.Diff(want, h.PCI[0]); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if len(h.Unread) != 0 {
				t.Errorf("unread %v", h.Unread)
			}
		})
	}
}

func TestLinkSpeeds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in   string
		want float64
	}{
		{"2.5 GT/s", 2.5}, {"8 GT/s", 8}, {"16.0 GT/s PCIe", 16}, {"32.0 GT/s PCIe", 32}, {"64.0 GT/s PCIe", 64},
		{"5", 5},
	} {
		h := parse(t, one(`<pci busid="0000:01:00.0" link_speed="`+c.in+`"/>`))
		if l := h.PCI[0].Link; l == nil || *l.MaxSpeedGTs != c.want || l.SpeedGTs != nil {
			t.Errorf("%q: got %+v", c.in, l)
		}
	}
	for _, bad := range []string{"fast", "16 Gb/s", "NaN", "1e9 GT/s", "-8 GT/s", "Inf"} {
		h := parse(t, one(`<pci busid="0000:01:00.0" link_speed="`+bad+`"/>`))
		if h.PCI[0].Link != nil || len(h.Unread) != 1 {
			t.Errorf("%q: link %+v, unread %v", bad, h.PCI[0].Link, h.Unread)
		}
	}
}

func TestInstructionSets(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ attrs, want string }{
		{`sm="90"`, "sm_90"}, {`sm="103"`, "sm_103"}, {``, ""}, {`sm="-1"`, ""}, {`sm=""`, ""},
		{`sm="104" gcn="910"`, "gfx90a"}, {`sm="120" gcn="908"`, "gfx908"}, {`sm="228" gcn="940"`, "gfx940"},
		{`sm="304" gcn="gfx942:sramecc+:xnack-"`, "gfx942"}, {`gcn="gfx90a"`, "gfx90a"}, {`gcn=""`, ""},
	} {
		h := parse(t, one(`<pci busid="0000:01:00.0" class="0x030200"><gpu dev="0" `+c.attrs+`/></pci>`))
		if got := h.GPUs[0].ComputeArch; got != c.want {
			t.Errorf("%s: got %q, want %q", c.attrs, got, c.want)
		}
	}
}

func TestNodesAndAffinity(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, cpu, nodes, node string }{
		{"a node", `numaid="3" affinity="00000000,ffff0000"`, "3:16-31", "3"},
		{"short words", `numaid="0" affinity="3ff,f0003fff"`, "0:0-13,28-41", "0"},
		{"a node without CPUs", `numaid="2" affinity="00000000"`, "2:", "2"},
		{"no node, as in virtual machines", `numaid="-1" affinity="ff"`, "", ""},
		{"no number", `affinity="ff"`, "", ""},
		{"no affinity", `numaid="1"`, "", "1"},
		{"an empty affinity", `numaid="1" affinity=""`, "", "1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := parse(t, `<system version="1"><cpu `+c.cpu+
				`><pci busid="0000:01:00.0"/><pci busid="0000:02:00.0"/></cpu></system>`)
			var nodes []string
			for _, n := range h.NUMANodes {
				nodes = append(nodes, fmt.Sprintf("%d:%s", n.ID, n.CPUs))
			}
			node := ""
			if n := h.PCI[0].NUMANode; n != nil {
				node = fmt.Sprint(*n)
			}
			if got := strings.Join(nodes, " "); got != c.nodes || node != c.node {
				t.Errorf("nodes %q, device on %q; want %q, %q", got, node, c.nodes, c.node)
			}
			// One cpu element is one host bridge, even if its node is unknown.
			if got := matrix(h, "0000:01:00.0", "0000:02:00.0"); got != "X PHB\nPHB X\n" {
				t.Errorf("paths\n%s", got)
			}
		})
	}
}

func TestNetsBecomeNICs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, inner, want string }{
		{"an RDMA port",
			`<pci busid="0000:01:00.0" class="0x020000"><nic><net name="mlx5_0" speed="200000" port="1"/></nic></pci>`,
			"0000:01:00.0 [mlx5_0] [] 200000 node 0"},
		{"an interface",
			`<pci busid="0000:01:00.0" class="0x020000"><nic><net name="eno1" speed="1000" port="0"/></nic></pci>`,
			"0000:01:00.0 [] [eno1] 1000 node 0"},
		{"two ports of one device",
			`<pci busid="0000:01:00.0" class="0x020700"><nic><net name="mlx4_0" speed="40000" port="2"/>` +
				`<net name="mlx4_0" speed="56000" port="1"/></nic></pci>`, "0000:01:00.0 [mlx4_0] [] 56000 node 0"},
		{"a function without a class", `<pci busid="0000:01:00.0"><nic><net name="mlx5_0" port="1"/></nic></pci>`,
			"0000:01:00.0 [mlx5_0] [] ? node 0"},
		{"a function without nets", `<pci busid="0000:01:00.0" class="0x020700"/>`, "0000:01:00.0 [] [] ? node 0"},
		{"an interface of a hypervisor", `<nic><net name="eth0" speed="100000" port="0"/></nic>`,
			"eth0 [] [eth0] 100000 node ?"},
		{"an RDMA device without a function", `<nic><net name="efa_0" speed="100000" port="1"/></nic>`,
			"efa_0 [efa_0] [] 100000 node ?"},
		{"what software made",
			`<nic><net name="br-702d9f064725" port="0"/><net name="veth1" port="0"/><net name="cali1" port="0"/>` +
				`<net name="tunl0" port="0"/></nic>`, ""},
		{"a name twice", `<nic><net name="eth0" port="0"/></nic><nic><net name="eth0" port="0"/></nic>`,
			"eth0 [] [eth0] ? node ?"},
		{"a speed that cannot be", `<nic><net name="eth0" speed="200000000" port="0"/></nic>`,
			"eth0 [] [eth0] ? node ?"},
		{"no speed", `<nic><net name="eth0" speed="-1" port="0"/></nic>`, "eth0 [] [eth0] ? node ?"},
		{"a name that is none", `<nic><net name="../../etc" port="0"/><net port="1"/></nic>`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, n := range parse(t, one(c.inner)).NICs {
				speed, node := "?", "?"
				if n.SpeedMbps != nil {
					speed = fmt.Sprint(*n.SpeedMbps)
				}
				if n.NUMANode != nil {
					node = fmt.Sprint(*n.NUMANode)
				}
				got = append(got, fmt.Sprintf("%s %v %v %s node %s", n.ID(), n.RDMA, n.Netdevs, speed, node))
			}
			if got := strings.Join(got, "; "); got != c.want {
				t.Errorf("got %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestLinksBetweenGPUs(t *testing.T) {
	t.Parallel()
	gpu := func(bus int, links string) string {
		return fmt.Sprintf(`<pci busid="0000:%02x:00.0" class="0x030200" vendor="0x10de">`+
			`<gpu dev="%d" sm="80">%s</gpu></pci>`, bus, bus, links)
	}
	for _, c := range []struct{ name, one, two, three, want, nvlinks string }{
		{"a bridge", `<nvlink target="0000:02:00.0" count="4" tclass="0x030200"/>`,
			`<nvlink target="0000:01:00.0" count="4" tclass="0x030200"/>`, ``, "NV4 PHB PHB", "4 4 ?"},
		{"upper case in a target", `<nvlink target="00000000:02:00.0" count="4" tclass="0x030200"/>`, ``, ``,
			"NV4 PHB PHB", "4 ? ?"},
		{"stated at one end", `<nvlink target="0000:02:00.0" count="4"/>`, ``, ``, "NV4 PHB PHB", "4 ? ?"},
		{"ends that differ", `<nvlink target="0000:02:00.0" count="1"/>`, `<nvlink target="0000:01:00.0" count="12"/>`,
			``, "NV1 PHB PHB", "1 12 ?"},
		{"two bundles to one GPU", `<nvlink target="0000:02:00.0" count="2"/><nvlink target="0000:02:00.0" count="1"/>`,
			``, ``, "NV3 PHB PHB", "3 ? ?"},
		{"switches",
			`<nvlink target="0000:c4:00.0" count="6" tclass="0x068000"/>` +
				`<nvlink target="0000:c5:00.0" count="6" tclass="0x068000"/>`,
			`<nvlink target="0000:c4:00.0" count="6" tclass="0x068000"/>` +
				`<nvlink target="0000:c5:00.0" count="4" tclass="0x068000"/>`,
			`<nvlink target="fffffff:ffff:ff" count="12" tclass="0x068000"/>`, "NV10 NV12 NV10", "12 10 12"},
		{"to a GPU that is not in the dump", `<nvlink target="0000:09:00.0" count="4" tclass="0x030200"/>`, ``, ``,
			"PHB PHB PHB", "4 ? ?"},
		{"to the processor", `<nvlink target="fffffff:ffff:ff" count="3" tclass="0x068001"/>`,
			`<nvlink target="fffffff:ffff:ff" count="3" tclass="0x068001"/>`, ``, "PHB PHB PHB", "3 3 ?"},
		{"to itself", `<nvlink target="0000:01:00.0" count="12"/>`, ``, ``, "PHB PHB PHB", "12 ? ?"},
		{"no count", `<nvlink target="0000:02:00.0"/>`, `<nvlink target="0000:02:00.0" count="0"/>`, ``, "PHB PHB PHB",
			"? ? ?"},
		{"xGMI", `<xgmi target="0000:02:00.0" count="2" tclass="0x038000"/>`,
			`<xgmi target="0000:01:00.0" count="2" tclass="0x038000"/>`, ``, "NV2 PHB PHB", "? ? ?"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := parse(t, one(gpu(1, c.one)+gpu(2, c.two)+gpu(3, c.three)))
			tree := topology.NewTree(h)
			var got, nvlinks []string
			for _, p := range [][2]int{{0, 1}, {0, 2}, {1, 2}} {
				got = append(got, tree.Path(h.GPUs[p[0]].ID(), h.GPUs[p[1]].ID()).Label())
			}
			for _, g := range h.GPUs {
				if g.NVLinks == nil {
					nvlinks = append(nvlinks, "?")
				} else {
					nvlinks = append(nvlinks, fmt.Sprint(*g.NVLinks))
				}
			}
			if strings.Join(got, " ") != c.want || strings.Join(nvlinks, " ") != c.nvlinks {
				t.Errorf("paths %v, links %v; want %s, %s", got, nvlinks, c.want, c.nvlinks)
			}
		})
	}
}

func TestFirstOfSeveralMachinesIsRead(t *testing.T) {
	t.Parallel()
	h := parse(t, `<system version="1">
<cpu host_hash="0xa" numaid="0" affinity="f">`+
		`<pci busid="0008:01:00.0" class="0x030200"><gpu dev="0" sm="100"><c2c bw="900" count="1"/></gpu></pci></cpu>
<cpu host_hash="0xb" numaid="0" affinity="f">`+
		`<pci busid="0008:01:00.0" class="0x030200"><gpu dev="0" sm="100"/></pci></cpu>
<cpu host_hash="0xa" numaid="1" affinity="f0">`+
		`<pci busid="0018:01:00.0" class="0x030200"><gpu dev="2" sm="100"/></pci></cpu>
</system>`)
	if len(h.GPUs) != 2 || len(h.NUMANodes) != 2 {
		t.Errorf("%d GPUs, %d nodes; want 2 of each", len(h.GPUs), len(h.NUMANodes))
	}
	want := []topology.Unread{{Path: "t.xml:3", Why: "<cpu> belongs to another machine: the topology holds several, " +
		"and the first one is read"}}
	if diff := cmp.Diff(want, h.Unread); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestToolIsTold(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ inner, want string }{
		{`<pci busid="0000:01:00.0"><gpu sm="80"/></pci>`, "NCCL"},
		{`<pci busid="0000:01:00.0"><gpu sm="80" gcn="908"/></pci>`, "RCCL"},
		{`<pci busid="0000:01:00.0"><gpu sm="80"><xgmi target="0000:02:00.0" count="1"/></gpu></pci>`, "RCCL"},
	} {
		if got := parse(t, one(c.inner)).Provenance; got.Tool != c.want || got.Kind != topology.SourceNCCL ||
			got.Name != "t.xml" || got.ThisSystem {
			t.Errorf("%s: provenance %+v; want tool %s", c.inner, got, c.want)
		}
	}
}

func TestSniff(t *testing.T) {
	t.Parallel()
	for _, f := range fixtures(t) {
		if b := readFile(t, f); !nccl.Sniff(b[:min(len(b), 1024)]) {
			t.Errorf("%s is not recognised", f)
		}
	}
	for _, s := range []string{"", "hello", `<topology version="2.0">`,
		`<domain><sysinfo type="smbios"><system><entry/></system></sysinfo></domain>`, "GPU0 X"} {
		if nccl.Sniff([]byte(s)) {
			t.Errorf("Sniff(%q) = true", s)
		}
	}
}

// Two elements with the same name stay separate switches. A device that occurs twice is one device.
func TestASwitchThatIsNamedTwiceIsTwo(t *testing.T) {
	for _, tt := range []struct{ second, want string }{
		{"0000:17:00.0", "2 switches, path PHB"},
		{"0000:18:00.0", "2 switches, path PHB"},
		{"", "1 switches, path PIX"},
	} {
		text := `<system version="1"><cpu numaid="0"><pci busid="0000:17:00.0">` +
			`<pci busid="0000:19:00.0" class="0x030200"/>`
		if tt.second != "" {
			text += `</pci><pci busid="` + tt.second + `">`
		}
		text += `<pci busid="0000:1a:00.0" class="0x020700"/><pci busid="0000:19:00.0" class="0x030200"/>` +
			`</pci></cpu></system>`
		h, err := nccl.Parse([]byte(text), "t.xml")
		if err != nil {
			t.Fatal(err)
		}
		switches := 0
		for i := range h.PCI {
			if h.PCI[i].Bridge != nil {
				switches++
			}
		}
		gpu, nic := h.PCI[0].Address, h.PCI[0].Address
		for i := range h.PCI {
			switch h.PCI[i].Address.Bus {
			case 0x19:
				gpu = h.PCI[i].Address
			case 0x1a:
				nic = h.PCI[i].Address
			}
		}
		got := fmt.Sprintf("%d switches, path %s", switches, topology.NewTree(h).Between(gpu, nic))
		if got != tt.want {
			t.Errorf("with %q: %s; want %s", tt.second, got, tt.want)
		}
		if twice := len(h.Unread); twice == 0 {
			t.Errorf("with %q: nothing is said", tt.second)
		}
	}
}
