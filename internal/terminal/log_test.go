package terminal

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestPlainWriterTakesControlOut(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"text stays", "vm00# ls\tx\nünïcode\n", "vm00# ls\tx\nünïcode\n"},
		{"carriage returns go", "a\r\nb\r\n", "a\nb\n"},
		{"colours", "\x1b[1;32mok\x1b[0m\n", "ok\n"},
		{"a question that the terminal would answer", "\x1b[6n$ ", "$ "},
		{"a window title", "\x1b]0;title\x07text", "text"},
		{"a string that ends with an escape", "\x1bPq#0\x1b\\text", "text"},
		{"a character set", "\x1b(Btext", "text"},
		{"bells and deletes", "a\x07\x7fb\x00", "ab"},
		{"a sequence that does not end", "text\x1b[12", "text"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var whole, bytewise bytes.Buffer
			if n, err := (&PlainWriter{W: &whole}).Write([]byte(tt.in)); n != len(tt.in) || err != nil {
				t.Errorf("Write returned %d, %v", n, err)
			}
			w := &PlainWriter{W: &bytewise}
			for i := range len(tt.in) {
				w.Write([]byte{tt.in[i]})
			}
			if whole.String() != tt.want || bytewise.String() != tt.want {
				t.Errorf("got %q at once and %q byte by byte, want %q", &whole, &bytewise, tt.want)
			}
		})
	}
}

func FuzzPlainWriter(f *testing.F) {
	for _, s := range []string{"text\n", "\x1b[6n", "\x1b]0;t\x07", "\x1b(B", "\x1bP\x1b\\", "\x1b", "\xff\x1b[\x1b"} {
		f.Add([]byte(s), 1)
	}
	f.Fuzz(func(t *testing.T, in []byte, cut int) {
		var whole, parts bytes.Buffer
		(&PlainWriter{W: &whole}).Write(in)
		if i := bytes.IndexFunc(whole.Bytes(), func(r rune) bool {
			return r < 0x20 && r != '\n' && r != '\t' || r == 0x7f
		}); i >= 0 {
			t.Errorf("control character %#x got through in %q", whole.Bytes()[i], &whole)
		}
		at := min(max(cut, 0), len(in))
		w := &PlainWriter{W: &parts}
		w.Write(in[:at])
		w.Write(in[at:])
		if !bytes.Equal(whole.Bytes(), parts.Bytes()) {
			t.Errorf("cut at %d: %q, whole: %q", at, &parts, &whole)
		}
	})
}

func TestSeekLines(t *testing.T) {
	long := strings.Repeat("x", 5000)
	tests := []struct {
		name, text string
		n          int
		want       string
	}{
		{"the last line", "a\nb\nc\n", 1, "c\n"},
		{"two", "a\nb\nc\n", 2, "b\nc\n"},
		{"more than there are", "a\nb\n", 5, "a\nb\n"},
		{"just as many", "a\nb\n", 2, "a\nb\n"},
		{"a line without an end", "a\nb", 1, "b"},
		{"empty lines count", "a\n\n\n", 2, "\n\n"},
		{"an empty file", "", 3, ""},
		{"lines longer than a block", long + "\n" + long + "\nend\n", 2, long + "\nend\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "log")
			if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			var b bytes.Buffer
			if err := PrintLog(t.Context(), &b, path, tt.n, false); err != nil || b.String() != tt.want {
				t.Errorf("got %q, %v, want %q", &b, err, tt.want)
			}
		})
	}
}

func expect(t *testing.T, r io.Reader, want string) {
	t.Helper()
	buf := make([]byte, len(want))
	if _, err := io.ReadFull(r, buf); err != nil || string(buf) != want {
		t.Fatalf("got %q, %v, want %q", buf, err, want)
	}
}

func TestFollowing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	add := func(text string) {
		t.Helper()
		f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		fmt.Fprint(f, text)
	}
	add("one\n")
	r, w := io.Pipe()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- PrintLog(ctx, w, path, 0, true) }()
	expect(t, r, "one\n")
	add("two\n")
	expect(t, r, "two\n")
	if err := os.WriteFile(path+".new", []byte("three\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	expect(t, r, "three\n")
	if err := os.WriteFile(path, []byte("4\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	expect(t, r, "4\n")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Errorf("after the lab's end: %v", err)
	}
}

func TestFollowingEndsWithTheContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := PrintLog(ctx, io.Discard, path, 0, true); err != nil {
		t.Error(err)
	}
}
