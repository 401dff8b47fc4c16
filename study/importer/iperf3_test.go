package importer_test

import (
	"strings"
	"testing"

	"github.com/rackless/rackless/study/importer"
)

// Copied logs may have only the totals of both ends.
func TestTheEndsOfIperf3AreReadAlone(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ text, want string }{
		{"[ ID] Interval           Transfer     Bitrate         Retr\n" +
			"[  5]   0.00-2.00   sec  2.19 GBytes  9.42 Gbits/sec    0             sender\n" +
			"[  5]   0.00-2.04   sec  2.19 GBytes  9.22 Gbits/sec                  receiver\n", "1: 9.22 Gb/s"},
		{"[SUM]   0.00-10.00  sec  20.0 GBytes  17.2 Gbits/sec    0             sender\n" +
			"[SUM]   0.00-10.00  sec  20.0 GBytes  17.1 Gbits/sec                  receiver\n", "1: 17.1 Gb/s"},
	} {
		s := one(t, importer.Options{Name: "a"}, files("d", map[string]string{"x.log": tt.text}))
		if got := strings.Join(find(s, "d", "iperf3", "throughput", 0), ""); got != tt.want {
			t.Errorf("%q, want %q; failures %q", got, tt.want, failures(s))
		}
	}
}
