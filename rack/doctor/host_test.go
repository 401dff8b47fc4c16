package doctor

import (
	"errors"
	"strings"
	"testing"

	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/vm/distro"
)

func TestARealHost(t *testing.T) {
	none := func(string) (string, error) { return "", errors.New("not found") }
	status := func(p Part) map[string]finding.Status {
		out := map[string]finding.Status{}
		for _, c := range p.Checks {
			withFix(t, c.ID, c)
			out[c.ID] = c.Status
		}
		return out
	}
	d := &doctor{root: files("run/systemd/system/x", "", "sys/kernel/iommu_groups/0/type", "", "dev/kvm", "",
		"lib/modules/6.1/kernel/drivers/vfio/pci/vfio-pci.ko", "", "run/libvirt/libvirt-sock", "",
		"sys/bus/pci/devices/0000:01:00.0/class", "0x030200\n", "sys/class/infiniband/mlx5_0/device/vendor", "0x15b3\n",
		"sys/class/infiniband/rxe0/ports/1/state", "ACTIVE"), look: none}
	got := d.realHost()
	for id, s := range status(got) {
		if s != finding.OK && id != "root" {
			t.Errorf("%s is %s", id, s)
		}
	}
	if last := got.Checks[len(got.Checks)-1]; last.Evidence != "1 GPU and 1 RDMA device; rackless inspect shows them" ||
		!got.Ready {
		t.Errorf("got %+v", got)
	}
	d.root = files("sys/bus/pci/devices/0000:01:00.0/class", "0x020000\n")
	got = d.realHost()
	for id, want := range map[string]finding.Status{"systemd": finding.Missing, "iommu": finding.Warn,
		"vfio":    finding.Missing,
		"libvirt": finding.Missing, "kvm-device": finding.Missing, "devices": finding.Warn} {
		if s := status(got)[id]; s != want {
			t.Errorf("on a machine without anything %s is %s, want %s", id, s, want)
		}
	}
	if got.Ready {
		t.Error("ready without libvirt")
	}
	d.root = files("proc/cpuinfo", "processor : 0\nflags\t\t: fpu sse hypervisor lahf_lm\n")
	for _, c := range d.realHost().Checks {
		withFix(t, c.ID, c)
		if strings.Contains(c.Fix, "firmware") {
			t.Errorf("%s in a virtual machine: %s", c.ID, c.Fix)
		}
	}
}

func TestToolsOfEmulatedHosts(t *testing.T) {
	all := func(string) (string, error) { return "/usr/bin/x", nil }
	none := func(string) (string, error) { return "", errors.New("not found") }
	for _, c := range []struct {
		look  func(string) (string, error)
		built bool
		id    string
		want  finding.Status
		fix   string
	}{
		{all, false, "debian", finding.OK, ""},
		{none, false, "debian", finding.Missing, "apt-get install --no-install-recommends mmdebstrap qemu-utils"},
		{none, true, "debian", finding.Warn, "apt-get install"},
		{none, false, "arch", finding.Missing, "use Debian 12 or newer, in a virtual machine or a container"},
	} {
		d := &doctor{root: files(), look: c.look, system: distro.System{ID: c.id}}
		if f := withFix(t, "tools", d.checkHostTools(c.built)); f.Status != c.want || !strings.HasPrefix(f.Fix, c.fix) {
			t.Errorf("got %+v, want %+v", f, c)
		}
	}
}

func TestTextHasThreePartsAndTheFixBelowWhatIsLacking(t *testing.T) {
	r := Report{Part: Part{Ready: false, Checks: []finding.Finding{
		{ID: "a", Status: finding.OK, Title: "good", Evidence: "there"},
		{ID: "b", Status: finding.Warn, Title: "not so good", Evidence: "slow", Fix: "wait"},
		{ID: "c", Status: finding.Missing, Title: "bad", Evidence: "missing", Fix: "get it"},
	}}, Emulated: Part{Ready: true}, RealHost: Part{Ready: true, Checks: []finding.Finding{
		{ID: "root", Status: finding.Warn, Title: "root", Evidence: "no", Fix: "sudo"}}}}
	want := "labs\n" +
		"  ok       good         there\n" +
		"  warn     not so good  slow\n        fix: wait\n" +
		"  missing  bad          missing\n        fix: get it\n" +
		"missing: 1 thing, with 1 warning: rackless up will not work before that is there\n" +
		"\nemulated hosts\nready\n" +
		"\nthis host as a real host\n  warn  root  no\n        fix: sudo\nready, with 1 warning\n"
	if got := r.Text(func(_, s string) string { return s }); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
