package libvirt

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	api "github.com/digitalocean/go-libvirt"
	"github.com/digitalocean/go-libvirt/socket/dialers"

	"github.com/rackless/rackless/internal/trace"
	"github.com/rackless/rackless/internal/words"
)

// A checkedConn checks the length of the first packet. A bad one is usually a login shell's greeting, whose letters
// go-libvirt would take for a length.
type checkedConn struct {
	net.Conn
	begun bool
	head  []byte // of the first packet, unread
	wrong error
}

// A header alone, and VIR_NET_MESSAGE_MAX of libvirt.
const (
	minPacket = 28
	maxPacket = 32<<20 + 4
)

func (c *checkedConn) Read(b []byte) (int, error) {
	if !c.begun {
		c.begun, c.head = true, make([]byte, 4)
		if n, err := io.ReadFull(c.Conn, c.head); err != nil {
			c.head = c.head[:n]
			return 0, err
		}
		if n := binary.BigEndian.Uint32(c.head); n < minPacket || n > maxPacket {
			c.wrong = fmt.Errorf("it answers %q, which is not libvirt's protocol: a login shell there may print a "+
				"greeting", c.head)
		}
	}
	if c.wrong != nil {
		return 0, c.wrong
	}
	if len(c.head) > 0 {
		n := copy(b, c.head)
		c.head = c.head[n:]
		return n, nil
	}
	return c.Conn.Read(b)
}

// dial has the transports and parameters of https://libvirt.org/uri.html.
//
// It uses only go-libvirt's TLS dialer. The ssh dialer reads neither ~/.ssh/config nor jump hosts, so dial runs ssh, as
// libvirt does. The local dialer knows only one of the two possible sockets.
func dial(ctx context.Context, u *url.URL) (net.Conn, error) {
	_, transport, _ := strings.Cut(u.Scheme, "+")
	if transport == "" && u.Host != "" {
		transport = "tls"
	}
	switch transport {
	case "", "unix":
		return dialLocal(ctx, u)
	case "tcp":
		var d net.Dialer
		return d.DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "16509")))
	case "tls":
		return dialTLS(ctx, u)
	case "ssh", "libssh", "libssh2":
		return startProxy(sshCommand(u))
	case "ext":
		return startProxy([]string{u.Query().Get("command")})
	}
	return nil, fmt.Errorf("transport %q is not known: want unix, ssh, tls, tcp or ext", transport)
}

// localSockets returns QEMU's own socket, if libvirt is split into several daemons, and the common one.
func localSockets(u *url.URL) []string {
	if path := u.Query().Get("socket"); path != "" {
		return []string{path}
	}
	dir := "/run"
	if u.Path == "/session" {
		home, _ := os.UserCacheDir() // libvirt's choice without a runtime directory
		dir = cmp.Or(os.Getenv("XDG_RUNTIME_DIR"), home)
	}
	several, one := dir+"/libvirt/virtqemud-sock", dir+"/libvirt/libvirt-sock"
	switch u.Query().Get("mode") {
	case "direct":
		return []string{several}
	case "legacy":
		return []string{one}
	}
	return []string{several, one}
}

// dialLocal starts a daemon for a user's session that has none; root uses the system's.
func dialLocal(ctx context.Context, u *url.URL) (conn net.Conn, err error) {
	var d net.Dialer
	// Again after a session's daemon was started.
	for try := 0; ; try++ {
		for _, path := range localSockets(u) {
			if conn, err = d.DialContext(ctx, "unix", path); err == nil {
				return conn, nil
			}
		}
		if try > 0 || u.Path != "/session" || u.Query().Has("socket") || os.Geteuid() == 0 {
			return nil, err
		}
		for _, daemon := range []string{"virtqemud", "libvirtd"} {
			path, missing := exec.LookPath(daemon)
			if missing != nil {
				continue
			}
			// It exits after two minutes without a client, as if started by virsh.
			args := []string{"--daemon", "--timeout", "120"}
			trace.Runs("", append([]string{path}, args...))
			out, failed := exec.CommandContext(ctx, path, args...).CombinedOutput()
			if failed != nil {
				return nil, fmt.Errorf("%w; start %s: %w: %s", err, path, failed, bytes.TrimSpace(out))
			}
			break
		}
	}
}

// dialTLS abandons a hanging handshake with ctx.
func dialTLS(ctx context.Context, u *url.URL) (net.Conn, error) {
	q := u.Query()
	options := []dialers.TLSOption{dialers.UseTLSPort(cmp.Or(u.Port(), "16514"))}
	if path := q.Get("pkipath"); path != "" {
		options = append(options, dialers.UsePKIPath(path))
	}
	if isSet(q, "no_verify") {
		options = append(options, dialers.WithInsecureNoVerify())
	}
	type result struct {
		net.Conn
		error
	}
	done := make(chan result, 1)
	go func() {
		conn, err := dialers.NewTLS(u.Hostname(), options...).Dial()
		done <- result{conn, err}
	}()
	select {
	case r := <-done:
		return r.Conn, r.error
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func isSet(q url.Values, name string) bool { return q.Has(name) && q.Get(name) != "0" }

// sshCommand does as libvirt: virt-ssh-helper finds the remote socket, or else netcat.
func sshCommand(u *url.URL) []string {
	q := u.Query()
	argv := []string{cmp.Or(q.Get("command"), "ssh")}
	option := func(is bool, words ...string) {
		if is {
			argv = append(argv, words...)
		}
	}
	option(u.Port() != "", "-p", u.Port())
	option(u.User.Username() != "", "-l", u.User.Username())
	option(q.Has("keyfile"), "-i", q.Get("keyfile"))
	// An unattended prompt would wait forever.
	option(!q.Has("no_tty") || isSet(q, "no_tty"), "-T", "-e", "none", "-o", "BatchMode=yes")
	option(isSet(q, "no_verify") || q.Get("known_hosts_verify") == "ignore", "-o", "StrictHostKeyChecking=no")
	option(q.Get("known_hosts_verify") == "auto", "-o", "StrictHostKeyChecking=accept-new")
	option(q.Has("known_hosts"), "-o", "UserKnownHostsFile="+q.Get("known_hosts"))
	return append(argv, "--", u.Hostname(), "sh -c "+words.Quote(remoteCommand(u)))
}

// remoteCommand suits any remote shell.
func remoteCommand(u *url.URL) string {
	q := u.Query()
	there := string(api.RemoteURI(u))
	// Without parameters of the transport.
	kept := url.Values{}
	for _, name := range []string{"mode", "socket"} {
		if q.Has(name) {
			kept.Set(name, q.Get(name))
		}
	}
	if len(kept) > 0 {
		there += "?" + kept.Encode()
	}
	helper := "exec virt-ssh-helper " + words.Quote(there)
	socket := `"${XDG_RUNTIME_DIR:-$HOME/.cache}/libvirt/libvirt-sock"`
	if u.Path == "/system" || q.Has("socket") {
		socket = words.Quote(cmp.Or(q.Get("socket"), "/run/libvirt/libvirt-sock"))
	}
	// Some netcats need it to exit at the end of their input.
	nc := words.Quote(cmp.Or(q.Get("netcat"), "nc"))
	netcat := "if " + nc + " -q 2>&1 | grep -q 'requires an argument'; then quit=-q0; fi; exec " + nc + " $quit -U " +
		socket
	switch proxy := q.Get("proxy"); {
	case proxy == "native":
		return helper
	case proxy == "netcat" || q.Has("netcat"):
		return netcat
	}
	return "if command -v virt-ssh-helper >/dev/null 2>&1; then " + helper + "; fi; " + netcat
}

type proxy struct {
	net.Conn
	cmd   *exec.Cmd
	said  firstWords
	ended chan struct{}
}

type firstWords []byte

func (w *firstWords) Write(b []byte) (int, error) {
	*w = append(*w, b[:min(len(b), 4096-len(*w))]...)
	return len(b), nil
}

// startProxy keeps Ctrl-C from the program; rackless handles it.
func startProxy(argv []string) (net.Conn, error) {
	// go-libvirt needs a net.Conn with deadlines, which pipes are not.
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	here, there := os.NewFile(uintptr(pair[0]), "libvirt"), os.NewFile(uintptr(pair[1]), filepath.Base(argv[0]))
	defer here.Close()
	defer there.Close()
	conn, err := net.FileConn(here)
	if err != nil {
		return nil, err
	}
	trace.Runs("", argv)
	p := &proxy{Conn: conn, cmd: exec.Command(argv[0], argv[1:]...), ended: make(chan struct{})}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = there, there, &p.said
	p.cmd.Env = append(os.Environ(), "LC_ALL=C") // adviseSSH compares English messages
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.cmd.WaitDelay = time.Second // a shared ssh connection may hold standard error open
	if err := p.cmd.Start(); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	go func() {
		_ = p.cmd.Wait() // the reason is on standard error
		close(p.ended)
	}()
	return p, nil
}

// Close also ends the program's children.
func (p *proxy) Close() error {
	err := p.Conn.Close()
	select {
	case <-p.ended:
	default:
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // fails if all have ended
	}
	<-p.ended
	return err
}

// explain returns the program's own message in one line, or err if it prints none within a second.
func (p *proxy) explain(err error) error {
	select {
	case <-p.ended:
		if text := strings.Join(strings.Fields(string(p.said)), " "); text != "" {
			return errors.New(text)
		}
		return fmt.Errorf("%s: %w (%v)", p.cmd.Path, err, p.cmd.ProcessState)
	case <-time.After(time.Second):
		return err
	}
}
