package emulated

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/vm"
	"github.com/rackless/rackless/vm/guest"
)

// oldLab is a state that was recorded with the version of 2026-11-25. Its processes have the identity of p.
func oldLab(t *testing.T, p vm.Process) rack.Dirs {
	t.Helper()
	d := rack.Dirs{Run: t.TempDir()}
	b, err := os.ReadFile("testdata/old/state.json")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(d.Run, "old")
	b = bytes.ReplaceAll(b, []byte("/tmp/rlold/old"), []byte(dir))
	var state map[string]any
	if err := json.Unmarshal(b, &state); err != nil {
		t.Fatal(err)
	}
	state["daemon"] = p
	for _, n := range state["nodes"].([]any) {
		n.(map[string]any)["process"] = p
	}
	if b, err = json.Marshal(state); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "state.json"), b, 0o600); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestLabOfAnOlderVersion(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	p, err := vm.FindProcess(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	d := oldLab(t, p)
	all, err := rack.OpenAll(d)
	if err != nil || len(all) != 1 {
		t.Fatalf("found %v, %v", all, err)
	}
	r := all[0]
	s := r.State
	if s.Driver != string(lab.DriverQEMU) || s.Accel != "tcg" || !s.Ready || !r.Emulated() || !whole(s, nil) ||
		r.SwitchState() != rack.SwitchRunning {
		t.Errorf("state %+v, emulated %v, switch %s", s, r.Emulated(), r.SwitchState())
	}
	n := s.Nodes[1]
	if n.Name != "vm01" || !n.Cloned || n.Accelerator != "tcg" || n.MachineID == "" || n.Facts == nil ||
		n.Console != filepath.Join(r.NodeDir("vm01"), "console.sock") || n.Log != r.Logs("vm01").Console {
		t.Errorf("node %+v", n)
	}
	if ep, err := r.Endpoint("vm01"); err != nil || ep.Device != "rxe0" || ep.Addr.String() != "10.0.0.2" {
		t.Errorf("endpoint %+v, %v", ep, err)
	}
	l, err := lab.Parse("old.yaml", []byte("name: old\nnodes:\n  vm: {count: 2}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if changes := lab.Diff(s.Lab, l); len(changes) != 0 {
		t.Errorf("the lab is another one: %v", changes)
	}
	if got := r.Ports("vm00"); !slices.Equal(got, []string{"vm00"}) {
		t.Errorf("ports %q", got)
	}
	again, err := rack.Up(t.Context(), d, l, rack.Options{Progress: func(e rack.Event) {
		t.Errorf("up works: %+v", e)
	}})
	if err != nil || !again.State.Created.Equal(s.Created) {
		t.Errorf("up of a lab that is whole: %+v, %v", again, err)
	}
	if was, err := rack.Down(t.Context(), d, "old"); err != nil || !was {
		t.Errorf("down: %v, %v", was, err)
	}
	if err := <-ended; err == nil {
		t.Error("the process has ended by itself")
	}
	if _, err := os.Stat(r.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the lab's directory: %v", err)
	}
}

func TestDeadLab(t *testing.T) {
	t.Parallel()
	d := oldLab(t, vm.Process{PID: 1 << 30})
	r, err := rack.Open(d, "old")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for _, st := range r.Status(t.Context()) {
		if st.State != vm.Dead || st.Err != nil {
			t.Errorf("%s is %q, %v", st.Lab.Name, st.State, st.Err)
		}
	}
	if got := r.SwitchState(); got != rack.SwitchDead {
		t.Errorf("switch: %s", got)
	}
	_, switchErr := r.Switch()
	_, consoleErr := r.Console(t.Context(), "vm00")
	_, runErr := r.Run(t.Context(), "vm00", guest.Command{Argv: []string{"true"}})
	for what, err := range map[string]error{"switch": switchErr, "console": consoleErr, "run": runErr} {
		if err == nil || !bytes.Contains([]byte(err.Error()), []byte("starts it again")) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestDaemonWithoutNodes(t *testing.T) {
	t.Parallel()
	d := oldLab(t, vm.Process{PID: 1 << 30})
	r, err := rack.Open(d, "old")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p, err := startDaemon(t.Context(), r.Dir)
	if err != nil {
		t.Fatal(err)
	}
	sw, err := r.Switch()
	if err != nil {
		t.Fatal(err)
	}
	have, err := sw.Counters(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, port := range have.Ports {
		names = append(names, port.Name)
		if port.Connected {
			t.Errorf("port %s is connected", port.Name)
		}
	}
	if slices.Sort(names); !slices.Equal(names, []string{"vm00", "vm01"}) {
		t.Errorf("ports: %q", names)
	}
	// The daemon lacks the lab's new ports, and has one too many.
	want, err := lab.Parse("old.yaml", []byte("name: old\nnodes:\n  vm00: {nics: 2}\n"))
	if err != nil {
		t.Fatal(err)
	}
	r.State.Daemon = p
	u := &upRun{Rack: r, progress: &rack.Progress{}}
	u.Lab = want
	if err := u.ensureDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
	if have, err = sw.Counters(t.Context()); err != nil || len(have.Ports) != 2 {
		t.Errorf("ports: %+v, %v", have.Ports, err)
	}
	if _, err := r.Run(t.Context(), "vm00", guest.Command{Argv: []string{"true"}}); err == nil {
		t.Error("a command has run on a node that is not there")
	}
	if was, err := rack.Down(t.Context(), d, "old"); err != nil || !was {
		t.Errorf("down: %v, %v", was, err)
	}
	if p.Alive() {
		t.Error("the daemon is left")
	}
}
