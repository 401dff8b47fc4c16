package main

import (
	"strings"
	"testing"

	"github.com/rackless/rackless/rdma/fabric"
)

func TestFabricSetRefusesWhatCannotBe(t *testing.T) {
	tests := []struct{ args, want string }{
		{"", "link set: want what to set, or --clear; rackless link show says what is set"},
		{"a b --clear", "link set: want at most one lab, have 2 arguments"},
		{"--rate 1", `link set: invalid argument "1" for "--rate" flag: rate "1": want a number with a unit, ` +
			`such as 100Mbit, 2.5Gbit or 25Gbit`},
		{"--loss 0.1", `link set: invalid argument "0.1" for "--loss" flag: percentage "0.1": want 0% to 100%, ` +
			`such as 0.1%`},
		{"--pfc 64KiB", `link set: invalid argument "64KiB" for "--pfc" flag: thresholds "64KiB": want HIGH:LOW, ` +
			`such as 64KiB:32KiB, or HIGH:LOW:PRIORITIES, such as 64KiB:32KiB:3`},
		{"--ecn 1:2:3", `link set: invalid argument "1:2:3" for "--ecn" flag: size "1": want a whole number with ` +
			`a unit, such as 64KiB or 1500B`},
		{"--latency 1ms", "link set: unknown flag: --latency"},
		{"--clear --lost 1%", "link set: unknown flag: --lost; did you mean --loss?"},
	}
	for _, tt := range tests {
		t.Run(tt.args, func(t *testing.T) {
			a, out, stderr := testApp(t)
			if code := a.run(t.Context(), append([]string{"link", "set"}, strings.Fields(tt.args)...)); code !=
				exitUsage || out.Len() > 0 {
				t.Errorf("exit status %d, %q; want %d and nothing", code, out, exitUsage)
			}
			if want := "rackless: " + tt.want + "\nsee: rackless link set --help\n"; stderr.String() != want {
				t.Errorf("got  %q\nwant %q", stderr, want)
			}
		})
	}
	t.Run("no lab", func(t *testing.T) {
		a, _, stderr := testApp(t)
		if code := a.run(t.Context(), []string{"link", "set", "--clear"}); code != exitFailed ||
			!strings.Contains(stderr.String(), "no lab is running") {
			t.Errorf("exit status %d, %q", code, stderr)
		}
	})
}

func TestEverySettingOfALinkIsAFlag(t *testing.T) {
	a, _, _ := testApp(t)
	cmd := newLinkSetCmd(a)
	for _, key := range fabric.LinkKeys() {
		f := cmd.Flags().Lookup(key)
		if f == nil || f.Usage == "" || f.Value.Type() == "" {
			t.Errorf("setting %s: flag %+v", key, f)
		}
	}
}
