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

// DefaultQueueBytes is how much may wait for one node that does not read. It is deep because RoCE
// recovers from a loss by going back to the lost packet and sending all from there again: a dropped
// frame costs more than a late one.
const DefaultQueueBytes = 4 << 20

// Config is what a switch is made of. Only Control must be set.
type Config struct {
	Ports   []Port       // there from the start; more can be added through the control socket
	Control string       // path of the control socket
	Log     *slog.Logger // nil: no log

	// QueueBytes bounds what waits for each node, prefixes included; 0 means DefaultQueueBytes. It
	// is only taken from memory when a node does not keep up.
	QueueBytes int

	// Direct, if not nil, is told whether all links are unimpaired and nobody captures: then what two NICs of one
	// process exchange need not pass the switch. It is called when that changes, and must not call the switch.
	Direct func(bool)

	// Down, if not nil, is told about a port that was set down or up again, and of one that is down
	// where a NIC connects to it: the NIC is to lose its carrier. It runs beside the switch, one
	// call at a time. Who set the port gets its error.
	Down func(port string, down bool) error

	// Plugs, if not nil, lets NICs of this process in while the switch runs.
	Plugs *Plugs

	now   func() time.Time // nil: time.Now
	ready func(*bridge)    // if not nil, called when all sockets are there
}

// Run is the switch: it creates the sockets, forwards until ctx ends, and removes the sockets. The control socket comes
// last, so that when Dial succeeds all ports of cfg can be connected to. The end of ctx is not an error.
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
	// Before the ports are made: their sockets would take the place of the other switch's.
	if err := probe(cfg.Control); err != nil {
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

	// The loop outlives the control connections, which need it to end in good order. If either
	// fails, the other is ended.
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

// maxPath is the longest path of a unix socket: sun_path has 108 bytes, one of them for the final zero (unix(7)).
const maxPath = 107

// A boundSocket is a listening unix stream socket and the file it made.
type boundSocket struct {
	fd   int
	path string
	file fs.FileInfo // tells our file from one that somebody else put in its place later
}

// bind creates a non-blocking listening socket at path with mode 0600. A socket file that stands
// there already is removed: it is what a switch that was killed left behind. Whether another switch
// lives is asked once for all ports, at its control socket.
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
	// On Linux bind makes the file with the mode of the socket's own inode, less the umask. Setting
	// it here leaves no moment in which others could connect, which chmod on the path after bind
	// would.
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

// removeStale removes the socket at path, if there is one, and refuses to remove anything else.
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

// close closes the socket and removes its file, unless the file is no longer ours.
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
