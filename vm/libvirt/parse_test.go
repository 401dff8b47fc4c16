package libvirt

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestThreadsOfQEMU(t *testing.T) {
	// Output of QEMU 10.0.2, shortened.
	const cpus = `[{"thread-id":4242,"props":{"core-id":0,"thread-id":0,"socket-id":0},` +
		`"qom-path":"/machine/unattached/device[0]","cpu-index":0,"target":"x86_64"},
		{"thread-id":4244,"cpu-index":2},{"thread-id":4243,"cpu-index":1}]`
	const iothreads = `[{"poll-shrink":0,"thread-id":4250,"aio-max-batch":0,"poll-grow":0,"poll-max-ns":32768,` +
		`"id":"iothread10"},{"thread-id":4249,"id":"iothread2"}]`
	if got, err := parseCPUs([]byte(cpus)); err != nil || !slices.Equal(got, []int{4242, 4243, 4244}) {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := parseIOThreads([]byte(iothreads)); err != nil || !slices.Equal(got, []int{4249, 4250}) {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := parseIOThreads([]byte("[]")); err != nil || len(got) != 0 {
		t.Errorf("none: got %v, %v", got, err)
	}
	for _, bad := range []string{
		`{}`, `[{"cpu-index":1,"thread-id":5}]`, `[{"cpu-index":0}]`, `[{"cpu-index":-1,"thread-id":5}]`,
		`[{"cpu-index":0,"thread-id":5},{"cpu-index":0,"thread-id":6}]`,
	} {
		if got, err := parseCPUs([]byte(bad)); err == nil {
			t.Errorf("%s: got %v", bad, got)
		}
	}
	for _, bad := range []string{`{}`, `[{"id":"mon_iothread","thread-id":5}]`, `[{"id":"iothread1"}]`,
		`[{"id":"iothread1","thread-id":5},{"id":"iothread1","thread-id":6}]`} {
		if got, err := parseIOThreads([]byte(bad)); err == nil {
			t.Errorf("%s: got %v", bad, got)
		}
	}
}

const document = `<!-- made by hand -->
<domain type='qemu'>
  <name>pair.vm00</name>
  <uuid>12345678-1234-1234-1234-123456789abc</uuid>
  <metadata>
    <rackless:node xmlns:rackless='https://github.com/rackless/rackless/libvirt/1' ` +
	`lab='pair' name='vm00' plan='rackless/plan/v1' host='this &lt;machine&gt;'/>
    <other:note xmlns:other='https://example.org/'>kept</other:note>
  </metadata>
  <!-- two -->
  <vcpu>2</vcpu> <!-- beside -->
</domain>
`

func TestMarkIsReadBack(t *testing.T) {
	marked, err := mark("pair.vm00", []byte(document))
	if err != nil {
		t.Fatal(err)
	}
	d, err := parseDomain(marked)
	if err != nil {
		t.Fatal(err)
	}
	if d.Name != "pair.vm00" || d.UUID != "12345678-1234-1234-1234-123456789abc" || d.Node == nil ||
		d.Node.Lab != "pair" || d.Node.Node != "vm00" {
		t.Fatalf("got %+v, %+v", d, d.Node)
	}
	want := strings.NewReplacer("<!-- made by hand -->\n", "", "  <!-- two -->\n", "", "<!-- beside -->",
		"").Replace(document)
	if diff := cmp.Diff(want, string(d.Node.Defined)); diff != "" {
		t.Errorf("what it was defined with (-want +got):\n%s", diff)
	}
	if !bytes.Contains(marked, []byte("digest='"+digest([]byte(want))+"'")) {
		t.Errorf("another digest than that of what it was defined with:\n%s", marked)
	}
	if !bytes.Contains(marked, []byte("kept</other:note>")) ||
		!bytes.Contains(marked, []byte("host='this &lt;machine&gt;'")) {
		t.Errorf("something is lost:\n%s", marked)
	}
	again, err := mark("pair.vm00", []byte(document))
	if err != nil || !bytes.Equal(again, marked) {
		t.Errorf("marked again it is another document: %v", err)
	}
	tampered := bytes.Replace(marked, []byte("digest='sha256:"), []byte("digest='sha256:0"), 1)
	if d, err := parseDomain(tampered); err != nil || d.Node == nil || d.Node.Defined != nil {
		t.Errorf("with another digest: %+v, %v", d.Node, err)
	}
}

func TestDocumentsThatAreNotMarked(t *testing.T) {
	for name, tt := range map[string]struct{ from, to, want string }{
		"another name": {"<name>pair.vm00", "<name>pair.vm01", `its XML is of domain "pair.vm01"`},
		"no element of ours": {"https://github.com/rackless", "https://example.org",
			"no element of rackless in its metadata"},
		"no lab": {"lab='pair'", "", "no element of rackless in its metadata"},
		"marked already": {"host='this &lt;machine&gt;'/>", "><rackless:defined digest='x'/></rackless:node>",
			"for rackless to add"},
		"not well-formed":     {"</domain>", "", "unexpected EOF"},
		"not a domain":        {"domain", "network", "expected element type <domain>"},
		"a comment unclosed":  {"<!-- two -->", "<!-- two ", "read domain XML"},
		"of another encoding": {"<!-- made by hand -->", "<?xml version='1.0' encoding='utf-16'?>", "encoding"},
	} {
		if got, err := mark("pair.vm00", []byte(strings.ReplaceAll(document, tt.from, tt.to))); err == nil ||
			!strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %s\n%s", name, err, tt.want, got)
		}
	}
}

func TestForeignDomainsHaveNoMark(t *testing.T) {
	for name, text := range map[string]string{
		"no metadata": "<domain><name>x</name><uuid>u</uuid></domain>",
		"another tool's": "<domain><name>x</name><uuid>u</uuid><metadata><node lab='a' " +
			"name='b'/></metadata></domain>",
		"ours without a lab": "<domain><name>x</name><uuid>u</uuid><metadata><r:node " +
			"xmlns:r='https://github.com/rackless/rackless/libvirt/1' name='b'/></metadata></domain>",
		"outside of it": "<domain><name>x</name><uuid>u</uuid><r:node " +
			"xmlns:r='https://github.com/rackless/rackless/libvirt/1' lab='a' name='b'/></domain>",
	} {
		if d, err := parseDomain([]byte(text)); err != nil || d.Node != nil {
			t.Errorf("%s: %+v, %v", name, d.Node, err)
		}
	}
	for _, text := range []string{"", "<domain/>", "<domain><name>x</name></domain>", "<pool/>"} {
		if d, err := parseDomain([]byte(text)); err == nil {
			t.Errorf("%s: got %+v", text, d)
		}
	}
}

func FuzzMark(f *testing.F) {
	f.Add([]byte(document))
	f.Add([]byte(strings.ReplaceAll(document, "'/>", "'></rackless:node>")))
	f.Fuzz(func(t *testing.T, text []byte) {
		if d, err := parseDomain(text); err != nil && d != (Domain{}) {
			t.Errorf("%q: %+v with %v", text, d, err)
		}
		marked, err := mark("pair.vm00", text)
		if err != nil {
			return
		}
		d, err := parseDomain(marked)
		if err != nil && !strings.Contains(err.Error(), "no name or no UUID") {
			t.Fatalf("%q: %v", marked, err)
		}
		plain, stripErr := stripComments(text)
		if err == nil && (stripErr != nil || d.Node == nil || !bytes.Equal(d.Node.Defined, plain)) {
			t.Errorf("%q: marked %q, read back %+v", text, marked, d.Node)
		}
	})
}

func TestDifferences(t *testing.T) {
	for name, tt := range map[string]struct {
		before, after string
		want          []string
	}{
		"none":           {"a\nb\n", "a\n  b\n", nil},
		"a line changed": {"a\nb\nc\n", "a\nB\nc\n", []string{"- b", "+ B"}},
		"lines added":    {"a\nd\n", "a\nb\nc\nd\n", []string{"+ b", "+ c"}},
		"lines removed":  {"a\nb\nc\nd\n", "a\nd\n", []string{"- b", "- c"}},
		"two places":     {"a\nb\nc\nd\ne\n", "a\nx\nc\ny\ne\n", []string{"- b", "+ x", "- d", "+ y"}},
		"from nothing":   {"", "a\n", []string{"+ a"}},
	} {
		if diff := cmp.Diff(tt.want, diffLines([]byte(tt.before), []byte(tt.after))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	got := diffLines(nil, []byte(strings.Repeat("x\n", 100)))
	if len(got) != maxDiff+1 || got[maxDiff] != "and 80 lines more" {
		t.Errorf("a long one: %q", got)
	}
}

func TestDifferencesAreWhatDiffers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		line := rapid.SampledFrom([]string{"a", "b", "c"})
		a, b := rapid.SliceOfN(line, 0, maxDiff/2).Draw(t, "a"), rapid.SliceOfN(line, 0, maxDiff/2).Draw(t, "b")
		text := func(lines []string) []byte { return []byte(strings.Join(append(slices.Clone(lines), ""), "\n")) }
		diff := diffLines(text(a), text(b))
		var removed, added []string
		for _, d := range diff {
			if l, ok := strings.CutPrefix(d, "- "); ok {
				removed = append(removed, l)
			} else {
				added = append(added, strings.TrimPrefix(d, "+ "))
			}
		}
		if len(a)-len(removed) != len(b)-len(added) {
			t.Fatalf("%v and %v: %v", a, b, diff)
		}
		count := func(lists ...[]string) (n [3]int) {
			for i, list := range lists {
				for _, l := range list {
					n[l[0]-'a'] += 1 - 2*i
				}
			}
			return n
		}
		if x, y := count(a, removed), count(b, added); x != y {
			t.Errorf("%v and %v: %v leaves %v and %v", a, b, diff, x, y)
		}
	})
}

func TestNamesThatAreNone(t *testing.T) {
	c := &Conn{}
	for _, name := range []string{"", "-x", "a b", "a'b", `a"b`, "a/b", "a\nb", "ü", `a\b`} {
		if _, err := c.Get(context.Background(), name); err == nil ||
			err.Error() != fmt.Sprintf("domain name %q: want LAB.NODE", name) {
			t.Errorf("%q: got %v", name, err)
		}
	}
}

func TestWhatWouldEndRunningDomainsIsShown(t *testing.T) {
	err := &ChangedError{[]Change{{Name: "pair.vm00", Action: Replace, Diff: []string{"- a", "+ b"}},
		{Name: "pair.vm01", Action: Replace, Diff: unknownDiff}}}
	want := `domain pair.vm00 runs and has changed; to apply it the domain has to be ended:
  - a
  + b
domain pair.vm01 runs and has changed; to apply it the domain has to be ended:
  it was not defined by rackless itself, so that what it was defined with is not known`
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Error(diff)
	}
}
