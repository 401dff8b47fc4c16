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

func check(r *rack.Rack, node string) error {
	i := slices.IndexFunc(r.State.Lab.Nodes, func(n lab.Node) bool { return n.Name == node })
	if i >= 0 && (!r.State.Lab.Nodes[i].HasDisk() || r.State.Driver != string(lab.DriverQEMU)) {
		return fmt.Errorf("node %s %w: it boots the image %s; use rackless exec, or say image: debian-12 in the lab "+
			"file", node, ErrNoSSH, r.State.Lab.Nodes[i].Image)
	}
	return nil
}

// Run replaces this process by ssh to a node. The node's shell interprets the words of the command; none means a shell.
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

// Copy runs scp, and returns its status. Paths on a node of r have the form NODE:PATH or LAB/NODE:PATH. If a node's
// disk was too small, the error says so, because scp learns only that writing failed.
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

// room returns an error if a path's file system has no room for another write of scp, if known.
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
				p = "./" + p
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

// FirstNode returns the first node in paths, or "".
func FirstNode(paths []string) string {
	for _, p := range paths {
		if node, _ := split(p); node != "" {
			return node
		}
	}
	return ""
}

// split splits [LAB/]NODE:PATH. As with scp, a path that begins with . or / is local.
func split(s string) (node, path string) {
	node, path, ok := strings.Cut(s, ":")
	if !ok || strings.HasPrefix(s, "/") || strings.HasPrefix(s, ".") {
		return "", s
	}
	return node, path
}

// become gives a program of OpenSSH this process's terminal, signals and exit status.
func become(r *rack.Rack, name string, args []string) error {
	path, argv, err := program(r, name, args)
	if err != nil {
		return err
	}
	return syscall.Exec(path, argv, os.Environ())
}

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

// Serve connects in and out to an sshd that it starts in a node, until one of them ends.
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
		// QEMU serves one client of a port at a time, and lets others wait silently.
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

// endLimit is for an sshd whose client has gone, openLimit for QEMU to tell the node about a new client: it may wait
// for a CPU.
const endLimit, openLimit = 3 * time.Second, time.Minute

// By its driver in the node: both ends are closed, or only the host's is open.
const (
	portFree = "guest_connected: 0\nhost_connected: 0\n"
	portOpen = "guest_connected: 0\nhost_connected: 1\n"
)

// becomes reports whether the i-th port reaches a state. An sshd of an earlier connection would read the next client's
// data. An sshd that starts before the node knows its client, or that the last one left, would read the end of the file
// and exit unnoticed.
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
	// The client's end comes first, because sshd closes no port.
	over := make(chan error, 2)
	go func() { _, err := io.Copy(conn, in); over <- err }()
	go func() { _, err := io.Copy(out, conn); over <- err }()
	if err := <-over; ctx.Err() == nil {
		return err
	}
	return nil // ssh has hung up
}
