package main

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/rackless/rackless/bench"
)

func TestPerftestCommands(t *testing.T) {
	client := bench.Endpoint{Node: "vm01", Addr: netip.MustParseAddr("10.0.0.2"), Device: "mlx5_1", GIDIndex: 5}
	server := bench.Endpoint{Node: "vm00", Addr: netip.MustParseAddr("10.0.0.1"), Device: "mlx5_0", GIDIndex: 3}
	serve, ask := perftestCommands("ib_write_bw", []string{"-n", "1000", "-x", "1"}, client, server)
	if got := strings.Join(serve, " "); got != "ib_write_bw -d mlx5_0 -x 3 -n 1000 -x 1" {
		t.Errorf("server: %s", got)
	}
	if got := strings.Join(ask, " "); got != "ib_write_bw -d mlx5_1 -x 5 -n 1000 -x 1 10.0.0.1" {
		t.Errorf("client: %s", got)
	}
}

func TestPortOfAServer(t *testing.T) {
	for flags, want := range map[string]int{"": 18515, "-n 20": 18515, "-p 20000": 20000, "-p20000": 20000,
		"--port 20000": 20000, "--port=20000": 20000, "-R": 0, "-n 5 --rdma_cm": 0, "-p x": -1, "-p 70000": -1,
		"-p": 18515} {
		port, waits, err := serverPort(strings.Fields(flags))
		if got := map[bool]int{true: port, false: 0}[waits]; err != nil && want != -1 || err == nil && got != want {
			t.Errorf("%q: port %d, %v, %v; want %d", flags, port, waits, err, want)
		}
	}
}

func TestArgumentsOfPerftest(t *testing.T) {
	for args, want := range map[string]string{
		"vm01":                       "want two nodes",
		"vm01 vm00 ib_write_bw more": "want two nodes",
		"vm01 -- vm00":               "want two nodes",
		"vm01 vm00 ib_wirte_bw":      "ib_wirte_bw is no program of perftest; did you mean ib_write_bw?",
		"vm01 vm00 iperf3":           "iperf3 is no program of perftest; want ib_write_bw, ",
		"vm01 vm00 -- -n 5":          "node vm01: no lab is running; bring one up with: rackless up LAB.yaml",
	} {
		a, _, stderr := testApp(t)
		if code := a.run(t.Context(), append([]string{"perftest"}, strings.Fields(args)...)); code == 0 ||
			!strings.Contains(stderr.String(), want) {
			t.Errorf("%q: status %d, %q; want %q", args, code, stderr, want)
		}
	}
	if all := perftestPrograms(); len(all) != 8 || !slices.Contains(all, "ib_atomic_lat") {
		t.Errorf("programs: %q", all)
	}
}
