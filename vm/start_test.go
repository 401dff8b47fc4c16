package vm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestVersions(t *testing.T) {
	for v, want := range map[string]string{
		"8.0.0": "", "10.0.2": "", "9": "", "10.1.0-rc2": "",
		"7.2.17": "QEMU 7.2.17 is too old: rackless needs 8.0 or newer",
		"":       `QEMU version "": want a number first`,
		"v9":     `QEMU version "v9": want a number first`,
	} {
		if err := checkVersion(v); (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("version %q: got %v, want %q", v, err, want)
		}
	}
	dir := t.TempDir()
	for name, tt := range map[string]struct{ script, version, want string }{
		"Debian's": {`echo "QEMU emulator version 10.0.2 (Debian 1:10.0.2+ds-2)"; echo Copyright`, "10.0.2",
			""},
		"something else": {`echo "GNU bash, version 5"`, "", `unexpected "GNU bash, version 5\n"`},
		"one that says why": {`echo "error while loading shared libraries: libslirp.so.0" >&2; exit 127`, "",
			"exit status 127: error while loading shared libraries: libslirp.so.0"},
		"one without a word": {`exit 1`, "", "--version: exit status 1"},
	} {
		path := filepath.Join(dir, strings.ReplaceAll(name, " ", "-"))
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+tt.script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		got, err := (Emulator{Path: path}).AskVersion()
		if got != tt.version || (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(),
			tt.want) {
			t.Errorf("%s: got %q, %v, want %q, %q", name, got, err, tt.version, tt.want)
		}
	}
}

func TestSocketPathThatIsTooLong(t *testing.T) {
	m := Machine{Binary: "/bin/true", Dir: filepath.Join("/tmp", strings.Repeat("x", 100)), Sockets: Sockets{SocketQMP}}
	if _, err := m.Start(nil); err == nil || !strings.Contains(err.Error(),
		"at most 107 are possible: set RACKLESS_RUN to a shorter directory") {
		t.Errorf("got %v", err)
	}
}

func TestTheEndOfAMachineIsTheReasonOfWhatFollows(t *testing.T) {
	for _, s := range shapes {
		t.Run(s.name, func(t *testing.T) {
			child, err := standInMachine(t, shortDir(t), s.sockets, "could not open the sky").Start(nil)
			if err != nil {
				t.Fatal(err)
			}
			const want = "QEMU for vm00 ended (exit status 3); its last words: could not open the sky"
			ctx, release := child.Bind(t.Context())
			defer release()
			<-ctx.Done()
			if err := context.Cause(ctx); err.Error() != want {
				t.Errorf("the context ended for %v", err)
			}
			if err := child.Explain(t.Context(), errors.New("connection reset")); err.Error() != want {
				t.Errorf("explained as %v", err)
			}
			child.Kill()
		})
	}
}

func TestABoundMachineEndsWithItsStarter(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := shortDir(t)
	out, err := exec.Command(self, "stand-in-starter", dir).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var p Process
	if _, err := fmt.Sscan(string(out), &p.PID); err != nil {
		t.Fatal(err)
	}
	if now, err := FindProcess(p.PID); err == nil { // otherwise it is gone already
		if err := now.Wait(limited(t)); err != nil {
			t.Error(err)
		}
	}
	if left, err := ProcessesUsing("", dir); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func standInStarter(dir string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	c, err := Machine{Binary: self, Dir: dir, Sockets: Sockets{SocketQMP}, Bound: true,
		Args: []string{"stand-in-qemu", "", dir}}.Start(nil)
	if err == nil {
		fmt.Println(c.Process.PID)
	}
	return err
}
