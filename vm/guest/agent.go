package guest

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/rackless/rackless/internal/trace"
	"github.com/rackless/rackless/internal/wait"
)

// A Conn carries commands to a guest agent, and its answers; *qapi.Conn does it over a unix socket, and libvirt in
// another way. Several goroutines may call it. Errors of the agent itself are a *qapi.Error.
type Conn interface {
	// Call sends one command and decodes its return value into result, which may be nil.
	Call(ctx context.Context, command string, args, result any) error
	// Done returns a channel that is closed when the connection has ended and another is needed.
	Done() <-chan struct{}
	Close() error
}

// An Agent runs commands in a guest through qemu-ga, in the built-in image or any other with the agent.
type Agent struct {
	// AnswerLimit limits one agent command, which returns at once even if it starts a program. It should exceed the
	// limits of intermediate layers, whose errors are more precise. 0 means 30 s.
	AnswerLimit time.Duration
	Node        string // name of the node, for --verbose
	// Dir is the guest directory for the output of streamed commands. Empty means /run.
	Dir string

	conn Conn
}

// NewAgent uses an already synchronised connection.
func NewAgent(c Conn) *Agent { return &Agent{conn: c} }

// Done returns a channel that is closed when the connection has ended and another is needed.
func (a *Agent) Done() <-chan struct{} { return a.conn.Done() }

// Close ends the connection.
func (a *Agent) Close() error { return a.conn.Close() }

// A Command is a program to run in a guest.
type Command struct {
	Argv  []string
	Stdin []byte
	// MaxPoll limits the interval between status queries. Each query costs the guest CPU time (about 2.3 ms if its
	// CPU is emulated), which would disturb a measurement. 0 means 50 ms at first, rising to half a second for long
	// commands, or to a second if output is streamed.
	MaxPoll time.Duration
	// Awaited is closed when a caller begins to wait for the end. Until then, queries are limited to two a second, so
	// that the command runs undisturbed. If nil, the caller waits from the start.
	Awaited <-chan struct{}
}

// A Result is the outcome of a command. qemu-ga keeps at most 16 MiB of each stream.
type Result struct {
	Stdout, Stderr []byte
	ExitCode       int // 128 + signal number if a signal ended it, as in a shell
}

// status is the return value of guest-exec-status.
type status struct {
	Exited       bool   `json:"exited"`
	ExitCode     int    `json:"exitcode"`
	Signal       int    `json:"signal"`
	Out          string `json:"out-data"`
	Err          string `json:"err-data"`
	OutTruncated bool   `json:"out-truncated"`
	ErrTruncated bool   `json:"err-truncated"`
}

// longPoll is the longest interval between status queries, unless a command asks for less.
const longPoll = 500 * time.Millisecond

// streamPoll is the longest interval for streamed commands, because each poll takes three agent calls.
const streamPoll = time.Second

// startupQuiet is the initial time in which MaxPoll is ignored and polls become rarer: measuring tools calibrate the
// CPU's clock at their start, and polls would upset that.
const startupQuiet = 500 * time.Millisecond

// maxPoll returns the longest interval between status queries of a command that has run since a time. An emulated
// guest pays milliseconds for each query: at one every 50 ms, a command of minutes used up a CPU.
func (c Command) maxPoll(since time.Time) time.Duration {
	if c.MaxPoll == 0 {
		return min(max(50*time.Millisecond, time.Since(since)/16), streamPoll)
	}
	if time.Since(since) < startupQuiet {
		return longPoll
	}
	return c.MaxPoll
}

// Run executes a command and waits for its end. If ctx ends first, Run kills the command in the guest and returns
// ctx's cause with the output so far. An exit status other than 0 is not an error.
func (a *Agent) Run(ctx context.Context, c Command) (Result, error) {
	if len(c.Argv) == 0 {
		return Result{}, errors.New("no command")
	}
	trace.Runs(a.Node, c.Argv)
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

// Output executes a command and returns its output. An exit status other than 0 is an error that includes the
// command's message.
func (a *Agent) Output(ctx context.Context, argv ...string) ([]byte, error) {
	r, err := a.Run(ctx, Command{Argv: argv})
	if err == nil && r.ExitCode != 0 {
		err = fmt.Errorf("exit status %d: %s", r.ExitCode, bytes.TrimSpace(r.Stderr))
	}
	return r.Stdout, err
}

func (a *Agent) start(ctx context.Context, c Command) (pid int, err error) {
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	args := map[string]any{"path": c.Argv[0], "arg": c.Argv[1:], "capture-output": true}
	if len(c.Stdin) > 0 {
		args["input-data"] = base64.StdEncoding.EncodeToString(c.Stdin)
	}
	var started struct {
		PID int `json:"pid"`
	}
	// The end of ctx does not interrupt an agent command at once: that would break the connection between request and
	// answer, and a started program could not be killed.
	err = a.call(ctx, "guest-exec", args, &started)
	if err == nil && started.PID <= 1 {
		err = fmt.Errorf("the guest agent gave process number %d to %s", started.PID, c.Argv[0])
	}
	return started.PID, err
}

// Detach starts a command without waiting for it. Its output is discarded.
func (a *Agent) Detach(ctx context.Context, argv ...string) error {
	trace.Runs(a.Node, argv)
	return a.call(ctx, "guest-exec", map[string]any{"path": argv[0], "arg": argv[1:]}, nil)
}

func (a *Agent) status(ctx context.Context, pid int) (status, error) {
	var st status
	err := a.call(ctx, "guest-exec-status", map[string]int{"pid": pid}, &st)
	return st, err
}

// answerLimit is the default AnswerLimit, which is longer than the default limit of a Mux.
const answerLimit = 30 * time.Second

// call sends one command and waits for its answer, after the end of ctx for killLimit more.
func (a *Agent) call(ctx context.Context, command string, args, result any) error {
	limit := cmp.Or(a.AnswerLimit, answerLimit)
	late := fmt.Errorf("no answer within %v", limit)
	answer, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), limit, late)
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		if wait.For(answer, killLimit) == nil {
			cancel()
		}
	})()
	return a.conn.Call(answer, command, args, result)
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

// killLimit limits the calls that remain after a caller has given up.
const killLimit = 5 * time.Second

// last returns a context for these calls.
func last(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), killLimit)
}

// end kills a command and returns its output so far and the reason.
func (a *Agent) end(ctx context.Context, pid int) (Result, error) {
	cause := errors.Join(context.Cause(ctx), a.kill(ctx, pid))
	ctx, cancel := last(ctx)
	defer cancel()
	for ctx.Err() == nil {
		var st status
		if err := a.conn.Call(ctx, "guest-exec-status", map[string]int{"pid": pid}, &st); err != nil {
			return Result{}, cause
		}
		if st.Exited {
			r, _ := st.result() // unreadable output is dropped
			return r, cause
		}
		time.Sleep(20 * time.Millisecond)
	}
	return Result{}, cause
}

// killScript kills a process with its descendants and its process group.
//
//go:embed kill.sh
var killScript string

// kill kills a command in the guest, even if ctx is done.
func (a *Agent) kill(ctx context.Context, pid int) error {
	ctx, cancel := last(ctx)
	defer cancel()
	args := map[string]any{"path": "sh", "arg": []string{"-c", killScript, strconv.Itoa(pid)}}
	if err := a.conn.Call(ctx, "guest-exec", args, nil); err != nil {
		return fmt.Errorf("end process %d in the guest: %w", pid, err)
	}
	return nil
}

// maxInput limits a command's standard input, which goes to the guest agent in one message.
const maxInput = 16 << 20

// ReadInput reads the whole input. It gives up when ctx ends, because a pipe that is never closed would block the
// program forever.
func ReadInput(ctx context.Context, in io.Reader) ([]byte, error) {
	type result struct {
		data []byte
		err  error
	}
	// Buffered, so that the reader ends even if ReadInput has given up.
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
