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

// A Conn carries commands to a guest agent, and is safe for concurrent use; *qapi.Conn is one. Errors of the agent
// itself are a *qapi.Error.
type Conn interface {
	// Call sends one command, and decodes its return value into result unless that is nil.
	Call(ctx context.Context, command string, args, result any) error
	// Done returns a channel that is closed when another connection is needed.
	Done() <-chan struct{}
	Close() error
}

// An Agent runs commands in a guest through qemu-ga.
type Agent struct {
	// AnswerLimit limits one agent command, which returns at once even if it starts a program. It should exceed the
	// limits of intermediate layers, whose errors are more precise. 0 means 30 s.
	AnswerLimit time.Duration
	Node        string // for --verbose
	// Dir is for the output of streamed commands, "" for /run.
	Dir string

	conn Conn
}

// NewAgent uses a synchronised connection.
func NewAgent(c Conn) *Agent { return &Agent{conn: c} }

// Done is closed when another connection is needed.
func (a *Agent) Done() <-chan struct{} { return a.conn.Done() }

// Close ends the connection.
func (a *Agent) Close() error { return a.conn.Close() }

// A Command is a program to run in a guest.
type Command struct {
	Argv  []string
	Stdin []byte
	// MaxPoll limits the interval between status queries, each of which costs an emulated guest about 2.3 ms of CPU
	// time. 0 means 50 ms at first, rising to half a second, or to a second if output is streamed.
	MaxPoll time.Duration
	// Awaited is closed when a caller begins to wait; until then, queries are limited to two a second, so that the
	// command runs undisturbed. If nil, the caller waits from the start.
	Awaited <-chan struct{}
}

// A Result has at most 16 MiB of each stream, qemu-ga's limit.
type Result struct {
	Stdout, Stderr []byte
	ExitCode       int // 128 + number of a signal, as in a shell
}

type status struct {
	Exited       bool   `json:"exited"`
	ExitCode     int    `json:"exitcode"`
	Signal       int    `json:"signal"`
	Out          string `json:"out-data"`
	Err          string `json:"err-data"`
	OutTruncated bool   `json:"out-truncated"`
	ErrTruncated bool   `json:"err-truncated"`
}

// longPoll is the default for long commands.
const longPoll = 500 * time.Millisecond

// streamPoll is long, because each poll takes three agent calls.
const streamPoll = time.Second

// startupQuiet is the time for which MaxPoll is ignored and polls become rarer: they would upset the calibration of the
// CPU's clock by measuring tools.
const startupQuiet = 500 * time.Millisecond

// maxPoll depends on the time since the start: at a query every 50 ms, a command of minutes used up an emulated CPU.
func (c Command) maxPoll(since time.Time) time.Duration {
	if c.MaxPoll == 0 {
		return min(max(50*time.Millisecond, time.Since(since)/16), streamPoll)
	}
	if time.Since(since) < startupQuiet {
		return longPoll
	}
	return c.MaxPoll
}

// Run waits for the end of a command. If ctx ends first, Run kills the command in the guest and returns ctx's cause
// with the output so far. An exit status other than 0 is not an error.
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

// Output is like Run, but an exit status other than 0 is an error with the command's message.
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
	// Interrupting an agent command would break the connection between request and answer, and a started program could
	// not be killed.
	err = a.call(ctx, "guest-exec", args, &started)
	if err == nil && started.PID <= 1 {
		err = fmt.Errorf("the guest agent gave process number %d to %s", started.PID, c.Argv[0])
	}
	return started.PID, err
}

// Detach starts a command without waiting, and discards its output.
func (a *Agent) Detach(ctx context.Context, argv ...string) error {
	trace.Runs(a.Node, argv)
	return a.call(ctx, "guest-exec", map[string]any{"path": argv[0], "arg": argv[1:]}, nil)
}

func (a *Agent) status(ctx context.Context, pid int) (status, error) {
	var st status
	err := a.call(ctx, "guest-exec-status", map[string]int{"pid": pid}, &st)
	return st, err
}

// answerLimit is longer than the default limit of a Mux.
const answerLimit = 30 * time.Second

// call waits for killLimit more after the end of ctx.
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

const killLimit = 5 * time.Second

func last(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), killLimit)
}

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

// killScript also kills the descendants and the process group.
//
//go:embed kill.sh
var killScript string

// kill works even if ctx is done.
func (a *Agent) kill(ctx context.Context, pid int) error {
	ctx, cancel := last(ctx)
	defer cancel()
	args := map[string]any{"path": "sh", "arg": []string{"-c", killScript, strconv.Itoa(pid)}}
	if err := a.conn.Call(ctx, "guest-exec", args, nil); err != nil {
		return fmt.Errorf("end process %d in the guest: %w", pid, err)
	}
	return nil
}

// maxInput goes to the agent in one message.
const maxInput = 16 << 20

// ReadInput gives up when ctx ends, because a pipe that is never closed would block the program.
func ReadInput(ctx context.Context, in io.Reader) ([]byte, error) {
	type result struct {
		data []byte
		err  error
	}
	// The reader ends even if ReadInput has given up.
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
