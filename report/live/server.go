package live

import (
	"bytes"
	"cmp"
	"context"
	_ "embed" // templates, style sheet, script, icon
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/report"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/report/studyview"
	"github.com/rackless/rackless/study"
	"github.com/rackless/rackless/study/record"
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

const assets = `<link rel="icon" href="/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/live.css">
<script src="/live.js" defer></script>
`

var templates = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("live.html").Funcs(template.FuncMap{
		"time": show.Time, "bytes": words.Bytes[uint64], "count": countText, "size": show.Size,
		"assets": func() template.HTML { return assets }, "fold": words.Fold,
	}).Parse(liveHTML))
})

// Options configure the pages.
type Options struct {
	Addr    string // listening address: "127.0.0.1:8080"
	Token   string // grants access to all pages
	Version string // version of rackless
	Now     func() time.Time
	Limit   time.Duration // longest wait of a page for a part; 0: 3 s
}

type server struct {
	src     Source
	version string
	now     func() time.Time

	labs      *reading[[]Lab]
	studies   *reading[[]Study]
	results   *reading[[]Result]
	host      *reading[Host]
	past      history
	flows     shelf[*flow]
	rdma      shelf[[]NodeRDMA]
	documents shelf[*study.Document]
}

// Pages read counters about every second. Other requests cost a node a little CPU time.
const (
	freshLabs    = 2 * time.Second
	freshFlow    = 900 * time.Millisecond
	freshStudies = 2 * time.Second
	freshResults = 5 * time.Second
	freshStudy   = 5 * time.Second  // an analysis takes a while
	freshRDMA    = 10 * time.Second // runs a program in every node
	freshHost    = time.Minute      // reads all of /sys
)

// Pages is the handler of all pages.
type Pages struct {
	http.Handler
	s *server
}

// New returns the handler of all pages. They have an hour of counters if [Pages.Sample] runs.
func New(src Source, o Options) *Pages {
	s := newPages(src, o)
	return &Pages{newGuard(o.Addr, o.Token, s.mux()), s}
}

func newPages(src Source, o Options) *server {
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Limit = cmp.Or(o.Limit, 3*time.Second)
	s := &server{src: src, version: o.Version, now: o.Now}
	s.labs = newReading(o, freshLabs, o.Limit, src.Labs)
	s.studies = newReading(o, freshStudies, o.Limit, src.Studies)
	s.results = newReading(o, freshResults, o.Limit, src.Results)
	s.host = newReading(o, freshHost, 10*o.Limit, src.Host)
	// A rate needs two readings, so the last flow is kept with the reading.
	s.flows.make = func(lab string) *reading[*flow] {
		var last *flow // safe: one read at a time
		return newReading(o, freshFlow, o.Limit, func(ctx context.Context) (*flow, error) {
			f, err := src.Fabric(ctx, lab)
			if err != nil {
				return nil, err
			}
			last = last.next(f)
			s.past.fabric(lab, f)
			return last, nil
		})
	}
	s.rdma.make = func(lab string) *reading[[]NodeRDMA] {
		return newReading(o, freshRDMA, 2*o.Limit, func(ctx context.Context) ([]NodeRDMA, error) {
			all, err := src.RDMA(ctx, lab)
			s.past.rdma(lab, o.Now(), all)
			return all, err
		})
	}
	s.documents.make = func(name string) *reading[*study.Document] {
		return newReading(o, freshStudy, 10*o.Limit, func(ctx context.Context) (*study.Document, error) {
			return src.Study(ctx, name)
		})
	}
	return s
}

// mux also serves style sheets and scripts, because the policy forbids other origins.
func (s *server) mux() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { notFound(w) })
	mux.HandleFunc("GET /{$}", s.overview)
	mux.HandleFunc("GET /labs/{name}", s.lab)
	mux.HandleFunc("GET /host", s.hostPage)
	mux.HandleFunc("GET /studies/{name}", s.study)
	mux.HandleFunc("GET /studies/{name}/state", s.studyState)
	mux.HandleFunc("GET /results/{lab}/{time}", s.result)
	mux.HandleFunc("GET /metrics", s.metrics)
	for path, file := range map[string]struct{ kind, text string }{
		"/show.css": {"text/css; charset=utf-8", show.Style}, "/live.css": {"text/css; charset=utf-8", liveCSS},
		"/live.js": {"text/javascript; charset=utf-8", liveJS}, "/icon.svg": {"image/svg+xml", iconSVG},
	} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			write(w, http.StatusOK, file.kind, []byte(file.text))
		})
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if p := recover(); p != nil {
				failed(w, http.StatusInternalServerError, "This page cannot be shown", "", fault(p))
			}
		}()
		mux.ServeHTTP(w, r)
	})
}

// write ignores errors: the client may have gone.
func write(w http.ResponseWriter, status int, kind string, body []byte) {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

const kindHTML = "text/html; charset=utf-8"

func render(name string, data any) []byte {
	var b bytes.Buffer
	if err := templates().ExecuteTemplate(&b, name, data); err != nil {
		panic(err) // a bug of this package
	}
	return b.Bytes()
}

type notice struct {
	Title, Text string
	Detail      string
	Nav         template.HTML
}

func writeNotice(w http.ResponseWriter, status int, n notice) {
	n.Title, n.Text = words.Printable(n.Title), words.Printable(n.Text)
	write(w, status, kindHTML, render("notice", n))
}

func failed(w http.ResponseWriter, status int, title, text string, err error) {
	writeNotice(w, status, notice{Title: title, Text: text, Detail: err.Error(), Nav: wayBack()})
}

func notFound(w http.ResponseWriter) {
	writeNotice(w, http.StatusNotFound, notice{Title: "There is no such page",
		Text: "The lab, study or result may be gone.", Nav: wayBack()})
}

func wayBack() template.HTML { return template.HTML(render("nav", progressView{})) }

type progressView struct {
	Study  *studyView // nil on other pages
	Source string     // address for updates
	New    int        // finished since the page was made
	Err    string
}

// pick responds with an error and returns nil if the element is missing, perhaps because of err.
func pick[T any](w http.ResponseWriter, what string, all []T, err error, is func(*T) bool) *T {
	for i := range all {
		if is(&all[i]) {
			return &all[i]
		}
	}
	if err != nil {
		failed(w, http.StatusServiceUnavailable, what+" cannot be read", "", err)
	} else {
		notFound(w)
	}
	return nil
}

func named(r *http.Request) func(*Study) bool {
	return func(s *Study) bool { return s.Name == r.PathValue("name") }
}

// progress takes the number of ended runs of the page as since.
func (s *server) progress(st *Study, since int) progressView {
	v := newStudyView(*st)
	return progressView{Study: &v, Source: v.Href + "/state?since=" + strconv.Itoa(since),
		New: max(0, st.ended()-since)}
}

// study shows progress alone if there is nothing else.
func (s *server) study(w http.ResponseWriter, r *http.Request) {
	all, _, err := s.studies.get(r.Context())
	st := pick(w, "Studies", all, err, named(r))
	if st == nil {
		return
	}
	var page bytes.Buffer
	doc, _, err := s.documents.get(r.Context(), st.Name)
	since := st.ended()
	if err == nil {
		since = len(doc.Data.Runs) // runs on the page
		err = studyview.Page(&page, doc)
	}
	nav := render("nav", s.progress(st, since))
	// The page turns into the study's by itself after the first run.
	if err != nil {
		n := notice{Title: "Study " + st.Name, Text: "What it shows cannot be said now.", Detail: err.Error(),
			Nav: template.HTML(nav)}
		if st.ended() == 0 {
			n.Text = "No run has ended yet."
		}
		writeNotice(w, http.StatusOK, n)
		return
	}
	writeFramed(w, page.Bytes(), nav, nil)
}

func writeFramed(w http.ResponseWriter, page, nav, end []byte) {
	out, csp, err := framed(page, nav, end)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Security-Policy", csp)
	write(w, http.StatusOK, kindHTML, out)
}

func (s *server) studyState(w http.ResponseWriter, r *http.Request) {
	since, err := strconv.Atoi(r.URL.Query().Get("since"))
	if err != nil {
		notFound(w)
		return
	}
	all, _, err := s.studies.get(r.Context())
	v := progressView{Source: fmt.Sprintf("/studies/%s/state?since=%d", url.PathEscape(r.PathValue("name")), since)}
	if err != nil && !slices.ContainsFunc(all, func(x Study) bool { return named(r)(&x) }) {
		v.Err = words.Printable(err.Error())
	} else if st := pick(w, "Studies", all, err, named(r)); st != nil {
		v = s.progress(st, since)
	} else {
		return
	}
	write(w, http.StatusOK, kindHTML, render("nav", v))
}

// result is not cached: the page does not reload itself.
func (s *server) result(w http.ResponseWriter, r *http.Request) {
	all, _, err := s.results.get(r.Context())
	found := pick(w, "Results", all, err, func(x *Result) bool {
		return x.Lab == r.PathValue("lab") && x.Time == r.PathValue("time")
	})
	if found == nil {
		return
	}
	var page bytes.Buffer
	read := func(ctx context.Context) (record.Record, error) { return s.src.Result(ctx, *found) }
	// This provides the limit and the guard against panics.
	once := &reading[record.Record]{limit: 10 * time.Second, now: s.now, read: read}
	data, _, err := once.get(r.Context())
	if err == nil {
		err = report.Page(&page, data)
	}
	if err != nil {
		title := fmt.Sprintf("Result %s of lab %s", found.Time, found.Lab)
		failed(w, http.StatusInternalServerError, title, "It cannot be read.", err)
		return
	}
	writeFramed(w, page.Bytes(), []byte(wayBack()), nil)
}
