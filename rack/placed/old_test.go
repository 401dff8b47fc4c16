package placed

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/rack/mpi"
	"github.com/rackless/rackless/vm/libvirttest"
)

func oldLab(t *testing.T, uri string) rack.Dirs {
	t.Helper()
	d := rack.Dirs{Run: t.TempDir()}
	dir := filepath.Join(d.Run, "oldplaced")
	if err := os.CopyFS(dir, os.DirFS("testdata/old")); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "state.json")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(string(b), "qemu:///session", uri)), 0o600); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestLabOfAnOlderVersion(t *testing.T) {
	t.Parallel()
	all, err := rack.OpenAll(oldLab(t, "qemu:///session"))
	if err != nil || len(all) != 1 {
		t.Fatalf("found %v, %v", all, err)
	}
	r := all[0]
	defer r.Close()
	if s := r.State; s.URI != "qemu:///session" || s.Accel != "kvm" || !s.Ready || len(s.Nodes) != 1 || r.Emulated() ||
		r.SwitchState() != rack.SwitchNone || s.Nodes[0].ColdReason != "nodes on a host boot" {
		t.Errorf("state %+v, emulated %v, switch %s", s, r.Emulated(), r.SwitchState())
	}
	if got, want := r.Logs("vm00"), (rack.Logs{QEMU: "/var/log/libvirt/qemu/oldplaced.vm00.log",
		Console: "/var/log/libvirt/qemu/oldplaced.vm00-console.log"}); got != want {
		t.Errorf("logs %+v, want %+v", got, want)
	}
	if _, err := r.Switch(); err == nil || !strings.Contains(err.Error(), "there is no switch of rackless") {
		t.Errorf("switch: %v", err)
	}
	const console = "virsh -c qemu:///session console oldplaced.vm00"
	if _, err := r.Console(t.Context(), "vm00"); err == nil || !strings.HasSuffix(err.Error(), console) {
		t.Errorf("console: %v", err)
	}
	h, ok := r.Hosted()
	if !ok {
		t.Fatal("it is on no host")
	}
	p, err := h.Placement()
	if err != nil || p.Plan.Lab != "oldplaced" || p.Host.System.Arch != "x86_64" {
		t.Errorf("placement %+v, %v", p, err)
	}
	// The plan binds MPI ranks.
	if bound, err := mpi.PlanOf(r); err != nil || !cmp.Equal(bound, p.Plan) {
		t.Errorf("plan %+v, %v", bound, err)
	}
	if err := os.WriteFile(placementFile(r.Dir), []byte(`{"plan":{}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Placement(); err == nil || !strings.Contains(err.Error(), "no plan or no host in it") {
		t.Errorf("half a placement: %v", err)
	}
	if err := os.Remove(placementFile(r.Dir)); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Placement(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no placement: %v", err)
	}
}

// A lab with such a libvirt is listed with the reason, and stays.
func TestLibvirtThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	d := oldLab(t, "qemu:///nowhere")
	r, err := rack.Open(d, "oldplaced")
	if err != nil {
		t.Fatal(err)
	}
	for _, st := range r.Status(t.Context()) {
		if st.Err == nil || st.State != "" {
			t.Errorf("%s is %q, %v", st.Lab.Name, st.State, st.Err)
		}
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if _, err := rack.Down(t.Context(), d, "oldplaced"); err == nil {
		t.Error("down of a lab whose domains may run")
	}
	if _, err := os.Stat(r.Dir); err != nil {
		t.Error(err)
	}
}

// Missing domains do not prevent the end.
func TestDownOfALabOfAnOlderVersion(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts a libvirt: not with -short")
	}
	for program, debian := range libvirttest.Programs {
		if _, err := exec.LookPath(program); err != nil {
			if os.Getenv("CI") != "" {
				t.Fatalf("no %s: install Debian's %s", program, debian)
			}
			t.Skipf("no %s: install Debian's %s to run this test", program, debian)
		}
	}
	daemon, err := libvirttest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := daemon.Stop(); err != nil {
			t.Error(err)
		}
	})
	d := oldLab(t, daemon.URI)
	if was, err := rack.Down(t.Context(), d, "oldplaced"); err != nil || !was {
		t.Errorf("down: %v, %v", was, err)
	}
	if left, err := os.ReadDir(d.Run); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
