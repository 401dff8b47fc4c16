package fabric

import (
	"testing"
	"time"
)

func TestTableMakesRoomByAge(t *testing.T) {
	tab := newTable()
	p, other := &port{}, &port{}
	const t0 = int64(1e18)
	for i := range macsPerPort {
		if !tab.learn(station(i+1), p, t0+int64(i)) { // one nanosecond apart
			t.Fatalf("address %d of %d was not learned", i+1, macsPerPort)
		}
	}
	one := station(macsPerPort + 1)
	if tab.learn(one, p, t0+int64(time.Minute)) {
		t.Error("an address was learned over the limit")
	}
	if !tab.learn(one, other, t0+int64(time.Minute)) {
		t.Error("the limit of one port stopped another")
	}
	if tab.learn(one, p, t0+int64(time.Minute)+1) {
		t.Error("an address moved to a port at its limit")
	}
	// Ten addresses have aged now.
	now := t0 + int64(ageing) + 10
	if !tab.learn(one, p, now) || p.macs != macsPerPort-9 || other.macs != 0 || p.counters.Moves != 1 {
		t.Errorf("after a sweep: %d addresses, %d at the other port, %d moves", p.macs, other.macs, p.counters.Moves)
	}
	if got := tab.lookup(station(10), now); got != nil {
		t.Error("an aged address is known")
	}
	if got := tab.lookup(station(11), now); got != p {
		t.Error("an address is lost at the age limit itself")
	}
	if got := tab.size(now); got != macsPerPort-9 {
		t.Errorf("size %d, want %d", got, macsPerPort-9)
	}
}

func TestTableSearchesForAgedEntriesAtMostOnceASecond(t *testing.T) {
	tab := newTable()
	p := &port{}
	const t0 = int64(1e18)
	for i := range macsPerPort {
		tab.learn(station(i+1), p, t0)
	}
	now := t0 + int64(ageing)
	if tab.learn(station(5000), p, now) { // no address is old enough
		t.Fatal("learned over the limit")
	}
	if tab.learn(station(5000), p, now+int64(sweepEvery)-1) {
		t.Error("searched again too early")
	}
	if !tab.learn(station(5000), p, now+int64(sweepEvery)) {
		t.Error("did not search again")
	}
}

func TestTableForgetsAPort(t *testing.T) {
	tab := newTable()
	p, other := &port{}, &port{}
	tab.learn(station(1), p, 1)
	tab.learn(station(2), other, 1)
	tab.forget(p)
	if tab.lookup(station(1), 1) != nil || tab.lookup(station(2), 1) != other || p.macs != 0 {
		t.Error("forget removed too much or too little")
	}
}

func TestANICKeepsItsAddress(t *testing.T) {
	victim := &port{Port: Port{Name: "a/1", Node: "a"}}
	second := &port{Port: Port{Name: "a/2", Node: "a"}}
	other := &port{Port: Port{Name: "b", Node: "b"}}
	alone := &port{Port: Port{Name: "c"}}
	tab := newTable()
	one, two, three := station(1), station(2), station(3)
	tab.owners[one], tab.owners[two] = victim, alone
	for i, s := range []struct {
		m    mac
		from *port
		want *port
	}{
		{one, other, nil},     // before the owner has sent
		{one, victim, victim}, //
		{one, other, victim},
		{one, second, second}, // a bond moves the address
		{one, victim, victim},
		{two, other, nil},     // without a machine it shares with none
		{two, alone, alone},   //
		{three, other, other}, // made-up addresses move freely
		{three, victim, victim},
	} {
		if !tab.learn(s.m, s.from, int64(i)) {
			t.Errorf("step %d: too many addresses", i)
		}
		if got := tab.lookup(s.m, int64(i)); got != s.want {
			t.Errorf("step %d: at port %v, want %v", i, got, s.want)
		}
	}
	if other.counters.Foreign != 3 || victim.counters.Foreign != 0 || second.counters.Foreign != 0 {
		t.Errorf("foreign addresses: %d, %d and %d", other.counters.Foreign, victim.counters.Foreign,
			second.counters.Foreign)
	}
}
