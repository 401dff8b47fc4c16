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

// ErrNoProgram reports a command that the guest does not have.
var ErrNoProgram = errors.New("no such program on the node")

// streamScript runs a command, and hands its output over in files, 4 MiB at a time.
//
//go:embed stream.sh
var streamScript string

// readCount is the size of one read. In base64 it is a little more than the 64 KiB that the agent returns without
// trouble.
const readCount = 48 << 10

// turnReads limits the reads of one stream before the other one and the state of the command are looked at.
const turnReads = 16

// Limits after the end of a command, without output. If it left a process behind that shares its output, the output
// has no end, and gets one by endScript. The time for it to arrive is long, as the guest may be busy.
const (
	endAfter  = 200 * time.Millisecond
	lateLimit = time.Minute
)

// endScript puts a mark behind all that a command has printed. Opened for both, a FIFO without a reader does not block.
const endScript = `for s in out err; do printf '\000%s.' "$1" 1<>"$0.$s"; done`

// Stream executes a command, streams its output, and returns its exit status. The guest needs a shell, dd, mkfifo, and
// 8 MiB of room in /run or Dir. A command whose output is not taken waits. If ctx ends first or the output cannot be
// written, Stream kills the command with its process group.
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
		// After the end of the command and of its output, errors do not matter: a guest that the command switches off
		// no longer answers.
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
	moved := time.Now() // the last time that there was output, or no end
	marked := false
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, c.maxPoll(began)) {
		if wait.For(ctx, pause) != nil {
			return 0, kill(pid, context.Cause(ctx))
		}
		// Query the status before reading output, so that nothing written before the end is missed.
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
		} else if said != "" { // by the script, which did not start the command
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

// tidy closes and removes the files of streams, even if ctx is done.
func (a *Agent) tidy(ctx context.Context, base string, streams []*stream) error {
	ctx, cancel := last(ctx)
	defer cancel()
	var errs []error
	for _, s := range streams {
		if s.file != nil {
			errs = append(errs, s.file.close(ctx, a))
		}
	}
	// Not awaited, because the caller's answer is ready.
	rm := map[string]any{"path": "sh", "arg": []string{"-c", `rm -f "$0".*`, base}}
	return errors.Join(append(errs, a.conn.Call(ctx, "guest-exec", rm, nil))...)
}

// errOutput wraps errors of the writer of a stream, and the end of its context.
var errOutput = errors.New("pass on the output")

// A stream is standard output or error of a command, in a sequence of files.
type stream struct {
	path  string // without the number of the file
	mark  string // in front of the character that ends a file
	to    io.Writer
	file  *guestFile
	n     int
	held  []byte // may begin a mark
	ended bool
}

// open makes and opens the next file, which tells the guest that the one before it has been read.
func (s *stream) open(ctx context.Context, a *Agent) (err error) {
	s.file, err = a.open(ctx, fmt.Sprintf("%s.%d", s.path, s.n), "w+")
	return err
}

// copy writes output that was added since the last call, and reports whether there was any. It does not wait.
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

// take writes output without its marks, and reports whether a mark announces another file.
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

// unsure returns the length of the end of b that may begin a mark: one that the end of the file cuts, so that another
// one may follow.
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

// write writes all of b. A reader that takes nothing does not hold it after the end of ctx.
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
		case err = <-done: // nearly always, and then the writer is the caller's alone again
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

// maxFile limits the content of a guest file, such as /proc/net/tcp.
const maxFile = 1 << 20

// ReadFile returns the current contents of a guest file. The agent reads it itself, because starting a process costs
// an emulated guest tens of milliseconds.
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

// read returns the next part of the file, and whether it is the last one for now. It fails if ctx has ended.
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
