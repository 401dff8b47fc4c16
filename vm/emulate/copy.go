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

// chunk is how many bytes of a file go into a host at once: the agent takes 16 MiB.
const chunk = 8 << 20

// cut is the status of a script that finds what it did before lost.
const cut = "75"

// ErrOneSide is a copy that has both its ends on one machine.
var ErrOneSide = errors.New("want a file here and one in a host, as in: rackless emulate cp lab.yaml NAME:/root/")

// Within is the path in a host of what begins with a colon; any other path is one of this machine.
func Within(host, arg string) string {
	if strings.HasPrefix(arg, ":") {
		return host + arg
	}
	return arg
}

// inHost takes NAME:PATH apart. A path of this machine that has a colon is written with a slash before it, as for scp.
func inHost(arg string) (host, path string, ok bool) {
	host, path, ok = strings.Cut(arg, ":")
	return host, path, ok && host != "" && !strings.Contains(host, "/")
}

// Copy copies a file between this machine and a host that runs. One of the two is NAME:PATH. A host that restarts is
// waited for, and the copy made again; waits is called with what is waited for.
func Copy(ctx context.Context, d userdirs.Dirs, from, to string, waits func(what string)) error {
	source, sourcePath, out := inHost(from)
	target, targetPath, in := inHost(to)
	if in == out {
		return ErrOneSide
	}
	if in {
		source = target
		// Looked at before it is opened: a FIFO would wait for a writer.
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

// errCut is a command that ended as commands do when their host goes down.
var errCut = errors.New("it was cut off")

// copyIn writes beside the target first, so that a copy that ends early leaves the old file.
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
	// As in a shell of root's: a path that does not begin with a slash is one of its home directory.
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

// script runs a line of shell in root's home directory of the host, and turns its failure into an error.
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
