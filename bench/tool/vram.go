package tool

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"time"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/lazyregexp"
)

// A vramWrite moves messages from the memory of a GPU to that of another node's: by GPUDirect RDMA, or staged in main
// memory on both sides. Both differ in nothing else.
type vramWrite struct {
	staged bool
	gpu    string // of both nodes, "0" unless set
	nic    string // of both nodes; "" means the first
}

const (
	vramBytes    = 1 << 20
	vramMessages = 100
	maxVRAMBytes = 8 << 20 // of a message, of which four are on the way
)

//go:embed programs/vram.py
var vramProgram string

var vramPath = programPath(toolVRAM, vramProgram)

var vramEngines = []bench.Engine{{Name: "vram_write_bw", Tool: toolVRAM, Suite: bench.SuiteGPUDirect,
	About:   "bandwidth from a GPU to that of another node, by GPUDirect RDMA or staged in main memory",
	Program: "python3", Package: "python3 and libcuda.so.1 (image: debian-13+gpu in the lab file)",
	Measures: []string{bench.MetricBWAverage}, VersionCommand: []string{"python3", "--version"},
	Versions: []bench.VersionLine{{Name: "Python ", Line: lazyregexp.New(`(?m)^Python ([0-9][\w.]*)`)}},
	Plugin:   vramWrite{}}}

func (v *vramWrite) apply(word string) error {
	m := numberWord().FindStringSubmatch(word)
	switch {
	case word == "staged":
		v.staged = true
	case m != nil && m[1] == "cuda" && len(m[2]) < 4:
		v.gpu = m[2]
	case m != nil && m[1] == "nic" && len(m[2]) < 3:
		v.nic = m[2]
	default:
		return fmt.Errorf("%q is unknown; after a slash come staged, cudaN, nicN", word)
	}
	return nil
}

func (v vramWrite) name() string {
	name := "vram_write_bw"
	if v.staged {
		name += "/staged"
	}
	if v.gpu != "" {
		name += "/cuda" + v.gpu
	}
	if v.nic != "" {
		name += "/nic" + v.nic
	}
	return name
}

// Traffic implements bench.Carrier. Staged, the adapters see main memory only.
func (v vramWrite) Traffic() bench.Traffic {
	t := bench.Traffic{Operation: "write", NIC: cmp.Or(v.nic, "0")}
	if !v.staged {
		t.GPU = cmp.Or(v.gpu, "0")
	}
	return t
}

func (v vramWrite) bytes(o bench.Options) int64  { return cmp.Or(o.Bytes, vramBytes) }
func (v vramWrite) messages(o bench.Options) int { return cmp.Or(o.Iterations, vramMessages) }

// Duration implements bench.FixedDuration: Python takes an emulated node seconds to start.
func (v vramWrite) Duration(o bench.Options) time.Duration {
	bits := 8 * float64(v.bytes(o)) * float64(v.messages(o))
	return 3*time.Second + time.Duration(bits/costOf(o).bitsPerSecond*float64(time.Second))
}

// Check implements bench.Plugin.
func (v vramWrite) Check(client, server bench.Endpoint, o bench.Options) error {
	if b := v.bytes(o); b < 1 || b > maxVRAMBytes {
		return fmt.Errorf("message size %d; give 1 to %d bytes", b, maxVRAMBytes)
	}
	if n := v.messages(o); n < minIterations || n > maxIterations {
		return fmt.Errorf("%d iterations; give %d to %d", n, minIterations, maxIterations)
	}
	return perftest{bandwidth: true}.Check(client, server, bench.Options{})
}

// Prepare implements bench.Plugin.
func (v vramWrite) Prepare(ctx context.Context, ask bench.AskFunc, client, server bench.Endpoint,
	_ *bench.Options) error {
	for _, ep := range []bench.Endpoint{client, server} {
		n, err := GPUs(ctx, ask, ep.Node)
		if err != nil {
			return err
		}
		if number, _ := strconv.Atoi(cmp.Or(v.gpu, "0")); number >= n { // digits only, by numberWord
			return bench.Unfit(ep.Node, "nvidia-smi -L finds %d GPUs, and the test uses number %d, from 0", n, number)
		}
		if err := give(ctx, ask, ep.Node, vramPath, vramProgram, "true"); err != nil {
			return err
		}
	}
	return nil
}

// args hides memory of GPUs from CPUs, as real GPUs do: a program that touches it by mistake fails.
func (v vramWrite) args(mode string, ep bench.Endpoint, at bench.Endpoint, o bench.Options) []string {
	way := "direct"
	if v.staged {
		way = "staged"
	}
	return []string{"env", "RACKLESS_GPU_PROTECT=1", vramPath, mode, at.Addr.String(), strconv.Itoa(o.Port), ep.Device,
		strconv.Itoa(ep.GIDIndex), cmp.Or(v.gpu, "0"), way}
}

// Server implements bench.Plugin.
func (v vramWrite) Server(ep bench.Endpoint, o bench.Options) []string {
	return v.args("serve", ep, ep, o)
}

// Client implements bench.Plugin.
func (v vramWrite) Client(client, server bench.Endpoint, o bench.Options) []string {
	return append(v.args("client", client, server, o), strconv.FormatInt(v.bytes(o), 10), strconv.Itoa(v.messages(o)))
}

var vramLine = lazyregexp.New(`(?m)^(direct|staged): ([0-9]+) messages of ([0-9]+) bytes in ([0-9.]+) s, ([0-9.]+) ` +
	`Gb/s; copies took [0-9.]+ s here and [0-9.]+ s there$`)

// Parse implements bench.Plugin.
func (v vramWrite) Parse(out bench.Output, o bench.Options) ([]bench.Figure, error) {
	m := vramLine().FindStringSubmatch(string(out.Stdout))
	if m == nil {
		return nil, bench.BadOutput(toolVRAM, out.Stdout, "the line of the transfer is missing")
	}
	messages, _ := strconv.ParseInt(m[2], 10, 64)
	size, _ := strconv.ParseInt(m[3], 10, 64)
	seconds, _ := strconv.ParseFloat(m[4], 64)
	rate, _ := strconv.ParseFloat(m[5], 64)
	switch {
	case (m[1] == "staged") != v.staged || messages != int64(v.messages(o)) || size != v.bytes(o):
		return nil, bench.BadResult(toolVRAM, "%q: it moved other messages than it was told", m[0])
	case seconds <= 0 || rate <= 0:
		return nil, bench.BadResult(toolVRAM, "%q: nothing was moved", m[0])
	}
	if made := float64(messages*size) * 8 / seconds / 1e9; made < rate*0.999 || made > rate*1.001 {
		return nil, bench.BadResult(toolVRAM, "%q: that is %.6f Gb/s", m[0], made)
	}
	return []bench.Figure{{Metric: bench.MetricBWAverage, Unit: bench.MetricOf(bench.MetricBWAverage).Unit, Value: rate,
		Bytes: size, Iterations: messages}}, nil
}
