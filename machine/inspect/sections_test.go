package inspect

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/machine/dump/texts"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/machine/topology/compare"
)

func readText(t *testing.T, text string) *topology.Host {
	t.Helper()
	h, err := ReadStream(t.Context(), strings.NewReader(text), "paste")
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func oneHost(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("testdata/texts/one-host.txt")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestAPasteWithManyCommandsIsOneHost(t *testing.T) {
	want := []string{
		"2 packages, 192 cores, node 1: 96-191 10", "GPU 0000:05:00.0 node 0, GPU 0000:26:00.0 node 1, path NV",
		"NIC 0000:06:00.0 [enp6s0np0] [mlx5_0] MTU 9000",
		"NIC 0000:27:00.0 [ens2np0] [mlx5_1] MTU 1500 firmware 28.39.1002",
		"iommu=pt", "numa_nodes[0].cpus", "numa_nodes[1].cpus", "cpus.online",
	}
	text := oneHost(t)
	indented := "  " + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n  ") + "\n"
	quoted := "> " + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n> ") + "\n"
	for name, text := range map[string]string{
		"plain": text, "indented": indented, "quoted": quoted,
		"no-break spaces": strings.ReplaceAll(text, " ", "\u00a0"),
		"CRLF":            strings.ReplaceAll(text, "\n", "\r\n"),
		"srun -l":         "0: " + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n0: ") + "\n",
		"titles":          strings.ReplaceAll(text, "root@node1:~# ", "=== "),
		"set -x":          strings.ReplaceAll(text, "root@node1:~# ", "+ "),
		"bare commands":   strings.ReplaceAll(text, "root@node1:~# ", ""),
	} {
		h := readText(t, text)
		if diff := cmp.Diff(want, oneHostFacts(h)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// Some texts of nvidia-smi have the GPU's address, some its UUID, and the matrix only its number.
func TestTextsOfOneGPUAreJoined(t *testing.T) {
	const dir = "testdata/texts/h200/"
	for _, names := range [][]string{{"nvidia-smi", "topo-m"}, {"topo-m", "nvidia-smi-L", "query"},
		{"nvidia-smi-q", "nvidia-smi-L"}, {"nvidia-smi-q-x", "topo-m", "nvidia-smi-L"},
		{"nvidia-smi", "nvidia-smi-q", "nvidia-smi-q-x", "nvidia-smi-L", "topo-m", "query"}} {
		var all []string
		for _, n := range names {
			all = append(all, dir+n+".txt")
		}
		h, err := ReadTogether(t.Context(), all)
		if err != nil || len(h.GPUs) != 1 || len(h.Contradictions) > 0 {
			t.Errorf("%v: %+v, %v", names, h, err)
			continue
		}
		g := h.GPUs[0]
		if g.Address == nil || g.Address.String() != "0000:00:06.0" || g.Model != "NVIDIA H200" || g.NVLinks != nil ||
			g.MemoryBytes == nil || *g.MemoryBytes != 143771<<20 {
			t.Errorf("%v: %+v", names, g)
		}
	}
}

func TestLongFormsOfNvidiaSMIAgree(t *testing.T) {
	read := func(name string) *topology.Host {
		h, err := ReadFile(t.Context(), "testdata/texts/h200/"+name)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	lines, elements, table := read("nvidia-smi-q.txt"), read("nvidia-smi-q-x.txt"), read("query.txt")
	if diff := cmp.Diff(lines.GPUs, elements.GPUs) + cmp.Diff(lines.PCI, elements.PCI); diff != "" {
		t.Errorf("-q and -q -x (-want +got):\n%s", diff)
	}
	g, l := lines.GPUs[0], lines.PCI[0].Link
	if g.UUID == "" || g.UUID != table.GPUs[0].UUID || *g.BAR1Bytes != 256<<30 || *l.SpeedGTs != 32 || *l.Width != 16 ||
		*l.SpeedGTs != *table.PCI[0].Link.SpeedGTs {
		t.Errorf("%+v, link %+v", g, l)
	}
	// With nounits, only the heading has the unit.
	b, err := os.ReadFile("testdata/texts/h200/query.txt")
	if err != nil {
		t.Fatal(err)
	}
	if h := readText(t, strings.ReplaceAll(string(b), " MiB,", ",")); *h.GPUs[0].MemoryBytes != *g.MemoryBytes {
		t.Errorf("%+v", h.GPUs[0])
	}
}

func TestWhetherGPUsReachEachOtherIsNoMatrixOfPaths(t *testing.T) {
	_, err := ReadFile(t.Context(), "testdata/texts/h200/topo-p2p.txt")
	if err == nil || !strings.Contains(err.Error(), "this is of nvidia-smi topo -p2p") {
		t.Error(err)
	}
}

func oneHostFacts(h *topology.Host) []string {
	var out []string
	add := func(parts ...string) { out = append(out, strings.Join(parts, " ")) }
	str := func(v interface{ String() string }) string { return v.String() }
	if len(h.Packages) == 2 && len(h.Cores) == 192 && len(h.NUMANodes) == 2 && len(h.NUMANodes[1].Distances) == 2 {
		add("2 packages, 192 cores, node 1:", str(h.NUMANodes[1].CPUs), "10")
	}
	if len(h.GPUs) == 2 && h.GPUs[1].NUMANode != nil && *h.GPUs[0].NUMANode == 0 && *h.GPUs[1].NUMANode == 1 {
		add("GPU", h.GPUs[0].ID(), "node 0, GPU", h.GPUs[1].ID(), "node 1, path",
			h.Path(h.GPUs[0].ID(), h.GPUs[1].ID()).Label())
	}
	for _, n := range h.NICs {
		mtu := map[int]string{1500: "1500", 9000: "9000"}[*n.Ports[0].MTU]
		parts := []string{"NIC", n.ID(), "[" + strings.Join(n.Netdevs, " ") + "]", "[" + strings.Join(n.RDMA, " ") +
			"]", "MTU", mtu}
		if n.Firmware != "" {
			parts = append(parts, "firmware", n.Firmware)
		}
		add(parts...)
	}
	for _, p := range h.Kernel.Asked {
		if p.Name == "iommu" {
			add("iommu=" + p.Asked)
		}
	}
	for _, c := range h.Contradictions {
		add(c.Fact)
	}
	return out
}

func TestFilesOfOneMachineAreToldFromThoseOfMany(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	lscpu := file("lscpu", "Architecture: x86_64\nCPU(s): 2\n")
	other := file("other", "Architecture: x86_64\nCPU(s): 4\n")
	gpu := file("topo", "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tSYS\t0-3\nGPU1\tSYS\t X \t4-7\n")
	list := file("lspci", "05:00.0 3D controller: NVIDIA Corporation Device 2330\n")
	stat0 := file("stat0", "CA 'mlx5_0'\n\tPort 1:\n\t\tState: Active\n")
	stat1 := file("stat1", "CA 'mlx5_1'\n\tPort 1:\n\t\tState: Active\n")
	whole := file("whole.xml", `<topology version="2.0"><object type="Machine"/></topology>`)
	domain := file("vm.xml", "<domain type='kvm'><name>vm</name><vcpu>2</vcpu></domain>")
	for _, test := range []struct {
		files []string
		want  bool
	}{
		{[]string{lscpu, gpu, list}, true}, {[]string{gpu, list}, true}, {[]string{stat0, stat1}, true},
		{[]string{whole, domain}, true}, {[]string{whole, lscpu, domain}, true},
		{[]string{lscpu, other}, false}, {[]string{lscpu}, false}, {[]string{stat0, stat0}, false},
		{[]string{whole, gpu}, false}, {[]string{whole, whole, domain}, false}, {[]string{lscpu, dir}, false},
	} {
		if got := OneMachine(test.files); got != test.want {
			t.Errorf("%v: %v", test.files, got)
		}
	}
	h, err := ReadTogether(t.Context(), []string{lscpu, gpu, domain})
	if err != nil || len(h.GPUs) != 2 || len(h.Tenants) != 1 || h.CPUs.Online.String() != "0-1" {
		t.Errorf("%+v %v", h, err)
	}
	one := t.TempDir()
	for _, f := range []string{lscpu, gpu} {
		if err := os.Link(f, filepath.Join(one, filepath.Base(f))); err != nil {
			t.Fatal(err)
		}
	}
	if h, err := ReadFile(t.Context(), one); err != nil || len(h.GPUs) != 2 || h.CPUs.Online.String() != "0-1" {
		t.Errorf("%+v %v", h, err)
	}
	if _, err := ReadFile(t.Context(), dir); err == nil {
		t.Error("several machines are read as one")
	}
}

func TestAListingOfGroupsBelowAnotherText(t *testing.T) {
	t.Parallel()
	for _, listing := range []string{"IOMMU Group 14 01:00.0 VGA compatible controller [0300]: NVIDIA [10de:2184]\n",
		"IOMMU Group 14:\n\t01:00.0 VGA compatible controller [0300]: NVIDIA [10de:2184]\n"} {
		h := readText(t, "$ lscpu\nCPU(s): 4\n$ ./iommu.sh\n"+listing)
		if len(h.PCI) != 1 || h.PCI[0].IOMMUGroup == nil || *h.PCI[0].IOMMUGroup != 14 {
			t.Errorf("%q: read %+v", listing, h.PCI)
		}
	}
}

func TestFilesOfProcAsTexts(t *testing.T) {
	for _, text := range []string{"BOOT_IMAGE=/vmlinuz root=/dev/sda1 ro isolcpus=2-3 iommu=pt\n",
		"[    0.000000] Command line: BOOT_IMAGE=/vmlinuz root=/dev/sda1 ro isolcpus=2-3 iommu=pt\n",
		"$ cat /proc/cmdline\nisolcpus=2-3 iommu=pt\n"} {
		h := readText(t, text)
		if len(h.Kernel.Asked) != 2 || h.Kernel.Asked[0].Asked != "2-3" || h.Kernel.Asked[0].InForce != nil ||
			!strings.HasSuffix(*h.Kernel.Cmdline, "iommu=pt") || h.Kernel.ModulesKnown {
			t.Errorf("%q: %+v", text, h.Kernel)
		}
	}
	h := readText(t, "MemTotal:       16384000 kB\nMemFree: 1 kB\nHugePages_Total: 4\nHugepagesize: 2048 kB\n")
	if *h.Memory.TotalBytes != 16384000<<10 || len(h.Memory.Hugepages) != 1 {
		t.Errorf("%+v", h.Memory)
	}
}

func TestOneBrokenTextAmongOthers(t *testing.T) {
	h := readText(t, "$ lscpu\nCPU(s): 2\n$ numactl -H\nbash: numactl: command not found\n$ virsh dumpxml "+
		"vm\n<domain><name>vm</domain>\n")
	if h.CPUs.Online.Len() != 2 || len(h.Unread) != 2 {
		t.Errorf("%+v", h.Unread)
	}
}

// No address may be on two NICs.
func FuzzTexts(f *testing.F) {
	for _, text := range []string{"CA 'a'\nCA 'b'\n", "a port 1 ==> b (Up)\nc port 1 ==> b (Up)\n",
		"$ ethtool -i a\ndriver: x\nbus-info: 0000:01:00.0\n",
		"<device><name>a</name></device>", "link a/1 state ACTIVE netdev b\n2: b: <UP> mtu 1500 x\n",
		"Settings for b:\n\tSpeed: 1Mb/s\n"} {
		f.Add(text, text)
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		if len(a)+len(b) > 2048 {
			return
		}
		found, err := parts(texts.Split([]byte(a+"\n"+b), "paste", texts.Kinds))
		if err != nil || len(found) == 0 {
			return
		}
		h := compare.Join(found)
		seen := map[string]bool{}
		for i := range h.NICs {
			if id := h.NICs[i].ID(); h.NICs[i].Address != nil && seen[id] {
				t.Errorf("%s twice", id)
			} else {
				seen[id] = true
			}
		}
	})
}

// Facts outside the fragment are unknown.
func TestAPieceOfADomainIsATenant(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"<cputune>\n <vcpupin vcpu='0' cpuset='4'/>\n <emulatorpin cpuset='6'/>\n</cputune>`",
			"1 vCPUs, pins [{0 4}], no cells"},
		{"    <vcpupin vcpu='0' cpuset='4'/>\n    <vcpupin vcpu='1' cpuset='5'/>\n    <emulatorpin cpuset='6'/>\n",
			"2 vCPUs, pins [{0 4} {1 5}], no cells"},
		{"  <vcpu placement='static'>2</vcpu>\n  <cpu mode='host-passthrough'><numa>" +
			"<cell id='0' cpus='0-1' memory='1'/></numa></cpu>\n", "2 vCPUs, pins [], 1 cells"},
		{"<hostdev mode='subsystem' type='pci'><source>" +
			"<address domain='0' bus='0x3b' slot='0' function='0'/></source></hostdev>\n" +
			"<hostdev mode='subsystem' type='pci'><source><address bus='0x5e' slot='0' function='1'/></source>" +
			"</hostdev>\n", "0 vCPUs, pins [], no cells 0000:3b:00.0 0000:5e:00.1"},
		{"<numatune><memory mode='strict' nodeset='1'/></numatune>\nsome words\n" +
			"<cputune><vcpupin vcpu='1' cpuset='5'/></cputune>\n", "2 vCPUs, pins [{1 5}], no cells"},
	} {
		h := readText(t, tt.text)
		tenant := h.Tenants[0]
		cells := "no"
		if tenant.GuestNodes != nil {
			cells = fmt.Sprint(*tenant.GuestNodes)
		}
		got := fmt.Sprintf("%d vCPUs, pins %v, %s cells", tenant.VCPUs, tenant.Pins, cells)
		for _, d := range tenant.Devices {
			got += " " + d.PCI.String()
		}
		if len(h.Tenants) != 1 || got != tt.want {
			t.Errorf("%q: %d tenants, %s; want %s", tt.text, len(h.Tenants), got, tt.want)
		}
	}
	for _, text := range []string{"<devices><hostdev/></devices>", "<interface>eth0</interface>", "<name>x</name>"} {
		if _, err := ReadStream(t.Context(), strings.NewReader(text), "paste"); err == nil {
			t.Errorf("%q is read", text)
		}
	}
}

// The text of lstopo is a part like that of other tools.
func TestTheTextOfLstopoIsAPartOfAHost(t *testing.T) {
	h := readText(t, `root@node1:~# lstopo-no-graphics --no-caches
Machine (16GB total)
  Package L#0
    NUMANode L#0 (P#0 8GB)
    Core L#0 + PU L#0 (P#0)
    HostBridge
      PCIBridge
        PCI 41:00.0 (Ethernet)
          Net "eth0"
          OpenFabrics "mlx5_0"
  Package L#1
    NUMANode L#1 (P#1 8GB)
    Core L#1 + PU L#1 (P#1)
root@node1:~# rdma link
link mlx5_0/1 state ACTIVE physical_state LINK_UP netdev eth0
`)
	if len(h.NUMANodes) != 2 || h.NUMANodes[1].CPUs.String() != "1" || len(h.NICs) != 1 || h.NICs[0].NUMANode == nil ||
		*h.NICs[0].NUMANode != 0 || h.NICs[0].ID() != "0000:41:00.0" ||
		h.NICs[0].Devices[0].Ports[0].State != "ACTIVE" {
		t.Errorf("nodes %+v, NICs %+v", h.NUMANodes, h.NICs)
	}
}
