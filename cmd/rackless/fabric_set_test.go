package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/fabric"
)

func TestFabricSetRefusesWhatCannotBe(t *testing.T) {
	tests := []struct{ args, want string }{
		{"", "fabric set: want what to set, or --clear; rackless fabric shows what is set"},
		{"a b --clear", "fabric set: want at most one lab, have 2 arguments"},
		{"--rate 1", `fabric set: invalid argument "1" for "--rate" flag: rate "1": want a number with a unit, such as 100Mbit, 2.5Gbit or 25Gbit`},
		{"--loss 0.1", `fabric set: invalid argument "0.1" for "--loss" flag: percentage "0.1": want 0% to 100%, such as 0.1%`},
		{"--pfc 64KiB", `fabric set: invalid argument "64KiB" for "--pfc" flag: thresholds "64KiB": want HIGH:LOW, such as 64KiB:32KiB`},
		{"--ecn 1:2:3", `fabric set: invalid argument "1:2:3" for "--ecn" flag: size "1": want a whole number with a unit, such as 64KiB or 1500B`},
		{"--latency 1ms", "fabric set: unknown flag: --latency"},
		{"--clear --lost 1%", "fabric set: unknown flag: --lost; did you mean --loss?"},
	}
	for _, tt := range tests {
		t.Run(tt.args, func(t *testing.T) {
			a, out, stderr := testApp(t)
			if code := a.run(t.Context(), append([]string{"fabric", "set"}, strings.Fields(tt.args)...)); code !=
				exitUsage || out.Len() > 0 {
				t.Errorf("exit status %d, %q; want %d and nothing", code, out, exitUsage)
			}
			if want := "rackless: " + tt.want + "\nsee: rackless fabric set --help\n"; stderr.String() != want {
				t.Errorf("got  %q\nwant %q", stderr, want)
			}
		})
	}
	t.Run("no lab", func(t *testing.T) {
		a, _, stderr := testApp(t)
		if code := a.run(t.Context(), []string{"fabric", "set", "--clear"}); code != exitFailed ||
			!strings.Contains(stderr.String(), "no lab is running") {
			t.Errorf("exit status %d, %q", code, stderr)
		}
	})
}

// What is given for a key must be a flag, and help must speak of it.
func TestEverySettingOfALinkIsAFlag(t *testing.T) {
	a, _, _ := testApp(t)
	cmd := newFabricSetCmd(a)
	for _, key := range fabric.LinkKeys() {
		f := cmd.Flags().Lookup(key)
		if f == nil || f.Usage == "" || f.Value.Type() == "" {
			t.Errorf("setting %s: flag %+v", key, f)
		}
	}
	if len(linkFlags) != len(fabric.LinkKeys()) {
		t.Errorf("%d flags for %d settings", len(linkFlags), len(fabric.LinkKeys()))
	}
}

func TestChangingOneSettingKeepsTheOthers(t *testing.T) {
	have := []fabric.PortCounters{
		{Name: "vm00", Link: fabric.Link{Rate: 1e9, Loss: 0.5}},
		{Name: "vm01"},
	}
	tests := []struct {
		name  string
		ports []string
		clear bool
		edits []linkEdit
		want  []portLink
		err   string
	}{
		{"on all ports", nil, false, []linkEdit{{"delay", "1ms"}},
			[]portLink{{"vm00", fabric.Link{Rate: 1e9, Loss: 0.5, Delay: time.Millisecond}},
				{"vm01", fabric.Link{Delay: time.Millisecond}}}, ""},
		{"on one", []string{"vm00"}, false, []linkEdit{{"rate", "10Mbit"}},
			[]portLink{{"vm00", fabric.Link{Rate: 1e7, Loss: 0.5}}}, ""},
		{"0 takes one away", []string{"vm00"}, false, []linkEdit{{"loss", "0"}},
			[]portLink{{"vm00", fabric.Link{Rate: 1e9}}}, ""},
		{"the last of two counts", []string{"vm01"}, false, []linkEdit{{"loss", "1%"}, {"loss", "2%"}},
			[]portLink{{"vm01", fabric.Link{Loss: 0.02}}}, ""},
		{"clear takes all away", nil, true, nil, []portLink{{"vm00", fabric.Link{}}, {"vm01", fabric.Link{}}}, ""},
		{"clear and more", []string{"vm00"}, true, []linkEdit{{"seed", "7"}, {"loss", "1%"}},
			[]portLink{{"vm00", fabric.Link{Loss: 0.01, Seed: 7}}}, ""},
		{"a port that is not there", []string{"vm00", "vm02"}, true, nil, nil,
			"--port vm02: the switch has no such port; it has vm00, vm01"},
		{"what does not fit together", nil, false, []linkEdit{{"burst", "1KiB"}}, nil,
			"port vm01: link: burst of 1024 bytes without a rate: want 0, or a rate"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := changeLinks(have, tt.ports, tt.clear, tt.edits)
			text := ""
			if err != nil {
				text = err.Error()
			}
			if diff := cmp.Diff(tt.want, got); diff != "" || text != tt.err {
				t.Errorf("error %q, want %q; links (-want +got):\n%s", text, tt.err, diff)
			}
		})
	}
}

func TestLinkGrids(t *testing.T) {
	c := counters(time.Unix(1000, 0), 1, 1000, 500)
	plain := fabricText(describePorts("pair", c, nil))
	if strings.Contains(plain, "\n\n") {
		t.Errorf("a second table without impairments:\n%s", plain)
	}
	c.Ports[0].Link = fabric.Link{Rate: 1e9, Delay: 50 * time.Microsecond, Loss: 0.001, ECN: fabric.RED{Min: 30 << 10,
		Max: 90 << 10, Probability: 0.1}}
	c.Ports[0].Drops.Lost = 3
	c.Ports[1].Pauses, c.Ports[1].Paused = 2, 1500*time.Millisecond
	want := plain + "\n" + "" +
		"PORT   RATE  DELAY  LOSS              ECN  BUFFER FULL  LOST  REORDERED  MARKED    HELD\n" +
		"vm00  1Gbit   50us  0.1%  30KiB:90KiB:10%            0     3          0       0  0.00 s\n" +
		"vm01      -      -     -                -            0     0          0       0  1.50 s\n"
	want = strings.Replace(want, "     10  2.00", "     13  2.00", 1) // the lost ones are among the drops
	if diff := cmp.Diff(want, fabricText(describePorts("pair", c, nil))); diff != "" {
		t.Errorf("fabric (-want +got):\n%s", diff)
	}
	want = "" +
		"PORT   RATE  BURST  DELAY  JITTER  LOSS  REORDER              ECN  BUFFER  PFC  SEED\n" +
		"vm00  1Gbit      -   50us       -  0.1%        -  30KiB:90KiB:10%       -    -     -\n" +
		"vm01      -      -      -       -     -        -                -       -    -     -\n"
	if diff := cmp.Diff(want, linkGrid(describeLinks("pair", c)).String()); diff != "" {
		t.Errorf("fabric set (-want +got):\n%s", diff)
	}
}
