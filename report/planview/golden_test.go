package planview

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/rackless/rackless/internal/golden"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/plan/advise"
	"github.com/rackless/rackless/plan/rivals"
)

type exampleCase struct {
	name, host, lab string
	change          func(l *lab.Lab)
}

var exampleCases = []exampleCase{
	{"epyc-pair", "epyc-7551p.ttar", "epyc-pair.yaml", nil},
	// The H20 matrix has no memory sizes.
	{"h20-four", "h20.txt", "h20-four.yaml", func(l *lab.Lab) {
		for i := range l.Nodes {
			l.Nodes[i].AutoMemory, l.Nodes[i].Memory = false, 64*lab.GiB
		}
	}},
}

func TestEveryOutputOfTheExamplesIsAsItWas(t *testing.T) {
	t.Parallel()
	for _, c := range exampleCases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e := example(t, c.host, c.lab, c.change)
			golden.Check(t, "testdata/"+c.name+".svg", written(t, func(b *bytes.Buffer) error {
				return SVG(b, e.plan, e.host)
			}))
			golden.Check(t, "testdata/"+c.name+".html", written(t, func(b *bytes.Buffer) error {
				return HTML(b, e.plan, e.host)
			}))
			for _, width := range []int{100, 60} {
				o := Options{Width: width}
				file := func(kind string) string { return fmt.Sprintf("testdata/%s.%s.%d.txt", c.name, kind, width) }
				golden.Check(t, file("table"), written(t, func(b *bytes.Buffer) error {
					return Table(b, e.plan, o)
				}))
				golden.Check(t, file("explain"), written(t, func(b *bytes.Buffer) error {
					return Explain(b, e.plan, o)
				}))
				golden.Check(t, file("compare"), written(t, func(b *bytes.Buffer) error {
					return Compare(b, e.plan, rivals.Compare(e.problem), o)
				}))
			}
		})
	}
}

func TestAgainstShowsBothCostsAndTheDifferences(t *testing.T) {
	t.Parallel()
	before := example(t, "epyc-7551p.ttar", "epyc-pair.yaml", nil)
	after := example(t, "epyc-7551p.ttar", "epyc-pair.yaml", func(l *lab.Lab) { l.Nodes[0].CPUs = 14 })
	for _, width := range []int{100, 60} {
		file := fmt.Sprintf("testdata/epyc-pair.against.%d.txt", width)
		golden.Check(t, file, written(t, func(b *bytes.Buffer) error {
			return Against(b, before.plan, after.plan, advise.Differences(before.plan, after.plan),
				Options{Width: width})
		}))
	}
}
