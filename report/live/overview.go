package live

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/report/show"
)

type state struct {
	labs    []labState
	studies []Study
	results []Result

	labsErr, studiesErr, resultsErr error
}

type labState struct {
	Lab
	flow    *flow // nil without a switch or with flowErr
	flowErr error
}

func (s *server) state(ctx context.Context) *state {
	st := &state{}
	var wg sync.WaitGroup
	// A page takes as long as the slowest of switches, database and files.
	wg.Go(func() {
		labs, _, err := s.labs.get(ctx)
		st.labsErr, st.labs = err, make([]labState, len(labs))
		s.forget(labs, err)
		var each sync.WaitGroup
		for i, l := range labs {
			each.Go(func() { st.labs[i] = s.labState(ctx, l) })
		}
		each.Wait()
	})
	wg.Go(func() {
		st.studies, _, st.studiesErr = s.studies.get(ctx)
		s.documents.keep(func(name string) bool {
			return st.studiesErr != nil || slices.ContainsFunc(st.studies, func(x Study) bool { return x.Name == name })
		})
	})
	wg.Go(func() { st.results, _, st.resultsErr = s.results.get(ctx) })
	wg.Wait()
	return st
}

func (s *server) labState(ctx context.Context, l Lab) labState {
	out := labState{Lab: l}
	if l.HasSwitch {
		out.flow, _, out.flowErr = s.flows.get(ctx, l.Name)
	}
	return out
}

// forget keeps readings if the labs could not be read.
func (s *server) forget(labs []Lab, err error) {
	if err != nil && len(labs) == 0 {
		return
	}
	s.past.keep(labs)
	has := func(name string) bool { return slices.ContainsFunc(labs, func(l Lab) bool { return l.Name == name }) }
	s.flows.keep(has)
	s.rdma.keep(has)
}

// An overviewView has only clean texts.
type overviewView struct {
	Summary, At, Version            string
	Emulated                        bool // any lab is emulated
	Mixed                           bool // and another is not
	Labs                            []labView
	Studies                         []studyView
	Results                         []resultView
	Older                           int  // results that are not listed
	StudiesTag, ResultsTag          bool // all of them are emulated, and rows are not marked
	LabsErr, StudiesErr, ResultsErr string
}

type labView struct {
	ID       int // number on the page
	Name     string
	Href     string
	About    string
	NoKVM    words.Message // reason for missing KVM
	Emulated bool
	Warnings []string
	Nodes    []nodeView
	Switch   bool
	Since    string // start of the switch
	Ports    []portView
	PortsErr string
	Impaired bool // any port is impaired
	Paths    []pathView

	labLine
}

// A labLine has a lab in one line.
type labLine struct {
	Running string // number of nodes
	Off     bool   // not all are running
	UpFor   string
	Traffic string // of all nodes; empty if not known
	Dropped string // frames
	Lost    bool
	Links   string // how many are down or impaired
	Past    *spark
}

func newLabLine(l labState, now time.Time) labLine {
	running := lists.Count(l.Nodes, func(n Node) bool { return n.State == "running" })
	v := labLine{Running: fmt.Sprintf("%d of %d", running, len(l.Nodes)), Off: running < len(l.Nodes),
		UpFor: words.Lasting(now.Sub(l.Created))}
	if l.flow == nil {
		return v
	}
	sent, known := 0.0, false
	dropped, down, impaired := uint64(0), 0, 0
	for _, p := range l.flow.Ports {
		if x := l.flow.rate(p.Name); x != nil && p.Peer == "" {
			sent, known = sent+x.rx, true
		}
		dropped += p.drops()
		switch {
		case !p.Connected:
			down++
		case p.Impaired != "":
			impaired++
		}
	}
	if known {
		v.Traffic = words.Rate(sent)
	}
	v.Dropped, v.Lost, v.Past = countText(dropped), dropped > 0, l.flow.whole().spark(l.flow.At)
	var links []string
	if down > 0 {
		links = append(links, fmt.Sprintf("%d down", down))
	}
	if impaired > 0 {
		links = append(links, fmt.Sprintf("%d impaired", impaired))
	}
	v.Links = cmp.Or(strings.Join(links, ", "), "all up")
	return v
}

type nodeView struct {
	Name, State, Class, Address, RDMA, GID, Memory, Since string
	CPUs                                                  int
	Errors                                                string // folded by the template
}

type portView struct {
	Name                               string
	Connected                          bool
	Link                               string
	RxRate, TxRate                     string
	RxBytes, TxBytes, RxFrames, Frames string
	Drops                              string
	Dropped                            bool
	Spark                              *spark
}

// A studyView is a row, and the head of a study's page.
type studyView struct {
	Study
	Href, State, Count, TimeLeft string
	Percent                      int
	Tag                          bool // marked as emulated
}

type resultView struct {
	Lab, When, Href, What, Checks string
	Emulated, Bad, Tag            bool // Tag: marked as emulated
	Error                         string
}

func (s *server) overview(w http.ResponseWriter, r *http.Request) {
	write(w, http.StatusOK, kindHTML, render("overview", s.newOverview(s.state(r.Context()))))
}

// newOverview shows the error of a part in its place.
func (s *server) newOverview(st *state) *overviewView {
	now := s.now()
	v := &overviewView{At: show.Time(now), Version: words.Printable(s.version), LabsErr: errorText(st.labsErr),
		StudiesErr: errorText(st.studiesErr), ResultsErr: errorText(st.resultsErr)}
	nodes, up, running := 0, 0, 0
	for i, l := range st.labs {
		for _, n := range l.Nodes {
			nodes++
			if n.State == "running" {
				up++
			}
		}
		v.Emulated = v.Emulated || l.Emulated
		v.Mixed = v.Mixed || l.Emulated != st.labs[0].Emulated
		v.Labs = append(v.Labs, newLabView(i+1, l, now))
	}
	for _, x := range slices.Backward(st.studies) { // latest first, like results
		if x.Running {
			running++
		}
		v.Studies = append(v.Studies, newStudyView(x))
	}
	v.Results = append(v.Results, lists.Map(st.results[:min(len(st.results), MaxResults)], newResultView)...)
	v.StudiesTag = tagRows(v.Studies, func(x *studyView) (bool, bool, *bool) {
		return x.Emulated, x.Error == "", &x.Tag
	})
	v.ResultsTag = tagResults(v.Results)
	// The list must not look complete.
	v.Older = max(0, len(st.results)-MaxResults)
	v.Summary = fmt.Sprintf("%s with %s, %d running; %s, %d running; %s.", words.Count(len(st.labs), "lab"),
		words.Count(nodes, "node"), up,
		words.Count(len(st.studies), "study"), running, words.Count(len(st.results), "stored result"))
	if nodes+len(st.labs)+len(st.studies)+len(st.results) == 0 && st.labsErr == nil && st.studiesErr == nil &&
		st.resultsErr == nil {
		v.Summary = "Nothing runs, and nothing is stored yet: below is how to begin."
	}
	return v
}

// tagRows marks emulated rows if others are of hardware. If all are emulated, it returns true, for the section.
func tagRows[T any](all []T, of func(*T) (emulated, known bool, tag *bool)) bool {
	some, others := false, false
	for i := range all {
		emulated, known, _ := of(&all[i])
		some, others = some || emulated, others || known && !emulated
	}
	for i := range all {
		emulated, _, tag := of(&all[i])
		*tag = emulated && others
	}
	return some && !others
}

func tagResults(all []resultView) bool {
	return tagRows(all, func(x *resultView) (bool, bool, *bool) { return x.Emulated, x.Error == "", &x.Tag })
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return words.Visible(err.Error())
}

// newLabView has faults above the tables, with the commands that fix them.
func newLabView(id int, l labState, now time.Time) labView {
	v := labView{ID: id, Name: words.Printable(l.Name), Href: "/labs/" + url.PathEscape(l.Name), Emulated: l.Emulated,
		Switch: l.HasSwitch, PortsErr: errorText(l.flowErr), labLine: newLabLine(l, now)}
	about := []string{"up for " + words.Lasting(now.Sub(l.Created))}
	if l.Driver != "" {
		about = append(about, "made by "+l.Driver)
	}
	if l.Accelerator != "" {
		about, v.NoKVM = append(about, "CPUs by "+l.Accelerator), words.Fold(l.Reason)
	}
	v.About = words.Printable(strings.Join(about, ", "))
	if !l.Ready {
		v.Warnings = append(v.Warnings, "Not ready: rackless up works on it, or was killed. rackless up with its lab "+
			"file goes on.")
	}
	for _, n := range l.Nodes {
		v.Nodes = append(v.Nodes, newNodeView(n, now))
		switch n.State {
		case "no-adapter":
			v.Warnings = append(v.Warnings, words.Printable(n.Name)+
				" has lost its ConnectX or a GPU, as the lab's daemon ended or the connection to it. rackless up with "+
				"its lab file starts it again.")
		case "dead":
			v.Warnings = append(v.Warnings, words.Printable(n.Name)+
				" is dead: its process is gone. rackless up with its lab file starts it again.")
		}
	}
	if l.flow == nil {
		return v
	}
	v.Since = show.Time(l.flow.Started)
	for _, p := range l.flow.Ports {
		v.Ports = append(v.Ports, newPortView(l.flow, p))
		v.Impaired = v.Impaired || p.Impaired != ""
	}
	for _, f := range l.flow.Flows[:min(len(l.flow.Flows), maxPaths)] {
		v.Paths = append(v.Paths, pathView{From: words.Printable(f.From), To: words.Printable(f.To),
			Flow: f.Text(), QP: f.QueuePair(), Via: words.Printable(f.Via), Frames: countText(f.Frames),
			Bytes: words.Bytes(f.Bytes)})
	}
	return v
}

// maxPaths limits the flows on a page, which has the busiest.
const maxPaths = 100

type pathView struct{ From, To, Flow, QP, Via, Frames, Bytes string }

func newNodeView(n Node, now time.Time) nodeView {
	v := nodeView{Name: words.Printable(n.Name), State: words.Printable(n.State), CPUs: n.CPUs, Errors: n.Error}
	switch n.State {
	case "running":
		v.Class = "ok"
	case "dead", "no-adapter", "unknown":
		v.Class = "off"
	}
	if n.Memory > 0 {
		v.Memory = show.Size(n.Memory)
	}
	if !n.Started.IsZero() {
		v.Since = words.Lasting(now.Sub(n.Started))
	}
	var addresses, devices, gids []string
	for _, c := range n.NICs {
		addresses = append(addresses, c.Address)
		if c.RDMA != "" {
			devices = append(devices, c.RDMA)
		}
		if c.GID != nil {
			gids = append(gids, strconv.Itoa(*c.GID))
		}
	}
	v.Address, v.RDMA, v.GID = words.Printable(strings.Join(addresses, ", ")),
		words.Printable(strings.Join(devices, ", ")), strings.Join(gids, ", ")
	return v
}

func newPortView(f *flow, p Port) portView {
	name := p.Name
	if p.Node != "" {
		name = p.Node + " " + p.NIC
	}
	v := portView{
		Name: words.Printable(name), Connected: p.Connected, Link: words.Printable(p.Impaired), Dropped: p.drops() > 0,
		Drops:   countText(p.drops()),
		RxBytes: words.Bytes(p.RxBytes), TxBytes: words.Bytes(p.TxBytes), RxFrames: countText(p.RxFrames),
		Frames: countText(p.TxFrames), Spark: f.spark(p.Name),
	}
	// A 0 before the second reading would look like an idle wire.
	if x := f.rate(p.Name); x != nil {
		v.RxRate, v.TxRate = words.Rate(x.rx), words.Rate(x.tx)
	}
	return v
}

// newStudyView keeps the original name in Href.
func newStudyView(x Study) studyView {
	v := studyView{Study: x, Href: "/studies/" + url.PathEscape(x.Name)}
	for _, s := range []*string{&v.Name, &v.Question, &v.Lab, &v.Cell, &v.Error} {
		*s = words.Printable(*s)
	}
	v.State = "stopped"
	switch {
	case x.Error != "":
		v.State = "cannot be read"
	case x.Running:
		v.State = "running"
	case x.Complete:
		v.State = "complete"
	}
	v.Count = words.Count(x.Done, "run")
	// A bar without a planned number would have no end.
	if x.Total > 0 {
		v.Percent = min(100, 100*x.Done/x.Total)
		v.Count = fmt.Sprintf("%d of %s", x.Done, words.Count(x.Total, "run"))
	}
	if x.Left > 0 && !x.Complete {
		v.TimeLeft = "about " + words.Lasting(x.Left)
	}
	return v
}

// newResultView without details has only lab and time.
func newResultView(x Result) resultView {
	v := resultView{
		Lab: words.Printable(x.Lab), When: words.Printable(x.Time), Href: "/results/" + url.PathEscape(x.Lab) + "/" +
			url.PathEscape(x.Time),
		Emulated: x.Emulated, Error: words.Printable(x.Error),
	}
	if !x.Generated.IsZero() {
		v.When = show.Time(x.Generated)
	}
	// A machine may hold thousands of results.
	if !x.Detailed || x.Error != "" {
		return v
	}
	v.What = words.Count(x.Figures, "figure")
	if len(x.Tests) > 0 {
		v.What += " of " + words.Printable(strings.Join(x.Tests, ", "))
	}
	if x.Failed > 0 {
		v.What += fmt.Sprintf("; %d failed", x.Failed)
	}
	count := map[finding.Status]int{}
	for _, f := range x.Findings {
		count[f.Status]++
	}
	// One that could not be read was not seen to be OK.
	v.Bad = x.Failed > 0 || len(x.Findings) != count[finding.OK]
	var checks []string
	for _, status := range lists.Keys(count) {
		checks = append(checks, fmt.Sprintf("%d %s", count[status], words.Printable(string(status))))
	}
	v.Checks = strings.Join(checks, ", ")
	return v
}

func countText(n uint64) string { return show.Grouped(strconv.FormatUint(n, 10)) }
