package qemu

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rackless/rackless/internal/golden"
	"github.com/rackless/rackless/rdma/connectx"
	"github.com/rackless/rackless/vm"
	"github.com/rackless/rackless/vm/image"
)

// TestMain lets the test binary be another rackless; see TestTwoProcessesWaitForEachOther.
func TestMain(m *testing.M) {
	if len(os.Args) == 5 && os.Args[1] == "prepare" {
		d := &Driver{Binary: os.Args[2], Version: "0", Accel: "tcg", Image: &image.Image{Dir: os.Args[3],
			Kernel: "vmlinux", Initramfs: "initramfs.cpio"}, Cache: os.Args[4]}
		if err := d.Prepare(context.Background(), shape(""), func(step string) { fmt.Println(step) }); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// limited ends a hanging test.
func limited(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), 30*time.Minute, errors.New("the test's own limit"))
	t.Cleanup(cancel)
	return ctx
}

func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "rlq")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func shape(dir string) Spec {
	return Spec{Lab: "t", Name: "vm00", Dir: dir, CPUs: 1, Memory: 256 << 20,
		NICs: []NIC{{MAC: "52:54:00:00:00:07"}}}
}

func findQEMU(t *testing.T) (path, version string) {
	t.Helper()
	path, version, err := vm.Find()
	if err == nil {
		return path, version
	}
	if os.Getenv("CI") != "" {
		t.Fatal(err)
	}
	t.Skip(err)
	return "", ""
}

func TestArguments(t *testing.T) {
	image := &image.Image{Dir: "/c/images/0123456789abcdef", Kernel: "vmlinux", Initramfs: "initramfs.cpio"}
	one := Spec{Lab: "pair", Name: "vm00", Dir: "/r/pair/vm00", CPUs: 1, Memory: 256 << 20,
		NICs: []NIC{{MAC: "52:54:00:aa:00:01", Socket: "/r/pair/p-vm00.sock"}}}
	two := one
	two.CPUs, two.Memory = 4, 2<<30
	two.NICs = append(slices.Clone(one.NICs), NIC{MAC: "52:54:00:aa:00:02", Socket: "/r/pair/p-vm00.1.sock"})
	unplugged := one
	unplugged.NICs = []NIC{{MAC: "52:54:00:00:00:01"}}
	comma := one
	comma.Dir, comma.NICs = "/r,x/pair/vm00", []NIC{{MAC: "52:54:00:aa:00:01", Socket: "/r,x/pair/p,,.sock"}}

	cards := one
	cards.Adapters = true
	cards.NICs = []NIC{{MAC: "52:54:00:aa:00:01", Adapter: "/r/pair/x-vm00.sock"},
		{MAC: "52:54:00:aa:00:02", Adapter: "/r/pair/x,vm00.1.sock"}}
	ports := cards
	ports.NICs = []NIC{{MAC: "52:54:00:00:00:01", Adapter: "/c/templates/t/x0.sock"},
		{MAC: "52:54:00:00:00:02", Adapter: "/c/templates/t/x1.sock"}}

	numa := numaSpec()
	numa.Lab, numa.Name, numa.Dir = "pair", "vm00", "/r/pair/vm00"

	disk := *image
	disk.Initramfs, disk.Disk = "initrd", "disk.qcow2"
	full := one
	full.Image, full.Memory = &disk, 512<<20
	empty := unplugged
	empty.Image, empty.Memory = &disk, 512<<20

	home := full
	home.Home = Home{Dir: "/r,x/pair/home.dir", Security: "mapped-xattr"}
	own := *image
	own.Name, own.Kernel, own.Initramfs, own.Disk = "own", "", "", "disk.qcow2"
	users := empty
	users.Image = &own

	arm := *image
	arm.Recipe.Arch = "arm64"

	for name, m := range map[string]machine{
		"full-home": {spec: home, accel: "tcg", image: &disk, ram: "/c/templates/t/ram",
			disk: "/r/pair/vm00/disk.qcow2"},
		"own-template": {spec: users, accel: "tcg", image: &own, ram: "/c/templates/t/ram", share: true,
			disk: "/c/templates/t/disk.qcow2"},
		"full-template": {spec: empty, accel: "tcg", image: &disk, ram: "/c/templates/t/ram", share: true,
			disk: "/c/templates/t/disk.qcow2"},
		"full-clone": {spec: full, accel: "tcg", image: &disk, ram: "/c/templates/t/ram",
			disk: "/r/pair/vm00/disk.qcow2"},
		"adapters-template": {spec: ports, accel: "tcg", image: image,
			blocks: []block{{256 << 20, true, "/c/templates/t/ram0"}}},
		"adapters-clone": {spec: cards, accel: "tcg", blocks: []block{{16 << 20, true, cards.sockets().SharedMemory(0)},
			{240 << 20, false, "/c/templates/t/ram1"}}},
		"numa-template": {spec: numa, accel: "tcg", image: image,
			blocks: []block{{512 << 20, true, "/c/templates/t/ram0"}, {512 << 20, true, "/c/templates/t/ram1"}}},
		"template": {spec: unplugged, accel: "tcg", image: image, ram: "/c/templates/t/ram", share: true},
		"trust-tsc": {spec: unplugged, accel: "tcg", image: image, ram: "/c/templates/t/ram", share: true,
			trustTSC: true},
		"clone":    {spec: one, accel: "tcg", ram: "/c/templates/t/ram"},
		"cold":     {spec: one, accel: "tcg", image: image},
		"two-nics": {spec: two, accel: "tcg", ram: "/c/templates/t/ram"},
		"arm64": {spec: unplugged, arch: "arm64", accel: "tcg", image: &arm,
			ram: "/c/templates/t/ram", share: true},
		"kvm":           {spec: one, accel: "kvm", image: image},
		"comma-in-path": {spec: comma, accel: "tcg", ram: "/c,x/ram"},
	} {
		t.Run(name, func(t *testing.T) {
			got := strings.Join(m.args(), "\n") + "\n"
			golden.Check(t, filepath.Join("testdata", "args", name+".txt"), got)
		})
	}
}

// A key with more than the guest sees would give each lab its own template.
func TestTemplateKey(t *testing.T) {
	d := func() *Driver { return &Driver{Version: "10.0.2", Accel: "tcg", Image: &image.Image{Key: "k"}} }
	base := d().templateKey(shape("/r"))
	for name, tt := range map[string]struct {
		change func(*Driver, *Spec)
		same   bool
	}{
		"the lab and the node": {func(_ *Driver, s *Spec) { s.Lab, s.Name, s.Dir = "other", "x", "/y" }, true},
		"MAC and switch port": {func(_ *Driver, s *Spec) {
			s.NICs[0] = NIC{MAC: "52:54:00:00:00:99", Socket: "/p"}
		}, true},
		"the place of things": {func(d *Driver, _ *Spec) {
			d.Cache, d.Binary, d.Image.Dir = "/a", "/b", "/c"
		}, true},
		"CPUs":                      {func(_ *Driver, s *Spec) { s.CPUs++ }, false},
		"memory":                    {func(_ *Driver, s *Spec) { s.Memory *= 2 }, false},
		"adapters in place of NICs": {func(_ *Driver, s *Spec) { s.Adapters = true }, false},
		"another adapter": {func(_ *Driver, s *Spec) {
			s.Adapters, s.NICs[0].Model = true, connectx.ConnectX5
		}, false},
		"NUMA nodes":   {func(_ *Driver, s *Spec) { s.Adapters, s.NUMANodes = true, 2 }, false},
		"one NIC more": {func(_ *Driver, s *Spec) { s.NICs = append(s.NICs, NIC{}) }, false},
		"a shared /home": {func(_ *Driver, s *Spec) {
			s.Home = Home{Dir: "/r/home.dir", Security: "mapped-xattr"}
		}, false},
		"QEMU":         {func(d *Driver, _ *Spec) { d.Version = "10.0.3" }, false},
		"image":        {func(d *Driver, _ *Spec) { d.Image.Key = "l" }, false},
		"architecture": {func(d *Driver, _ *Spec) { d.Image.Recipe.Arch = "arm64" }, false},
		"accelerator":  {func(d *Driver, _ *Spec) { d.Accel = "kvm" }, false},
		"less than a MiB, which QEMU is not given": {func(_ *Driver, s *Spec) { s.Memory++ }, false},
	} {
		t.Run(name, func(t *testing.T) {
			d, s := d(), shape("/r")
			tt.change(d, &s)
			if got := d.templateKey(s); (got == base) != tt.same {
				t.Errorf("key %s, before %s: same %v, want %v", got, base, got == base, tt.same)
			}
		})
	}
}

func fakeQEMU(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(shortDir(t), "qemu-system-x86_64")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestStartNamesWhatQEMUSaid(t *testing.T) {
	for name, tt := range map[string]struct{ binary, want string }{
		"one that fails without a word": {"/bin/false", "ended (exit status 1); its last words: (nothing)"},
		"one that says why": {
			fakeQEMU(t, "echo 'qemu: one' >&2; echo 'qemu: could not set up the thing' >&2; exit 3"),
			"ended (exit status 3); its last words: qemu: one | qemu: could not set up the thing",
		},
		"one that is no program": {"/nonexistent/qemu", "start /nonexistent/qemu: "},
	} {
		t.Run(name, func(t *testing.T) {
			dir := shortDir(t)
			d := &Driver{Binary: tt.binary, Accel: "tcg", Image: &image.Image{Dir: dir},
				Cache: filepath.Join(dir, "cache")}
			var notes []string
			if err := d.Prepare(limited(t), shape(""), func(s string) { notes = append(notes, s) }); err != nil {
				t.Errorf("prepare: %v, want a note: nodes may still be booted", err)
			}
			if got := strings.Join(notes, "\n"); !strings.Contains(got, tt.want) {
				t.Errorf("notes %q, want %q", got, tt.want)
			}
			left, err := os.ReadDir(d.Cache)
			if err != nil || len(left) != 1 || !strings.HasSuffix(left[0].Name(), ".lock") {
				t.Errorf("left in the cache: %v, %v, want a lock file alone", left, err)
			}
		})
	}
}

func brokenImage(t *testing.T, kernel []byte) *image.Image {
	t.Helper()
	dir := shortDir(t)
	for name, b := range map[string][]byte{"vmlinux": kernel, "initramfs.cpio": []byte("no archive")} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return &image.Image{Key: "broken", Dir: dir, Kernel: "vmlinux", Initramfs: "initramfs.cpio"}
}

// haltingKernel is the smallest that QEMU starts by its PVH note.
func haltingKernel() []byte {
	le := binary.LittleEndian
	const base, code = 0x100000, 0x200
	b := make([]byte, code+16)
	copy(b, "\x7fELF\x01\x01\x01")                    // 32 bit, little endian
	le.PutUint16(b[16:], 2)                           // ET_EXEC
	le.PutUint16(b[18:], 3)                           // EM_386
	le.PutUint32(b[20:], 1)                           // EV_CURRENT
	le.PutUint32(b[24:], base)                        // entry
	le.PutUint32(b[28:], 52)                          // program headers follow this one
	for i, v := range []uint16{52, 32, 2, 40, 0, 0} { // sizes and counts
		le.PutUint16(b[40+2*i:], v)
	}
	put := func(at int, words ...uint32) {
		for i, w := range words {
			le.PutUint32(b[at+4*i:], w)
		}
	}
	put(52, 1, code, base, base, 16, 16, 5, 4) // PT_LOAD
	put(84, 4, 0x100, 0, 0, 20, 20, 4, 4)      // PT_NOTE
	put(0x100, 4, 4, 18)                       // XEN_ELFNOTE_PHYS32_ENTRY (QEMU's docs/specs)
	copy(b[0x10c:], "Xen\x00")
	put(0x110, base)
	copy(b[code:], "\xeb\xfe") // jmp .
	return b
}

func TestNodeThatCannotBoot(t *testing.T) {
	bin, version := findQEMU(t)
	t.Run("a kernel that hangs ends at the limit, which is named", func(t *testing.T) {
		cache := shortDir(t)
		d := &Driver{Binary: bin, Version: version, Accel: "tcg", Image: brokenImage(t, haltingKernel()), Cache: cache,
			bootLimit: time.Second}
		var notes []string
		if err := d.Prepare(limited(t), shape(""), func(s string) { notes = append(notes, s) }); err != nil {
			t.Fatal(err)
		}
		const want = "no template (the template did not boot within 1s; its console ended: (nothing)): nodes will " +
			"be booted"
		if len(notes) != 2 || notes[1] != want {
			t.Errorf("notes %q, want %q", notes, want)
		}
		if p, err := vm.Strays(cache); err != nil || len(p) != 0 {
			t.Errorf("left over: %v, %v", p, err)
		}
		dir := shortDir(t)
		n, err := d.Start(limited(t), shape(dir))
		if err != nil {
			t.Fatal(err)
		}
		defer n.Setup.Close()
		if n.Cloned || !strings.HasPrefix(n.ColdReason, "the template did not boot within 1s") {
			t.Errorf("cloned %v, reason %q", n.Cloned, n.ColdReason)
		}
		if st, err := vm.QueryState(limited(t), n.Process, dir); err != nil || st != vm.Running {
			t.Errorf("state %v, %v", st, err)
		}
		if p, err := vm.Strays(dir); err != nil || !slices.Equal(p, []vm.Process{n.Process}) {
			t.Errorf("processes of %s: %v, %v, want %v", dir, p, err, n.Process)
		}
		if p, err := vm.Strays(dir[:len(dir)-1]); err != nil || len(p) != 0 {
			t.Errorf("processes of a directory whose name this one begins with: %v, %v", p, err)
		}
		if err := n.Process.Signal(19 /* SIGSTOP */); err != nil {
			t.Error(err)
		}
		if st, err := vm.QueryState(limited(t), n.Process, dir); err != nil || st != vm.Running {
			t.Errorf("state of one that does not answer: %v, %v", st, err)
		}
		if err := n.Process.Kill(limited(t)); err != nil {
			t.Error(err)
		}
		if st, err := vm.QueryState(limited(t), n.Process, dir); err != nil || st != vm.Dead {
			t.Errorf("state after: %v, %v", st, err)
		}
		if err := n.Process.Kill(limited(t)); err != nil {
			t.Errorf("stop one that is gone: %v", err)
		}
	})
	t.Run("a kernel that is none is QEMU's to refuse", func(t *testing.T) {
		d := &Driver{Binary: bin, Version: version, Accel: "tcg",
			Image: brokenImage(t, bytes.Repeat([]byte("x"), 4096)), Cache: shortDir(t), bootLimit: 10 * time.Second}
		var notes []string
		if err := d.Prepare(limited(t), shape(""), func(s string) { notes = append(notes, s) }); err != nil {
			t.Fatal(err)
		}
		if got := notes[len(notes)-1]; !strings.Contains(got,
			"QEMU for the template ended (exit status 1); its last words: ") {
			t.Errorf("note %q", got)
		}
	})
	t.Run("who is interrupted gets that for an error, and nothing is left", func(t *testing.T) {
		cache := shortDir(t)
		d := &Driver{Binary: bin, Version: version, Accel: "tcg", Image: brokenImage(t, haltingKernel()), Cache: cache}
		ctx, cancel := context.WithCancelCause(limited(t))
		time.AfterFunc(300*time.Millisecond, func() { cancel(errors.New("interrupted")) })
		if err := d.Prepare(ctx, shape(""), func(string) {}); err == nil || err.Error() != "interrupted" {
			t.Errorf("got %v", err)
		}
		if p, err := vm.Strays(cache); err != nil || len(p) != 0 {
			t.Errorf("processes: %v, %v", p, err)
		}
		if left, err := filepath.Glob(filepath.Join(cache, ".t*")); err != nil || len(left) != 0 {
			t.Errorf("left: %v, %v", left, err)
		}
	})
}

// One waits for the other's template. A fake emulator fails and counts; a real template takes seconds.
func TestTwoProcessesWaitForEachOther(t *testing.T) {
	dir := shortDir(t)
	log := filepath.Join(dir, "log")
	bin := fakeQEMU(t, "echo begin >>"+log+"; sleep 0.2; echo end >>"+log+"; exit 1")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			if out, err := exec.CommandContext(limited(t), self, "prepare", bin, dir,
				filepath.Join(dir, "cache")).CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	wg.Wait()
	got, err := os.ReadFile(log)
	if want := strings.Repeat("begin\nend\n", 3); err != nil || string(got) != want {
		t.Errorf("got %q, %v, want one after the other", got, err)
	}
}
