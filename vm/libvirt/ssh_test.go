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

// sshPrograms are what startSSH needs beyond libvirttest.Programs: a client runs ssh, and has it run
// virt-ssh-helper beside the daemon.
var sshPrograms = map[string]string{"ssh": "openssh-client", "virt-ssh-helper": "libvirt-daemon"}

// startSSH starts a daemon that is reached by ssh, at URI, as that of another machine is: by a key,
// which is in Dir. The server of ssh lets nobody in without it, and runs commands as the daemon's
// user; it takes no part of the machine's own.
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
		// The host's key is new each time, and nobody's known_hosts is to learn it.
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
	// The directory is the daemon's, and ssh refuses the key of another user.
	if err := os.Chown(server.Key, os.Geteuid(), os.Getegid()); err != nil {
		return nil, errors.Join(err, d.Stop())
	}
	return d, nil
}
