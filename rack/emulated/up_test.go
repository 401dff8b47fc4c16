package emulated

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/vm"
)

func TestNodesThatStay(t *testing.T) {
	t.Parallel()
	alive, err := vm.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	const before = "name: x\nnodes:\n  a: {}\n  b: {}\n  c: {}\n"
	for _, tt := range []struct {
		name, after string
		dead        string
		keep        string
	}{
		{"nothing has changed", before, "", "a b c"},
		{"one has died", before, "b", "a c"},
		{"one is no longer wanted", "name: x\nnodes:\n  a: {}\n  b: {}\n", "", "a b"},
		{"one has more memory", "name: x\nnodes:\n  a: {memory: 1GiB}\n  b: {}\n  c: {}\n", "", "b c"},
		{"the MTU is changed live", "name: x\nfabric: {mtu: 1500}\nnodes:\n  a: {}\n  b: {}\n  c: {}\n", "", "a b c"},
		{"the subnet is another", "name: x\nfabric: {subnet: 10.9.0.0/24}\nnodes:\n  a: {}\n  b: {}\n  c: {}\n", "c",
			"a b"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			from, to := parseText(t, before), parseText(t, tt.after)
			old := &rack.State{Lab: from}
			for _, n := range from.Nodes {
				node := &rack.Node{Name: n.Name, Process: alive}
				if n.Name == tt.dead {
					node.Process = vm.Process{}
				}
				old.Nodes = append(old.Nodes, node)
			}
			u := &upRun{Rack: &rack.Rack{Lab: to}, changes: lab.Diff(from, to)}
			keep, drop := u.sort(old)
			var names []string
			for _, n := range keep {
				names = append(names, n.Name)
			}
			if got := strings.Join(names, " "); got != tt.keep || len(keep)+len(drop) != len(old.Nodes) {
				t.Errorf("%s stay, want %s; %d go", got, tt.keep, len(drop))
			}
			for _, n := range drop {
				if slices.Contains(keep, n) {
					t.Errorf("%s stays and goes", n.Name)
				}
			}
		})
	}
	if keep, drop := (&upRun{}).sort(nil); keep != nil || drop != nil {
		t.Errorf("of a new lab %v stay and %v go", keep, drop)
	}
}

func parseText(t *testing.T, text string) *lab.Lab {
	t.Helper()
	l, err := lab.Parse("lab.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Without vfio-user, nodes that ask for an adapter get virtio NICs; up reports why. Labs without adapters are
// unchanged.
func TestNodesWithoutAQEMUForAdapters(t *testing.T) {
	programs := t.TempDir() // without apt
	const old = "#!/bin/sh\necho QEMU emulator version 9.2.0\n"
	if err := os.WriteFile(filepath.Join(programs, "qemu-system-x86_64"), []byte(old), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", programs)
	for text, want := range map[string]struct{ nics, note string }{
		"name: x\nnodes: {a: {nic: connectx-4-lx}, b: {}, c: {nic: connectx-5}}": {"virtio virtio virtio",
			"the nodes have virtio NICs with soft RoCE instead of a ConnectX: a ConnectX needs QEMU 10.1 or newer " +
				"with vfio-user, and the installed one is 9.2.0; and rackless has no QEMU of its own: QEMU is " +
				"missing, and "},
		"name: x\nnodes: {a: {nic: virtio}, b: {}, c: {}}": {"virtio virtio virtio",
			"the nodes have virtio NICs with soft RoCE instead of a ConnectX: "},
		"name: x\ndefaults: {nic: virtio}\nnodes: {a: {}, b: {}, c: {}}": {"virtio virtio virtio", ""},
	} {
		l := parseText(t, text)
		asked := l.Nodes[0].NIC
		var notes []string
		r := &rack.Rack{Lab: l, State: &rack.State{Lab: l}, Dirs: rack.Dirs{Cache: t.TempDir()}}
		u := &upRun{Rack: r, progress: &rack.Progress{Report: func(e rack.Event) {
			if e.Note != "" {
				notes = append(notes, e.Note)
			}
		}}}
		if err := u.chooseEmulator(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		var nics []string
		for _, n := range u.Lab.Nodes {
			nics = append(nics, string(n.NIC))
		}
		said := ""
		if len(notes) > 0 {
			said = notes[len(notes)-1]
		}
		if got := strings.Join(nics, " "); got != want.nics || !strings.HasPrefix(said, want.note) ||
			(said == "") != (want.note == "") {
			t.Errorf("%s: NICs %q, want %q; said %q, want %q", text, got, want.nics, said, want.note)
		}
		if u.State.Lab != u.Lab || l.Nodes[0].NIC != asked || u.emulator.Version != "9.2.0" || u.emulatorErr != nil {
			t.Errorf("%s: the lab of the state is another, or QEMU %s, %v", text, u.emulator.Version, u.emulatorErr)
		}
	}
}
