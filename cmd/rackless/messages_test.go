package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rackless/rackless/internal/cli"
)

// Messages name the remedy, not the failed system call.
func TestMessagesOfCommonMistakes(t *testing.T) {
	t.Chdir("../..")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	none := filepath.Join(t.TempDir(), "nosuch")
	for _, tt := range []struct{ args, want string }{
		{"ui --listen " + l.Addr().String(),
			"another program uses this port; --listen 127.0.0.1:0 takes one that is free"},
		{"study run nosuch", "nosuch: no such study file; there are examples/studies/"},
		{"study run " + none, "nosuch: no such study file; there are examples/studies/"},
		{"study run incst", "did you mean examples/studies/incast.yaml?"},
		{"study report lss.yaml", "did you mean examples/studies/loss.yaml?"},
		{"bench --tests ib_wrote_bw", `there is no test "ib_wrote_bw"; did you mean ib_write_bw?`},
		{"up examples/pare.yaml", "did you mean examples/pair.yaml?"},
	} {
		a, _, stderr := testApp(t)
		code := a.run(t.Context(), strings.Fields(tt.args))
		if code == 0 || !strings.Contains(stderr.String(), tt.want) {
			t.Errorf("%s: status %d, %q; want %q", tt.args, code, stderr, tt.want)
		}
	}
}

func TestWhatNeedsRootSaysSo(t *testing.T) {
	a, _, _ := testApp(t)
	a.uid = 1000
	denied := &fs.PathError{Op: "mkdir", Path: "/var/lib/rackless", Err: syscall.EACCES}
	err := a.needsRoot("rollback", denied)
	if err == nil || err.Error() != "rollback needs root: sudo rackless rollback" {
		t.Error(err)
	}
	other := errors.New("other")
	if err := a.needsRoot("rollback", other); err != other {
		t.Error(err)
	}
}

func TestMessagesAfterCtrlC(t *testing.T) {
	cause := errors.New("interrupt signal received")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	for _, tt := range []struct {
		err  error
		want string
	}{
		{errUndone, "interrupted; everything that was begun is undone"},
		{cause, "interrupted"},
		{context.Canceled, "interrupted"},
		{cli.Usage(context.Canceled), "interrupted"},
		{fmt.Errorf("the runs so far are kept: %w", cause),
			"interrupted: the runs so far are kept: interrupt signal received"},
	} {
		if got := interrupted(ctx, tt.err); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}
