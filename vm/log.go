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

// A guest writes its console's log, of any size.

const logEnd = 4096

// ReadEnd returns at most n bytes of a log that may grow.
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

// EndOf returns a log's last few non-empty lines.
func EndOf(path string, few int) []string {
	b, _ := ReadEnd(path, logEnd)
	text := strings.TrimSpace(string(b))
	if text == "" {
		return nil
	}
	lines := strings.Split(text, "\n")
	return lines[max(0, len(lines)-few):]
}

// LastLine returns the last non-empty line, or "".
func LastLine(path string) string { return strings.TrimSpace(strings.Join(EndOf(path, 1), "")) }

// LastLines joins the end of a log, for an error message.
func LastLines(path string) string {
	lines := EndOf(path, 3)
	if lines == nil {
		return "(nothing)"
	}
	return strings.Join(lines, " | ")
}

const (
	maxLog    = 64 << 20 // longer ones are trimmed
	keptLog   = 1 << 20  // the end that stays
	trimPause = 10 * time.Second
)

// TrimLogs keeps the logs in dir and the directories below from filling the file system, until ctx is done.
func TrimLogs(ctx context.Context, dir string) {
	for wait.For(ctx, trimPause) == nil {
		trimAll(dir, maxLog, keptLog)
	}
}

func trimAll(dir string, limit, keep int64) {
	for _, name := range []string{FileConsole, FileLog, FileDaemonLog} {
		logs, _ := filepath.Glob(filepath.Join(dir, "*", name)) // only for a bad pattern
		for _, path := range append(logs, filepath.Join(dir, name)) {
			_ = trim(path, limit, keep) // of a machine that is being removed, or tried again
		}
	}
}

// trim shortens a log that QEMU or a daemon appends to meanwhile.
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
