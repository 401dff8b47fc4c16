package libvirt

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/crypto/ssh"

	"github.com/rackless/rackless/internal/libvirttest"
)

// sshPrograms are what startSSH needs beyond libvirttest.Programs: a client runs ssh, and has it run
// virt-ssh-helper beside the daemon.
var sshPrograms = map[string]string{"ssh": "openssh-client", "virt-ssh-helper": "libvirt-daemon"}

// startSSH starts a daemon that is reached by ssh, at URI, as that of another machine is: by a key,
// which is in Dir. The server of ssh lets nobody in without it, and runs commands as the daemon's
// user; it takes no part of the machine's own.
func startSSH() (*libvirttest.Daemon, error) {
	var l net.Listener
	var config *ssh.ServerConfig
	d, err := libvirttest.StartWith(func(d *libvirttest.Daemon) ([]string, error) {
		host, _, err := newKey()
		if err != nil {
			return nil, err
		}
		client, private, err := newKey()
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(d.Dir, "key"), private, 0o600); err != nil {
			return nil, err
		}
		allowed := string(client.PublicKey().Marshal())
		config = &ssh.ServerConfig{PublicKeyCallback: func(_ ssh.ConnMetadata, k ssh.PublicKey) (*ssh.Permissions,
			error) {
			if string(k.Marshal()) != allowed {
				return nil, errors.New("not the key of this daemon")
			}
			return nil, nil
		}}
		config.AddHostKey(host)
		if l, err = net.Listen("tcp4", "127.0.0.1:0"); err != nil {
			return nil, err
		}
		d.OnStop(func() { l.Close() })
		// The host's key is new each time, and nobody's known_hosts is to learn it.
		d.URI = fmt.Sprintf("qemu+ssh://%s/session?keyfile=%s/key&known_hosts=/dev/null&no_verify=1&no_tty=1", l.Addr(),
			d.Dir)
		return nil, nil
	})
	if err != nil {
		if l != nil {
			l.Close()
		}
		return nil, err
	}
	// ssh refuses the key of another user.
	if err := os.Chown(filepath.Join(d.Dir, "key"), os.Geteuid(), os.Getegid()); err != nil {
		return nil, errors.Join(err, d.Stop())
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return // closed
			}
			go serveSSH(d, conn, config)
		}
	}()
	return d, nil
}

// newKey returns a key, and it as the file that ssh reads.
func newKey() (ssh.Signer, []byte, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		return nil, nil, err
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		return nil, nil, err
	}
	return signer, pem.EncodeToMemory(block), nil
}

// serveSSH answers one client until it leaves.
func serveSSH(d *libvirttest.Daemon, conn net.Conn, config *ssh.ServerConfig) {
	c, channels, requests, err := ssh.NewServerConn(conn, config)
	if err != nil {
		conn.Close()
		return // turned away
	}
	defer c.Close()
	go ssh.DiscardRequests(requests)
	for offered := range channels {
		if offered.ChannelType() != "session" {
			_ = offered.Reject(ssh.UnknownChannelType, "sessions only")
			continue
		}
		channel, asked, err := offered.Accept()
		if err != nil {
			return
		}
		go sshSession(d, channel, asked)
	}
}

// sshSession runs the command of a session, as a login shell would.
func sshSession(d *libvirttest.Daemon, channel ssh.Channel, asked <-chan *ssh.Request) {
	defer channel.Close()
	for r := range asked {
		var exec struct{ Command string }
		ok := r.Type == "exec" && ssh.Unmarshal(r.Payload, &exec) == nil
		if r.WantReply {
			_ = r.Reply(ok, nil)
		}
		if !ok {
			continue
		}
		go ssh.DiscardRequests(asked)
		status := struct{ Status uint32 }{runOverSSH(d, channel, exec.Command)}
		_, _ = channel.SendRequest("exit-status", false, ssh.Marshal(&status))
		return
	}
}

// runOverSSH runs a command with a channel as its input and output, and returns its exit status.
func runOverSSH(d *libvirttest.Daemon, channel ssh.Channel, command string) uint32 {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c := d.Command(ctx, "sh", "-c", command)
	c.Stdout, c.Stderr = channel, channel.Stderr()
	in, err := c.StdinPipe()
	if err != nil {
		return 255
	}
	if err := c.Start(); err != nil {
		return 255
	}
	go func() {
		_, _ = io.Copy(in, channel)
		in.Close()
	}()
	err = c.Wait()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit) && exit.ExitCode() >= 0:
		return uint32(exit.ExitCode())
	}
	return 255
}
