package connectx

import (
	"maps"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/rdma/roce"
	"github.com/rackless/rackless/rdma/vfiouser"
)

// Port is an adapter with its one port.
type Port struct {
	s     *Server
	id    int
	nic   NIC
	model model
	vfu   *vfiouser.Server
	mem   *vfiouser.Memory

	// mu guards all that follows, apart from the atomics. Two ports are locked in the order of their ids: see lockPeer.
	//
	// Order of the locks: outMu, Server.maps for reading, mu, Server.mu, those of vfiouser. Who holds mu must not take
	// maps again: a writer that waits between two read locks of a thread stops it for ever.
	mu sync.Mutex
	tables
	config [4096]byte
	// configCopy is what config was when it changed last, unless configChanged says that it is old.
	configCopy    *[4096]byte
	configChanged bool
	icmd          icmd
	link          bool
	gone          bool // Close was called
	connected     bool // a client is
	restored      bool // Restore was called, and the reset at QEMU's start is still to come
	fault         Fault
	faults        int             // how often it changed
	broken        bool            // the link is down because of it
	dark          bool            // of a virtual function: the link of its port is down
	far           *Port           // at the other end of a cable that joins two: see Join
	downAt        []time.Duration // when the link went down last
	crashed       string          // the panic that stopped the adapter
	resets        uint64
	downs         uint64 // how often the link went down; the guest's counter starts anew with each reset
	in, out       []byte // of the command that runs
	outLen        int
	waiting       map[*queue]time.Duration
	rxFree        time.Duration // when the wire has delivered all that was copied to the port
	net           *roce.Port
	netDirty      bool          // net is to be polled
	netAt         time.Duration // and when at the latest
	failed        []*queue      // whose wireQP has failed
	loop          []byte        // frames from the port to itself, as in frames
	wr            sendWR
	wqe           [maxWQE]byte // that is being parsed
	list          []seg        // for one call of domain.copy
	src, dst      []seg        // of the message that is being copied
	// answers is the queue of the peer that is known to lead back here, for the messages of one batch: until its end
	// both ports are locked, so that their addresses cannot go.
	answers *queue

	shown atomic.Pointer[registers] // for reads that come without the lock
	beat  atomic.Uint32

	wakeAt atomic.Int64 // the earliest deadline
	lines  atomic.Int32 // written to the log
	light  atomic.Bool  // the other end of the cable sees the port

	outMu  sync.Mutex // held while frames are given to the cable, so that they stay in order
	frames []byte     // to give to the cable after unlock, in the form of nic.Batch
	spare  []byte     // has the room of those before
	cable  int        // bytes of frames, and of those that the cable has not taken yet
	held   bool       // net sends nothing, as the cable takes nothing
}

// While more than cableHigh waits for the cable, the port sends nothing, until it is down to cableLow. This is what may
// still come after a pause, so it is small. A switch that takes nothing more stops the port so, too.
const (
	cableHigh = 64 << 10
	cableLow  = 32 << 10
)

// took notes that the cable has taken n bytes, and lets the port go on: here, or else by the timer.
func (p *Port) took(n int, here bool) {
	p.cable -= n
	if !p.held || p.cable > cableLow {
		return
	}
	p.held = false
	p.net.Hold(false)
	now := p.s.now()
	if here {
		p.poll(now)
		return
	}
	p.netAt = now
	p.wakeBy(now)
}

// limits of what a guest may allocate.
const (
	// Without them a guest could use up the memory of the process, which is that of all NICs of the lab. A page address
	// takes 8 bytes here: 128 MiB at the most.
	maxObjects = 1 << 18
	maxPages   = 1 << 24 // page addresses in all objects
)

// lock takes the port, and keeps guest memory in place. The read lock on maps lets slices of guest memory live until
// unlock. A client's DMA_UNMAP is answered only when nobody uses the range.
func (p *Port) lock() {
	p.s.maps.RLock()
	p.mu.Lock()
}

// unlock releases the port and sends the frames that were queued. No callback runs with the lock held: Frames leads
// into the lab's switch, which may call Deliver of another port or block. Deferred, it ends a panic of who held the
// lock: see crash.
func (p *Port) unlock() {
	if v := recover(); v != nil {
		p.crash(v)
	}
	if p.netDirty {
		p.guard(p.pollNow)
	}
	n := len(p.frames)
	p.publish()
	p.mu.Unlock()
	p.s.maps.RUnlock()
	if n > 0 {
		p.flushFrames()
	}
}

// appendFrame appends a frame in the form of a batch, and nextFrame takes the first off one. What does not begin with a
// whole frame has none.
func appendFrame(b, frame []byte) []byte {
	return append(be.AppendUint32(b, uint32(len(frame))), frame...)
}

func nextFrame(b []byte) (frame, rest []byte) {
	if len(b) < 4 || uint64(len(b)-4) < uint64(be.Uint32(b)) {
		return nil, nil
	}
	end := 4 + be.Uint32(b)
	return b[4:end:end], b[end:]
}

// flushTurns is how often who gives frames to the cable has the port make more: it may be a guest's thread, which is to
// return to its guest.
const flushTurns = 8

// flushFrames gives queued frames to the cable, one goroutine at a time. TryLock keeps them in order without waiting:
// whoever holds outMu sends what others queue meanwhile. Two buffers have turns, so nothing is allocated.
func (p *Port) flushFrames() {
	for p.outMu.TryLock() {
		for i, n := 0, 0; ; i++ {
			p.s.maps.RLock()
			p.mu.Lock()
			p.guard(func() { p.took(n, i < flushTurns) })
			batch := p.frames
			p.frames, p.spare = p.spare[:0], batch
			p.mu.Unlock()
			p.s.maps.RUnlock()
			if len(batch) == 0 {
				break
			}
			n = p.give(batch)
		}
		p.outMu.Unlock()
		// Whoever queued a frame in between found the lock taken, and left it to us.
		p.mu.Lock()
		n := len(p.frames)
		p.mu.Unlock()
		if n == 0 {
			return
		}
	}
}

// give gives a batch to the cable, and returns how many bytes the frames have.
func (p *Port) give(batch []byte) (n int) {
	for f, rest := nextFrame(batch); f != nil; f, rest = nextFrame(rest) {
		n += len(f)
	}
	p.outside(func() {
		if p.nic.Batch != nil {
			p.nic.Batch(batch)
			return
		}
		for f, rest := nextFrame(batch); f != nil && p.nic.Frames != nil; f, rest = nextFrame(rest) {
			p.nic.Frames(f)
		}
	})
	return n
}

// lockPeer locks another port besides this one. False: this one was released in between, so that what was read from its
// tables has to be read again; both are locked all the same. Two ports that send to each other would otherwise wait for
// each other. TryLock is free of that, so the lower id is only waited for with nothing held.
func (p *Port) lockPeer(o *Port) bool {
	if p.id < o.id {
		o.mu.Lock()
		return true
	}
	if o.mu.TryLock() {
		return true
	}
	p.mu.Unlock()
	o.mu.Lock()
	p.mu.Lock()
	return false
}

// maxLines is how many lines a port may write to the log, so that no guest can fill it.
const maxLines = 1000

func (p *Port) logf(format string, args ...any) {
	if p.s.opt.Log != nil && p.lines.Add(1) <= maxLines {
		p.s.opt.Log(p.nic.Name+": "+format, args...)
	}
}

// maxTick bounds one call of tick, as the ports share a thread. One guest that keeps its queues full would otherwise
// make all others late.
const maxTick = 2 * time.Millisecond

// tick runs what is due.
func (p *Port) tick(now time.Duration) {
	p.lock()
	defer p.unlock()
	p.wakeAt.Store(int64(never))
	for q, at := range p.waiting {
		if at <= now {
			delete(p.waiting, q)
			p.runSend(q)
		}
		if p.s.now()-now > maxTick {
			break // the others go on when all ports had their turn
		}
	}
	for _, at := range p.waiting {
		p.wakeBy(at)
	}
	if p.netAt <= now {
		p.poll(now)
	}
	p.wakeBy(p.netAt)
}

// wait lets a send queue run at a time.
func (p *Port) wait(q *queue, at time.Duration) {
	p.waiting[q] = at
	p.wakeBy(at)
}

// Deliver hands a frame from the wire to the port. The port keeps no reference to it.
func (p *Port) Deliver(frame []byte) {
	p.lock()
	defer p.unlock()
	p.deliver(p.s.now(), frame)
}

// DeliverBatch hands frames to the port in the form of NIC.Batch. What they ask for is answered at the end, so that one
// acknowledgement is enough for many.
func (p *Port) DeliverBatch(frames []byte) {
	p.lock()
	defer p.unlock()
	now := p.s.now()
	for f, rest := nextFrame(frames); f != nil; f, rest = nextFrame(rest) {
		p.deliver(now, f)
	}
}

// Receive hands the port what next returns, as DeliverBatch does, until that is nothing. A panic of next fails the
// adapter, and is no end.
func (p *Port) Receive(next func() []byte) {
	for more := true; more; {
		p.outside(func() {
			frames := next()
			if more = len(frames) > 0; more {
				p.DeliverBatch(frames)
			}
		})
	}
}

func (p *Port) deliver(now time.Duration, frame []byte) {
	if !p.up() {
		return
	}
	p.netDirty = true
	if !p.net.Receive(now, frame) {
		p.receive(frame)
	}
}

// SetLink plugs the cable in or pulls it.
func (p *Port) SetLink(up bool) {
	p.lock()
	defer p.unlock()
	was := p.up()
	p.link = up
	p.linkChanged(was)
}

// Close removes the adapter: its guest then reads all ones. gone stops accesses first, then the connection ends, and
// only then are the tables dropped: the thread of the connection uses them until vfu.Close returns.
func (p *Port) Close() error {
	p.mu.Lock()
	p.gone, p.link = true, false
	p.publish()
	p.mu.Unlock()
	err := p.vfu.Close()
	p.lock()
	p.dropState()
	p.unlock()
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	left := lists.Filter(p.s.ports, func(o *Port) bool { return o != p })
	p.s.ports = left
	return err
}

// setGID enters an address of the port where others find it. False: another port of the network has it, and nothing was
// changed. An address is that of the first port which claims it until that port gives it up, or a guest could take over
// the messages of another by its name. The map of the server has its own lock, as all ports read it on each message.
func (p *Port) setGID(i uint32, g gidEntry) bool {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	k := p.gidKey(g)
	if owner := p.s.gids[k]; g.GID != ([16]byte{}) && owner != nil && owner != p {
		return false
	}
	if old := p.GIDs[i]; old.GID != ([16]byte{}) {
		// Versions 1 and 2 of an address have an entry each.
		if k := p.gidKey(old); p.s.gids[k] == p && !p.hasGID(k, i) {
			delete(p.s.gids, k)
		}
	}
	if g.GID == ([16]byte{}) {
		delete(p.GIDs, i)
		return true
	}
	p.GIDs[i] = g
	p.s.gids[k] = p
	return true
}

func (p *Port) gidKey(g gidEntry) gidKey { return gidKey{p.nic.Network, g.GID, g.MAC} }

func (p *Port) hasGID(k gidKey, but uint32) bool {
	for i, g := range p.GIDs {
		if i != but && p.gidKey(g) == k {
			return true
		}
	}
	return false
}

// dropState forgets all that the driver set up. Frames which wait for the cable are dropped with it. The old roce.Port
// is left to the garbage collector: nothing calls it any more, as all its callers go through p.net.
func (p *Port) dropState() {
	p.s.mu.Lock()
	maps.DeleteFunc(p.s.gids, func(_ gidKey, o *Port) bool { return o == p })
	p.s.mu.Unlock()
	p.tables = newTables()
	p.net = roce.NewPort(roce.PortConfig{Wire: (*wire)(p), Room: (*wire)(p).room, Rate: uint64(p.nic.RateBits),
		Congestion: &p.Cong, QoS: &p.QoS, Group: p.group, Line: p.nic.Cable.sending()})
	p.netDirty, p.netAt, p.failed, p.loop, p.rxFree = false, never, nil, nil, 0
	p.waiting = map[*queue]time.Duration{}
	p.wakeAt.Store(int64(never))
	for f, rest := nextFrame(p.frames); f != nil; f, rest = nextFrame(rest) {
		p.cable -= len(f)
	}
	p.frames, p.held = p.frames[:0], false
}

// never is later than all deadlines.
const never = time.Duration(math.MaxInt64)

// timer calls the ports whose deadline has come. It has a thread of its own: Go's timers are late by up to a
// millisecond where a program is otherwise idle, and wires count in microseconds.
//
// A deadline is set and read without a lock. wakeBy stores wakeAt, then reads until; sleep stores until, then reads
// wakeAt. So at least one of the two sees the other's value, and no deadline is slept over.
type timer struct {
	s      *Server
	fd     int          // eventfd that ends a sleep
	until  atomic.Int64 // of the present sleep
	closed atomic.Bool
	done   chan struct{}
}

// newTimer starts the thread. The eventfd cannot block, so that a port may wake the timer with its lock held.
func newTimer(s *Server) *timer {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		fd = -1 // then it sleeps in short steps
	}
	t := &timer{s: s, fd: fd, done: make(chan struct{})}
	t.until.Store(int64(never))
	go t.run()
	return t
}

func (t *timer) close() {
	if t.closed.Swap(true) {
		return
	}
	t.wake()
	<-t.done
	_ = unix.Close(t.fd)
}

func (t *timer) wake() { _, _ = unix.Write(t.fd, []byte{1, 0, 0, 0, 0, 0, 0, 0}) }

func (t *timer) run() {
	runtime.LockOSThread()
	defer close(t.done)
	// Guests that spin on their CPUs would make it wait for milliseconds. It takes root.
	_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), vfiouser.Nice)
	// By default the kernel may wake a thread 50 us late, to save power.
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1000, 0, 0, 0)
	for !t.closed.Load() {
		t.sleep(t.pass())
	}
}

// pass calls the ports that are due, and returns the next deadline.
func (t *timer) pass() time.Duration {
	t.until.Store(0) // who sets a deadline now need not wake us: it is read below, or in the next pass
	next, now := never, t.s.now()
	t.s.mu.RLock()
	ports := t.s.ports
	t.s.mu.RUnlock()
	for _, p := range ports {
		if at := time.Duration(p.wakeAt.Load()); at <= now {
			p.tick(now)
		}
		next = min(next, time.Duration(p.wakeAt.Load()))
	}
	return next
}

func (t *timer) sleep(until time.Duration) {
	t.until.Store(int64(until))
	// A port may have set an earlier deadline since pass read it.
	t.s.mu.RLock()
	for _, p := range t.s.ports {
		until = min(until, time.Duration(p.wakeAt.Load()))
	}
	t.s.mu.RUnlock()
	d := until - t.s.now()
	if d <= 0 {
		return
	}
	d = min(d, time.Second)
	if t.fd < 0 {
		d = min(d, time.Millisecond)
	}
	if vfiouser.Wait(t.fd, d) {
		var b [8]byte
		_, _ = unix.Read(t.fd, b[:])
	}
}

// wakeBy asks for a call of tick at a time. The port's lock is held.
func (p *Port) wakeBy(at time.Duration) {
	if int64(at) >= p.wakeAt.Load() {
		return
	}
	p.wakeAt.Store(int64(at))
	if t := p.s.timer; int64(at) < t.until.Load() {
		t.until.Store(int64(at))
		t.wake()
	}
}
