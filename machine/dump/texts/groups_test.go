package texts

import (
	"fmt"
	"testing"
)

func TestListingsOfIOMMUGroups(t *testing.T) {
	t.Parallel()
	const dir = "/sys/kernel/iommu_groups/"
	const link = "lrwxrwxrwx 1 root root 0 Nov 26 12:00 "
	const above = " -> ../../../../devices/pci0000:00/0000:00:01.0/"
	for name, text := range map[string]string{
		"find": dir + "3\n" + dir + "3/devices\n" + dir + "3/devices/0000:00:01.0\n" + dir +
			"4/devices/0000:01:00.0\n" +
			dir + "4/devices/0000:01:00.1\n" + dir + "5/type\n",
		"find below the directory": "./3/devices/0000:00:01.0\n./4/devices/0000:01:00.0\n./4/devices/0000:01:00.1\n",
		"ls": dir + "3/devices:\n0000:00:01.0\n\n" + dir +
			"4/devices/:\n0000:01:00.0  0000:01:00.1\n",
		"ls -l": dir + "3/devices:\ntotal 0\n" + link +
			"0000:00:01.0 -> ../../../../devices/pci0000:00/0000:00:01.0\n\n" +
			dir + "4/devices:\ntotal 0\n" + link + "0000:01:00.0" + above + "0000:01:00.0\n" +
			link + "0000:01:00.1" + above + "0000:01:00.1\n",
		"ls -ld": link + dir + "3/devices/0000:00:01.0 -> ../x/0000:00:01.0\n" + link + dir + "4/devices/0000:01:00.0" +
			above + "0000:01:00.0\n" + link + dir + "4/devices/0000:01:00.1" + above + "0000:01:00.1\n",
		"tree": dir + "\n├── 3\n│   ├── devices\n│   │   └── 0000:00:01.0 -> ../x\n" +
			"│   └── type\n└── 4\n    ├── devices\n" +
			"    │   ├── 0000:01:00.0" + above + "0000:01:00.0\n" +
			"    │   └── 0000:01:00.1" + above + "0000:01:00.1\n",
		"dmesg": "[    0.4] pci 0000:00:01.0: Adding to iommu group 3\n" +
			"[    0.4] pci 0000:01:00.0: Adding to iommu group 4\n[    0.4] pci 0000:01:00.1: Adding to iommu " +
			"group 4\n",
		"dmesg of Linux 4": "iommu: Adding device 0000:00:01.0 to group 3\niommu: Adding device 0000:01:00.0 to " +
			"group 4\n" +
			"iommu: Adding device 0000:01:00.1 to group 4\n",
		"pvesh": "│ class    │ device │ id           │ iommugroup │ vendor │\n" +
			"│ 0x060400 │ 0x1901 │ 0000:00:01.0 │          3 │ 0x8086 │\n" +
			"│ 0x030000 │ 0x2204 │ 0000:01:00.0 │          4 │ 0x10de │\n" +
			"├──────────┼────────┤\n" +
			"│ 0x040300 │ 0x1aef │ 0000:01:00.1 │          4 │ 0x10de │\n" +
			"│ │ │ 0000:07:00.0 │ -1 │ │\n",
		"pvesh in JSON": `[{"id":"0000:00:01.0","iommugroup":3},{"id":"0000:01:00.0","iommugroup":4},` +
			`{"id":"0000:01:00.1","iommugroup":4},{"id":7,"iommugroup":"x"}]`,
	} {
		h, _ := read(t, text)
		got := ""
		for _, d := range h.PCI {
			got += fmt.Sprint(d.Address, "=", *d.IOMMUGroup, " ")
			if d.Parent != nil && (*d.Parent != h.PCI[0].Address || h.PCI[0].Bridge == nil) {
				t.Errorf("%s: %s is below %s", name, d.Address, d.Parent)
			}
		}
		if want := "0000:00:01.0=3 0000:01:00.0=4 0000:01:00.1=4 "; got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}
