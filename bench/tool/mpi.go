package tool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/lazyregexp"
)

func osuEngine(p osu, about string) bench.Engine {
	_, metric := osuTest(p.test)
	return bench.Engine{Name: p.program, Tool: toolOSU, About: about, Suite: bench.SuiteMPI, Program: p.program,
		Launches: true, Package: "the OSU micro-benchmarks (5.4 or later), built with the nodes' MPI",
		Measures: []string{metric}, VersionCommand: []string{"env", mpiHome, "mpirun", "--version"},
		Versions: osuVersions, Plugin: p}
}

// osuVersions includes MPI, because figures over two libraries differ. mpirun prints "mpirun (Open MPI) 4.1.4", "HYDRA
// build details:" with the version of MPICH below, or "Intel(R) MPI Library for Linux* OS, Version 2021.19.0 Build
// 20260929 (id: 1821d9b)".
var osuVersions = []bench.VersionLine{
	{Name: "", Line: lazyregexp.New(`(?m)^# OSU MPI.* Test v([0-9][0-9A-Za-z.]*)\s*$`)},
	{Name: "Open MPI ", Line: lazyregexp.New(`(?m)^\S+ \((?:Open MPI|OpenRTE)\) v?([0-9][0-9A-Za-z.]*)$`)},
	{Name: "MPICH ", Line: lazyregexp.New(`(?m)^HYDRA build details:\s+Version:\s+([0-9][0-9A-Za-z.]*)$`)},
	{Name: "Intel MPI ", Line: lazyregexp.New(`(?m)^Intel\(R\) MPI Library\b.*, Version ([0-9][0-9.]*)`)},
}

// All run with two ranks: 0 on the client, 1 on the server.
var osuEngines = []bench.Engine{
	osuEngine(osu{program: "osu_bw", test: "Bandwidth", bandwidth: true},
		"bandwidth of MPI messages from client to server, by message size"),
	osuEngine(osu{program: "osu_bibw", test: "Bi-Directional Bandwidth", bandwidth: true, both: true},
		"bandwidth of MPI messages that client and server send at once, by message size"),
	osuEngine(osu{program: "osu_latency", test: "Latency"},
		"one-way latency of MPI messages, by message size: half of the round trip"),
	osuEngine(osu{program: "osu_allreduce", test: "Allreduce Latency", collective: true, word: 4},
		"time of an MPI all-reduce over client and server, by message size"),
	osuEngine(osu{program: "osu_alltoall", test: "All-to-All Personalized Exchange Latency", collective: true},
		"time of an MPI all-to-all over client and server, by message size"),
}

type osu struct {
	noSetup
	program    string
	test       string
	bandwidth  bool
	both       bool
	collective bool
	word       int64 // bytes of an element; 0 means 1
}

const (
	osuWindow       = 64      // messages in one iteration
	osuLargest      = 1 << 22 // the tool's default for messages
	osuLargestOfAll = 1 << 20 // default for collective operations
	// on slow nodes; there an iteration of 64 messages of 4 MiB would take more than a minute
	osuSlowLargest    = 1 << 16
	osuSlowSmallestBW = 1 << 10 // on slow nodes; there the bandwidth of one byte is printed as zero
	osuQuickBytes     = 8       // for latency and collective operations
	osuMostIterations = 10000   // default for the latency of small messages
)

// Traffic implements Carrier.
func (p osu) Traffic() bench.Traffic { return bench.Traffic{Both: p.both} }

// Check takes fewer iterations than perftest does, which has a limit of its own.
func (osu) Check(_, _ bench.Endpoint, o bench.Options) error {
	if o.Iterations < 0 || o.Iterations > maxIterations {
		return fmt.Errorf("%d iterations; give 1 to %d", o.Iterations, maxIterations)
	}
	if o.Bytes < 0 || o.Bytes > maxBytes {
		return fmt.Errorf("message size %d; give 1 to %d bytes", o.Bytes, maxBytes)
	}
	return nil
}

// Prepare starts a program on each node: Intel MPI and resource managers may put both ranks on the client without an
// error.
func (p osu) Prepare(ctx context.Context, ask bench.AskFunc, client, server bench.Endpoint, o *bench.Options) error {
	if p.word > 0 && o.Bytes%p.word != 0 {
		return bench.Unfit(client.Node, "%s works on numbers of %d bytes: a message of %d bytes is none", p.program,
			p.word, o.Bytes)
	}
	var names []string
	for _, ep := range []bench.Endpoint{client, server} {
		if !ep.Addr.Is4() {
			return bench.Unfit(ep.Node, "mpirun takes a host with an IPv4 address (a colon begins a number of "+
				"processes); the node has %v", ep.Addr)
		}
		out, err := ask(ctx, ep.Node, bench.FindCommand("mpirun")...)
		if err != nil {
			return err
		}
		if out.ExitCode != 0 {
			return bench.Unfit(ep.Node, "mpirun is not installed: install openmpi-bin, mpich or Intel MPI on all nodes")
		}
		if out, err = ask(ctx, ep.Node, "uname", "-n"); err != nil {
			return err
		}
		names = append(names, strings.TrimSpace(string(out.Stdout)))
	}
	if client.Node == server.Node { // see Fits
		return nil
	}
	out, err := ask(ctx, client.Node, "sh", "-c", "ssh -o BatchMode=yes -o ConnectTimeout=5 "+server.Addr.String()+
		" true")
	if err != nil {
		return err
	}
	if out.ExitCode != 0 {
		text, _ := bench.LastLine(out.Stderr)
		return bench.Unfit(client.Node,
			"ssh to %s (%v) without a password does not work, and mpirun starts programs by it: "+"exit status %d: %s",
			server.Node, server.Addr, out.ExitCode, text)
	}
	// Below the time limit of a short command, because its timeout yields no output.
	out, err = ask(ctx, client.Node, slices.Concat([]string{"timeout", "25"}, mpirun(client, server),
		[]string{"-np", "2", "uname", "-n"})...)
	if err != nil {
		return err
	}
	if out.ExitCode != 0 {
		return bench.Unfit(client.Node, "mpirun cannot start a program on %s: exit status %d: %s", server.Node,
			out.ExitCode, bench.FirstWords(out))
	}
	lines := strings.Split(strings.ReplaceAll(string(out.Stdout), "\r", ""), "\n")
	for i, ep := range []bench.Endpoint{client, server} {
		if !slices.Contains(lines, names[i]) {
			return bench.Unfit(client.Node,
				"mpirun started no program on %s: its host name %q is not among what two ranks "+"printed: %q",
				ep.Node, names[i], bench.Shorten(string(out.Stdout)))
		}
	}
	return nil
}

// mpirun was tried with Open MPI 4.1.4 and 5.0.11, MPICH 4.0.2 and 5.0.2 and Intel MPI 2021.19, over ssh. MPICH accepts
// only one list of hosts. Intel MPI fills a host with ranks before it takes the next, unless the variable is 1. Open
// MPI refuses to run as root without two variables, and release 5 without a home. Ranks are not bound: a sample that
// says "not pinned" would be wrong.
func mpirun(client, server bench.Endpoint) []string {
	return []string{"env", mpiHome, "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "I_MPI_PERHOST=1",
		"mpirun", "--bind-to", "none", "-host", client.Addr.String() + "," + server.Addr.String()}
}

// mpiHome is needed, because the guest agent sets no home.
const mpiHome = "HOME=/root"

// Client pins each rank itself: ranks do not inherit the place of mpirun on another node.
func (p osu) Client(client, server bench.Endpoint, o bench.Options) []string {
	program := slices.Concat([]string{p.program}, p.args(o))
	at := o.PlaceOf(client)
	if at == o.PlaceOf(server) {
		return slices.Concat(mpirun(client, server), []string{"-np", "2"}, at.Wrap(program))
	}
	return slices.Concat(mpirun(client, server), []string{"-np", "1"}, at.Wrap(program), []string{":", "-np", "1"},
		o.PlaceOf(server).Wrap(program))
}

// args has as many iterations as fit on slow nodes. -x is the number of warm-ups.
func (p osu) args(o bench.Options) []string {
	first, last := p.sizes(o)
	n := p.iterations(o)
	args := []string{"-m", fmt.Sprintf("%d:%d", first, last)}
	if n > 0 {
		args = append(args, "-i", strconv.Itoa(n), "-x", strconv.Itoa(max(1, n/10)))
	}
	return args
}

func (p osu) sizes(o bench.Options) (first, last int64) {
	slow := o.Accelerator != "kvm"
	first, last = max(1, p.word), osuLargest
	if p.collective {
		last = osuLargestOfAll
	}
	switch {
	case o.Bytes != 0:
		return o.Bytes, o.Bytes
	case o.Quick && p.bandwidth:
		return bench.QuickBytes, bench.QuickBytes
	case o.Quick:
		return osuQuickBytes, osuQuickBytes
	case slow && p.bandwidth:
		return osuSlowSmallestBW, osuSlowLargest
	case slow:
		return first, osuSlowLargest
	}
	return first, last
}

func (p osu) iterations(o bench.Options) int {
	switch {
	case o.Iterations != 0:
		return o.Iterations
	case o.Accelerator == "kvm":
		return 0
	}
	cost, budget := costOf(o), 5*time.Second
	first, last := p.sizes(o)
	switch {
	case o.Quick:
		budget = time.Second
	case first != last:
		budget *= 3
	}
	var messages, moved float64
	for size := first; size <= last; size *= 2 {
		messages++
		moved += float64(size)
	}
	if p.bandwidth {
		messages, moved = messages*osuWindow/5, moved*osuWindow // messages overlap, as in perftest
	}
	if !p.bandwidth || p.both {
		moved *= 2
	}
	perIteration := messages*cost.perMessage.Seconds() + moved*8/cost.bitsPerSecond
	return max(1, min(int(budget.Seconds()/perIteration), osuMostIterations))
}

// Parse is stricter than ParseOSU: nothing closes the table, but its sizes are known.
func (p osu) Parse(out bench.Output, o bench.Options) ([]bench.Figure, error) {
	res, err := ParseOSU(out.Stdout)
	if err != nil {
		return nil, err
	}
	first, last := p.sizes(o)
	switch program, _ := osuTest(res.Test); {
	case program != p.program: // names of tests differ between releases
		err = fmt.Errorf("the table is one of %q, not of %q", res.Test, p.test)
	case res.Gap != "":
		err = errors.New(res.Gap)
	case res.First > first || res.Last != last:
		err = fmt.Errorf("the table is cut off: it has messages of %d to %d bytes, not of %d to %d", res.First,
			res.Last, first, last)
	}
	if err != nil {
		return nil, bench.BadOutput(toolOSU, out.Stdout, err.Error())
	}
	return res.Figures, nil
}
