package connectx

import (
	"math"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rackless/rackless/vfiouser"
)

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
