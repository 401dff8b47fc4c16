package mpi

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/vm/guest"
)

type probe struct {
	program, launcher string
	ucx               string // version
	device            string // MPICH's libraries, such as "ch4:ucx"
	counters
}

type counters map[string]uint64

// counterFiles may not exist: soft RoCE counts packets in hw_counters, cards per port.
func counterFiles(n Node) (sent, received []string, bytes string) {
	port := "/sys/class/infiniband/" + n.Device + "/ports/1/"
	return []string{port + "hw_counters/sent_pkts", port + "counters/port_xmit_packets"},
		[]string{port + "hw_counters/rcvd_pkts", port + "counters/port_rcv_packets"},
		"/sys/class/net/" + n.NIC + "/statistics/tx_bytes"
}

// script prints a line for each fact of a probe. $1 selects versions, $2 is the program, $3 lists the launchers to look
// for, and counter files follow. Programs are slow on emulated CPUs, so it caches versions until a package or the
// launcher changes.
//
//go:embed probe.sh
var script string

func probeNode(ctx context.Context, r Runner, n Node, versions, program, library string) (probe, error) {
	launchers := "mpirun.openmpi mpirun.mpich mpirun"
	if library != "" {
		launchers = "mpirun." + library + " mpirun"
	}
	sent, received, bytesSent := counterFiles(n)
	argv := slices.Concat([]string{"sh", "-c", script, "sh", versions, program, launchers}, sent, received,
		[]string{bytesSent})
	res, err := r.Run(ctx, n.Node, guest.Command{Argv: argv})
	if err != nil {
		return probe{}, err
	}
	p, found := parseProbe(res.Stdout)
	switch {
	case res.ExitCode != 0:
		return p, fmt.Errorf("%s: %s: %s", n.Node, n.Device, bytes.TrimSpace(res.Stderr))
	case p.program == "":
		pack := "openmpi-bin"
		if library == "mpich" {
			pack = "mpich"
		}
		return p, fmt.Errorf("%s: %s is not installed: say image: debian-12+mpi in the lab file, or install "+
			"%s", n.Node, cmp.Or(library, "mpirun"), pack)
	case !found:
		return p, fmt.Errorf("%s: no program %s: it has to be on all nodes; rackless cp copies files", n.Node, program)
	case !slices.ContainsFunc(sent, func(f string) bool { _, ok := p.counters[f]; return ok }):
		return p, fmt.Errorf("%s: RDMA device %s counts no packets in %s", n.Node, n.Device, sent[0])
	}
	return p, nil
}

// since reads the counters again, without starting a program on the node, and returns the differences.
func (c counters) since(ctx context.Context, r Runner, n Node) (Traffic, error) {
	t := Traffic{Node: n.Node, Device: n.Device}
	sent, received, bytesSent := counterFiles(n)
	for to, files := range map[*uint64][]string{&t.PacketsSent: sent, &t.PacketsReceived: received,
		&t.BytesSent: {bytesSent}} {
		for _, f := range files {
			before, ok := c[f]
			if !ok {
				continue
			}
			text, err := r.ReadFile(ctx, n.Node, f)
			if err != nil {
				return t, err
			}
			now, err := strconv.ParseUint(string(bytes.TrimSpace(text)), 10, 64)
			if err != nil {
				return t, fmt.Errorf("%s: %s: %w", n.Node, f, err)
			}
			counted := now - before
			if now < before { // it was reset
				counted = now
			}
			*to = max(*to, counted)
		}
	}
	return t, nil
}

// parseProbe ignores unknown lines: a node may print anything.
func parseProbe(text []byte) (p probe, found bool) {
	p.counters = make(counters)
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
		case "device":
			p.device = value
		case "ucx":
			for _, word := range strings.FieldsFunc(value, func(r rune) bool { return r == ' ' || r == '=' }) {
				if p.ucx == "" && strings.Count(word, ".") >= 2 && word[0] >= '0' && word[0] <= '9' {
					p.ucx = word
				}
			}
		default:
			if n, err := strconv.ParseUint(value, 10, 64); err == nil {
				p.counters[key] = n
			}
		}
	}
	return p, found
}

func (p probe) hydra() bool { return strings.HasPrefix(p.launcher, "HYDRA") }

// takesRankfile is for Open MPI up to 4: 5.0.7 refuses the file in each of its options ("unrecognized qualifier:
// file=").
func (p probe) takesRankfile() bool { return rankfileLaunchers.MatchString(p.launcher) }

var rankfileLaunchers = regexp.MustCompile(`\((?:Open MPI|OpenRTE)\) v?[1-4]\.`)

// lacksOFI is true for Debian 12's MPICH, built without libfabric.
func (p probe) lacksOFI() bool { return p.device == "ch4:ucx" }

// oldUCX is true if UCX gives up on soft RoCE: Debian 12's 1.13.1 ends with "Endpoint timeout" in the wire-up over
// datagrams, even on an idle machine, and 1.20.1 does not.
func (p probe) oldUCX() bool {
	_, rest, ok := strings.Cut(p.ucx, ".")
	minor, _, _ := strings.Cut(rest, ".")
	n, err := strconv.Atoi(minor)
	return !ok || err != nil || strings.HasPrefix(p.ucx, "1.") && n < 20
}
