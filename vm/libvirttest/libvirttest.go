// Package libvirttest starts a libvirtd for tests: private, without systemd, and removed when the test ends, however it
// ends.
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

// Programs are what Start needs, by name, with Debian's packages of them.
var Programs = map[string]string{
	"libvirtd": "libvirt-daemon and libvirt-daemon-driver-qemu", "virsh": "libvirt-clients",
	"qemu-system-x86_64": "qemu-system-x86",
}

// nobody is the user that the daemon runs as where the test is root's: as root it would take the
// system's own directories whatever it is told.
const nobody = 65534

// startLimit bounds the time until the daemon listens. By hand it takes 0.2 s.
const startLimit = 30 * time.Second

// A Daemon is a libvirtd of a session of its own: its files, its sockets and its domains are in a
// directory that goes with it.
type Daemon struct {
	Dir string
	URI string
	// Listens is a TCP address that the daemon is to listen at as well, set by prepare; "" for none.
	Listens string

	env    []string
	user   *syscall.Credential // nil: whoever runs the test
	guard  *exec.Cmd
	onStop []func()      // what else there is to end
	hold   io.Closer     // while it is open, the guard waits
	exited chan struct{} // closed when libvirtd has ended
	log    bytes.Buffer  // what it said; to be read once it has
}

// guardScript waits until nobody holds its input open, since Stop was called or the test was
// killed; then it ends the daemon, and the domains and the logging daemon that would outlive it. $1
// is the directory, $2 the daemon's process.
//
//go:embed guard.sh
var guardScript string

// Start starts a daemon. Programs must be there.
func Start() (*Daemon, error) { return StartWith(nil) }

// StartWith starts a daemon with the arguments that prepare returns, once it has written what they name
// into the daemon's directory. prepare may also set URI, by which clients then reach the daemon, and
// Listens. The daemon answers at all of them when StartWith returns.
func StartWith(prepare func(d *Daemon) (args []string, err error)) (d *Daemon, err error) {
	dir, err := os.MkdirTemp("", "rl-libvirt-") // short: paths of sockets end at 107 bytes
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
	args := []string{"--timeout", "30"} // it leaves when nobody has been connected for so many seconds
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
	// A process of its own: a test that is killed cannot clean up.
	d.guard = exec.Command("sh", "-c", guardScript, "sh", dir, fmt.Sprint(c.Process.Pid))
	d.guard.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C is for the test
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

// answers reports whether somebody listens at an address.
func answers(network, address string) bool {
	c, err := net.Dial(network, address)
	if err == nil {
		_ = c.Close()
	}
	return err == nil
}

// OnStop has Stop call f first, for what the caller has started beside the daemon.
func (d *Daemon) OnStop(f func()) { d.onStop = append(d.onStop, f) }

// Stop ends the daemon and its domains, and removes the directory.
func (d *Daemon) Stop() error {
	for _, f := range d.onStop {
		f()
	}
	d.hold.Close()
	_ = d.guard.Wait() // the last of its commands may find nothing to do
	<-d.exited
	if _, err := os.Stat(d.Dir); err == nil {
		return fmt.Errorf("%s is left", d.Dir)
	}
	return nil
}

// Command prepares a program to run as the daemon's user.
func (d *Daemon) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, name, args...)
	c.Env, c.Dir = d.env, d.Dir
	c.SysProcAttr = &syscall.SysProcAttr{Credential: d.user}
	return c
}

// virshLimit bounds one command of Virsh.
const virshLimit = time.Minute

// Virsh runs one command of virsh, without the package under test, and returns what it printed.
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
