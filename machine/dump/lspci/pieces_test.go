package lspci

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rackless/rackless/machine/topology"
)

// Web pages drop the first character of some lines.
func TestPiecesOfADrawing(t *testing.T) {
	t.Parallel()
	const piece = `+-[0000:97]-+-00.0  Intel Corporation Ice Lake Memory Map/VT-d
|           \-02.0-[98-9b]--+-00.0-[99-9b]--+-00.0-[9a]--+-00.0  Mellanox Technologies MT2892 Family [ConnectX-6 Dx]
 |                           |               |            \-00.1  Mellanox Technologies MT2892 Family [ConnectX-6 Dx]
 |                           |               \-01.0-[9b]----00.0  NVIDIA Corporation GA100 [A100 PCIe 80GB]
 |                           \-00.1  PMC-Sierra Inc. Device 4000
 \-[0000:00]-+-00.0  Intel Corporation Ice Lake Memory Map/VT-d
`
	lines := strings.SplitAfter(piece, "\n")
	for _, tt := range []struct {
		name, text string
		want       []string // functions with their parents
	}{
		{"out of the middle", piece, []string{"0000:00:00.0 pci0000:00", "0000:97:00.0 pci0000:97",
			"0000:97:02.0 pci0000:97",
			"0000:98:00.0 0000:97:02.0", "0000:98:00.1 0000:97:02.0", "0000:99:00.0 0000:98:00.0",
			"0000:99:01.0 0000:98:00.0", "0000:9a:00.0 0000:99:00.0", "0000:9a:00.1 0000:99:00.0",
			"0000:9b:00.0 0000:99:01.0"}},
		{"the last root", lines[5] + `             \-1f.0  Intel Corporation C224 LPC` + "\n",
			[]string{"0000:00:00.0 pci0000:00", "0000:00:1f.0 pci0000:00"}},
		{"below a bus that is cut off", "        |  +-02.0-[3b-3d]----00.0-[3c-3d]--+-00.0-[3d]----00.0  " +
			"NVIDIA A100\n" +
			"        |  |                               \\-10.0-[3e]----00.0  Mellanox ConnectX-6\n" +
			"        |  +-03.0-[40]----00.0  Samsung drive\n        |  \\-1f.0  Intel LPC\n" +
			"        \\-[0000:80]-+-00.0  Intel Map\n",
			[]string{"0000:3b:00.0 ", "0000:3c:00.0 0000:3b:00.0", "0000:3c:10.0 0000:3b:00.0",
				"0000:3d:00.0 0000:3c:00.0",
				"0000:3e:00.0 0000:3c:10.0", "0000:40:00.0 ", "0000:80:00.0 pci0000:80"}},
		{"from a bridge, with its end", "+-01.1-[01-02]----00.0-[02]--+-00.0  NVIDIA A100\n" +
			"|                            \\-00.1  NVIDIA Audio\n\\-03.1-[04]----00.0  Intel X710\n",
			[]string{"0000:01:00.0 ", "0000:02:00.0 0000:01:00.0", "0000:02:00.1 0000:01:00.0", "0000:04:00.0 "}},
	} {
		if !Sniff([]byte(tt.text)) {
			t.Errorf("%s: not taken for lspci's", tt.name)
		}
		h, err := Parse([]byte(tt.text), "x")
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		var got []string
		for _, d := range h.PCI {
			above := d.Root
			if d.Parent != nil {
				above = d.Parent.String()
			}
			got = append(got, d.Address.String()+" "+above)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
	if _, err := Parse([]byte(lines[0]+"                  \\-00.1  X\n"), "x"); err == nil {
		t.Error("a branch hangs on nothing, and that is no error")
	}
}

// Scripts print a group's functions below its number, or beside it.
func TestListsOfIOMMUGroups(t *testing.T) {
	t.Parallel()
	const gpu, audio, nic = "04:00.0 VGA compatible controller [0300]: NVIDIA Corporation GP104 [10de:1b80] (rev a1)",
		"04:00.1 Audio device [0403]: NVIDIA Corporation GP104 [10de:10f0] (rev a1)",
		"0a:00.0 Ethernet controller [0200]: Intel Corporation I210 [8086:1533]"
	want := map[string]int{"0000:04:00.0": 12, "0000:04:00.1": 12, "0000:0a:00.0": 7}
	for name, text := range map[string]string{
		"headings":             "IOMMU Group 12:\n\t" + gpu + "\n\t" + audio + "\nIOMMU Group 7:\n\t" + nic + "\n",
		"headings, not nested": "IOMMU Group 12:\n" + gpu + "\n" + audio + "\n\nIOMMU Group 7:\n" + nic + "\n",
		"headings like details": "IOMMU group: 12\n  " + gpu + "\n  " + audio + "\nIOMMU group: 7\n  " + nic +
			"\n",
		"one line each": "IOMMU Group 12 " + gpu + "\nIOMMU Group 12 " + audio + "\nIOMMU Group 7 " + nic + "\n",
		"one line each, with a dash": "Group 12 - " + gpu + "\nGroup 12 - " + audio + "\nGroup 7 - " + nic +
			"\n",
		"IDs and marks before the address": "IOMMU Group 12:\n\t[10de:1b80] [R] " + gpu + "\n\t[10de:10f0]     " +
			audio +
			"\nIOMMU Group 7:\n\t[8086:1533] " + nic + "\n",
		"headings that are framed": "### Group 12 ###\n\t" + gpu + "\n\t" + audio + "\n### Group 7 ###\n\t" + nic +
			"\n",
		"arrows": "IOMMU Group 12:\n    -> 0000:" + gpu + "\n    -> 0000:" + audio +
			"\nIOMMU Group 7:\n    -> 0000:" + nic + "\n",
		"no colon behind the class": strings.ReplaceAll("IOMMU Group  12: 0000:"+gpu+"\n        Subsystem: x "+
			"[1b21:1142]\n"+
			"        Kernel driver in use: vfio-pci\nIOMMU Group  12: 0000:"+audio+"\nIOMMU Group   7: 0000:"+nic+"\n",
			"]: NVIDIA", "] NVIDIA"),
		"columns": "Group 12:\t[10de:1b80] [R] 04:00.0  VGA compatible controller        GP104 [GeForce GTX 1080]\n" +
			"Group 12:\t[10de:10f0]     04:00.1  Audio device                     GP104 High Definition Audio\n" +
			"Group 7:\t[8086:1533]     0a:00.0  Ethernet controller              I210 Gigabit Network Connection\n",
		"IDs on one line": "Group:  12  [10de:1b80] [R] " + gpu + "\nGroup:  12  [10de:10f0]     " + audio +
			"\nGroup:  7   [8086:1533] " + nic + "\n",
	} {
		if !Sniff([]byte(text)) {
			t.Errorf("%s: not taken for lspci's", name)
		}
		h, err := Parse([]byte(text), "x")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := map[string]int{}
		for _, d := range h.PCI {
			if d.IOMMUGroup != nil {
				got[d.Address.String()] = *d.IOMMUGroup
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: groups %v, want %v", name, got, want)
		}
	}
}

func TestLinesOfALinkBelowAnAddress(t *testing.T) {
	t.Parallel()
	const lines = "\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM not supported\n" +
		"\t\tLnkSta:\tSpeed 8GT/s (downgraded), Width x8 (downgraded)\n"
	for name, above := range map[string]string{
		"a command line": "me@h:~$ sudo lspci -vvv -s 3b:00.0 | grep -i lnk\n",
		"joined options": "# lspci -vvs 0000:3b:00.0 | grep Lnk\n",
		"a loop":         "3b:00.0\n", "a loop with a colon": "0000:3b:00.0:\n",
	} {
		text := above + lines
		if !Sniff([]byte(text)) {
			t.Errorf("%s: not taken for lspci's", name)
		}
		h, err := Parse([]byte(text), "x")
		if err != nil || len(h.PCI) != 1 || h.PCI[0].Address.String() != "0000:3b:00.0" || *h.PCI[0].Link.Width != 8 {
			t.Errorf("%s: %v, read %+v", name, err, h)
		}
	}
	if _, err := Parse([]byte(lines), "x"); !Sniff([]byte(lines)) || err == nil ||
		err.Error() != "x:2: the state of a link, and no function above it; copy the line with the address "+
			"above it as well" {
		t.Errorf("the lines alone: error %v", err)
	}
	h, err := Parse([]byte(lines+"5e:00.0 3D controller: NVIDIA A100\n"+lines), "x")
	if err != nil || len(h.PCI) != 1 || len(h.Unread) != 1 || h.Unread[0].Path != "x:2" {
		t.Errorf("lines above the first function: %v, read %+v", err, h)
	}
	if Sniff([]byte("me@h:~$ lspci -vvv -s 3b:00.0\nnothing\n")) {
		t.Error("a command line alone is taken for lspci's output")
	}
}

// grep may drop the capability above the lines of a link.
func TestLinksThatGrepLeaves(t *testing.T) {
	t.Parallel()
	h, err := Parse([]byte("04:00.0 3D controller: NVIDIA Corporation GA102 (rev a1)\n\t\tLnkCap:\tPort #0, Speed "+
		"16GT/s, "+
		"Width x16, ASPM L0s L1\n\t\tLnkSta:\tSpeed 5GT/s (downgraded), Width x4 (downgraded)\n"), "x")
	if err != nil {
		t.Fatal(err)
	}
	want := topology.Link{SpeedGTs: new(5.), Width: new(4), MaxSpeedGTs: new(16.), MaxWidth: new(16)}
	if got := h.PCI[0].Link; got == nil || *got.SpeedGTs != *want.SpeedGTs || *got.Width != *want.Width ||
		*got.MaxSpeedGTs != *want.MaxSpeedGTs || *got.MaxWidth != *want.MaxWidth {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
