package main

import (
	"encoding/base64"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// A typed command is one that people use with ConnectX-4 Lx cards. Its output is compared with that of real cards:
// fields, names, units, and facts of the card.
type typed struct {
	command string
	want    []string // patterns; a group is a rate in Gb/s, at most the cable's
}

const cableGbits = 25

// typedOnHost is before prepare.
var typedOnHost = []typed{
	{"lspci | grep -i mellanox", []string{
		`41:00\.0 Ethernet controller: Mellanox Technologies MT27710 Family \[ConnectX-4 Lx\]`,
		`41:00\.1 Ethernet controller: Mellanox Technologies MT27710 Family \[ConnectX-4 Lx\]`,
		`61:00\.0 Ethernet controller: Mellanox Technologies MT27710 Family \[ConnectX-4 Lx\]`,
		`61:00\.1 Ethernet controller: Mellanox Technologies MT27710 Family \[ConnectX-4 Lx\]`,
	}},
	{"ip link set enp65s0f0np0 up; for i in $(seq 60); do ethtool enp65s0f0np0 | grep 'detected: yes' && break; " +
		"sleep 0.5; done; ethtool enp65s0f0np0; ip link set enp65s0f0np0 down",
		[]string{`\tSpeed: 25000Mb/s`, `\tLink detected: yes`}},
	{"lspci -tv", []string{`.*-\[41\]-.*-00\.0 +Mellanox Technologies MT27710 Family \[ConnectX-4 Lx\]`,
		`.*-\[61\]-.*-00\.0 +Mellanox Technologies MT27710 Family \[ConnectX-4 Lx\]`}},
	{"cd /sys/bus/pci/devices && cat 0000:06:00.0/numa_node 0000:21:00.0/numa_node 0000:41:00.0/numa_node " +
		"0000:61:00.0/numa_node | paste -sd' '", []string{"0 1 2 3"}},
	{"cat /sys/devices/system/cpu/isolated", []string{""}},
	{"grep HugePages_ /proc/meminfo", []string{`HugePages_Total: +\d+`, `HugePages_Free: +\d+`}},
}

const (
	bandwidthHead = ` #bytes +#iterations +BW peak\[Gb/sec\] +BW average\[Gb/sec\] +MsgRate\[Mpps\]`
	latencyHead   = ` #bytes #iterations +t_min\[usec\] +t_max\[usec\] +t_typical\[usec\] .*` +
		`99% percentile\[usec\] +99\.9% percentile\[usec\] *`
)

func bandwidthRow(size, iterations int) string {
	return fmt.Sprintf(` %d +%d +\d+\.\d+ +(\d+\.\d+)\s+\d+\.\d+\s*`, size, iterations)
}

// typedOnClient is for the second machine. The first runs the same without an address.
var typedOnClient = []typed{
	{"ib_write_bw -d mlx5_0 -x 3 10.0.0.1 --report_gbits", []string{bandwidthHead, bandwidthRow(65536, 5000)}},
	{"ib_write_lat -d mlx5_0 -x 3 10.0.0.1", []string{latencyHead, ` 2 +1000 +\d+\.\d+ +\d+\.\d+ +\d+\.\d+ .*`}},
	// Without -n it moves 84 GB, half a minute over this cable.
	{"ib_write_bw -d mlx5_0 -x 3 -a -n 200 --report_gbits 10.0.0.1", []string{bandwidthHead, bandwidthRow(2, 200),
		bandwidthRow(64, 200), bandwidthRow(512, 200), bandwidthRow(1024, 200), bandwidthRow(4096, 200),
		bandwidthRow(65536, 200), bandwidthRow(1<<20, 200), bandwidthRow(8<<20, 200)}},
	{"iperf3 -c 10.0.0.1 -t 1", []string{`\[ ID\] Interval +Transfer +Bitrate +Retr *`,
		`\[ +\d+\] +0\.00-\d+\.\d+ +sec +\S+ [KMG]Bytes +\S+ [KMG]?bits/sec +\d+ +sender`,
		`\[ +\d+\] +0\.00-\d+\.\d+ +sec +\S+ [KMG]Bytes +\S+ [KMG]?bits/sec +receiver`}},
}

// typedOnServer is for the first machine after traffic.
var typedOnServer = []typed{
	{"ibstat", []string{`CA 'mlx5_0'`, `\tCA type: MT4117`, `\tNumber of ports: 1`,
		`\tFirmware version: 14\.\d+\.\d{4}`,
		`\tPort 1:`, `\t\tState: Active`, `\t\tPhysical state: LinkUp`, `\t\tRate: 25`, `\t\tLink layer: Ethernet`}},
	{"ip link show eth0 | grep mtu", []string{`.* mtu 4200 .*`}},
	{"ibv_devinfo mlx5_0 | grep mtu", []string{`\t+max_mtu:\t+4096 \(5\)`, `\t+active_mtu:\t+4096 \(5\)`}},
	{"ibv_devinfo -v -d mlx5_0 | grep -i gid", []string{
		`\t+GID\[ +0\]:\t+fe80:0000:0000:0000:[0-9a-f:]{19}, RoCE v1`, `\t+GID\[ +1\]:\t+fe80::[0-9a-f:]+, RoCE v2`,
		`\t+GID\[ +2\]:\t+0000:0000:0000:0000:0000:ffff:0a00:0001, RoCE v1`,
		`\t+GID\[ +3\]:\t+::ffff:10\.0\.0\.1, RoCE v2`,
	}},
	{"cat /sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/3 /sys/class/infiniband/mlx5_0/ports/1/gids/3",
		[]string{`RoCE v2`, `0000:0000:0000:0000:0000:ffff:0a00:0001`}},
	{"ping -c 3 10.0.0.2", []string{`64 bytes from 10\.0\.0\.2: icmp_seq=1 ttl=64 time=\d+(\.\d+)? ms`,
		`3 packets transmitted, 3 received, 0% packet loss, .*`}},
	{"ethtool -S eth0 | grep -i rdma", []string{` +rx_vport_rdma_unicast_packets: [1-9]\d*`,
		` +rx_vport_rdma_unicast_bytes: [1-9]\d*`, ` +tx_vport_rdma_unicast_packets: [1-9]\d*`,
		` +tx_vport_rdma_unicast_bytes: [1-9]\d*`}},
	{"rdma stat show", []string{
		`link mlx5_0/1 rx_write_requests [1-9]\d* .* out_of_buffer \d+ .* packet_seq_err \d+ .*`}},
	{`ethtool -S eth0 | grep -iE "error|drop|discard"`, []string{` +rx_discards_phy: \d+`, ` +tx_errors_phy: \d+`}},
}

// script saves calls: each exec in a node of an emulated host takes seconds.
func script(list []typed) string {
	var b strings.Builder
	for i, c := range list {
		fmt.Fprintf(&b, "echo '=== %d'\n", i)
		if !strings.Contains(c.command, " 10.0.0.1") {
			fmt.Fprintf(&b, "%s 2>&1\n", c.command)
			continue
		}
		fmt.Fprintf(&b, "n=0; until out=$(%s 2>&1); do n=$((n + 1)); [ $n -lt 20 ] || break; sleep 0.5; done\n"+
			"echo \"$out\"\n", c.command)
	}
	return b.String()
}

func servers(list []typed) string {
	var all []string
	for _, c := range list {
		if strings.HasPrefix(c.command, "iperf3") {
			all = append(all, "iperf3 -s -1")
		} else {
			all = append(all, strings.Replace(c.command, " 10.0.0.1", "", 1))
		}
	}
	return "{ " + strings.Join(all, "; ") + "; } >/dev/null 2>&1 </dev/null &"
}

func wrong(list []typed, out string) (faults []string) {
	printed := make(map[string]string)
	for _, part := range strings.Split(out, "=== ")[1:] {
		number, text, _ := strings.Cut(part, "\n")
		printed[number] = text
	}
	for i, c := range list {
		text := printed[strconv.Itoa(i)]
		for _, want := range c.want {
			m := regexp.MustCompile(`(?m)^` + want + `$`).FindStringSubmatch(text)
			switch {
			case m == nil:
				faults = append(faults, fmt.Sprintf("%s: no line %q in:\n%s", c.command, want, text))
			case len(m) > 1 && strings.HasPrefix(c.command, "ib_write_bw"):
				if gbits, err := strconv.ParseFloat(m[1], 64); err != nil || gbits <= 0 || gbits > cableGbits {
					faults = append(faults, fmt.Sprintf("%s: %s Gb/s over a cable of %d", c.command, m[1], cableGbits))
				}
			}
		}
	}
	return faults
}

// typedInNodes returns mismatches. run runs a script in the first or second node.
func typedInNodes(client []typed, run func(node int, script string) string) []string {
	var faults []string
	for _, c := range client {
		one := []typed{c}
		var out string
		// On a busy machine perftest sometimes cannot measure the clock of the CPU; then its figures are meaningless.
		// Its server ends with the first client.
		for range 5 {
			run(0, "killall -q ib_write_bw ib_write_lat iperf3; "+servers(one))
			out = run(1, script(one))
			if !strings.Contains(out, "Correlation coefficient") && !strings.Contains(out, "connect to") {
				break
			}
		}
		faults = append(faults, wrong(one, out)...)
	}
	return append(faults, wrong(typedOnServer, run(0, script(typedOnServer)))...)
}

// documentCommand implements "document NODE NODE", for nodes with the addresses 10.0.0.1 and 10.0.0.2.
func documentCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: document NODE NODE")
	}
	for _, fault := range typedInNodes(typedOnClient, func(node int, script string) string {
		if err := ts.Exec("rackless", "exec", "-n", args[node], "--", "sh", "-c", script); err != nil {
			ts.Logf("%v", err)
		}
		return ts.ReadFile("stdout")
	}) {
		ts.Fatalf("%s", fault)
	}
}

func (e *emulatedHost) documented(t *testing.T, nodes ...string) {
	t.Helper()
	run := func(prefix, script string) string {
		out, _ := e.host(t, fmt.Sprintf(`%ssh -c "$(echo %s | base64 -d)"`, prefix,
			base64.StdEncoding.EncodeToString([]byte(script))))
		return out
	}
	var faults []string
	if len(nodes) == 0 {
		faults = wrong(typedOnHost, run("", script(typedOnHost)))
	} else {
		// Nested nodes take a minute for the rest, which testdata/e2e/connectx.txtar types.
		client := typedOnClient[:1]
		if *everyStep {
			client = typedOnClient
		}
		faults = typedInNodes(client, func(node int, script string) string {
			return run("rackless exec -n "+nodes[node]+" -- ", script)
		})
	}
	for _, fault := range faults {
		t.Error(fault)
	}
}

func TestWhatIsTypedIsHeldToItsForm(t *testing.T) {
	t.Parallel()
	list := []typed{{"ib_write_bw 10.0.0.1", []string{bandwidthHead, bandwidthRow(2, 5000)}},
		{"ibstat", []string{`\tRate: 25`}}}
	const good = "=== 0\n #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n" +
		" 2          5000             0.06               0.05                 3.75\n=== 1\n\tRate: 25\n"
	for _, tt := range []struct{ old, new, want string }{
		{"", "", ""},
		{"0.05", "25.1", "ib_write_bw 10.0.0.1: 25.1 Gb/s over a cable of 25"},
		{"0.05", "0.00", "ib_write_bw 10.0.0.1: 0.00 Gb/s over a cable of 25"},
		{"[Gb/sec]", "[MB/sec]", "ib_write_bw 10.0.0.1: no line"},
		{"25\n", "250\n", "ibstat: no line"},
		{"=== 1", "", "ibstat: no line"},
	} {
		got := strings.Join(wrong(list, strings.Replace(good, tt.old, tt.new, 1)), "\n")
		if !strings.HasPrefix(got, tt.want) || (got == "") != (tt.want == "") {
			t.Errorf("%s for %s: got %q, want %q", tt.new, tt.old, got, tt.want)
		}
	}
	if got, want := servers(typedOnClient[1:2]),
		"{ ib_write_lat -d mlx5_0 -x 3; } >/dev/null 2>&1 </dev/null &"; got != want {
		t.Errorf("servers: %s, want %s", got, want)
	}
}
