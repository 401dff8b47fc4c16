package vm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestEndsOfLogs(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 3*logEnd)
	for name, test := range map[string]struct{ log, line, lines string }{
		"nothing":                 {"", "", "(nothing)"},
		"only line ends":          {"\n\r\n", "", "(nothing)"},
		"a line":                  {"a \n", "a", "a"},
		"more lines":              {"a\nb\nc\nd\n\n", "d", "b | c | d"},
		"a line that is too long": {long, long[:logEnd], long[:logEnd]},
	} {
		path := filepath.Join(t.TempDir(), "log")
		if err := os.WriteFile(path, []byte(test.log), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := LastLine(path); got != test.line {
			t.Errorf("%s: last line %q", name, got)
		}
		if got := LastLines(path); got != test.lines {
			t.Errorf("%s: last lines %q", name, got)
		}
	}
	if got := LastLines(filepath.Join(t.TempDir(), "log")); got != "(nothing)" {
		t.Errorf("of no log: %q", got)
	}
}

func TestTrim(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ before, want string }{
		"a short log": {"0123456789", "0123456789\nmore"},
		"a long log": {"0123456789a", "" +
			"[rackless: 7 bytes before this were removed, as the log was longer than 0 MiB]\n" +
			"789a\nmore"},
	} {
		path := filepath.Join(t.TempDir(), "log")
		f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600) // as QEMU does with logappend
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString(test.before); err != nil {
			t.Fatal(err)
		}
		if err := trim(path, 10, 4); err != nil {
			t.Error(err)
		}
		if _, err := f.WriteString("\nmore"); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != test.want {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
}

func TestTrimAll(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "vm00"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, trimmed := range map[string]bool{FileDaemonLog: true, "vm00/" + FileConsole: true,
		"vm00/" + FileLog: true, FileConsole: true, "state.json": false, "vm00/disk.qcow2": false} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(strings.Repeat("x", 2000)), 0o600); err != nil {
			t.Fatal(err)
		}
		trimAll(dir, 1000, 10)
		if got, err := os.ReadFile(path); err != nil || (len(got) < 1000) != trimmed {
			t.Errorf("%s: %d bytes are left, %v", name, len(got), err)
		}
	}
}
