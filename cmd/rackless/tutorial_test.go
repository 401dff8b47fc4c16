package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var (
	tutorial       = flag.Bool("tutorial", false, "follow docs/tutorial.md on an emulated host")
	updateTutorial = flag.Bool("update-tutorial", false, "follow docs/tutorial.md on an emulated host, and write what its commands print")
)

// A block is a fenced block of the tutorial with commands and what they print.
type block struct {
	head     string // the line that opens it
	commands []tutorialCommand
	figures  bool // numbers differ from run to run
	status   int  // of its commands
}

type tutorialCommand struct {
	line   int
	prompt string // "laptop$" or "host#"
	text   string
	output string
}

// tutorialPrompt is what a line with a command begins with.
var tutorialPrompt = regexp.MustCompile(`^(laptop\$|host#) (.*)$`)

// parseTutorial splits a page into text and blocks: pieces are strings and *blocks, in order.
func parseTutorial(page string) ([]any, error) {
	var pieces []any
	var text strings.Builder
	var b *block
	n := 0
	for line := range strings.Lines(page) {
		n++
		line = strings.TrimSuffix(line, "\n")
		switch {
		case b == nil && strings.HasPrefix(line, "```console"):
			pieces = append(pieces, text.String())
			text.Reset()
			b = &block{head: line}
			for _, word := range strings.Fields(line)[1:] {
				status, isStatus := strings.CutPrefix(word, "status=")
				switch {
				case word == "figures":
					b.figures = true
				case isStatus:
					var err error
					if b.status, err = strconv.Atoi(status); err != nil {
						return nil, fmt.Errorf("line %d: %w", n, err)
					}
				default:
					return nil, fmt.Errorf("line %d: %q is unknown", n, word)
				}
			}
		case b != nil && line == "```":
			pieces = append(pieces, b)
			b = nil
		case b == nil:
			text.WriteString(line + "\n")
		default:
			if m := tutorialPrompt.FindStringSubmatch(line); m != nil {
				b.commands = append(b.commands, tutorialCommand{line: n, prompt: m[1], text: m[2]})
			} else if len(b.commands) == 0 {
				return nil, fmt.Errorf("line %d: output without a command", n)
			} else {
				b.commands[len(b.commands)-1].output += line + "\n"
			}
		}
	}
	if b != nil {
		return nil, errors.New("the last block has no end")
	}
	return append(pieces, text.String()), nil
}

// writeTutorial is the inverse of parseTutorial.
func writeTutorial(pieces []any) string {
	var out strings.Builder
	for _, p := range pieces {
		switch p := p.(type) {
		case string:
			out.WriteString(p)
		case *block:
			out.WriteString(p.head + "\n")
			for _, c := range p.commands {
				fmt.Fprintf(&out, "%s %s\n%s", c.prompt, c.text, c.output)
			}
			out.WriteString("```\n")
		}
	}
	return out.String()
}

// What differs between two runs that are the same: times everywhere, and all numbers of blocks with figures.
var (
	durations = regexp.MustCompile(`\b\d+(\.\d+)? ?(s|ms|us|min)\b`)
	numbers   = regexp.MustCompile(`\d+(\.\d+)?`)
	padding   = regexp.MustCompile(`[ ─-]+`)
	stamps    = regexp.MustCompile(`\d{8}T\d{6}Z`)
	releases  = regexp.MustCompile(`\b\d+\.\d+\.\d+-\d+-amd64\b`)
	uuids     = regexp.MustCompile(`\b[0-9a-f]{8}-[0-9a-f-]{27}\b`)
)

func (b *block) masked(text string) string {
	text = uuids.ReplaceAllString(releases.ReplaceAllString(stamps.ReplaceAllString(durations.ReplaceAllString(text, "TIME"), "STAMP"), "KERNEL"), "UUID")
	if b.figures {
		text = numbers.ReplaceAllString(text, "N")
	}
	return padding.ReplaceAllString(text, " ")
}

func TestTutorialIsReadAndWrittenAsItIs(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/tutorial.md")
	if err != nil {
		t.Fatal(err)
	}
	pieces, err := parseTutorial(string(page))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(page), writeTutorial(pieces)); diff != "" {
		t.Errorf("(-page +written):\n%s", diff)
	}
}

// TestTutorial follows the tutorial to its end, on a host of its own. It is the test of the whole way as well: prepare with its reboot, up with passthrough,
// verify, bench, down, rollback; what the host was like at the start, file by file, is what it is like at the end.
func TestTutorial(t *testing.T) {
	// Not among the tests that everybody runs as yet: the bench in the host fails.
	if !*tutorial && !*updateTutorial {
		t.Skip("asked for by -tutorial")
	}
	needEmulation(t)
	page, err := os.ReadFile("../../docs/tutorial.md")
	if err != nil {
		t.Fatal(err)
	}
	pieces, err := parseTutorial(string(page))
	if err != nil {
		t.Fatal(err)
	}
	e := newEmulated(t, "epyc-7551p")
	e.onStart = func() {
		e.putFile(t, "/root/epyc-lab.yaml", "../../examples/epyc-lab.yaml")
	}
	var before, after string
	for _, piece := range pieces {
		b, ok := piece.(*block)
		if !ok {
			continue
		}
		for i := range b.commands {
			c := &b.commands[i]
			if strings.HasPrefix(c.text, "rackless emulate rm") {
				after = e.fingerprint(t)
			}
			began := time.Now()
			got, status := e.tutorial(t, c)
			t.Logf("line %d: %s %s: status %d after %.1f s", c.line, c.prompt, c.text, status, time.Since(began).Seconds())
			if status != b.status {
				t.Fatalf("line %d: %s: status %d, want %d\n%s", c.line, c.text, status, b.status, got)
			}
			if strings.HasPrefix(c.text, "rackless emulate --keep") {
				before = e.fingerprint(t)
			}
			if diff := cmp.Diff(b.masked(c.output), b.masked(got)); diff != "" && !*updateTutorial {
				t.Errorf("docs/tutorial.md:%d: %s prints something else; go test ./cmd/rackless -run TestTutorial -update-tutorial (-page +printed):\n%s", c.line, c.text, diff)
			}
			c.output = got
		}
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("the host is not as it was (-before +after):\n%s", diff)
	}
	if *updateTutorial && !t.Failed() {
		if err := os.WriteFile("../../docs/tutorial.md", []byte(writeTutorial(pieces)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// tutorial runs a command of the tutorial where its prompt says, and returns what it printed, as a reader would see it.
func (e *emulated) tutorial(t *testing.T, c *tutorialCommand) (output string, status int) {
	t.Helper()
	switch {
	case c.prompt == "host#" && c.text == "systemctl reboot":
		e.reboot(t)
		return "", 0
	case c.prompt == "host#":
		return e.host(t, c.text)
	}
	output, status = e.run(t, strings.Fields(strings.TrimPrefix(c.text, "rackless "))...)
	if strings.Contains(c.text, "--keep") && status == 0 {
		e.onStart()
	}
	return output, status
}

// needEmulation skips tests that boot an emulated host, or fails where tests must be complete.
func needEmulation(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("hosts are not emulated with -short")
	}
	for _, program := range []string{"qemu-system-x86_64", "mmdebstrap"} {
		if _, err := exec.LookPath(program); err != nil {
			if os.Getenv("CI") != "" {
				t.Fatal(err)
			}
			t.Skip(err)
		}
	}
}

// An emulated is an emulated host of a test's own, driven by the program as a user drives it.
type emulated struct {
	name    string // of the host, which is its profile's
	run0    string // RACKLESS_RUN
	program string
	env     []string
	onStart func()
}

// newEmulated makes ready for a host; it is removed when the test ends.
func newEmulated(t *testing.T, name string) *emulated {
	t.Helper()
	run, err := os.MkdirTemp("/tmp", "rl") // short, since sockets lie below it
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// By this name the test binary is the program: TestMain.
	program := filepath.Join(run, "rackless")
	if err := os.Symlink(self, program); err != nil {
		t.Fatal(err)
	}
	e := &emulated{name: name, run0: run, program: program, onStart: func() {}, env: append(os.Environ(), "RACKLESS_RUN="+run)}
	t.Cleanup(func() {
		e.run(t, "emulate", "rm", name)
		nothingLeft(t, run)
	})
	return e
}

// commandLimit bounds one command. Nested machines under emulation take minutes to boot.
const commandLimit = 20 * time.Minute

// run runs the program on this machine, and returns what it printed: standard output, and, where it failed, what it said as well.
func (e *emulated) run(t *testing.T, args ...string) (output string, status int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), commandLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, e.program, args...)
	cmd.Env = e.env
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	status = cmd.ProcessState.ExitCode()
	output = stdout.String()
	if status != 0 {
		output += stderr.String()
	}
	return output, status
}

// host runs a command line in the host, with a shell, as root in its home.
func (e *emulated) host(t *testing.T, command string) (output string, status int) {
	t.Helper()
	return e.run(t, "emulate", "-n", e.name, "--", "sh", "-c", "cd && "+command)
}

// mustHost runs a command line in the host that has to succeed.
func (e *emulated) mustHost(t *testing.T, command string) string {
	t.Helper()
	out, status := e.host(t, command)
	if status != 0 {
		t.Fatalf("%s: status %d\n%s", command, status, out)
	}
	return out
}

// putFile copies a file of the repository into the host.
func (e *emulated) putFile(t *testing.T, to, from string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	e.mustHost(t, fmt.Sprintf("printf %%s '%s' > %s", strings.ReplaceAll(string(data), "'", `'\''`), to))
}

// reboot restarts the host and waits until the next boot has come to its end.
func (e *emulated) reboot(t *testing.T) {
	t.Helper()
	old := e.mustHost(t, "cat /proc/sys/kernel/random/boot_id")
	e.host(t, "systemctl reboot")
	e.awaitBoot(t, old)
}

// awaitBoot waits for a boot that is not the old one, and for its services.
func (e *emulated) awaitBoot(t *testing.T, old string) {
	t.Helper()
	for deadline := time.Now().Add(commandLimit); ; time.Sleep(time.Second) {
		if id, status := e.host(t, "cat /proc/sys/kernel/random/boot_id"); status == 0 && id != old {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("host %s does not come back", e.name)
		}
	}
	// "degraded" is a service that failed: prepare at boot may.
	e.host(t, "systemctl is-system-running --wait")
}

// fingerprintScript prints everything of the host that prepare may change: files with their content, modes and owners, and values of the kernel. What a running
// system changes by itself is left out.
const fingerprintScript = `
find /etc /boot /usr/local /var/lib/rackless -xdev \( -path /etc/mtab -o -path /boot/grub/grubenv -o -path /etc/ld.so.cache \) -prune -o -printf '%M %u:%g %p %l\n' 2>/dev/null | sort -k3
find /etc /boot /usr/local -xdev -type f \( -path /boot/grub/grubenv -o -path /etc/ld.so.cache \) -prune -o -xdev -type f -print0 | sort -z | xargs -0 sha256sum
cat /proc/cmdline
for f in /sys/devices/system/cpu/isolated /sys/devices/system/cpu/nohz_full /sys/devices/system/node/node*/hugepages/hugepages-*/nr_hugepages \
	/sys/kernel/mm/transparent_hugepage/enabled /sys/kernel/mm/ksm/run /proc/sys/kernel/numa_balancing /proc/irq/default_smp_affinity /sys/bus/pci/devices/*/driver_override \
	/sys/bus/pci/devices/*/sriov_numvfs /sys/bus/pci/devices/*/d3cold_allowed; do
	[ ! -e "$f" ] || echo "$f $(tr '\n' ' ' <"$f")"
done
for d in /sys/bus/pci/devices/*; do echo "$d $(basename "$(readlink "$d/driver")") $(basename "$(readlink "$d/iommu_group")")"; done
ls /sys/fs/cgroup
lsmod | awk '/vfio/ {print $1}' | sort
for d in /sys/class/net/*; do echo "${d##*/} $(cat "$d/mtu" "$d/address" | tr '\n' ' ')"; done
systemctl list-unit-files --state=enabled --no-legend --no-pager
mount -t hugetlbfs
`

// fingerprint returns what of the host prepare may change.
func (e *emulated) fingerprint(t *testing.T) string {
	t.Helper()
	return e.mustHost(t, fingerprintScript)
}
