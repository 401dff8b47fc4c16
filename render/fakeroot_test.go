package render

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// A fakeRoot is a directory that scripts take for the machine's root, with programs of its own in
// front of the real ones.
type fakeRoot struct {
	t   *testing.T
	dir string
	bin string
}

func newFakeRoot(t *testing.T) *fakeRoot {
	t.Helper()
	findProgram(t, "sh")
	r := &fakeRoot{t: t, dir: t.TempDir(), bin: t.TempDir()}
	// Scripts wait for the bus a hundred times: three seconds in all, which it needs on a busy machine.
	r.program("sleep", "exec /bin/sleep 0.03")
	r.program("modprobe", `echo "modprobe $*" >>"$RACKLESS_ROOT/log"`)
	return r
}

// program makes a program that the scripts find before any of its name.
func (r *fakeRoot) program(name, body string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.bin, name), []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
		r.t.Fatal(err)
	}
}

func (r *fakeRoot) path(name string) string { return filepath.Join(r.dir, filepath.FromSlash(name)) }

func (r *fakeRoot) write(name, content string) {
	r.t.Helper()
	if err := os.MkdirAll(filepath.Dir(r.path(name)), 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(r.path(name), []byte(content+"\n"), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

func (r *fakeRoot) link(name, target string) {
	r.t.Helper()
	if err := os.MkdirAll(filepath.Dir(r.path(name)), 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Symlink(target, r.path(name)); err != nil {
		r.t.Fatal(err)
	}
}

// read returns a file without its line break, "" where it is not there.
func (r *fakeRoot) read(name string) string {
	data, err := os.ReadFile(r.path(name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		r.t.Fatal(err)
	}
	return strings.TrimSuffix(string(data), "\n")
}

// open has a process with a device file open.
func (r *fakeRoot) open(pid, file string) { r.link("proc/"+pid+"/fd/3", r.path(file)) }

// base returns the last part of what a link leads to, "" where there is none.
func (r *fakeRoot) base(name string) string {
	target, err := os.Readlink(r.path(name))
	if err != nil {
		return ""
	}
	return filepath.Base(target)
}

// want compares files with what should be in them.
func (r *fakeRoot) want(files map[string]string) {
	r.t.Helper()
	for name, want := range files {
		if got := r.read(name); got != want {
			r.t.Errorf("%s has %q; want %q", name, got, want)
		}
	}
}

// run runs a script and returns what it printed, both streams together.
func (r *fakeRoot) run(script []byte, args ...string) (string, error) {
	r.t.Helper()
	dir := r.path("opt")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		r.t.Fatal(err)
	}
	path := filepath.Join(dir, "script.sh")
	if err := os.WriteFile(path, script, 0o755); err != nil {
		r.t.Fatal(err)
	}
	cmd := exec.Command("sh", append([]string{path}, args...)...)
	// No sbin: an update-grub that is installed on this machine is not to be found where a test has none.
	cmd.Env = append(os.Environ(), "RACKLESS_ROOT="+r.dir, "PATH="+r.bin+":/usr/bin:/bin")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// mustRun runs a script that has to succeed.
func (r *fakeRoot) mustRun(script []byte, args ...string) string {
	r.t.Helper()
	out, err := r.run(script, args...)
	if err != nil {
		r.t.Fatalf("%v: %v\n%s", args, err, out)
	}
	return out
}

// mustFail runs a script that has to fail with a message.
func (r *fakeRoot) mustFail(script []byte, message string, args ...string) {
	r.t.Helper()
	out, err := r.run(script, args...)
	if err == nil || !strings.Contains(out, message) {
		r.t.Fatalf("%v: error %v; want one with %q:\n%s", args, err, message, out)
	}
}

// A pciBus does for a fakeRoot what the kernel does when somebody writes to the files of the PCI bus.
type pciBus struct {
	r *fakeRoot
	// home is the driver of each function that takes it where no override says otherwise.
	home map[string]string
	stop chan struct{}
	done sync.WaitGroup
}

const busDir = "sys/bus/pci/"

// startBus starts to look after the bus until the end of the test.
func startBus(r *fakeRoot) *pciBus {
	b := &pciBus{r: r, home: map[string]string{}, stop: make(chan struct{})}
	for _, d := range []string{"vfio-pci", "mlx5_core", "nvidia", "snd_hda_intel"} {
		r.write(busDir+"drivers/"+d+"/unbind", "")
	}
	r.write(busDir+"drivers_probe", "")
	b.done.Add(1)
	go func() {
		defer b.done.Done()
		for {
			select {
			case <-b.stop:
				return
			case <-time.After(500 * time.Microsecond):
				b.step()
			}
		}
	}()
	r.t.Cleanup(func() { close(b.stop); b.done.Wait() })
	return b
}

// take empties a file and returns the words that were in it.
func (b *pciBus) take(name string) string {
	data, err := os.ReadFile(b.r.path(name))
	word := strings.TrimSpace(string(data))
	if err != nil || word == "" || !strings.HasSuffix(string(data), "\n") {
		return ""
	}
	_ = os.WriteFile(b.r.path(name), nil, 0o644)
	return word
}

func (b *pciBus) step() {
	drivers, _ := os.ReadDir(b.r.path(busDir + "drivers"))
	for _, d := range drivers {
		if a := b.take(busDir + "drivers/" + d.Name() + "/unbind"); a != "" {
			_ = os.Remove(b.r.path(busDir + "devices/" + a + "/driver"))
		}
	}
	if a := b.take(busDir + "drivers_probe"); a != "" {
		b.probe(a)
	}
	devices, _ := os.ReadDir(b.r.path(busDir + "devices"))
	for _, d := range devices {
		b.functions(d.Name())
	}
}

// probe binds a function without a driver.
func (b *pciBus) probe(a string) {
	dir := b.r.path(busDir + "devices/" + a)
	driver := b.home[a]
	if o, err := os.ReadFile(filepath.Join(dir, "driver_override")); err == nil && strings.TrimSpace(string(o)) != "" {
		driver = strings.TrimSpace(string(o))
	}
	if driver == "" {
		return
	}
	if os.Symlink("../../drivers/"+driver, filepath.Join(dir, "driver")) == nil && driver == "vfio-pci" {
		group, _ := os.Readlink(filepath.Join(dir, "iommu_group"))
		_ = os.MkdirAll(b.r.path("dev/vfio"), 0o755)
		_ = os.WriteFile(b.r.path("dev/vfio/"+filepath.Base(group)), nil, 0o644)
	}
}

// functions makes or removes virtual functions.
func (b *pciBus) functions(pf string) {
	dir := b.r.path(busDir + "devices/" + pf)
	data, err := os.ReadFile(filepath.Join(dir, "sriov_numvfs"))
	if err != nil || !strings.HasSuffix(string(data), "\n") {
		return
	}
	count := int(strings.TrimSpace(string(data))[0] - '0')
	for i := range 9 {
		vf := pf[:len(pf)-1] + string(rune('2'+i))
		link := filepath.Join(dir, "virtfn"+string(rune('0'+i)))
		_, err := os.Lstat(link)
		switch own := b.r.path(busDir + "devices/" + vf); {
		case i < count && err != nil:
			_ = os.MkdirAll(own, 0o755)
			_ = os.WriteFile(filepath.Join(own, "driver_override"), nil, 0o644)
			_ = os.Symlink("../../../../kernel/iommu_groups/9"+string(rune('0'+i)), filepath.Join(own, "iommu_group"))
			_ = os.Symlink("../"+vf, link)
		case i >= count && err == nil:
			_ = os.Remove(link)
			_ = os.RemoveAll(own)
		}
	}
}

// add puts a function on the bus, in an IOMMU group, with its driver.
func (b *pciBus) add(a, group, vendor, device, class, driver string) {
	r, dir := b.r, busDir+"devices/"+a+"/"
	r.write(dir+"vendor", vendor)
	r.write(dir+"device", device)
	r.write(dir+"class", class)
	r.write(dir+"driver_override", "(null)")
	r.write(dir+"modalias", "pci:v"+a)
	r.link(dir+"iommu_group", "../../../../kernel/iommu_groups/"+group)
	r.write("sys/kernel/iommu_groups/"+group+"/devices/"+a, "")
	if driver != "" {
		b.home[a] = driver
		r.link(dir+"driver", "../../drivers/"+driver)
	}
}

func (b *pciBus) driver(a string) string { return b.r.base(busDir + "devices/" + a + "/driver") }
