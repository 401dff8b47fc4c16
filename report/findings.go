package report

import (
	"encoding/xml"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/rackless/rackless/bench/expect"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/study/appraise"
)

// JUnit's format: a suite for each kind of subject and a case for each finding. Failed findings become failures,
// unknown ones errors.
type (
	junitSuites struct {
		XMLName xml.Name `xml:"testsuites"`
		Name    string   `xml:"name,attr"`
		junitCounts
		Suites []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name string `xml:"name,attr"`
		junitCounts
		Cases []junitCase `xml:"testcase"`
	}
	junitCounts struct {
		Tests    int `xml:"tests,attr"`
		Failures int `xml:"failures,attr"`
		Errors   int `xml:"errors,attr"`
	}
	junitCase struct {
		Class   string       `xml:"classname,attr"`
		Name    string       `xml:"name,attr"`
		Seconds string       `xml:"time,attr,omitempty"`
		Failure *junitReason `xml:"failure"`
		Error   *junitReason `xml:"error"`
		Out     string       `xml:"system-out,omitempty"`
	}
	junitReason struct {
		Message string `xml:"message,attr"`
		Type    string `xml:"type,attr"`
		Text    string `xml:",chardata"`
	}
)

// JUnit writes findings as a JUnit report. Characters that XML cannot hold are replaced.
func JUnit(w io.Writer, all []finding.Finding) error {
	// A check that could not read its input says nothing about the lab, so a CI job may be rerun for errors alone.
	report := junitSuites{Name: "rackless verify"}
	// A fault of the host shows up in the nodes too.
	for _, name := range []string{"host", "virtual machines", "nodes"} {
		suite := junitSuite{Name: name}
		for _, f := range all {
			if suiteOf(f) == name {
				suite.add(f)
			}
		}
		if suite.Tests == 0 {
			continue
		}
		report.Tests += suite.Tests
		report.Failures += suite.Failures
		report.Errors += suite.Errors
		report.Suites = append(report.Suites, suite)
	}
	return report.write(w)
}

func (r junitSuites) write(w io.Writer) error {
	b, err := xml.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s%s\n", xml.Header, b)
	return err
}

// A Step is a step of a run, for JUnitSteps.
type Step struct {
	Name  string
	Took  time.Duration
	Error string // empty if it passed
}

// JUnitSteps writes the steps of a run as a JUnit report with one suite.
func JUnitSteps(w io.Writer, suite string, steps []Step) error {
	s := junitSuite{Name: suite}
	for _, step := range steps {
		c := junitCase{Class: suite, Name: step.Name, Seconds: fmt.Sprintf("%.3f", step.Took.Seconds())}
		s.Tests++
		if step.Error != "" {
			s.Failures++
			c.Failure = &junitReason{Message: step.Error, Type: "failed"}
		}
		s.Cases = append(s.Cases, c)
	}
	return junitSuites{Name: "rackless run", junitCounts: s.junitCounts, Suites: []junitSuite{s}}.write(w)
}

func suiteOf(f finding.Finding) string {
	switch finding.GroupOf(f.ID) {
	case finding.Host:
		return "host"
	case finding.Domain:
		return "virtual machines"
	}
	return "nodes"
}

// add takes the found state as message, because servers show it first.
func (s *junitSuite) add(f finding.Finding) {
	c := junitCase{Class: f.Code + "." + f.ID, Name: f.Subject + ": " + f.Title}
	reason := &junitReason{Message: f.Have, Type: f.Code,
		Text: fmt.Sprintf("want: %s\nread: %s\nfix: %s\nmore: rackless explain %s\n", f.Want, f.Evidence, f.Fix,
			f.Code)}
	s.Tests++
	switch f.Status {
	case finding.OK:
		c.Out = f.Have
	case finding.Failed:
		s.Failures++
		c.Failure = reason
	default:
		s.Errors++
		c.Error = reason
	}
	s.Cases = append(s.Cases, c)
}

// FoldedFindings is like Findings if lines fit into width columns; 0 is no limit. Otherwise a node's checks that are OK
// become one line, so that the others are not lost among lines that wrap.
func FoldedFindings(all []finding.Finding, color bool, width int) (said string, folded bool) {
	for line := range strings.Lines(Findings(all, false)) {
		line = strings.TrimSuffix(line, "\n")
		folded = folded || width > 0 && strings.HasPrefix(line, "ok ") && text.StringWidth(line) > width
	}
	if !folded {
		return Findings(all, color), false
	}
	var rest, sums []finding.Finding
	var counts []int
	at := map[string]int{}
	for _, f := range all {
		if f.Status != finding.OK {
			rest = append(rest, f)
			continue
		}
		node, _, _ := strings.Cut(f.Subject, " ")
		if node == "lab" || node == "NUMA" {
			node = f.Subject
		}
		i, known := at[node]
		if !known {
			i = len(sums)
			at[node] = i
			sums = append(sums, finding.Finding{Subject: node, Status: finding.OK})
			counts = append(counts, 0)
		}
		counts[i]++
	}
	for i := range sums {
		sums[i].Title = words.Count(counts[i], "check")
	}
	return Findings(sums, color) + Findings(rest, color), true
}

// Findings returns one line for each finding, followed by the wanted state and the fix if it is not OK.
func Findings(all []finding.Finding, color bool) string {
	var w strings.Builder
	t := &show.Terminal{Color: color}
	status := map[finding.Status]string{finding.OK: t.Colored("ok     ", text.FgGreen),
		finding.Failed: t.Colored("FAILED ", text.FgRed), finding.Unknown: t.Colored("unknown", text.FgYellow)}
	all = show.Clean(all, words.Visible)
	// Plain columns let grep find a finding as a whole line.
	subject, title := 0, 0
	for _, f := range all {
		subject, title = max(subject, len(f.Subject)), max(title, len(f.Title))
	}
	for _, f := range all {
		line := fmt.Sprintf("%s %-*s  %-*s  %s", status[f.Status], subject, f.Subject, title, f.Title, f.Have)
		fmt.Fprintln(&w, strings.TrimRight(line, " "))
		if f.Status == finding.OK {
			continue
		}
		for _, line := range []struct{ what, said string }{{"want", f.Want}, {"read", f.Evidence}, {"fix", f.Fix},
			{"more", "rackless explain " + f.Code}} {
			if line.said != "" {
				fmt.Fprintf(&w, "        %-4s  %s\n", line.what, line.said)
			}
		}
	}
	return w.String()
}

// Appraisal returns a table of figures compared with a machine, and remarks.
func Appraisal(r *appraise.Result) string {
	g := show.NewGrid("test", "bytes>", "measured>", "unit", "verdict")
	for _, f := range r.Figures {
		size := ""
		if f.Bytes > 0 {
			size = show.Size(f.Bytes)
		}
		g.Add(words.Printable(f.Test), size, show.Figure(f.Value), f.Unit, f.Verdict)
	}
	var b strings.Builder
	fmt.Fprint(&b, g)
	line := func(format string, args ...any) { fmt.Fprintln(&b, words.Printable(fmt.Sprintf(format, args...))) }
	for _, f := range r.Figures {
		line("")
		line("%s, %s: %s", f.Test, f.Verdict, f.Text)
		for _, cause := range f.Causes {
			line("  %s: %s", causeTitle(cause), cause.Evidence)
			line("    fix: %s", cause.Fix)
		}
		for _, x := range f.Remarks {
			line("  the log: %s: %s", x.What, x.Evidence)
			if x.Fix != "" {
				line("    fix: %s", x.Fix)
			}
		}
		for _, x := range f.Findings {
			line("  %s %s, %s: %s", x.ID, x.Severity, x.Subject, x.Title)
			line("    fix: %s", x.Fix)
		}
	}
	for _, why := range r.Failed {
		line("failed: %s", why)
	}
	return b.String()
}

// Deviations returns one row for each figure of the baseline, including missing ones.
func Deviations(all []expect.Deviation) *show.Grid {
	g := show.NewGrid("", "test", "pair", "metric", "bytes>", "baseline>", "measured>", "unit", "change>", "why")
	for _, x := range all {
		measured, change := "", ""
		if x.Measured != nil {
			measured, change = strconv.FormatFloat(*x.Measured, 'g', 4, 64), fmt.Sprintf("%+.1f%%", 100*x.Change)
		}
		bytes := ""
		if x.Bytes > 0 {
			bytes = strconv.FormatInt(x.Bytes, 10)
		}
		verdict := "BAD"
		if x.OK {
			verdict = "ok"
		}
		g.Add(verdict, x.Test, between(x.Client, x.Server), x.Metric, bytes,
			strconv.FormatFloat(x.Value, 'g', 4, 64), measured, x.Unit, change, x.Reason)
	}
	return g
}
