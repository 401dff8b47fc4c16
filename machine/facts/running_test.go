package facts

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseInterrupts(t *testing.T) {
	const text = "           CPU0       CPU2       \n" +
		"  9:          0          4     GICv3  25 Level     vgic\n" +
		"124:         12          0  IR-PCI-MSI 524288-edge      eth0-TxRx-0\n" +
		"126:          0          7  IR-PCI-MSIX-0000:3b:00.0    1-edge      mlx5_comp0@pci:0000:3b:00.0\n" +
		"LOC:      51234      48117  Local timer interrupts\n" +
		"  1:          0          0  some chip\n"
	got, err := ParseInterrupts(text)
	if err != nil {
		t.Fatal(err)
	}
	want := []Interrupt{
		{Number: 1, Counts: map[int]uint64{}},
		{Number: 9, Counts: map[int]uint64{2: 4}, Action: "vgic"},
		{Number: 124, Counts: map[int]uint64{0: 12}, Action: "eth0-TxRx-0"},
		{Number: 126, Counts: map[int]uint64{2: 7}, Action: "mlx5_comp0@pci:0000:3b:00.0"},
	}
	if diff := cmp.Diff(want, got, sets); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for text, want := range map[string]string{
		"IRQ CPU0\n":               "does not name CPUs",
		"CPUx\n":                   "does not name CPUs",
		"CPU-1\n":                  "does not name CPUs",
		"CPU99999999\n":            "does not name CPUs",
		"MemTotal: 5 kB\n":         `first line "MemTotal: 5 kB" does not name CPUs`,
		"CPU0 CPU1\n1: 5\n":        "1 has 1 counts for 2 CPUs",
		"CPU0\n1: many chip\n":     "is not a count",
		"CPU0\n1: -1 chip edge x ": "is not a count",
	} {
		if _, err := ParseInterrupts(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
}

func TestGoodLinesOfInterruptsAreKept(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		want       []Interrupt
		wantErr    string
	}{
		{"an interrupt without handlers", "CPU0\n 7: 3 XT-PIC\n",
			[]Interrupt{{Number: 7, Counts: map[int]uint64{0: 3}}}, ""},
		{"one CPU of several is online", "           CPU1\n 7: 3 IO-APIC 7-edge parport0\n",
			[]Interrupt{{Number: 7, Counts: map[int]uint64{1: 3}, Action: "parport0"}}, ""},
		{"a line cut off", "CPU0 CPU1\n 7: 3\n 8: 1 1 x-edge y\n",
			[]Interrupt{{Number: 8, Counts: map[int]uint64{0: 1, 1: 1}, Action: "y"}},
			"interrupt 7 has 1 counts for 2 CPUs"},
		{"a count that is none", "CPU0\n 7: many x-edge y\n", []Interrupt{}, `interrupt 7: "many" is not a count`},
		{"several handlers", "CPU0 CPU1\n16: 1 2 IR-IO-APIC   16-fasteoi   i801_smbus, ehci_hcd:usb1\n",
			[]Interrupt{{Number: 16, Counts: map[int]uint64{0: 1, 1: 2}, Action: "i801_smbus, ehci_hcd:usb1"}}, ""},
		{"an empty file", "", []Interrupt{}, ""},
	} {
		got, err := ParseInterrupts(tt.text)
		if diff := cmp.Diff(tt.want, got, sets); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
		if (err == nil) != (tt.wantErr == "") || err != nil && err.Error() != tt.wantErr {
			t.Errorf("%s: %v, want %s", tt.name, err, tt.wantErr)
		}
	}
	if got := (&Interrupt{Counts: map[int]uint64{0: 12, 3: 3}}).Count(); got != 15 {
		t.Errorf("served %d times, want 15", got)
	}
}

func TestParseHugeMounts(t *testing.T) {
	got := ParseHugeMounts("hugetlbfs /dev/hugepages hugetlbfs rw,nosuid,relatime,pagesize=2M 0 0\nproc /proc proc " +
		"rw 0 0\nnone /dev/hugepages1G hugetlbfs rw,pagesize=1024M 0 0\n" +
		"none /a hugetlbfs rw 0 0\nnone /b hugetlbfs rw,pagesize=x 0 0\nhugetlbfs\n")
	want := []HugeMount{{"/dev/hugepages", 2 << 20}, {"/dev/hugepages1G", 1 << 30}, {"/a", 0}, {"/b", 0}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func FuzzParseInterrupts(f *testing.F) {
	f.Add("CPU0 CPU1\n24: 1 0 chip 5-edge nvme0q1\n")
	f.Fuzz(func(t *testing.T, text string) {
		all, err := ParseInterrupts(text)
		if all == nil && err == nil {
			t.Fatalf("got %v, %v", all, err)
		}
		ParseHugeMounts(text)
	})
}
