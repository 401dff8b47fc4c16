package render

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
)

func TestSystemdTakesTheUnits(t *testing.T) {
	t.Parallel()
	analyze := findProgram(t, "systemd-analyze")
	for _, c := range hostCases() {
		in := c.in(t)
		dir := t.TempDir()
		var units []string
		files, err := HostFiles(in)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range files {
			if !strings.HasPrefix(a.Path, "/etc/systemd/") {
				continue
			}
			if !strings.Contains(a.Path, ".d/") {
				units = append(units, filepath.Base(a.Path))
			}
			to := filepath.Join(dir, a.Path)
			if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(to, a.Data, a.Mode); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		for _, unit := range units {
			out, err := exec.CommandContext(ctx, analyze, "--root="+dir, "--man=no", "--generators=no", "verify",
				unit).CombinedOutput()
			if strings.Contains(string(out), "unrecognized option") || strings.Contains(string(out),
				"only supported for") {
				t.Skipf("this systemd-analyze verifies no other root: %s", out)
			}
			for line := range strings.Lines(string(out)) {
				// Units of the distribution are not in this root.
				if strings.Contains(line, "rackless") || strings.Contains(line, "hugepages") && !strings.Contains(line,
					"not found") {
					t.Errorf("%s/%s: %v: %s", c.name, unit, err, line)
				}
			}
		}
	}
}

func TestPagesOfTheDefaultSizeNeedNoMount(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		size     uint64
		standard *uint64
		want     string
	}{
		{"1 GiB beside 2 MiB", gib, new(uint64(2 * mib)), "systemd/dev-hugepages1G.mount"},
		{"1 GiB as the default", gib, new(uint64(gib)), ""},
		{"2 MiB beside 1 GiB", 2 * mib, new(uint64(gib)), "systemd/dev-hugepages2M.mount"},
		{"2 MiB where the default is not known", 2 * mib, nil, ""},
		{"1 GiB where the default is not known", gib, nil, "systemd/dev-hugepages1G.mount"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			in := hostEPYC(t)
			in.Host.Memory.DefaultHuge = tt.standard
			in.Plan.Hugepages = []plan.Hugepages{{PageBytes: tt.size, Count: 1}}
			v, err := newView(in)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, m := range v.hugepageMounts() {
				got += m.Path
			}
			if got != tt.want {
				t.Errorf("mounts %q; want %q", got, tt.want)
			}
		})
	}
}

func TestPagesThatAreHeldAreAskedForToo(t *testing.T) {
	t.Parallel()
	in := hostEPYC(t)
	in.Plan.Hugepages = []plan.Hugepages{{NUMANode: 0, PageBytes: gib, Count: 16, Held: 4},
		{NUMANode: 2, PageBytes: gib,
			Held: 1}, {NUMANode: 3}}
	page := string(render(t, in)["commands.txt"].Data)
	for node, pages := range map[int]int{0: 20, 2: 1} {
		want := fmt.Sprintf("echo %d > /sys/devices/system/node/node%d/hugepages/hugepages-1048576kB/nr_hugepages\n",
			pages, node)
		if !strings.Contains(page, want) {
			t.Errorf("no %q in\n%s", want, page)
		}
	}
	if strings.Contains(page, "node3/") {
		t.Errorf("pages that the plan does not want, in\n%s", page)
	}
}

func TestDriversOfTheFunctions(t *testing.T) {
	t.Parallel()
	h := &topology.Host{}
	add := func(address string, class uint32, vendor topology.ID16, driver string, candidates ...string) {
		h.PCI = append(h.PCI, topology.PCIDevice{
			Address: addr(t, address), Class: new(topology.ID24(class)), Vendor: &vendor,
			Driver: driver, Candidates: candidates,
		})
	}
	add("0000:01:00.0", 0x030000, topology.VendorNVIDIA, "vfio-pci", "vfio-pci")
	add("0000:02:00.0", 0x030000, topology.VendorNVIDIA, "nouveau", "nouveau", "nvidia", "nvidiafb")
	add("0000:03:00.0", 0x038000, topology.VendorAMD, "")
	add("0000:04:00.0", 0x040300, topology.VendorAMD, "")
	add("0000:05:00.0", 0x020700, topology.VendorMellanox, "vfio-pci")
	add("0000:06:00.0", 0x020000, topology.VendorIntel, "evil\ninstall x /bin/sh", "ice")
	v := &view{host: h}
	for i := range h.PCI {
		v.whole = append(v.whole, h.PCI[i].Address)
	}
	if got, want := strings.Join(v.drivers(), " "),
		"amdgpu ice mlx5_core nouveau nvidia nvidiafb snd_hda_intel"; got != want {
		t.Errorf("drivers %q; want %q", got, want)
	}
	if v.driversOf(addr(t, "0000:99:00.0")) != nil {
		t.Error("a function that the host does not have has drivers")
	}
}
