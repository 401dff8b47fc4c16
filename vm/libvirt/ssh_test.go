package libvirt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/rackless/rackless/internal/sshtest"
	"github.com/rackless/rackless/vm/libvirttest"
)

var sshPrograms = map[string]string{"ssh": "openssh-client", "virt-ssh-helper": "libvirt-daemon"}

// startSSH starts a daemon that is reached by ssh, with a key in Dir. Its ssh server accepts only that key, runs
// commands as the daemon's user, and uses no settings of the machine.
func startSSH() (*libvirttest.Daemon, error) {
	var server *sshtest.Server
	d, err := libvirttest.StartWith(func(d *libvirttest.Daemon) (_ []string, err error) {
		server, err = sshtest.Start(d.Dir, func(ctx context.Context, command string) *exec.Cmd {
			return d.Command(ctx, "sh", "-c", command)
		})
		if err != nil {
			return nil, err
		}
		d.OnStop(func() { server.Close() })
		// The host's key must not enter anybody's known_hosts.
		d.URI = fmt.Sprintf("qemu+ssh://%s/session?keyfile=%s&known_hosts=/dev/null&no_verify=1&no_tty=1", server.Addr,
			server.Key)
		return nil, nil
	})
	if err != nil {
		if server != nil {
			server.Close()
		}
		return nil, err
	}
	// ssh refuses a key of another user.
	if err := os.Chown(server.Key, os.Geteuid(), os.Getegid()); err != nil {
		return nil, errors.Join(err, d.Stop())
	}
	return d, nil
}
