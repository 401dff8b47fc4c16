package connectx

import (
	"testing"

	"github.com/rackless/rackless/rdma/roce"
)

// MLX5_CMD_OP_*_DCT.
const (
	opCreateDCT  = 0x710
	opDestroyDCT = 0x711
	opDrainDCT   = 0x712
	opQueryDCT   = 0x713
)

func (d *program) dct(pd uint32) (status, uint32) {
	st, out := d.try(opCreateDCT, 0, 0x100, func(in []byte) {
		putAll(in[0x10:], map[bits]uint64{dctcPd: uint64(pd), dctcKey: 7, dctcMtu: 3, dctcRwe: 1, dctcUserIndex: 5})
	})
	return st, be.Uint32(out[8:]) & 0xffffff
}

// A target is its program's own: it has a domain of that program, no other program can query, drain or destroy it, and
// it goes with the program. Of older cards it is refused.
func TestTargetsOfPrograms(t *testing.T) {
	_, gs := newLab(t, 2, NIC{Model: ConnectX5}, nil)
	g := gs[0]
	d, stranger := g.program(), g.program()
	if st, _ := d.dct(stranger.pd); st != badResource {
		t.Errorf("a target in the domain of another program: status %#x", st)
	}
	st, n := d.dct(d.pd)
	if st != ok {
		t.Fatalf("status %#x", st)
	}
	for _, op := range []uint16{opQueryDCT, opDrainDCT, opDestroyDCT} {
		if st, _ := stranger.try(op, n, 0x100, nil); st != badResource {
			t.Errorf("command %#x of another program: status %#x", op, st)
		}
	}
	_, out := d.try(opQueryDCT, n, 16, nil)
	if x := out[0x10:]; dctcKey.get(x) != 7 || dctcState.get(x) != 0 || dctcUserIndex.get(x) != 5 {
		t.Errorf("query: key %d, state %d, user index %d", dctcKey.get(x), dctcState.get(x), dctcUserIndex.get(x))
	}
	q := d.queues(serviceRC)
	if st, _ := d.try(opDrainDCT, q.num, 16, nil); st != badResource {
		t.Errorf("a queue pair is drained as a target: status %#x", st)
	}
	g.p.lock()
	before := g.p.Queues[n]
	g.p.unlock()
	if before.wire == nil || before.wire.qp.State() != roce.ReadyToReceive {
		t.Fatal("the target does not receive")
	}
	if st, _ := d.try(opDrainDCT, n, 16, nil); st != ok || before.wire != nil {
		t.Errorf("drained: status %#x", st)
	}
	if _, out := d.try(opQueryDCT, n, 16, nil); dctcState.get(out[0x10:]) != dctcDrained {
		t.Error("it is not said to be drained")
	}
	_, second := d.dct(d.pd)
	g.must(opDestroyUctx, uint32(d.uid), 16, nil)
	g.p.lock()
	if g.p.Queues[n] != nil || g.p.Queues[second] != nil {
		t.Error("targets are left of a program that is gone")
	}
	g.p.unlock()
	_, old := newLab(t, 1, NIC{}, nil)
	in := make([]byte, 0x100)
	be.PutUint16(in, opCreateDCT)
	if st, _ := old[0].command(in, 16); st != badOp {
		t.Errorf("a ConnectX-4 Lx: status %#x", st)
	}
}

// A target receives after it has been restored, unless it was drained.
func TestTargetsAreRestored(t *testing.T) {
	_, gs := newLab(t, 2, NIC{Model: ConnectX5}, nil)
	d := gs[0].program()
	_, open := d.dct(d.pd)
	_, drained := d.dct(d.pd)
	d.try(opDrainDCT, drained, 16, nil)
	state, err := gs[0].p.Save()
	if err != nil {
		t.Fatal(err)
	}
	p := gs[1].p
	if err := p.Restore(state); err != nil {
		t.Fatal(err)
	}
	p.lock()
	defer p.unlock()
	if q := p.Queues[open]; q == nil || q.wire == nil || q.wire.qp.State() != roce.ReadyToReceive {
		t.Error("the target does not receive")
	}
	if q := p.Queues[drained]; q == nil || q.wire != nil {
		t.Error("the drained target receives")
	}
}
