package fabric

import (
	"log/slog"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func TestDirectUntilALinkOrACapture(t *testing.T) {
	b, err := newBridge(slog.New(slog.DiscardHandler), time.Now, DefaultQueueBytes)
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	var told []bool
	b.tell = func(direct bool) { told = append(told, direct) }
	dir := t.TempDir()
	for _, name := range []string{"a", "b"} {
		if err := b.addPort(Port{Name: name, Path: filepath.Join(dir, name)}); err != nil {
			t.Fatal(err)
		}
	}
	slow := Link{Delay: time.Millisecond}
	var taken *tap
	for i, step := range []struct {
		do   func() error
		want []bool
	}{
		{func() error { return b.setLink("a", slow) }, []bool{false}},
		{func() error { return b.setLink("b", slow) }, []bool{false}},
		{func() error { return b.setLink("a", Link{Seed: 7}) }, []bool{false}},
		{func() error { taken, err = b.newTap("a", 0); return err }, []bool{false}},
		{func() error { return b.removePort("b") }, []bool{false}},
		{func() error { b.removeTap(taken); return nil }, []bool{false, true}},
		{func() error { return b.setLink("a", slow) }, []bool{false, true, false}},
		{func() error { return b.setLink("a", Link{}) }, []bool{false, true, false, true}},
	} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(told, step.want) {
			t.Errorf("after step %d it was told %v, want %v", i, told, step.want)
		}
	}
}
