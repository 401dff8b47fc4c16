package connectx

import (
	"bytes"
	"fmt"
	"path/filepath"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rackless/rackless/rdma/roce"
)

// A rig is a guest without a driver: a socket client maps its memory like QEMU.
type rig struct {
	*Port
	t    *testing.T
	ram  []byte
	qp   *queue
	sent uint16
	recv uint16
}

const (
	rigRAM   = 4 << 20
	rigSend  = 0x10000 // 64 blocks, after 64 receives
	rigDBR   = 0x20000
	rigCQ    = 0x30000 // 512 entries
	rigData  = 0x100000
	rigSize  = 0x200000 // of data; the key maps them at rigVA, with pages in reverse order
	rigVA    = 0x5000_0000
	rigKey   = 0x301 << 8
	rigPages = rigSize / 4096
)

func newRig(t *testing.T, s *Server, id byte, frames func([]byte)) *rig {
	t.Helper()
	n := NIC{Name: fmt.Sprint("nic", id), MAC: [6]byte{2, 0, 0, 0, 0, id}, Socket: filepath.Join(t.TempDir(), "s"),
		Link:  true,
		Model: ConnectX4Lx, Frames: frames}
	p, err := s.AddNIC(n)
	if err != nil {
		t.Fatal(err)
	}
	g := &rig{Port: p, t: t}
	fd, err := unix.MemfdCreate("ram", unix.MFD_CLOEXEC)
	if err == nil {
		err = unix.Ftruncate(fd, rigRAM)
	}
	if err == nil {
		g.ram, err = unix.Mmap(fd, 0, rigRAM, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err != nil {
		t.Fatal(err)
	}
	c, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.Connect(c, &unix.SockaddrUnix{Name: n.Socket})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = unix.Close(c), unix.Close(fd) })
	// VFIO_USER_DMA_MAP: size of the arguments, flags for reading and writing, offset, address, size.
	b := make([]byte, 48)
	le.PutUint16(b[2:], 2)
	le.PutUint32(b[4:], 48)
	le.PutUint32(b[16:], 32)
	le.PutUint32(b[20:], 3)
	le.PutUint64(b[40:], rigRAM)
	if err := unix.Sendmsg(c, b, unix.UnixRights(fd), nil, 0); err != nil {
		t.Fatal(err)
	}
	if n, err := unix.Read(c, b); err != nil || n < 16 || le.Uint32(b[12:]) != 0 {
		t.Fatalf("map: %d bytes, %v, error %d", n, err, le.Uint32(b[12:]))
	}
	return g
}

func (g *rig) gid() roce.GID { return roce.GID{10: 0xff, 11: 0xff, 12: 10, 15: g.nic.MAC[5]} }

func (g *rig) connect(peer *rig, service uint8) {
	g.lock()
	defer g.unlock()
	pages := func(at, n uint64) (l []uint64) {
		for i := range n {
			l = append(l, at+4096*i)
		}
		return l
	}
	back := pages(rigData, rigPages)
	for i := range rigPages / 2 {
		back[i], back[rigPages-1-i] = back[rigPages-1-i], back[i]
	}
	all := roce.LocalRead | roce.LocalWrite | roce.RemoteRead | roce.RemoteWrite | roce.RemoteAtomic
	g.Keys[rigKey>>8] = &mkey{Key: rigKey, PD: 1, Mode: modeMTT, Access: all, Start: rigVA, Len: rigSize, Shift: 12,
		Pages: back}
	g.CQs[0x400] = &cq{Num: 0x400, Log: 9, Overrun: true, Ring: ring{Pages: pages(rigCQ, 8), Shift: 12}}
	g.Counters[1] = &roce.Counters{}
	g.setGID(3, gidEntry{GID: g.gid(), MAC: g.nic.MAC, Version: 2})
	g.qp = &queue{Num: 0x200 + uint32(g.nic.MAC[5]), Kind: queueQP, Service: service, PD: 1, User: 7, SendCQ: 0x400,
		RecvCQ: 0x400, SendLog: 6, RecvLog: 6, StepLog: 4, SendOff: 1024, DBR: rigDBR, Counter: 1,
		Ctx:  make([]byte, qpcSize),
		Ring: ring{Pages: pages(rigSend, 2), Shift: 12}}
	g.Queues[g.qp.Num] = g.qp
	g.sent, g.recv = 0, 0
	clear(g.ram[rigDBR:][:8])
	path := g.path(3, peer.nic.MAC, peer.gid())
	path.Prio = 3
	g.qp.attr = roce.Attr{Path: path, RemoteQPN: 0x200 + uint32(peer.nic.MAC[5]), MTU: 1024, RNRTimer: 1, RNRRetry: 2,
		Retry:      3,
		AckTimeout: 20, MaxReads: 4, PeerReads: 4, QKey: 0x11, Access: all &^ (roce.LocalRead | roce.LocalWrite)}
	for _, st := range []roce.State{roce.Init, roce.ReadyToReceive, roce.ReadyToSend} {
		g.setState(g.qp, st)
	}
}

func (g *rig) post(op byte, imm uint32, segs ...[]byte) {
	w := make([]byte, 16)
	be.PutUint32(w, uint32(g.sent)<<8|uint32(op))
	w[11] = flagComplete
	be.PutUint32(w[12:], imm)
	for _, s := range segs {
		w = append(w, s...)
	}
	be.PutUint32(w[4:], g.qp.Num<<8|uint32(len(w)/16))
	w = append(w, make([]byte, -len(w)&63)...)
	for ; len(w) > 0; w = w[64:] {
		copy(g.ram[rigSend+1024+64*int(g.sent&63):], w[:64])
		g.sent++
	}
	be.PutUint32(g.ram[rigDBR+4:], uint32(g.sent))
	db := make([]byte, 8)
	be.PutUint32(db[4:], g.qp.Num<<8)
	g.lock()
	g.doorbell(dbSend, db)
	g.unlock()
}

func (g *rig) postRecv(off, n uint32) {
	copy(g.ram[rigSend+16*int(g.recv&63):], data(off, n))
	g.recv++
	be.PutUint32(g.ram[rigDBR:], uint32(g.recv))
}

func data(off, n uint32) []byte {
	b := be.AppendUint32(nil, n)
	b = be.AppendUint32(b, rigKey)
	return be.AppendUint64(b, rigVA+uint64(off))
}

func remote(off, key uint32) []byte {
	b := be.AppendUint64(nil, rigVA+uint64(off))
	return append(be.AppendUint32(b, key), 0, 0, 0, 0)
}

func (g *rig) to(peer *rig) []byte {
	b := make([]byte, avSize)
	be.PutUint32(b, 0x11)
	be.PutUint32(b[8:], 1<<31|peer.qp.Num)
	b[12] = 3
	copy(b[20:], peer.nic.MAC[:])
	b[27] = 64
	be.PutUint32(b[28:], 1<<30|3<<20)
	gid := peer.gid()
	copy(b[32:], gid[:])
	return b
}

func (g *rig) entries(n uint32) (l []string) {
	for range 4000 {
		g.lock()
		have := g.CQs[0x400].PI
		g.unlock()
		if have >= n {
			break
		}
		time.Sleep(time.Millisecond)
	}
	g.lock()
	defer g.unlock()
	for i := range min(g.CQs[0x400].PI, 512) {
		e := bytes.Clone(g.ram[rigCQ+64*i:][:64])
		clear(e[48:54])
		if e[63]>>4 < cqeReqError {
			clear(e[54:56])
		}
		l = append(l, fmt.Sprintf("%x", e))
	}
	return l
}

type outcome struct {
	CQEs     [2][]string
	Memory   [2][]byte
	Counters [2]roce.Counters
	Rx, Tx   [2]tally
	Switch   [2]tally // of a switch between them, by port
	PrioTx   [2]tally
	States   [2]roce.State
}

func play(t *testing.T, direct bool, service uint8, scenario func(a, b *rig)) (o outcome, frames int) {
	s := NewServer(Options{})
	defer s.Close()
	s.SetDirect(direct)
	var sent atomic.Int64
	var passed [2][2]atomic.Uint64
	var g [2]*rig
	for i := range g {
		g[i] = newRig(t, s, byte(i+1), func(f []byte) {
			sent.Add(1)
			passed[i][0].Add(1)
			passed[i][1].Add(uint64(len(f)))
			g[1-i].Deliver(f)
		})
		g[i].nic.Copied = func(tx, _ roce.Traffic) {
			passed[i][0].Add(tx.Packets)
			passed[i][1].Add(tx.Bytes)
		}
	}
	for i, r := range g {
		r.connect(g[1-i], service)
		for k := range rigSize {
			r.ram[rigData+k] = byte(k*7 + k>>9 + i)
		}
	}
	scenario(g[0], g[1])
	for _, r := range g {
		r.lock()
		r.unlock() // sends the frames in flight
	}
	for i, r := range g {
		o.CQEs[i] = r.entries(0)
		r.lock()
		o.Memory[i] = bytes.Clone(r.ram[rigData:][:rigSize])
		o.Counters[i], o.States[i] = *r.Counters[1], r.qp.State
		o.Rx[i], o.Tx[i] = r.rdma()
		o.Switch[i] = tally{Packets: passed[i][0].Load(), Bytes: passed[i][1].Load()}
		o.PrioTx[i] = r.Traffic.PrioTx[3]
		o.PrioTx[i].add(r.net.Counters.TxPrio[3])
		r.unlock()
	}
	return o, int(sent.Load())
}

func TestBothPathsGiveTheSame(t *testing.T) {
	atomicSeg := append(be.AppendUint64(nil, 5), make([]byte, 8)...)
	for _, c := range []struct {
		name    string
		service uint8
		do      func(a, b *rig)
	}{
		{"each operation", serviceRC, func(a, b *rig) {
			for i, n := range []uint32{0, 1, 1023, 1024, 1025, 60_000, 200_001} {
				b.postRecv(1<<20, 256<<10)
				a.post(wqeSend, 0, data(64, n))
				b.postRecv(1<<20, 256<<10)
				a.entries(uint32(5*i + 1))
				a.post(wqeSendImm, 77, data(100_000, n))
				a.entries(uint32(5*i + 2))
				a.post(wqeWrite, 0, remote(300_000, rigKey), data(8, n))
				a.entries(uint32(5*i + 3))
				b.postRecv(0, 0)
				a.post(wqeWriteImm, 78, remote(500_000, rigKey), data(9, n))
				a.entries(uint32(5*i + 4))
				a.post(wqeRead, 0, remote(3, rigKey), data(700_000, n))
				a.entries(uint32(5*i + 5))
			}
			a.post(wqeFetchAdd, 0, remote(800_000, rigKey), atomicSeg, data(0, 8))
			a.entries(36)
			a.post(wqeCmpSwap, 0, remote(800_000, rigKey), atomicSeg, data(16, 8))
			a.entries(37)
			b.entries(21)
		}},
		{"a write to no key", serviceRC, func(a, b *rig) {
			b.postRecv(0, 100)
			a.post(wqeWrite, 0, remote(0, 1), data(0, 5000))
			a.entries(1)
			a.post(wqeSend, 0, data(0, 5))
			a.entries(2)
			b.entries(1)
		}},
		{"a send that is too long", serviceRC, func(a, b *rig) {
			b.postRecv(0, 100)
			a.post(wqeSend, 0, data(0, 101))
			a.entries(1)
			b.entries(1)
		}},
		{"no receive", serviceRC, func(a, _ *rig) {
			a.post(wqeSend, 0, data(0, 5))
			a.entries(1)
		}},
		{"memory out of reach", serviceRC, func(a, _ *rig) {
			a.post(wqeWrite, 0, remote(0, rigKey), data(rigSize-4, 5))
			a.entries(1)
		}},
		{"an opcode that there is not", serviceRC, func(a, _ *rig) {
			a.post(0x77, 0)
			a.entries(1)
		}},
		{"unreliable connection", serviceUC, func(a, b *rig) {
			b.postRecv(1<<20, 5000)
			a.post(wqeSend, 0, data(0, 5000))
			a.post(wqeWrite, 0, remote(0, 1), data(0, 3000))
			a.post(wqeSend, 0, data(0, 50)) // lost without a posted receive
			a.entries(3)
			b.entries(1)
		}},
		{"datagrams", serviceUD, func(a, b *rig) {
			b.postRecv(1<<20, 5000)
			a.post(wqeSendImm, 6, a.to(b), data(0, 1000))
			b.postRecv(2000, 40)
			a.post(wqeSend, 0, a.to(b), data(0, 0))
			a.post(wqeSend, 0, a.to(b), data(0, 7)) // lost without a posted receive
			a.entries(3)
			b.entries(2)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			copied, none := play(t, true, c.service, c.do)
			framed, some := play(t, false, c.service, c.do)
			// Failing messages and datagrams always take the wire.
			if none != 0 && c.name == "each operation" {
				t.Errorf("%d frames on the wire though messages are copied", none)
			}
			if got := framed.Tx[0].Packets + framed.Tx[1].Packets; uint64(some) != got {
				t.Errorf("%d frames on the wire, %d counted", some, got)
			}
			x, y := reflect.ValueOf(copied), reflect.ValueOf(framed)
			for i := range x.NumField() {
				if a, b := x.Field(i).Interface(), y.Field(i).Interface(); !reflect.DeepEqual(a, b) {
					if mem, is := a.([2][]byte); is {
						for k := range mem {
							t.Errorf("memory %d equal: %v", k, bytes.Equal(mem[k], b.([2][]byte)[k]))
						}
						continue
					}
					t.Errorf("%s:\ncopied %+v\nframes %+v", x.Type().Field(i).Name, a, b)
				}
			}
			if len(copied.CQEs[0]) == 0 {
				t.Error("nothing was done")
			}
		})
	}
}

func TestCableThatIsStuckPausesThePort(t *testing.T) {
	s := NewServer(Options{})
	defer s.Close()
	stuck := make(chan bool)
	var out atomic.Int64
	g := newRig(t, s, 1, func([]byte) {
		<-stuck
		out.Add(1)
	})
	send := func() {
		g.lock()
		defer g.unlock()
		for range 100 {
			g.transmit(append([]byte{2}, make([]byte, 1499)...))
		}
	}
	go send()
	for range 200 {
		time.Sleep(time.Millisecond)
		if g.mu.TryLock() {
			n := g.cable
			g.mu.Unlock()
			if n > 0 {
				break
			}
		}
	}
	for range 100 {
		send()
	}
	g.lock()
	k := g.net.Counters
	if g.cable > cableHigh+1500 || !g.held || k.RxPause[3] != 0 {
		t.Errorf("%d bytes wait, held %v, %d pauses", g.cable, g.held, k.RxPause[3])
	}
	g.unlock()
	close(stuck)
	for range 4000 {
		time.Sleep(time.Millisecond)
		g.lock()
		k = g.net.Counters
		idle := g.cable == 0 && !g.held && g.net.Backlog() == 0
		g.unlock()
		if idle {
			break
		}
	}
	if uint64(out.Load()) != k.TxPrio[0].Packets || k.TxPrio[0].Packets+k.TxDropped != 101*100 {
		t.Errorf("%d frames out; counters %+v", out.Load(), k)
	}
}
