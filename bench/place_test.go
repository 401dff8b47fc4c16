package bench

import (
	"strings"
	"testing"
)

func TestAPlaceIsSaidAndWrapsTheCommand(t *testing.T) {
	argv := []string{"iperf3", "-s"}
	for _, tt := range []struct {
		place         Place
		text, command string
	}{
		{Place{}, "not pinned", "iperf3 -s"},
		{Place{CPUs: "0-3,8"}, "CPUs 0-3,8", "taskset -c 0-3,8 iperf3 -s"},
		{Place{Memory: "1"}, "memory of NUMA node 1", "numactl --membind=1 iperf3 -s"},
		{Place{CPUs: "0", Memory: "1"}, "CPUs 0, memory of NUMA node 1", "taskset -c 0 numactl --membind=1 iperf3 -s"},
	} {
		if got := tt.place.String(); got != tt.text {
			t.Errorf("%+v: got %q, want %q", tt.place, got, tt.text)
		}
		if got := strings.Join(tt.place.Wrap(argv), " "); got != tt.command {
			t.Errorf("%+v: got %q, want %q", tt.place, got, tt.command)
		}
	}
	if got := (Place{CPUs: "0"}).Wrap(nil); got != nil {
		t.Errorf("no command became %q", got)
	}
}

func TestListsAreCountedAndOtherWordsRefused(t *testing.T) {
	for list, want := range map[string]int{"": 0, "0": 1, "0-3": 4, "0-3,8": 5, "1,1,1-2": 2, "4095": 1} {
		if got, err := countList(list); err != nil || got != want {
			t.Errorf("%q: got %d, error %v, want %d", list, got, err, want)
		}
	}
	for _, list := range []string{"a", "-1", "3-1", "0-", "0,", ",0", "0;reboot", "4096", "1-9999", " 1", "all"} {
		if n, err := countList(list); err == nil {
			t.Errorf("%q: counted as %d", list, n)
		}
	}
}
