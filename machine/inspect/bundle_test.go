package inspect

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// made are identities that are made up, each in a form in which a log or a document has it.
var made = []struct{ text, tells string }{
	{"host quokka is up, FQDN quokka.zoo.example", "quokka"},
	{"QUOKKA login:", "quokka"},
	{"quokka_data mounted", "quokka"},
	{"/home/bilby/labs/pair.yaml", "bilby"},
	{"user bilby_x logged in as bilby2", "bilby"},
	{"owner Bilby O'Dingo <bilby@dingo-labs.example>", "dingo"},
	{"project node: link up", "project"},
	{"peer at 192.168.77.12:4791", "192.168.77"},
	{"inet6 2a02:1234:5678:9abc::12/64", "2a02"},
	{"peer [2a02:1234:5678:9abc:d::1]:4791", "2a02"},
	{"peer ::ffff:192.168.77.12", "192.168.77"},
	{"route 2a02:1234:5678:9abc:1:2:3:4", "2a02"},
	{"gid fe80:0000:0000:0000:ba3f:d2ff:fe0a:0b0c", "ba3f"},
	{"address b8:3f:d2:0a:0b:0c", "d2:0a:0b"},
	{"address B8-3F-D2-0A-0B-0C", "d2-0a-0b"},
	{"address b83f.d20a.0b0c on port 7", "d20a.0b0c"},
	{"address b83fd20a0b0c", "b83fd20a0b0c"},
	{"guid b83f:d203:000a:0b0c", "d203"},
	{"uuid 8d1f6a2e-5b6a-7988-1726-354453627180", "8d1f6a2e"},
	{"serial S4EVNX0R123456", "s4evnx0r"},
	{"serial number: 70012345678", "70012345678"},
	{"asset 1234567", "1234567"},
	{"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKqz7Qx bilby@quokka", "aaaac3nzac1"},
	{"host key SHA256:q9kq3Zb0Yx7Lw2mNd5Tf8Rj1Pv4Hc6Gs", "q9kq3zb0"},
	{"password=Wallaby!77", "wallaby"},
	{"Jürgen Känguru wrote this", "känguru"},
	{"vm wombat-prod started", "wombat"},
}

// bundled returns a bundle of the machine with all forms of identities, with a log, a document and a lab file.
func bundled(t *testing.T) *Bundle {
	t.Helper()
	var log bytes.Buffer
	doc := map[string]any{"mtu": 4200, "harbour": "failed", "node": "harbour", "by": map[string]string{}}
	for i, m := range made {
		fmt.Fprintf(&log, "2026-11-29T17:08:19.123Z %s\n", m.text)
		doc[fmt.Sprintf("key_%d", i)] = m.text
		doc["by"].(map[string]string)[m.text] = "failed"
	}
	log.WriteString("mlx5_0: link failed after 30ms, 4096 bytes\n")
	text, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	b, err := TakeBundle(t.Context(), identified(t), []Part{
		{Name: "logs/switch.log", About: "the log", Data: log.Bytes()},
		{Name: "verify.json", About: "findings", Data: text},
		{Name: "samples.jsonl", About: "figures", Data: append(append(text, '\n'), text...)},
		{Name: "plan.json", About: "the plan", Missing: "open /home/bilby/plan.json: quokka has none"},
		{Name: "journal.json", About: "steps", Data: []byte(`{"what": "bilby`)},
	}, BundleOptions{Tool: "rackless test", Public: []string{"link failed after bytes mtu status by project key log " +
		"wombat address open home labs plan json"},
		Names: []string{"Bilby", "project", "harbour"}, Keys: []string{"harbour", "node"}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func written(t *testing.T, b *Bundle) (file, text string) {
	t.Helper()
	var packed bytes.Buffer
	if err := b.Write(&packed); err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "bundle.tar.gz")
	if err := os.WriteFile(file, packed.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(&packed)
	if err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return file, string(all)
}

func TestNothingIdentifiesInABundle(t *testing.T) {
	t.Parallel()
	_, text := written(t, bundled(t))
	text = strings.ToLower(text)
	for _, m := range made {
		if i := strings.Index(text, m.tells); i >= 0 {
			t.Errorf("%q is in the bundle: %q", m.tells, text[max(0, i-60):min(len(text), i+80)])
		}
	}
	for _, kept := range []string{"2026-11-29t17:08:19.123z", "mlx5_0: link failed after 30ms, 4096 bytes",
		`"harbour":"failed"`, `"node":"name`, "it is damaged"} {
		if !strings.Contains(text, kept) {
			t.Errorf("the bundle lacks %q", kept)
		}
	}
}

// A name has one substitute in the machine's files, in a log and in a document, and another one in the next bundle.
func TestANameHasOneSubstituteInABundle(t *testing.T) {
	t.Parallel()
	b := bundled(t)
	h, err := b.Host(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	mac := h.NICs[nicAt(t, h, "0000:41:00.0")].Ports[0].MAC
	for _, p := range b.Parts[:3] {
		if !strings.Contains(string(p.Data), "address "+mac) {
			t.Errorf("%s lacks the address %s of the machine:\n%s", p.Name, mac, p.Data)
		}
	}
	user := regexp.MustCompile(`/home/(name[0-9a-f]{8})/labs`)
	first := user.FindSubmatch(b.Parts[0].Data)
	if first == nil || !bytes.Contains(b.Parts[1].Data, first[1]) {
		t.Errorf("the user is %s in the log, and another in the document:\n%s", first, b.Parts[1].Data)
	}
	src := identified(t)
	other, err := TakeBundle(t.Context(), src, []Part{{Name: "a.log", Data: []byte("/home/bilby/labs")}},
		BundleOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if first != nil && bytes.Contains(other.Parts[0].Data, first[1]) {
		t.Error("two bundles have the same substitute")
	}
}

func TestABundleIsReadAsASnapshot(t *testing.T) {
	t.Parallel()
	b := bundled(t)
	want, err := b.Host(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	file, _ := written(t, b)
	got, err := ReadFile(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	want.Provenance = got.Provenance // the name of the file
	if diff := cmp.Diff(hostJSON(t, want), hostJSON(t, got)); diff != "" {
		t.Errorf("host (-in memory +from the file):\n%s", diff)
	}
	if data, err := BundlePart(file, "verify.json"); err != nil || !json.Valid(data) {
		t.Errorf("verify.json: %v\n%s", err, data)
	}
	if _, err := BundlePart(file, "plan.json"); err == nil ||
		!strings.Contains(err.Error(), "the bundle has no plan.json: open /home/name") {
		t.Errorf("a part that it lacks: %v", err)
	}
}

func TestOtherFilesAreNoBundles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	snapshot := write("host.tar.zst", snapshotOf(t, identified(t), SnapshotOptions{}))
	for _, path := range []string{snapshot, write("plan.json", []byte("{}")), write("empty", nil), dir, "/dev/null",
		filepath.Join(dir, "none")} {
		if files, err := OpenBundle(path); files != nil || err != nil {
			t.Errorf("%s: %v, %v", path, files, err)
		}
	}
}
