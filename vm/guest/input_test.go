package guest

import (
	"context"
	"io"
	"os"
	"strings"
	"testing"
)

func TestReadInput(t *testing.T) {
	pipe := func(t *testing.T) (r, w *os.File) {
		t.Helper()
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Close(); w.Close() })
		return r, w
	}
	t.Run("all of it is read", func(t *testing.T) {
		r, w := pipe(t)
		io.WriteString(w, "a\x00b\n")
		w.Close()
		if b, err := ReadInput(t.Context(), r); err != nil || string(b) != "a\x00b\n" {
			t.Errorf("got %q, %v", b, err)
		}
	})
	t.Run("a pipe that stays open does not hold it after the context's end", func(t *testing.T) {
		r, _ := pipe(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := ReadInput(ctx, r); err == nil || !strings.Contains(err.Error(), "-n leaves it alone") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("more than the agent takes is refused", func(t *testing.T) {
		r, w := pipe(t)
		go func() {
			defer w.Close()
			_, _ = w.Write(make([]byte, maxInput+1)) // fails when the reader stops
		}()
		if _, err := ReadInput(t.Context(), r); err == nil || !strings.Contains(err.Error(), "more than 16 MiB") {
			t.Errorf("got %v", err)
		}
	})
}
