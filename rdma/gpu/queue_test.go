package gpu

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestChains expects that a wrong chain stops the GPU until it is reset.
func TestChains(t *testing.T) {
	info := command(cmdDisplayInfo, 0)
	const table = 0x60000
	entry := func(x *guest, i int, addr uint64, n uint32, flags, next uint16) {
		d := x.mem[table+16*i:]
		le.PutUint64(d, addr)
		le.PutUint32(d[8:], n)
		le.PutUint16(d[12:], flags)
		le.PutUint16(d[14:], next)
	}
	for _, c := range []struct {
		name  string
		chain func(x *guest) (head uint16)
		want  uint32
		sound bool
	}{
		{"a request in pieces", func(x *guest) uint16 {
			x.desc(0, 2, request0, 4, descNext, 3)
			x.desc(0, 3, request0+4, 0, descNext, 4)
			x.desc(0, 4, request0+4, 20, descNext, 5)
			x.desc(0, 5, answer0, 8, descWrite|descNext, 6)
			x.desc(0, 6, answer0+8, 1000, descWrite, 0)
			return 2
		}, 408, true},
		{"a long request", func(x *guest) uint16 {
			x.desc(0, 0, request0, 0x8000, descNext, 1)
			x.desc(0, 1, request0, 0xffffffff, descNext, 2) // not read, because the command is known
			x.desc(0, 2, answer0, 0xffffffff, descWrite, 0)
			return 0
		}, 408, true},
		{"little room for the answer", func(x *guest) uint16 {
			x.desc(0, 0, request0, 24, descNext, 1)
			x.desc(0, 1, answer0, 5, descWrite, 0)
			return 0
		}, 5, true},
		{"no room for the answer", func(x *guest) uint16 { x.desc(0, 0, request0, 24, 0, 0); return 0 }, 0, true},
		{"no request", func(x *guest) uint16 { x.desc(0, 0, answer0, 64, descWrite, 0); return 0 }, 24, true},
		{"a table", func(x *guest) uint16 {
			entry(x, 0, request0, 24, descNext, 2)
			entry(x, 2, answer0, 512, descWrite, 0)
			x.desc(0, 7, table, 48, descIndirect, 0)
			return 7
		}, 408, true},
		{"a chain and a table", func(x *guest) uint16 {
			x.desc(0, 7, request0, 24, descNext, 8)
			entry(x, 0, answer0, 512, descWrite, 0)
			x.desc(0, 8, table, 16, descIndirect, 0)
			return 7
		}, 408, true},
		{"as long as the queue", func(x *guest) uint16 {
			for i := range uint16(queueSize) {
				x.desc(0, i, request0, 24, descNext, i+1)
			}
			x.desc(0, queueSize-1, answer0, 512, descWrite, 0)
			return 0
		}, 408, true},
		{"a circle", func(x *guest) uint16 { x.desc(0, 0, request0, 24, descNext, 0); return 0 }, 0, false},
		{"a circle of answers", func(x *guest) uint16 {
			x.desc(0, 0, answer0, 24, descNext|descWrite, 1)
			x.desc(0, 1, answer0, 24, descNext|descWrite, 0)
			return 0
		}, 0, false},
		{"a head beyond the queue", func(*guest) uint16 { return queueSize }, 0, false},
		{"a link beyond the queue", func(x *guest) uint16 {
			x.desc(0, 0, request0, 24, descNext, 0xffff)
			return 0
		}, 0, false},
		{"the answer before the request", func(x *guest) uint16 {
			x.desc(0, 0, answer0, 24, descNext|descWrite, 1)
			x.desc(0, 1, request0, 24, 0, 0)
			return 0
		}, 0, false},
		{"a request beyond the memory", func(x *guest) uint16 { x.desc(0, 0, guestMemory, 24, 0, 0); return 0 }, 0,
			false},
		{"a request at an address that wraps", func(x *guest) uint16 {
			x.desc(0, 0, ^uint64(0)-4, 24, 0, 0)
			return 0
		}, 0, false},
		{"an answer beyond the memory", func(x *guest) uint16 {
			x.desc(0, 0, request0, 24, descNext, 1)
			x.desc(0, 1, guestMemory-8, 512, descWrite, 0)
			return 0
		}, 0, false},
		{"a table with a rest", func(x *guest) uint16 { x.desc(0, 0, table, 24, descIndirect, 0); return 0 }, 0, false},
		{"an empty table", func(x *guest) uint16 { x.desc(0, 0, table, 0, descIndirect, 0); return 0 }, 0, false},
		{"a huge table", func(x *guest) uint16 { x.desc(0, 0, table, 0xfffffff0, descIndirect, 0); return 0 }, 0,
			false},
		{"a table beyond the memory", func(x *guest) uint16 {
			x.desc(0, 0, guestMemory, 16, descIndirect, 0)
			return 0
		}, 0, false},
		{"a table that is not the last", func(x *guest) uint16 {
			x.desc(0, 0, table, 16, descIndirect|descNext, 1)
			return 0
		}, 0, false},
		{"a table in a table", func(x *guest) uint16 {
			entry(x, 0, table, 16, descIndirect, 0)
			x.desc(0, 0, table, 16, descIndirect, 0)
			return 0
		}, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := newGuest(t, Config{})
			x.boot()
			copy(x.mem[request0:], info)
			head := c.chain(x)
			x.offer(controlQueue, head)
			x.kick(controlQueue)
			if x.g.Status().Broken == c.sound {
				t.Fatalf("broken: %v", !c.sound)
			}
			if !c.sound {
				x.kick(controlQueue)
				if n, _, _ := x.used(controlQueue); n != 0 {
					t.Errorf("%d requests are answered", n)
				}
				x.driver()
				if a := x.command(cmdDisplayInfo, 0); a != respDisplayInfo || x.g.Status().Broken {
					t.Errorf("after a reset: %#x", a)
				}
				return
			}
			n, got, length := x.used(controlQueue)
			if n != 1 || got != head || length != c.want {
				t.Errorf("%d requests, head %d, %d bytes", n, got, length)
			}
		})
	}
}

// An index that is ahead of the queue stops the GPU.
func TestManyRequests(t *testing.T) {
	x := newGuest(t, Config{})
	x.boot()
	copy(x.mem[request0:], command(cmdDisplayInfo, 0))
	x.g.mu.Lock()
	x.next[0] = 0xfff8 // near their end
	x.g.virtio.Queues[0].Next, x.g.virtio.Queues[0].Done = x.next[0], x.next[0]
	x.g.mu.Unlock()
	for round := range uint16(40) {
		for i := range uint16(queueSize) {
			x.desc(controlQueue, i, request0, 24, 0, 0)
			x.offer(controlQueue, (i+round)%queueSize)
		}
		x.kick(controlQueue)
		if n, head, _ := x.used(controlQueue); n != x.next[0] || head != (queueSize-1+round)%queueSize {
			t.Fatalf("round %d: %d requests of %d, the last is %d", round, n, x.next[0], head)
		}
	}
	x.next[0] += queueSize
	x.offer(controlQueue, 0)
	x.kick(controlQueue)
	if !x.g.Status().Broken {
		t.Error("more requests than the queue holds are accepted")
	}
}

func TestInterrupts(t *testing.T) {
	x := newGuest(t, Config{})
	x.boot()
	x.setReg(x.common+0x16, 2, controlQueue)
	x.setReg(x.common+0x1a, 2, noVector) // so that ISR shows interrupts
	pending := func() bool { return x.reg(x.isr, 1) == interruptQueue }
	x.kick(controlQueue)
	if pending() {
		t.Error("an interrupt without a request")
	}
	x.command(cmdDisplayInfo, 0)
	if !pending() {
		t.Error("no interrupt for an answer")
	}
	if pending() {
		t.Error("reading ISR does not clear it")
	}
	le.PutUint16(x.mem[rings+availAt:], availNoInterrupt)
	x.command(cmdDisplayInfo, 0)
	if pending() {
		t.Error("an interrupt that the driver does not want")
	}
}

func TestNothingIsServedTooEarly(t *testing.T) {
	for _, c := range []struct {
		name    string
		prevent func(x *guest)
	}{
		{"not ready", func(x *guest) { x.setReg(x.common+0x14, 1, 3|statusFeaturesOK) }},
		{"no bus master", func(x *guest) { x.setCfg(cfgCommand, 2, commandMemory) }},
		{"reset", func(x *guest) { x.setReg(x.common+0x14, 1, 0) }},
		{"another queue", func(x *guest) { x.kick(cursorQueue) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := newGuest(t, Config{})
			x.boot()
			c.prevent(x)
			x.desc(controlQueue, 0, request0, 24, 0, 0)
			x.offer(controlQueue, 0)
			if c.name != "another queue" {
				x.kick(controlQueue)
			}
			if n, _, _ := x.used(controlQueue); n != 0 {
				t.Errorf("%d requests are answered", n)
			}
		})
	}
}

// Memory that disappears while a queue uses it stops the GPU.
func TestRingsWithoutMemory(t *testing.T) {
	for _, reg := range []uint64{0x20, 0x28, 0x30} {
		x := newGuest(t, Config{})
		x.boot()
		x.g.mu.Lock()
		q := &x.g.virtio.Queues[controlQueue]
		*[]*uint64{&q.Desc, &q.Avail, &q.Used}[(reg-0x20)/8] = 1 << 40
		x.g.mu.Unlock()
		x.desc(controlQueue, 0, request0, 24, 0, 0)
		x.offer(controlQueue, 0)
		x.kick(controlQueue)
		if !x.g.Status().Broken {
			t.Errorf("register %#x: the GPU goes on", reg)
		}
	}
}

// QEMU gets the file of the VRAM, and must not change its size.
func TestTheFileKeepsItsSize(t *testing.T) {
	x := newGuest(t, Config{})
	for _, size := range []int64{0, MinMemory - pageSize, 2 * MinMemory} {
		if err := unix.Ftruncate(x.g.fd, size); err != unix.EPERM {
			t.Errorf("to %d bytes: %v", size, err)
		}
	}
}
