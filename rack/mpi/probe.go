package mpi

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/rackless/rackless/guest"
	"github.com/rackless/rackless/internal/words"
)

// A probe is what a node says of itself before and after a run.
type probe struct {
	program, launcher string // of MPI: its name and what it says of its version
	ucx               string // version
	sent, received    uint64 // RDMA packets
	bytes             uint64 // that the network device of the node's address has sent
}

// script prints a line for each thing that a probe asks. $1 is the RDMA device, $2 the network device, $3 which
// versions are wanted, $4 the program, "" if only counters are wanted. Programs take long where CPUs are emulated: it
// starts few, and what they say of their versions is kept until a package or the launcher changes. soft RoCE counts
// packets in hw_counters, cards count those of a port.
const script = `cd /sys/class/infiniband/"$1"/ports/1 || exit
for f in hw_counters/sent_pkts hw_counters/rcvd_pkts counters/port_xmit_packets counters/port_rcv_packets; do
	[ ! -r $f ] || { read -r n <$f && echo "${f##*/} $n"; }
done
read -r n <"/sys/class/net/$2/statistics/tx_bytes" && echo "tx_bytes $n"
[ -n "$4" ] || exit 0
command -v "$4" >/dev/null && echo "program yes"
for m in mpirun.openmpi mpirun.mpich mpirun; do
	command -v $m >/dev/null || continue
	echo "mpirun $m"
	break
done
[ -n "$3" ] || exit 0
kept="/run/rackless-mpi $3"
if ! [ "$kept" -nt /var/lib/dpkg/status ] || ! [ "$kept" -nt "$(command -v $m)" ]; then
	{
		case $3 in *launcher*) HOME=/root $m --version 2>&1 | head -n 3 | sed 's/^/version /' ;; esac
		case $3 in *ucx*) ucx_info -v 2>/dev/null | head -n 2 | sed 's/^/ucx /' ;; esac
	} >"$kept.new"
	mv "$kept.new" "$kept"
fi
while read -r line; do echo "$line"; done <"$kept"`

// probeNode asks a node, for versions too: those of "launcher" and of "ucx".
func probeNode(ctx context.Context, r Runner, n Node, versions, program string) (probe, error) {
	res, err := r.Run(ctx, n.Node, guest.Command{Argv: []string{"sh", "-c", script, "sh", n.Device, n.NIC,
		versions, program}})
	if err != nil {
		return probe{}, err
	}
	if res.ExitCode != 0 {
		return probe{}, fmt.Errorf("%s: %s: %s", n.Node, n.Device, bytes.TrimSpace(res.Stderr))
	}
	p, found := parseProbe(res.Stdout)
	switch {
	case program == "":
	case p.program == "":
		return p, fmt.Errorf("%s: mpirun is not installed: say image: debian-12+mpi in the lab file, or install "+
			"openmpi-bin", n.Node)
	case !found:
		return p, fmt.Errorf("%s: no program %s: it has to be on all nodes; rackless cp copies files", n.Node, program)
	}
	return p, nil
}

// parseProbe reads what the script prints. A node may print anything: what is no such line is passed over.
func parseProbe(text []byte) (p probe, found bool) {
	counters := make(map[string]uint64)
	for line := range bytes.Lines(text) {
		key, value, _ := strings.Cut(string(bytes.TrimSpace(line)), " ")
		switch key {
		case "program":
			found = true
		case "mpirun":
			p.program = value
		case "version":
			if p.launcher == "" || strings.Contains(value, "Version:") {
				p.launcher = strings.Join(strings.Fields(strings.TrimSpace(p.launcher+" "+value)), " ")
			}
		case "ucx":
			for _, word := range strings.FieldsFunc(value, func(r rune) bool { return r == ' ' || r == '=' }) {
				if p.ucx == "" && strings.Count(word, ".") >= 2 && word[0] >= '0' && word[0] <= '9' {
					p.ucx = word
				}
			}
		default:
			if n, err := strconv.ParseUint(value, 10, 64); err == nil {
				counters[key] = n
			}
		}
	}
	p.sent = max(counters["sent_pkts"], counters["port_xmit_packets"])
	p.received = max(counters["rcvd_pkts"], counters["port_rcv_packets"])
	p.bytes = counters["tx_bytes"]
	return p, found
}

// minus is what was counted since before. A counter that went back, as after a reboot, counts from zero.
func (p probe) minus(before probe) probe {
	since := func(now, then uint64) uint64 { return words.Either(now < then, now, now-then) }
	return probe{sent: since(p.sent, before.sent), received: since(p.received, before.received),
		bytes: since(p.bytes, before.bytes)}
}

// hydra reports whether the launcher is MPICH's, or one made from it.
func (p probe) hydra() bool { return strings.HasPrefix(p.launcher, "HYDRA") }

// oldUCX reports whether UCX gives up on soft RoCE: 1.13.1 of Debian 12 ends with "Endpoint
// timeout" in the wire-up over datagrams, on an idle machine too, and 1.20.1 does not.
func (p probe) oldUCX() bool {
	_, rest, ok := strings.Cut(p.ucx, ".")
	minor, _, _ := strings.Cut(rest, ".")
	n, err := strconv.Atoi(minor)
	return !ok || err != nil || strings.HasPrefix(p.ucx, "1.") && n < 20
}
