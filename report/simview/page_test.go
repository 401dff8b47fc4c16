//go:build linux

package simview

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rackless/rackless/rdma/simulate"
)

func simulated(t *testing.T, text string) *simulate.Result {
	t.Helper()
	c, err := simulate.Parse("test.yaml", []byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	if c.Level != simulate.FlowLevel {
		c.Curves = &simulate.Curves{}
	}
	return simulate.Run(c, func() bool { return false })
}

// Pages are well formed, load nothing, and have the curves and tables that their result has.
func TestPages(t *testing.T) {
	results := map[string]*simulate.Result{
		"incast": simulated(t, "name: \"<in & cast>\"\ntopology: {form: star, hosts: 5, rate: 100Gbit}\nswitch: "+
			"{buffer: 1MiB}\nnic: {congestion: none}\ntraffic: [{pattern: incast, to: h0, senders: 4, bytes: 1MiB}]"),
		"flows": simulated(t, "level: flow\ntopology: {form: star, hosts: 5, rate: 100Gbit}\n"+
			"traffic: [{pattern: incast, to: h0, senders: 4, bytes: 1MiB}]"),
		"empty": {Name: "empty"},
		"locked": {Name: "x", Unfinished: 1, Deadlocks: []simulate.Deadlock{{At: time.Millisecond, Priority: 3,
			Cycle: []string{"s0:1", "s1:2"}}}},
	}
	for name, r := range results {
		var b bytes.Buffer
		if err := Page(&b, r, "text & more"); err != nil {
			t.Fatal(err)
		}
		page := b.String()
		if name == "flows" && (strings.Contains(page, "Dropped") || !strings.Contains(page, "level: flow")) {
			t.Errorf("%s: the page counts packets", name)
		}
		for _, out := range []string{"src=", "http://", "https://", "NaN", "Inf "} {
			if strings.Contains(page, out) {
				t.Errorf("%s: the page has %q", name, out)
			}
		}
		for _, s := range map[string][]string{
			"incast": {"&lt;in &amp; cast&gt;", `id="queues-wide-c"`, `id="rates-narrow-c"`, `<dt>Payload</dt>`, "s0:0",
				"h1&gt;h0", "up to 10000000", "How pauses spread", "text &amp; more"},
			"locked": {"s0:1 waits for s1:2 waits for s0:1", "1 of 0 flows did not end"},
		}[name] {
			if !strings.Contains(page, s) {
				t.Errorf("%s: the page lacks %q", name, s)
			}
		}
		page = regexp.MustCompile(`(?s)<style>.*?</style>`).ReplaceAllString(page, "")
		page = regexp.MustCompile(`<meta\b([^>]*)>`).ReplaceAllString(page, "<meta$1/>")
		decoder := xml.NewDecoder(strings.NewReader(strings.Replace(page, "<!DOCTYPE html>", "", 1)))
		decoder.Entity = xml.HTMLEntity
		for {
			_, err := decoder.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
	}
}
