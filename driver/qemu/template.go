package qemu

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/rackless/rackless/guest"
	"github.com/rackless/rackless/qapi"
)

// bootLimit bounds the boot of a template or a cold node until its agent answers. By hand it takes
// 4 s under TCG on an idle core.
const bootLimit = 180 * time.Second

// templateFormat is raised when templates made by an older rackless must not be used.
const templateFormat = 2

// A template is a stopped machine on disk: its memory as a file that clones map, and the state of its devices.
type template struct {
	dir   string
	state []byte // what QEMU wrote as migration stream, less than 1 MB
}

// templateInfo is the manifest of a template. The sums of its files are known only to rackless, so
// a file that was cut short or written to is noticed by size, time and, for the small state,
// content.
type templateInfo struct {
	Key         string    `json:"key"`
	Image       string    `json:"image"`
	QEMU        string    `json:"qemu"`
	Accelerator string    `json:"accelerator"`
	CPUs        int       `json:"cpus"`
	MemoryBytes int64     `json:"memory_bytes"`
	NICs        int       `json:"nics"`
	BootSeconds float64   `json:"boot_seconds"`
	Made        time.Time `json:"made"`
	RAMBlocks   int64     `json:"ram_blocks"`   // 512-byte blocks that the memory file occupies
	RAMModified int64     `json:"ram_modified"` // its modification time, ns since 1970
	StateSHA256 string    `json:"state_sha256"`
}

func (t *template) ramPath() string { return filepath.Join(t.dir, "ram") }

// templateKey names the template that serves a shape: a hash of everything the guest can see.
func (d *Driver) templateKey(s Spec) string {
	version := d.Version
	m := machine{spec: Spec{CPUs: s.CPUs, Memory: s.Memory, NICs: make([]NIC, len(s.NICs))},
		accel: d.Accel, ram: "ram"}
	sum := sha256.Sum256([]byte(strings.Join(append(m.args(),
		fmt.Sprint(templateFormat), d.Image.Key, guest.KernelArgs, version, hostCPU(), fmt.Sprint(d.trustTSC())),
		"\x00")))
	return hex.EncodeToString(sum[:8])
}

// hostCPU returns what a template depends on of the host's CPU: under KVM the guest sees it, and
// under TCG, too, its TSC is the host's, whose frequency the template's kernel has measured.
func hostCPU() string {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	var keep []string
	for line := range strings.Lines(string(b)) {
		if k, _, _ := strings.Cut(line, "\t"); k == "model name" || k == "flags" || k == "microcode" ||
			k == "stepping" {
			keep = append(keep, line)
		}
		if strings.TrimSpace(line) == "" {
			break // the first processor stands for all
		}
	}
	return strings.Join(keep, "")
}

// Prepare opens the template for the shape of s, making it if the cache has none or a damaged one.
// Where none can be made, nodes are booted instead and say why: that is not an error here.
func (d *Driver) Prepare(ctx context.Context, s Spec, progress func(string)) error {
	key := d.templateKey(s)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.templates == nil {
		d.templates, d.reason = make(map[string]*template), make(map[string]string)
	}
	if d.templates[key] != nil || d.reason[key] != "" {
		return nil
	}
	if d.Cold {
		d.reason[key] = "asked to boot every node"
		return nil
	}
	t, err := d.template(ctx, key, s, progress)
	switch {
	case err == nil:
		d.templates[key] = t
	case ctx.Err() != nil:
		return context.Cause(ctx)
	default:
		if isNoSpace(err) {
			err = fmt.Errorf("%w; free space there or set RACKLESS_CACHE", err)
		}
		d.reason[key] = err.Error()
		progress(fmt.Sprintf("no template (%v): nodes will be booted", err))
	}
	return nil
}

// template opens or makes the template with the key. Two processes that want the same one at once make it once.
func (d *Driver) template(ctx context.Context, key string, s Spec, progress func(string)) (*template, error) {
	dir := filepath.Join(d.Cache, key)
	t, err := openTemplate(dir, key)
	if err == nil {
		return t, nil
	}
	if err := os.MkdirAll(d.Cache, 0o755); err != nil {
		return nil, err
	}
	unlock, err := lockFile(ctx, dir+".lock")
	if err != nil {
		return nil, err
	}
	defer unlock()
	if t, err = openTemplate(dir, key); err == nil { // another process made it while this one waited
		return t, nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		progress(fmt.Sprintf("the cached template is damaged (%v): making it again", err))
	}
	progress(fmt.Sprintf("boot the template (%d CPU, %d MiB, %s)", s.CPUs, s.Memory>>20, d.Accel))
	if d.trustTSC() {
		for range clockAttempts {
			t, err = d.makeTemplate(ctx, dir, key, s, true)
			if !errors.Is(err, errClock) {
				return t, err
			}
			progress(fmt.Sprintf("%v: boot it again", err))
		}
		progress("boot it with a kernel that judges its clock itself")
	}
	return d.makeTemplate(ctx, dir, key, s, false)
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
	t.state, err = os.ReadFile(filepath.Join(dir, "state"))
	if err != nil {
		return nil, fmt.Errorf("incomplete: %v", err)
	}
	if sum := sha256.Sum256(t.state); info.Key != key || hex.EncodeToString(sum[:]) != info.StateSHA256 {
		return nil, errors.New("state is not what was written")
	}
	fi, err := os.Stat(t.ramPath())
	if err != nil {
		return nil, fmt.Errorf("incomplete: %v", err)
	}
	if fi.Size() != info.MemoryBytes || fi.ModTime().UnixNano() != info.RAMModified || blocks(fi) < info.RAMBlocks {
		return nil, errors.New("ram is not what was written")
	}
	return t, nil
}

// workPrefix begins the name of the directory in which a template is made; its key follows.
const workPrefix = ".t"

// sweep removes what processes that were killed have left of templates that they made. The lock of
// a template tells whether one is at work.
func sweep(cache string) error {
	left, err := os.ReadDir(cache)
	if err != nil {
		return err
	}
	for _, d := range left {
		key, ok := strings.CutPrefix(d.Name(), workPrefix)
		if !ok || !d.IsDir() {
			continue
		}
		unlock, err := tryLockFile(filepath.Join(cache, key+".lock"))
		if errors.Is(err, errLocked) {
			continue
		}
		if err != nil {
			return err
		}
		err = os.RemoveAll(filepath.Join(cache, d.Name()))
		unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

func blocks(fi os.FileInfo) int64 {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return st.Blocks
	}
	return 0
}

// makeTemplate boots a machine of the shape, stops it once its agent answers, and keeps it in dir.
// With trustTSC its kernel does not doubt its TSC, and errClock says that it should have. The
// caller holds the lock.
func (d *Driver) makeTemplate(ctx context.Context, dir, key string, s Spec, trustTSC bool) (_ *template,
	err error) {
	runtime.LockOSThread() // Pdeathsig is bound to the thread that starts the child
	defer runtime.UnlockOSThread()
	if err := sweep(d.Cache); err != nil {
		return nil, err
	}
	work := filepath.Join(d.Cache, workPrefix+key)
	if err := os.RemoveAll(work); err != nil { // whoever left it there is dead: this process has the lock
		return nil, err
	}
	if err := os.Mkdir(work, 0o700); err != nil {
		return nil, err
	}
	defer os.RemoveAll(work)

	began := time.Now()
	shape := Spec{Lab: "template", Name: key, Dir: work, CPUs: s.CPUs, Memory: s.Memory}
	for i := range s.NICs {
		shape.NICs = append(shape.NICs, NIC{MAC: fmt.Sprintf("52:54:00:00:00:%02x", i+1)})
	}
	ram := filepath.Join(work, "ram")
	c, err := d.start(machine{spec: shape, accel: d.Accel, image: d.Image, ram: ram, share: true, trustTSC: trustTSC,
		moreArgs: d.moreArgs}, nil, true)
	if err != nil {
		return nil, err
	}
	defer c.kill()
	ctx, cancel := c.context(ctx, "the template")
	defer cancel()
	limit := d.bootLimit
	if limit == 0 {
		limit = bootLimit
	}
	ctx, cancelTime := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the template did not boot within %v", limit))
	defer cancelTime()
	defer func() {
		if err != nil && !errors.Is(err, errClock) { // the console goes with the directory
			err = fmt.Errorf("%w; its console ended: %s", err, lastLines(filepath.Join(work, "console.log")))
		}
	}()

	agent, release, err := settle(ctx, work)
	if err != nil {
		return nil, c.explain(ctx, "the template", err)
	}
	defer release()
	if trustTSC {
		if err := awaitClock(ctx, agent); err != nil {
			return nil, c.explain(ctx, "the template", err)
		}
	}
	boot := time.Since(began)
	state, err := d.save(ctx, socketPath(work, "qmp"))
	if err != nil {
		return nil, err
	}
	c.kill()

	fi, err := os.Stat(ram)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(state)
	info := templateInfo{
		Key: key, Image: d.Image.Key, QEMU: d.Version, Accelerator: d.Accel, CPUs: s.CPUs, MemoryBytes: s.Memory,
		NICs:        len(s.NICs),
		BootSeconds: boot.Seconds(), Made: time.Now().UTC(), RAMBlocks: blocks(fi),
		RAMModified: fi.ModTime().UnixNano(),
		StateSHA256: hex.EncodeToString(sum[:]),
	}
	b, err := json.MarshalIndent(info, "", "  ")
	if err != nil {
		return nil, err
	}
	for _, f := range []string{"qmp.sock", "ga.sock", "setup.sock", "console.sock", "qemu.log"} {
		if err := os.Remove(filepath.Join(work, f)); err != nil {
			return nil, err
		}
	}
	if err := os.WriteFile(filepath.Join(work, "state"), state, 0o600); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(work, "template.json"), b, 0o600); err != nil {
		return nil, err
	}
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	if err := os.Rename(work, dir); err != nil {
		return nil, err
	}
	return &template{dir: dir, state: state}, nil
}

// settle waits until the guest has nothing left to do that every clone would otherwise have to do
// again: its agent answers, and the programs that configure a node wait for their input. The
// connections to both stay until release: what a guest does when they close (its agent then polls
// ten times a second) is not what clones should wake up in.
func settle(ctx context.Context, dir string) (a *guest.Agent, release func(), err error) {
	nc, err := net.Dial("unix", socketPath(dir, "setup"))
	if err != nil {
		return nil, nil, err
	}
	setup := guest.NewSetup(nc)
	agent, err := qapi.DialAgent(ctx, socketPath(dir, "ga"))
	if err != nil {
		return nil, nil, errors.Join(err, setup.Close())
	}
	release = func() {
		setup.Close()
		agent.Close()
	}
	if err := setup.Ready(ctx); err != nil {
		release()
		return nil, nil, err
	}
	return guest.NewAgent(agent), release, nil
}

// save stops the machine and returns the state of its devices; its memory stays in the shared file.
func (d *Driver) save(ctx context.Context, qmp string) ([]byte, error) {
	q, err := qapi.DialQMP(ctx, qmp)
	if err != nil {
		return nil, err
	}
	defer q.Close()
	if err := q.Call(ctx, "migrate-set-capabilities", ignoreShared, nil); err != nil {
		return nil, fmt.Errorf("this QEMU cannot leave shared memory out of a saved state: %w", err)
	}
	// The machine is not stopped first: migration stops it at its end and notes that it was
	// running, so that clones run by themselves.
	dir := filepath.Dir(qmp)
	l, err := netListen(filepath.Join(dir, "state.sock"))
	if err != nil {
		return nil, err
	}
	defer l.Close()
	got := make(chan result, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			got <- result{nil, err}
			return
		}
		got <- <-readAll(conn)
	}()
	if err := q.Call(ctx, "migrate", map[string]any{"uri": "unix:" + filepath.Join(dir, "state.sock")},
		nil); err != nil {
		return nil, err
	}
	if err := awaitMigration(ctx, q); err != nil {
		return nil, fmt.Errorf("save the machine's state: %w", err)
	}
	r := <-got
	return r.data, r.err
}
