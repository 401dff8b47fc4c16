package emulated

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/vm"
)

func TestFullNodesShareAHome(t *testing.T) {
	t.Parallel()
	l := parseText(t, "name: x\nhome: shared\nnodes: {a: {image: debian-12}, b: {}, c: {image: d.qcow2}}")
	dir := t.TempDir()
	u := &upRun{Rack: &rack.Rack{Lab: l, Dir: dir, State: &rack.State{Lab: l}}}
	u.emulator.Path = filepath.Join(dir, "qemu") // without the device
	if err := u.ensureHome(); err == nil || !strings.Contains(err.Error(), "has no virtio-9p-pci") {
		t.Errorf("a QEMU without virtfs: %v", err)
	}
	path, err := exec.LookPath("true")
	if err != nil {
		t.Fatal(err)
	}
	u.emulator = vm.Emulator{Path: path}
	for range 2 {
		if err := u.ensureHome(); err != nil {
			t.Fatal(err)
		}
	}
	if s := u.home.Security; s != "mapped-xattr" && s != "mapped-file" {
		t.Errorf("files of guests are this machine's: security_model=%s", s)
	}
	for i, want := range []string{u.HomeDir(), "", u.HomeDir()} {
		if got := u.spec(l.Nodes[i]).Home.Dir; got != want {
			t.Errorf("node %s has %q, want %q", l.Nodes[i].Name, got, want)
		}
	}
	if l.Home != lab.HomeShared {
		t.Errorf("home is %q", l.Home)
	}
	if got := securityModel("/proc"); got != "mapped-file" {
		t.Errorf("without attributes of files: %s", got)
	}
}
