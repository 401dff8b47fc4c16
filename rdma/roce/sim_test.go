package roce

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

type space map[uint32]*region

type region struct {
	base uint64
	b    []byte
	a    Access
}

func (s space) at(key uint32, va, n uint64, a Access) ([]byte, error) {
	r := s[key]
	switch {
	case r == nil:
		return nil, FaultKey
	case r.a&a != a:
		return nil, FaultRights
	case va < r.base || n > uint64(len(r.b)) || va-r.base > uint64(len(r.b))-n:
		return nil, FaultRange
	}
	return r.b[va-r.base:][:n], nil
}

func (s space) Check(key uint32, va, n uint64, a Access) error {
	_, err := s.at(key, va, n, a)
	return err
}

func (s space) Read(key uint32, va uint64, dst []byte, a Access) error {
	b, err := s.at(key, va, uint64(len(dst)), a)
	copy(dst, b)
	return err
}

func (s space) Write(key uint32, va uint64, src []byte, a Access) error {
	b, err := s.at(key, va, uint64(len(src)), a)
	copy(b, src)
	return err
}

func (s space) Atomic(key uint32, va uint64, op AtomicOp) (uint64, error) {
	b, err := s.at(key, va, 8, RemoteAtomic)
	if err != nil {
		return 0, err
	}
	old := binary.LittleEndian.Uint64(b)
	binary.LittleEndian.PutUint64(b, op.Apply(old))
	return old, nil
}

func (s space) Invalidate(key uint32, remote bool) error {
	if s[key] == nil {
		return FaultKey
	}
	if remote && s[key].a&(LocalRead|LocalWrite) != 0 { // for the node itself
		return FaultRights
	}
	delete(s, key)
	return nil
}

func (s space) Update(key uint32, how []byte) Status {
	if s[key] == nil {
		return MemoryOp
	}
	s[key].a = Access(how[0])
	return OK
}

const (
	keyLocal  = 0x10
	keyRemote = 0x20
	regionLen = 1 << 20
	remoteVA  = 0x7000_0000
)

type node struct {
	sim    *sim
	port   *Port
	qp     *QP
	mem    space
	count  Counters
	cc     Congestion
	sends  []SendWR
	recvs  []RecvWR
	done   []Completion
	events []Event
	grh    *Packet
	frames int
}

func (n *node) NextSend(w *SendWR) bool {
	if len(n.sends) == 0 {
		return false
	}
	s := n.sends[0]
	n.sends = n.sends[1:]
	s.SG, s.Inline = append(w.SG, s.SG...), append(w.Inline, s.Inline...)
	*w = s
	return true
}

func (n *node) NextRecv(w *RecvWR) bool {
	if len(n.recvs) == 0 {
		return false
	}
	r := n.recvs[0]
	n.recvs = n.recvs[1:]
	w.ID, w.Mem, w.SG = r.ID, r.Mem, append(w.SG, r.SG...)
	return true
}

func (n *node) Complete(c *Completion) {
	n.done = append(n.done, *c)
	if c.From != nil {
		f := *c.From
		n.grh = &f
	}
}

func (n *node) Event(e Event) { n.events = append(n.events, e) }

func (n *node) Send(now time.Duration, frame []byte) {
	n.frames++
	n.sim.carry(n, now, frame)
}

// sim has a virtual clock. carry decides each frame's fate.
type sim struct {
	now   time.Duration
	nodes []*node
	net   []flight
	seq   int
	rand  *rand.Rand
	space int
	bare  bool
	carry func(from *node, now time.Duration, frame []byte)
	tap   func(frame []byte)
}

type flight struct {
	at    time.Duration
	seq   int
	to    *node
	frame []byte
}

func (s *sim) deliver(to *node, at time.Duration, frame []byte) {
	s.seq++
	f := flight{at, s.seq, to, slices.Clone(frame)}
	i, _ := slices.BinarySearchFunc(s.net, f, func(a, b flight) int {
		if a.at != b.at {
			return int(a.at - b.at)
		}
		return a.seq - b.seq
	})
	s.net = slices.Insert(s.net, i, f)
}

func (s *sim) run(until time.Duration) {
	for {
		next := until
		for _, n := range s.nodes {
			if t := n.port.Poll(s.now); t != never {
				next = min(next, max(t, s.now))
			}
		}
		if len(s.net) > 0 {
			next = min(next, s.net[0].at)
		}
		if next >= until {
			s.now = until
			return
		}
		s.now = next
		for len(s.net) > 0 && s.net[0].at <= s.now {
			f := s.net[0]
			s.net = s.net[1:]
			if s.tap != nil {
				s.tap(f.frame)
			}
			f.to.port.Receive(s.now, f.frame)
		}
	}
}

func (s *sim) peer(n *node) *node {
	if n == s.nodes[0] {
		return s.nodes[1]
	}
	return s.nodes[0]
}

// newSim returns connected QPs. carry delivers all frames after 2 us by default.
func newSim(t testing.TB, typ QPType, rate uint64, change func(*Attr)) *sim {
	return newSimOf(t, regionLen, typ, rate, change)
}

func newSimOf(t testing.TB, space int, typ QPType, rate uint64, change func(*Attr)) *sim {
	return (&sim{space: space}).start(t, typ, rate, change)
}

func (s *sim) start(t testing.TB, typ QPType, rate uint64, change func(*Attr)) *sim {
	s.rand = rand.New(rand.NewPCG(1, 2))
	s.carry = func(n *node, now time.Duration, frame []byte) { s.deliver(s.peer(n), now+2*time.Microsecond, frame) }
	for i := range 2 {
		s.add(t, i, typ, rate)
	}
	s.connect(t, s.nodes[0], s.nodes[1], change)
	s.connect(t, s.nodes[1], s.nodes[0], change)
	return s
}

func (s *sim) add(t testing.TB, i int, typ QPType, rate uint64) *node {
	n := &node{sim: s, cc: DefaultCongestion(), mem: space{
		keyLocal:  {base: 0x1000, b: make([]byte, s.space), a: LocalRead | LocalWrite},
		keyRemote: {base: remoteVA, b: make([]byte, s.space), a: RemoteRead | RemoteWrite | RemoteAtomic},
	}}
	n.port = NewPort(PortConfig{Wire: n, Rate: rate, Congestion: &n.cc, Bare: s.bare})
	var err error
	n.qp, err = n.port.NewQP(QPConfig{Type: typ, QPN: 0x100 + uint32(i), Owner: n, Mem: n.mem, Counters: &n.count})
	if err != nil {
		t.Fatal(err)
	}
	s.nodes = append(s.nodes, n)
	return n
}

func address(n *node) (mac [6]byte, gid GID) {
	id := byte(n.qp.cfg.QPN)
	return [6]byte{2, 0, 0, 0, 0, id}, GID{10: 0xff, 11: 0xff, 12: 10, 15: id}
}

func testPath(n, peer *node) (p Path) {
	p.SrcMAC, p.Src = address(n)
	p.DstMAC, p.Dst = address(peer)
	p.Prio = 3
	return p
}

func (s *sim) connect(t testing.TB, n, peer *node, change func(*Attr)) {
	a := Attr{Path: testPath(n, peer), RemoteQPN: peer.qp.cfg.QPN, MTU: 1024, RecvPSN: psnMask - 40,
		SendPSN: psnMask - 40,
		Access:  RemoteRead | RemoteWrite | RemoteAtomic, RNRTimer: 12, RNRRetry: 7, Retry: 7, AckTimeout: 8,
		MaxReads: 4, PeerReads: 4, QKey: 0x1234}
	if change != nil {
		change(&a)
	}
	for _, st := range []State{Init, ReadyToReceive, ReadyToSend} {
		if err := n.qp.Modify(st, &a); err != nil {
			t.Fatal(err)
		}
	}
}

func (n *node) post(w ...SendWR) {
	n.sends = append(n.sends, w...)
	n.qp.Doorbell()
}

func local(off, n int) []SGE {
	k := n / 3
	return []SGE{{Key: keyLocal, VA: 0x1000 + uint64(off), Len: uint32(k)},
		{Key: keyLocal, VA: 0x1000 + uint64(off+k), Len: uint32(n - k)}}
}

func (n *node) fill(key uint32) {
	for i := range n.mem[key].b {
		n.mem[key].b[i] = byte(n.sim.rand.Uint32())
	}
}

func (n *node) statuses() (l []string) {
	for _, c := range n.done {
		l = append(l, fmt.Sprintf("%d:%#x", c.ID, uint8(c.Status)))
	}
	return l
}
