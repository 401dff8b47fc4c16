package guest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/rackless/rackless/internal/trace"
)

// A Conn carries commands to a guest agent and its answers back. *qapi.Conn does so over a unix
// socket; libvirt has another way. Calls may come from several goroutines. What the agent itself
// refuses is a *qapi.Error.
type Conn interface {
	// Call sends one command and decodes what it returns into result, which may be nil.
	Call(ctx context.Context, command string, args, result any) error
	// Done is closed when the connection has ended, so that another is needed.
	Done() <-chan struct{}
	Close() error
}

// An Agent runs commands in a guest through qemu-ga. It works in the built-in image and in any
// other that has the agent.
type Agent struct {
	// AnswerLimit bounds one command to the agent, which returns at once even where it starts a
	// program. It is to be longer than what others on the way wait, whose errors say more. The zero
	// value means 30 s.
	AnswerLimit time.Duration
	Node        string // whose agent it is, for --verbose
	// Dir is where Stream puts the output of commands in the guest. Empty: /run.
	Dir string

	conn Conn
}

// NewAgent uses a connection that is synchronised already.
func NewAgent(c Conn) *Agent { return &Agent{conn: c} }

// Done is closed when the connection has ended, so that another is needed.
func (a *Agent) Done() <-chan struct{} { return a.conn.Done() }

// Close ends the connection.
func (a *Agent) Close() error { return a.conn.Close() }

// A Command is a program to run in a guest.
type Command struct {
	Argv  []string
	Stdin []byte
	// MaxPoll bounds the pause between two looks at whether it has ended. Each look costs the guest
	// CPU time, which a measurement would feel: some 2.3 ms where its CPU is emulated. The zero
	// value means 50 ms at first, and for what takes long up to half a second, or a second where output is streamed.
	MaxPoll time.Duration
	// Awaited is closed when somebody begins to wait for the end. Until then looks come down to two
	// a second, so that it can run undisturbed. nil: from the start.
	Awaited <-chan struct{}
}

// A Result is how a command ended. qemu-ga keeps at most 16 MiB of each stream.
type Result struct {
	Stdout, Stderr []byte
	ExitCode       int // 128 + signal number where a signal ended it, as a shell says it
}

// status is what guest-exec-status returns.
type status struct {
	Exited       bool   `json:"exited"`
	ExitCode     int    `json:"exitcode"`
	Signal       int    `json:"signal"`
	Out          string `json:"out-data"`
	Err          string `json:"err-data"`
	OutTruncated bool   `json:"out-truncated"`
	ErrTruncated bool   `json:"err-truncated"`
}

// longPoll is the longest pause between two looks at a command, where nobody asks for less.
const longPoll = 500 * time.Millisecond

// streamPoll is the same of a command whose output is read as it comes: each look is three calls of the agent.
const streamPoll = time.Second

// settle is how long a command is looked at ever more seldom, whatever its MaxPoll: measuring tools
// calibrate the CPU's clock when they begin, and looks upset that.
const settle = 500 * time.Millisecond

// maxPoll returns the longest pause between two looks at a command that has run since a time. An
// emulated guest pays milliseconds for each look: those at a command of minutes, every 50 ms, took
// it a CPU.
func (c Command) maxPoll(since time.Time) time.Duration {
	if c.MaxPoll == 0 {
		return min(max(50*time.Millisecond, time.Since(since)/16), streamPoll)
	}
	if time.Since(since) < settle {
		return longPoll
	}
	return c.MaxPoll
}

// Run executes a command and waits for its end. If ctx ends first, the command is killed in the
// guest and ctx's cause returned, with what it had printed by then. An exit status other than 0 is
// not an error.
func (a *Agent) Run(ctx context.Context, c Command) (Result, error) {
	if len(c.Argv) == 0 {
		return Result{}, errors.New("no command")
	}
	began := time.Now()
	pid, err := a.start(ctx, c)
	if err != nil {
		return Result{}, err
	}
	const first = 2 * time.Millisecond
	awaited, pause := c.Awaited, first
	for {
		select {
		case <-ctx.Done():
			return a.end(ctx, pid)
		case <-awaited:
			awaited, pause = nil, first
		case <-time.After(pause):
			pause = min(2*pause, longPoll)
			if awaited == nil {
				pause = min(pause, c.maxPoll(began))
			}
		}
		st, err := a.status(ctx, pid)
		if err != nil {
			return Result{}, err
		}
		if st.Exited {
			return st.result()
		}
	}
}

// Output executes a command and returns what it prints. An exit status other than 0 is an error,
// with what the command said of it.
func (a *Agent) Output(ctx context.Context, argv ...string) ([]byte, error) {
	r, err := a.Run(ctx, Command{Argv: argv})
	if err == nil && r.ExitCode != 0 {
		err = fmt.Errorf("exit status %d: %s", r.ExitCode, bytes.TrimSpace(r.Stderr))
	}
	return r.Stdout, err
}

// start starts a command and returns its process number in the guest.
func (a *Agent) start(ctx context.Context, c Command) (pid int, err error) {
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	trace.Runs(a.Node, c.Argv)
	args := map[string]any{"path": c.Argv[0], "arg": c.Argv[1:], "capture-output": true}
	if len(c.Stdin) > 0 {
		args["input-data"] = base64.StdEncoding.EncodeToString(c.Stdin)
	}
	var started struct {
		PID int `json:"pid"`
	}
	// Agent commands are not broken off when ctx ends: that would cut the connection between
	// question and answer, and a program that has been started could not be ended. They return at
	// once, or the guest has stopped.
	err = a.call(ctx, "guest-exec", args, &started)
	return started.PID, err
}

// Detach starts a command and does not wait for it. Nothing that it prints is kept.
func (a *Agent) Detach(ctx context.Context, argv ...string) error {
	trace.Runs(a.Node, argv)
	return a.call(ctx, "guest-exec", map[string]any{"path": argv[0], "arg": argv[1:]}, nil)
}

// status asks whether a command has ended.
func (a *Agent) status(ctx context.Context, pid int) (status, error) {
	var st status
	err := a.call(ctx, "guest-exec-status", map[string]int{"pid": pid}, &st)
	return st, err
}

// answerLimit is the AnswerLimit of an agent that has none of its own: longer than what a Mux waits
// unless told otherwise.
const answerLimit = 30 * time.Second

// call sends one command and waits for its answer even if ctx ends.
func (a *Agent) call(ctx context.Context, command string, args, result any) error {
	limit := cmp.Or(a.AnswerLimit, answerLimit)
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), limit, fmt.Errorf("no answer within %v", limit))
	defer cancel()
	return a.conn.Call(ctx, command, args, result)
}

func (s status) result() (Result, error) {
	if s.OutTruncated || s.ErrTruncated {
		return Result{}, errors.New("the command printed more than the agent keeps (16 MiB)")
	}
	r := Result{ExitCode: s.ExitCode}
	if s.Signal != 0 {
		r.ExitCode = 128 + s.Signal
	}
	var err error
	if r.Stdout, err = base64.StdEncoding.DecodeString(s.Out); err != nil {
		return Result{}, fmt.Errorf("guest-exec-status: out-data: %w", err)
	}
	if r.Stderr, err = base64.StdEncoding.DecodeString(s.Err); err != nil {
		return Result{}, fmt.Errorf("guest-exec-status: err-data: %w", err)
	}
	return r, nil
}

// killLimit bounds the attempt to end a command in a guest after its caller has given up.
const killLimit = 5 * time.Second

// end kills a command and returns what it had printed, and why it was ended.
func (a *Agent) end(ctx context.Context, pid int) (Result, error) {
	cause := a.kill(ctx, pid)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killLimit)
	defer cancel()
	for ctx.Err() == nil {
		var st status
		if err := a.conn.Call(ctx, "guest-exec-status", map[string]int{"pid": pid}, &st); err != nil {
			return Result{}, cause
		}
		if st.Exited {
			r, _ := st.result() // what cannot be read is as good as not printed
			return r, cause
		}
		time.Sleep(20 * time.Millisecond)
	}
	return Result{}, cause
}

// kill ends a process in the guest and returns why.
func (a *Agent) kill(ctx context.Context, pid int) error {
	cause := context.Cause(ctx)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killLimit)
	defer cancel()
	err := a.conn.Call(ctx, "guest-exec", map[string]any{"path": "kill", "arg": []string{"-9", strconv.Itoa(pid)}}, nil)
	if err != nil {
		return errors.Join(cause, fmt.Errorf("end process %d in the guest: %w", pid, err))
	}
	return cause
}

// maxInput bounds the standard input of a command: it goes to the guest agent in one message.
const maxInput = 16 << 20

// ReadInput reads all of the input. It gives up when ctx ends: a pipe that nobody closes would hold
// the program for ever.
func ReadInput(ctx context.Context, in io.Reader) ([]byte, error) {
	type result struct {
		data []byte
		err  error
	}
	// Buffered, so that the reader ends even if nobody waits for it any more.
	ch := make(chan result, 1)
	go func() {
		b, err := io.ReadAll(io.LimitReader(in, maxInput+1))
		ch <- result{b, err}
	}()
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("read standard input: %w (-n leaves it alone)", context.Cause(ctx))
	case r := <-ch:
		if r.err != nil {
			return nil, fmt.Errorf("read standard input: %w", r.err)
		}
		if len(r.data) > maxInput {
			return nil, fmt.Errorf("read standard input: more than %d MiB, which is all that the guest agent "+
				"takes at once", maxInput>>20)
		}
		return r.data, nil
	}
}
