package connectx

import (
	"testing"
	"time"
)

// virtual returns a physical function, two virtual functions of its port, and another adapter.
func virtual(t *testing.T, rate int64) (*Server, *Firmware, []*guest) {
	f, err := NewFirmware("", 1, 2)
	if err != nil {
		t.Fatal(err)
	}
	s, g := newLab(t, 4, NIC{RateBits: rate}, nil)
	cable := &Cable{}
	for i, g := range g[:3] {
		p := g.p
		p.lock()
		p.nic.VF, p.nic.Cable, p.nic.Firmware = i, cable, f
		if i > 0 {
			p.model.device = p.model.function
		}
		p.hardReset()
		p.unlock()
		g.boot()
	}
	return s, f, g
}

func upsOf(t *testing.T, g []*guest) func(what string, want ...bool) {
	return func(what string, want ...bool) {
		t.Helper()
		for i, w := range want {
			for end := time.Now().Add(waitLimit); g[i].p.Status().Up != w; time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("%s: the link of function %d is up: %v", what, i, !w)
				}
			}
		}
	}
}

// By default the firmware shows light even if the driver disables the link.
func TestPortsBackToBackFollowEachOther(t *testing.T) {
	_, _, g := virtual(t, 0)
	Join(g[0].p, g[3].p)
	ups, far := upsOf(t, g), g[3].p
	ups("joined", true, true, true, true)
	far.SetFault(Unplugged)
	ups("the cable is out at the other end", false, false, false, false)
	far.SetFault(Healthy)
	ups("and in again", true, true, true, true)
	g[0].p.SetFault(FatalError)
	ups("the firmware has stopped", false, false, false, false)
	g[0].p.ResetFunction()
	ups("and runs again", true, true, true, true)
	admin := func(status uint64) {
		d := make([]byte, 16)
		paosAdminStatus.put(d, status)
		far.lock()
		defer far.unlock()
		far.portState(d, d, true)
	}
	const up, down = 1, 2
	admin(down)
	ups("the driver of the other end does not want it", true, true, true, false)
	admin(up)
	w := tool{t, g[3].f}
	if st := w.set(tlvKeepLink|1<<16, make([]byte, 4)); st != 0 {
		t.Fatalf("status %d", st)
	}
	admin(down)
	ups("nor will the firmware after a reset", true, true, true, false)
	w.f.Reset()
	ups("after a reset", true, true, true, true)
	admin(down)
	ups("and neither does the firmware", false, false, false, false)
	w.f.Reset()
	ups("a reset has forgotten the driver", true, true, true, true)
}

func TestTheLinkOfAPortReachesItsVirtualFunctions(t *testing.T) {
	_, _, g := virtual(t, 0)
	ups := upsOf(t, g)
	p, vf := g[0].p, g[1].p
	p.SetLink(false)
	ups("the cable is out", false, false, false, true)
	vf.SetFault(Unplugged)
	p.SetLink(true)
	ups("a virtual function alone has a fault", true, false, true, true)
	vf.SetFault(Healthy)
	p.SetFault(Unplugged)
	ups("a fault of the port", false, false, false, true)
	p.SetFault(FatalError)
	p.ResetFunction()
	ups("a reset ends it", true, true, true, true)
	p.lock()
	p.AdminDown = true
	p.linkChanged(true)
	p.unlock()
	ups("the driver of the physical function does not want it", false, true, true, true)
	if n := vf.Status().LinkDowns; n < 2 {
		t.Errorf("a virtual function lost its link %d times", n)
	}
}

func TestVirtualFunctionsAreThereAsTheFirmwareSays(t *testing.T) {
	_, _, g := virtual(t, 0)
	w := []tool{{t, g[0].f}, {t, g[1].f}, {t, g[2].f}}
	seen := func(when string, want ...uint32) {
		t.Helper()
		for i, want := range want {
			if got := w[i].read(0); got != want {
				t.Errorf("%s: function %d reads %#x, want %#x", when, i, got, want)
			}
		}
	}
	const physical, function, none = 0x101515b3, 0x101615b3, 0xffffffff
	seen("as delivered", physical, function, function)
	if w[0].read(cfgVSC)&0xff != 9 || w[1].read(cfgVSC) != 0 || w[1].read(cfgMSIX)>>8&0xff != cfgPM {
		t.Error("the window to the firmware is not that of the physical function alone")
	}
	w[1].write(vscSemaphore, 7)
	if w[1].read(vscSemaphore) != 0 {
		t.Error("a virtual function has a window to the firmware")
	}
	v := w[0].setting(tlvPCI, 0)
	pciVFs.put(v, 1)
	w[0].set(tlvPCI, v)
	seen("set to 1", physical, function, function)
	w[2].f.Reset()
	seen("set to 1, after a reset of a virtual function", physical, function, function)
	w[0].f.Reset()
	seen("set to 1, after a reset", physical, function, none)
	b := make([]byte, 64)
	if w[2].f.Read(7, 0, b); le.Uint32(b) != function {
		t.Error("QEMU does not find the function that its guest does not see")
	}
	pciSRIOV.put(v, 0)
	w[0].set(tlvPCI, v)
	w[0].f.Reset()
	seen("switched off, after a reset", physical, none, none)
}

func TestFunctionsOfAPortShareItsCable(t *testing.T) {
	for _, direct := range []bool{true, false} {
		s, _, g := virtual(t, 1e9)
		s.SetDirect(direct)
		const n = 1 << 20
		var pairs [][2]*testQP
		for i := range 3 {
			a, b := g[i].newQP(serviceRC), g[3].newQP(serviceRC)
			a.connect(i, 3, b.num, nil)
			b.connect(3, i, a.num, nil)
			pairs = append(pairs, [2]*testQP{a, b})
		}
		to := g[3].alloc(n)
		kb := g[3].key(to, n, g[3].pd, allRights...)
		var sends []func()
		for i, p := range pairs {
			at := g[i].alloc(n)
			ka := g[i].key(at, n, g[i].pd, allRights...)
			sends = append(sends, func() {
				p[0].send(testWQE{op: wqeWrite, segs: [][]byte{remoteSeg(to, kb), dataSeg(at, ka, n)}})
			})
		}
		start := time.Now()
		for _, send := range sends {
			send()
		}
		for _, p := range pairs {
			if e := p[0].cq.wait(); e[63]>>4 != cqeRequest {
				t.Fatalf("completion %x", e)
			}
		}
		least := time.Duration(3*n*8) * time.Nanosecond
		if d := time.Since(start); d < least-catchUp { // a busy machine may take longer
			t.Errorf("direct %v: 3 MiB by three functions at 1 Gb/s took %v, %v at least", direct, d, least)
		}
	}
}
