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

// A guard admits only requests with the token: every local user and every web page in the user's browser can connect.
type guard struct {
	token  string
	hosts  []string // allowed Host headers
	cookie string
	next   http.Handler
	room   chan struct{} // a slot per request
}

// maxRequests is far more than a few pages and a Prometheus need.
const maxRequests = 64

func newGuard(addr, token string, next http.Handler) *guard {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		host, port = addr, "80"
	}
	g := &guard{token: token, next: next, room: make(chan struct{}, maxRequests)}
	for _, h := range []string{host, "127.0.0.1", "::1", "localhost"} {
		g.hosts = append(g.hosts, net.JoinHostPort(h, port))
	}
	// A browser sends cookies to all ports of a host.
	g.cookie = "rackless-" + port
	return g
}

// ServeHTTP admits a request that addresses this server by one of its names, only reads, and has the token.
func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy())
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	// By DNS rebinding, the name of a foreign web site can point at this machine. Its requests still carry that name.
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
		// The token must not stay in the address, which appears in the history and on screenshots. Two leading slashes
		// would lead to another host.
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

func (g *guard) knows(r *http.Request) bool {
	if all := r.Header.Values("Authorization"); len(all) > 0 {
		scheme, value, _ := strings.Cut(all[0], " ")
		return len(all) == 1 && strings.EqualFold(scheme, "Bearer") && same(strings.TrimSpace(value), g.token)
	}
	return slices.ContainsFunc(r.CookiesNamed(g.cookie), func(c *http.Cookie) bool { return same(c.Value, g.pass()) })
}

func (g *guard) refuse(w http.ResponseWriter) {
	w.Header().Set("WWW-Authenticate", `Bearer realm="rackless ui"`)
	writeNotice(w, http.StatusUnauthorized, notice{
		Title: "A token is needed",
		Text: "Open the address that rackless ui has printed, with its token. Each start makes a new one, unless it " +
			"was given --token-file.",
	})
}

// pass is a hash of the token, because services on other ports may see cookies but must not learn the token.
func (g *guard) pass() string {
	sum := sha256.Sum256([]byte("cookie of rackless ui\n" + g.token))
	return hex.EncodeToString(sum[:])
}

// same takes constant time, so that timing reveals neither how much of a guess is right nor the length.
func same(have, want string) bool {
	a, b := sha256.Sum256([]byte(have)), sha256.Sum256([]byte(want))
	return want != "" && subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// policy allows resources of this server, and inline styles and scripts with the hashes.
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

// The pages of a study and of a result are standalone files. Here they get the server's policy and a link back.
var (
	ownPolicy = regexp.MustCompile(`<meta http-equiv="Content-Security-Policy" content="([^"]*)">\n?`)
	ownHashes = regexp.MustCompile(`(style|script)-src '(sha256-[A-Za-z0-9+/=]{44})'`)
)

// framed adds nav at the top, end at the end, and our style sheet and script, and returns the matching policy.
func framed(page, nav, end []byte) (out []byte, csp string, err error) {
	head, body, found := bytes.Cut(page, []byte("</head>\n<body>\n"))
	at := ownPolicy.FindSubmatchIndex(head)
	if !found || at == nil {
		return nil, "", errors.New("the page has no head with a content security policy, or no body")
	}
	hashes := lists.Map(ownHashes.FindAllStringSubmatch(html.UnescapeString(string(head[at[2]:at[3]])), -1),
		func(m []string) string { return m[1] + " " + m[2] })
	// The page's own policy would forbid the additions.
	main := max(0, bytes.LastIndex(body, []byte("</main>")))
	return bytes.Join([][]byte{head[:at[0]], head[at[1]:], []byte(assets), []byte("</head>\n<body>\n"), nav,
		body[:main], end, body[main:]}, nil), policy(hashes...), nil
}
