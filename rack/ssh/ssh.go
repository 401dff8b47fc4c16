package ssh

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gofrs/flock"

	"github.com/rackless/rackless/internal/trace"
	"github.com/rackless/rackless/internal/wait"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/vm/guest"
	"github.com/rackless/rackless/vm/qemu"
)

// check returns why a node cannot be reached by ssh.
func check(r *rack.Rack, node string) error {
	i := slices.IndexFunc(r.State.Lab.Nodes, func(n lab.Node) bool { return n.Name == node })
	if i >= 0 && (!r.State.Lab.Nodes[i].HasDisk() || r.State.Driver != string(lab.DriverQEMU)) {
		return fmt.Errorf("node %s %w: it boots the image %s; use rackless exec, or say image: debian-12 in the lab "+
			"file", node, ErrNoSSH, r.State.Lab.Nodes[i].Image)
	}
	return nil
}

// Run becomes ssh to a node, which runs a command there, or a shell if that is empty. As always with ssh, the node's
// shell reads the words of the command.
func Run(r *rack.Rack, node string, command []string) error {
	if err := check(r, node); err != nil {
		return err
	}
	args := []string{node}
	if len(command) > 0 {
		args = append(append(args, "--"), command...)
	}
	return become(r, "ssh", args)
}

// Copy runs scp, and returns its status. Paths on a node have the form NODE:PATH, or LAB/NODE:PATH, whose lab is r.
// Of a node whose disk was too small the error says so: all that scp hears of it is that writing failed.
func Copy(ctx context.Context, r *rack.Rack, recursive bool, paths []string) (exit int, err error) {
	args, err := copyArgs(r, recursive, paths)
	if err != nil {
		return 0, err
	}
	path, argv, err := program(r, "scp", args)
	if err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(ctx, path, argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	err = cmd.Run()
	if _, ended := errors.AsType[*exec.ExitError](err); !ended || ctx.Err() != nil {
		return 0, cmp.Or(context.Cause(ctx), err)
	}
	node, target := split(paths[len(paths)-1])
	if node != "" {
		err = room(ctx, r, node[strings.LastIndexByte(node, '/')+1:], target)
	} else {
		err = nil
	}
	return cmd.ProcessState.ExitCode(), err
}

// room returns an error where the file system of a path on a node has no room for one more write of scp. What cannot be
// found out is no error.
func room(ctx context.Context, r *rack.Rack, node, path string) error {
	const script = `cd && p=${1:-.} && { [ -e "$p" ] || p=$(dirname -- "$p"); } && df -B1 --output=avail,target -- "$p"`
	res, err := r.Run(ctx, node, guest.Command{Argv: []string{"sh", "-c", script, "sh", path}})
	if err != nil || res.ExitCode != 0 {
		return nil
	}
	_, line, _ := strings.Cut(string(res.Stdout), "\n")
	free, at, _ := strings.Cut(strings.TrimSpace(line), " ")
	const write = 32 << 10
	if n, err := strconv.ParseUint(free, 10, 64); err != nil || n >= write {
		return nil
	}
	return fmt.Errorf("node %s: the file system at %s is full, %s bytes are free: the last file at %s is cut off; "+
		"remove it, make room, and copy again", node, at, free, path)
}

func copyArgs(r *rack.Rack, recursive bool, paths []string) (args []string, err error) {
	if recursive {
		args = append(args, "-r")
	}
	args = append(args, "--")
	for _, p := range paths {
		node, path := split(p)
		if node == "" {
			if strings.HasPrefix(p, ":") {
				p = "./" + p // scp would take what is before the colon for a host
			}
			args = append(args, p)
			continue
		}
		lab, name, named := strings.Cut(node, "/")
		if !named {
			name = node
		} else if lab != r.Lab.Name {
			return nil, fmt.Errorf("%s is not of lab %s: copy within one lab, or by way of a file here", node,
				r.Lab.Name)
		}
		if _, ok := r.State.Node(name); !ok {
			return nil, fmt.Errorf("lab %s has no node %s; a file of this machine is ./%s", r.Lab.Name, name, p)
		}
		if err := check(r, name); err != nil {
			return nil, err
		}
		args = append(args, name+":"+path)
	}
	return args, nil
}

// FirstNode returns the first node that paths name, or "".
func FirstNode(paths []string) string {
	for _, p := range paths {
		if node, _ := split(p); node != "" {
			return node
		}
	}
	return ""
}

// split splits [LAB/]NODE:PATH. As with scp, what begins with . or / is a file of this machine.
func split(s string) (node, path string) {
	node, path, ok := strings.Cut(s, ":")
	if !ok || strings.HasPrefix(s, "/") || strings.HasPrefix(s, ".") {
		return "", s
	}
	return node, path
}

// become runs a program of OpenSSH in the place of this one, so that terminal, signals and exit status are its own.
func become(r *rack.Rack, name string, args []string) error {
	path, argv, err := program(r, name, args)
	if err != nil {
		return err
	}
	return syscall.Exec(path, argv, os.Environ())
}

// program returns a program of OpenSSH with its arguments for the nodes of a lab.
func program(r *rack.Rack, name string, args []string) (path string, argv []string, err error) {
	if path, err = exec.LookPath(name); err != nil {
		return "", nil, fmt.Errorf("%s is not in PATH: install Debian package openssh-client", name)
	}
	self, err := os.Executable()
	if err != nil {
		return "", nil, err
	}
	argv = append(append([]string{path}, options(r.Dir, r.Lab.Name, self)...), args...)
	trace.Runs("", argv)
	return path, argv, nil
}

// Serve joins in and out to a sshd that it starts in a node, until one of them ends.
func Serve(ctx context.Context, r *rack.Rack, node string, in io.Reader, out io.Writer) error {
	if err := check(r, node); err != nil {
		return err
	}
	agent, err := r.Agent(ctx, node)
	if err != nil {
		return err
	}
	defer agent.Close()
	for i := range qemu.SSHPorts {
		socket := filepath.Join(r.NodeDir(node), qemu.SSHSocket(i))
		// QEMU serves one client of a port at a time, and lets others wait without a word.
		l := flock.New(socket+".lock", flock.SetPermissions(0o600))
		free, err := l.TryLock()
		if err != nil {
			return err
		}
		if free {
			free, err = becomes(ctx, agent, i, portFree, endLimit)
		}
		if err == nil && free {
			err = serve(ctx, agent, socket, i, in, out)
		}
		l.Close()
		if err != nil {
			return fmt.Errorf("node %s: %w", node, err)
		}
		if free {
			return nil
		}
	}
	return fmt.Errorf("node %s: all of its %d connections by ssh are in use: end one", node, qemu.SSHPorts)
}

// endLimit is how long a sshd whose client has gone has to end, and openLimit how long QEMU has to tell the node that
// there is a client: it is idle then, but may have to wait for a CPU.
const endLimit, openLimit = 3 * time.Second, time.Minute

// The states of a port, as its driver in the node shows them: nobody has either end open, and only the host has.
const (
	portFree = "guest_connected: 0\nhost_connected: 0\n"
	portOpen = "guest_connected: 0\nhost_connected: 1\n"
)

// becomes waits until the i-th port of a node is in a state, and reports whether that came. The sshd of an earlier
// connection would read what is for the next; and a sshd that starts before the node knows of its client, or when it
// has yet to hear that the last one went, reads the end of the file, ends, and nobody would be told.
func becomes(ctx context.Context, agent *guest.Agent, i int, want string, limit time.Duration) (bool, error) {
	for began := time.Now(); time.Since(began) < limit; {
		state, err := agent.ReadFile(ctx, qemu.SSHPortState(i))
		if err != nil {
			return false, err
		}
		if strings.Contains(string(state), want) {
			return true, nil
		}
		if err := wait.For(ctx, 50*time.Millisecond); err != nil {
			return false, err
		}
	}
	return false, nil
}

func serve(ctx context.Context, agent *guest.Agent, socket string, i int, in io.Reader, out io.Writer) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return fmt.Errorf("%w; rackless up starts it again", err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if open, err := becomes(ctx, agent, i, portOpen, openLimit); err != nil {
		return err
	} else if !open {
		return fmt.Errorf("QEMU did not take the connection by ssh within %v", openLimit)
	}
	if err := agent.Detach(ctx, "/usr/lib/rackless/sshd", qemu.SSHPort(i)); err != nil {
		return fmt.Errorf("start sshd: %w", err)
	}
	// The end of either side is that of the connection. The client's comes first, as sshd closes no port.
	over := make(chan error, 2)
	go func() { _, err := io.Copy(conn, in); over <- err }()
	go func() { _, err := io.Copy(out, conn); over <- err }()
	if err := <-over; ctx.Err() == nil {
		return err
	}
	return nil // ssh has hung up
}
