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

// Port is an adapter with one port.
type Port struct {
	s     *Server
	id    int
	nic   NIC
	model model
	vfu   *vfiouser.Server
	mem   *vfiouser.Memory

	// maps is read-locked while the guest's memory is in use, and write-locked while its table changes, with no other
	// lock held.
	maps sync.RWMutex
	// mu guards the fields below, except the atomics. Two ports are locked in the order of their ids (see lockPeer).
	//
	// The lock order is outMu, maps for reading, mu, Server.mu, the locks of vfiouser. A thread with mu must not wait
	// for maps: a writer may wait for a reader that waits for mu.
	mu sync.Mutex
	// frozen means that a thread with mu has released it to wait for the client (see ask), and alone uses the fields
	// until thaw.
	frozen bool
	thaw   sync.Cond
	// visited means locked by another port's thread, visiting that this one's has locked another.
	visited, visiting bool
	// private means queues in memory without a file. Messages then use the wire, because no other port must wait for
	// the client.
	private atomic.Bool
	until   time.Duration // end of the current turn; 0 before its first call of spent
	tables
	config [4096]byte
	// configCopy is valid unless configChanged is set.
	configCopy    *[4096]byte
	configChanged bool
	icmd          icmd
	link          bool
	gone          bool // Close was called
	connected     bool
	restored      bool // by Restore; the reset at QEMU's start has not come yet
	fault         Fault
	faults        int             // number of changes of fault
	broken        bool            // the fault takes the link down
	dark          bool            // virtual function: its port's link is down
	far           *Port           // port at the other end of the cable; see Join
	downAt        []time.Duration // times at which the link last went down
	crashed       string          // the panic that stopped the adapter
	resets        uint64
	refused       uint64 // claims of another port's address
	downs         uint64 // times the link went down; the guest's own counter restarts with each reset
	in, out       []byte
	outLen        int
	waiting       map[*queue]time.Duration
	rxFree        time.Duration // when all copied messages are delivered
	net           *roce.Port
	netDirty      bool          // net must be polled
	netAt         time.Duration // latest time to poll net
	failed        []*queue      // queues with a failed wireQP
	loop          []byte        // frames from the port to itself, in the form of frames
	looped        bool          // net receives one of them
	wr            sendWR
	wqe           [maxWQE]byte
	list          []seg // for one call of domain.copy
	begun         begun
	src, dst      []seg
	dropped       []byte // memory of fillKey for writes
	memory        deviceMemory
	// verifiedPeerQueue leads back to this port, during a batch: both ports stay locked, so they keep their addresses.
	verifiedPeerQueue *queue
	paths             []path // to memory of the guest's other devices

	shown atomic.Pointer[registers] // for reads without the lock
	beat  atomic.Uint32

	wakeAt atomic.Int64 // the earliest deadline
	timer  *timer
	lines  atomic.Int32 // in the log
	light  atomic.Bool  // the other end of the cable sees the port

	outMu  sync.Mutex // keeps the order of frames to the cable
	frames []byte     // for the cable after unlock, as NIC.Batch
	spare  []byte     // for reuse as frames
	// cable is the bytes in frames, in loop, and in batches that the cable has not taken yet.
	cable int
	given atomic.Int64 // bytes taken, still in cable
	held  bool         // net is on hold, because too much waits
}

// Above cableHigh waiting bytes the port sends nothing until only cableLow are left. cableHigh is small because waiting
// frames are still sent after a pause.
const (
	cableHigh = 64 << 10
	cableLow  = 32 << 10
)

// drainedCable resumes a port on hold: at once if here is set, or else by the timer.
func (p *Port) drainedCable(here bool) {
	p.cable -= int(p.given.Swap(0))
	if !p.resume() {
		return
	}
	now := p.s.now()
	if here {
		p.poll(now)
		return
	}
	p.netAt = now
	p.wakeBy(now)
}

// queued puts the port on hold if too much waits.
func (p *Port) queued(n int) {
	if p.cable += n; !p.held && p.cable > cableHigh {
		p.held = true
		p.net.Hold(true)
	}
}

func (p *Port) resume() bool {
	if !p.held || p.cable > cableLow {
		return false
	}
	p.held = false
	p.net.Hold(false)
	return true
}

const (
	// Without limits a guest could use up the memory of the process, which serves all NICs of the lab. At 8 bytes a
	// page address maxPages is 128 MiB.
	maxObjects = 1 << 18
	maxPages   = 1 << 24 // page addresses in all objects
	// queuePages is charged for a queue with one request in flight. maxInFlight limits the bytes of further requests.
	queuePages  = 4096 / 8
	maxInFlight = 64 << 20
)

// lock keeps guest memory in place: slices stay valid until unlock, because a DMA_UNMAP waits for the write lock on
// maps.
func (p *Port) lock() {
	p.acquire()
	p.until = 0
}

func (p *Port) acquire() {
	p.maps.RLock()
	p.mu.Lock()
	p.awaitThaw()
}

func (p *Port) release() {
	p.mu.Unlock()
	p.maps.RUnlock()
}

// awaitThaw releases mu meanwhile.
func (p *Port) awaitThaw() {
	for p.frozen {
		p.thaw.Wait()
	}
}

// ask calls f, which waits for the client, with the port frozen: a slow client must delay only its own guest, so
// threads that can do without the port go on. While two ports are locked, neither asks.
func (p *Port) ask(f func() bool) bool {
	if p.visited || p.visiting {
		return false
	}
	p.frozen = true
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		p.frozen = false
		p.thaw.Broadcast()
	}()
	return f()
}

// maxTurn limits the work for a port, because others await its lock.
const maxTurn = time.Millisecond

// spent reports whether the turn, which begins with the first call, has lasted long enough. Work without a small bound
// asks after each step, and leaves the rest to the next tick.
func (p *Port) spent() bool {
	now := p.s.now()
	if p.until == 0 {
		p.until = now + maxTurn
	}
	return now >= p.until
}

// unlock unlocks the port and sends queued frames without the lock, because Frames may block or call Deliver of another
// port. If deferred, it also recovers from a panic (see crash).
func (p *Port) unlock() {
	if v := recover(); v != nil {
		p.crash(v)
	}
	if p.given.Load() > 0 {
		p.guard(func() { p.drainedCable(true) })
	}
	if p.netDirty {
		p.guard(p.pollNow)
	}
	n := len(p.frames)
	p.publish()
	p.release()
	if n > 0 {
		p.flushFrames()
	}
}

// appendFrame appends a frame to a batch, and nextFrame removes the first. It returns nil unless the batch begins with
// a complete frame.
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

// flushTurns limits how often flushFrames lets the port produce more frames, because the caller may be a guest's
// thread.
const flushTurns = 8

// flushFrames passes queued frames to the cable. TryLock keeps their order without waiting: the owner of outMu also
// sends frames that others queue. Two buffers alternate, so nothing is allocated.
func (p *Port) flushFrames() {
	for p.outMu.TryLock() {
		for i := 0; ; i++ {
			p.lock()
			p.guard(func() { p.drainedCable(i < flushTurns) })
			batch := p.frames
			p.frames, p.spare = p.spare[:0], batch
			p.release()
			if len(batch) == 0 {
				break
			}
			p.given.Add(int64(p.give(batch)))
		}
		p.outMu.Unlock()
		// A goroutine may have found outMu locked and not sent its frame.
		p.mu.Lock()
		n := len(p.frames)
		p.mu.Unlock()
		if n == 0 {
			return
		}
	}
}

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

// lockPeer locks another port. locked is false if that cannot be entered. kept is false if this port was unlocked
// meanwhile, so the caller must read its tables again. To avoid a deadlock, it waits for a lower id only with no port
// locked.
func (p *Port) lockPeer(o *Port) (locked, kept bool) {
	if !o.maps.TryRLock() {
		return false, true
	}
	kept = true
	if p.id < o.id {
		o.mu.Lock()
	} else if !o.mu.TryLock() {
		kept = false
		p.mu.Unlock()
		o.mu.Lock()
		p.mu.Lock()
	}
	if o.frozen || p.frozen {
		o.release()
		p.awaitThaw()
		return false, kept
	}
	o.visited, p.visiting = true, true
	return true, kept
}

// maxLines keeps a guest from filling the log.
const maxLines = 1000

func (p *Port) logf(format string, args ...any) {
	if p.s.opt.Log != nil && p.lines.Add(1) <= maxLines {
		p.s.opt.Log(p.nic.Name+": "+format, args...)
	}
}

func (p *Port) tick(now time.Duration) {
	p.lock()
	defer p.unlock()
	p.wakeAt.Store(int64(never))
	for q, at := range p.waiting {
		if at <= now {
			delete(p.waiting, q)
			p.runSend(q)
		}
		if p.spent() {
			break // other queues continue after the waiting ones
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

func (p *Port) wait(q *queue, at time.Duration) {
	p.waiting[q] = at
	p.wakeBy(at)
}

// Deliver accepts a frame from the wire, and keeps no reference.
func (p *Port) Deliver(frame []byte) {
	p.lock()
	defer p.unlock()
	p.deliver(p.s.now(), frame)
}

// DeliverBatch takes frames as of NIC.Batch. The port answers at the end, so that one acknowledgement covers many.
func (p *Port) DeliverBatch(frames []byte) {
	p.lock()
	defer p.unlock()
	now := p.s.now()
	for f, rest := nextFrame(frames); f != nil; f, rest = nextFrame(rest) {
		p.deliver(now, f)
	}
}

// Receive delivers batches of next until it returns nothing. A panic of next fails the adapter, but Receive continues.
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

// SetLink plugs the cable in or unplugs it.
func (p *Port) SetLink(up bool) {
	p.lock()
	defer p.unlock()
	was := p.up()
	p.link = up
	p.linkChanged(was)
}

// Close removes the adapter; its guest then reads all ones. It drops the tables last, because the connection's thread
// uses them until vfu.Close returns.
func (p *Port) Close() error {
	p.acquire()
	p.gone, p.link = true, false
	p.publish()
	p.release()
	err := p.vfu.Close()
	p.timer.close()
	p.lock()
	p.dropState()
	p.memory.close()
	p.unlock()
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	left := lists.Filter(p.s.ports, func(o *Port) bool { return o != p })
	p.s.ports = left
	return err
}

// setGID sets row i of the address table, or returns false: an address belongs to its network's first port until that
// gives it up, or a guest could take over another's messages. The server's map has its own lock, because all ports read
// it for each message.
func (p *Port) setGID(i uint32, g gidEntry) bool {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	k := p.gidKey(g)
	if owner := p.s.gids[k]; g.GID != ([16]byte{}) && owner != nil && owner != p {
		return false
	}
	if old := p.GIDs[i]; old.GID != ([16]byte{}) {
		// Versions 1 and 2 of an address have separate rows.
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

// dropState drops the driver's state and frames for the cable. The old roce.Port is garbage then, because all callers
// use p.net.
func (p *Port) dropState() {
	p.s.mu.Lock()
	maps.DeleteFunc(p.s.gids, func(_ gidKey, o *Port) bool { return o == p })
	p.s.mu.Unlock()
	p.tables = newTables()
	p.net = roce.NewPort(roce.PortConfig{Wire: (*wire)(p), Room: (*wire)(p).room,
		Connections: uint64(time.Now().UnixNano()), Memory: maxInFlight, Yield: p.spent,
		Rate: uint64(p.nic.RateBits), Congestion: &p.Cong, QoS: &p.QoS, Group: p.group, Line: p.nic.Cable.sending()})
	p.memory.clear()
	p.begun, p.looped = begun{}, false
	p.netDirty, p.netAt, p.failed, p.rxFree = false, never, nil, 0
	p.waiting = map[*queue]time.Duration{}
	p.wakeAt.Store(int64(never))
	for _, b := range [][]byte{p.frames, p.loop} {
		for f, rest := nextFrame(b); f != nil; f, rest = nextFrame(rest) {
			p.cable -= len(f)
		}
	}
	p.frames, p.loop, p.held = p.frames[:0], nil, false
}

const never = time.Duration(math.MaxInt64)

// timer calls a port at its deadlines. It has its own thread, because Go's timers are late by up to a millisecond in an
// idle program, and wires need microseconds; and each port has one, so that no guest or client delays others.
//
// Deadlines need no lock. wakeBy stores wakeAt, then reads until; sleep stores until, then reads wakeAt. So one of them
// sees the other's value.
type timer struct {
	p      *Port
	fd     int          // eventfd that ends a sleep
	until  atomic.Int64 // end of the current sleep
	closed atomic.Bool
	done   chan struct{}
}

// newTimer returns a timer, which run starts. A write to the eventfd never blocks, so a port may wake it with its lock
// held.
func newTimer(p *Port) *timer {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		fd = -1 // sleep then takes short steps
	}
	t := &timer{p: p, fd: fd, done: make(chan struct{})}
	t.until.Store(int64(never))
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
	// Guests that spin on their CPUs would delay the thread by milliseconds. This needs root.
	_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), vfiouser.Nice)
	// By default the kernel may wake a thread 50 us late, to save power.
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1000, 0, 0, 0)
	for !t.closed.Load() {
		t.until.Store(0) // sleep reads a deadline set during the tick
		if now := t.p.s.now(); t.p.wakeAt.Load() <= int64(now) {
			t.p.tick(now)
		}
		t.sleep()
	}
}

func (t *timer) sleep() {
	until := t.p.wakeAt.Load()
	t.until.Store(until)
	// The port may have set an earlier deadline.
	d := time.Duration(min(until, t.p.wakeAt.Load())) - t.p.s.now()
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

// wakeBy requests a tick. The port's lock is held.
func (p *Port) wakeBy(at time.Duration) {
	if int64(at) >= p.wakeAt.Load() {
		return
	}
	p.wakeAt.Store(int64(at))
	if t := p.timer; t != nil && int64(at) < t.until.Load() {
		t.until.Store(int64(at))
		t.wake()
	}
}
