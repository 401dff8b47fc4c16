package terminal

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

func connPair(t *testing.T) (guest, ours net.Conn) {
	t.Helper()
	guest, ours = net.Pipe()
	t.Cleanup(func() { guest.Close(); ours.Close() })
	return guest, ours
}

func TestCopyKeysEndsAtTheEscapeKey(t *testing.T) {
	tests := []struct{ name, typed, want string }{
		{"at once", "\x1d", ""},
		{"keys before it go through", "ls\r\x03\x1d", "ls\r\x03"},
		{"keys after it do not", "a\x1db", "a"},
		{"the terminal's end is the same", "abc", "abc"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var b bytes.Buffer
			if err := copyKeys(&b, strings.NewReader(tt.typed)); !errors.Is(err, errEscape) || b.String() != tt.want {
				t.Errorf("got %q, %v, want %q", &b, err, tt.want)
			}
		})
	}
}

func TestConsolePipe(t *testing.T) {
	const quiet = 50 * time.Millisecond
	t.Run("it ends in the silence after the input's end", func(t *testing.T) {
		guest, ours := connPair(t)
		go func() {
			buf := make([]byte, 100)
			n, _ := guest.Read(buf)
			io.WriteString(guest, "you said "+string(buf[:n]))
		}()
		var out bytes.Buffer
		if err := Pipe(t.Context(), ours, strings.NewReader("hello"), &out, quiet); err != nil ||
			out.String() != "you said hello" {
			t.Errorf("got %q, %v", &out, err)
		}
	})
	t.Run("while there is input, silence does not end it", func(t *testing.T) {
		guest, ours := connPair(t)
		in, typing := io.Pipe()
		go io.Copy(io.Discard, guest)
		done := make(chan error, 1)
		go func() { done <- Pipe(t.Context(), ours, in, io.Discard, time.Nanosecond) }()
		io.WriteString(typing, "a")
		select {
		case err := <-done:
			t.Fatalf("it ended: %v", err)
		default:
		}
		typing.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Run("the node's end is an error", func(t *testing.T) {
		guest, ours := connPair(t)
		guest.Close()
		in, _ := io.Pipe()
		if err := Pipe(t.Context(), ours, in, io.Discard, quiet); !errors.Is(err, ErrEnd) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("the context ends it", func(t *testing.T) {
		_, ours := connPair(t)
		in, _ := io.Pipe()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := Pipe(ctx, ours, in, io.Discard, quiet); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}
