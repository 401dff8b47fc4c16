package browsertest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Tests of pages expect no requests and no errors.
func TestChromiumWatcherSeesRequestsAndErrors(t *testing.T) {
	b := Start(t)
	for name, c := range map[string]struct{ html, want string }{
		"an error on the console":    {`<script>console.error("broken")</script>`, "broken"},
		"an exception":               {`<script>throw new Error("thrown")</script>`, "thrown"},
		"a request to the network":   {`<img src="http://127.0.0.1:9/pixel.png">`, "http://127.0.0.1:9/pixel.png"},
		"a request for another file": {`<link rel="stylesheet" href="other.css">`, "other.css"},
		"a break of the page's policy": {`<meta http-equiv="Content-Security-Policy" content="default-src 'none'">` +
			`<script>1</script>`, "Content Security Policy"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "page.html")
			if err := os.WriteFile(file, []byte("<!DOCTYPE html><title>x</title>"+c.html), 0o644); err != nil {
				t.Fatal(err)
			}
			seen := b.Open(t, file, Screens[0], "''")
			if !strings.Contains(strings.Join(seen.Problems, "\n"), c.want) {
				t.Errorf("got problems %q, want one with %q", seen.Problems, c.want)
			}
		})
	}
}
