package live

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"html"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lists"
)

// A guard stands before all pages. Whoever is on this machine can connect to them, and so can every
// web page that the user's browser shows: it lets pass who has the token.
type guard struct {
	token  string
	hosts  []string // values of the header Host
	cookie string   // name
	next   http.Handler
	room   chan struct{} // a place for each request that is answered at the same time
}

// maxRequests at the same time are far more than a few pages and a Prometheus make.
const maxRequests = 64

// newGuard makes a guard for what listens at addr.
func newGuard(addr, token string, next http.Handler) *guard {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		host, port = addr, "80"
	}
	g := &guard{token: token, next: next, room: make(chan struct{}, maxRequests)}
	for _, h := range []string{host, "127.0.0.1", "::1", "localhost"} {
		g.hosts = append(g.hosts, net.JoinHostPort(h, port))
	}
	// A browser sends cookies to all ports of a host: the name keeps those of several apart.
	g.cookie = "rackless-" + port
	return g
}

// ServeHTTP lets a request pass if it is for this server by one of its names, only reads, and has the token.
func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy())
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	// The name of a foreign web site can be made to lead to this machine after its page was loaded
	// (DNS rebinding). Its requests have its name in them.
	if !slices.Contains(g.hosts, strings.ToLower(r.Host)) {
		writeNotice(w, http.StatusForbidden, notice{Title: "Not under this name", Text: "These pages are served as " +
			g.hosts[0] + " alone. Through a tunnel, use the same port on both ends."})
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		writeNotice(w, http.StatusMethodNotAllowed, notice{Title: "Only for reading",
			Text: "Nothing can be changed here."})
		return
	}
	switch query := r.URL.Query(); {
	case query.Has("token"):
		if !same(query.Get("token"), g.token) {
			g.refuse(w)
			return
		}
		http.SetCookie(w, &http.Cookie{Name: g.cookie, Value: g.pass(), Path: "/", HttpOnly: true,
			SameSite: http.SameSiteStrictMode})
		// The token is not to stay in the address, which is in the history and on screenshots. Two
		// slashes would lead to another host.
		h.Set("Location", "/"+strings.TrimLeft(r.URL.EscapedPath(), "/"))
		w.WriteHeader(http.StatusSeeOther)
		return
	case !g.knows(r):
		g.refuse(w)
		return
	}
	select {
	case g.room <- struct{}{}:
		defer func() { <-g.room }()
		g.next.ServeHTTP(w, r)
	default:
		h.Set("Retry-After", "1")
		writeNotice(w, http.StatusServiceUnavailable, notice{Title: "Too many at once",
			Text: "Close some of the pages, and try again."})
	}
}

// knows reports whether a request comes with the token, or with the cookie that was given for it.
func (g *guard) knows(r *http.Request) bool {
	if all := r.Header.Values("Authorization"); len(all) > 0 {
		scheme, value, _ := strings.Cut(all[0], " ")
		return len(all) == 1 && strings.EqualFold(scheme, "Bearer") && same(strings.TrimSpace(value), g.token)
	}
	return slices.ContainsFunc(r.CookiesNamed(g.cookie), func(c *http.Cookie) bool { return same(c.Value, g.pass()) })
}

// refuse asks for the token.
func (g *guard) refuse(w http.ResponseWriter) {
	w.Header().Set("WWW-Authenticate", `Bearer realm="rackless ui"`)
	writeNotice(w, http.StatusUnauthorized, notice{
		Title: "A token is needed",
		Text: "Open the address that rackless ui has printed, with its token. Each start makes a new one, unless it " +
			"was given --token-file.",
	})
}

// pass is the value of the cookie: it follows from the token, which does not follow from it. Other
// services of this machine, on other ports, may see cookies.
func (g *guard) pass() string {
	sum := sha256.Sum256([]byte("cookie of rackless ui\n" + g.token))
	return hex.EncodeToString(sum[:])
}

// same compares without telling by its time how much of a guess is right, nor how long the right one is.
func same(have, want string) bool {
	a, b := sha256.Sum256([]byte(have)), sha256.Sum256([]byte(want))
	return want != "" && subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// policy is the content security policy: what is served here and, of style sheets and scripts that
// stand in a page, those with the hashes given.
func policy(hashes ...string) string {
	style, script := "", ""
	for _, h := range hashes {
		switch kind, hash, _ := strings.Cut(h, " "); kind {
		case "style":
			style += " '" + hash + "'"
		case "script":
			script += " '" + hash + "'"
		}
	}
	return "default-src 'none'; style-src 'self'" + style + "; script-src 'self'" + script +
		"; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}

// The pages of a study and of a result are made to stand alone, as files: with a policy of their
// own, and without a link to other pages. Served from here they get the policy of the server and a link.
var (
	ownPolicy = regexp.MustCompile(`<meta http-equiv="Content-Security-Policy" content="([^"]*)">\n?`)
	ownHashes = regexp.MustCompile(`(style|script)-src '(sha256-[A-Za-z0-9+/=]{44})'`)
)

// framed puts a link back at the top of a page and a part of ours at its end, adds our style sheet
// and script to its own, and returns the policy that goes with it.
func framed(page, nav, end []byte) (out []byte, csp string, err error) {
	head, body, found := bytes.Cut(page, []byte("</head>\n<body>\n"))
	at := ownPolicy.FindSubmatchIndex(head)
	if !found || at == nil {
		return nil, "", errors.New("the page has no head with a content security policy, or no body")
	}
	hashes := lists.Map(ownHashes.FindAllStringSubmatch(html.UnescapeString(string(head[at[2]:at[3]])), -1),
		func(m []string) string { return m[1] + " " + m[2] })
	// A policy in the page would hold beside that of the response, and forbid what is added.
	main := max(0, bytes.LastIndex(body, []byte("</main>")))
	return bytes.Join([][]byte{head[:at[0]], head[at[1]:], []byte(assets), []byte("</head>\n<body>\n"), nav,
		body[:main], end, body[main:]}, nil), policy(hashes...), nil
}
