// Package libvirttest starts a private libvirtd for tests, without systemd, removed however the test ends.
package libvirttest

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// Programs are needed by Start, with their Debian packages.
var Programs = map[string]string{
	"libvirtd": "libvirt-daemon and libvirt-daemon-driver-qemu", "virsh": "libvirt-clients",
	"qemu-system-x86_64": "qemu-system-x86",
}

// nobody is the daemon's user under root: as root, libvirtd would use the system's own directories.
const nobody = 65534

// startLimit is far above the usual 0.2 s.
const startLimit = 30 * time.Second

// A Daemon is a libvirtd in its own session. Its files, sockets and domains go with its directory.
type Daemon struct {
	Dir string
	URI string
	// Listens is an additional TCP address set by prepare.
	Listens string

	env    []string
	user   *syscall.Credential // nil: the test's user
	guard  *exec.Cmd
	onStop []func() // called by Stop
	hold   io.Closer
	exited chan struct{} // closed when libvirtd has ended
	log    bytes.Buffer  // read only after its end
}

// guardScript waits until its input is closed, by Stop or a killed test. Then it ends the daemon $2 in directory $1,
// and the domains and the logging daemon, which would outlive it.
//
//go:embed guard.sh
var guardScript string

// Start starts a daemon. Programs must be installed.
func Start() (*Daemon, error) { return StartWith(nil) }

// StartWith starts a daemon with the arguments of prepare, which first writes their files, and may set URI, the address
// for clients, and Listens. Then the daemon answers at all addresses.
func StartWith(prepare func(d *Daemon) (args []string, err error)) (d *Daemon, err error) {
	dir, err := os.MkdirTemp("", "rl-libvirt-") // socket paths have at most 107 bytes
	if err != nil {
		return nil, err
	}
	socket := filepath.Join(dir, "run", "libvirt", "libvirt-sock")
	d = &Daemon{
		Dir: dir, URI: "qemu+unix:///session?socket=" + socket,
		env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "LC_ALL=C"}, exited: make(chan struct{}),
	}
	for variable, name := range map[string]string{"XDG_RUNTIME_DIR": "run", "XDG_CONFIG_HOME": "config",
		"XDG_CACHE_HOME": "cache", "XDG_DATA_HOME": "data"} {
		d.env = append(d.env, variable+"="+filepath.Join(dir, name))
	}
	args := []string{"--timeout", "30"} // seconds without a client
	if prepare != nil {
		more, err := prepare(d)
		if err != nil {
			return nil, errors.Join(err, os.RemoveAll(dir))
		}
		args = append(args, more...)
	}
	if os.Geteuid() == 0 {
		d.user = &syscall.Credential{Uid: nobody, Gid: nobody}
		if info, err := os.Stat("/dev/kvm"); err == nil {
			d.user.Groups = []uint32{info.Sys().(*syscall.Stat_t).Gid}
		}
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			return errors.Join(err, os.Chown(path, nobody, nobody))
		})
		if err != nil {
			return nil, errors.Join(err, os.RemoveAll(dir))
		}
	}
	c := d.Command(context.Background(), "libvirtd", args...)
	c.Stdout, c.Stderr = &d.log, &d.log
	if err := c.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	go func() {
		_ = c.Wait() // its log says more
		close(d.exited)
	}()
	// A killed test cannot clean up.
	d.guard = exec.Command("sh", "-c", guardScript, "sh", dir, fmt.Sprint(c.Process.Pid))
	d.guard.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // against Ctrl-C
	hold, err := d.guard.StdinPipe()
	if err == nil {
		err = d.guard.Start()
	}
	if err != nil {
		_ = c.Process.Kill()
		<-d.exited
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	d.hold = hold
	deadline := time.After(startLimit)
	for {
		if answers("unix", socket) && (d.Listens == "" || answers("tcp", d.Listens)) {
			return d, nil
		}
		select {
		case <-d.exited:
			return nil, errors.Join(fmt.Errorf("libvirtd ended: %s", d.log.Bytes()), d.Stop())
		case <-deadline:
			return nil, errors.Join(fmt.Errorf("libvirtd does not answer after %v", startLimit), d.Stop())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func answers(network, address string) bool {
	c, err := net.Dial(network, address)
	if err == nil {
		_ = c.Close()
	}
	return err == nil
}

// OnStop makes Stop call f first, to end things that the caller started.
func (d *Daemon) OnStop(f func()) { d.onStop = append(d.onStop, f) }

// Stop ends the daemon with its domains and directory.
func (d *Daemon) Stop() error {
	for _, f := range d.onStop {
		f()
	}
	d.hold.Close()
	_ = d.guard.Wait() // its last command may have nothing to do
	<-d.exited
	if _, err := os.Stat(d.Dir); err == nil {
		return fmt.Errorf("%s is left", d.Dir)
	}
	return nil
}

// Command runs as the daemon's user.
func (d *Daemon) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, name, args...)
	c.Env, c.Dir = d.env, d.Dir
	c.SysProcAttr = &syscall.SysProcAttr{Credential: d.user}
	return c
}

const virshLimit = time.Minute

// Virsh is independent of the package under test.
func (d *Daemon) Virsh(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), virshLimit)
	defer cancel()
	c := d.Command(ctx, "virsh", append([]string{"--quiet", "-c", d.URI}, args...)...)
	var out, complaint bytes.Buffer
	c.Stdout, c.Stderr = &out, &complaint
	if err := c.Run(); err != nil {
		return "", fmt.Errorf("virsh %q: %w: %s", args, err, bytes.TrimSpace(complaint.Bytes()))
	}
	return out.String(), nil
}
