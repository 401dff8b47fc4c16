package fabric

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// readSize limits the time for which one sender occupies the loop. A QEMU has at most about 200 KiB waiting,
	// because its socket's send buffer is net.core.wmem_default (212992).
	readSize = 256 << 10

	// maxIovecs is UIO_MAXIOV in include/uapi/linux/uio.h.
	maxIovecs = 1024

	// maxEvents limits one epoll_wait. The kernel rotates its list, so others come with the next call.
	maxEvents = 64
)

var errStopped = errors.New("the switch has stopped")

type source interface {
	ready(events uint32)
}

// A bridge is the switch. turn, held by the loop or a Plug, gives access to all fields except those under mu.
type bridge struct {
	turn sync.Mutex

	log        *slog.Logger
	now        func() time.Time
	queueLimit int
	started    time.Time

	epfd    int
	sources map[int32]source // by epoll id; ids are not reused while an event may carry them
	lastID  int32
	spare   int // descriptor; see listener.ready

	ports   []*port
	net     *leafSpine // nil if there is one switch
	arrived []*port    // with frames from other switches
	again   bool       // a link between switches was released
	table   *table
	taps    []*tap // captures
	buf     []byte
	iovecs  []unix.Iovec
	touched []*conn // receivers of the current read
	chunks  chunks
	stop    bool
	tell    func(direct bool) // Config.Direct; may be nil
	seen    bool              // frames must pass the switch: the inverse of tell's last value

	down      func(port string, down bool) error // Config.Down; may be nil
	downMu    sync.Mutex                         // held while down runs
	epoch     time.Time                          // zero of the monotonic clock
	shaped    []*port                            // ports with impaired links
	paused    []*conn                            // senders with paused NICs
	timer     *timer                             // nil before the first impairment
	readLimit int                                // of one read, at most readSize

	mu     sync.Mutex
	wakefd int // eventfd that ends epoll_wait for calls
	calls  []call
	closed bool // the loop has ended
}

type call struct {
	fn   func() error
	done chan error
}

// newBridge returns a switch. The caller must run loop and then close, or only close.
func newBridge(log *slog.Logger, now func() time.Time, queueLimit int) (*bridge, error) {
	b := &bridge{
		log: log, now: now, queueLimit: queueLimit, started: now(),
		epfd: -1, wakefd: -1, spare: -1,
		sources: make(map[int32]source),
		table:   newTable(),
		buf:     make([]byte, readSize),
		epoch:   time.Now(), readLimit: readSize,
	}
	var err error
	if b.epfd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("start switch: epoll_create1: %w", err)
	}
	if b.wakefd, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return nil, errors.Join(fmt.Errorf("start switch: eventfd: %w", err), b.close())
	}
	if b.spare, err = openSpare(); err != nil {
		return nil, errors.Join(fmt.Errorf("start switch: %w", err), b.close())
	}
	if _, err := b.watch(b.wakefd, waker{b}); err != nil {
		return nil, errors.Join(fmt.Errorf("start switch: %w", err), b.close())
	}
	return b, nil
}

func openSpare() (int, error) { return unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0) }

// watch requests only EPOLLIN, because on a unix stream each read by the peer causes an EPOLLOUT, which would wake the
// loop for nothing.
func (b *bridge) watch(fd int, src source) (int32, error) {
	for {
		b.lastID++
		if _, used := b.sources[b.lastID]; !used {
			break
		}
	}
	ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: b.lastID}
	if err := unix.EpollCtl(b.epfd, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
		return 0, fmt.Errorf("epoll_ctl add: %w", err)
	}
	b.sources[b.lastID] = src
	return b.lastID, nil
}

// unwatch leaves the descriptor in the epoll set until it is closed.
func (b *bridge) unwatch(id int32) { delete(b.sources, id) }

func (b *bridge) loop() error {
	defer b.refuseCalls()
	events := make([]unix.EpollEvent, maxEvents)
	for !b.stop {
		n, err := unix.EpollWait(b.epfd, events, -1)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return fmt.Errorf("switch: epoll_wait: %w", err)
		}
		if err := b.handle(events[:n]); err != nil {
			return err
		}
	}
	return nil
}

func (b *bridge) handle(events []unix.EpollEvent) error {
	b.turn.Lock()
	defer b.turn.Unlock()
	for _, ev := range events {
		// An earlier event may have closed the source.
		if src := b.sources[ev.Fd]; src != nil {
			src.ready(ev.Events)
		}
	}
	return b.runLinks()
}

// do runs fn in the loop and returns its error, or errStopped if the loop has ended. It must not be called from the
// loop.
func (b *bridge) do(fn func() error) error {
	c := call{fn, make(chan error, 1)}
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return errStopped
	}
	b.calls = append(b.calls, c)
	_, err := unix.Write(b.wakefd, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // native-endian uint64, not 0
	b.mu.Unlock()
	if err != nil && err != unix.EAGAIN { // EAGAIN: the counter is full, so the loop is awake
		return fmt.Errorf("wake the switch: %w", err)
	}
	return <-c.done
}

func (b *bridge) halt() error { return b.do(func() error { b.stop = true; return nil }) }

func (b *bridge) refuseCalls() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	for _, c := range b.calls {
		c.done <- errStopped
	}
	b.calls = nil
}

type waker struct{ b *bridge }

func (w waker) ready(uint32) {
	w.b.mu.Lock()
	var counter [8]byte
	if _, err := unix.Read(w.b.wakefd, counter[:]); err != nil && err != unix.EAGAIN && err != unix.EINTR {
		w.b.log.Error("fabric: read eventfd", "error", err)
	}
	calls := w.b.calls
	w.b.calls = nil
	w.b.mu.Unlock()
	for _, c := range calls {
		c.done <- c.fn()
	}
}

// close ends all connections, after the loop.
func (b *bridge) close() error {
	b.refuseCalls()
	b.turn.Lock()
	defer b.turn.Unlock()
	var errs []error
	b.ports = slices.DeleteFunc(b.ports, (*port).between)
	// From the end, so that no port moves in the list.
	for len(b.ports) > 0 {
		errs = append(errs, b.removePort(b.ports[len(b.ports)-1].Name))
	}
	if b.timer != nil {
		unix.Close(b.timer.fd)
	}
	for _, fd := range []int{b.spare, b.wakefd, b.epfd} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	return errors.Join(errs...)
}

// addPort creates a port. It must run in the loop, or before it starts, like all functions that change ports.
func (b *bridge) addPort(def Port) error {
	if err := def.validate(); err != nil {
		return err
	}
	switch {
	case b.net == nil && def.Leaf != 0:
		return fmt.Errorf("add port %q at leaf %d: there is one switch: leave the leaf out", def.Name, def.Leaf)
	case b.net != nil && (def.Leaf < 0 || def.Leaf >= b.net.Leaves):
		return fmt.Errorf("add port %q at leaf %d: want 0 to %d", def.Name, def.Leaf, b.net.Leaves-1)
	}
	for _, p := range b.ports {
		if p.Name == def.Name && p.between() {
			return fmt.Errorf("add port %q: a link between switches has this name: choose another name", def.Name)
		}
		if p.Name == def.Name {
			return fmt.Errorf("add port %q: the switch has a port of this name, at %q: remove it first or choose "+
				"another name", def.Name, p.Path)
		}
		if p.Path == def.Path {
			return fmt.Errorf("add port %q: port %q listens at %q already: choose another path", def.Name, p.Name,
				def.Path)
		}
	}
	sock, err := bind(def.Path)
	if err != nil {
		return fmt.Errorf("add port %q: %w", def.Name, err)
	}
	p := &port{Port: def, b: b, sock: sock, sw: def.Leaf}
	p.counters.Since = b.now()
	if p.id, err = b.watch(sock.fd, p); err != nil {
		return errors.Join(fmt.Errorf("add port %q: %w", def.Name, err), sock.close())
	}
	b.ports = append(b.ports, p)
	if m, _ := def.address(); m != 0 {
		b.table.owners[m] = p
	}
	for _, t := range b.taps {
		t.addPort(p)
	}
	return nil
}

func (b *bridge) tellDirect() {
	seen := len(b.taps) > 0 || b.net != nil ||
		slices.ContainsFunc(b.ports, func(p *port) bool { return p.link.Impaired() })
	if b.tell != nil && seen != b.seen {
		b.tell(!seen)
	}
	b.seen = seen
}

// tellDown reports ports that were set down or up, or have a new NIC. It must not run in the loop.
func (b *bridge) tellDown(names []string) error {
	if b.down == nil {
		return nil
	}
	b.downMu.Lock()
	defer b.downMu.Unlock()
	var errs []error
	for _, name := range names {
		i, is := -1, false
		err := b.do(func() error { // another call may have changed the state
			if i = b.portIndex(name); i >= 0 {
				is = b.ports[i].link.Down
			}
			if i >= 0 && b.ports[i].between() {
				i = -1 // no NIC
			}
			return nil
		})
		if err == nil && i >= 0 {
			err = b.down(name, is)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// portIndex returns -1 for an unknown port.
func (b *bridge) portIndex(name string) int {
	return slices.IndexFunc(b.ports, func(p *port) bool { return p.Name == name })
}

func (b *bridge) removePort(name string) error {
	i := b.portIndex(name)
	if i < 0 {
		return fmt.Errorf("remove port %q: the switch has no such port", name)
	}
	p := b.ports[i]
	if p.between() {
		return fmt.Errorf("remove port %q: it is a link between switches, which stays as long as they run", name)
	}
	b.ports = slices.Delete(b.ports, i, i+1)
	if b.net != nil {
		b.net.flows.forget(p)
	}
	if m, _ := p.address(); b.table.owners[m] == p {
		delete(b.table.owners, m)
	}
	b.tellDirect()
	if p.conn != nil {
		p.conn.close()
	}
	b.unshape(p)
	b.unwatch(p.id)
	if err := p.sock.close(); err != nil {
		return fmt.Errorf("remove port %q: %w", name, err)
	}
	return nil
}

const (
	// ageing is the time after an address's last frame: the default of IEEE 802.1D (section 7.9.2) and of the Linux
	// bridge.
	ageing = 300 * time.Second

	// macsPerPort keeps a node that invents addresses from crowding out others. A node may bridge a thousand
	// containers.
	macsPerPort = 1024

	// sweepEvery is the least time between searches for aged entries of a full port, so that a flood of addresses costs
	// one search a second instead of one a frame.
	sweepEvery = time.Second
)

// A table maps addresses to ports. It has no timer: lookups ignore aged entries, which are removed when their port
// needs the room.
type table struct {
	entries map[mac]*entry
	owners  map[mac]*port // by Port.MAC
}

type entry struct {
	port *port
	seen int64 // Unix nanoseconds of the last frame
}

func newTable() *table { return &table{entries: make(map[mac]*entry), owners: make(map[mac]*port)} }

// lookup returns nil for an unknown m; now is in Unix nanoseconds.
func (t *table) lookup(m mac, now int64) *port {
	e := t.entries[m]
	if e == nil || now-e.seen > int64(ageing) {
		return nil
	}
	return e.port
}

// learn records that m is behind p, or returns false if p has too many addresses; frames to m are then flooded. It
// ignores the address of another machine's NIC, whose traffic p must not capture.
func (t *table) learn(m mac, p *port, now int64) bool {
	if m.group() || m == 0 {
		return true // no station has such an address, and a frame that claims it must not capture traffic
	}
	if o := t.owners[m]; o != nil && o != p && (o.Node == "" || o.Node != p.Node) {
		p.counters.Foreign++
		return true
	}
	e := t.entries[m]
	if e != nil && e.port == p {
		e.seen = now
		return true
	}
	if p.macs >= macsPerPort && !t.sweep(p, now) {
		return false
	}
	if e != nil { // the station moved, or two share an address
		e.port.macs--
		p.counters.Moves++
	}
	t.entries[m] = &entry{port: p, seen: now}
	p.macs++
	return true
}

// sweep removes aged entries and reports whether p is below its limit now.
func (t *table) sweep(p *port, now int64) bool {
	if now-p.swept < int64(sweepEvery) {
		return false
	}
	p.swept = now
	for m, e := range t.entries {
		if e.port == p && now-e.seen > int64(ageing) {
			delete(t.entries, m)
			p.macs--
		}
	}
	return p.macs < macsPerPort
}

func (t *table) forget(p *port) {
	if p.macs > 0 { // saves the search for ports that reconnect in vain
		for m, e := range t.entries {
			if e.port == p {
				delete(t.entries, m)
			}
		}
	}
	p.macs = 0
}

func (t *table) size(now int64) int {
	n := 0
	for _, e := range t.entries {
		if now-e.seen <= int64(ageing) {
			n++
		}
	}
	return n
}
