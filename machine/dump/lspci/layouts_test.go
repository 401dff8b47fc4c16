package lspci_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/rackless/rackless/machine/topology"
)

func TestPastedListsSayTheSame(t *testing.T) {
	t.Parallel()
	text := readFile(t, "server-vvnn.txt")
	want := parse(t, text)
	each := func(f func(string) string) string {
		lines := strings.Split(text, "\n")
		for i, l := range lines {
			lines[i] = f(l)
		}
		return strings.Join(lines, "\n")
	}
	for _, c := range []struct{ name, text string }{
		{"spaces for tabs", strings.ReplaceAll(text, "\t", "        ")},
		{"DOS line ends", strings.ReplaceAll(text, "\n", "\r\n")},
		{"no break at the end", strings.TrimSpace(text)},
		{"no indentation", each(strings.TrimSpace)},
		{"a quote", each(func(l string) string { return "> " + l })},
		{"indented", each(func(l string) string { return "    " + l })},
		{"between other text", "$ sudo lspci -vvnn\nlspci: Unable to load libkmod resources: error -2\n" + text +
			"\n$ uname -r\n6.1.0\n"},
		{"no empty lines", strings.ReplaceAll(text, "\n\n", "\n")},
		{"twice", text + "\n" + text},
		{"a short list before it", shortList(text) + "\n" + text},
		{"a drawing before it", readFile(t, "server-tv.txt") + "\n" + text},
		{"a drawing behind it", text + "\n" + readFile(t, "server-tv.txt")},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(want.PCI, parse(t, c.text).PCI); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

var heads = regexp.MustCompile(`(?m)^[0-9a-f]+:[0-9a-f:.]+ .*$`)

func shortList(text string) string {
	return strings.Join(heads.FindAllString(text, -1), "\n") + "\n"
}

func TestOtherLayoutsSayTheSame(t *testing.T) {
	t.Parallel()
	text := readFile(t, "server-vvnn.txt")
	full := parse(t, text)
	identity := []string{"Class", "Vendor", "Device", "Revision", "VendorName", "DeviceName", "ClassName", "Dead"}
	names := []string{"Class", "Revision", "ClassName", "Dead"}
	for _, c := range []struct {
		name, text string
		fields     []string // the fields of the layout
	}{
		{"-nn", shortList(text), identity},
		{"-n", numbersOnly(shortList(text)), identity},
		{"names alone", namesOnly(shortList(text)), names},
		{"-k", drivers(text), append([]string{"Driver", "DriverKnown", "Candidates"}, names...)},
		{"-mmnn", quoted(shortList(text)), identity},
		{"-vmmnnk", records(text), append([]string{"NUMANode", "IOMMUGroup", "Driver", "DriverKnown", "Candidates",
			"Slot"}, identity...)},
		{"as a user", denied(text), append([]string{"NUMANode", "IOMMUGroup", "Driver", "DriverKnown", "Candidates",
			"BARs", "Parent", "Root", "Slot"}, identity...)},
		{"-vnn", brief(text), append([]string{"NUMANode", "IOMMUGroup", "Driver", "DriverKnown", "Candidates", "Parent",
			"Root", "BARs"}, identity...)},
		{"-PP", paths(full, shortList(text)), append([]string{"Parent", "Root"}, identity...)},
		{"-tv", readFile(t, "server-tv.txt"), []string{"Parent", "Root"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := parse(t, c.text)
			if diff := cmp.Diff(project(full.PCI, c.fields), project(got.PCI, c.fields)); diff != "" {
				t.Errorf("(-want +got):\n%s\n%s", diff, c.text)
			}
			if len(got.GPUs) != len(full.GPUs) || len(got.NICs) != len(full.NICs) {
				t.Errorf("%d GPUs and %d NICs; want %d and %d", len(got.GPUs), len(got.NICs), len(full.GPUs),
					len(full.NICs))
			}
		})
	}
}

func project(devices []topology.PCIDevice, fields []string) []string {
	var out []string
	for i := range devices {
		d := &devices[i]
		line := d.Address.String()
		for _, f := range fields {
			var v any
			switch f {
			case "Class":
				v = orUnknown(d.Class)
				if d.Class != nil {
					v = fmt.Sprintf("%04x", d.Class.Sub()) // only verbose lists have the interface
				}
			case "Vendor":
				v = orUnknown(d.Vendor)
			case "Device":
				v = orUnknown(d.Device)
			case "Revision":
				v = orUnknown(d.Revision)
			case "VendorName":
				v = d.VendorName
			case "DeviceName":
				v = d.DeviceName
			case "ClassName":
				v = d.ClassName
			case "Dead":
				v = d.Dead
			case "NUMANode":
				v = orUnknown(d.NUMANode)
			case "IOMMUGroup":
				v = orUnknown(d.IOMMUGroup)
			case "Driver":
				v = d.Driver
			case "DriverKnown":
				v = d.DriverKnown
			case "Candidates":
				v = d.Candidates
			case "Slot":
				v = d.Slot
			case "Parent":
				v = orUnknown(d.Parent)
			case "Root":
				v = d.Root
			case "BARs":
				v = d.BARs
				var sizes []uint64
				for _, b := range d.BARs {
					sizes = append(sizes, b.SizeBytes)
				}
				v = sizes
			}
			line += fmt.Sprintf(" %s=%v", f, v)
		}
		out = append(out, line)
	}
	return out
}

var (
	classOf = regexp.MustCompile(`^(\S+) (.*?) \[([0-9a-f]{4})\]: (.*) \[([0-9a-f]{4}):([0-9a-f]{4})\](.*)$`)
	ifaceOf = regexp.MustCompile(` \(prog-if [^)]*\)`)
)

func eachHead(list string, f func(m []string) string) string {
	var out []string
	for line := range strings.Lines(list) {
		if m := classOf.FindStringSubmatch(strings.TrimSpace(ifaceOf.ReplaceAllString(line, ""))); m != nil {
			out = append(out, f(m))
		}
	}
	return strings.Join(out, "\n") + "\n"
}

func numbersOnly(list string) string {
	return eachHead(list, func(m []string) string { return m[1] + " " + m[3] + ": " + m[5] + ":" + m[6] + m[7] })
}

func namesOnly(list string) string {
	return eachHead(list, func(m []string) string { return m[1] + " " + m[2] + ": " + m[4] + m[7] })
}

func quoted(list string) string {
	return eachHead(list, func(m []string) string {
		vendor, device := m[4], ""
		for _, v := range []string{"Intel Corporation", "Broadcom / LSI", "NVIDIA Corporation", "Mellanox Technologies",
			"Samsung Electronics Co Ltd"} {
			if rest, ok := strings.CutPrefix(m[4], v+" "); ok {
				vendor, device = v, rest
			}
		}
		rev := strings.NewReplacer("(rev ", "-r", ")", "").Replace(m[7])
		return fmt.Sprintf("%s \"%s [%s]\" \"%s [%s]\" \"%s [%s]\"%s \"\" \"\"", m[1], m[2], m[3], vendor, m[5], device,
			m[6], rev)
	})
}

func blocks(text string) []string { return strings.Split(strings.TrimSpace(text), "\n\n") }

var detailValue = regexp.MustCompile(
	`(?m)^\t(NUMA node|IOMMU group|Kernel driver in use|Kernel modules|Physical Slot): (.*)$`)

func records(text string) string {
	var b strings.Builder
	keys := map[string]string{"NUMA node": "NUMANode", "IOMMU group": "IOMMUGroup", "Kernel driver in use": "Driver",
		"Physical Slot": "PhySlot"}
	for _, block := range blocks(text) {
		head, rest, _ := strings.Cut(block, "\n")
		m := classOf.FindStringSubmatch(ifaceOf.ReplaceAllString(head, ""))
		fmt.Fprintf(&b, "Slot:\t%s\nClass:\t%s [%s]\nVendor:\tx [%s]\nDevice:\ty [%s]\n", m[1], m[2], m[3], m[5], m[6])
		if rev, ok := strings.CutPrefix(m[7], " (rev "); ok {
			fmt.Fprintf(&b, "Rev:\t%s\n", rev[:2])
		}
		for _, d := range detailValue.FindAllStringSubmatch(rest, -1) {
			if d[1] == "Kernel modules" {
				for _, module := range strings.Split(d[2], ", ") {
					fmt.Fprintf(&b, "Module:\t%s\n", module)
				}
				continue
			}
			fmt.Fprintf(&b, "%s:\t%s\n", keys[d[1]], d[2])
		}
		b.WriteString("\n")
	}
	// pci.ids has names for all but these.
	return strings.NewReplacer("y [09a2]", "Device [09a2]", "y [347a]", "Device [347a]").Replace(b.String())
}

func drivers(text string) string {
	var b strings.Builder
	for _, block := range blocks(text) {
		head, rest, _ := strings.Cut(block, "\n")
		b.WriteString(namesOnly(head))
		for _, d := range detailValue.FindAllStringSubmatch(rest, -1) {
			if strings.HasPrefix(d[1], "Kernel") {
				b.WriteString(d[0] + "\n")
			}
		}
	}
	return b.String()
}

func denied(text string) string {
	var b strings.Builder
	for _, block := range blocks(text) {
		inside, said := false, false
		for line := range strings.Lines(block) {
			switch {
			case strings.HasPrefix(line, "\tCapabilities:"):
				inside = true
				if !said {
					b.WriteString("\tCapabilities: <access denied>\n")
					said = true
				}
			case inside && strings.HasPrefix(line, "\t\t"):
			default:
				inside = false
				b.WriteString(line)
			}
		}
		b.WriteString("\n\n")
	}
	return b.String()
}

func brief(text string) string {
	text = denied(text)
	node := regexp.MustCompile(`(?m)^\tNUMA node: (\d+)$`)
	group := regexp.MustCompile(`(?m)^\tIOMMU group: (\d+)\n`)
	var out []string
	for _, block := range blocks(text) {
		flags := "\tFlags: bus master, fast devsel, latency 0, IRQ 255"
		if m := node.FindStringSubmatch(block); m != nil {
			flags += ", NUMA node " + m[1]
		}
		if m := group.FindStringSubmatch(block); m != nil {
			flags += ", IOMMU group " + m[1]
		}
		block = group.ReplaceAllString(node.ReplaceAllString(block, flags), "")
		out = append(out, regexp.MustCompile(`(?m)^\tRegion \d: `).ReplaceAllString(block, "\t"))
	}
	return strings.Join(out, "\n\n")
}

func paths(h *topology.Host, list string) string {
	tree := topology.NewTree(h)
	return eachHead(list, func(m []string) string {
		a, _ := topology.ParsePCIAddr(m[1])
		steps := []string{m[1]}
		for _, b := range tree.Ancestors(a) {
			steps = append(steps, b.Address.String())
		}
		slices.Reverse(steps)
		domain, _, _ := strings.Cut(m[1], ":")
		for i := 1; i < len(steps); i++ {
			steps[i] = strings.TrimPrefix(steps[i], domain+":")
		}
		return strings.Replace(m[0], m[1], strings.Join(steps, "/"), 1)
	})
}

func TestAccessDeniedIsNoted(t *testing.T) {
	t.Parallel()
	h := parse(t, denied(readFile(t, "server-vvnn.txt")))
	want := []topology.Unread{{Path: "l.txt:7", Why: "capabilities of 8 functions: access denied; run lspci as root"}}
	if diff := cmp.Diff(want, h.Unread); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for i := range h.PCI {
		if d := &h.PCI[i]; d.Link != nil || d.ACS != nil || d.SRIOV != nil || d.Bridge != nil && d.Bridge.Port != "" {
			t.Errorf("%s: facts of capabilities that could not be read: %s", d.Address, describe(d))
		}
	}
}

func TestClassesAndNames(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ line, want string }{
		{"00:00.0 Host bridge [0600]: Intel Corporation Device [8086:ffe0]",
			`0x060000 0x8086:0xffe0 "Host bridge" "Intel Corporation" "Device"`},
		{"00:00.0 0600: 8086:1237 (rev 02)",
			`0x060000 0x8086:0x1237 "Host bridge" "Intel Corporation" "440FX - 82441FX PMC [Natoma]"`},
		{"00:00.0 Class 0502: Device 8086:0d93 (rev 01) (prog-if 10)",
			`0x050210 0x8086:0x0d93 "CXL" "Intel Corporation" ""`},
		{"00:00.0 Class [0502]: Intel Corporation Device [8086:0d93]",
			`0x050200 0x8086:0x0d93 "CXL" "Intel Corporation" "Device"`},
		{"00:00.0 Unassigned class [ff00]: Red Hat, Inc. Virtio 1.0 socket [1af4:1053]",
			`0xff0000 0x1af4:0x1053 "Unassigned class" "Red Hat, Inc." "Virtio 1.0 socket"`},
		{"00:00.0 VGA compatible controller: Advanced Micro Devices, Inc. [AMD/ATI] Vega 20 (rev c1)",
			`0x030000 0x1002:? "VGA compatible controller" "Advanced Micro Devices, Inc. [AMD/ATI]" "Vega 20"`},
		{"00:00.0 Co-processor: IBM: Unknown device 00e0 (rev 01)", `0x0b4000 ?:0x00e0 "Co-processor" "" "IBM"`},
		{"00:00.0 Ethernet controller: Some New Vendor, Inc. NIC 9000",
			`0x020000 ?:? "Ethernet controller" "" "Some New Vendor, Inc. NIC 9000"`},
		{"00:00.0 Infiniband controller [0207]: Mellanox Technologies MT2910 Family [ConnectX-7] [15b3:1021]",
			`0x020700 0x15b3:0x1021 "Infiniband controller" "Mellanox Technologies" "MT2910 Family [ConnectX-7]"`},
		{"00:00.0 Network controller: Intel Corporation Wi-Fi",
			`0x028000 0x8086:? "Network controller" "Intel Corporation" "Wi-Fi"`},
		{"00:00.0 No such class: Thing", `? ?:? "No such class" "" "Thing"`},
		{"00:00.0 Processing accelerators [1200]: Advanced Micro Devices, Inc. [AMD/ATI] Aqua Vanjaram [Instinct " +
			"MI300X] [1002:74a1]",
			`0x120000 0x1002:0x74a1 "Processing accelerators" "Advanced Micro Devices, Inc. [AMD/ATI]" ` +
				`"Aqua Vanjaram [Instinct MI300X]"`},
		{"00:00.0 VGA compatible controller: Red Hat, Inc. QXL paravirtual graphic card (rev 05)",
			`0x030000 0x1b36:? "VGA compatible controller" "Red Hat, Inc." "QXL paravirtual graphic card"`},
	} {
		d := &parse(t, c.line+"\n").PCI[0]
		got := fmt.Sprintf("%s %s:%s %q %q %q", orUnknown(d.Class), orUnknown(d.Vendor), orUnknown(d.Device),
			d.ClassName, d.VendorName, d.DeviceName)
		// If pci.ids gets a name, it replaces the text's.
		if got != c.want && !strings.Contains(c.line, "Device [") && !strings.Contains(c.line, "Device 8086") {
			t.Errorf("%s\ngot  %s\nwant %s", c.line, got, c.want)
		}
		if prefix, _, _ := strings.Cut(c.want, ` "`); !strings.HasPrefix(got, prefix) {
			t.Errorf("%s\ngot  %s\nwant %s", c.line, got, prefix)
		}
	}
}

func TestDrawnFunctionsAreKnownByName(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, want string }{
		{"NVIDIA Corporation AD102GL [RTX 6000 Ada Generation]", "GPU discrete"},
		{"NVIDIA Corporation GH100 [H100 SXM5 80GB]", "GPU discrete"},
		{"NVIDIA Corporation GK104GL [GRID K520]", "GPU discrete"},
		{"NVIDIA Corporation GA102GL [A10]", "GPU discrete"},
		{"NVIDIA Corporation GB202", "GPU discrete"},
		{"NVIDIA Corporation GH100 [H100 NVSwitch]", ""},
		{"NVIDIA Corporation AD102 High Definition Audio Controller", ""},
		{"NVIDIA Corporation TU104 USB 3.1 Host Controller", ""},
		{"NVIDIA Corporation TU104 USB Type-C UCSI Controller", ""},
		{"Advanced Micro Devices, Inc. [AMD/ATI] Aldebaran/MI200 [Instinct MI250X/MI250]", "GPU discrete"},
		{"Advanced Micro Devices, Inc. [AMD/ATI] Navi 21 [Radeon RX 6800/6800 XT / 6900 XT]", "GPU discrete"},
		{"Advanced Micro Devices, Inc. [AMD/ATI] Navi 21/23 HDMI/DP Audio Controller", ""},
		{"Intel Corporation UHD Graphics 630", "GPU integrated"},
		{"ASPEED Technology, Inc. ASPEED Graphics Family", "GPU display"},
		{"Mellanox Technologies MT2910 Family [ConnectX-7]", "NIC"},
		{"Mellanox Technologies MT43244 BlueField-3 integrated ConnectX-7 network controller", "NIC"},
		{"Mellanox Technologies MT43244 BlueField-3 SoC Management Interface", ""},
		{"Intel Corporation Ethernet Controller X710 for 10GBASE-T", "NIC"},
		{"Red Hat, Inc. Virtio network device", "NIC"},
		{"Amazon.com, Inc. Elastic Fabric Adapter (EFA)", "NIC"},
		{"Samsung Electronics Co Ltd NVMe SSD Controller PM9A1/PM9A3/980PRO", ""},
		{"Intel Corporation Device 1234", ""},
	} {
		h := parse(t, "-[0000:00]---02.0  "+c.name+"\n")
		got := ""
		if len(h.GPUs) > 0 {
			got = "GPU " + h.GPUs[0].Kind
		}
		if len(h.NICs) > 0 {
			got += "NIC"
		}
		if got != c.want || h.PCI[0].Class != nil {
			t.Errorf("%s: got %q, class %s; want %q and no class", c.name, got, orUnknown(h.PCI[0].Class), c.want)
		}
	}
}

func TestDrawings(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"one root, as -t draws it", "-[0000:00]-+-00.0\n           +-01.0-[01]----00.0\n           \\-1f.0\n",
			[]string{
				"0000:00:00.0 pci0000:00", "0000:00:01.0 pci0000:00 to 01-01", "0000:00:1f.0 pci0000:00",
				"0000:01:00.0 pci0000:00 behind 0000:00:01.0",
			}},
		{"a root with one function", "-[0000:00]---00.0\n", []string{"0000:00:00.0 pci0000:00"}},
		{"without domains, as old versions draw it", "-[00]-+-00.0\n      \\-02.0\n",
			[]string{"0000:00:00.0 pci0000:00", "0000:00:02.0 pci0000:00"}},
		{"an empty bus", "-[0000:00]---01.0-[01-05]--\n", []string{"0000:00:01.0 pci0000:00 to 01-05"}},
		{"domains of VMD", "-+-[10000:e0]---06.0-[e1]----00.0\n \\-[0000:00]---00.0\n", []string{
			"0000:00:00.0 pci0000:00", "10000:e0:06.0 pci10000:e0 to e1-e1",
			"10000:e1:00.0 pci10000:e0 behind 10000:e0:06.0",
		}},
		{"a branch that closes before another opens",
			"-[0000:00]-+-01.0-[01]--+-00.0\n           |            \\-00.1\n           \\-02.0-[02]--+-00.0\n      " +
				"                  \\-00.1\n", []string{
				"0000:00:01.0 pci0000:00 to 01-01", "0000:00:02.0 pci0000:00 to 02-02",
				"0000:01:00.0 pci0000:00 behind 0000:00:01.0", "0000:01:00.1 pci0000:00 behind 0000:00:01.0",
				"0000:02:00.0 pci0000:00 behind 0000:00:02.0", "0000:02:00.1 pci0000:00 behind 0000:00:02.0",
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, d := range parse(t, c.text).PCI {
				s := d.Address.String() + " " + d.Root
				if d.Parent != nil {
					s += " behind " + d.Parent.String()
				}
				if d.Bridge != nil {
					s += fmt.Sprintf(" to %02x-%02x", d.Bridge.Secondary, d.Bridge.Subordinate)
				}
				got = append(got, s)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestDumpsSayWhatNamesDoNot(t *testing.T) {
	t.Parallel()
	dump := func(bytes map[int]byte) string {
		var b strings.Builder
		for line := 0; line < 256; line += 16 {
			fmt.Fprintf(&b, "%02x:", line)
			for i := range 16 {
				fmt.Fprintf(&b, " %02x", bytes[line+i])
			}
			b.WriteString("\n")
		}
		return b.String()
	}
	text := "00:01.0 PCI bridge: Some Bridge\n" + dump(map[int]byte{
		0: 0x86, 1: 0x80, 2: 0x7a, 3: 0x34, 6: 0x10, 8: 0x04, 0xa: 0x04, 0xb: 0x06, 0xe: 0x01, 0x18: 0x00, 0x19: 0x01,
		0x1a: 0x02, 0x34: 0x40,
		0x40: 0x10, 0x41: 0x00, 0x42: 0x42, 0x4c: 0x04, 0x4d: 0x01, 0x52: 0x03, 0x53: 0x01,
	}) + "\n01:00.0 3D controller: Some GPU\n" + dump(map[int]byte{
		0: 0xde, 1: 0x10, 2: 0xb5, 3: 0x20, 6: 0x10, 8: 0xa1, 0xa: 0x02, 0xb: 0x03, 0x2c: 0xde, 0x2d: 0x10, 0x2e: 0x33,
		0x2f: 0x15, 0x34: 0x60,
		0x60: 0x01, 0x61: 0x78, 0x78: 0x10, 0x79: 0x60, 0x7a: 0x02, 0x84: 0x04, 0x85: 0x01, 0x8a: 0x81, 0x8b: 0x00,
	})
	h := parse(t, text)
	got := []string{describe(&h.PCI[0]), describe(&h.PCI[1])}
	want := []string{
		`0000:00:01.0 class 0x060400 0x8086:0x347a rev 0x04 "PCI bridge" "Intel Corporation" ` +
			`"Ice Lake PCI Express Root Port A" on pci0000:00 bridge "root port" to 01-02 node ? group ? ` +
			`link 8 x16 of 16 x16`,
		`0000:01:00.0 class 0x030200 0x10de:0x20b5 subsystem 0x10de:0x1533 rev 0xa1 "3D controller" ` +
			`"NVIDIA Corporation" "GA100 [A100 PCIe 80GB]" behind 0000:00:01.0 on pci0000:00 node ? group ? ` +
			`link 2.5 x8 of 16 x16`,
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
