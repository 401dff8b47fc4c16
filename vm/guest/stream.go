package guest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/rackless/rackless/internal/trace"
	"github.com/rackless/rackless/internal/wait"
	"github.com/rackless/rackless/vm/qapi"
)

// ErrNoProgram reports a command that the guest does not have.
var ErrNoProgram = errors.New("no such program on the node")

// streamScript runs a command with its output in two files, $0 and $1, which the agent can read while the command
// runs. guest-exec itself returns output only at the end.
const streamScript = `out=$0 err=$1; shift
command -v "$1" >/dev/null || { echo none; exit 127; }
exec "$@" >"$out" 2>"$err"`

// readCount is the size of one read. In base64 it is a little more than the 64 KiB that the agent returns without
// trouble.
const readCount = 48 << 10

// Stream executes a command, streams its output, and returns its exit status. The guest needs a shell, and room in
// /run or Dir, because the output stays there until the command ends. If ctx ends first, Stream kills the command.
func (a *Agent) Stream(ctx context.Context, c Command, stdout, stderr io.Writer) (exit int, err error) {
	if len(c.Argv) == 0 {
		return 0, errors.New("no command")
	}
	base := cmp.Or(a.Dir, "/run") + "/rackless-" + NewMachineID()
	files := []*guestFile{{path: base + ".out", to: stdout}, {path: base + ".err", to: stderr}}
	// After the end of the command and of its output, cleanup errors do not matter: a guest that the command switches
	// off no longer answers.
	ended := false
	tidied := func(e error) {
		if !ended {
			err = errors.Join(err, e)
		}
	}
	for _, f := range files {
		if err := f.open(ctx, a, "w+"); err != nil {
			return 0, err
		}
		defer func() { tidied(f.close(ctx, a)) }()
	}
	defer func() {
		// Not awaited, because the caller's answer is ready.
		rm := map[string]any{"path": "rm", "arg": []string{"-f", files[0].path, files[1].path}}
		tidied(a.call(ctx, "guest-exec", rm, nil))
	}()
	c.Argv = append([]string{"sh", "-c", streamScript, files[0].path, files[1].path}, c.Argv...)
	began := time.Now()
	pid, err := a.start(ctx, c)
	if err != nil {
		return 0, err
	}
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, c.maxPoll(began)) {
		if wait.For(ctx, pause) != nil {
			return 0, a.kill(ctx, pid)
		}
		// Query the status before reading output, so that nothing written before the end is missed.
		st, err := a.status(ctx, pid)
		if err != nil {
			return 0, err
		}
		for _, f := range files {
			n, err := f.copy(ctx, a)
			if err != nil {
				return 0, err
			}
			if n > 0 {
				pause = 5 * time.Millisecond
			}
		}
		if !st.Exited {
			continue
		}
		res, err := st.result()
		if err != nil {
			return 0, err
		}
		if string(res.Stdout) == "none\n" {
			return 127, ErrNoProgram
		}
		ended = true
		return res.ExitCode, nil
	}
}

type guestFile struct {
	path   string
	to     io.Writer
	handle int64
}

// ReadFile returns the current contents of a guest file. The agent reads it itself, because starting a process costs
// an emulated guest tens of milliseconds.
func (a *Agent) ReadFile(ctx context.Context, path string) ([]byte, error) {
	trace.Reads(a.Node + ":" + path)
	var content bytes.Buffer
	f := guestFile{path: path, to: &content}
	if err := f.open(ctx, a, "r"); err != nil {
		return nil, err
	}
	_, err := f.copy(ctx, a)
	return content.Bytes(), errors.Join(err, f.close(context.WithoutCancel(ctx), a))
}

func (f *guestFile) open(ctx context.Context, a *Agent, mode string) error {
	return a.call(ctx, "guest-file-open", map[string]string{"path": f.path, "mode": mode}, &f.handle)
}

// copy writes the bytes added since the last call and returns their number.
func (f *guestFile) copy(ctx context.Context, a *Agent) (total int, err error) {
	for {
		var got struct {
			Buf string `json:"buf-b64"`
			EOF bool   `json:"eof"`
		}
		args := map[string]int64{"handle": f.handle, "count": readCount}
		if err := a.call(ctx, "guest-file-read", args, &got); err != nil {
			return total, err
		}
		b, err := base64.StdEncoding.DecodeString(got.Buf)
		if err != nil {
			return total, fmt.Errorf("guest-file-read: %w", err)
		}
		if _, err := f.to.Write(b); err != nil {
			return total, err
		}
		total += len(b)
		if got.EOF || len(b) == 0 {
			return total, nil
		}
	}
}

func (f *guestFile) close(ctx context.Context, a *Agent) error {
	err := a.call(ctx, "guest-file-close", map[string]int64{"handle": f.handle}, nil)
	if _, answered := errors.AsType[*qapi.Error](err); err != nil && !answered {
		return nil // the connection is gone, and the caller knows
	}
	return err
}
