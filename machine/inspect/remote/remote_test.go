package remote

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rackless/rackless/internal/sshtest"
	"github.com/rackless/rackless/machine/inspect"
)

// TestMain makes this test binary the program to copy.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) != "rackless" {
		os.Exit(m.Run())
	}
	if !slices.Equal(os.Args[1:], []string{"host", "snapshot", "--keep-ids", "--out", "-"}) {
		fmt.Fprintln(os.Stderr, "called as", os.Args)
		os.Exit(2)
	}
	if err := inspect.WriteSnapshot(context.Background(), os.Stdout, inspect.Live(),
		inspect.SnapshotOptions{KeepIDs: true}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// client's host runs first before each command; temp is its directory for temporary files.
func client(t *testing.T, first string) (c Client, host, temp string) {
	t.Helper()
	if _, err := exec.LookPath("ssh"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	temp = t.TempDir()
	s, err := sshtest.Start(t.TempDir(), func(ctx context.Context, command string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, "sh", "-c", first+"\n"+command)
		cmd.Env = append(os.Environ(), "TMPDIR="+temp)
		return cmd
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return Client{program, []string{"-F", "none", "-i", s.Key, "-o", "StrictHostKeyChecking=no", "-o",
		"UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"}}, "ssh://" + s.Addr.String(), temp
}

func TestAHostIsReadBySSH(t *testing.T) {
	t.Parallel()
	c, host, temp := client(t, "echo Welcome to node01")
	var saved int
	h, err := c.Read(t.Context(), host, func(snapshot []byte) error {
		saved = len(snapshot)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	here, err := inspect.Read(t.Context(), inspect.Live())
	if err != nil {
		t.Fatal(err)
	}
	if h.Kernel.Release != here.Kernel.Release || len(h.Cores) != len(here.Cores) || saved == 0 {
		t.Errorf("kernel %s, %d cores, snapshot of %d bytes", h.Kernel.Release, len(h.Cores), saved)
	}
	if h.Provenance.ThisSystem || h.Provenance.Name != host {
		t.Errorf("provenance %+v", h.Provenance)
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("%v is left on the host, %v", left, err)
	}
}

func TestAHostThatCannotBeRead(t *testing.T) {
	mips := t.TempDir()
	uname := []byte("#!/bin/sh\n[ $1 = -m ] && echo mips || echo Linux\n")
	if err := os.WriteFile(filepath.Join(mips, "uname"), uname, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, first, want string }{
		{"another machine", "export PATH=" + mips + ":$PATH", "is Linux mips, and this rackless is for Linux"},
		{"no room", "ulimit -f 1; trap '' XFSZ", "rite error"},
		{"a shell that does nothing", "exit 0", "sent no snapshot"},
		{"a login that ends", "echo account locked >&2; exit 1", "account locked"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, host, temp := client(t, tt.first)
			_, err := c.Snapshot(t.Context(), host)
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), host) {
				t.Errorf("error %v, want %s", err, tt.want)
			}
			if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
				t.Errorf("%v is left on the host, %v", left, err)
			}
		})
	}
	t.Run("nobody listens", func(t *testing.T) {
		t.Parallel()
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		c, _, _ := client(t, "")
		if _, err := c.Snapshot(t.Context(), "ssh://"+l.Addr().String()); err == nil ||
			!strings.Contains(err.Error(), "Connection refused") {
			t.Error(err)
		}
	})
}
