package libvirt

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// maxSessions bounds how many virsh run at once, and with them what an ssh server is asked for.
const maxSessions = 8

// A Conn is a connection to one libvirt, by any number of virsh. Its methods may be called from several goroutines.
type Conn struct {
	URI  string
	Caps Capabilities

	virsh  string
	tokens chan struct{} // one for each session that may be
	mu     sync.Mutex
	idle   []*session
	closed bool
	dial   sync.Mutex // sessions start one after the other: ssh servers refuse many that have not said who they are
}

// Capabilities are what a libvirt can do.
type Capabilities struct {
	Virsh    string // version of virsh, e.g. "9.0.0"
	Daemon   string // version of the daemon
	QEMU     string // version of QEMU that it drives
	Host     string // name of its machine
	Arch     string // of that machine: "x86_64"
	Emulator string // path of QEMU there, for Arch
	// KVM is set where domains of type kvm can be defined. Whether one would run is another
	// question: only a boot tells.
	KVM bool
}

// Limits of single commands. They only end what would never end: a daemon that hangs, a remote machine that has gone.
const (
	// connectLimit is for the first question. The daemon may have to be started for it: within some
	// seconds, but more than half a minute has been seen on a busy emulated host that had just
	// booted.
	connectLimit = 5 * time.Minute
	queryLimit   = time.Minute
	// probeLimit is for what may make the daemon look first what its QEMU can do, once for each
	// version of both: 8 s on 2 cores, minutes where those are emulated themselves.
	probeLimit = 10 * time.Minute
	// startLimit is for virsh start and destroy: 1 GiB pages are cleared when they are taken, at
	// some 4 GB/s for one thread, and a machine may have terabytes.
	startLimit = 15 * time.Minute
)

// Connect finds virsh and connects to a libvirt: qemu:///system, qemu:///session,
// qemu+ssh://host/system and whatever else virsh knows. Questions of ssh are not answered: a remote
// machine has to be one that ssh reaches by key.
//
// The error says what to do: who has to start which daemon, or may use it.
func Connect(ctx context.Context, uri string) (*Conn, error) {
	virsh, err := exec.LookPath("virsh")
	if err != nil {
		return nil, errors.New("virsh is not in PATH: install libvirt's client (Debian: libvirt-clients)")
	}
	return connect(ctx, virsh, uri)
}

func connect(ctx context.Context, virsh, uri string) (*Conn, error) {
	full, err := checkURI(uri)
	if err != nil {
		return nil, err
	}
	c := &Conn{URI: full, virsh: virsh, tokens: make(chan struct{}, maxSessions)}
	if c.Caps, err = c.hello(ctx); err != nil {
		return nil, fmt.Errorf("connect to libvirt at %s: %w", uri, advise(full, err))
	}
	if err := c.capabilities(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("connect to libvirt at %s: %w", uri, err), c.Close())
	}
	return c, nil
}

// hello asks for versions. It is a process of its own, in the user's own environment: it may have
// to start the daemon of a session, which inherits that.
func (c *Conn) hello(ctx context.Context) (Capabilities, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, connectLimit, fmt.Errorf("no answer within %v", connectLimit))
	defer cancel()
	cmd := c.command(ctx, "version", "--daemon")
	out, err := cmd.Output()
	if ctx.Err() != nil {
		return Capabilities{}, context.Cause(ctx)
	}
	if e, ok := errors.AsType[*exec.ExitError](err); ok && errorText(e.Stderr) != "" {
		err = errors.New(errorText(e.Stderr))
	}
	return versions(out), err
}

// command prepares a virsh for one command.
func (c *Conn) command(ctx context.Context, words ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, c.virsh, append([]string{"--quiet", "--connect", c.URI}, words...)...)
	cmd.Env = virshEnv(true)                              // of one command there is no history
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for rackless to handle
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second // for an ssh that has left the group
	return cmd
}

// checkURI refuses what no driver of QEMU is behind, and keeps ssh from asking questions in a
// terminal that nobody may watch.
func checkURI(uri string) (string, error) {
	u, err := url.Parse(uri)
	if err != nil || u.Scheme == "" {
		return "", fmt.Errorf("libvirt URI %q: want one such as qemu:///system or qemu+ssh://host/system", uri)
	}
	hypervisor, transport, _ := strings.Cut(u.Scheme, "+")
	if hypervisor != "qemu" {
		return "", fmt.Errorf("libvirt URI %q is of hypervisor %q: rackless runs its nodes on QEMU, as in "+
			"qemu:///system", uri, hypervisor)
	}
	if u.Path != "/system" && u.Path != "/session" {
		return "", fmt.Errorf("libvirt URI %q: want it to end in /system or /session, as in qemu:///system", uri)
	}
	if q := u.Query(); transport == "ssh" && !q.Has("no_tty") {
		q.Set("no_tty", "1")
		u.RawQuery = q.Encode()
		return u.String(), nil
	}
	return uri, nil
}

// Local reports whether the domains run on this machine, so that /proc and files are theirs.
func (c *Conn) Local() bool {
	u, err := url.Parse(c.URI)
	return err == nil && u.Host == ""
}

// system reports whether the daemon is the machine's own and not one of a user's session.
func (c *Conn) system() bool {
	u, err := url.Parse(c.URI)
	return err == nil && u.Path == "/system"
}

// advise adds to an error of connecting what can be done about it.
func advise(uri string, err error) error {
	text := err.Error()
	fix := ""
	for _, k := range []struct{ has, fix string }{
		{"Permission denied (", "let ssh log in there by key: ssh-copy-id"},
		{"Host key verification failed", "log in there once by ssh, to compare the host's key"},
		{"Could not resolve hostname", "look at the name of the host in the URI"},
		{"connect to host", "look whether the host is up and its ssh server listens"},
		{"no connection driver available", "install the driver: Debian's libvirt-daemon-driver-qemu"},
		{"Cannot read CA certificate", "make certificates for libvirt's TLS " +
			"(https://libvirt.org/kbase/tlscerts.html), or use qemu+ssh://"},
		{"authentication", "add the user to the group libvirt, or run as root"},
		{"Permission denied", "add the user to the group libvirt, or run as root"},
		{"No such file or directory", "start the daemon: systemctl start libvirtd, or virtqemud.socket where libvirt " +
			"is several daemons"},
		{"Connection refused", "start the daemon: systemctl start libvirtd, or virtqemud.socket where libvirt is " +
			"several daemons"},
	} {
		if strings.Contains(text, k.has) {
			fix = k.fix
			break
		}
	}
	switch {
	case fix == "":
		return err
	case strings.Contains(uri, "ssh://") && strings.HasPrefix(fix, "start the daemon"):
		fix = "on the host, " + fix
	}
	return fmt.Errorf("%w: %s", err, fix)
}

// versions reads what "virsh version --daemon" prints, in English.
func versions(out []byte) (c Capabilities) {
	for line := range strings.Lines(string(out)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch key {
		case "Using library":
			c.Virsh = strings.TrimPrefix(value, "libvirt ")
		case "Running hypervisor":
			c.QEMU = strings.TrimPrefix(value, "QEMU ")
		case "Running against daemon":
			c.Daemon = value
		}
	}
	return c
}

// capabilities asks what can be run. KVM is asked for first, since libvirt answers for it only where it is.
func (c *Conn) capabilities(ctx context.Context) error {
	host, err := c.run(ctx, queryLimit, "hostname")
	if err != nil {
		return err
	}
	c.Caps.Host = strings.TrimSpace(string(host))
	out, err := c.run(ctx, probeLimit, "domcapabilities", "--virttype", "kvm")
	if _, refused := errors.AsType[*virshError](err); refused {
		out, err = c.run(ctx, probeLimit, "domcapabilities", "--virttype", "qemu")
	} else if err == nil {
		c.Caps.KVM = true
	}
	if err != nil {
		return err
	}
	var caps struct {
		Path string `xml:"path"`
		Arch string `xml:"arch"`
	}
	if err := xml.Unmarshal(out, &caps); err != nil {
		return fmt.Errorf("virsh domcapabilities: %w", err)
	}
	c.Caps.Emulator, c.Caps.Arch = caps.Path, caps.Arch
	return nil
}

// Close ends all virsh, those with a command in flight once it has been answered.
func (c *Conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, s := range c.idle {
		s.kill()
	}
	c.idle = nil
	return nil
}

// errClosed is the error of a Conn that was closed.
var errClosed = errors.New("the connection to libvirt was closed")

// run executes one command of virsh and returns what it printed. If ctx ends first, its virsh is
// ended: then the command may have been carried out or not.
func (c *Conn) run(ctx context.Context, limit time.Duration, words ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer from libvirt at %s within %v", c.URI,
		limit))
	defer cancel()
	select {
	case c.tokens <- struct{}{}:
		defer func() { <-c.tokens }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	s, err := c.take(ctx)
	if err != nil {
		return nil, err
	}
	out, err := s.run(ctx, commandLine(words))
	if _, refused := errors.AsType[*virshError](err); err == nil || refused {
		c.put(s)
	} else {
		s.kill()
	}
	return out, err
}

// take returns a session that nobody uses, or starts one.
func (c *Conn) take(ctx context.Context) (*session, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	s, err := c.takeIdle()
	if s != nil || err != nil {
		return s, err
	}
	c.dial.Lock()
	defer c.dial.Unlock()
	return startSession(ctx, c.virsh, c.URI)
}

// takeIdle returns an idle session that is alive, nil if there is none.
func (c *Conn) takeIdle() (*session, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errClosed
	}
	for len(c.idle) > 0 {
		s := c.idle[len(c.idle)-1]
		c.idle = c.idle[:len(c.idle)-1]
		select {
		case <-s.ended: // somebody has killed it
			s.kill()
		default:
			return s, nil
		}
	}
	return nil, nil
}

// put gives a session back.
func (c *Conn) put(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		s.kill()
		return
	}
	c.idle = append(c.idle, s)
}
