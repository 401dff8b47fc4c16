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

// templateFormat is increased if older templates must not be used.
const templateFormat = 4

const (
	fileManifest = "template.json"
	fileState    = "state"
)

// A Template is a machine that was booted once and stopped: its memory as files that clones map, the state of its
// devices, and its disk. Its JSON form is the manifest.
type Template struct {
	Format      int       `json:"format"`
	Key         string    `json:"key"`
	Profile     string    `json:"profile,omitempty"` // of an emulated host
	Image       string    `json:"image"`             // key of the booted image
	QEMU        string    `json:"qemu"`              // version
	Accelerator string    `json:"accelerator"`
	CPUs        int       `json:"cpus"`
	Memory      int64     `json:"memory_bytes"` // as seen by the guest
	NICs        int       `json:"nics,omitempty"`
	BootSeconds float64   `json:"boot_seconds"`
	Made        time.Time `json:"made"`
	Files       []Stamp   `json:"files"` // memory and disk
	StateSHA256 string    `json:"state_sha256"`

	Dir   string `json:"-"`
	state []byte // a migration stream, a few MB
}

// A Stamp identifies a file too large to hash each time. Size and time reveal truncation and writes, the amount of data
// holes left by a crash. While ext4 writes a file to disk, some MiB briefly count as neither reserved nor allocated, so
// allocated blocks are unsuitable.
type Stamp struct {
	Name     string `json:"name"`
	Size     int64  `json:"size"`
	Modified int64  `json:"modified"` // ns since 1970
	Data     int64  `json:"data"`     // bytes that are not holes
}

// StampOf reads a file's stamp.
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

// Key hashes everything that the guest sees: parts, and the host's CPU.
func Key(parts ...string) string {
	parts = append(parts, fmt.Sprint(templateFormat), hostCPU())
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:8])
}

// hostCPU is seen by guests under KVM; under TCG the TSC is the host's, whose frequency the template's kernel has
// measured.
func hostCPU() string {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	first, _, _ := strings.Cut(string(b), "\n\n") // all are like the first
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

// MemoryFile returns the value of QEMU's -object. With share, the machine writes to the file, as a template does.
func MemoryFile(id string, bytes int64, path string, share bool) string {
	return fmt.Sprintf("memory-backend-file,id=%s,size=%d,mem-path=%s,share=%s", id, bytes, Escape(path), OnOff(share))
}

// A Boot makes a template's machine.
type Boot struct {
	// Machine returns the machine, with its memory in shared files in dir.
	Machine func(ctx context.Context, dir string) (Machine, error)
	// Settle returns when the guest has no work left that every clone would repeat. release is called after the state
	// is saved: the guest would react to a closed connection (its agent polls ten times a second).
	Settle func(ctx context.Context, dir string) (release func(), err error)
	// Frozen, if set, is called when the machine has stopped and its state is saved.
	Frozen func(ctx context.Context, dir string, q *qapi.Conn) error
	Files  []string // memory, disk and Frozen's
	// Holes turns zero pages in Files into holes, for clones that copy only data.
	Holes bool
	Limit time.Duration
}

// Make boots a machine, stops it once its guest has settled, and saves it as t, whose manifest fields the caller has
// set. Call it in the make function of [Cache.Ensure].
func (c Cache) Make(ctx context.Context, t Template, b Boot) (_ *Template, err error) {
	work := filepath.Join(c.Dir, workPrefix+t.Key)
	if err := os.RemoveAll(work); err != nil { // left by a dead process
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
		if err != nil && !errors.Is(err, ErrClock) { // the log goes with the directory
			err = fmt.Errorf("%w; its console ended: %s", err, LastLines(filepath.Join(work, FileConsole)))
		}
	}()
	if t.state, err = b.freeze(ctx, work); err != nil {
		return nil, child.Explain(ctx, err)
	}
	t.BootSeconds = time.Since(began).Seconds()
	child.Kill()
	// Clones have their own sockets and log.
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
	// Overlays name their base by its absolute path, so the disk may be moved.
	t.Dir = filepath.Join(c.Dir, t.Key)
	if err := os.RemoveAll(t.Dir); err != nil {
		return nil, err
	}
	// Memory files, of some GiB, are not flushed; Cache.open detects damage by a power cut.
	return &t, os.Rename(work, t.Dir)
}

// freeze returns the devices' state of a settled guest. Then the machine is stopped, with complete memory files and
// disk. maxState is far above a node's 0.4 MB.
const maxState = 256 << 20

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
			state, err = io.ReadAll(io.LimitReader(nc, maxState+1))
		}
		if err == nil && len(state) > maxState {
			err = fmt.Errorf("the machine's state has more than %d MiB", maxState>>20)
		}
		got <- err
	}()
	// Not stopped first: migration stops it and records that it was running, so that clones run by themselves.
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

func makeHoles(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	const page = 4096
	buf, zeros := make([]byte, 1<<20), make([]byte, page)
	free, empty := int64(0), int64(0) // of the growing hole
	punch := func() error {
		if empty == 0 {
			return nil
		}
		err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, free, empty)
		empty = 0
		if errors.Is(err, unix.EOPNOTSUPP) { // no hole support
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

// ignoreShared leaves shared memory out of the migration, and makes progress visible as events.
var ignoreShared = map[string]any{"capabilities": []map[string]any{
	{"capability": "x-ignore-shared", "state": true}, {"capability": "events", "state": true},
}}

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

// pipe returns the state in a pipe: only some versions of QEMU accept migration from a plain file by descriptor.
func (t *Template) pipe() (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	// If QEMU dies, the caller notices.
	go func() {
		defer w.Close()
		_, _ = w.Write(t.state)
	}()
	return r, nil
}

// resumeLimit is for loading the state, normally 0.1 s.
const resumeLimit = 60 * time.Second

// Resume continues a machine from its template.
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
	// The answer only means a start. If QEMU cannot load the state, it prints the reason and exits.
	if err := awaitMigration(ctx, q); err != nil || c.machine.Restore == nil {
		return err
	}
	if err := c.machine.Restore(ctx); err != nil {
		return err
	}
	return q.Call(ctx, "cont", nil, nil)
}
