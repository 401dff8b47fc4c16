package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/internal/storey"
)

var updateTutorial = flag.Bool("update-tutorial", false,
	"follow the tutorial, the course and the first lab, and write what their commands print")

type block struct {
	head     string
	commands []tutorialCommand
	figures  bool // numbers differ between runs
	status   int
}

type tutorialCommand struct {
	line   int
	prompt string // "laptop$", "host#" or, for one machine, "$"
	text   string
	output string
}

var tutorialPrompt = regexp.MustCompile(`^(laptop\$|host#|\$) (.*)$`)

// parseTutorial returns strings and *blocks, in order.
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

// Text that differs between equal runs: times everywhere, and all numbers of blocks with figures.
var (
	durations = regexp.MustCompile(`\b\d+(\.\d+)? ?(s|ms|us|min)\b`)
	numbers   = regexp.MustCompile(`\d+(\.\d+)?`)
	padding   = regexp.MustCompile(`[ ─-]+`)
	stamps    = regexp.MustCompile(`\d{8}T\d{6}Z`)
	releases  = regexp.MustCompile(`\b\d+\.\d+\.\d+-\d+-amd64\b`)
	// The kernel fills a GID table in the order of arriving addresses.
	counts    = regexp.MustCompile(`\b(process|none of|sent|received|GID of [0-9a-f.:]+ +index) \d+\b`)
	uuids     = regexp.MustCompile(`\b[0-9a-f]{8}-[0-9a-f-]{27}\b`)
	rateUnits = regexp.MustCompile(`\b[kM]?pps\b`)
	// A figure too small for the tool's decimals is computed and marked, and a line below explains the mark. Chance
	// decides.
	computed     = regexp.MustCompile(`~N`)
	computedNote = regexp.MustCompile(` ~: the tool printed N, for want of decimals; computed from another column`)
)

func (b *block) masked(text string) string {
	text = uuids.ReplaceAllString(releases.ReplaceAllString(stamps.ReplaceAllString(durations.ReplaceAllString(text,
		"TIME"), "STAMP"), "KERNEL"), "UUID")
	text = counts.ReplaceAllString(text, "$1 N")
	if b.figures {
		// They change the line breaks.
		text = strings.ReplaceAll(numbers.ReplaceAllString(text, "N"), "\n", " ")
		text = computed.ReplaceAllString(rateUnits.ReplaceAllString(text, "pps"), "N")
	}
	text = padding.ReplaceAllString(text, " ")
	if b.figures {
		text = computedNote.ReplaceAllString(text, "")
	}
	return text
}

func TestFiguresThatDifferAreMasked(t *testing.T) {
	t.Parallel()
	const wide = "vm01 to vm00\n size  write  write\n       Gb/s   kpps\n───────\n" +
		" 2 B   0.000011  0.66\n\n" +
		"vm01 to vm00, emulated: iperf3 33 segments\n"
	const computed = "vm01 to vm00\n size  write      write\n       Gb/s       pps\n──────────\n" +
		" 2 B   ~0.0000011  66\n" +
		"~: the tool printed 0, for want of decimals; computed from another\ncolumn\n\nvm01 to vm00, emulated: " +
		"iperf3 3 segments\n"
	figures := block{figures: true}
	if diff := cmp.Diff(figures.masked(wide), figures.masked(computed)); diff != "" {
		t.Errorf("chance is taken for a difference:\n%s", diff)
	}
	if figures.masked(wide) == figures.masked(strings.Replace(wide, "write", "read", 1)) {
		t.Error("another test is no difference")
	}
	if (&block{}).masked(wide) == (&block{}).masked(computed) {
		t.Error("figures differ in a block without figures, and that is no difference")
	}
}

func readTutorial(t *testing.T) (page string, pieces []any) {
	t.Helper()
	text, err := os.ReadFile("../../docs/tutorial.md")
	if err != nil {
		t.Fatal(err)
	}
	pieces, err = parseTutorial(string(text))
	if err != nil {
		t.Fatal(err)
	}
	return string(text), pieces
}

func TestTutorialIsReadAndWrittenAsItIs(t *testing.T) {
	t.Parallel()
	page, pieces := readTutorial(t)
	if diff := cmp.Diff(page, writeTutorial(pieces)); diff != "" {
		t.Errorf("(-page +written):\n%s", diff)
	}
}

// TestTheTutorialsPlanIsWhatPlanPrints plans on a snapshot of the tutorial's host, which make test does not start. It
// is made on the host before it is prepared: rackless host snapshot --out tutorial-host.ttar.
func TestTheTutorialsPlanIsWhatPlanPrints(t *testing.T) {
	_, pieces := readTutorial(t)
	a, out, stderr := testApp(t)
	if code := a.run(t.Context(), []string{"plan", "../../examples/epyc-lab.yaml", "--host",
		"testdata/tutorial-host.ttar"}); code != 0 {
		t.Fatalf("status %d: %s", code, stderr)
	}
	// The lines above name the host and the file.
	nodes := func(b *block, text string) []string {
		_, below, _ := strings.Cut(text, "\nvm00: ")
		return facts(b.masked(below))
	}
	for _, piece := range pieces {
		b, ok := piece.(*block)
		if !ok {
			continue
		}
		for _, c := range b.commands {
			if c.text != "rackless plan epyc-lab.yaml" {
				continue
			}
			if diff := cmp.Diff(nodes(b, c.output), nodes(b, out.String())); diff != "" {
				t.Errorf("docs/tutorial.md:%d: plan prints something else (-page +printed):\n%s", c.line, diff)
			}
			return
		}
	}
	t.Error("docs/tutorial.md has no plan of epyc-lab.yaml")
}

// TestE2ETutorial follows the tutorial on a host of its own, which at the end is file by file as at the start. In make
// test, TestAHostFromPrepareToRollback is the short form.
func TestE2ETutorial(t *testing.T) {
	storey.E2E(t)
	t.Parallel()
	needEmulation(t)
	_, pieces := readTutorial(t)
	e := newEmulated(t, "epyc-7551p", "--scale", "4", "epyc-7551p")
	// All CPUs take longer; see newSmall.
	e.cpu = "0"
	e.onStart = func() {
		e.putFile(t, "/root/epyc-lab.yaml", "../../examples/epyc-lab.yaml")
	}
	var before, after string
	reboots := 0
	for _, piece := range pieces {
		b, ok := piece.(*block)
		if !ok {
			continue
		}
		for i := range b.commands {
			c := &b.commands[i]
			switch {
			case strings.HasPrefix(c.text, "rackless emulate rm"):
				after = e.fingerprint(t)
			case strings.HasPrefix(c.text, "rackless down"):
				e.documented(t, "vm00", "vm01")
			case c.text == reboot:
				if reboots++; reboots == 1 { // as for a reader
					e.offAtReset(t)
				}
			}
			began := time.Now()
			got, status := e.tutorial(t, c)
			t.Logf("line %d: %s %s: status %d after %.1f s", c.line, c.prompt, c.text, status,
				time.Since(began).Seconds())
			if status != b.status {
				t.Fatalf("line %d: %s: status %d, want %d\n%s", c.line, c.text, status, b.status, got)
			}
			if strings.HasPrefix(c.text, "rackless emulate --keep") {
				e.documented(t)
				before = e.fingerprint(t)
			}
			if diff := cmp.Diff(facts(b.masked(c.output)), facts(b.masked(got))); diff != "" && !*updateTutorial {
				t.Errorf("docs/tutorial.md:%d: %s prints something else; go test ./cmd/rackless -run "+
					"TestE2ETutorial -e2e -update-tutorial (-page +printed):\n%s", c.line, c.text, diff)
			}
			c.output = got
		}
	}
	if diff := diffLines(groupsByDevice(before), groupsByDevice(after)); diff != "" {
		t.Errorf("the host is not as it was (-before +after):\n%s", diff)
	}
	if *updateTutorial && !t.Failed() {
		if err := os.WriteFile("../../docs/tutorial.md", []byte(writeTutorial(pieces)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// tutorial runs on the machine of the prompt, with output as a reader sees it.
func (e *emulatedHost) tutorial(t *testing.T, c *tutorialCommand) (output string, status int) {
	t.Helper()
	switch {
	case c.prompt == "host#" && c.text == reboot:
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

var iommuGroup = regexp.MustCompile(`(?m)^(/sys/bus/pci/devices/\S+)/iommu_group (\S*iommu_groups/)(\d+)$`)

// groupsByDevice names IOMMU groups by their first device: a host that resumes from a template finds its adapters later
// than one that boots, and so numbers differ.
func groupsByDevice(fingerprint string) string {
	first := make(map[string]string)
	return iommuGroup.ReplaceAllStringFunc(fingerprint, func(line string) string {
		m := iommuGroup.FindStringSubmatch(line)
		if first[m[3]] == "" {
			first[m[3]] = m[1]
		}
		return m[1] + "/iommu_group " + m[2] + "of " + first[m[3]]
	})
}

func TestGroupsByDevice(t *testing.T) {
	t.Parallel()
	const a, b = "/sys/bus/pci/devices/0000:06:00.0", "/sys/bus/pci/devices/0000:06:00.1"
	one := a + "/iommu_group ../kernel/iommu_groups/16\n" + b + "/iommu_group ../kernel/iommu_groups/16\n"
	other := strings.ReplaceAll(one, "16", "20")
	apart := strings.Replace(one, "16\n", "17\n", 1)
	if got := groupsByDevice(one); got != groupsByDevice(other) || got == groupsByDevice(apart) || got == one {
		t.Errorf("got %s", got)
	}
}
