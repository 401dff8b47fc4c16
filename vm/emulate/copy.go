package emulate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/rackless/rackless/internal/atomicfile"
	"github.com/rackless/rackless/internal/userdirs"
)

// chunk is in bytes; the agent accepts 16 MiB.
const chunk = 8 << 20

// cut is a script's exit status if an earlier piece is lost.
const cut = "75"

// ErrOneSide reports a copy between two paths of one machine.
var ErrOneSide = errors.New("want a file here and one in a host, as in: rackless emulate cp lab.yaml NAME:/root/")

// Within prefixes a path that begins with a colon with the host's name.
func Within(host, arg string) string {
	if strings.HasPrefix(arg, ":") {
		return host + arg
	}
	return arg
}

// inHost splits NAME:PATH. As for scp, a slash before the colon makes a path local.
func inHost(arg string) (host, path string, ok bool) {
	host, path, ok = strings.Cut(arg, ":")
	return host, path, ok && host != "" && !strings.Contains(host, "/")
}

// Copy copies a file between this machine and a running host; one of from and to is NAME:PATH. If the host restarts,
// Copy calls waits and starts again.
func Copy(ctx context.Context, d userdirs.Dirs, from, to string, waits func(what string)) error {
	source, sourcePath, out := inHost(from)
	target, targetPath, in := inHost(to)
	if in == out {
		return ErrOneSide
	}
	if in {
		source = target
		// Opening a FIFO would block until it has a writer.
		if info, err := os.Stat(from); err != nil {
			return err
		} else if !info.Mode().IsRegular() {
			return fmt.Errorf("%s is not a regular file: pack a directory with tar", from)
		}
	}
	h, err := Open(d, source)
	if err != nil {
		return err
	}
	if !h.Running() {
		return fmt.Errorf("host %s is off: rackless emulate %s boots it", h.Name, h.Name)
	}
	for {
		if err := h.AwaitBoot(ctx, waits); err != nil {
			return err
		}
		if in {
			err = h.copyIn(ctx, from, targetPath)
		} else {
			err = h.copyOut(ctx, sourcePath, to)
		}
		if !errors.Is(err, errCut) && !restarted(err) || !h.downSoon(ctx) {
			return err
		}
	}
}

var errCut = errors.New("it was cut off")

// copyIn writes beside the target first, so that an interrupted copy leaves the old file.
func (h *Host) copyIn(ctx context.Context, from, to string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	var target strings.Builder
	err = h.script(ctx, `if [ -d "$0" ]; then printf %s "${0%/}/$1"; else printf %s "$0"; fi`, nil, &target, cmp.Or(to,
		"."), filepath.Base(from))
	if err != nil {
		return err
	}
	part := target.String() + ".part"
	for buf, append := make([]byte, chunk), ">"; ; append = ">>" {
		n, err := io.ReadFull(f, buf)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return err
		}
		if n > 0 || append == ">" {
			if err := h.script(ctx, `cat `+append+` "$0"`, buf[:n], io.Discard, part); err != nil {
				return err
			}
		}
		if n < len(buf) {
			break
		}
	}
	// A restart between two pieces may have lost the first.
	return h.script(ctx, `test "$(wc -c <"$0")" -eq "$3" || exit `+cut+`; chmod "$1" "$0" && mv -f "$0" "$2"`, nil,
		io.Discard, part, fmt.Sprintf("%o", info.Mode().Perm()), target.String(), fmt.Sprint(info.Size()))
}

func (h *Host) copyOut(ctx context.Context, from, to string) error {
	if info, err := os.Stat(to); err == nil && info.IsDir() {
		to = filepath.Join(to, path.Base(from))
	}
	return atomicfile.Write(to, 0o644, func(w io.Writer) error { return h.script(ctx, `cat "$0"`, nil, w, from) })
}

// script runs in root's home directory, and fails if the command does.
func (h *Host) script(ctx context.Context, line string, stdin []byte, out io.Writer, args ...string) error {
	var said strings.Builder
	argv := append([]string{"sh", "-c", "cd /root && " + line}, args...)
	exit, err := h.Exec(ctx, nil, argv, stdin, out, &said)
	if err == nil && exit != 0 {
		if exit == 128+int(syscall.SIGTERM) || exit == 128+int(syscall.SIGKILL) || fmt.Sprint(exit) == cut {
			return fmt.Errorf("host %s: %w: %s", h.Name, errCut, strings.TrimSpace(said.String()))
		}
		err = fmt.Errorf("host %s: %s", h.Name, strings.TrimSpace(said.String()))
	}
	return err
}
