package rig

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rackless/rackless/internal/wait"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/vm/guest"
)

// A contender is a load that competes with the measured program.
type contender interface {
	// settle fails if the load has ended or does nothing.
	settle(ctx context.Context) error
	// time is in seconds on the host, without nodes and switch.
	time(m machine) float64
	// stop returns CPU time like time, and an error if the load had ended earlier.
	stop() (float64, error)
}

type nodeRunner interface {
	Run(ctx context.Context, node string, c guest.Command) (guest.Result, error)
}

// traffic is unlimited TCP between unmeasured nodes, each to the next.
type traffic struct {
	nodes nodeRunner
	among []lab.Node

	cancel context.CancelFunc
	wg     sync.WaitGroup
	mu     sync.Mutex
	err    error // of the first failed stream
}

const (
	// streamTime is short: streams left by a killed rackless end by themselves.
	streamTime = 60 * time.Second
	// bench's ports end at 27999.
	firstStreamPort, streamPorts = 28000, 1000
	connectTime                  = 30 * time.Second
)

func startTraffic(nodes nodeRunner, among []lab.Node) *traffic {
	t := &traffic{nodes: nodes, among: among}
	ctx, cancel := context.WithCancel(context.Background())
	t.cancel = cancel
	// More than two form a ring.
	streams := len(among)
	if streams == 2 {
		streams = 1
	}
	for i := range streams {
		t.wg.Go(func() { t.stream(ctx, among[i], among[(i+1)%len(among)]) })
	}
	return t
}

func (t *traffic) stream(ctx context.Context, from, to lab.Node) {
	// The previous port may be in TIME_WAIT.
	for k := 0; ctx.Err() == nil; k++ {
		port := strconv.Itoa(firstStreamPort + k%streamPorts)
		if err := t.once(ctx, from.Name, to, port); err != nil && ctx.Err() == nil {
			t.mu.Lock()
			t.err = cmp.Or(t.err, err)
			t.mu.Unlock()
			return
		}
	}
}

func (t *traffic) once(ctx context.Context, from string, to lab.Node, port string) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	served := make(chan error, 1)
	wg.Go(func() { served <- t.run(ctx, to.Name, "iperf3", "-s", "-1", "-p", port) })
	deadline := time.Now().Add(connectTime)
	for {
		began := time.Now()
		err := t.run(ctx, from, "iperf3", "-c", to.NICs[0].Addr.Addr().String(), "-p", port, "-t",
			fmt.Sprint(int(streamTime.Seconds())), "-i", "0")
		if err == nil || ctx.Err() != nil {
			return context.Cause(ctx)
		}
		select {
		case e := <-served:
			return errors.Join(err, e)
		case <-time.After(200 * time.Millisecond): // the server may not listen yet
		}
		// A client that ran for long had reached its server.
		if time.Now().After(deadline) || time.Since(began) > streamTime/2 {
			return err
		}
	}
}

func (t *traffic) run(ctx context.Context, node string, argv ...string) error {
	res, err := t.nodes.Run(ctx, node, guest.Command{Argv: argv})
	if err == nil && res.ExitCode != 0 {
		out := bytes.TrimSpace(append(res.Stderr, res.Stdout...))
		err = fmt.Errorf("%s: %s ended with %d: %s", node, strings.Join(argv, " "), res.ExitCode,
			out[max(0, len(out)-200):])
	}
	return err
}

// leastTraffic in bytes shows that the load runs, more than a handshake.
const leastTraffic = 1 << 20

func (t *traffic) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 2*connectTime,
		fmt.Errorf("load between nodes that are not measured: %s has sent nothing in %v", t.among[0].Name,
			2*connectTime))
	defer cancel()
	first := int64(-1)
	for {
		sent, err := t.sent(ctx)
		if err != nil {
			return err
		}
		if first < 0 {
			first = sent
		}
		if sent-first > leastTraffic {
			return nil
		}
		if err := cmp.Or(t.failed(), wait.For(ctx, 200*time.Millisecond)); err != nil {
			return err
		}
	}
}

func (t *traffic) sent(ctx context.Context) (int64, error) {
	n := t.among[0]
	file := "/sys/class/net/" + n.NICs[0].Name + "/statistics/tx_bytes"
	res, err := t.nodes.Run(ctx, n.Name, guest.Command{Argv: []string{"cat", file}})
	if err != nil {
		return 0, err
	}
	v, err := strconv.ParseInt(string(bytes.TrimSpace(res.Stdout)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %s: %w", n.Name, file, err)
	}
	return v, nil
}

// failed returns the first error, because later ones may be consequences.
func (t *traffic) failed() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

// time returns 0, because nodes and switch use the CPU time of streams.
func (t *traffic) time(machine) float64 { return 0 }

func (t *traffic) stop() (float64, error) {
	err := t.failed()
	t.cancel()
	t.wg.Wait()
	if err != nil {
		err = fmt.Errorf("the load between nodes ended while it was needed: %w", err)
	}
	return 0, err
}
