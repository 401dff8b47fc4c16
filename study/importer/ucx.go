package importer

import (
	"path"
	"regexp"
	"strings"

	"github.com/rackless/rackless/bench"
)

// ucxFormat is of ucx_perftest.
var ucxFormat = logFormat{name: UCX, head: ucxHead, read: one((*file).ucx), start: ucxStart, sides: ucxSides,
	gaveUp: regexp.MustCompile(`\bperftest\.c:\d+ +UCX +(?:ERROR|FATAL)\b`)}

var (
	ucxHead  = regexp.MustCompile(`(?m)^\| +(?:Stage|Test) +\| +# iterations +\|`)
	ucxStart = regexp.MustCompile(
		`(?m)^(?:.*\bucx_perftest\b.*-t .*|\+-+\+\n\| API: .*|` +
			`(?:\+[-+]+\+\n)?(?:\| +\| .*\n)?(?:\+[-+]+\+\n)?\| +(?:Stage|Test) +\| +# iterations .*)$`)
)

// ucxSides is perftestSides for ucx_perftest: its command line and the box of the server come above the table.
func ucxSides(a, _ []byte) bool { return !ucxHead.Match(a) }

// ucx finds out which test a log is of, and of which size.
func (f *file) ucx() (reading, error) {
	t, err := bench.ParseUCXLog(f.data, path.Base(f.rel))
	if err == nil && strings.HasPrefix(t.Name, "ucx_unnamed") && len(f.data) < f.size {
		err = f.fail(1, "which test this run of several is, neither the log nor its name says: tag_bw.log would")
	}
	if err != nil {
		t.Figures = nil
	}
	return reading{test: t.Name, tool: UCX, figures: t.Figures}, err
}
