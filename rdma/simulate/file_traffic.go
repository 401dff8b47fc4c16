package simulate

import (
	"fmt"
	"strconv"

	"github.com/rackless/rackless/internal/strictyaml"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/lab"
)

// patternKeys are the keys that a pattern needs, and those that it may have beside start, every and times.
var patternKeys = map[string]struct{ needs, may []string }{
	incast:       {[]string{"to", "bytes"}, []string{"from", "senders", "qps", "message"}},
	permutation:  {[]string{"bytes"}, []string{"qps", "message"}},
	single:       {[]string{"from", "to", "bytes"}, []string{"qps", "message"}},
	allToAll:     {[]string{"bytes"}, []string{"from", "qps", "message"}},
	ring:         {[]string{"bytes"}, []string{"from"}},
	hierarchical: {[]string{"bytes"}, nil},
	poisson:      {[]string{"load", "sizes", "for"}, nil},
	trace:        {[]string{"file"}, nil},
}

// patterns are the names of all patterns, for messages.
var patterns = []string{incast, permutation, single, allToAll, ring, hierarchical, poisson, trace}

func (d *checker) traffic() {
	if len(d.Traffic) == 0 {
		d.fail("traffic", strictyaml.Error{What: "no traffic", Want: "a list of patterns"})
	}
	total := 0.0
	for i := range d.Traffic {
		t, path := &d.Traffic[i], fmt.Sprintf("traffic[%d]", i)
		if t.Pattern == "" {
			d.fail(path, strictyaml.Error{What: "missing key", Want: "pattern"})
			continue
		}
		if !d.oneOf(path+".pattern", t.Pattern, patterns...) || !d.entry(t, path) {
			continue
		}
		if total += d.flowsOf(t); total > maxFlows {
			d.fail(path, strictyaml.Error{What: "too many flows", Have: strconv.FormatFloat(total, 'f', 0, 64),
				Want: fmt.Sprintf("at most %d", maxFlows)})
			return
		}
	}
	if len(d.Errs) == 0 {
		d.reach()
	}
}

// flowsOf returns how many flows an entry has, on average.
func (d *checker) flowsOf(t *Traffic) float64 {
	n := len(t.From)
	if n == 0 {
		n = len(d.hosts)
	}
	once := float64(n)
	switch t.Pattern {
	case incast:
		if t.Senders > 0 {
			once = float64(t.Senders)
		}
	case allToAll:
		once *= float64(n - 1)
	case poisson:
		once = float64(len(d.hosts)) * float64(t.For) / t.gap(d.Topology.Rate)
	case trace:
		once = float64(len(t.trace))
	}
	return once * float64(t.QPs) * float64(t.Times)
}

// entry checks one entry of the traffic, and reports whether it is right.
func (d *checker) entry(t *Traffic, path string) bool {
	before := len(d.Errs)
	keys := patternKeys[t.Pattern]
	known := map[string]bool{}
	for _, k := range append(keys.needs, keys.may...) {
		known[k] = true
	}
	for _, k := range []string{"from", "to", "senders", "bytes", "message", "qps", "load", "sizes", "for", "file"} {
		if !known[k] {
			d.unused(path, "pattern "+t.Pattern, k)
		}
	}
	if d.missing(path, keys.needs...) {
		return false
	}
	d.amount(t, path, known)
	d.times(t, path)
	for i, name := range t.From {
		p := fmt.Sprintf("%s.from[%d]", path, i)
		if d.known(p, name) && name == t.To {
			d.fail(p, strictyaml.Error{What: "host sends to itself", Have: strictyaml.Quote(name)})
		}
	}
	if known["to"] {
		d.known(path+".to", t.To)
	}
	switch t.Pattern {
	case single:
		if len(t.From) != 1 {
			d.fail(path+".from", strictyaml.Error{What: "wrong number of senders", Have: strconv.Itoa(len(t.From)),
				Want: "one, such as [h1]"})
		}
	case incast:
		d.senders(t, path)
	case allToAll, ring:
		d.ranks(t, path)
	case hierarchical:
		if d.Topology.Form != rails || d.Topology.Hosts < 2 {
			d.fail(path+".pattern", strictyaml.Error{What: "pattern is for two or more hosts on rails",
				Have: "form " + d.Topology.Form, Want: "form " + rails})
		}
	case poisson:
		d.distribution(t, path)
	case trace:
		d.replay(t, path)
	}
	return len(d.Errs) == before
}

// amount checks the bytes of an entry.
func (d *checker) amount(t *Traffic, path string, known map[string]bool) {
	if !known["bytes"] {
		return
	}
	if t.Bytes < 1 || t.Bytes > maxBytes {
		d.fail(path+".bytes", strictyaml.Error{What: "out of range", Have: t.Bytes.String(),
			Want: "1B to " + maxBytes.String()})
		return
	}
	d.inRange(path+".qps", t.QPs, 1, 1<<16)
	if d.inRange(path+".message", int(t.Message), 1, longest) && d.Level == FlowLevel && t.Message > 0 &&
		int(t.Message) < d.NIC.MTU {
		d.fail(path+".message", strictyaml.Error{What: "smaller than a packet, which level flow counts as whole",
			Have: t.Message.String(), Want: fmt.Sprintf("at least %dB, of nic.mtu", d.NIC.MTU)})
	}
	if int64(t.QPs) > int64(t.Bytes) {
		d.fail(path+".qps", strictyaml.Error{What: "more queue pairs than bytes", Have: strconv.Itoa(t.QPs),
			Want: fmt.Sprintf("at most %d", t.Bytes)})
	}
	if t.Pattern != ring && t.Pattern != hierarchical {
		return
	}
	n := len(t.ranks(d.hosts))
	if t.Pattern == hierarchical {
		n = len(d.hosts)
	}
	if most := int64(n) * longest; int64(t.Bytes) > most {
		d.fail(path+".bytes", strictyaml.Error{What: "more than 1GiB in a message", Have: t.Bytes.String(),
			Want: "at most " + lab.Bytes(most).String() + " with " + words.Count(n, "rank")})
	}
}

// times checks the starts of an entry.
func (d *checker) times(t *Traffic, path string) {
	before := "before the end at " + d.Until.String()
	if t.Start < 0 || t.Start >= d.Until {
		d.fail(path+".start", strictyaml.Error{What: "out of range", Have: t.Start.String(), Want: before})
		return
	}
	d.inRange(path+".times", t.Times, 1, maxFlows)
	switch {
	case d.Has(path+".times") != d.Has(path+".every"):
		d.fail(path, strictyaml.Error{What: "bursts need both every and times"})
	case t.Every < 0 || t.Every >= d.Until:
		d.fail(path+".every", strictyaml.Error{What: "out of range", Have: t.Every.String(), Want: before})
	case t.Every > 0 && int64(t.Times-1) > int64(d.Until-t.Start-1)/int64(t.Every):
		d.fail(path+".times", strictyaml.Error{What: "the last burst starts too late", Have: strconv.Itoa(t.Times),
			Want: before})
	}
}

// known checks the name of a host.
func (d *checker) known(path, name string) bool {
	if _, ok := d.hosts[name]; ok {
		return true
	}
	first, last := d.lay.hosts[0].name, d.lay.hosts[len(d.lay.hosts)-1].name
	d.fail(path, strictyaml.Error{What: "no such host", Have: strictyaml.Quote(name), Want: first + " to " + last})
	return false
}

// senders checks the senders of an incast.
func (d *checker) senders(t *Traffic, path string) {
	counted := d.Has(path + ".senders")
	switch {
	case len(t.From) > 0 && counted:
		d.fail(path+".senders", strictyaml.Error{What: "senders are both counted and named",
			Fix: "remove senders or from"})
	case len(t.From) == 0 && (t.Senders < 1 || t.Senders >= len(d.hosts)):
		d.fail(path+".senders", strictyaml.Error{What: "out of range", Have: strconv.Itoa(t.Senders),
			Want: fmt.Sprintf("1 to %d, or names of hosts under from", len(d.hosts)-1)})
	}
}

// ranks checks the hosts of a collective.
func (d *checker) ranks(t *Traffic, path string) {
	if len(t.From) == 1 {
		d.fail(path+".from", strictyaml.Error{What: "too few hosts", Have: "1", Want: "2 or more"})
	}
	seen := map[string]bool{}
	for i, name := range t.From {
		if seen[name] {
			d.fail(fmt.Sprintf("%s.from[%d]", path, i), strictyaml.Error{What: "host takes part twice",
				Have: strictyaml.Quote(name)})
		}
		seen[name] = true
	}
}

// distribution checks Poisson arrivals and reads their sizes.
func (d *checker) distribution(t *Traffic, path string) {
	if t.For <= 0 || t.For > d.Until-t.Start {
		d.fail(path+".for", strictyaml.Error{What: "out of range", Have: t.For.String(),
			Want: "a time until the end at " + d.Until.String()})
	}
	if t.sizes = published[t.Sizes]; t.sizes != nil {
		return
	}
	text, ok := d.other(path+".sizes", t.Sizes, "websearch, hadoop, or a file")
	if !ok {
		return
	}
	var err error
	if t.sizes, err = readSizes(text); err != nil {
		d.fail(path+".sizes", strictyaml.Error{What: t.Sizes + ": " + err.Error()})
	}
}

// replay reads a trace.
func (d *checker) replay(t *Traffic, path string) {
	text, ok := d.other(path+".file", t.File, "a file with a trace")
	if !ok {
		return
	}
	var err error
	if t.trace, err = readTrace(text, d.hosts, d.Until-t.Start); err != nil {
		d.fail(path+".file", strictyaml.Error{What: t.File + ": " + err.Error()})
	}
}

// other returns the text of a file that the file names.
func (d *checker) other(path, name, want string) ([]byte, bool) {
	if name == "" || d.read == nil {
		d.fail(path, strictyaml.Error{What: "no such file", Have: strictyaml.Quote(name), Want: want})
		return nil, false
	}
	text, err := d.read(name)
	if err != nil {
		d.fail(path, strictyaml.Error{What: err.Error(), Want: want})
	}
	return text, err == nil
}

// reach checks that the hosts of each flow reach each other: rails without spines do not.
func (d *checker) reach() {
	root := d.lay.islands()
	failed := map[int32]bool{}
	for _, s := range d.plan() {
		a, b := &d.lay.hosts[s.from], &d.lay.hosts[s.to]
		if root[a.sw] != root[b.sw] && !failed[s.entry] {
			failed[s.entry] = true
			why, fix := "without spines, rails are islands", "add spines, or send within rails"
			if d.Topology.Form == ofLab {
				why, fix = "their subnets are islands", "name NICs of one subnet under from"
			}
			d.fail(fmt.Sprintf("traffic[%d]", s.entry), strictyaml.Error{
				What: fmt.Sprintf("no way from %s to %s: %s", a.name, b.name, why), Fix: fix})
		}
	}
}

// plan returns all flows. The check needs them before there is a network.
func (d *checker) plan() []spec { return d.Config.plan(d.hosts) }
