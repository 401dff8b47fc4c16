package bench

import (
	"bytes"
	"regexp"
	"strconv"

	"github.com/rackless/rackless/internal/words"
)

// Mooncake's transfer engine moves the key-value caches of language models between machines. Its own benchmark is in
// its wheel: docs/measuring.md says how it gets into nodes.
func mooncakeEngine(name, about string, m mooncake) Engine {
	return Engine{Name: name, Tool: toolMooncake, About: about, Suite: SuiteAI, Program: "transfer_engine_bench",
		Package: "the wheel mooncake-transfer-engine-non-cuda, see docs/measuring.md", endless: true, counted: true,
		metrics: []string{MetricBWAverage}, versionCommand: []string{"sh", "-c", "ls /opt/mooncake"},
		versions: []versionLine{{"", regexp.MustCompile(`(?m)^mooncake_transfer_engine\w*-([0-9][\w.]*)\.dist-info$`)}},
		plugin:   m}
}

var mooncakeEngines = []Engine{
	mooncakeEngine("mooncake_write", "bandwidth of writes by Mooncake's transfer engine over the RDMA device",
		mooncake{operation: "write"}),
	mooncakeEngine("mooncake_read", "bandwidth of reads by Mooncake's transfer engine over the RDMA device",
		mooncake{operation: "read"}),
}

// A mooncake is one operation.
type mooncake struct {
	noSetup
	operation string
}

const (
	mooncakeBatch  = 4        // requests that are made at once
	mooncakeBuffer = 16 << 20 // bytes that each side registers
	mooncakePacket = 4096     // bytes of the largest packet: RoCE's largest MTU
)

func (m mooncake) size(o Options) int64 {
	if o.Bytes != 0 {
		return o.Bytes
	}
	return quickBytes
}

// check is perftest's; more than the buffer holds would be cut off.
func (m mooncake) check(client, server Endpoint, o Options) error {
	if m.size(o)*mooncakeBatch > mooncakeBuffer {
		return badResult(toolMooncake, "%d bytes in each of %d requests do not fit into the buffer of %d: give a "+
			"smaller size", m.size(o), mooncakeBatch, mooncakeBuffer)
	}
	return perftest{bandwidth: true}.check(client, server, o)
}

// args are those of both sides. The port is one of many by chance, unless it is the only one.
func (m mooncake) args(ep Endpoint, port int, mode string) []string {
	args := []string{"env", "MC_GID_INDEX=" + strconv.Itoa(ep.GIDIndex)}
	if port != 0 {
		args = append(args, "MC_MIN_RPC_PORT="+strconv.Itoa(port), "MC_MAX_RPC_PORT="+strconv.Itoa(port))
	}
	return append(args, "transfer_engine_bench", "-mode="+mode, "-metadata_server=P2PHANDSHAKE", "-logtostderr",
		"-local_server_name="+ep.Addr.String(), "-buffer_size="+strconv.Itoa(mooncakeBuffer), "-threads=1",
		"-protocol=rdma", "-device_name="+ep.Device)
}

func (m mooncake) server(ep Endpoint, o Options) []string { return m.args(ep, o.Port, "target") }

func (m mooncake) client(client, server Endpoint, o Options) []string {
	return append(m.args(client, 0, "initiator"), "-segment_id="+server.Addr.String()+":"+strconv.Itoa(o.Port),
		"-operation="+m.operation, "-block_size="+strconv.FormatInt(m.size(o), 10),
		"-batch_size="+strconv.Itoa(mooncakeBatch), "-duration="+strconv.Itoa(o.seconds()), "-report_unit=Gb",
		"-report_precision=6")
}

var (
	mooncakeDone = regexp.MustCompile(`(?m)Test completed: duration ([0-9.]+), batch count ([0-9]+), throughput ` +
		`([0-9.]+) Gb/s\s*$`)
	mooncakeError = regexp.MustCompile(`(?m)^[EF][0-9]{4} .*\] (.*)$`)
)

// parse holds the figure against what it was made of, and against the packets of the device: Mooncake over TCP would
// print the same.
func (m mooncake) parse(out Output, o Options) ([]Figure, error) {
	done := mooncakeDone.FindSubmatch(out.Stderr)
	if done == nil {
		if e := mooncakeError.FindSubmatch(out.Stderr); e != nil {
			return nil, badResult(toolMooncake, "it gave up: %s", bytes.TrimSpace(e[1]))
		}
		return nil, badResult(toolMooncake, "the line \"Test completed\" is missing")
	}
	seconds, _ := strconv.ParseFloat(string(done[1]), 64)
	batches, _ := strconv.ParseInt(string(done[2]), 10, 64)
	rate, _ := strconv.ParseFloat(string(done[3]), 64)
	moved := batches * mooncakeBatch * m.size(o)
	if seconds <= 0 || batches < 1 || rate <= 0 {
		return nil, badResult(toolMooncake, "%q: nothing was moved", done[0])
	}
	// Both are rounded: the time to hundredths.
	if made := float64(moved) * 8 / seconds / 1e9; made < rate*0.9 || made > rate*1.1 {
		return nil, badResult(toolMooncake, "%q: %d batches are %.4f Gb/s", done[0], batches, made)
	}
	packets := words.Either(m.operation == "read", o.Packets.Received, o.Packets.Sent)
	if packets*mooncakePacket < moved {
		return nil, badResult(toolMooncake, "%d packets passed the RDMA device, and %d bytes take %d: it moved them "+
			"in another way", packets, moved, moved/mooncakePacket)
	}
	return []Figure{{Metric: MetricBWAverage, Unit: MetricOf(MetricBWAverage).Unit, Value: rate, Bytes: m.size(o),
		Iterations: batches * mooncakeBatch}}, nil
}
