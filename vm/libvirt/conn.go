package libvirt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	api "github.com/digitalocean/go-libvirt"
	"github.com/digitalocean/go-libvirt/socket/dialers"
)

// A Conn is a connection to a libvirt daemon, safe for concurrent use.
type Conn struct {
	URI  string
	Caps Capabilities

	uri *url.URL
	// slow has a slot for each long call. The daemon processes 5 calls of a connection at a time (max_client_requests)
	// and reads no more meanwhile, so one is reserved for queries.
	slow chan struct{}
	// validate is held during the daemon's schema checks. At the first, libxml2 loads data types, which is not
	// thread-safe: of two at once one failed with "Error type 'unsignedInt' is not exported by type library".
	validate sync.Mutex

	mu     sync.Mutex
	client *api.Libvirt
	conn   net.Conn // of client
	closed bool
}

// Capabilities describe a libvirt daemon.
type Capabilities struct {
	QEMU string // e.g. "9.0.0"
	// KVM means that domains of type kvm can be defined. Only a boot shows whether they run.
	KVM bool
}

// Limits of single calls, for daemons that hang and remote machines that are gone. Calls except with queryLimit may
// take long (Conn.slow).
const (
	// connectLimit is for the first query, which may start the daemon: more than half a minute on a busy, freshly
	// booted emulated host.
	connectLimit = 5 * time.Minute
	queryLimit   = time.Minute
	// probeLimit allows the daemon to probe its QEMU, once for each version of both: 8 s on 2 cores, minutes if the
	// cores are emulated.
	probeLimit = 10 * time.Minute
	// startLimit is for the start and the end of a domain: the kernel clears 1 GiB pages at some 4 GB/s per thread, and
	// a machine may have terabytes.
	startLimit = 15 * time.Minute
)

// Connect accepts qemu:///system, qemu:///session, qemu+ssh://host/system, qemu+tls://host/system and the other
// transports of https://libvirt.org/uri.html. It does not answer prompts of ssh, so remote machines need key
// authentication. The error contains advice.
func Connect(ctx context.Context, uri string) (*Conn, error) {
	u, err := checkURI(uri)
	if err != nil {
		return nil, err
	}
	c := &Conn{URI: uri, uri: u, slow: make(chan struct{}, 4)}
	if err := c.capabilities(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("connect to libvirt at %s: %w", uri, err), c.Close())
	}
	return c, nil
}

func checkURI(uri string) (*url.URL, error) {
	u, err := url.Parse(uri)
	if err != nil || u.Scheme == "" {
		return nil, fmt.Errorf("libvirt URI %q: want one such as qemu:///system or qemu+ssh://host/system", uri)
	}
	hypervisor, _, _ := strings.Cut(u.Scheme, "+")
	if hypervisor != "qemu" {
		return nil, fmt.Errorf("libvirt URI %q is of hypervisor %q: rackless runs its nodes on QEMU, as in "+
			"qemu:///system", uri, hypervisor)
	}
	if u.Path != "/system" && u.Path != "/session" {
		return nil, fmt.Errorf("libvirt URI %q: want it to end in /system or /session, as in qemu:///system", uri)
	}
	return u, nil
}

// Local reports whether /proc and local files apply to the domains.
func (c *Conn) Local() bool { return c.uri.Host == "" }

func (c *Conn) system() bool { return c.uri.Path == "/system" }

func (c *Conn) open(ctx context.Context) (*api.Libvirt, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errClosed
	}
	if c.client != nil && c.client.IsConnected() {
		return c.client, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, connectLimit, fmt.Errorf("no answer within %v", connectLimit))
	defer cancel()
	conn, err := dial(ctx, c.uri)
	if err == nil {
		checked := &checkedConn{Conn: conn}
		client := api.NewWithDialer(dialers.NewAlreadyConnected(checked))
		// The daemon may hang.
		stop := context.AfterFunc(ctx, func() { conn.Close() })
		if err = client.ConnectToURI(api.RemoteURI(c.uri)); err == nil && stop() {
			c.client, c.conn = client, conn
			return client, nil
		}
		if p, ok := conn.(*proxy); ok && ctx.Err() == nil && checked.wrong == nil {
			err = p.explain(err)
		}
		err = cmp.Or(checked.wrong, err)
		conn.Close()
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return nil, advise(c.uri, err)
}

// Close also ends pending calls.
func (c *Conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	return c.hangUp()
}

// hangUp sends no message, which a daemon might not answer.
func (c *Conn) hangUp() error {
	if c.conn == nil {
		return nil
	}
	err := c.conn.Close()
	c.client, c.conn = nil, nil
	return err
}

var errClosed = errors.New("the connection to libvirt was closed")

// ask makes one call. If ctx or the limit ends it first, it may or may not have been executed.
func ask[T any](ctx context.Context, c *Conn, limit time.Duration, call func(*api.Libvirt) (T, error)) (T, error) {
	var none T
	// Queries overtake long calls, so that ls answers while domains start.
	if limit != queryLimit {
		select {
		case c.slow <- struct{}{}:
			defer func() { <-c.slow }()
		case <-ctx.Done():
			return none, context.Cause(ctx)
		}
	}
	client, err := c.open(ctx)
	if err != nil {
		return none, err
	}
	// Without contexts in go-libvirt, an abandoned call ends with its answer or the connection.
	var answer T
	done := make(chan error, 1)
	go func() {
		var err error
		answer, err = call(client)
		done <- err
	}()
	select {
	case err = <-done:
	case <-ctx.Done():
		return none, context.Cause(ctx)
	case <-time.After(limit):
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.client == client { // the next call reconnects
			c.hangUp()
		}
		return none, fmt.Errorf("no answer from libvirt at %s within %v", c.URI, limit)
	}
	if _, broken := errors.AsType[*net.OpError](err); broken || errors.Is(err, api.ErrInterrupted) ||
		errors.Is(err, syscall.EINVAL) { // go-libvirt's error for a closed connection
		return none, fmt.Errorf("the connection to libvirt at %s ended before it answered: whether the command was "+
			"carried out is not known", c.URI)
	}
	return answer, err
}

func (c *Conn) tell(ctx context.Context, limit time.Duration, call func(*api.Libvirt) error) error {
	_, err := ask(ctx, c, limit, func(l *api.Libvirt) (struct{}, error) { return struct{}{}, call(l) })
	return err
}

// refused reports whether err is libvirt's own answer, with one of codes if given.
func refused(err error, codes ...api.ErrorNumber) bool {
	e, ok := errors.AsType[api.Error](err)
	return ok && (len(codes) == 0 || slices.Contains(codes, api.ErrorNumber(e.Code)))
}

// capabilities trusts libvirt to list KVM only if available.
func (c *Conn) capabilities(ctx context.Context) error {
	qemu, err := ask(ctx, c, probeLimit, (*api.Libvirt).ConnectGetVersion)
	if err != nil {
		return err
	}
	_, err = ask(ctx, c, probeLimit, func(l *api.Libvirt) (string, error) {
		return l.ConnectGetDomainCapabilities(nil, nil, nil, api.OptString{"kvm"}, 0)
	})
	c.Caps = Capabilities{QEMU: version(qemu), KVM: err == nil}
	if refused(err) {
		return nil
	}
	return err
}

// version formats 9000000 as 9.0.0.
func version(v uint64) string { return fmt.Sprintf("%d.%d.%d", v/1e6, v/1e3%1e3, v%1e3) }

func advise(u *url.URL, err error) error {
	fix := ""
	switch text := err.Error(); {
	case strings.Contains(u.Scheme, "tls") && errors.Is(err, fs.ErrNotExist):
		fix = "make certificates for libvirt's TLS (https://libvirt.org/kbase/tlscerts.html), or use qemu+ssh://"
	case refused(err, api.ErrNoConnect):
		fix = "install the driver: Debian's libvirt-daemon-driver-qemu"
	case errors.Is(err, fs.ErrPermission),
		refused(err, api.ErrAuthFailed, api.ErrAuthCancelled, api.ErrAuthUnavailable):
		fix = "add the user to the group libvirt, or run as root"
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		fix = startDaemon
	case u.Host != "":
		fix = adviseSSH(text)
	}
	if fix == "" {
		return err
	}
	return fmt.Errorf("%w: %s", err, fix)
}

const startDaemon = "start the daemon: systemctl start libvirtd, or virtqemud.socket where libvirt is several daemons"

func adviseSSH(text string) string {
	for _, k := range []struct{ has, fix string }{
		{"Permission denied (", "let ssh log in there by key: ssh-copy-id"},
		{"Host key verification failed", "log in there once by ssh, to compare the host's key"},
		{"Could not resolve hostname", "look at the name of the host in the URI"},
		{"connect to host", "look whether the host is up and its ssh server listens"},
		{"Permission denied", "add the user to the group libvirt there, or log in as root"},
		{"No such file or directory", "on the host, " + startDaemon},
		{"Connection refused", "on the host, " + startDaemon},
	} {
		if strings.Contains(text, k.has) {
			return k.fix
		}
	}
	return ""
}
