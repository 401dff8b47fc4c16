package bench

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/rackless/rackless/internal/words"
)

const askLimit = 30 * time.Second

// ask caches the output of a short command. If the node does not answer, the next call tries again.
func (r *Runner) ask(ctx context.Context, node string, argv ...string) (Output, error) {
	key := strings.Join(append([]string{node}, argv...), "\x00")
	r.mu.Lock()
	out, ok := r.answers[key]
	r.mu.Unlock()
	if ok {
		return out, nil
	}
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	out, err := r.Exec.Exec(ctx, node, argv)
	if err != nil {
		return Output{}, fmt.Errorf("run %s on %s: %w", Shorten(words.CommandLine(argv)), node, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.answers == nil {
		r.answers = map[string]Output{}
	}
	r.answers[key] = out
	return out, nil
}

func (m *measurement) toolVersion(ctx context.Context) (Output, error) {
	if m.engine.VersionCommand == nil {
		return Output{}, nil
	}
	return m.ask(ctx, m.client.Node, m.engine.VersionCommand...)
}

// listens takes /proc/net/tcp and tcp6: field 2 is the local address, in hexadecimal with the port after the colon, and
// field 4 the state: 0A is LISTEN. See https://docs.kernel.org/networking/proc_net_tcp.html.
func listens(procNetTCP []byte, port int) bool {
	for line := range strings.Lines(string(procNetTCP)) {
		fields := strings.Fields(line)
		if len(fields) < 4 || fields[3] != "0A" {
			continue
		}
		_, hex, _ := strings.Cut(fields[1], ":")
		if p, err := strconv.ParseUint(hex, 16, 16); err == nil && int(p) == port {
			return true
		}
	}
	return false
}
