package live

import (
	"bytes"
	"errors"
	"github.com/rackless/rackless/internal/lists"
	"html"
	"regexp"
)

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
