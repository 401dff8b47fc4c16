package vm

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rackless/rackless/vm/qapi"
)

// templateFormat is raised when templates that an older rackless made must not be used.
const templateFormat = 4

// Files in the directory of a template, beside its memory and its disk.
const (
	fileManifest = "template.json"
	fileState    = "state"
)

// A Template is a machine that was booted once and stopped, on disk: its memory as files that clones
// map, the state of its devices, and the disk as it was then. As JSON it is the manifest.
type Template struct {
	Format      int       `json:"format"`
	Key         string    `json:"key"`
	Profile     string    `json:"profile,omitempty"` // of a host
	Image       string    `json:"image"`             // key of what it booted
	QEMU        string    `json:"qemu"`              // version
	Accelerator string    `json:"accelerator"`
	CPUs        int       `json:"cpus"`
	Memory      int64     `json:"memory_bytes"` // as the guest sees it
	NICs        int       `json:"nics,omitempty"`
	BootSeconds float64   `json:"boot_seconds"`
	Made        time.Time `json:"made"`
	Files       []Stamp   `json:"files"` // memory and disk
	StateSHA256 string    `json:"state_sha256"`

	Dir   string `json:"-"`
	state []byte // what QEMU wrote as migration stream, a few MB
}

// A Stamp is by what a file is known again that is too large to be summed each time: one that was cut
// short or written to is noticed by size, time and, since a crash of the machine may leave holes, by
// how much of it is data. The blocks that it occupies would not do: while ext4 writes a file to the
// disk, it counts some MiB for a moment neither as reserved nor as allocated.
type Stamp struct {
	Name     string `json:"name"`
	Size     int64  `json:"size"`
	Modified int64  `json:"modified"` // ns since 1970
	Data     int64  `json:"data"`     // bytes that are no hole
}

// StampOf looks at a file.
func StampOf(path string) (Stamp, error) {
	f, err := os.Open(path)
	if err != nil {
		return Stamp{}, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return Stamp{}, err
	}
	s := Stamp{Name: fi.Name(), Size: fi.Size(), Modified: fi.ModTime().UnixNano()}
	return s, eachData(f, s.Size, func(begin, end int64) error {
		s.Data += end - begin
		return nil
	})
}

// Key names the template for a machine: a hash of everything that its guest can see, as far as the
// parts say it, of the host's CPU, and of the form of templates.
func Key(parts ...string) string {
	parts = append(parts, fmt.Sprint(templateFormat), hostCPU())
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:8])
}

// hostCPU returns what a template depends on of the host's CPU: under KVM the guest sees it, and
// under TCG, too, its TSC is the host's, whose frequency the template's kernel has measured.
func hostCPU() string {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	first, _, _ := strings.Cut(string(b), "\n\n") // the first processor stands for all
	var keep []string
	for line := range strings.Lines(first) {
		switch k, _, _ := strings.Cut(line, "\t"); k {
		case "model name", "flags", "microcode", "stepping", // x86
			"Features", "CPU implementer", "CPU variant", "CPU part", "CPU revision": // ARM
			keep = append(keep, line)
		}
	}
	return strings.Join(keep, "")
}

// MemoryFile returns the value of QEMU's option -object for memory in a file. With share the machine
// writes to the file, as that of a template does; without, its writes are its own.
func MemoryFile(id string, bytes int64, path string, share bool) string {
	return fmt.Sprintf("memory-backend-file,id=%s,size=%d,mem-path=%s,share=%s", id, bytes, Escape(path), OnOff(share))
}

// A Boot is how the machine of a template is made.
type Boot struct {
	// Machine returns the machine for a directory, with its memory in shared files there.
	Machine func(ctx context.Context, dir string) (Machine, error)
	// Settle returns when the guest of the machine in the directory has nothing left to do that every
	// clone would have to do again. release is called once the state is saved: what a guest does when
	// a connection to it closes (its agent then polls ten times a second) is not what clones should
	// wake up in.
	Settle func(ctx context.Context, dir string) (release func(), err error)
	// Frozen, if not nil, is called when the machine of the directory has stopped and its state is saved, with its QMP.
	Frozen func(ctx context.Context, dir string, q *qapi.Conn) error
	Files  []string // memory, disk and what Frozen writes, in the directory
	// Holes makes holes of the pages of zeros in Files, for clones that copy what is none.
	Holes bool
	Limit time.Duration
}

// Make boots a machine, stops it once its guest has settled, and keeps it as the template t, of which
// the caller knows what the manifest says first. It is to be called by what [Cache.Ensure] calls.
func (c Cache) Make(ctx context.Context, t Template, b Boot) (_ *Template, err error) {
	work := filepath.Join(c.Dir, workPrefix+t.Key)
	if err := os.RemoveAll(work); err != nil { // whoever left it there is dead: this process has the lock
		return nil, err
	}
	if err := os.Mkdir(work, 0o700); err != nil {
		return nil, err
	}
	defer os.RemoveAll(work)
	began := time.Now()
	m, err := b.Machine(ctx, work)
	if err != nil {
		return nil, err
	}
	m.Name, m.Dir, m.Bound = "the template", work, true
	child, err := m.Start(nil)
	if err != nil {
		return nil, err
	}
	defer child.Kill()
	ctx, release := child.Bind(ctx)
	defer release()
	ctx, cancel := context.WithTimeoutCause(ctx, b.Limit, fmt.Errorf("the template did not boot within %v", b.Limit))
	defer cancel()
	defer func() {
		if err != nil && !errors.Is(err, ErrClock) { // the console goes with the directory
			err = fmt.Errorf("%w; its console ended: %s", err, LastLines(filepath.Join(work, FileConsole)))
		}
	}()
	if t.state, err = b.freeze(ctx, work); err != nil {
		return nil, child.Explain(ctx, err)
	}
	t.BootSeconds = time.Since(began).Seconds()
	child.Kill()
	// Sockets and log are of the machine that was, and clones have their own.
	for _, f := range append(m.Sockets, FileLog) {
		if err := os.Remove(filepath.Join(work, f)); err != nil {
			return nil, err
		}
	}
	for _, f := range b.Files {
		if !b.Holes {
			break
		}
		if err := makeHoles(filepath.Join(work, f)); err != nil {
			return nil, err
		}
	}
	if err := t.write(work, b.Files); err != nil {
		return nil, err
	}
	// What lies on the disk of a template names it by its path, which is absolute: the disk may move.
	t.Dir = filepath.Join(c.Dir, t.Key)
	if err := os.RemoveAll(t.Dir); err != nil {
		return nil, err
	}
	// This rename does not force the memory files, of some GiB, to the disk: Cache.open finds files that a
	// power cut has damaged.
	return &t, os.Rename(work, t.Dir)
}

// freeze waits until the guest has settled, and returns the state of the machine's devices. The
// machine is stopped then, its memory is in its files, and its disk is complete.
func (b Boot) freeze(ctx context.Context, dir string) ([]byte, error) {
	release, err := b.Settle(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer release()
	q, err := qapi.DialQMP(ctx, filepath.Join(dir, SocketQMP))
	if err != nil {
		return nil, err
	}
	defer q.Close()
	if err := q.Call(ctx, "migrate-set-capabilities", ignoreShared, nil); err != nil {
		return nil, fmt.Errorf("this QEMU cannot leave shared memory out of a saved state: %w", err)
	}
	path := filepath.Join(dir, "state.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	var state []byte
	got := make(chan error, 1)
	go func() {
		nc, err := l.Accept()
		if err == nil {
			defer nc.Close()
			state, err = io.ReadAll(nc)
		}
		got <- err
	}()
	// The machine is not stopped first: migration stops it at its end and notes that it was
	// running, so that clones run by themselves.
	err = q.Call(ctx, "migrate", map[string]any{"uri": "unix:" + path}, nil)
	if err == nil {
		err = awaitMigration(ctx, q)
	}
	if err != nil {
		return nil, fmt.Errorf("save the machine's state: %w", err)
	}
	if err := <-got; err != nil || b.Frozen == nil {
		return state, err
	}
	return state, b.Frozen(ctx, dir, q)
}

// makeHoles frees the pages of a file that are all zeros.
func makeHoles(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	const page = 4096
	buf, zeros := make([]byte, 1<<20), make([]byte, page)
	free, empty := int64(0), int64(0) // the hole that grows: where it begins, and its length
	punch := func() error {
		if empty == 0 {
			return nil
		}
		err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, free, empty)
		empty = 0
		if errors.Is(err, unix.EOPNOTSUPP) { // a file system without holes: the file stays as it is
			return nil
		}
		return err
	}
	for at := int64(0); ; {
		n, err := io.ReadFull(f, buf)
		for p := 0; p < n; p += page {
			if !bytes.Equal(buf[p:min(p+page, n)], zeros[:min(page, n-p)]) {
				if err := punch(); err != nil {
					return err
				}
				continue
			}
			if empty == 0 {
				free = at + int64(p)
			}
			empty += page
		}
		at += int64(n)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return errors.Join(punch(), f.Close())
		}
		if err != nil {
			return err
		}
	}
}

// write writes the state and the manifest of a template whose other files are in dir.
func (t *Template) write(dir string, files []string) error {
	for _, f := range files {
		s, err := StampOf(filepath.Join(dir, f))
		if err != nil {
			return err
		}
		t.Files = append(t.Files, s)
	}
	sum := sha256.Sum256(t.state)
	t.Format, t.Made, t.StateSHA256 = templateFormat, time.Now().UTC(), hex.EncodeToString(sum[:])
	b, err := json.MarshalIndent(t, "", "  ")
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(dir, fileState), t.state, 0o600),
		os.WriteFile(filepath.Join(dir, fileManifest), b, 0o600))
}

// ignoreShared leaves the shared memory files out of the migration stream, and makes progress visible as events.
var ignoreShared = map[string]any{"capabilities": []map[string]any{
	{"capability": "x-ignore-shared", "state": true}, {"capability": "events", "state": true},
}}

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

// pipe returns the read end of a pipe that the state flows through. A pipe, since QEMU takes
// migration from a plain file by descriptor only in some versions.
func (t *Template) pipe() (*os.File, error) {
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

// resumeLimit bounds the time until a clone's QEMU has taken the template's state; by hand it takes 0.1 s.
const resumeLimit = 60 * time.Second

// Resume makes a machine that was started from a template go on where that stopped.
func (c *Child) Resume(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, resumeLimit,
		fmt.Errorf("QEMU for %s did not resume within %v", c.machine.Name, resumeLimit))
	defer cancel()
	ctx, release := c.Bind(ctx)
	defer release()
	q, err := qapi.DialQMP(ctx, filepath.Join(c.machine.Dir, SocketQMP))
	if err != nil {
		return err
	}
	defer q.Close()
	if err := q.Call(ctx, "migrate-set-capabilities", ignoreShared, nil); err != nil {
		return err
	}
	if err := q.Call(ctx, "migrate-incoming", map[string]string{"uri": fmt.Sprintf("fd:%d", c.stateFD)},
		nil); err != nil {
		return err
	}
	// The answer only says that it has begun. A QEMU that cannot take the state says why and exits.
	if err := awaitMigration(ctx, q); err != nil || c.machine.Restore == nil {
		return err
	}
	if err := c.machine.Restore(ctx); err != nil {
		return err
	}
	return q.Call(ctx, "cont", nil, nil)
}
