package tool

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed"
	"fmt"
	"strconv"
	"strings"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/lazyregexp"
)

// A transfer is a test of a library that moves caches of language models. docs/measuring.md describes how to install
// the libraries.
type transfer struct {
	by        *transferTool
	operation string // "write" or "read"
	requests  int    // concurrent; 0 means transferRequests. "b8"
	tcp       bool
}

// Both libraries print the line of Mooncake's benchmark.
type transferTool struct {
	tool           string
	server         func(t transfer, ep bench.Endpoint, o bench.Options) []string
	client         func(t transfer, client, server bench.Endpoint, o bench.Options) []string
	prepare        func(ctx context.Context, t transfer, ask bench.AskFunc, node string) error
	program, wheel string
	endless        bool // its server
	versions       string
}

const (
	transferRequests = 4
	transferBuffer   = 16 << 20 // bytes registered by each side
	transferPacket   = 4096     // RoCE's largest MTU
)

// transferTools: Mooncake's wheel has a benchmark, NIXL's has none.
var transferTools = []*transferTool{
	{tool: toolMooncake, program: "transfer_engine_bench", wheel: "mooncake-transfer-engine-non-cuda", endless: true,
		versions: `(?m)^mooncake_transfer_engine\w*-([0-9][\w.]*)\.dist-info$`, server: mooncakeServer,
		client: mooncakeClient, prepare: prepareMooncake},
	{tool: toolNIXL, program: "python3", wheel: "nixl-cu12", versions: `(?m)^nixl_cu12-([0-9][\w.]*)\.dist-info$`,
		server: nixlServer, client: nixlClient, prepare: prepareNIXL},
}

var transferEngines = makeTransferEngines()

func makeTransferEngines() (all []bench.Engine) {
	for _, tool := range transferTools {
		for _, operation := range []string{"write", "read"} {
			all = append(all, bench.Engine{Name: tool.tool + "_" + operation, Tool: tool.tool, Suite: bench.SuiteAI,
				About:   fmt.Sprintf("bandwidth of %ss of the other node's memory by %s", operation, tool.tool),
				Program: tool.program, Package: "the wheel " + tool.wheel + ", see docs/measuring.md",
				Endless: tool.endless, Counted: true, Measures: []string{bench.MetricBWAverage},
				VersionCommand: []string{"sh", "-c", "ls /opt/" + tool.tool},
				Versions:       []bench.VersionLine{{Name: "", Line: lazyregexp.New(tool.versions)}},
				Plugin:         transfer{by: tool, operation: operation}})
		}
	}
	return all
}

func (t *transfer) apply(word string) error {
	n, err := strconv.Atoi(strings.TrimPrefix(word, "b"))
	switch {
	case word == "tcp" && !t.tcp:
		t.tcp = true
	case strings.HasPrefix(word, "b") && err == nil && n > 0 && n <= 1024 && t.requests == 0:
		t.requests = n
	default:
		return fmt.Errorf("word %q: want bN for N requests at once, of 1 to 1024, or tcp", word)
	}
	return nil
}

func (t transfer) name() string {
	name := t.by.tool + "_" + t.operation
	if t.requests > 0 {
		name += fmt.Sprintf("/b%d", t.requests)
	}
	if t.tcp {
		name += "/tcp"
	}
	return name
}

func (t transfer) batch() int { return cmp.Or(t.requests, transferRequests) }

func (t transfer) size(o bench.Options) int64 { return cmp.Or(o.Bytes, bench.QuickBytes) }

// Check is perftest's if an RDMA device is needed; more than the buffer holds would be cut off.
func (t transfer) Check(client, server bench.Endpoint, o bench.Options) error {
	if t.size(o) < 0 || t.size(o)*int64(t.batch()) > transferBuffer {
		return bench.BadResult(t.by.tool, "%d bytes in each of %d requests do not fit into the buffer of %d: give a "+
			"smaller size", t.size(o), t.batch(), transferBuffer)
	}
	if t.tcp {
		return nil
	}
	return perftest{bandwidth: true}.Check(client, server, o)
}

func (t transfer) Prepare(ctx context.Context, ask bench.AskFunc, client, server bench.Endpoint,
	_ *bench.Options) error {
	return cmp.Or(t.by.prepare(ctx, t, ask, client.Node), t.by.prepare(ctx, t, ask, server.Node))
}

func (t transfer) Server(ep bench.Endpoint, o bench.Options) []string { return t.by.server(t, ep, o) }

func (t transfer) Client(client, server bench.Endpoint, o bench.Options) []string {
	return t.by.client(t, client, server, o)
}

// mooncakeArgs is for both sides. Mooncake chooses a random port, unless port is set. With CUDA, its benchmark would
// move memory of a GPU; without, it does not know the word.
func mooncakeArgs(t transfer, ep bench.Endpoint, port int, mode string) []string {
	args, protocol := []string{"env"}, []string{"-protocol=rdma", "-device_name=" + ep.Device}
	if t.tcp {
		args, protocol = append(args, "MC_FORCE_TCP=true"), []string{"-protocol=tcp"}
	} else {
		args = append(args, "MC_GID_INDEX="+strconv.Itoa(ep.GIDIndex))
	}
	if port != 0 {
		args = append(args, "MC_MIN_RPC_PORT="+strconv.Itoa(port), "MC_MAX_RPC_PORT="+strconv.Itoa(port))
	}
	args = append(args, "transfer_engine_bench", "-mode="+mode, "-metadata_server=P2PHANDSHAKE", "-logtostderr",
		"-local_server_name="+ep.Addr.String(), "-buffer_size="+strconv.Itoa(transferBuffer), "-threads=1",
		"-undefok=use_vram", "-use_vram=false")
	return append(args, protocol...)
}

// mooncakeProgram supplies Mooncake with the ports that it needs for TCP.
//
//go:embed programs/mooncake.py
var mooncakeProgram string

func prepareMooncake(ctx context.Context, t transfer, ask bench.AskFunc, node string) error {
	if !t.tcp {
		return nil
	}
	return give(ctx, ask, node, mooncakePath, mooncakeProgram, "true")
}

func mooncakeServer(t transfer, ep bench.Endpoint, o bench.Options) []string {
	if t.tcp {
		return append([]string{mooncakePath, strconv.Itoa(o.Port)}, mooncakeArgs(t, ep, 0, "target")...)
	}
	return mooncakeArgs(t, ep, o.Port, "target")
}

func mooncakeClient(t transfer, client, server bench.Endpoint, o bench.Options) []string {
	return append(mooncakeArgs(t, client, 0, "initiator"),
		"-segment_id="+server.Addr.String()+":"+strconv.Itoa(o.Port), "-operation="+t.operation,
		"-block_size="+strconv.FormatInt(t.size(o), 10), "-batch_size="+strconv.Itoa(t.batch()),
		"-duration="+strconv.Itoa(o.RunSeconds()), "-report_unit=Gb", "-report_precision=6")
}

//go:embed programs/nixl.py
var nixlProgram string

var mooncakePath, nixlPath = programPath(toolMooncake, mooncakeProgram), programPath(toolNIXL, nixlProgram)

func programPath(tool, program string) string {
	return fmt.Sprintf("/usr/local/bin/rackless-%s-%.4x", tool, sha256.Sum256([]byte(program)))
}

func give(ctx context.Context, ask bench.AskFunc, node, path, program, then string) error {
	const keep = `[ -x "$1" ] || { printf %s "$2" >"$1.new" && chmod 755 "$1.new" && mv "$1.new" "$1"; } && "$3"`
	out, err := ask(ctx, node, "sh", "-c", keep, "sh", path, program, then)
	if err == nil && out.ExitCode != 0 {
		text, _ := bench.LastLine(out.Stderr)
		err = bench.Unfit(node, "%s", text)
	}
	return err
}

func prepareNIXL(ctx context.Context, _ transfer, ask bench.AskFunc, node string) error {
	return give(ctx, ask, node, nixlPath, nixlProgram, nixlPath)
}

func nixlArgs(t transfer, ep bench.Endpoint, mode string, at bench.Endpoint, o bench.Options) []string {
	args := []string{"env", "UCX_TLS=tcp"}
	if !t.tcp {
		args = []string{"env", "UCX_TLS=rc_v,ud_v", "UCX_NET_DEVICES=" + ep.Device + ":1",
			"UCX_IB_GID_INDEX=" + strconv.Itoa(ep.GIDIndex)}
	}
	return append(args, nixlPath, mode, at.Addr.String(), strconv.Itoa(o.Port))
}

func nixlServer(t transfer, ep bench.Endpoint, o bench.Options) []string {
	return nixlArgs(t, ep, "target", ep, o)
}

func nixlClient(t transfer, client, server bench.Endpoint, o bench.Options) []string {
	return append(nixlArgs(t, client, t.operation, server, o), strconv.FormatInt(t.size(o), 10),
		strconv.Itoa(t.batch()), strconv.Itoa(o.RunSeconds()))
}

var (
	transferDone = lazyregexp.New(`(?m)Test completed: duration ([0-9.]+), batch count ([0-9]+), throughput ` +
		`([0-9.]+) Gb/s\s*$`)
	mooncakeError = lazyregexp.New(`(?m)^[EF][0-9]{4} .*\] (.*)$`)
)

// Parse also checks the packets of the device: a library that uses another transport than it was told prints the same.
func (t transfer) Parse(out bench.Output, o bench.Options) ([]bench.Figure, error) {
	bad := func(format string, args ...any) ([]bench.Figure, error) {
		return nil, bench.BadResult(t.by.tool, format, args...)
	}
	done := transferDone().FindSubmatch(out.Stderr)
	if done == nil {
		if e := mooncakeError().FindSubmatch(out.Stderr); e != nil {
			return bad("it gave up: %s", bytes.TrimSpace(e[1]))
		}
		return bad("the line \"Test completed\" is missing")
	}
	seconds, _ := strconv.ParseFloat(string(done[1]), 64)
	batches, _ := strconv.ParseInt(string(done[2]), 10, 64)
	rate, _ := strconv.ParseFloat(string(done[3]), 64)
	moved := batches * int64(t.batch()) * t.size(o)
	if seconds <= 0 || batches < 1 || rate <= 0 {
		return bad("%q: nothing was moved", done[0])
	}
	// Both are rounded, the time to hundredths.
	if made := float64(moved) * 8 / seconds / 1e9; made < rate*0.9 || made > rate*1.1 {
		return bad("%q: %d batches are %.4f Gb/s", done[0], batches, made)
	}
	packets := o.Packets.Sent
	if t.operation == "read" {
		packets = o.Packets.Received
	}
	if byRDMA := packets*transferPacket >= moved; byRDMA == t.tcp {
		return bad("%d packets passed the RDMA device, and %d bytes take %d: it moved them in another way", packets,
			moved, moved/transferPacket)
	}
	return []bench.Figure{{Metric: bench.MetricBWAverage, Unit: bench.MetricOf(bench.MetricBWAverage).Unit, Value: rate,
		Bytes: t.size(o), Iterations: batches * int64(t.batch())}}, nil
}
