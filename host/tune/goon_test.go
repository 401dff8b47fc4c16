package tune

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/internal/golden"
)

func TestTheUnitOfACommandThatGoesOn(t *testing.T) {
	t.Parallel()
	g := &GoOn{
		Name: "rackless-study", Description: "Go on with study iso", Argv: []string{"/usr/local/bin/rackless", "study",
			"run", `/root/100% "a"\$HOME/iso.yaml`, "--reboot"},
		Dir: "/root/100%", Env: []string{"HOME=/root", `RACKLESS_DATA=/srv/a "b"`},
	}
	data, err := g.bytes()
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "testdata/rackless-study.service", string(data))
	g.Env = append(g.Env, "EVIL=a\nExecStartPre=/bin/false")
	if _, err := g.bytes(); err == nil || !strings.Contains(err.Error(), "does not go into a unit of systemd") {
		t.Errorf("a value of two lines: %v", err)
	}
}

func TestWhatGoesOnIsTakenAwayWhole(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	s := &change.System{Root: root}
	for _, dir := range []string{"etc/systemd/system", "usr/local/bin"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	g := &GoOn{Name: "rackless-study", Description: "d", Argv: []string{"/usr/local/bin/rackless"}, Dir: "/"}
	if err := g.Install(t.Context(), s); err == nil {
		t.Error("a program that is not there is called at each boot")
	}
	data, err := g.bytes()
	if err != nil {
		t.Fatal(err)
	}
	u := bootedUnit(g.Name+".service", data)
	before, err := u.Read(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := u.Do(context.Background(), s); err != nil {
			t.Fatal(err)
		}
	}
	if now, err := u.Read(t.Context(), s); err != nil || !u.Done(now) {
		t.Fatalf("%s, %v", now, err)
	}
	for range 2 {
		if err := g.Remove(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	if now, err := u.Read(t.Context(), s); err != nil || u.Done(now) || s.Exists(u.Path) {
		t.Errorf("it was %s and is %s, %v", before, now, err)
	}
}
