package tables

import (
	"fmt"
	"time"

	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/study/document"
)

// Studies has one row a study.
func Studies(all []document.Entry) *show.Grid {
	g := show.NewGrid("study", "begun", "lab", "done>", "failed>", "disturbed>")
	for _, s := range all {
		g.Add(s.Name, s.Created.Local().Format(time.DateTime), s.Lab, fmt.Sprint(s.Done), fmt.Sprint(s.Failed),
			fmt.Sprint(s.Disturbed))
	}
	return g
}
