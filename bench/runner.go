package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rackless/rackless/internal/words"
)

// An Executor runs commands on nodes.
type Executor interface {
	// Exec runs argv on a node until it exits; a failure of the command is only a status in the output. Canceling ctx
	// kills the command, and Exec returns an error, with the output so far.
	Exec(ctx context.Context, node string, argv []string) (Output, error)
}

// Nodes are the nodes of a Runner.
type Nodes interface {
	Executor
	// Serve is like Exec, for a server. It does not poll for the exit until awaited is closed, because polling would
	// disturb the measurement.
	Serve(ctx context.Context, node string, argv []string, awaited <-chan struct{}) (Output, error)
	// ReadFile costs the programs that run on the node little.
	ReadFile(ctx context.Context, node, path string) ([]byte, error)
}

// An Output is the result of a command.
type Output struct {
	Stdout, Stderr []byte
	ExitCode       int
	CPU            time.Duration // of a command on this machine, or 0
}

// Defaults of a Runner.
const (
	DefaultRetries     = 2
	CalibrationRetries = 5 // for perftest's failure to calibrate the CPU's clock
	DefaultTimeLimit   = 3 * time.Minute

	listenLimit = 30 * time.Second // for a server to listen
	firstPort   = 20000            // below the ephemeral ports of kernels, which begin at 32768
	// Ports are used in turn: a port's last connection may be in TIME_WAIT.
	Ports = 8000

	listenPoll = 20 * time.Millisecond
	grace      = 5 * time.Second // for one side to exit after the other has
)

// A Runner measures between two nodes. Its methods may be called from several goroutines, but concurrent measurements
// that share a node or a link disturb each other.
type Runner struct {
	Exec        Nodes
	Launcher    Launcher // nil if engines with a Group cannot run
	Accelerator string   // of the nodes' CPUs: "kvm" or "tcg"
	Emulated    bool     // the RDMA device or the CPU is emulated

	// Retries after a failed try; 0 means DefaultRetries, below 0 none; see CalibrationRetries
	Retries int
	// TimeLimit for one try, beyond its measuring time; 0 means DefaultTimeLimit
	TimeLimit time.Duration

	// FirstPort is the index of the first run's port, from 0. A random one avoids ports of an earlier program in
	// TIME_WAIT: not every tool can listen there.
	FirstPort int

	WarmUps  int           // their figures and failures are ignored
	CoolDown time.Duration // so that the effects of the last measurement are gone

	// KeepPrinted fills Sample.Printed, some 100 KiB if every latency is listed.
	KeepPrinted bool

	Progress func(Progress) // may be nil; called from the goroutine that called Run

	mu      sync.Mutex
	runs    int               // for ports and names
	answers map[string]Output // by node and command
}

// Progress reports the state of a measurement.
type Progress struct {
	Engine, Client, Server string
	Attempt                int  // from 1
	Done                   bool // false if the attempt begins
	Err                    error
	Retry                  bool
}

// An ExitError says that a command exited with a status other than 0.
type ExitError struct {
	Node    string
	Command string
	Code    int
	Text    string
}

func (e *ExitError) Error() string {
	text := fmt.Sprintf("run %s on %s: exit status %d", e.Command, e.Node, e.Code)
	if e.Text != "" {
		text += ": " + e.Text
	}
	return text
}

type measurement struct {
	*Runner
	engine         Engine
	client, server Endpoint
	opts           Options
	launched       Launch // if the engine has a Group
}

// Run measures once, with retries, and returns one sample per figure. If all attempts fail, it returns one sample with
// Error set, and no error, because other pairs of the lab can still be measured. It returns an error only for bad
// arguments, or if ctx is done, with the sample of the interrupted measurement.
func (r *Runner) Run(ctx context.Context, engine Engine, client, server Endpoint, opts Options) ([]Sample, error) {
	opts.Accelerator = cmp.Or(opts.Accelerator, r.Accelerator)
	if r.WarmUps < 0 || r.CoolDown < 0 {
		return nil, fmt.Errorf("measure %s: %d warm-ups, cool-down of %v: both are 0 or more", engine.Name, r.WarmUps,
			r.CoolDown)
	}
	m := &measurement{Runner: r, engine: engine, client: client, server: server, opts: opts}
	err := m.allowed()
	if err == nil {
		err = m.coolDown(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.what(), err)
	}
	for range r.WarmUps {
		if _, _, err := m.try(ctx); ctx.Err() != nil {
			return nil, fmt.Errorf("%s: %w", m.what(), errors.Join(context.Cause(ctx), err))
		}
	}
	var reasons, outputs []string
	for attempt := 1; ; attempt++ {
		m.progress(Progress{Attempt: attempt})
		base, figures, err := m.try(ctx)
		base.Attempt = attempt
		if err == nil {
			m.progress(Progress{Attempt: attempt, Done: true})
			return m.samples(base, figures), nil
		}
		reasons = append(reasons, fmt.Sprintf("attempt %d: %v", attempt, err))
		if base.Output != "" {
			outputs = append(outputs, fmt.Sprintf("attempt %d:\n%s", attempt, base.Output))
		}
		// Retrying does not supply a missing program.
		_, unfit := errors.AsType[*UnfitError](err)
		again := attempt <= m.retriesAfter(err) && ctx.Err() == nil && !unfit
		m.progress(Progress{Attempt: attempt, Done: true, Err: err, Retry: again})
		if again {
			continue
		}
		base.Error, base.Output = strings.Join(reasons, "; "), strings.Join(outputs, "\n")
		if ctx.Err() != nil {
			return []Sample{base}, fmt.Errorf("%s: %w", m.what(), context.Cause(ctx))
		}
		return []Sample{base}, nil
	}
}

// RunLocal is like Run, for an engine that measures one node.
func (r *Runner) RunLocal(ctx context.Context, engine Engine, node Endpoint, opts Options) ([]Sample, error) {
	return r.Run(ctx, engine, node, Endpoint{}, opts)
}

func (m *measurement) what() string {
	if m.engine.Local {
		return fmt.Sprintf("measure %s on %q", m.engine.Name, m.client.Node)
	}
	return fmt.Sprintf("measure %s from %q to %q", m.engine.Name, m.client.Node, m.server.Node)
}

func (m *measurement) nodes() []Endpoint {
	if m.engine.Local {
		return []Endpoint{m.client}
	}
	return []Endpoint{m.client, m.server}
}

// prepare returns an *UnfitError if retries cannot help.
func (m *measurement) prepare(ctx context.Context) error {
	if g, ok := m.engine.Group(); ok && g.Bare {
		return nil
	}
	for _, ep := range m.nodes() {
		if err := m.installed(ctx, m.engine, ep.Node); err != nil {
			return err
		}
		if err := m.opts.PlaceOf(ep).Verify(ctx, m.ask, ep.Node); err != nil {
			return err
		}
	}
	return m.engine.Plugin.Prepare(ctx, m.ask, m.client, m.server, &m.opts)
}

func (m *measurement) coolDown(ctx context.Context) error {
	if m.CoolDown == 0 {
		return nil
	}
	select {
	case <-time.After(m.CoolDown):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (m *measurement) placement() string {
	client, server := m.opts.PlaceOf(m.client), m.opts.PlaceOf(m.server)
	if m.engine.Local || client == server {
		return client.String()
	}
	return fmt.Sprintf("client %v; server %v", client, server)
}

func (m *measurement) retriesAfter(err error) int {
	p, patient := m.engine.Plugin.(Patient)
	if bad, ok := errors.AsType[*BadResultError](err); m.Retries >= 0 && ok && patient {
		return max(m.retries(), p.Retries(bad))
	}
	return m.retries()
}

func (r *Runner) retries() int { return max(cmp.Or(r.Retries, DefaultRetries), 0) }

func (m *measurement) progress(p Progress) {
	if m.Progress != nil {
		p.Engine, p.Client, p.Server = m.engine.Name, m.client.Node, m.server.Node
		m.Progress(p)
	}
}

// samples repeats all facts, so that each line of a result file can be read alone.
func (m *measurement) samples(base Sample, figures []Figure) []Sample {
	samples := make([]Sample, 0, len(figures))
	for i, f := range figures {
		s := base
		if i > 0 {
			s.Printed = nil
		}
		s.Metric, s.Bytes, s.Iterations = f.Metric, f.Bytes, f.Iterations
		s.Value, s.Unit, s.Derived, s.Latencies = f.Value, f.Unit, f.Derived, f.Latencies
		if f.Unit == UnitGbps {
			s.Limit = m.wire().Limit(m.engine, f.Bytes)
		}
		samples = append(samples, s)
	}
	return samples
}

func (r *Runner) nextPort() (port, run int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.runs++
	return firstPort + (r.FirstPort+r.runs-1)%Ports, r.runs
}

type ended struct {
	out Output
	err error
}

func (m *measurement) commands(opts Options) (client, server []string) {
	client = m.engine.Client(m.client, m.server, opts)
	if !m.engine.Launches {
		client = m.opts.PlaceOf(m.client).Wrap(client)
	}
	if !m.engine.Local {
		server = m.opts.PlaceOf(m.server).Wrap(m.engine.Server(m.server, opts))
	}
	return client, server
}

func (m *measurement) base() Sample {
	return Sample{
		Test: m.engine.Name, Client: m.client.Node, Server: m.server.Node,
		Tool: m.engine.Tool, Placement: m.placement(), WarmUps: m.WarmUps,
		Accelerator: m.Accelerator, Emulated: m.Emulated, Started: time.Now().UTC(),
	}
}

// try returns a sample that has the output of the programs after a failure.
func (m *measurement) try(ctx context.Context) (base Sample, figures []Figure, err error) {
	// A node that cannot run the engine still gets a sample, so that the file records the attempt.
	unprepared := m.prepare(ctx)
	opts := m.opts
	var run int
	opts.Port, run = m.nextPort()
	base = m.base()
	// The time keeps the name unique in a file to which several processes append.
	base.Run = fmt.Sprintf("%s-%d", base.Started.Format("20060102T150405.000000"), run)
	if unprepared != nil {
		return base, nil, unprepared
	}
	told, err := m.toolVersion(ctx)
	if err != nil {
		return base, nil, err
	}
	base.Version = m.engine.Version(told)
	var client ended
	var served Output
	defer func() {
		switch {
		case err != nil:
			base.Output = m.transcript(client.out, served)
		case m.KeepPrinted:
			base.Printed = printed(client.out, served)
		}
	}()
	clientArgs, serverArgs := m.commands(opts)
	var serverEnd chan ended
	clientOver := make(chan struct{})
	if serverArgs != nil {
		base.ServerCommand = words.CommandLine(serverArgs)
		// On return, the server is killed and waited for, so that its port and its queue pairs are free.
		serverCtx, killServer := context.WithCancel(ctx)
		serverEnd = make(chan ended, 1)
		go func() {
			out, err := m.Exec.Serve(serverCtx, m.server.Node, serverArgs, clientOver)
			served = out
			serverEnd <- ended{out, err}
			close(serverEnd)
		}()
		defer func() {
			killServer()
			for range serverEnd {
			}
		}()
		if err := m.awaitListen(ctx, opts.Port, serverEnd); err != nil {
			return base, nil, err
		}
	}
	base.Command = words.CommandLine(clientArgs)
	before := m.packets(ctx)
	began := time.Now() // with the monotonic clock, which UTC drops
	base.Started = began.UTC()
	client, serverEarly := m.runClient(ctx, clientArgs, serverEnd)
	close(clientOver)
	base.Seconds = time.Since(began).Seconds()
	m.opts.Packets = m.packets(ctx).since(before)
	base.RDMAPackets = uint64(max(0, m.opts.Packets.Sent+m.opts.Packets.Received))
	if l := m.launched; l.Command != nil {
		base.Command, base.Placement, base.RDMAPackets = words.CommandLine(l.Command), l.Where, l.RDMAPackets
		told.Stdout = slices.Concat(told.Stdout, []byte("\n"+l.MPI))
	}
	if serverArgs == nil {
		base.Version = m.engine.Version(told, client.out)
	}
	figures, err = m.judge(client)
	switch {
	case err != nil && serverEarly != nil:
		// The server's end is the cause, and the client's complaint its consequence.
		err = fmt.Errorf("%w (%w)", err, serverEarly)
	case err == nil && serverArgs != nil && !m.engine.Endless:
		m.awaitServer(serverEnd)
	}
	return base, figures, err
}

// Packets are the counts of an RDMA device.
type Packets struct{ Sent, Received int64 }

func (p Packets) since(was Packets) Packets {
	return Packets{p.Sent - was.Sent, p.Received - was.Received}
}

// packets takes an unreadable counter as 0.
func (m *measurement) packets(ctx context.Context) (p Packets) {
	if !m.engine.Counted {
		return p
	}
	for name, to := range map[string]*int64{"counters/port_xmit_packets": &p.Sent, "hw_counters/sent_pkts": &p.Sent,
		"counters/port_rcv_packets": &p.Received, "hw_counters/rcvd_pkts": &p.Received} {
		text, err := m.Exec.ReadFile(ctx, m.client.Node, "/sys/class/infiniband/"+m.client.Device+"/ports/1/"+name)
		if n, bad := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && bad == nil {
			*to += n
		}
	}
	return p
}

func (m *measurement) awaitListen(ctx context.Context, port int, serverEnd chan ended) error {
	listenCtx, cancel := context.WithTimeout(ctx, listenLimit)
	defer cancel()
	tick := time.NewTicker(listenPoll)
	defer tick.Stop()
	var lastErr error
	for {
		ready, err := Listening(listenCtx, m.Exec, m.server.Node, port)
		if ready {
			return nil
		}
		if err != nil && listenCtx.Err() == nil {
			lastErr = err // a node may be too busy to answer once
		}
		select {
		case e := <-serverEnd:
			return m.serverEnded(e, "before it listened")
		case <-tick.C:
		case <-listenCtx.Done():
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			err := fmt.Errorf("wait for %s on %s: TCP port %d does not listen after %v", m.engine.Program,
				m.server.Node, port, listenLimit)
			if lastErr != nil {
				err = fmt.Errorf("%w; the last look failed: %w", err, lastErr)
			}
			return err
		}
	}
}

// Listening does not connect, because a server of perftest accepts only one connection.
func Listening(ctx context.Context, nodes Nodes, node string, port int) (bool, error) {
	b, err := nodes.ReadFile(ctx, node, "/proc/net/tcp")
	if err != nil || listens(b, port) {
		return err == nil, err
	}
	b, err = nodes.ReadFile(ctx, node, "/proc/net/tcp6")
	return err == nil && listens(b, port), nil
}

func (m *measurement) serverEnded(e ended, when string) error {
	if e.err != nil {
		return fmt.Errorf("server %s on %s ended %s: %w", m.engine.Program, m.server.Node, when, e.err)
	}
	return fmt.Errorf("server ended %s: %w", when, NewExitError(m.server.Node, m.engine.Program, e.out))
}

// runClient limits the client's time if the server fails, because perftest's client can wait forever for a server that
// is gone.
func (m *measurement) runClient(ctx context.Context, args []string, serverEnd chan ended) (client ended,
	serverEarly error) {
	limit := cmp.Or(m.TimeLimit, DefaultTimeLimit) + time.Duration(m.opts.RunSeconds())*time.Second
	clientCtx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no result within %v", limit))
	defer cancel()
	clientEnd := make(chan ended, 1)
	go func() {
		var out Output
		var err error
		if m.engine.Together != nil {
			out, err = m.launch(clientCtx)
		} else {
			out, err = m.Exec.Exec(clientCtx, m.client.Node, args)
		}
		// An executor may return no error for a command that it killed.
		if err == nil && clientCtx.Err() != nil {
			err = clientCtx.Err()
		}
		if err != nil && clientCtx.Err() != nil {
			err = context.Cause(clientCtx)
		}
		clientEnd <- ended{out, err}
	}()
	var giveUp <-chan time.Time
	for {
		select {
		case client = <-clientEnd:
			return client, serverEarly
		case e, ok := <-serverEnd:
			// The server exited well, and a nil channel is never ready again.
			if !ok {
				serverEnd = nil
				continue
			}
			if e.err != nil || e.out.ExitCode != 0 {
				serverEarly = m.serverEnded(e, "before the client")
				giveUp = time.After(grace)
			}
		case <-giveUp:
			cancel()
			giveUp = nil
		}
	}
}

func (m *measurement) awaitServer(serverEnd <-chan ended) {
	select {
	case <-serverEnd:
	case <-time.After(grace):
	}
}

func (m *measurement) judge(client ended) ([]Figure, error) {
	if client.err != nil {
		return nil, fmt.Errorf("run %s on %s: %w", m.engine.Program, m.client.Node, client.err)
	}
	figures, parseErr := m.engine.ParseOutput(client.out, m.opts)
	if client.out.ExitCode != 0 {
		exit := NewExitError(m.client.Node, m.engine.Program, client.out)
		if m.engine.Launches {
			exit.Text = FirstWords(client.out)
		}
		err := error(exit)
		if e, ok := m.engine.Plugin.(Explainer); ok {
			err = e.Failure(exit, parseErr)
		}
		if err != nil {
			return nil, err
		}
	}
	if parseErr != nil {
		return nil, parseErr
	}
	if err := m.wire().Check(m.engine, figures); err != nil {
		return nil, err
	}
	return figures, nil
}

func printed(client, server Output) (all []Stream) {
	for _, s := range []Stream{{"client stdout", client.Stdout}, {"client stderr", client.Stderr},
		{"server stdout", server.Stdout}, {"server stderr", server.Stderr}} {
		if len(s.Text) > 0 {
			all = append(all, s)
		}
	}
	return all
}

// maxOutput is for each stream, in bytes.
const maxOutput = 16 << 10

func (m *measurement) transcript(client, server Output) string {
	var b strings.Builder
	for _, s := range printed(client, server) {
		who, stream, _ := strings.Cut(s.Name, " ")
		node := m.client.Node
		if who == "server" {
			node = m.server.Node
		}
		text := s.Text
		// The beginning shows the program, and the end its failure.
		if len(text) > maxOutput {
			text = fmt.Appendf(slices.Clone(text[:maxOutput/2]), "\n(%d bytes are left out)\n%s", len(text)-maxOutput,
				text[len(text)-maxOutput/2:])
		}
		fmt.Fprintf(&b, "%s on %s, %s:\n%s\n", who, node, stream,
			strings.TrimRight(strings.ToValidUTF8(string(text), "?"), "\n"))
	}
	return b.String()
}

func (m *measurement) wire() Wire { return SlowerWire(m.client.Wire, m.server.Wire) }

// NewExitError takes the last line of the standard error, or else of the standard output: perftest uses either.
func NewExitError(node, command string, out Output) *ExitError {
	said, _ := LastLine(out.Stderr)
	printed, _ := LastLine(out.Stdout)
	return &ExitError{Node: node, Command: command, Code: out.ExitCode, Text: cmp.Or(said, printed)}
}
