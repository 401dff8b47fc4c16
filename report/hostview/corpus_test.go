package hostview

import (
	"bytes"
	"context"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jedib0t/go-pretty/v6/text"
	judge "github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/rackless/rackless/machine/diagnose"
	"github.com/rackless/rackless/machine/inspect"
)

// Every machine that can be read can be shown: hwloc, NCCL, nvidia-smi, lspci, and /sys.
func TestEveryMachineOfTheReadersCanBeShown(t *testing.T) {
	t.Parallel()
	s := compiled(t, strict(t, schema(t)))
	files, shown, kinds := 0, 0, map[string]int{}
	some := 1
	if testing.Short() {
		some = 5
	}
	err := filepath.WalkDir("../../machine/inspect", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.Contains(file, "testdata") {
			return err
		}
		if files++; files%some != 0 {
			return nil
		}
		h, err := inspect.ReadFile(context.Background(), file)
		if err != nil {
			return nil // an expected output, or a file to reject
		}
		shown++
		kinds[h.Provenance.Kind]++
		doc := NewDocument(h, diagnose.Host(h))
		v := newView(doc)
		sc := newScene(v)
		sc.collapse()
		for on, sh := range sheets {
			for _, f := range flaws(sh.layout(v, sc), sh) {
				t.Errorf("%s on %s: %s", file, on, f)
			}
		}
		value, err := judge.UnmarshalJSON(bytes.NewReader(written(t, func(b *bytes.Buffer) error {
			return doc.WriteJSON(b, false)
		})))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Validate(value); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		wellFormed(t, written(t, func(b *bytes.Buffer) error { return doc.WriteSVG(b) }))
		for line := range strings.Lines(tableOf(t, doc, TableOptions{})) {
			if w := text.StringWidth(strings.TrimSuffix(line, "\n")); w > 80 &&
				strings.Contains(strings.TrimSpace(line), " ") {
				t.Errorf("%s: %d columns: %s", file, w, line)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d machines: %v", shown, kinds)
	if shown < 50/some || some == 1 && len(kinds) < 4 {
		t.Errorf("only %d machines of %v were read", shown, kinds)
	}
}
