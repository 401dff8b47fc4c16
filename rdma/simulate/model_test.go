package simulate

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/rackless/rackless/lab"
)

func never() bool { return false }

// config parses a file of a test.
func config(t testing.TB, text string) *Config {
	t.Helper()
	c, err := Parse("test.yaml", []byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A flow that is alone takes the serialisation of its packets, link by link, and the way of the last acknowledgement.
func TestLoneFlowTakesItsSerialisation(t *testing.T) {
	const star = "topology: {form: star, hosts: 2, rate: 100Gbit, delay: 700ns}\n"
	const leaves = "topology: {form: leaf-spine, hosts: 1, leaves: 2, spines: 2, rate: 25Gbit, uplink: 40Gbit}\n"
	for _, c := range []struct {
		name, text string
		want       time.Duration // 0 if only the closed form of the program counts
	}{
		// 1 packet: 58+16+24+256 bytes on two links, an acknowledgement of 86, and four delays.
		{"one packet", star + "traffic: [{pattern: flow, from: [h1], to: h0, bytes: 256B}]", 2*28*time.Nanosecond +
			2*7*time.Nanosecond + 2800*time.Nanosecond},
		// 1000 packets of 1024+82 bytes, and the first once more on the second link, with 16 bytes more.
		{"a thousand packets", star + "traffic: [{pattern: flow, from: [h1], to: h0, bytes: 1000KiB}]",
			time.Duration((1001*1106+2*16+2*86)*8/100) + 2800*time.Nanosecond},
		// Messages of 1024+512 bytes, of two packets: 1106+16 and 594 bytes.
		{"short messages", star + "traffic: [{pattern: flow, from: [h1], to: h0, bytes: 1500KiB, message: 1536B}]",
			time.Duration((1000*(1122+594)+1122+2*86)*8/100) + 2800*time.Nanosecond},
		{"another rate between the switches", leaves +
			"traffic: [{pattern: flow, from: [h1], to: h0, bytes: 1000001B}]", 0},
		{"the profile of a simulator", star + "nic: {profile: hpcc}\ntraffic: [{pattern: flow, from: [h1], to: h0, " +
			"bytes: 100000B}]", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := Run(config(t, c.text), never)
			f := r.Flows[0]
			// Each link rounds to nanoseconds.
			if d := f.Completion - f.Ideal; d < -8 || d > 8 {
				t.Errorf("completion %v, closed form %v", f.Completion, f.Ideal)
			}
			if d := f.Completion - c.want; c.want > 0 && (d < -8 || d > 8) {
				t.Errorf("completion %v, want %v", f.Completion, c.want)
			}
			if r.Slowdown.Most < 0.999 || r.Slowdown.Most > 1.001 || r.Unfinished > 0 {
				t.Errorf("slowdown %v", r.Slowdown)
			}
		})
	}
}

// The last of N flows to one host ends when the link to that host has carried all of them.
func TestIncastFillsItsLink(t *testing.T) {
	for _, senders := range []int{2, 7, 32} {
		c := config(t, "topology: {form: star, hosts: 40, rate: 100Gbit}\nnic: {profile: hpcc, congestion: none}\n"+
			"traffic: [{pattern: incast, to: h0, senders: 2, bytes: 1000000B}]")
		c.Traffic[0].Senders = senders
		r := Run(c, never)
		// The switch cuts the time of a packet to whole nanoseconds, 85 for the first of a sender and 83 for others.
		want := float64(senders)*(85+999*83) + 1064*8./100 + 60*8./100 + 4 + 4000
		if d := r.Completion.Most - want; math.Abs(d) > 10 || r.Counts.Drops > 0 {
			t.Errorf("%d senders: %v ns, want %v; %d drops", senders, r.Completion.Most, want, r.Counts.Drops)
		}
	}
}

// A sender is stopped when its bytes beyond the reserve are the share alpha of the free ones.
func TestSenderIsStoppedAtTheThreshold(t *testing.T) {
	const size = 1000
	for _, alpha := range []float64{1. / 8, 0.5, 1, 4} {
		c := config(t, "topology: {form: star, hosts: 4, rate: 100Gbit}\nswitch: {buffer: 4MiB, reserve: 8KiB}\n"+
			"traffic: [{pattern: flow, from: [h1], to: h0, bytes: 1B}]")
		c.Switch.Alpha = alpha
		n := newNetwork(c)
		s, p := n.switches[0], n.switches[0].ports[1]
		if want := 4<<20 - 4*(8<<10+p.room); s.common != want {
			t.Fatalf("shared part of %d bytes, want %d", s.common, want)
		}
		count := int64(0)
		for ; p.stopped == 0; count++ {
			k := n.get()
			k.held, k.prio, k.in = size, 3, p.index
			if !s.admit(p, k) {
				t.Fatal("dropped")
			}
			p.checkStop(3)
		}
		// The smallest x with x - reserve >= alpha * (common - (x - reserve)).
		x := float64(8<<10) + alpha*float64(s.common)/(1+alpha)
		if want := int64(math.Ceil(x / size)); count < want-1 || count > want+1 {
			t.Errorf("alpha %v: stopped after %d packets, want %d", alpha, count, want)
		}
		// It goes on when it is below by Resume.
		k := n.get()
		k.held, k.prio, k.in = size, 3, p.index
		for ; p.stopped != 0; count-- {
			s.release(k)
		}
		x -= 3 << 10 / (1 + alpha)
		if want := int64(x / size); count < want-2 || count > want+1 {
			t.Errorf("alpha %v: goes on at %d packets, want %d", alpha, count, want)
		}
	}
}

// The computed headroom is enough for the packets after a pause, and at most four packets too large.
func TestHeadroomFitsWhatComesAfterAPause(t *testing.T) {
	const text = "topology: {form: star, hosts: 9, rate: 100Gbit, delay: 5us}\nswitch: {buffer: 4MiB}\n" +
		"nic: {congestion: none, window: 100000}\ntraffic: [{pattern: incast, to: h0, senders: 8, bytes: 4MiB}]"
	c := config(t, text)
	n := newNetwork(c)
	most := int64(0)
	n.watch = func() {
		for _, p := range n.ports {
			most = max(most, p.in[3].spare)
		}
	}
	n.run(int64(c.Until), never)
	room := n.ports[1].room
	if n.stats.Drops > 0 || n.stats.Pauses == 0 || most > room || most < room-4*1106 {
		t.Errorf("%d of %d bytes of headroom were used, %d drops, %d pauses", most, room, n.stats.Drops, n.stats.Pauses)
	}
	small := lab.Bytes(most - 4*1106)
	c = config(t, text)
	c.Switch.Headroom = &small
	r := Run(c, never)
	if r.Counts.Drops == 0 || r.Counts.GoBacks == 0 || r.Unfinished > 0 {
		t.Errorf("with too little headroom: %d drops, %d repeats, %d unfinished", r.Counts.Drops, r.Counts.GoBacks,
			r.Unfinished)
	}
}

// Without PFC a full buffer loses packets, and the NICs repeat them until all flows have ended.
func TestLossesAreRepeated(t *testing.T) {
	r := Run(config(t, "topology: {form: star, hosts: 9, rate: 25Gbit}\nswitch: {buffer: 1MiB, pfc: none}\n"+
		"nic: {congestion: none, ack_timeout: 8}\ntraffic: [{pattern: incast, to: h0, senders: 8, bytes: 1MiB}]"),
		never)
	if k := r.Counts; k.Drops == 0 || k.GoBacks+k.Timeouts == 0 || k.Pauses > 0 || r.Unfinished > 0 {
		t.Errorf("%+v, %d unfinished", k, r.Unfinished)
	}
}

// DCQCN ends the pauses that the same incast has without it, and its flows share the link.
func TestDCQCNShortensTheQueue(t *testing.T) {
	const text = "topology: {form: star, hosts: 9, rate: 100Gbit}\nswitch: {buffer: 8MiB%s}\n" +
		"nic: {congestion: %s, window: 100000}\ntraffic: [{pattern: incast, to: h0, senders: 8, bytes: 16MiB}]"
	fill := func(ecn, control string) *Result {
		return Run(config(t, strings.Replace(strings.Replace(text, "%s", ecn, 1), "%s", control, 1)), never)
	}
	without, with := fill("", noControl), fill(", ecn: \"100KiB:400KiB:20%\"", dcqcn)
	a, b := without.queue("s0:0"), with.queue("s0:0")
	if a.Pauses+without.Counts.Pauses == 0 || b.Median >= a.Median/2 || with.Counts.CNPs == 0 ||
		with.Counts.Marks == 0 ||
		with.Counts.Pauses >= without.Counts.Pauses/2 {
		t.Errorf("without %+v %+v\nwith %+v %+v", a, without.Counts, b, with.Counts)
	}
	if with.Unfinished+without.Unfinished > 0 || with.Goodput < 0.4*100e9 {
		t.Errorf("goodput %v, unfinished %d", with.Goodput, with.Unfinished)
	}
}

func (r *Result) queue(port string) QueueResult {
	for _, q := range r.Queues {
		if q.Port == port {
			return q
		}
	}
	return QueueResult{}
}

// Queue pairs spread over equal paths by their source ports; one queue pair takes one path.
func TestQueuePairsSpreadOverSpines(t *testing.T) {
	const text = "topology: {form: leaf-spine, hosts: 1, leaves: 2, spines: 4, rate: 100Gbit, uplink: 20Gbit}\n" +
		"nic: {congestion: none}\ntraffic: [{pattern: flow, from: [h1], to: h0, bytes: 4MiB, qps: QPS}]"
	paths := func(qps string) (used int) {
		for _, q := range Run(config(t, strings.Replace(text, "QPS", qps, 1)), never).Queues {
			if strings.HasPrefix(q.Port, "s1:") && q.Port != "s1:0" {
				used++
			}
		}
		return used
	}
	if one, many := paths("1"), paths("32"); one != 1 || many != 4 {
		t.Errorf("one queue pair took %d paths, 32 took %d; want 1 and 4", one, many)
	}
}

// The same file gives the same bytes, and another seed gives others.
func TestSameSeedSameBytes(t *testing.T) {
	run := func(seed uint64) []byte {
		c := config(t, "topology: {form: leaf-spine, hosts: 4, leaves: 4, spines: 2, rate: 25Gbit, uplink: 50Gbit}\n"+
			"switch: {ecn: \"20KiB:200KiB:10%\"}\n"+
			"traffic: [{pattern: permutation, bytes: 1MiB}, {pattern: incast, to: h3, senders: 9, bytes: 300KiB, "+
			"start: 5us}]")
		c.Seed = seed
		b, err := json.Marshal(Run(c, never))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	first := run(1)
	if !bytes.Equal(first, run(1)) {
		t.Error("two runs differ")
	}
	if bytes.Equal(first, run(2)) {
		t.Error("another seed gives the same")
	}
}

// A run that is interrupted, or that reaches its end, has the results until then.
func TestRunThatEndsEarly(t *testing.T) {
	const text = "topology: {form: star, hosts: 3, rate: 25Gbit}\nuntil: 2ms\nnic: {congestion: none}\ntraffic: " +
		"[{pattern: flow, from: [h2], to: h0, bytes: 1MiB}, {pattern: flow, from: [h1], to: h0, bytes: 1GiB}]"
	r := Run(config(t, text), never)
	if r.Unfinished != 1 || r.Flows[0].Completion == 0 || r.Flows[1].Completion != 0 || r.Time != 2*time.Millisecond {
		t.Errorf("%d unfinished at %v: %+v", r.Unfinished, r.Time, r.Flows)
	}
	c := config(t, text)
	c.Until = time.Second
	if r = Run(c, func() bool { return true }); !r.Counts.Stopped || r.Unfinished == 0 || r.Time == 0 {
		t.Errorf("interrupted: %+v", r)
	}
}

// A stopped spine stops the leaves below it, and the lossless priority loses nothing.
func TestPausesSpreadWithoutLoss(t *testing.T) {
	r := Run(config(t, "topology: {form: leaf-spine, hosts: 8, leaves: 3, spines: 1, rate: 100Gbit, uplink: 200Gbit}\n"+
		"switch: {buffer: 2MiB}\nnic: {congestion: none, window: 4000000}\n"+
		"traffic: [{pattern: incast, to: h0, senders: 23, bytes: 2MiB}]"), never)
	spread := map[string]bool{}
	for _, q := range r.Queues {
		if q.Pauses > 0 {
			spread[q.Port[:2]] = true
		}
	}
	if r.Counts.Drops > 0 || r.Unfinished > 0 || len(spread) != 4 {
		t.Errorf("pauses of %v, %d drops, %d unfinished; want pauses of all four switches", spread, r.Counts.Drops,
			r.Unfinished)
	}
}
