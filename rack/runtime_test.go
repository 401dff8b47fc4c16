package rack

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/vm"
	"github.com/rackless/rackless/vm/guest"
)

func fakeParse(t *testing.T, name string, nodes string) *lab.Lab {
	t.Helper()
	l, err := lab.Parse("lab.yaml", []byte("name: "+name+"\nnodes:\n  vm: {count: "+nodes+"}\n"))
	if err != nil {
		t.Fatal(err)
	}
	l.Driver = fakeDriver
	return l
}

func bringUp(t *testing.T, d Dirs, l *lab.Lab) {
	t.Helper()
	r, err := Up(t.Context(), d, l, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

func TestLifeOfALabOfAThirdDriver(t *testing.T) {
	d := Dirs{Run: filepath.Join(t.TempDir(), "run")}
	var events []string
	up, err := Up(t.Context(), d, fakeParse(t, "third", "2"), Options{Progress: func(e Event) {
		if e.End {
			events = append(events, e.Step)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := up.Close(); err != nil {
		t.Error(err)
	}
	if !slices.Equal(events, []string{"nodes"}) {
		t.Errorf("steps: %q", events)
	}

	r, err := Open(d, "third")
	if err != nil {
		t.Fatal(err)
	}
	if r.State.Driver != fakeDriver || !r.State.Ready || r.Emulated() || r.SwitchState() != SwitchNone {
		t.Errorf("got %+v, emulated %v, switch %s", r.State, r.Emulated(), r.SwitchState())
	}
	if _, ok := r.Hosted(); ok {
		t.Error("a lab without a host has one")
	}
	if err := os.Remove(filepath.Join(r.Dir, "machine-vm01")); err != nil {
		t.Fatal(err)
	}
	var states []vm.State
	for _, st := range r.Status(t.Context()) {
		states = append(states, st.State)
	}
	if !slices.Equal(states, []vm.State{vm.Running, vm.Dead}) {
		t.Errorf("states: %q", states)
	}
	if got := r.Logs("vm00"); got.Console != filepath.Join(r.Dir, "machine-vm00.console") {
		t.Errorf("logs: %+v", got)
	}
	if _, err := r.Switch(); err == nil {
		t.Error("there is a switch")
	}
	conn, err := r.Console(t.Context(), "vm00")
	if err != nil {
		t.Fatal(err)
	}
	if said, err := io.ReadAll(conn); err != nil || string(said) != "vm00 login: " {
		t.Errorf("console: %q, %v", said, err)
	}
	if _, err := r.Console(t.Context(), "vm09"); err == nil || err.Error() != "node vm09 has not been started yet" {
		t.Errorf("console of a node that is not there: %v", err)
	}
	res, err := r.Run(t.Context(), "vm00", guest.Command{Argv: []string{"echo", "x"}})
	if err != nil || res.ExitCode != 3 || string(res.Stdout) != `vm00: ["echo" "x"]` {
		t.Errorf("run: %+v, %v", res, err)
	}
	if _, err := r.Run(t.Context(), "vm09", guest.Command{Argv: []string{"echo"}}); err == nil ||
		err.Error() != "lab third has no node vm09" {
		t.Errorf("run on a node that is not there: %v", err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}

	if was, err := Down(t.Context(), d, "third"); err != nil || !was {
		t.Errorf("down: %v, %v", was, err)
	}
	if left, err := os.ReadDir(d.Run); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestAgentsAreSharedAndReplaced(t *testing.T) {
	d := Dirs{Run: filepath.Join(t.TempDir(), "run")}
	bringUp(t, d, fakeParse(t, "shared", "1"))
	r, err := Open(d, "shared")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	agent := func() *guest.Agent {
		t.Helper()
		a, err := r.Agent(t.Context(), "vm00")
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	first := agent()
	if agent() != first {
		t.Error("a second connection was made")
	}
	r.Forget("vm00")
	second := agent()
	if second == first {
		t.Error("the connection to the node that was is used on")
	}
	select {
	case <-first.Done():
	default:
		t.Error("it was not closed")
	}
}

func TestUpDoesTheDifference(t *testing.T) {
	d := Dirs{Run: filepath.Join(t.TempDir(), "run")}
	bringUp(t, d, fakeParse(t, "diff", "2"))
	first, err := Open(d, "diff")
	if err != nil {
		t.Fatal(err)
	}
	bringUp(t, d, fakeParse(t, "diff", "3"))
	second, err := Open(d, "diff")
	if err != nil {
		t.Fatal(err)
	}
	if !second.State.Created.Equal(first.State.Created) || len(second.State.Nodes) != 3 ||
		!second.State.Nodes[0].Started.Equal(first.State.Nodes[0].Started) {
		t.Errorf("before %+v\nafter %+v", first.State, second.State)
	}
	bringUp(t, d, fakeParse(t, "diff", "1"))
	if machines, err := filepath.Glob(filepath.Join(first.Dir, "machine-*")); err != nil || len(machines) != 1 {
		t.Errorf("machines: %v, %v", machines, err)
	}
}

func TestAnUpThatFails(t *testing.T) {
	d := Dirs{Run: filepath.Join(t.TempDir(), "run")}
	fails.Store("bad00", true)
	broken := func(l *lab.Lab) *lab.Lab {
		l.Nodes[len(l.Nodes)-1].Name = "bad00"
		return l
	}
	t.Run("a new lab is removed", func(t *testing.T) {
		_, err := Up(t.Context(), d, broken(fakeParse(t, "fails", "2")), Options{})
		if err == nil || !strings.Contains(err.Error(), "node bad00 does not start") {
			t.Errorf("got %v", err)
		}
		if left, err := os.ReadDir(d.Run); err != nil || len(left) != 0 {
			t.Errorf("left: %v, %v", left, err)
		}
	})
	t.Run("one that was there stays", func(t *testing.T) {
		bringUp(t, d, fakeParse(t, "fails", "2"))
		if _, err := Up(t.Context(), d, broken(fakeParse(t, "fails", "3")), Options{}); err == nil {
			t.Error("it is up")
		}
		r, err := Open(d, "fails")
		if err != nil || r.State.Ready || len(r.State.Nodes) != 2 {
			t.Errorf("got %+v, %v", r, err)
		}
	})
	t.Run("what the driver cannot do is refused first", func(t *testing.T) {
		_, err := Up(t.Context(), d, fakeParse(t, "large", "4"), Options{})
		if err == nil || err.Error() != "driver fake has room for 3 nodes" {
			t.Errorf("got %v", err)
		}
	})
	t.Run("without a place on a host", func(t *testing.T) {
		l := fakeParse(t, "homeless", "1")
		l.Driver = "other"
		if _, err := Up(t.Context(), d, l, Options{}); err == nil || !strings.Contains(err.Error(), "goes on a host") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a lab runs with another driver", func(t *testing.T) {
		l := fakeParse(t, "fails", "2")
		l.Driver = "other"
		_, err := Up(t.Context(), d, l, Options{Place: &Placement{}})
		if want := "lab fails runs nowhere: rackless down fails first"; err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	})
	t.Run("a driver of another version", func(t *testing.T) {
		l := fakeParse(t, "fails", "2")
		l.Driver = "vsphere"
		const want = "lab fails has driver vsphere, which is not in this version; it has: fake, other"
		if _, err := Up(t.Context(), d, l, Options{}); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	})
}

func TestNodesOfManyLabs(t *testing.T) {
	d := Dirs{Run: filepath.Join(t.TempDir(), "run")}
	if _, _, err := OpenNode(d, "vm00"); err == nil || !strings.Contains(err.Error(), "no lab is running") {
		t.Errorf("without a lab: %v", err)
	}
	bringUp(t, d, fakeParse(t, "one", "1"))
	bringUp(t, d, fakeParse(t, "two", "2"))
	for _, tt := range []struct{ arg, lab, err string }{
		{"vm01", "two", ""},
		{"one/vm00", "one", ""},
		{"vm00", "", "node vm00 is in labs one and two: say one/vm00 or two/vm00"},
		{"vm02", "", "node vm02: no running lab has it; nodes: vm00, vm00, vm01"},
		{"one/vm01", "", "lab one has no node vm01: it has vm00"},
		{"three/vm00", "", "lab three: no such lab is running; running: one, two"},
	} {
		r, node, err := OpenNode(d, tt.arg)
		switch {
		case tt.err != "" && (err == nil || err.Error() != tt.err):
			t.Errorf("%s: got %v, want %s", tt.arg, err, tt.err)
		case tt.err == "" && (err != nil || r.Lab.Name != tt.lab || !strings.HasSuffix(tt.arg, node)):
			t.Errorf("%s: got %v, %s, %v", tt.arg, r, node, err)
		}
	}
	gone, err := DownAll(t.Context(), d)
	if err != nil || !slices.Equal(gone, []string{"one", "two"}) {
		t.Errorf("down: %q, %v", gone, err)
	}
	if _, err := os.Stat(d.Run); err == nil {
		t.Error("the directory of running labs is left")
	}
}

func TestTheLockOfALab(t *testing.T) {
	d := Dirs{Run: filepath.Join(t.TempDir(), "run")}
	unlock, err := Lock(t.Context(), d, "locked", nil)
	if err != nil {
		t.Fatal(err)
	}
	told := make(chan string, 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		second, err := Lock(t.Context(), d, "locked", func(holder string) { told <- holder })
		if err != nil {
			t.Error(err)
			return
		}
		second()
	})
	select {
	case holder := <-told:
		if holder == "" {
			t.Error("the holder has no number")
		}
	case <-time.After(time.Minute):
		t.Error("whoever waits is not told")
	}
	unlock()
	wg.Wait()
	if left, err := os.ReadDir(d.Run); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	for _, name := range []string{"", ".", "..", "a/b", "hosts"} {
		if _, err := Lock(t.Context(), d, name, nil); err == nil {
			t.Errorf("lab %q is locked", name)
		}
	}
}

func TestDriverOfALab(t *testing.T) {
	for text, want := range map[string]string{
		"nodes: {vm: {}}":                  "qemu",
		"driver: qemu\nnodes: {vm: {}}":    "qemu",
		"driver: libvirt\nnodes: {vm: {}}": "libvirt",
		"nodes: {vm: {gpus: 1}}":           "libvirt",
		"nodes: {a: {}, b: {vfs: 1}}":      "libvirt",

		"nodes: {vm: {gpus: 1, image: debian-12+gpu+mpi}}":          "qemu",
		"nodes: {vm: {gpus: {path: phb}, image: a.qcow2}}":          "qemu",
		"nodes: {vm: {gpus: 1, vfs: 1, image: debian-12+gpu}}":      "libvirt",
		"nodes: {a: {gpus: 1, image: debian-12+gpu}, b: {gpus: 1}}": "libvirt",
		"driver: qemu\nnodes: {a: {gpus: 1}}":                       "qemu",
	} {
		l, err := lab.Parse("lab.yaml", []byte("name: x\n"+text+"\n"))
		if err != nil {
			t.Fatal(err)
		}
		if got := DriverOf(l); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	if NeedsPlace(&lab.Lab{Driver: fakeDriver}) || !NeedsPlace(&lab.Lab{Driver: "other"}) ||
		NeedsPlace(&lab.Lab{Driver: "vsphere"}) {
		t.Error("labs that go on a host are told apart wrongly")
	}
}

func TestADriverIsRegisteredOnce(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("the second one is taken")
		}
	}()
	Register(Driver{Name: fakeDriver})
}

func TestWhatExecutesTheGuests(t *testing.T) {
	for _, tt := range []struct {
		want          string
		usable        bool
		accel, reason string
		err           string
		broken        bool
	}{
		{want: "tcg", accel: "tcg", reason: "asked for"},
		{want: "", usable: true, accel: "kvm"},
		{want: "auto", usable: true, accel: "kvm"},
		{want: "auto", accel: "tcg", reason: "no device"},
		{want: "kvm", usable: true, accel: "kvm"},
		{want: "kvm", err: "KVM was asked for but cannot be used: no device; --accel tcg emulates the CPUs"},
		{want: "auto", broken: true, err: "the probe broke"},
		{want: "xen", err: `accelerator "xen": want auto, kvm or tcg`},
	} {
		accel, reason, err := Accelerator(tt.want, func() (bool, string, error) {
			switch {
			case tt.broken:
				return false, "", io.ErrUnexpectedEOF
			case tt.usable:
				return true, "", nil
			}
			return false, "no device", nil
		})
		if tt.broken {
			if err != io.ErrUnexpectedEOF {
				t.Errorf("%+v: %v", tt, err)
			}
			continue
		}
		if accel != tt.accel || reason != tt.reason || tt.err == "" && err != nil ||
			tt.err != "" && (err == nil || err.Error() != tt.err) {
			t.Errorf("%+v: got %q, %q, %v", tt, accel, reason, err)
		}
	}
}
