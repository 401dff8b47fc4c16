package live

import (
	"bytes"
	"context"
	_ "embed" // for templates, style sheet, script and icon
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/rackless/rackless/report"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/report/studyview"
)

var (
	//go:embed live.html
	liveHTML string
	//go:embed live.css
	liveCSS string
	//go:embed live.js
	liveJS string
	//go:embed icon.svg
	iconSVG string
)

// assets is what every page has in its head.
const assets = `<link rel="icon" href="/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/live.css">
<script src="/live.js" defer></script>
`

// templates escape every field by the place where it stands.
var templates = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("live.html").Funcs(template.FuncMap{
		"time": show.Time, "bytes": bytesText, "count": countText, "size": show.Size,
		"assets": func() template.HTML { return assets },
	}).Parse(liveHTML))
})

// Options of a server.
type Options struct {
	Addr    string // that is listened at: "127.0.0.1:8080"
	Token   string // whoever has it sees everything
	Version string // of rackless
	Now     func() time.Time
	Limit   time.Duration // how long a page waits for a part of the source; 0: 3 s
}

// A server answers requests.
type server struct {
	src     Source
	version string
	now     func() time.Time

	labs      *reading[[]Lab]
	studies   *reading[[]Study]
	results   *reading[[]Result]
	flows     shelf[*flow]
	rdma      shelf[[]NodeRDMA]
	documents shelf[*studyview.Document]
}

// How long what was read serves. Counters are looked at about every second; the rest is asked for
// less often, since each question to a node costs it a little.
const (
	freshLabs    = 2 * time.Second
	freshFlow    = 900 * time.Millisecond
	freshStudies = 2 * time.Second
	freshResults = 5 * time.Second
	freshStudy   = 5 * time.Second  // an analysis takes a while
	freshRDMA    = 10 * time.Second // a program is run in every node
)

// New returns the handler of all pages.
func New(src Source, o Options) http.Handler {
	return newGuard(o.Addr, o.Token, newPages(src, o).mux())
}

// newPages returns the server behind the guard.
func newPages(src Source, o Options) *server {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Limit == 0 {
		o.Limit = 3 * time.Second
	}
	s := &server{src: src, version: o.Version, now: o.Now}
	s.labs = &reading[[]Lab]{read: src.Labs, fresh: freshLabs, limit: o.Limit, now: o.Now}
	s.studies = &reading[[]Study]{read: src.Studies, fresh: freshStudies, limit: o.Limit, now: o.Now}
	s.results = &reading[[]Result]{read: src.Results, fresh: freshResults, limit: o.Limit, now: o.Now}
	s.flows.make = func(lab string) *reading[*flow] {
		var last *flow // one read at a time uses it
		return &reading[*flow]{fresh: freshFlow, limit: o.Limit, now: o.Now, read: func(ctx context.Context) (*flow,
			error) {
			f, err := src.Fabric(ctx, lab)
			if err != nil {
				return nil, err
			}
			last = last.next(f)
			return last, nil
		}}
	}
	s.rdma.make = func(lab string) *reading[[]NodeRDMA] {
		return &reading[[]NodeRDMA]{fresh: freshRDMA, limit: 2 * o.Limit, now: o.Now,
			read: func(ctx context.Context) ([]NodeRDMA, error) {
				return src.RDMA(ctx, lab)
			}}
	}
	s.documents.make = func(name string) *reading[*studyview.Document] {
		return &reading[*studyview.Document]{fresh: freshStudy, limit: 10 * o.Limit, now: o.Now,
			read: func(ctx context.Context) (*studyview.Document, error) {
				return src.Study(ctx, name)
			}}
	}
	return s
}

func (s *server) mux() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { notFound(w) })
	mux.HandleFunc("GET /{$}", s.overview)
	mux.HandleFunc("GET /studies/{name}", s.study)
	mux.HandleFunc("GET /studies/{name}/state", s.studyState)
	mux.HandleFunc("GET /results/{lab}/{time}", s.result)
	mux.HandleFunc("GET /metrics", s.metrics)
	for path, file := range map[string]struct{ kind, text string }{
		"/show.css": {"text/css; charset=utf-8", show.Style}, "/live.css": {"text/css; charset=utf-8", liveCSS},
		"/live.js": {"text/javascript; charset=utf-8", liveJS}, "/icon.svg": {"image/svg+xml", iconSVG},
	} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			write(w, file.kind, []byte(file.text))
		})
	}
	return mux
}

// write sends a whole answer. That the reader has gone away is his business.
func write(w http.ResponseWriter, kind string, body []byte) {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body)
}

const kindHTML = "text/html; charset=utf-8"

// writePage sends what a template makes, or says that it failed: nothing is sent before it is whole.
func writePage(w http.ResponseWriter, name string, data any) {
	var b bytes.Buffer
	if err := templates().ExecuteTemplate(&b, name, data); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	write(w, kindHTML, b.Bytes())
}

// A notice is a page that says one thing.
type notice struct {
	Title, Text string
	Detail      string // an error, as it came
	Nav         template.HTML
}

func writeNotice(w http.ResponseWriter, status int, n notice) {
	n.Title, n.Text, n.Detail = show.Printable(n.Title), show.Printable(n.Text), show.Visible(n.Detail)
	var b bytes.Buffer
	if err := templates().ExecuteTemplate(&b, "notice", n); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", kindHTML)
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes())
}

func notFound(w http.ResponseWriter) {
	writeNotice(w, http.StatusNotFound, notice{Title: "There is no such page",
		Text: "The study or result may have been removed since.", Nav: wayBack()})
}

func wayBack() template.HTML {
	var b bytes.Buffer
	if err := templates().ExecuteTemplate(&b, "nav", progressView{}); err != nil {
		panic(err) // it has no field that could be wrong
	}
	return template.HTML(b.String())
}

// A progressView is the head of a study's page.
type progressView struct {
	Study  *studyView // nil: on pages of something else
	Source string     // where it is had anew
	New    int        // runs since the page was made
	Err    string
}

// find returns the study of a name, as the list has it.
func (s *server) find(r *http.Request) (*Study, error) {
	all, _, err := s.studies.get(r.Context())
	for i := range all {
		if all[i].Name == r.PathValue("name") {
			return &all[i], nil
		}
	}
	return nil, err
}

// progress is the head of a study's page that was made when so many runs had ended.
func (s *server) progress(st *Study, since int) progressView {
	v := newStudyView(*st)
	return progressView{Study: &v, Source: v.Href + "/state?since=" + strconv.Itoa(since),
		New: max(0, st.ended()-since)}
}

func (s *server) study(w http.ResponseWriter, r *http.Request) {
	st, err := s.find(r)
	switch {
	case err != nil:
		writeNotice(w, http.StatusServiceUnavailable, notice{Title: "Studies cannot be read", Detail: err.Error(),
			Nav: wayBack()})
		return
	case st == nil:
		notFound(w)
		return
	}
	var nav, page bytes.Buffer
	doc, _, err := s.documents.get(r.Context(), st.Name)
	since := st.ended()
	if err == nil {
		since = len(doc.Data.Runs) // those that the page shows, and not those that ended while it was made
	}
	if err := templates().ExecuteTemplate(&nav, "nav", s.progress(st, since)); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if err == nil {
		err = studyview.Page(&page, doc)
	}
	if err != nil {
		n := notice{Title: "Study " + st.Name, Text: "What it shows cannot be said now.", Detail: err.Error(),
			Nav: template.HTML(nav.String())}
		if st.ended() == 0 {
			n.Text = "No run has ended yet."
		}
		writeNotice(w, http.StatusOK, n)
		return
	}
	writeFramed(w, page.Bytes(), nav.Bytes())
}

func writeFramed(w http.ResponseWriter, page, nav []byte) {
	out, csp, err := framed(page, nav)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Security-Policy", csp)
	write(w, kindHTML, out)
}

// studyState is the head of a study's page alone, for the script.
func (s *server) studyState(w http.ResponseWriter, r *http.Request) {
	since, err := strconv.Atoi(r.URL.Query().Get("since"))
	if err != nil {
		notFound(w)
		return
	}
	st, err := s.find(r)
	switch {
	case err != nil:
		writePage(w, "nav", progressView{Source: "/studies/" + url.PathEscape(r.PathValue("name")) + "/state?since=" +
			strconv.Itoa(since), Err: show.Printable(err.Error())})
	case st == nil:
		notFound(w)
	default:
		writePage(w, "nav", s.progress(st, since))
	}
}

func (s *server) result(w http.ResponseWriter, r *http.Request) {
	all, _, err := s.results.get(r.Context())
	at := slices.IndexFunc(all, func(x Result) bool {
		return x.Lab == r.PathValue("lab") && x.Time == r.PathValue("time")
	})
	switch {
	case at >= 0:
	case err != nil:
		writeNotice(w, http.StatusServiceUnavailable, notice{Title: "Results cannot be read", Detail: err.Error(),
			Nav: wayBack()})
		return
	default:
		notFound(w)
		return
	}
	var page bytes.Buffer
	once := &reading[report.Data]{limit: 10 * time.Second, now: s.now, read: func(ctx context.Context) (report.Data,
		error) {
		return s.src.Result(ctx, all[at])
	}}
	data, _, err := once.get(r.Context())
	if err == nil {
		err = report.Page(&page, data)
	}
	if err != nil {
		writeNotice(w, http.StatusInternalServerError, notice{Title: fmt.Sprintf("Result %s of lab %s", all[at].Time,
			all[at].Lab), Text: "It cannot be read.", Detail: err.Error(), Nav: wayBack()})
		return
	}
	writeFramed(w, page.Bytes(), []byte(wayBack()))
}
