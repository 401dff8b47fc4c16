package studyview

import (
	"bytes"
	"strings"
	"testing"

	"github.com/rackless/rackless/study"
	"github.com/rackless/rackless/study/record"
	"github.com/rackless/rackless/study/stats"
)

// Only a study on few CPUs explains it, in every output.
func TestWhyFewCPUsGiveTheOpposite(t *testing.T) {
	t.Parallel()
	few := func() *study.Document {
		d := pinDocument(t)
		for i := range d.Result.Comparisons {
			if c := &d.Result.Comparisons[i]; c.Factor == "placement" && c.Test == "ib_write_lat" && c.Judged != nil {
				c.Judged.Verdict = stats.Worse
			}
		}
		d.Environment = []study.Fact{{Name: "host CPUs", Value: "0-1"}, {Name: "protected CPUs", Value: "1"},
			{Name: "host", Value: "no list of CPUs"}}
		return d
	}
	said := func(d *study.Document) (page, md, text bool) {
		for out, write := range map[*bool]func(*bytes.Buffer) error{
			&page: func(b *bytes.Buffer) error { return Page(b, d) },
			&md:   func(b *bytes.Buffer) error { return Markdown(b, d) },
			&text: func(b *bytes.Buffer) error { return Text(b, d, Options{Width: 2000}) },
		} {
			s := strings.ReplaceAll(string(written(t, write)), `\_`, "_")
			*out = strings.Contains(s, oppositeTitle)
			if *out && (!strings.Contains(s, "latency p99.9 of ib_write_lat went from") ||
				!strings.Contains(s, "and the switch would keep 3 busy, and pinned they share CPU 1, while")) {
				t.Errorf("got %s", s)
			}
		}
		return page, md, text
	}
	if page, md, text := said(few()); !page || !md || !text {
		t.Errorf("it is said in the page: %v, in Markdown: %v, in the terminal: %v", page, md, text)
	}
	for name, change := range map[string]func(*study.Document){
		"CPUs for all": func(d *study.Document) {
			d.Environment = []study.Fact{{Name: "host CPUs", Value: "0-5"}, {Name: "protected CPUs", Value: "3-5"}}
		},
		"CPUs that are not known":  func(d *study.Document) { d.Environment = d.Environment[:1] },
		"nodes that are not known": func(d *study.Document) { d.Lab.Nodes = []record.Node{{Name: "vm00"}} },
		"a lab that is not known":  func(d *study.Document) { d.Lab = nil },
		"pinning that helps": func(d *study.Document) {
			for i := range d.Result.Comparisons {
				if c := &d.Result.Comparisons[i]; c.Judged != nil {
					c.Judged.Verdict = stats.Better
				}
			}
		},
		"another factor": func(d *study.Document) {
			for i := range d.Result.Comparisons {
				d.Result.Comparisons[i].Factor = "link.loss"
			}
		},
		"a test of which nothing is published": func(d *study.Document) {
			for i := range d.Result.Comparisons {
				d.Result.Comparisons[i].Test = "sysbench"
			}
		},
	} {
		d := few()
		change(d)
		if page, md, text := said(d); page || md || text {
			t.Errorf("%s: it is said", name)
		}
	}
}

// Tables of failures and runs fold foreign messages.
func TestPagesFoldForeignMessages(t *testing.T) {
	t.Parallel()
	const assertion = "the node ended: qemu-system-x86_64: ../hw/core/cpu.c:12: reset: Assertion `0' failed"
	d := pinDocument(t)
	d.Data.Runs[13].Error = assertion
	for i := range d.Result.Failures {
		d.Result.Failures[i].Error = assertion
	}
	p := string(written(t, func(b *bytes.Buffer) error { return Page(b, d) }))
	if n, folded := strings.Count(p, "Assertion"), strings.Count(p, "the node ended<details>"); n < 2 || n != folded {
		t.Errorf("the message is there %d times, and folded up %d times", n, folded)
	}
}
