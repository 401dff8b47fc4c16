package connectx

import (
	"fmt"
	"runtime/debug"
	"strings"
)

// A panic in the service of one adapter is an error of this program, which a guest may have found.
// The adapters of the other nodes must not end with it: the adapter fails as with FatalError, with
// the stack in the log, and what its driver has set up is dropped, since nobody knows what of it is
// whole.

// guard calls f and ends its panic. The port's lock is held.
func (p *Port) guard(f func()) {
	defer func() {
		if v := recover(); v != nil {
			p.crash(v)
		}
	}()
	f()
}

// outside calls f, which leads out of the adapter, with nothing locked, and ends its panic: the cable is
// code of the lab's switch, whose frames are the guests' own.
func (p *Port) outside(f func()) {
	defer func() {
		if v := recover(); v != nil {
			p.s.maps.RLock()
			defer p.s.maps.RUnlock()
			p.mu.Lock()
			defer p.mu.Unlock()
			p.crash(v)
		}
	}()
	f()
}

// pollNow is poll at this moment.
func (p *Port) pollNow() { p.poll(p.s.now()) }

// crash makes an adapter fail whose service has panicked with v. It is called while the panic ends,
// so the stack is that of where it began. The driver finds its command queue and the state of the
// interface as they were, and the reason in the health buffer.
func (p *Port) crash(v any) {
	if p.s.strict {
		panic(v)
	}
	crashed := fmt.Sprint(v)
	p.logf("panic: %s", crashed)
	for line := range strings.Lines(string(debug.Stack())) {
		p.logf("%s", strings.TrimSpace(line))
	}
	queue, high, mode := p.CmdQ, p.CmdQHigh, p.NICMode
	p.dropState()
	p.CmdQ, p.CmdQHigh, p.NICMode = queue, high, mode
	p.fault, p.crashed = FatalError, crashed
	p.faults++
	p.cut(true)
}
