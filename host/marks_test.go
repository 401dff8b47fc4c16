package host

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
)

func TestMarksOfPrepareThatTheJournalDoesNotKnow(t *testing.T) {
	t.Parallel()
	const (
		udev   = "/etc/udev/rules.d/10-rackless-pair.rules"
		module = "/etc/modules-load.d/rackless-pair.conf"
		unit   = "/etc/systemd/system/rackless-prepare.service"
	)
	s := &change.System{Root: t.TempDir()}
	for path, text := range map[string]string{
		udev:   "# Made by rackless prepare for lab pair.\nKERNEL==\"0000:41:00.0\"\n",
		module: "vfio\n",
		unit:   "[Service]\n",
		"/etc/udev/rules.d/10-rackless-hand.rules": "# Made by rackless plan " +
			"--out.\nKERNEL==\"0000:61:00.0\"\n",
		"/etc/modprobe.d/other.conf":                        "# not rackless prepare\n",
		"/sys/bus/pci/devices/0000:41:00.0/driver_override": "vfio-pci\n",
		"/sys/bus/pci/devices/0000:42:00.0/driver_override": "(null)\n",
		"/sys/bus/pci/devices/0000:61:00.0/driver_override": "vfio-pci\n", // somebody else's
		"/sys/bus/pci/devices/0000:81:00.0/driver_override": "vfio-pci\n",
		"/proc/cmdline": "quiet iommu=pt isolcpus=2\n",
	} {
		full := s.Path(path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(full), 0o755), os.WriteFile(full, []byte(text),
			0o644)); err != nil {
			t.Fatal(err)
		}
	}
	before := "quiet iommu=pt"
	p := &Prepared{Plan: &plan.Plan{KernelArgs: []string{"iommu=pt", "isolcpus=2"}, Nodes: []plan.Node{{
		Cards: []plan.NodeDevice{{ID: "0000:81:00.0", Kind: plan.KindGPU}}}}}, Host: &topology.Host{}}
	p.Host.Kernel.Cmdline = &before
	entry := func(path string) *change.Entry { return &change.Entry{Op: &change.File{Path: path}} }
	for _, c := range []struct {
		name    string
		entries []*change.Entry
		p       *Prepared
		want    []string
	}{
		{"all is lost", nil, nil, []string{module, unit, udev, "0000:41:00.0 is kept for vfio-pci"}},
		{"the journal is lost", nil, p, []string{module, unit, udev, "0000:41:00.0 is kept for vfio-pci",
			"0000:81:00.0 is kept for vfio-pci", "kernel arguments isolcpus=2"}},
		{"the journal knows the files", []*change.Entry{entry(udev), entry(module), entry(unit)}, nil, nil},
		{"the journal does not know one", []*change.Entry{entry(udev), entry(unit)}, nil, []string{module}},
	} {
		got, err := Marks(s, c.entries, c.p)
		if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", c.name, err, diff)
		}
	}
	if got, err := Marks(&change.System{Root: t.TempDir()}, nil, nil); err != nil || got != nil {
		t.Errorf("an untouched machine has %q, %v", got, err)
	}
}
