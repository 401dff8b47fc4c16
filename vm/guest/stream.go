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
	"strings"
	"time"

	"github.com/rackless/rackless/internal/trace"
	"github.com/rackless/rackless/internal/wait"
	"github.com/rackless/rackless/vm/qapi"
)

// ErrNoProgram says that the guest lacks a command.
var ErrNoProgram = errors.New("no such program on the node")

// streamScript hands output over in files of 4 MiB.
//
//go:embed stream.sh
var streamScript string

// readCount is, in base64, a little more than the 64 KiB that the agent returns without trouble.
const readCount = 48 << 10

// turnReads keeps one stream from delaying the other one and the command's state.
const turnReads = 16

// Limits after the end of a command. A process that it left behind may hold its output open; endScript ends that.
const (
	endAfter  = 200 * time.Millisecond
	lateLimit = time.Minute
)

// endScript marks the end of the output. Opened for both, a FIFO without a reader does not block.
const endScript = `for s in out err; do printf '\000%s.' "$1" 1<>"$0.$s"; done`

// Stream streams the output of a command and returns its exit status. The guest needs a shell, dd, mkfifo, and 8 MiB of
// room in Dir. If ctx ends first or the output cannot be written, Stream kills the process group; a command whose
// output is not taken waits.
func (a *Agent) Stream(ctx context.Context, c Command, stdout, stderr io.Writer) (exit int, err error) {
	if len(c.Argv) == 0 {
		return 0, errors.New("no command")
	}
	mark := NewMachineID()
	base := cmp.Or(a.Dir, "/run") + "/rackless-" + mark
	streams := []*stream{{path: base + ".out", mark: "\x00" + mark, to: stdout},
		{path: base + ".err", mark: "\x00" + mark, to: stderr}}
	stopped := false // the guest did not answer
	defer func() {
		if stopped {
			return
		}
		// Now errors do not matter: the command may have switched the guest off.
		if e := a.tidy(ctx, base, streams); err != nil {
			err = errors.Join(err, e)
		}
	}()
	kill := func(pid int, why error) error {
		err := a.kill(ctx, pid)
		stopped = err != nil
		return errors.Join(why, err)
	}
	for _, s := range streams {
		if err := s.open(ctx, a); err != nil {
			return 0, err
		}
	}
	trace.Runs(a.Node, c.Argv)
	name := c.Argv[0]
	c.Argv = append([]string{"sh", "-c", streamScript, base, mark}, c.Argv...)
	began := time.Now()
	pid, err := a.start(ctx, c)
	if err != nil {
		return 0, err
	}
	var end status
	moved := time.Now() // last output
	marked := false
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, c.maxPoll(began)) {
		if wait.For(ctx, pause) != nil {
			return 0, kill(pid, context.Cause(ctx))
		}
		// So that nothing written before the end is missed.
		if !end.Exited {
			if end, err = a.status(ctx, pid); ctx.Err() != nil {
				return 0, kill(pid, context.Cause(ctx))
			} else if err != nil {
				return 0, err
			}
		}
		res, err := end.result()
		if err != nil {
			return 0, err
		}
		if said := cmp.Or(string(res.Stdout), string(res.Stderr)); said == "none\n" {
			return 127, ErrNoProgram
		} else if said != "" { // by the script
			return 0, fmt.Errorf("start %s: %s", name, strings.TrimSpace(said))
		}
		ended := end.Exited
		for _, s := range streams {
			more, err := s.copy(ctx, a)
			if errors.Is(err, errOutput) || ctx.Err() != nil {
				err = kill(pid, err)
			}
			if err != nil {
				return 0, err
			}
			if more {
				pause = 5 * time.Millisecond
			}
			if more || !end.Exited {
				moved = time.Now()
			}
			ended = ended && s.ended
		}
		switch quiet := time.Since(moved); {
		case ended:
			return res.ExitCode, nil
		case !marked && quiet > endAfter:
			marked = true
			args := map[string]any{"path": "sh", "arg": []string{"-c", endScript, base, mark}}
			if err := a.call(ctx, "guest-exec", args, nil); err != nil {
				return 0, err
			}
		case quiet > lateLimit:
			return 0, fmt.Errorf("%s has ended with status %d, and the end of its output is missing", name,
				res.ExitCode)
		}
	}
}

// tidy works even if ctx is done.
func (a *Agent) tidy(ctx context.Context, base string, streams []*stream) error {
	ctx, cancel := last(ctx)
	defer cancel()
	var errs []error
	for _, s := range streams {
		if s.file != nil {
			errs = append(errs, s.file.close(ctx, a))
		}
	}
	// The caller's answer is ready.
	rm := map[string]any{"path": "sh", "arg": []string{"-c", `rm -f "$0".*`, base}}
	return errors.Join(append(errs, a.conn.Call(ctx, "guest-exec", rm, nil))...)
}

// errOutput wraps errors of the writer, and the end of its context.
var errOutput = errors.New("pass on the output")

type stream struct {
	path  string // without the file's number
	mark  string
	to    io.Writer
	file  *guestFile
	n     int
	held  []byte // may begin a mark
	ended bool
}

// open makes the next file, which tells the guest that the last one has been read.
func (s *stream) open(ctx context.Context, a *Agent) (err error) {
	s.file, err = a.open(ctx, fmt.Sprintf("%s.%d", s.path, s.n), "w+")
	return err
}

// copy writes new output, and reports whether there was any, without waiting.
func (s *stream) copy(ctx context.Context, a *Agent) (moved bool, err error) {
	for i := 0; i < turnReads && !s.ended; i++ {
		b, last, err := s.file.read(ctx, a)
		if err != nil {
			return moved, err
		}
		moved = moved || len(b) > 0
		more, err := s.take(ctx, b)
		if err != nil {
			return moved, err
		}
		if more {
			before := s.file
			s.n++
			if err := errors.Join(s.open(ctx, a), before.close(ctx, a)); err != nil {
				return moved, err
			}
		} else if last {
			break
		}
	}
	return moved, nil
}

// take writes output without marks, and reports whether another file follows.
func (s *stream) take(ctx context.Context, b []byte) (more bool, err error) {
	b = append(s.held, b...)
	text, kind, found := bytes.Cut(b, []byte(s.mark))
	if found = found && len(kind) > 0; !found {
		text = b
	}
	s.held = nil
	if !found || kind[0] == '+' {
		n := s.unsure(text)
		text, s.held = text[:len(text)-n], bytes.Clone(text[len(text)-n:])
	}
	if err := write(ctx, s.to, text); err != nil || !found {
		return false, err
	}
	switch kind[0] {
	case '+':
		return true, nil
	case '!':
		return false, fmt.Errorf("%w: the guest cannot keep 4 MiB of it in %s", errOutput, s.path)
	}
	s.ended = true
	return false, nil
}

// unsure returns the length of the end of b that may begin a mark.
func (s *stream) unsure(b []byte) int {
	for n := min(len(b), 2*len(s.mark)); n > 0; n-- {
		end := string(b[len(b)-n:])
		for i := max(1, n-len(s.mark)); i <= min(n, len(s.mark)); i++ {
			if strings.HasPrefix(s.mark, end[:i]) && strings.HasPrefix(s.mark, end[i:]) {
				return n
			}
		}
	}
	return 0
}

// write gives up a reader that takes nothing when ctx ends.
func write(ctx context.Context, w io.Writer, b []byte) error {
	if len(b) == 0 {
		return nil
	}
	done := make(chan error, 1)
	go func() { _, err := w.Write(b); done <- err }()
	var err error
	select {
	case err = <-done:
	case <-ctx.Done():
		select {
		case err = <-done: // nearly always
		case <-time.After(time.Second):
			err = context.Cause(ctx)
		}
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errOutput, err)
	}
	return nil
}

type guestFile struct {
	path   string
	handle int64
}

const maxFile = 1 << 20

// ReadFile lets the agent read, because starting a process costs an emulated guest tens of milliseconds.
func (a *Agent) ReadFile(ctx context.Context, path string) ([]byte, error) {
	trace.Reads(a.Node + ":" + path)
	f, err := a.open(ctx, path, "r")
	if err != nil {
		return nil, err
	}
	var content []byte
	for last := false; err == nil && !last; {
		var b []byte
		b, last, err = f.read(ctx, a)
		if content = append(content, b...); len(content) > maxFile {
			err = fmt.Errorf("read %s: more than %d MiB", path, maxFile>>20)
		}
	}
	ctx, cancel := last(ctx)
	defer cancel()
	return content, errors.Join(err, f.close(ctx, a))
}

func (a *Agent) open(ctx context.Context, path, mode string) (*guestFile, error) {
	f := &guestFile{path: path}
	if err := a.call(ctx, "guest-file-open", map[string]string{"path": path, "mode": mode}, &f.handle); err != nil {
		return nil, err
	}
	return f, nil
}

// read also returns whether this is the last part for now.
func (f *guestFile) read(ctx context.Context, a *Agent) (b []byte, last bool, err error) {
	if ctx.Err() != nil {
		return nil, false, fmt.Errorf("read %s: %w", f.path, context.Cause(ctx))
	}
	var got struct {
		Buf string `json:"buf-b64"`
		EOF bool   `json:"eof"`
	}
	args := map[string]int64{"handle": f.handle, "count": readCount}
	if err := a.call(ctx, "guest-file-read", args, &got); err != nil {
		return nil, false, err
	}
	if b, err = base64.StdEncoding.DecodeString(got.Buf); err != nil {
		return nil, false, fmt.Errorf("guest-file-read: %w", err)
	}
	if len(b) > readCount {
		return nil, false, fmt.Errorf("guest-file-read: %d bytes, and %d were asked for", len(b), readCount)
	}
	return b, got.EOF || len(b) == 0, nil
}

func (f *guestFile) close(ctx context.Context, a *Agent) error {
	err := a.conn.Call(ctx, "guest-file-close", map[string]int64{"handle": f.handle}, nil)
	if _, answered := errors.AsType[*qapi.Error](err); err != nil && !answered {
		return nil // the connection is gone, and the caller knows
	}
	return err
}
