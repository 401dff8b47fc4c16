package fabric

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// DefaultQueueBytes limits data waiting for a node by default. It is high because RoCE resends everything from a lost
// packet on, so a dropped frame costs more than a late one.
const DefaultQueueBytes = 4 << 20

// Config configures a switch. Only Control must be set.
type Config struct {
	Ports   []Port       // initial; the control socket can add some
	Control string       // path of the control socket
	Log     *slog.Logger // nil for no log

	// Topology joins several switches; Ports are at its leaves.
	Topology Topology

	// QueueBytes limits each node's waiting data, with prefixes; 0 means DefaultQueueBytes.
	QueueBytes int

	// Direct, if set, is called when this changes: no link is impaired and no capture runs, so that frames between NICs
	// of one process need not pass the switch. It must not call the switch.
	Direct func(bool)

	// Down, if set, is called for a port that was set down or up, and when a NIC connects to a down port, so that it
	// loses its carrier. Calls run outside of the loop, one at a time. The request that changed the port gets the
	// error.
	Down func(port string, down bool) error

	// Plugs, if set, lets NICs of this process connect.
	Plugs *Plugs

	now   func() time.Time // default time.Now
	ready func(*bridge)    // called when all sockets exist
}

// Run runs the switch until ctx is done, which is no error. It creates the control socket last, so that all ports of
// cfg exist when Dial succeeds.
func Run(ctx context.Context, cfg Config) (err error) {
	if cfg.Control == "" {
		return errors.New("start switch: no path for the control socket")
	}
	if cfg.QueueBytes < 0 {
		return fmt.Errorf("start switch: queue of %d bytes", cfg.QueueBytes)
	}
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	if cfg.now == nil {
		cfg.now = time.Now
	}
	b, err := newBridge(cfg.Log, cfg.now, cmp.Or(cfg.QueueBytes, DefaultQueueBytes))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	b.tell, b.down = cfg.Direct, cfg.Down
	// The ports' sockets would replace the other switch's.
	if err := probe(cfg.Control); err != nil {
		return err
	}
	if err := b.build(cfg.Topology); err != nil {
		return err
	}
	for _, p := range cfg.Ports {
		if err := b.addPort(p); err != nil {
			return err
		}
	}
	if cfg.Plugs != nil {
		cfg.Plugs.b.Store(b)
	}
	ctl, err := listenControl(b, cfg.Control)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ctl.close()) }()

	// The loop outlives the control connections, which need it for a clean end. If either fails, the other is stopped.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	looped := make(chan error, 1)
	go func() {
		defer cancel()
		looped <- b.loop()
	}()
	if cfg.ready != nil {
		cfg.ready(b)
	}
	served := ctl.serve(ctx)
	if err := b.halt(); err != nil && !errors.Is(err, errStopped) {
		return errors.Join(served, err)
	}
	return errors.Join(served, <-looped)
}

// maxPath is sun_path's 108 bytes less the final zero (unix(7)).
const maxPath = 107

type boundSocket struct {
	fd   int
	path string
	file fs.FileInfo // detects a file that another process put there
}

// bind creates a listening socket with mode 0600. It removes an existing one of a killed switch. Run checks once, at
// the control socket, that no other switch is running.
func bind(path string) (*boundSocket, error) {
	if len(path) > maxPath {
		return nil, fmt.Errorf("listen at %q: the path has %d bytes and a unix socket's may have %d: use a directory "+
			"with a shorter name", path, len(path), maxPath)
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("listen at %q: socket: %w", path, err)
	}
	s := &boundSocket{fd: fd, path: path}
	// On Linux bind gives the file the mode of the socket's inode, less the umask. With chmod on the path others could
	// connect for a moment.
	if err := unix.Fchmod(fd, 0o600); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("listen at %q: fchmod: %w", path, err)
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("listen at %q: bind: %w", path, err)
	}
	if s.file, err = os.Lstat(path); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("listen at %q: %w", path, err)
	}
	if err := unix.Listen(fd, 16); err != nil {
		return nil, errors.Join(fmt.Errorf("listen at %q: %w", path, err), s.close())
	}
	return s, nil
}

// removeStale refuses to remove anything but a socket.
func removeStale(path string) error {
	fi, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("listen at %q: %w", path, err)
	}
	if fi.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("listen at %q: the path exists and is not a socket (mode %v): remove it or choose "+
			"another path", path, fi.Mode())
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("listen at %q: remove the old socket: %w", path, err)
	}
	return nil
}

// close closes the socket, and removes its file unless that has been replaced.
func (s *boundSocket) close() error {
	unix.Close(s.fd)
	return s.unlink()
}

func (s *boundSocket) unlink() error {
	fi, err := os.Lstat(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove socket: %w", err)
	}
	if !os.SameFile(fi, s.file) {
		return nil
	}
	if err := os.Remove(s.path); err != nil {
		return fmt.Errorf("remove socket: %w", err)
	}
	return nil
}
