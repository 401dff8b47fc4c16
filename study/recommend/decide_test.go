package recommend_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/synthetic"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/build"
	"github.com/rackless/rackless/study"
	"github.com/rackless/rackless/study/recommend"
	"github.com/rackless/rackless/study/stats"
)

// ofFactor has RDMA latencies in us by level.
func ofFactor(t testing.TB, h *topology.Host, factor, levels string, us map[string]float64) recommend.Study {
	t.Helper()
	s := parseStudy(t, fmt.Sprintf("name: one\nfactors:\n  %s: %s\nmeasure: [{test: ib_write_lat, bytes: 2, metrics: "+
		"[latency_p99]}]\nblocks: 12\n", factor, levels))
	d := simulate(s, 11, noise, func(cell map[string]string, _, _ string) (float64, string) {
		return us[cell[factor]], "us"
	})
	return recommend.Study{Name: s.Name, Data: d, Environment: facts(h)}
}

func TestTheRule(t *testing.T) {
	t.Parallel()
	h := readHost(t, hostEPYC)
	for _, tt := range []struct {
		name, factor, levels string
		us                   map[string]float64
		setting              recommend.Setting
		level                string
		why                  string
		against              string // "" expects no contradiction
	}{
		{"the order of levels in the file does not matter", "isolation", "[isolcpus, none]",
			map[string]float64{"none": 3, "isolcpus": 2}, recommend.Isolation, "isolcpus",
			"isolcpus is better than none", ""},
		{"of two that help alike the one that changes less", "isolation", "[none, cpuset, isolcpus]",
			map[string]float64{"none": 3, "cpuset": 2, "isolcpus": 2},
			recommend.Isolation, "cpuset", "isolcpus makes no meaningful difference compared with cpuset", ""},
		{"of two that help the one that helps more", "isolation", "[none, cpuset, isolcpus]",
			map[string]float64{"none": 3, "cpuset": 2.5, "isolcpus": 2},
			recommend.Isolation, "isolcpus", "isolcpus is better than cpuset", ""},
		{"what makes no difference is not done, and who says otherwise is named", "isolation", "[none, isolcpus]",
			map[string]float64{"none": 2, "isolcpus": 2},
			recommend.Isolation, "none", "isolcpus makes no meaningful difference compared with none",
			"published for this kind of host says otherwise of none and isolcpus (isolcpus is better)"},
		{"pages that help", "hugepages", "[\"off\", 2MiB, 1GiB]", map[string]float64{"off": 3, "2MiB": 2.5, "1GiB": 2},
			recommend.Hugepages, "1GiB", "1GiB is better than", ""},
		{"an MTU that no rule names", "lab.fabric.mtu", "[1500, 8000]", map[string]float64{"1500": 3, "8000": 2},
			recommend.MTU, "4200", "8000 is better than 1500", ""},
		{"steps that were taken at once, and help", "placement", "[default, pin+numa]", map[string]float64{"default": 3,
			"pin+numa": 2}, recommend.GuestNUMA, "on", "placement was changed from default to pin+numa as a whole", ""},
		{"steps that were taken at once, and harm", "placement", "[default, pin+numa]", map[string]float64{"default": 2,
			"pin+numa": 3}, recommend.Placement, "default", "default is better than pin", "pin is better"},
		{"one by one and at once: each for itself", "placement", "[default, pin, pin+numa]",
			map[string]float64{"default": 3, "pin": 2, "pin+numa": 2}, recommend.GuestNUMA, "off",
			"on makes no meaningful difference compared with off", ""},
		{"far nodes that are better are not believed", "placement", "[pin, wrong-numa]", map[string]float64{"pin": 3,
			"wrong-numa": 2}, recommend.Placement, "pin", "", "look whether the host tells the truth"},
		{"SMT of a lab key", "lab.defaults.smt", "[\"off\", \"on\"]", map[string]float64{"off": 3, "on": 2},
			recommend.SMT, "on", "on is better than off", "published elsewhere says otherwise"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := recommendFor(t, h, pairLab(t, lab.WorkloadRDMALatency), ofFactor(t, h, tt.factor, tt.levels, tt.us))
			c := choice(t, r, tt.setting)
			if c.Level != tt.level || !strings.Contains(strings.Join(c.Why, "\n"), tt.why) {
				t.Errorf("%s = %s: %q; want %s: %q", tt.setting, c.Level, c.Why, tt.level, tt.why)
			}
			if got := strings.Join(c.Contradictions, "\n"); (got == "") != (tt.against == "") ||
				!strings.Contains(got, tt.against) {
				t.Errorf("against it: %q; want %q", got, tt.against)
			}
		})
	}
}

// An undecided metric prevents "no difference", but not "better".
func TestOneOpenMetricKeepsASettingFromBeingCalledIndifferent(t *testing.T) {
	t.Parallel()
	h := readHost(t, hostEPYC)
	s := parseStudy(t, "name: open\nfactors:\n  hugepages: [\"off\", 1GiB]\nmeasure: [{test: ib_write_lat, bytes: 2, "+
		"metrics: [latency_typical]}, {test: ib_read_lat, bytes: 2, metrics: [latency_typical]}]\nblocks: 12\n")
	for _, tt := range []struct {
		name       string
		open       bool
		typical    float64
		confidence recommend.Carry
	}{
		{"both are the same", false, 2, recommend.MeasuredHere},
		{"one is the same and one is noise", true, 2, recommend.NoEvidence},
		{"one is better and one is noise", true, 1, recommend.MeasuredHere},
	} {
		n := 0.0
		d := simulate(s, 12, 0.01, func(cell map[string]string, test, _ string) (float64, string) {
			switch {
			case test == "ib_read_lat" && tt.open:
				n++
				return 2 + 1.9*float64(int(n*n*7919)%101)/101, "us" // pure noise
			case test == "ib_write_lat" && cell["hugepages"] == "1GiB":
				return tt.typical, "us"
			}
			return 2, "us"
		})
		r := recommendFor(t, h, pairLab(t, lab.WorkloadRDMALatency), recommend.Study{Name: s.Name, Data: d,
			Environment: facts(h)})
		if c := choice(t, r, recommend.Hugepages); c.Confidence != tt.confidence {
			t.Errorf("%s: hugepages = %s, %s: %q; want %s", tt.name, c.Level, c.Confidence, c.Why, tt.confidence)
		}
	}
}

// A difference between a level and itself makes the whole study unusable.
func TestAFalseAlarmOfALevelAgainstItselfTakesTheWholeStudyAway(t *testing.T) {
	t.Parallel()
	h := readHost(t, hostEPYC)
	s := parseStudy(t, "name: odd\nfactors:\n  placement: [pin, pin]\n  isolation: [isolcpus, none]\nmeasure: "+
		"[{test: ib_write_lat, bytes: 2, metrics: [latency_p99]}]\nblocks: 12\n")
	d := simulate(s, 13, noise, func(cell map[string]string, _, _ string) (float64, string) {
		if cell["isolation"] == "none" {
			return 1, "us"
		}
		return 2, "us"
	})
	of := func() recommend.Choice {
		return choice(t, recommendFor(t, h, pairLab(t, lab.WorkloadRDMALatency), recommend.Study{Name: s.Name, Data: d,
			Environment: facts(h)}), recommend.Isolation)
	}
	if c := of(); c.Level != "none" {
		t.Fatalf("as measured isolation = %s: %q; want none", c.Level, c.Why)
	}
	nth := map[string]int{} // halves are compared
	for i := range d.Runs {
		key := fmt.Sprint(d.Runs[i].Block, d.Runs[i].Cell["isolation"])
		if n := nth[key] % 4; n == 0 || n == 3 {
			d.Runs[i].Values[0].Value *= 1.5
		}
		nth[key]++
	}
	c := of()
	if c.Level != "isolcpus" || !slices.ContainsFunc(c.Evidence, func(e recommend.Evidence) bool {
		return !e.Decides && strings.Contains(e.Remark,
			"placement=pin with itself and finds a difference: it is not to be believed")
	}) {
		t.Errorf("isolation = %s: %q", c.Level, c.Why)
	}
}

func TestWeightsThatTheDataDoNotDetermineAreKept(t *testing.T) {
	t.Parallel()
	h := readHost(t, hostEPYC)
	far := map[string]float64{"pin": 1.53, "wrong-numa": 1.97}
	two, err := synthetic.Host("pack:2 numa:1 core:16 pu:2")
	if err != nil {
		t.Fatal(err)
	}
	two.System.CPUModel, two.Kernel.Release = "Xeon", "6.1.0"
	stream := func(h *topology.Host, on float64) recommend.Study {
		s := parseStudy(t, "name: stream\nfactors:\n  placement: [pin, pin+numa]\nmeasure: [{test: stress_stream, "+
			"metrics: [triad]}]\nblocks: 12\n")
		d := simulate(s, 14, noise, func(cell map[string]string, _, _ string) (float64, string) {
			if cell["placement"] == "pin+numa" {
				return on, "GB/s"
			}
			return 100, "GB/s"
		})
		return recommend.Study{Name: s.Name, Data: d, Environment: facts(h)}
	}
	latencyLab, cpuLab := pairLab(t, lab.WorkloadRDMALatency),
		parseLab(t, "name: cpu\nworkload: cpu-bandwidth\nnodes:\n  vm: {cpus: 8, memory: 1GiB, nics: 0}\n")
	for _, tt := range []struct {
		name   string
		host   *topology.Host
		lab    *lab.Lab
		s      recommend.Study
		change func(*plan.Problem)
		weight string
		low    int64 // 0 and 0 expect none
		high   int64
		kept   string
	}{
		{"one latency gives one weight", h, latencyLab, ofFactor(t, h, "placement", "[pin, wrong-numa]", far), nil,
			plan.TermDeviceNearest, 455, 505, "device_distance: no study of this host tells wrong-numa and pin apart " +
				"by latency_typical"},
		{"nodes at several distances", h, latencyLab, ofFactor(t, h, "placement", "[pin, wrong-numa]", far),
			func(p *plan.Problem) {
				d := slices.Clone(p.NUMANodes[0].Distances)
				d[3] = 28
				p.NUMANodes[0].Distances = d
			}, plan.TermDeviceNearest, 0, 0, "is not determined: the host's NUMA nodes differ in distance"},
		{"too few blocks", h, latencyLab, few(ofFactor(t, h, "placement", "[pin, wrong-numa]", far)), nil,
			plan.TermDeviceNearest, 0, 0, "wrong-numa and pin are not told apart"},
		{"another machine's study", h, latencyLab, elsewhere(ofFactor(t, h, "placement", "[pin, wrong-numa]", far)),
			nil, plan.TermDeviceNearest, 0, 0, "no study of this host compares wrong-numa with pin"},
		// 5000 for losing half by hiding one node, plus numa_span's 50.
		{"STREAM doubles with guest NUMA on two nodes", two, cpuLab, stream(two, 200), nil, "numa_span_hidden", 4950,
			5150, "device_nearest, device_distance: no study"},
		{"guest NUMA harms", two, cpuLab, stream(two, 50), nil, "numa_span_hidden", 0, 1, ""},
		{"guest NUMA does nothing", two, cpuLab, stream(two, 100), nil, "numa_span_hidden", 0, 0,
			"whether the measured guests spread over both NUMA nodes is not determined"},
		{"guest NUMA on four nodes", h, cpuLab, stream(h, 200), nil, "numa_span_hidden", 0, 0,
			"is not determined on a host with 4"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p, err := build.Problem(tt.host, tt.lab, build.Options{HostName: "host"})
			if err != nil {
				t.Fatal(err)
			}
			if tt.change != nil {
				tt.change(p)
			}
			r, err := recommend.Recommend(tt.host, tt.lab, p, []recommend.Study{tt.s}, nil)
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(r.Fitted, func(f recommend.Fitted) bool { return f.Weight == tt.weight })
			switch {
			case tt.high == 0 && i >= 0:
				t.Errorf("fitted %+v; want it kept", r.Fitted[i])
			case tt.high > 0 && (i < 0 || r.Fitted[i].Value < tt.low || r.Fitted[i].Value > tt.high):
				t.Errorf("fitted %+v; want %s from %d to %d", r.Fitted, tt.weight, tt.low, tt.high)
			}
			if !strings.Contains(strings.Join(r.Kept, "\n"), tt.kept) {
				t.Errorf("kept %q; want %q", r.Kept, tt.kept)
			}
		})
	}
}

func few(s recommend.Study) recommend.Study {
	s.Data = &study.Data{Spec: s.Data.Spec, Runs: slices.DeleteFunc(slices.Clone(s.Data.Runs),
		func(o study.Observation) bool {
			return o.Block > 3
		})}
	return s
}

func elsewhere(s recommend.Study) recommend.Study {
	s.Environment = []study.Fact{{Name: "host CPU", Value: "another"}}
	return s
}

// The embedded table contains the figures of the documents.
func TestDocumentsAreWhole(t *testing.T) {
	t.Parallel()
	levels := map[recommend.Setting][]string{
		recommend.Placement: {"default", "pin", "wrong-numa"}, recommend.GuestNUMA: {"off", "on"},
		recommend.SMT: {"off", "on"}, recommend.Isolation: {"none", "cpuset", "isolcpus"},
		recommend.MTU: {"1500", "4200", "9000"}, recommend.Reserve: {"0 of 48", "4 of 48"},
		recommend.PeerMemory: {"absent", "loaded"},
	}
	for _, d := range recommend.Documents() {
		if d.Title == "" || len(d.Figures)+len(d.Pairs) == 0 {
			t.Errorf("%+v: a document without title or figures", d)
		}
		for _, f := range d.Figures {
			if f.Table == "" || f.Test == "" || f.Metric == "" || !slices.Contains(levels[f.Setting], f.From) ||
				!slices.Contains(levels[f.Setting], f.To) || f.From == f.To {
				t.Errorf("%s: %+v: incomplete", d.Title, f)
			}
			if f.A == 0 && f.Low == 0 && f.Says == "" || (f.A > 0) != (f.B > 0) || (f.A > 0) != (f.Unit != "") ||
				f.Low > f.High {
				t.Errorf("%s: %s %s: neither a whole figure nor a statement", d.Title, f.Table, f.Metric)
			}
			if f.A > 0 && f.Verdict == stats.Better && (f.Unit == "us") != (f.B < f.A) {
				t.Errorf("%s: %s %s: %v to %v %s is not better", d.Title, f.Table, f.Metric, f.A, f.B, f.Unit)
			}
			if want, ok := epycLatency[f.Metric]; ok && f.Setting == recommend.Placement &&
				(f.A != want[1] || f.B != want[0]) || ok && f.Setting == recommend.Isolation &&
				(f.A != want[2] || f.B != want[0]) {
				t.Errorf("%s: %s of %s: %v and %v; want %v", d.Title, f.Metric, f.Setting, f.A, f.B, want)
			}
		}
		for _, p := range d.Pairs {
			if p.Gbps != h20[p.GPU] || p.NIC != "NIC0" {
				t.Errorf("%s: %+v; want %v", d.Title, p, h20[p.GPU])
			}
		}
	}
}

// All pairs form one family: six for four levels. In seven blocks the smallest p value is 2/128, below 5 % corrected
// for three comparisons but not for six; in eight it is 2/256.
func TestVerdictsAreCorrectedForAllPairsOfLevels(t *testing.T) {
	t.Parallel()
	h := readHost(t, hostEPYC)
	for blocks, want := range map[int]recommend.Carry{7: recommend.Published, 8: recommend.MeasuredHere} {
		s := parseStudy(t, fmt.Sprintf("name: pairs\nfactors:\n  placement: [default, pin, pin+numa, "+
			"pin+numa+smt]\nmeasure: [{test: ib_write_lat, bytes: 2, metrics: [latency_p99]}]\nblocks: %d\n", blocks))
		d := simulate(s, 15, 0.001, func(cell map[string]string, _, _ string) (float64, string) {
			return map[string]float64{"default": 5, "pin": 4, "pin+numa": 3, "pin+numa+smt": 2}[cell["placement"]], "us"
		})
		r := recommendFor(t, h, pairLab(t, lab.WorkloadRDMALatency), recommend.Study{Name: s.Name, Data: d,
			Environment: facts(h)})
		if c := choice(t, r, recommend.Placement); c.Confidence != want {
			t.Errorf("%d blocks: placement = %s, %s: %q; want %s", blocks, c.Level, c.Confidence, c.Why, want)
		}
	}
}

// Data that is no evidence prevents no decision.
func TestWhatIsNoEvidenceDoesNotHinder(t *testing.T) {
	t.Parallel()
	h := readHost(t, hostEPYC)
	good := ofFactor(t, h, "hugepages", "[\"off\", 1GiB]", map[string]float64{"off": 2, "1GiB": 2})
	undecided := few(ofFactor(t, h, "hugepages", "[\"off\", 1GiB]", map[string]float64{"off": 2, "1GiB": 3}))
	emulated := undecided
	emulated.Emulated = true
	s := parseStudy(t, "name: odd\nfactors:\n  hugepages: [\"off\", 1GiB]\n  placement: [pin, pin]\nmeasure: [{test: "+
		"ib_write_lat, bytes: 2, metrics: [latency_p99]}]\nblocks: 12\n")
	n := 0
	odd := recommend.Study{Name: s.Name, Environment: facts(h), Data: simulate(s, 16, noise,
		func(map[string]string, string, string) (float64, string) {
			return 2, "us"
		})}
	nth := map[string]int{}
	for i := range odd.Data.Runs {
		key := fmt.Sprint(odd.Data.Runs[i].Block, odd.Data.Runs[i].Cell["hugepages"])
		if k := nth[key] % 4; k == 0 || k == 3 {
			odd.Data.Runs[i].Values[0].Value *= 1.5
			n++
		}
		nth[key]++
	}
	if n == 0 {
		t.Fatal("no run was changed")
	}
	for _, tt := range []struct {
		name   string
		beside recommend.Study
		want   recommend.Carry
	}{{"an undecided study does", undecided, recommend.NoEvidence}, {"an emulated one does not", emulated,
		recommend.MeasuredHere}, {"one that is not believed does not", odd, recommend.MeasuredHere}} {
		r := recommendFor(t, h, pairLab(t, lab.WorkloadRDMALatency), good, tt.beside)
		if c := choice(t, r, recommend.Hugepages); c.Confidence != tt.want {
			t.Errorf("%s: hugepages = %s, %s: %q; want %s", tt.name, c.Level, c.Confidence, c.Why, tt.want)
		}
	}
}

// Figures count only if host and lab have the hardware.
func TestFiguresThatDoNotApplyAreLeftOut(t *testing.T) {
	t.Parallel()
	one, err := synthetic.Host("pack:1 numa:1 core:16 pu:1")
	if err != nil {
		t.Fatal(err)
	}
	plain := parseLab(t, "name: plain\nnodes:\n  vm: {cpus: 4, memory: 1GiB, nics: 0}\n")
	r, err := recommend.Recommend(one, plain, nil, nil, recommend.Documents())
	if err != nil {
		t.Fatal(err)
	}
	wantChoice(t, r, recommend.GuestNUMA, "off", recommend.NoEvidence, "the host has one NUMA node")
	wantChoice(t, r, recommend.SMT, "off", recommend.NoEvidence, "one thread each")
	if text := strings.Join(choice(t, r, recommend.Placement).Why, "\n"); strings.Contains(text, "NUMA nodes") {
		t.Errorf("a host with one NUMA node has no far ones: %s", text)
	}
	// NCCL opposes guest NUMA, but only with GPUs.
	epyc := readHost(t, hostEPYC)
	if r, err = recommend.Recommend(epyc, plain, nil, nil, recommend.Documents()); err != nil {
		t.Fatal(err)
	}
	wantChoice(t, r, recommend.GuestNUMA, "on", recommend.Published, "bandwidth of stream")
	if i := slices.IndexFunc(r.Settings, func(c recommend.Choice) bool {
		return c.Setting == recommend.PeerMemory
	}); i >= 0 {
		t.Errorf("peer memory without GPUs: %+v", r.Settings[i])
	}
}

// Under another factor's load, the load might be ranked instead of the GPUs.
func TestPairsAreThoseOfTheFirstLevels(t *testing.T) {
	t.Parallel()
	h := h20Host(t)
	s := parseStudy(t, "name: load\nfactors:\n  lab.defaults.gpus: [GPU1, GPU4]\n  contention: [idle, \"memory:64\", "+
		"\"cpu:64\"]\nmeasure: [{test: ib_write_bw/cuda0, metrics: [bw_average]}]\nblocks: 10\n")
	d := simulate(s, 17, noise, func(cell map[string]string, _, _ string) (float64, string) {
		if near := cell["lab.defaults.gpus"] == "GPU1"; near == (cell["contention"] == "idle") {
			return 195, "Gb/s"
		}
		return 124, "Gb/s"
	})
	l := parseLab(t, "name: one\nworkload: gpu-collective\nnodes:\n  vm: {cpus: 16, memory: 64GiB, gpus: 1, "+
		"nics: NIC0}\n")
	k := ranking(t, recommendFor(t, h, l, recommend.Study{Name: s.Name, Data: d, Environment: facts(h), Lab: l}),
		"NIC0")
	if g := k.GPUs[0]; g.GPU != "GPU1" || g.Gbps < 180 {
		t.Errorf("got %+v; want GPU1 with about 195 Gb/s first", k.GPUs)
	}
}
