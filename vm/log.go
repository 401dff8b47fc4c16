package vm

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rackless/rackless/internal/wait"
)

// A guest writes the log of its console, which may be of any size, and is read repeatedly.

// logEnd is the size of the end of a log that messages are made of.
const logEnd = 4096

// ReadEnd returns the last bytes of a log that may be growing, at most n.
func ReadEnd(path string, n int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if size, err := f.Seek(0, io.SeekEnd); err == nil {
		_, _ = f.Seek(max(0, size-n), io.SeekStart)
	}
	return io.ReadAll(io.LimitReader(f, n))
}

// EndOf returns the last few non-empty lines of a log, or none if it has none.
func EndOf(path string, few int) []string {
	b, _ := ReadEnd(path, logEnd)
	text := strings.TrimSpace(string(b))
	if text == "" {
		return nil
	}
	lines := strings.Split(text, "\n")
	return lines[max(0, len(lines)-few):]
}

// LastLine returns the last non-empty line of a log that may be growing, or "".
func LastLine(path string) string { return strings.TrimSpace(strings.Join(EndOf(path, 1), "")) }

// LastLines returns the end of a log as one line, for an error message.
func LastLines(path string) string {
	lines := EndOf(path, 3)
	if lines == nil {
		return "(nothing)"
	}
	return strings.Join(lines, " | ")
}

// Limits of the logs of machines that run.
const (
	maxLog    = 64 << 20 // longer ones are trimmed
	keptLog   = 1 << 20  // the end that stays
	trimPause = 10 * time.Second
)

// TrimLogs keeps the log of the daemon in dir, and those of the machines in dir and in the directories below, from
// filling its file system, until ctx is done.
func TrimLogs(ctx context.Context, dir string) {
	for wait.For(ctx, trimPause) == nil {
		trimAll(dir, maxLog, keptLog)
	}
}

func trimAll(dir string, limit, keep int64) {
	for _, name := range []string{FileConsole, FileLog, FileDaemonLog} {
		logs, _ := filepath.Glob(filepath.Join(dir, "*", name)) // fails only for a bad pattern
		for _, path := range append(logs, filepath.Join(dir, name)) {
			_ = trim(path, limit, keep) // of a machine that is being removed, or tried again
		}
	}
}

// trim removes all but the end of a log that is longer than limit. QEMU or a daemon appends to it meanwhile.
func trim(path string, limit, keep int64) error {
	fi, err := os.Stat(path)
	if err != nil || fi.Size() <= limit {
		return err
	}
	end, err := ReadEnd(path, keep)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "[rackless: %d bytes before this were removed, as the log was longer than %d MiB]\n%s",
		fi.Size()-int64(len(end)), limit>>20, end)
	return err
}
