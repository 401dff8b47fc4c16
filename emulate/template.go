package emulate

import (
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
	"syscall"
	"time"

	"github.com/gofrs/flock"

	"github.com/rackless/rackless/guest"
	"github.com/rackless/rackless/qapi"
	"github.com/rackless/rackless/rack"
)

// templateFormat is raised when templates that an older rackless made must not be used.
const templateFormat = 2

// stateFD is the descriptor under which a clone finds its state: after standard input, output and
// error and its four sockets.
const stateFD = 7

// A template is a machine that was booted once and stopped, on disk: the memory of its NUMA nodes
// as files that clones map, the state of its devices, and the disk as it was then.
type template struct {
	dir   string
	state []byte // what QEMU wrote as migration stream, a few MB
}

// templateInfo is the manifest of a template. The memory is too large to be summed each time, so
// that a file that was cut short or written to is noticed by size and time.
type templateInfo struct {
	Key         string      `json:"key"`
	Profile     string      `json:"profile"`
	CPUs        int         `json:"cpus"`
	MemoryBytes int64       `json:"memory_bytes"`
	Boot        string      `json:"boot"` // key of what it booted
	QEMU        string      `json:"qemu"`
	Accelerator string      `json:"accelerator"`
	BootSeconds float64     `json:"boot_seconds"`
	Made        time.Time   `json:"made"`
	Files       []fileStamp `json:"files"` // memory and disk
	StateSHA256 string      `json:"state_sha256"`
}

// A fileStamp is by what a file is known again.
type fileStamp struct {
	Name     string `json:"name"`
	Size     int64  `json:"size"`
	Modified int64  `json:"modified"` // ns since 1970
	Blocks   int64  `json:"blocks"`   // of 512 bytes, that it occupies
}

func stampOf(path string) (fileStamp, error) {
	fi, err := os.Stat(path)
	if err != nil {
		return fileStamp{}, err
	}
	s := fileStamp{Name: filepath.Base(path), Size: fi.Size(), Modified: fi.ModTime().UnixNano()}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		s.Blocks = st.Blocks
	}
	return s, nil
}

// templates is the directory of the templates of hosts.
func templates(d rack.Dirs) string { return filepath.Join(d.Cache, "hosts", "templates") }

// templateKey names the template that serves a machine: a hash of everything that its guest can see.
func templateKey(m machine, version string) string {
	m = machine{
		profile: m.profile, accel: m.accel, boot: Boot{Key: m.boot.Key, Append: m.boot.Append}, ram: ram{dir: "ram"},
		disk: present(m.disk), tools: present(m.tools),
	}
	sum := sha256.Sum256([]byte(strings.Join(append(m.args(), fmt.Sprint(templateFormat), m.boot.Key, version,
		hostCPU(m.accel)), "\x00")))
	return hex.EncodeToString(sum[:8])
}

// present stands for a file whose path the guest cannot see.
func present(path string) string {
	if path == "" {
		return ""
	}
	return "there"
}

// hostCPU returns what a template depends on of this machine's CPU: its name and features under
// KVM, where the guest runs on it, and nothing else.
func hostCPU(accel string) string {
	if accel != "kvm" {
		return ""
	}
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	first, _, _ := strings.Cut(string(b), "\n\n") // the first processor stands for all
	var keep []string
	for line := range strings.Lines(first) {
		if k, _, _ := strings.Cut(line, "\t"); k == "model name" || k == "flags" || k == "microcode" ||
			k == "stepping" {
			keep = append(keep, line)
		}
	}
	return strings.Join(keep, "")
}

// openTemplate reads a template and checks that it is as it was made.
func openTemplate(dir, key string) (*template, error) {
	b, err := os.ReadFile(filepath.Join(dir, "template.json"))
	if err != nil {
		return nil, err
	}
	var info templateInfo
	if err := json.Unmarshal(b, &info); err != nil {
		return nil, fmt.Errorf("template.json: %w", err)
	}
	t := &template{dir: dir}
	if t.state, err = os.ReadFile(filepath.Join(dir, "state")); err != nil {
		return nil, fmt.Errorf("incomplete: %v", err)
	}
	if sum := sha256.Sum256(t.state); info.Key != key || hex.EncodeToString(sum[:]) != info.StateSHA256 {
		return nil, errors.New("state is not what was written")
	}
	for _, want := range info.Files {
		have, err := stampOf(filepath.Join(dir, filepath.Base(want.Name)))
		if err != nil {
			return nil, fmt.Errorf("incomplete: %v", err)
		}
		if have.Size != want.Size || have.Modified != want.Modified || have.Blocks < want.Blocks {
			return nil, fmt.Errorf("%s is not what was written", want.Name)
		}
	}
	now := time.Now()
	return t, os.Chtimes(filepath.Join(dir, "template.json"), now, now) // see pruneTemplates
}

// ensureTemplate opens the template for m, making it if the cache has none or a damaged one. Two
// processes that want the same one at once make it once.
func ensureTemplate(ctx context.Context, o Options, binary, version string, m machine) (*template, error) {
	key := templateKey(m, version)
	dir := filepath.Join(templates(o.Dirs), key)
	t, err := openTemplate(dir, key)
	if err == nil {
		return t, nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return nil, err
	}
	l := flock.New(dir+".lock", flock.SetPermissions(0o600)) // the file stays: removing it would race
	if ok, err := l.TryLock(); err != nil {
		return nil, err
	} else if !ok {
		o.Progress.Note("waiting for another rackless, which makes the template")
		if _, err := l.TryLockContext(ctx, lockPoll); err != nil {
			return nil, err
		}
	}
	defer l.Close()
	if t, err = openTemplate(dir, key); err == nil { // another process made it while this one waited
		return t, nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		o.Progress.Note("the cached template is damaged (%v): making it again", err)
	}
	return makeTemplate(ctx, o, binary, version, dir, key, m)
}

// makeTemplate boots a machine, stops it once nothing is left to start in it, and keeps it in dir.
// The caller holds the template's lock.
func makeTemplate(ctx context.Context, o Options, binary, version, dir, key string, m machine) (_ *template,
	err error) {
	work := filepath.Join(filepath.Dir(dir), ".t"+key)
	if err := os.RemoveAll(work); err != nil { // whoever left it there is dead: this process has the lock
		return nil, err
	}
	if err := os.Mkdir(work, 0o700); err != nil {
		return nil, err
	}
	defer os.RemoveAll(work)
	began := time.Now()
	p := m.profile
	o.Progress.Begin(fmt.Sprintf("boot the template of %s (%d CPUs, %v, %s), once", p.Name, p.CPUs(), p.Memory(),
		m.accel))
	m.name, m.ram = "template-"+key, ram{dir: work, share: true}
	h := &Host{Dir: work, State: State{Name: "template", Profile: p}}
	if m.boot.Disk != "" {
		m.disk = h.path(fileDisk)
		if err := makeOverlay(ctx, m.disk, m.boot.Disk, p.Disk); err != nil {
			return nil, err
		}
	}
	c, err := startQEMU(binary, work, m, nil, true)
	if err != nil {
		return nil, err
	}
	defer c.kill()
	h.Process = c.proc
	ctx, release := c.bind(ctx)
	defer release()
	ctx, cancel := context.WithTimeoutCause(ctx, bootLimit, fmt.Errorf("it did not boot within %v", bootLimit))
	defer cancel()
	defer func() {
		if err != nil { // the console goes with the directory
			err = fmt.Errorf("%w; its console ended: %s", err, lastLines(h.SerialLog()))
		}
	}()
	state, err := h.freeze(ctx)
	if err != nil {
		return nil, c.explain(ctx, err)
	}
	boot := time.Since(began)
	c.kill()

	info := templateInfo{
		Key: key, Profile: p.Name, CPUs: p.CPUs(), MemoryBytes: int64(p.Memory()), Boot: m.boot.Key, QEMU: version,
		Accelerator: m.accel,
		BootSeconds: boot.Seconds(), Made: time.Now().UTC(),
	}
	var files []string
	for i := range p.NUMANodes {
		files = append(files, fmt.Sprintf("ram%d", i))
	}
	if m.disk != "" {
		files = append(files, fileDisk)
	}
	for _, f := range files {
		s, err := stampOf(h.path(f))
		if err != nil {
			return nil, err
		}
		info.Files = append(info.Files, s)
	}
	for _, f := range []string{socketQMP, socketAgent, socketSerial, socketConsole, fileQEMULog} {
		if err := os.Remove(h.path(f)); err != nil {
			return nil, err
		}
	}
	if err := writeInfo(work, info, state); err != nil {
		return nil, err
	}
	// An overlay names what is below it by its path: that of the template's disk is absolute and
	// does not change when the directory moves.
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	if err := os.Rename(work, dir); err != nil {
		return nil, err
	}
	return &template{dir: dir, state: state}, pruneTemplates(o.Dirs, key)
}

// templateAge is how long a template that no host has been made from stays.
const templateAge = 7 * 24 * time.Hour

// pruneTemplates removes templates but that with the key which have not been used for long: those
// of older images above all. The disk of a host lies on that of its template, so that what a host
// of this user stands on stays.
func pruneTemplates(d rack.Dirs, keep string) error {
	all, err := os.ReadDir(templates(d))
	if err != nil {
		return err
	}
	hosts, err := List(d)
	if err != nil {
		return nil // which templates are in use cannot be told now
	}
	used := map[string]bool{keep: true}
	for _, h := range hosts {
		used[h.Template] = true
	}
	for _, e := range all {
		dir := filepath.Join(templates(d), e.Name())
		fi, err := os.Stat(filepath.Join(dir, "template.json"))
		if err != nil || used[e.Name()] || time.Since(fi.ModTime()) < templateAge {
			continue
		}
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	return nil
}

// writeInfo writes the state and the manifest of a template, whose other files are there.
func writeInfo(dir string, info templateInfo, state []byte) error {
	sum := sha256.Sum256(state)
	info.StateSHA256 = hex.EncodeToString(sum[:])
	b, err := json.MarshalIndent(info, "", "  ")
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(dir, "state"), state, 0o600),
		os.WriteFile(filepath.Join(dir, "template.json"), b, 0o600))
}

// freeze waits until the guest has nothing left to start that every clone would have to start
// again, and returns the state of its devices. The machine is stopped after it, its memory is in
// the shared files, and its disk is complete.
func (h *Host) freeze(ctx context.Context) ([]byte, error) {
	if err := unplug(ctx, h.Dir, h.Profile.unplugged()); err != nil {
		return nil, err
	}
	conn, err := h.awaitAgent(ctx)
	if err != nil {
		return nil, err
	}
	// not before the state is saved: what a guest does when it closes is not what clones should
	// wake up in
	defer conn.Close()
	// udev may have the drivers of devices still to load when systemd has started everything.
	// degraded is a unit that failed, which is the image's affair; a guest without systemd has
	// started when its agent answers.
	const settle = `if [ -d /run/systemd/system ]; then systemctl start ` + consoleUnit +
		`; systemctl is-system-running --wait >/dev/null; udevadm settle --timeout=600; fi; sync`
	if _, err := guest.NewAgent(conn).Run(ctx, guest.Command{Argv: []string{"/bin/sh", "-c", settle}}); err != nil {
		return nil, err
	}
	q, err := qapi.DialQMP(ctx, h.path(socketQMP))
	if err != nil {
		return nil, err
	}
	defer q.Close()
	if err := q.Call(ctx, "migrate-set-capabilities", ignoreShared, nil); err != nil {
		return nil, fmt.Errorf("this QEMU cannot leave shared memory out of a saved state: %w", err)
	}
	// The machine is not stopped first: migration stops it at its end and notes that it was
	// running, so that clones run by themselves.
	path := h.path("state.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	type result struct {
		state []byte
		err   error
	}
	got := make(chan result, 1)
	go func() {
		nc, err := l.Accept()
		if err != nil {
			got <- result{nil, err}
			return
		}
		defer nc.Close()
		b, err := io.ReadAll(nc)
		got <- result{b, err}
	}()
	if err := q.Call(ctx, "migrate", map[string]any{"uri": "unix:" + path}, nil); err != nil {
		return nil, fmt.Errorf("save the machine's state: %w", err)
	}
	if err := awaitMigration(ctx, q); err != nil {
		return nil, fmt.Errorf("save the machine's state: %w", err)
	}
	r := <-got
	return r.state, r.err
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

// pipeState returns the read end of a pipe that the state flows through. A pipe, since QEMU takes
// migration from a plain file by descriptor only in some versions.
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

// resume makes a QEMU that was started with -incoming defer take the state that waits in its pipe; it then runs.
func resume(ctx context.Context, dir string) error {
	q, err := qapi.DialQMP(ctx, filepath.Join(dir, socketQMP))
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
