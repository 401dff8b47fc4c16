package tables

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/rack/adopt"
	"github.com/rackless/rackless/report/hostview"
	"github.com/rackless/rackless/report/show"
)

// WriteVerdicts prints verdicts, or their diffs alone.
func WriteVerdicts(w io.Writer, verdicts []*adopt.Verdict, diff bool, o hostview.TableOptions) error {
	var b bytes.Buffer
	for i, v := range verdicts {
		if diff {
			b.WriteString(v.Diff)
			continue
		}
		if i > 0 {
			b.WriteByte('\n')
		}
		title := v.Machine
		if v.Host != adopt.NoHost {
			title += " on " + v.Host
		}
		if err := hostview.WriteFindings(&b, title, v.Findings, o); err != nil {
			return err
		}
		for _, why := range v.Unread {
			fmt.Fprintf(&b, "\n%s\n", show.Fold("Not understood: "+words.Printable(why), o.Width))
		}
		if v.Diff != "" {
			fmt.Fprintf(&b, "\nThis fixes %s:\n\n%s", strings.Join(v.Fixed, ", "), v.Diff)
		}
		if v.NotFixed != "" {
			fmt.Fprintf(&b, "\n%s\n", show.Fold("Could not fix "+strings.Join(v.Left(), ", ")+": "+v.NotFixed, o.Width))
		}
	}
	_, err := w.Write(b.Bytes())
	return err
}
