// Package qemu starts the nodes of a lab as QEMU processes, without a daemon and without privileges.
//
// Nodes are cloned: one machine of each shape (image, accelerator, memory, CPUs, NICs) is booted
// once, stopped and kept on disk as a template, and every node is a copy-on-write copy of its
// memory that goes on where the template stopped. Where that is impossible a node is booted, and
// Node.ColdReason says why.
package qemu

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/rackless/rackless/guest"
	"github.com/rackless/rackless/qapi"
	"github.com/rackless/rackless/vm"
)

// Driver is the driver "qemu". Fill in the exported fields, then use it; they are not changed after that.
type Driver struct {
	Binary  string // the emulator, e.g. "/usr/bin/qemu-system-x86_64"
	Version string // its version, as Find returned it
	Accel   string // "kvm" or "tcg", as Probe found or the user said
	Image   *guest.Image
	Cache   string // directory of the templates
	Cold    bool   // boot every node; for comparison and for tests

	EmulatedHost bool // this machine is emulated itself: a trial boot may take minutes

	bootLimit time.Duration // zero means the constant of this name; tests set a short one
	moreArgs  string        // for the kernel of templates; tests set some

	mu        sync.Mutex
	templates map[string]*template // by key, opened by Prepare
	reason    map[string]string    // by key: why there is none
}

// Name returns "qemu".
func (d *Driver) Name() string { return "qemu" }

// Start makes a node run: from the template that Prepare has opened for its shape, else by booting it.
func (d *Driver) Start(ctx context.Context, s Spec) (*Node, error) {
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return nil, err
	}
	key := d.templateKey(s)
	d.mu.Lock()
	t, reason := d.templates[key], d.reason[key]
	d.mu.Unlock()

	m := machine{spec: s, accel: d.Accel}
	var state *os.File
	if t != nil {
		var err error
		m.ram = t.ramPath()
		state, err = t.pipeState()
		if err != nil {
			return nil, err
		}
		defer state.Close()
	} else {
		m.image = d.Image
		if reason == "" {
			reason = "no template was prepared"
		}
	}
	c, err := d.start(m, state, false)
	if err != nil {
		return nil, err
	}
	// Before the machine runs, so that its guest never finds the port closed; the connection waits
	// in the socket's queue.
	setup, err := net.Dial("unix", socketPath(s.Dir, "setup"))
	if err == nil && s.Attached != nil {
		err = s.Attached(ctx)
	}
	if err == nil && t != nil {
		err = resume(ctx, c, s)
	}
	if err != nil {
		err = c.explain(ctx, s.Name, err) // QEMU may have ended before anybody could connect
		c.kill()
		if setup != nil {
			setup.Close()
		}
		return nil, err
	}
	n := &Node{
		Setup: setup,
		Name:  s.Name, Process: c.proc, Accelerator: d.Accel, Cloned: t != nil, Started: time.Now().UTC(),
		Agent: socketPath(s.Dir, "ga"), Console: socketPath(s.Dir, "console"), Log: filepath.Join(s.Dir, "console.log"),
	}
	if t == nil {
		n.ColdReason = reason
	}
	return n, nil
}

// resumeLimit bounds the time until a clone's QEMU has taken the template's state; by hand it takes 0.1 s.
const resumeLimit = 60 * time.Second

// resume makes a QEMU that was started with -incoming defer take the state that waits in its pipe; it then runs.
func resume(ctx context.Context, c *child, s Spec) error {
	ctx, cancel := context.WithTimeoutCause(ctx, resumeLimit, fmt.Errorf("QEMU for %s did not resume within %v", s.Name,
		resumeLimit))
	defer cancel()
	ctx, release := c.context(ctx, s.Name)
	defer release()
	q, err := qapi.DialQMP(ctx, socketPath(s.Dir, "qmp"))
	if err != nil {
		return err
	}
	defer q.Close()
	if err := q.Call(ctx, "migrate-set-capabilities", ignoreShared, nil); err != nil {
		return err
	}
	if err := q.Call(ctx, "migrate-incoming", map[string]string{"uri": fmt.Sprintf("fd:%d", stateFD)},
		nil); err != nil {
		return err
	}
	// The answer only says that it has begun. A QEMU that cannot take the state says why and exits.
	return awaitMigration(ctx, q)
}

// awaitMigration returns when a migration that has begun, to or from this QEMU, is complete.
func awaitMigration(ctx context.Context, q *qapi.Conn) error {
	for {
		e, err := q.WaitEvent(ctx, "MIGRATION")
		if err != nil {
			return err
		}
		var st struct {
			Status string `json:"status"`
		}
		if err := json.Unmarshal(e.Data, &st); err != nil {
			return fmt.Errorf("MIGRATION event %s: %w", e.Data, err)
		}
		switch st.Status {
		case "completed":
			return nil
		case "failed", "cancelled":
			var info struct {
				Desc string `json:"error-desc"`
			}
			if err := q.Call(ctx, "query-migrate", nil, &info); err != nil {
				return err
			}
			return fmt.Errorf("migration %s: %s", st.Status, info.Desc)
		}
	}
}

// ignoreShared leaves the shared memory file out of the migration stream, and makes progress visible as events.
var ignoreShared = map[string]any{"capabilities": []map[string]any{
	{"capability": "x-ignore-shared", "state": true}, {"capability": "events", "state": true},
}}

// Stop ends the node's QEMU. Nothing in a node outlives it, so there is nothing to shut down cleanly.
func (d *Driver) Stop(ctx context.Context, n *Node) error {
	return n.Process.Kill(ctx)
}

// State asks QEMU itself. A QEMU that lives but does not answer within a second is taken to be
// running: it is busy, not dead.
func (d *Driver) State(ctx context.Context, n *Node) (vm.State, error) {
	if !n.Process.Alive() {
		return vm.Dead, nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	q, err := qapi.DialQMP(ctx, socketPath(filepath.Dir(n.Agent), "qmp"))
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			return vm.Running, nil
		}
		if !n.Process.Alive() {
			return vm.Dead, nil
		}
		return "", err
	}
	defer q.Close()
	var st struct {
		Status string `json:"status"`
	}
	if err := q.Call(ctx, "query-status", nil, &st); err != nil {
		return "", err
	}
	if st.Status == "running" || st.Status == "inmigrate" {
		return vm.Running, nil
	}
	return vm.Paused, nil
}

// Strays returns every QEMU that names a path below dir in its arguments.
func (d *Driver) Strays(dir string) ([]vm.Process, error) {
	// Every node logs its console into its directory. The option's name before the path keeps out a
	// directory that ends like this one.
	return vm.ProcessesUsing("qemu-system", ",logfile="+escape(dir)+"/")
}

// Find returns the path of the emulator and its version, e.g. "10.0.2", or an error that says how to get one.
func Find() (path, version string, err error) {
	path, err = exec.LookPath("qemu-system-x86_64")
	if err != nil {
		return "", "", fmt.Errorf("qemu-system-x86_64 is not in PATH: install QEMU 8.0 or newer (Debian: " +
			"qemu-system-x86, on Debian 12 from bookworm-backports; make setup does it)")
	}
	version, err = binaryVersion(path)
	return path, version, err
}

// binaryVersion runs the emulator with --version and picks the number out of
// "QEMU emulator version 10.0.2 (Debian 1:10.0.2+ds-2)".
func binaryVersion(path string) (string, error) {
	out, err := exec.Command(path, "--version").Output()
	if err != nil {
		if e, ok := errors.AsType[*exec.ExitError](err); ok && len(e.Stderr) > 0 { // a library is missing, say
			return "", fmt.Errorf("%s --version: %w: %s", path, err, bytes.TrimSpace(e.Stderr))
		}
		return "", fmt.Errorf("%s --version: %w", path, err)
	}
	var v string
	if _, err := fmt.Sscanf(string(out), "QEMU emulator version %s", &v); err != nil {
		return "", fmt.Errorf("%s --version: unexpected %.80q", path, out)
	}
	return v, nil
}

// pipeState returns the read end of a pipe that the template's device state flows through. A pipe,
// since QEMU takes migration from a plain file by descriptor only in some versions.
func (t *template) pipeState() (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	// QEMU may die and close its end; then the write fails, and the caller hears of the death itself.
	go func() {
		defer w.Close()
		_, _ = w.Write(t.state)
	}()
	return r, nil
}

// readAll drains r into memory until it ends.
func readAll(r io.ReadCloser) <-chan result {
	ch := make(chan result, 1)
	go func() {
		defer r.Close()
		b, err := io.ReadAll(r)
		ch <- result{b, err}
	}()
	return ch
}

type result struct {
	data []byte
	err  error
}

// isNoSpace reports whether a file could not be written because the disk is full or a quota is reached.
func isNoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
