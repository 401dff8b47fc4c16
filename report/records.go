package report

import (
	"bufio"
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rackless/rackless/report/show"
)

// CSV writes one line for each sample, for other programs: failed measurements too, so that none is
// lost. The text is as it was recorded.
func CSV(w io.Writer, d Data) error {
	number := func(v float64) string {
		if v == 0 {
			return ""
		}
		return show.Exact(v)
	}
	whole := func(v int64) string {
		if v == 0 {
			return ""
		}
		return strconv.FormatInt(v, 10)
	}
	records := [][]string{{"run", "started", "seconds", "attempt", "client", "server", "test", "metric", "bytes",
		"value", "unit", "limit", "derived", "iterations", "tool", "version", "placement", "accelerator", "emulated",
		"command", "server_command", "error"}}
	for _, s := range d.Samples {
		value := ""
		if s.Error == "" {
			value = show.Exact(s.Value)
		}
		records = append(records, []string{s.Run, s.Started.UTC().Format(time.RFC3339Nano), number(s.Seconds),
			whole(int64(s.Attempt)), s.Client, s.Server, s.Test, s.Metric, whole(s.Bytes), value, s.Unit,
			number(s.Limit),
			strconv.FormatBool(s.Derived), whole(s.Iterations), s.Tool, s.Version, s.Placement, s.Accelerator,
			strconv.FormatBool(s.Emulated), s.Command, s.ServerCommand, s.Error})
	}
	out := csv.NewWriter(w)
	if err := out.WriteAll(records); err != nil {
		return fmt.Errorf("write the report of lab %q as CSV: %w", d.Lab, err)
	}
	return nil
}

// Markdown writes the report for a page of a repository: what the page says in words, and its tables.
func Markdown(w io.Writer, d Data) error {
	p := newPage(d)
	out := bufio.NewWriter(w)
	title := func(text string) { fmt.Fprintf(out, "\n## %s\n\n", text) }
	table := func(rows [][]string) {
		for _, r := range rows {
			fmt.Fprintf(out, "| %s |\n", strings.Join(r, " | "))
		}
	}
	md := show.Markdown
	fmt.Fprintf(out, "# %s\n\n", md(p.Heading))
	if p.Banner != "" {
		fmt.Fprintf(out, "> %s\n\n", md(p.Banner))
	}
	fmt.Fprintf(out, "%s %s.\n", md(p.Summary), md(p.FindingsText))
	if len(p.Judged) > 0 || p.NoExpectation != "" {
		title("Against what the way carries")
		if p.NoExpectation != "" {
			fmt.Fprintln(out, md(p.NoExpectation))
		}
		for _, j := range p.Judged {
			fmt.Fprintf(out, "- %s: %s. %s.\n", md(j.Name), md(j.Figure), md(j.Text))
			for _, c := range j.Causes {
				fmt.Fprintf(out, "  - **%s**: %s. What to do: %s.\n", md(c.Title), md(c.Evidence), md(c.Fix))
			}
		}
	}
	for _, t := range p.Tables {
		title(md(t.Test))
		fmt.Fprintf(out, "%s\n\n", md(t.Caption))
		head, rule := []string{"client to server", "size"}, []string{"---", "---:"}
		for _, c := range t.Columns {
			head, rule = append(head, md(c.Title)), append(rule, "---:")
		}
		rows := [][]string{head, rule}
		for _, r := range t.Rows {
			row := []string{md(r.pair.String()), r.Size}
			for _, c := range r.Cells {
				text := c.Text
				if c.Repeats != "" {
					text += " (" + c.Repeats + ")"
				}
				row = append(row, md(text))
			}
			rows = append(rows, row)
		}
		table(rows)
	}
	if len(p.Failures) > 0 {
		title("Failed measurements")
		for _, f := range p.Failures {
			fmt.Fprintf(out, "- %s: %s\n", md(f.What), md(f.Reason))
		}
	}
	if len(p.Faults) > 0 {
		title("Checks that are not ok")
		for _, f := range p.Faults {
			fmt.Fprintf(out, "- %s: %s, %s: have %s, want %s. %s\n", md(string(f.Status)), md(f.Title), md(f.Subject),
				md(orDash(f.Have)), md(orDash(f.Want)), md(f.Fix))
		}
	}
	if len(p.Environment) > 0 {
		title("Environment")
		rows := [][]string{{"", ""}, {"---", "---"}}
		for _, e := range p.Environment {
			rows = append(rows, []string{md(e.Key), md(e.Value)})
		}
		table(rows)
	}
	if len(p.Commands) > 0 {
		title("Command lines")
		for _, c := range p.Commands {
			lines := slices.DeleteFunc([]string{c.ServerCommand, c.Command}, func(s string) bool { return s == "" })
			fmt.Fprintf(out, "%s, the server's first:\n\n%s\n\n", md(c.What), show.Fenced(strings.Join(lines, "\n")))
		}
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write the report of lab %q as Markdown: %w", d.Lab, err)
	}
	return nil
}
