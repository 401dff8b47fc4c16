// Package remote reads machines by ssh: it copies this program to each, has it write a snapshot, and removes it.
package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/atomicfile"
	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/internal/trace"
	"github.com/rackless/rackless/internal/userfile"
	"github.com/rackless/rackless/machine/inspect"
	"github.com/rackless/rackless/machine/topology"
)

// maxSnapshot is in bytes. 512 CPUs and 200 devices take 1 MiB.
const maxSnapshot = 64 << 20

// maxNoise limits a host's login scripts, in bytes.
const maxNoise = 64 << 10

// magic begins Zstandard data.
var magic = []byte{0x28, 0xb5, 0x2f, 0xfd}

// script runs in any shell with single quotes, contains no outside data, and always removes the program. It reads the
// program from standard input, so that one connection is enough. %s is the expected system and machine as in uname.
const script = `exec sh -c 'set -u; umask 077
is="$(uname -s) $(uname -m)"
[ "$is" = "%s" ] || { echo "is $is, and this rackless is for %[1]s" >&2; exit 69; }
dir=$(mktemp -d) || exit 73
end() { rm -rf "$dir"; }
trap end EXIT
trap "exit 1" HUP INT TERM
cat >"$dir/rackless" && chmod 700 "$dir/rackless" && "$dir/rackless" host snapshot --keep-ids --out -'`

// uname maps Go's architectures to uname -m.
var uname = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}

// A Client reads machines.
type Client struct {
	Program string   // statically linked, to be copied
	Options []string // after the Client's own
}

// Snapshot returns a snapshot of a host: a name of ~/.ssh/config, user@name, or ssh://user@name:port. ssh asks for
// neither a password nor a fingerprint.
func (c Client) Snapshot(ctx context.Context, host string) ([]byte, error) {
	program, err := os.Open(c.Program)
	if err != nil {
		return nil, err
	}
	defer program.Close()
	args := append([]string{"-o", "BatchMode=yes", "-o", "ConnectTimeout=15", "-T", "-C"}, c.Options...)
	args = append(args, "--", host, fmt.Sprintf(script, "Linux "+uname[runtime.GOARCH]))
	cmd := exec.CommandContext(ctx, "ssh", args...)
	trace.Runs("", cmd.Args)
	var complaints tail
	cmd.Stdin, cmd.Stderr = program, &complaints
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(out, maxSnapshot+1))
	if len(text) > maxSnapshot {
		_ = cmd.Process.Kill() // it would block on the full pipe
		err = fmt.Errorf("sends more than %d MiB", maxSnapshot>>20)
	}
	if ended := cmd.Wait(); err == nil {
		err = ended
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w%s", host, errors.Join(ctx.Err(), err), complaints.after(": "))
	}
	at := bytes.Index(text[:min(len(text), maxNoise)], magic)
	if at < 0 {
		return nil, fmt.Errorf("%s: sent no snapshot%s", host, complaints.after(": "))
	}
	return text[at:], nil
}

// Read reads a host. It first passes the snapshot to save, if not nil.
func (c Client) Read(ctx context.Context, host string, save func(snapshot []byte) error) (*topology.Host, error) {
	snapshot, err := c.Snapshot(ctx, host)
	if err == nil && save != nil {
		err = save(snapshot)
	}
	if err != nil {
		return nil, err
	}
	return inspect.ReadStream(ctx, bytes.NewReader(snapshot), host)
}

// Jobs returns hosts to read. It keeps snapshots in the directory save, unless "".
func (c Client) Jobs(hosts []string, save string) (inspect.Jobs, error) {
	jobs := inspect.Jobs{Many: true}
	if save != "" {
		if err := os.MkdirAll(save, 0o700); err != nil {
			return jobs, err
		}
	}
	for _, host := range hosts {
		var keep func([]byte) error
		if save != "" {
			name := strings.NewReplacer("ssh://", "", "/", "_", ":", "_").Replace(host) + ".tar.zst"
			keep = func(snapshot []byte) error {
				return atomicfile.WriteFile(filepath.Join(save, name), snapshot, 0o600)
			}
		}
		jobs.All = append(jobs.All, inspect.Job{Name: host, Read: func(ctx context.Context) (*topology.Host, error) {
			return c.Read(ctx, host, keep)
		}})
	}
	return jobs, nil
}

type tail struct{ text []byte }

// maxTail is in bytes.
const maxTail = 400

// Write never fails.
func (t *tail) Write(p []byte) (int, error) {
	t.text = append(t.text, p...)
	if over := len(t.text) - maxTail; over > 0 {
		t.text = t.text[over:]
	}
	return len(p), nil
}

// after returns one line after separator, or "".
func (t *tail) after(separator string) string {
	lines := strings.FieldsFunc(string(t.text), func(r rune) bool { return r == '\n' || r == '\r' })
	if len(lines) != 0 {
		return separator + strings.Join(lines, "; ")
	}
	return ""
}

// A mistaken range would start too many programs.
const maxHosts = 4096

// hostRange matches Slurm's and clush's node[01-16,20].
var hostRange = lazyregexp.New(`^([^][]*)\[([0-9,-]+)\]([^][]*)$`)

// hostName matches hosts of ~/.ssh/config, with an optional user, or an ssh URI. It excludes a leading dash, which ssh
// would read as an option.
var hostName = lazyregexp.New(
	`^(?:ssh://(?:[\w.+-]+@)?(?:\[[0-9a-fA-F:.%]+\]|\w[\w.-]*)(?::\d+)?|\w[\w.@+:-]*)$`)

// Hosts parses hosts separated by lines, spaces or commas, with ranges (node[01-16]) and comments after "#". Duplicates
// are dropped; file is for messages.
func Hosts(file, text string) ([]string, error) {
	var all []string
	for i, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		for _, word := range fields(line) {
			hosts, err := expand(word)
			if err != nil {
				return nil, fmt.Errorf("%s:%d: %w", file, i+1, err)
			}
			if all = append(all, hosts...); len(all) > maxHosts {
				return nil, fmt.Errorf("%s:%d: more than %d hosts", file, i+1, maxHosts)
			}
		}
	}
	seen := map[string]bool{}
	all = slices.DeleteFunc(all, func(h string) bool {
		twice := seen[h]
		seen[h] = true
		return twice
	})
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: no hosts: want names, one a line", file)
	}
	return all, nil
}

// fields ignores commas in ranges.
func fields(line string) []string {
	depth := 0
	return strings.FieldsFunc(line, func(r rune) bool {
		switch r {
		case '[':
			depth++
		case ']':
			depth--
		case ',':
			return depth <= 0
		}
		return r == ' ' || r == '\t' || r == '\r'
	})
}

func expand(word string) ([]string, error) {
	m := hostRange().FindStringSubmatch(word)
	if m == nil {
		if !hostName().MatchString(word) {
			return nil, fmt.Errorf("%q is not a host: want a name, user@name or ssh://user@name:port", word)
		}
		return []string{word}, nil
	}
	var all []string
	for part := range strings.SplitSeq(m[2], ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		low, err := strconv.Atoi(from)
		high, err2 := strconv.Atoi(to)
		if err != nil || err2 != nil || high < low || high-low >= maxHosts {
			return nil, fmt.Errorf("%q: %q is not a range", word, part)
		}
		for n := low; n <= high; n++ {
			hosts, err := expand(fmt.Sprintf("%s%0*d%s", m[1], len(from), n, m[3]))
			if err != nil {
				return nil, err
			}
			all = append(all, hosts...)
		}
	}
	return all, nil
}

// maxList is in bytes.
const maxList = 1 << 20

// List reads a list of hosts. isList is false for files that inspect reads, and for files with more than a name on a
// line.
func List(ctx context.Context, path string) (hosts []string, isList bool, err error) {
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() || info.Size() > maxList {
		return nil, false, nil
	}
	text, err := userfile.Read(path, userfile.Text)
	if err != nil {
		return nil, false, nil // inspect says why
	}
	names := 0
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		if names += len(strings.Fields(line)); len(strings.Fields(line)) > 1 || strings.ContainsAny(line, "{}<>\"") {
			return nil, false, nil
		}
	}
	if names == 0 {
		return nil, false, nil
	}
	if _, err := inspect.ReadFile(ctx, path); err == nil {
		return nil, false, nil
	}
	hosts, err = Hosts(path, string(text))
	return hosts, true, err
}
