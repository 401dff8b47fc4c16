package lspci_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/machine/dump/lspci"
	"github.com/rackless/rackless/machine/topology"
)

func TestErrorsNameThePlace(t *testing.T) {
	t.Parallel()
	const nothing = "l.txt: no PCI function found; want the output of lspci -vvnn, of lspci -tv or of lspci -vmmkn"
	for _, c := range []struct{ name, text, want string }{
		{"an empty file", "", nothing},
		{"other text", "hello\nworld\n", nothing},
		{"details of nothing", "\tKernel driver in use: nvidia\n", nothing},
		{"a device that cannot be", "\n00:3f.0 Host bridge: X\n",
			`l.txt:2: PCI address "00:3f.0": device "3f" is not 00 to 1f; ` +
				`want domain:bus:device.function in hexadecimal, such as 0000:3b:00.1`},
		{"a function that cannot be", "00:00.8 Host bridge: X\n",
			`l.txt:1: PCI address "00:00.8": function "8" is not 0 to 7; ` +
				`want domain:bus:device.function in hexadecimal, such as 0000:3b:00.1`},
		{"a path without buses", "00:01.0/00.0 VGA compatible controller: X\n",
			`l.txt:1: "00:01.0/00.0" is a path without buses (lspci -P); run lspci with -PP, or without`},
		{"a path that leads up", "00:01.0 PCI bridge: X\n05:00.0/03:00.0 VGA compatible controller: X\n",
			"l.txt:2: 0000:03:00.0 cannot be behind 0000:05:00.0: numbers of buses rise on the way down"},
		{"no name", "00:01.0 what\n", `l.txt:1: "what": want a class, a colon and a name behind the address`},
		{"a broken record on one line", `00:01.0 "Host bridge" "Intel` + "\n",
			`l.txt:1: "\"Intel" is not a quoted field of lspci -mm`},
		{"a record with few fields", `00:01.0 "Host bridge" "Intel"` + "\n",
			"l.txt:1: 2 quoted fields; want class, vendor and device, and those of the subsystem"},
		{"a record without an address", "Slot:\tx\nClass:\t0600\n",
			`l.txt:1: PCI address "x": no bus; want domain:bus:device.function in hexadecimal, such as 0000:3b:00.1`},
		{"a record with a revision that is none", "Slot:\t00:00.0\nRev:\tzz\n",
			`l.txt:2: Rev: "zz" is not a number of two hexadecimal digits`},
		{"a branch on nothing", "-[0000:00]-+-00.0\n      \\-01.0\n",
			"l.txt:2: the branch in column 7 hangs on nothing that is drawn above it"},
		{"a drawing without its start", " |           +-00.3  X\n",
			"l.txt: no PCI function found; want the output of lspci -vvnn, of lspci -tv or of lspci -vmmkn"},
		{"a branch that hangs on nothing", "-[0000:00]-+-00.0\n |           +-00.3  X\n",
			"l.txt:2: the branch in column 14 hangs on nothing that is drawn above it"},
		{"a root that is none", "-[0000:00]-+-00.0\n-[zz]-\n",
			"l.txt:2: column 2: want the number of a root bus, such as [0000:40]"},
		{"a drawn function that is none", "-[0000:00]-+-zz.0\n", "l.txt:1: column 14: want a function, such as 1c.0"},
		{"a drawn bridge to itself", "-[0000:00]---01.0-[00]----00.0\n",
			"l.txt:1: bus 00 cannot lead to the buses [00]"},
		{"a drawn bridge to a lower bus", "-[0000:05]---01.0-[03-04]----00.0\n",
			"l.txt:1: bus 05 cannot lead to the buses [03-04]"},
		{"buses that run backwards", "-[0000:00]---01.0-[05-03]----00.0\n",
			"l.txt:1: bus 00 cannot lead to the buses [05-03]"},
		{"text behind a drawn function", "-[0000:00]---01.0x\n",
			`l.txt:1: "x" behind a function; want its name or the buses behind it`},
		{"a drawing cut off", "-[0000:00]-+-\n", "l.txt:1: column 14: want a function, such as 1c.0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := lspci.Parse([]byte(c.text), "l.txt")
			if err == nil || err.Error() != c.want {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
			var e *lspci.Error
			if !errors.As(err, &e) || e.File != "l.txt" {
				t.Errorf("error is %T; want *lspci.Error with the file", err)
			}
		})
	}
}

func TestOddLinesAreNoted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, text, want string }{
		{"a node that is none", "00:00.0 0600: 8086:1237\n\tNUMA node: many\n",
			`l.txt:2: NUMA node: "many" is not a number`},
		{"a group that is too large", "00:00.0 0600: 8086:1237\n\tIOMMU group: 99999999\n",
			`l.txt:2: IOMMU group: "99999999" is not a number`},
		{"two machines", "00:00.0 0600: 8086:1237\n\n00:00.0 0600: 8086:29c0\n\tNUMA node: 7\n",
			"l.txt:3: 0000:00:00.0 is another device here than in line 1: the text holds two machines, and the first " +
				"one is read"},
		{"a record's node that is none", "Slot:\t00:00.0\nNUMANode:\t-1\n", `l.txt:2: NUMANode: "-1" is not a number`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := parse(t, c.text)
			if len(h.Unread) != 1 || h.Unread[0].Path+": "+h.Unread[0].Why != c.want {
				t.Errorf("got  %v\nwant %s", h.Unread, c.want)
			}
			if h.PCI[0].NUMANode != nil || h.PCI[0].IOMMUGroup != nil {
				t.Errorf("got %s", describe(&h.PCI[0]))
			}
		})
	}
}

func TestDetailsThatSayNothingStayUnknown(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		"Capabilities: [78] Express (v2) Endpoint, MSI 00\n\t\tLnkCap:\tPort #0, Speed unknown, Width x0, ASPM not " +
			"supported",
		"Capabilities: [78] Express (v2) Endpoint, MSI 00\n\t\tLnkSta:\tSpeed 2.5GT/s, Width x0",
		"Capabilities: [78] Express (v2) Endpoint, MSI 00\n\t\tLnkSta:\tSpeed -5GT/s, Width x99",
		// outside of its capability
		"Capabilities: [60] Power Management version 3\n\t\tLnkSta:\tSpeed 8GT/s, Width x8",
		"Region 9: Memory at 0 (64-bit, prefetchable) [size=16M]",     // no such BAR
		"Region 0: Memory at 0 (64-bit) [size=99999999999999999999G]", // impossible size
		"Bus: primary=00, secondary=00, subordinate=00, sec-latency=0",
		"Subsystem: Device 0000:0000",
		"Status: D7",
		"Kernel",
		": :",
	} {
		h := parse(t, "00:05.0 0300: 10de:20b5\n\t"+line+"\n")
		got := describe(&h.PCI[0])
		if want := describe(&parse(t, "00:05.0 0300: 10de:20b5\n").PCI[0]); got != want {
			t.Errorf("%s\ngot  %s\nwant %s", line, got, want)
		}
	}
}

func TestBridgesCannotMakeLoops(t *testing.T) {
	t.Parallel()
	bridge := func(addr string, secondary, subordinate int) string {
		return fmt.Sprintf("%s PCI bridge [0604]: X [8086:1234]\n\tBus: primary=00, secondary=%02x, "+
			"subordinate=%02x, sec-latency=0\n\n", addr, secondary, subordinate)
	}
	for _, text := range []string{
		bridge("01:00.0", 1, 255),                             // behind itself
		bridge("01:00.0", 2, 255) + bridge("02:00.0", 1, 255), // behind each other
		bridge("00:00.0", 255, 1),
	} {
		h := parse(t, text)
		tree := topology.NewTree(h)
		for i := range h.PCI {
			d := &h.PCI[i]
			if d.Parent != nil && d.Parent.Bus >= d.Address.Bus {
				t.Errorf("%s is behind %s", d.Address, d.Parent)
			}
			tree.Ancestors(d.Address)
		}
	}
}

func TestPlaceInTheTree(t *testing.T) {
	t.Parallel()
	const nvidia = "17:00.0 3D controller [0302]: X [10de:20b5]\n"
	const bridge = "16:01.0 PCI bridge [0604]: X [8086:347a]\n"
	for _, c := range []struct{ name, text, want string }{
		{"a list without buses", bridge + nvidia, "?"},
		{"one function", nvidia, "?"},
		{"a bridge that leads to it", bridge + "\tBus: primary=16, secondary=17, subordinate=17, sec-latency=0\n" +
			nvidia, "0000:16:01.0"},
		{"the nearest of two bridges", "00:01.0 PCI bridge [0604]: X [8086:347a]\n\tBus: primary=00, secondary=01, " +
			"subordinate=20, sec-latency=0\n" +
			bridge + "\tBus: primary=16, secondary=17, subordinate=17, sec-latency=0\n" + nvidia, "0000:16:01.0"},
		{"no bridge leads to it, and all tell",
			bridge + "\tBus: primary=16, secondary=18, subordinate=19, sec-latency=0\n" + nvidia, "pci0000:17"},
		{"no bridge leads to it, but one does not tell",
			bridge + "\tBus: primary=16, secondary=18, subordinate=19, sec-latency=0\n\n" +
				"16:02.0 PCI bridge [0604]: X [8086:347a]\n" + nvidia, "?"},
		{"a bridge without buses leads nowhere",
			bridge + "\tBus: primary=16, secondary=18, subordinate=19, sec-latency=0\n\n" +
				"16:02.0 PCI bridge [0604]: X [8086:347a]\n\tBus: primary=00, secondary=00, subordinate=00, " +
				"sec-latency=0\n" + nvidia, "pci0000:17"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := device(t, parse(t, c.text), "0000:17:00.0")
			got := d.Root
			if d.Parent != nil {
				got = d.Parent.String()
			} else if d.ParentUnknown {
				got = "?"
			}
			if got != c.want {
				t.Errorf("on %s; want %s", got, c.want)
			}
		})
	}
}

func TestManyVirtualFunctions(t *testing.T) {
	t.Parallel()
	h := parse(t, "ff:1f.7 0200: 15b3:101b\n\tCapabilities: [180 v1] Single Root I/O Virtualization "+
		"(SR-IOV)\n\t\tIOVCtl:\tEnable+\n"+
		"\t\tInitial VFs: 65535, Total VFs: 65535, Number of VFs: 65535, Function Dependency Link: 00\n\t\tVF "+
		"offset: 1, stride: 1, Device ID: 101c\n")
	if s := h.PCI[0].SRIOV; *s.Total != 65535 || len(s.VFs) != 0 {
		t.Errorf("%d virtual functions behind the last routing ID", len(s.VFs))
	}
	h = parse(t, "00:00.0 0200: 15b3:101b\n\tCapabilities: [180 v1] Single Root I/O Virtualization (SR-IOV)\n"+
		"\t\tInitial VFs: 8, Total VFs: 8, Number of VFs: 3, Function Dependency Link: 00\n\t\tVF offset: 128, "+
		"stride: 2, Device ID: 101c\n")
	var got []string
	for _, vf := range h.PCI[0].SRIOV.VFs {
		got = append(got, vf.Address.String())
	}
	if diff := cmp.Diff([]string{"0000:00:10.0", "0000:00:10.2", "0000:00:10.4"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	if _, err := lspci.Parse(make([]byte, 65<<20), "l.txt"); err == nil || !strings.Contains(err.Error(),
		"at most 67108864 are taken") {
		t.Errorf("65 MiB: %v", err)
	}
	var b strings.Builder
	for i := range 20000 {
		fmt.Fprintf(&b, "%04x:%02x:%02x.%x 0600: 8086:1237\n", i>>16, i>>8&255, i>>3&31, i&7)
	}
	if _, err := lspci.Parse([]byte(b.String()), "l.txt"); err == nil || !strings.Contains(err.Error(),
		"more than 16384 functions") {
		t.Errorf("20,000 functions: %v", err)
	}
	// 300 buses, each behind the one before, in one line and in many.
	b.Reset()
	b.WriteString("-[0000:00]-")
	for i := range 255 {
		fmt.Fprintf(&b, "--01.0-[%02x-ff]-", i+1)
	}
	h := parse(t, b.String()+"\n")
	if up := topology.NewTree(h).Ancestors(h.PCI[len(h.PCI)-1].Address); len(up) != 254 {
		t.Errorf("%d bridges above the last; want 254", len(up))
	}
	notes := parse(t, "00:00.0 0600: 8086:1237\n"+strings.Repeat("\tNUMA node: x\n", 1000))
	if len(notes.Unread) != 100 {
		t.Errorf("%d notes; want 100", len(notes.Unread))
	}
	// A bridge that claims all buses must cost no more.
	b.Reset()
	for i := range 256 {
		fmt.Fprintf(&b, "%02x:00.0 PCI bridge [0604]: X [8086:1234]\n\tBus: primary=00, secondary=01, "+
			"subordinate=ff, sec-latency=0\n", i)
	}
	parse(t, b.String())
}

// TestCutOffAnywhere fails if the parser panics on a cut fixture or invents functions.
func TestCutOffAnywhere(t *testing.T) {
	t.Parallel()
	for _, f := range []string{"server-vvnn.txt", "server-tv.txt", "corpus/insights-lspci_vmmkn.txt"} {
		text := readFile(t, f)
		known := map[topology.PCIAddr]bool{}
		for _, d := range parse(t, text).PCI {
			known[d.Address] = true
		}
		for n := 0; n < len(text); n += 17 {
			h, err := lspci.Parse([]byte(text[:n]), "l.txt")
			if err != nil {
				continue
			}
			for i := range h.PCI {
				if !known[h.PCI[i].Address] {
					t.Errorf("%s cut after %d bytes: %s is made up", f, n, h.PCI[i].Address)
				}
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"00:00.0 Host bridge [0600]: Intel Corporation Device [8086:0d57] (rev 01) (prog-if 00 [Normal " +
			"decode])\n\tNUMA node: 0\n\tRegion 0: Memory at 0 (64-bit, prefetchable) [size=1M]\n",
		"00:01.0 0604: 8086:347a\n\tBus: primary=00, secondary=01, subordinate=02, sec-latency=0\n\tCapabilities: " +
			"[40] Express (v2) Root Port (Slot+), MSI 00\n\t\tLnkCap: Port #1, Speed 16GT/s, Width x16\n01:00.0 " +
			"0302: 10de:20b5\n",
		"-+-[0000:20]-+-00.0  X\n |           \\-03.1-[21]--+-00.0  NVIDIA Corporation GH100 [H100]\n |              " +
			"          \\-00.1\n \\-[0000:40]---00.0-[41]--\n",
		"Slot:\t00:03.0\nClass:\t0200\nVendor:\t1af4\nDevice:\t1000\nRev:\t01\nDriver:\tvirtio-pci\n" +
			"Module:\tvirtio_pci\n\n",
		`00:00.0 "Host bridge [0600]" "Intel [8086]" "X [1237]" -r02 -p00 "" ""` + "\n",
		"00:01.0/01:00.0 VGA compatible controller: X\n",
		"00:00.0 Host bridge: X\n00: 86 80 37 12 06 00 10 22 02 00 00 06 00 00 00 00\n10: 00 00 00 00 00 00 00 00 00 " +
			"00 00 00 00 00 00 00\n",
		"00:00.0 0200: 15b3:101b\n\tCapabilities: [180 v1] Single Root I/O Virtualization (SR-IOV)\n\t\tInitial VFs: " +
			"8, Total VFs: 8, Number of VFs: 3, F\n\t\tVF offset: 128, stride: 2, Device ID: 101c\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := lspci.Parse(b, "fuzz")
		if err != nil {
			var e *lspci.Error
			if !errors.As(err, &e) || e.Line < 0 || e.Line > 1+strings.Count(string(b), "\n") {
				t.Fatalf("error %#v", err)
			}
			return
		}
		if len(h.PCI) == 0 {
			t.Fatal("no function and no error")
		}
		tree := topology.NewTree(h)
		for i := range h.PCI {
			d := &h.PCI[i]
			if d.Parent != nil && (tree.Device(*d.Parent) == nil || d.Parent.Bus >= d.Address.Bus) {
				t.Fatalf("%s is behind %s", d.Address, d.Parent)
			}
			if d.Parent == nil && d.Root == "" && !d.ParentUnknown {
				t.Fatalf("%s stands nowhere", d.Address)
			}
			if d.Parent == nil && d.ParentUnknown && d.Root != "" {
				t.Fatalf("%s is on %s, but what is above is not known", d.Address, d.Root)
			}
			for _, bar := range d.BARs {
				if bar.SizeBytes == 0 || bar.Index > 12 {
					t.Fatalf("%s: BAR %+v", d.Address, bar)
				}
			}
		}
	})
}
